"""The spool: a recording on disk, and its description."""
