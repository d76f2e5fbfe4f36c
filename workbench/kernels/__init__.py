"""Kernels: one module a family, each giving parameters, complexity, operation count and configuration spaces."""
