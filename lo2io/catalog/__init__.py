"""What each tracepoint means: ``tracepoints/*.toml`` as specifications, and the layouts of samples."""
