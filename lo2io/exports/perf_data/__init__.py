"""The export to perf.data."""
