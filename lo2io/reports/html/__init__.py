"""The report as one HTML file: what happened over time, drawn."""
