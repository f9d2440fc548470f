"""Does I/O that is slow for one known reason. Run as a program in a file system of its own: ``slow.py NAME``."""

from __future__ import annotations

import mmap
import os
import sys
import threading

PAGE, MIB = 4096, 1 << 20
BIG = 256 * MIB
STRIDE = BIG // 1000 // PAGE * PAGE


def append_together() -> None:
    """Eight threads append to one file past the page cache: also on a fast disk, each waits for seven."""

    def work() -> None:
        fd = os.open("shared", os.O_WRONLY | os.O_CREAT | os.O_DIRECT | os.O_APPEND)
        piece = mmap.mmap(-1, 16 * PAGE)
        for _ in range(300):
            os.write(fd, piece)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def create_many() -> None:
    """Create files, and truncate those whose inodes share no block: a small journal is full again and again."""
    os.mkdir("d")  # noqa: PTH102 # pathlib takes time to import
    for step in (1, *[4] * 20):
        for number in range(0, 12_000, step):
            os.close(os.open(f"d/{number}", os.O_WRONLY | os.O_CREAT | os.O_TRUNC))


def write_much() -> None:
    """Write more than may be dirty."""
    fd, piece = os.open("dirty", os.O_WRONLY | os.O_CREAT), bytes(MIB)
    for number in range(600):
        os.pwrite(fd, piece, number % 200 * MIB)


def read_pairs() -> None:
    """Read two pages one after the other, at places far from each other: the kernel expects more."""
    fd = os.open("big", os.O_RDONLY)
    for number in range(400):
        place = number * 7919 % 1000 * STRIDE
        os.pread(fd, PAGE, place)
        os.pread(fd, PAGE, place + PAGE)


def read_in_order() -> None:
    """Read page by page, having said that reads will jump."""
    fd = os.open("big", os.O_RDONLY)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_RANDOM)
    for number in range(24_000):
        os.pread(fd, PAGE, number * PAGE)


def touch_pages() -> None:
    """Read a mapped file page by page, at places far from each other."""
    fd = os.open("big", os.O_RDONLY)
    with mmap.mmap(fd, BIG, prot=mmap.PROT_READ) as memory:
        memory.madvise(mmap.MADV_RANDOM)
        for number in range(24_000):
            _ = memory[number * 7919 % (BIG // PAGE) * PAGE]


WORK = {
    "lock-contention": append_together,
    "journal-bound": create_many,
    "throttled-writer": write_much,
    "wasted-read-ahead": read_pairs,
    "no-read-ahead": read_in_order,
    "faults-one-by-one": touch_pages,
}
"""Name of the finding → what is slow for this reason."""


def prepare() -> None:
    """Make the file that is read, and leave none of it in the page cache."""
    fd = os.open("big", os.O_RDWR | os.O_CREAT)
    for number in range(BIG // MIB):
        os.pwrite(fd, bytes(MIB), number * MIB)
    os.fsync(fd)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(fd)


if __name__ == "__main__":
    WORK[sys.argv[1]]()
