"""Measurements: others' files by URL and sha256, importers, the store, and the catalogue of data sets."""
