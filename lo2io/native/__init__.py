"""The native part, in C: its declarations for Python are in ``api/``."""
