"""OTF2 archives without lo2io's tables, mostly other tools', read into such tables as far as OTF2 has the facts."""
