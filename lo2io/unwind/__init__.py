"""Copies of programs' stacks to the functions that called one another, by the unwind tables of the programs' files."""
