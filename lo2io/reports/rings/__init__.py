"""The numbers about rings of io_uring and libaio, from tables."""
