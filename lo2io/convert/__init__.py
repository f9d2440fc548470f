"""From a spool to a trace."""
