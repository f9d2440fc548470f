"""OTF2 archives without tables of lo2io, other tools' as a rule, read as far as OTF2 carries what the tables hold."""
