"""Capture: perf rings and /proc in, a spool out."""
