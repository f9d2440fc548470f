"""The flight recorder: it keeps only the newest part of a recording, and writes this part on request."""
