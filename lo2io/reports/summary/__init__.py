"""The numbers of a report, from tables."""
