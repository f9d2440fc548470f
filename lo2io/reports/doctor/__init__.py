"""Checks of what lo2io can do on this machine."""
