"""Runners: candidates compiled, checked and timed in child processes. Candidate code never runs in the caller."""
