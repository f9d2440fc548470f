"""System-wide I/O tracing with perf events, written as OTF2."""
