"""The programs that run in the kernel: their source, and ``lo2io.bpf.o``, which is built if clang is installed."""
