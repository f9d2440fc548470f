"""The engine once more: slow, plain Python, from docs/explanation/design.md alone. The native one must agree."""
