"""OTF2 archives: the one place that touches libotf2."""
