"""OTF2 archives, read through the lowest level of libotf2."""
