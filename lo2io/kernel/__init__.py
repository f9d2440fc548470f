"""The kernel as files: tracefs, /proc, /sys, and what it grants."""
