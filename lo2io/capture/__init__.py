"""Capture: buffers of events and ``/proc`` in, a spool out."""
