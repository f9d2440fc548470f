"""Reads whose pages the kernel counts before each: a program, run by Python, which prints what was in the page cache.

usage: cached_reads.py FOLDER…

It makes its patterns of reads in each folder. For each read it writes a JSON line: the file, the pattern, the offset,
the result, the pages of the read that were not in the page cache before it (cachestat(2)), those that came into it, and
whether all were up to date (mincore(2)).
"""

from __future__ import annotations

import ctypes
import json
import mmap
import os
import random
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

CACHESTAT = 451
"""Its number on all architectures."""
PAGE = mmap.PAGESIZE
MIB = 1 << 20
SIZE = 16 * MIB
_libc = ctypes.CDLL(None, use_errno=True)


class _Stat(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint64) for name in ("cache", "dirty", "writeback", "evicted", "recently")]


def count_pages(fd: int, offset: int, length: int) -> int:
    """Pages of the range that are in the page cache."""
    span, stat = (ctypes.c_uint64 * 2)(offset, length), _Stat()
    if _libc.syscall(CACHESTAT, fd, span, ctypes.byref(stat), 0):
        raise OSError(ctypes.get_errno(), "cachestat")
    return int(stat.cache)


def all_ready(view: mmap.mmap, offset: int, length: int) -> bool:
    """True if all pages of the range are up to date."""
    first = offset // PAGE
    pages = (offset + length - 1) // PAGE - first + 1
    flags = (ctypes.c_ubyte * pages)()
    address = ctypes.addressof(ctypes.c_char.from_buffer(view)) + first * PAGE
    if _libc.mincore(ctypes.c_void_p(address), ctypes.c_size_t(pages * PAGE), flags):
        raise OSError(ctypes.get_errno(), "mincore")
    return all(flag & 1 for flag in flags)


class Reader:
    """Reads one file, and counts its pages before and after each read."""

    def __init__(self, path: Path, pattern: str, flags: int = 0) -> None:
        self.path, self.pattern = path, pattern
        self.fd = os.open(path, os.O_RDWR | flags)
        self.size = os.fstat(self.fd).st_size
        self.view = mmap.mmap(self.fd, self.size)
        self.room = mmap.mmap(-1, MIB)
        self.rows: list[str] = []

    def forget(self) -> None:
        """Write the file's pages back and take them out of the page cache."""
        os.fsync(self.fd)
        os.posix_fadvise(self.fd, 0, 0, os.POSIX_FADV_DONTNEED)

    def read(self, offset: int, length: int) -> None:
        """One pread, and what was there before."""
        span = max(min(length, self.size - offset), 1)
        pages = (offset + span - 1) // PAGE - offset // PAGE + 1
        before = count_pages(self.fd, offset, span)
        ready = offset < self.size and all_ready(self.view, offset, span)
        got = os.preadv(self.fd, [memoryview(self.room)[:length]], offset)
        came = count_pages(self.fd, offset, span) - before
        self.rows.append(
            json.dumps(
                {
                    "path": str(self.path),
                    "pattern": self.pattern,
                    "offset": offset,
                    "result": got,
                    "lacking": pages - before,
                    "came": came,
                    "ready": ready,
                }
            )
        )


def _random(r: Reader, *, size: int = PAGE) -> None:
    r.forget()
    for _ in range(120):
        r.read(random.randrange((r.size - size) // 512) * 512, size)  # noqa: S311 # no secret


def _random_advised(r: Reader) -> None:
    os.posix_fadvise(r.fd, 0, 0, os.POSIX_FADV_RANDOM)
    _random(r, size=3 * PAGE)


def _sequential(r: Reader) -> None:
    r.forget()
    for offset in range(0, r.size, 128 << 10):
        r.read(offset, 128 << 10)


def _begun(r: Reader) -> None:
    r.forget()
    for number in range(5):
        r.read(number * (32 << 10), 32 << 10)


def _cached(r: Reader) -> None:
    for _ in range(2):
        for offset in range(0, r.size, 256 << 10):
            r.read(offset, 8 << 10)


def _mixed(r: Reader) -> None:
    r.forget()
    for _ in range(120):
        length = random.choice((1, 100, 512, 4096, 5000, 65536, 300_000))  # noqa: S311
        r.read(random.randrange(r.size - length), length)  # noqa: S311


def _holes(r: Reader) -> None:
    os.ftruncate(r.fd, 0)
    os.ftruncate(r.fd, r.size)
    os.pwrite(r.fd, b"x" * PAGE, r.size // 2)
    _mixed(r)


def _mapped(r: Reader) -> None:
    r.forget()
    for number in range(120):
        if number % 2:
            r.view[random.randrange(r.size)]  # noqa: S311
        r.read(random.randrange((r.size - 8192) // PAGE) * PAGE, 8192)  # noqa: S311


def _advised(r: Reader) -> None:
    r.forget()
    for offset in range(0, r.size // 2, 256 << 10):
        _libc.readahead(r.fd, ctypes.c_int64(offset), ctypes.c_size_t(256 << 10))
        r.read(offset + 64 * PAGE - PAGE, PAGE)
        r.read(offset, 128 << 10)


def _at_end(r: Reader) -> None:
    r.forget()
    for back in (1, 100, 4096, 5000, 70_000):
        r.read(r.size - back, 100_000)
    r.read(r.size, 4096)


def _direct(r: Reader) -> None:
    r.forget()
    for number in range(40):
        r.read(number * 64 * PAGE, 2 * PAGE)


PATTERNS: dict[str, tuple[Callable[[Reader], None], int]] = {
    "random": (_random, 0),
    "random advised": (_random_advised, 0),
    "sequential": (_sequential, 0),
    "begun": (_begun, 0),
    "cached": (_cached, 0),
    "mixed": (_mixed, 0),
    "holes": (_holes, 0),
    "mapped": (_mapped, 0),
    "advised": (_advised, 0),
    "at the end": (_at_end, 0),
    "direct": (_direct, os.O_DIRECT),
}


def make_file(path: Path) -> None:
    """A file of random bytes, on the disk."""
    with path.open("wb") as file:
        for _ in range(SIZE // MIB):
            file.write(os.urandom(MIB))
        os.fsync(file.fileno())


def race(path: Path) -> Iterator[str]:
    """Two threads read the same cold file at the same time. Nothing is counted, for that would disturb them.

    Each has a CPU of its own: on one CPU, the page would be filled before the other thread runs.
    """
    r = Reader(path, "race")
    r.forget()
    gate, rows = threading.Barrier(2), list[str]()

    def run(cpu: int) -> None:
        os.sched_setaffinity(0, {cpu})
        room = bytearray(PAGE)
        for page in range(0, SIZE // PAGE, 64):
            gate.wait()
            got = os.preadv(r.fd, [room], page * PAGE)
            rows.append(json.dumps({"path": str(path), "pattern": "race", "offset": page * PAGE, "result": got}))

    os.posix_fadvise(r.fd, 0, 0, os.POSIX_FADV_RANDOM)
    cpus = sorted(os.sched_getaffinity(0))
    threads = [threading.Thread(target=run, args=(cpu,)) for cpu in (cpus[0], cpus[-1])]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    yield from rows


def main(folders: list[str]) -> None:
    """All patterns in all folders."""
    for folder in map(Path, folders):
        for pattern, (make, flags) in PATTERNS.items():
            path = folder / pattern.replace(" ", "-")
            make_file(path)
            try:
                reader = Reader(path, pattern, flags)
            except OSError:  # no O_DIRECT here
                continue
            make(reader)
            print(*reader.rows, sep="\n")
        path = folder / "race"
        make_file(path)
        print(*race(path), sep="\n")


if __name__ == "__main__":
    main(sys.argv[1:])
