"""What a trace's tables become for other programs: one module a format, ``formats.py`` names them."""
