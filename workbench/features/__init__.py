"""Features of a workload and its configuration, for models."""
