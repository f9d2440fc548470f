"""The engine once more: slow, plain Python, from docs/explanation/rules alone. The native one must agree."""
