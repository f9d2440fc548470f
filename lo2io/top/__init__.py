"""`lo2io top`: a recording that goes on, drawn again and again."""
