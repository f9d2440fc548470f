"""Does I/O that block requests explain. Run as a program: ``heavy.py NAME [CGROUP]``."""

from __future__ import annotations

import json
import mmap
import os
import resource
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

PAGE, MIB = 4096, 1 << 20
MEMORY = 32 * MIB
CALM = 400
"""Reads before the other process begins."""
TIMES = 4
"""The other process writes its file so often: on a busy machine, few reads may come beside the first time."""


def touch_more_than_fits(group: str) -> None:
    """Write twice as much memory as the cgroup may have, and read it."""
    begun = time.monotonic_ns()
    Path(group, "cgroup.procs").write_text(str(os.getpid()), encoding="ascii")
    with mmap.mmap(-1, MEMORY) as memory:
        memory.madvise(mmap.MADV_NOHUGEPAGE)
        for place in range(0, MEMORY, PAGE):
            memory[place : place + 8] = place.to_bytes(8, "little")
        for place in range(0, MEMORY, PAGE):
            assert int.from_bytes(memory[place : place + 8], "little") == place
    faults = resource.getrusage(resource.RUSAGE_SELF).ru_majflt
    print(json.dumps({"pid": os.getpid(), "major_faults": faults, "lasted_ns": time.monotonic_ns() - begun}))


def read_big() -> None:
    """Read a file through the page cache."""
    fd = os.open("big", os.O_RDONLY)
    while os.read(fd, MIB):
        pass


def read_beside_writer() -> None:
    """Read past the page cache, first alone, then beside a process that writes and syncs."""
    fd = os.open("big", os.O_RDONLY | os.O_DIRECT)
    page = mmap.mmap(-1, PAGE)
    for number in range(CALM):
        os.preadv(fd, [page], number * 7919 % (MEMORY // PAGE) * PAGE)
    begun = time.monotonic_ns()
    writer = os.fork()
    if not writer:
        dirty = os.open("dirty", os.O_WRONLY | os.O_CREAT)
        for _ in range(TIMES):
            for number in range(64):
                os.pwrite(dirty, bytes(MIB), number * MIB)
            os.fdatasync(dirty)
        os._exit(0)
    while os.waitpid(writer, os.WNOHANG) == (0, 0):
        os.preadv(fd, [page], 0)
    print(json.dumps({"reader": os.getpid(), "writer": writer, "begin_ns": begun}))


WORK: dict[str, Callable[..., None]] = {"swap": touch_more_than_fits, "read": read_big, "storm": read_beside_writer}


def prepare(path: Path) -> None:
    """Make the file that is read, and leave none of it in the page cache."""
    with path.open("wb") as file:
        file.write(bytes(MEMORY))
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


if __name__ == "__main__":
    WORK[sys.argv[1]](*sys.argv[2:])
