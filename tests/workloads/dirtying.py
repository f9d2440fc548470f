"""Programs that dirty pages in many ways, each a process of its own that says its pid.

Each writer gets a file's path, and the first byte and the number of bytes that are its own. Numbers are whole pages.
"""

from __future__ import annotations

import mmap
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

PAGE = 4096
STEP = 16 * PAGE
CONTENT = bytes(range(256)) * (STEP // 256)


def write(path: Path, begin: int, size: int) -> None:
    """One call after the other."""
    with path.open("r+b", buffering=0) as file:
        file.seek(begin)
        for _ in range(size // STEP):
            file.write(CONTENT)


def synced(path: Path, begin: int, size: int) -> None:
    """The same, and then fsync(2)."""
    write(path, begin, size)
    fd = os.open(path, os.O_WRONLY)
    os.fsync(fd)
    os.close(fd)


def append(path: Path, begin: int, size: int) -> None:
    """The same with O_APPEND, from an empty file on."""
    with path.open("ab", buffering=0) as file:
        for _ in range(size // STEP):
            file.write(CONTENT)


def scattered(path: Path, begin: int, size: int) -> None:
    """Calls of pwrite(2), a page each, in no order."""
    places = list(range(begin, begin + size, PAGE))
    random.Random(1).shuffle(places)  # noqa: S311 - no secret
    fd = os.open(path, os.O_WRONLY)
    for place in places:
        os.pwrite(fd, CONTENT[:PAGE], place)
    os.close(fd)


def mapped(path: Path, begin: int, size: int) -> None:
    """Stores to a shared mapping, a byte for each page."""
    with path.open("r+b") as file, mmap.mmap(file.fileno(), size, offset=begin) as memory:
        for place in range(0, size, PAGE):
            memory[place] = 1


def sent(path: Path, begin: int, size: int) -> None:
    """Calls of sendfile(2) out of another file."""
    source = os.open(sys.executable, os.O_RDONLY)
    target = os.open(path, os.O_WRONLY)
    os.lseek(target, begin, os.SEEK_SET)
    while size:
        size -= os.sendfile(target, source, 0, min(size, STEP))


def ring(path: Path, begin: int, size: int) -> None:
    """Requests of io_uring, by fio."""
    options = ["--name=ring", "--rw=write", "--bs=64k", "--ioengine=io_uring", "--iodepth=8", "--fallocate=none"]
    place = [f"--filename={path}", f"--offset={begin}", f"--size={size}", "--overwrite=0", "--thread"]
    os.execvp("fio", ["fio", *options, *place, "--output=/dev/null", "--end_fsync=0"])  # noqa: S606


WRITERS: dict[str, Callable[[Path, int, int], None]] = {
    each.__name__: each for each in (write, synced, append, scattered, mapped, sent, ring)
}


def main() -> None:
    """``dirtying.py FOLDER NAME:FILE:BEGIN:SIZE …``: run one writer after another; stdout: their pids."""
    folder = Path(sys.argv[1])
    for told in sys.argv[2:]:
        if told == "sync":
            subprocess.run(["sync", "-f", folder], check=True)
            continue
        name, file, begin, size = told.split(":")
        pid = os.fork()
        if not pid:
            WRITERS[name](folder / file, int(begin), int(size))
            os._exit(0)
        assert os.waitpid(pid, 0)[1] == 0
        sys.stdout.write(f"{told} {pid}\n")


if __name__ == "__main__":
    main()
