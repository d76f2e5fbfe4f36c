"""Tuning: what to run, given models of how long it takes."""
