"""Loads lo2io's programs into the kernel."""
