"""Programs that do a known amount of I/O, and helpers that build and record them."""
