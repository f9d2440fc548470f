"""The meaning of tracepoints: ``tracepoints/*.toml`` as specifications, and the layouts of samples."""
