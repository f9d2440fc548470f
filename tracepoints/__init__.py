"""What tracepoints mean to lo2io: one TOML file per subsystem, read by lo2io/catalog/catalog.py."""
