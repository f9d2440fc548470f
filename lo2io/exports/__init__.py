"""Exports of a trace to formats of other programs. Each format has a module; ``formats.py`` lists them."""
