"""The programs that run in the kernel: their source, and ``lo2io.bpf.o`` where clang was there when lo2io was built."""
