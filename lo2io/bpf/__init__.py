"""The programs in the kernel: loading them, and what loading needs."""
