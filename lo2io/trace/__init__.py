"""The directory of a trace: its tables, written and read."""
