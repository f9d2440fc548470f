"""Known I/O on two disks and a folder: ``two_disks.py DISK DISK FOLDER``. Python suffices for the calls.

On the first disk 23 reads of 64 KiB, 7 writes of 4 KiB and a flush, on the second 11 reads of 4 KiB, then 5 of 64 KiB
by a process called dd; in the folder 13 writes of 100 bytes to ``a.log``, 3 of 5000 to ``b.dat``. All descriptors stay
open for a while, so that their names are seen.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import subprocess
import sys
import time
from pathlib import Path

NAMED_S = 0.7
LIBC = ctypes.CDLL(None, use_errno=True)
for name in ("pread", "pwrite"):
    getattr(LIBC, name).argtypes = (ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int64)


def times(name: str, fd: int, size: int, count: int) -> None:
    """Call pread or pwrite so many times, one range after another."""
    memory = mmap.mmap(-1, 1 << 16)
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    for index in range(count):
        if getattr(LIBC, name)(fd, address, size, index * size) != size:
            raise OSError(ctypes.get_errno(), f"{name} of {size} bytes")


def main(first: str, second: str, folder: str) -> None:
    """Make the calls."""
    disks = [os.open(disk, os.O_RDWR | os.O_DIRECT) for disk in (first, second)]
    files = [os.open(Path(folder) / name, os.O_CREAT | os.O_WRONLY, 0o600) for name in ("a.log", "b.dat")]
    times("pread", disks[0], 1 << 16, 23)
    times("pwrite", disks[0], 4096, 7)
    os.fsync(disks[0])
    times("pread", disks[1], 4096, 11)
    times("pwrite", files[0], 100, 13)
    times("pwrite", files[1], 5000, 3)
    time.sleep(NAMED_S)
    for fd in disks + files:
        os.close(fd)
    command = ["dd", f"if={second}", "of=/dev/null", "bs=64k", "count=5", "iflag=direct", "status=none"]
    subprocess.run(command, check=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
