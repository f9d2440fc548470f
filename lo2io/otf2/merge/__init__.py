"""One OTF2 archive of the archives of many hosts, whose events stay as they are."""
