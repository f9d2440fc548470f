"""The language of filters: its grammar and parser, the part that the kernel can apply, and rows that pass."""
