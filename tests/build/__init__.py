"""Builders of input: spools, traces, tables and histories written by hand, each with an example at its top."""
