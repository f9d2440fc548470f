"""Opened events, perf's and those of the programs in the kernel, and the buffers that hold their records."""
