"""`lo2io top`: a live view of a running recording."""
