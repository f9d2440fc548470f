"""The export to Perfetto."""
