"""The flight recorder: only the newest part is kept, and written when asked."""
