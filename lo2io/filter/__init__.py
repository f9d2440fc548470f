"""The filter language: what a filter is, its text, and what of it the kernel can apply."""
