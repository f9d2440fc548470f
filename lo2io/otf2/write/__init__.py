"""From batches to files: OTF2 archives and Arrow tables."""
