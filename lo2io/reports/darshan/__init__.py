"""Logs of Darshan, summed up so that they can be compared with a trace of the same program."""
