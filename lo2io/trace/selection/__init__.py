"""A part of a trace that reads as a trace."""
