"""Exports to Parquet and CSV."""
