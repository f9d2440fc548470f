"""From tables to text and JSON."""
