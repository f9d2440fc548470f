"""Names of functions that a program has made at run time: ``/tmp/perf-PID.map``, which it writes on request.

The file's form is that of the kernel's ``tools/perf/Documentation/jit-interface.txt``: begin and size in hexadecimal,
and a name, a function a line. Any user can write such a file. So it counts only if it belongs to root or to the
process' user.
"""

from __future__ import annotations

import bisect
import os
import stat
from pathlib import Path
from typing import Final

_FOLDER: Final = Path("/tmp")  # noqa: S108 - where the programs write it
_MAX_BYTES: Final = 1 << 26
_MAX_NAME: Final = 1 << 10
_MAX_FUNCTIONS: Final = 1 << 19
_MAX_ADDRESS: Final = 1 << 64
_PARTS: Final = 3


class PerfMap:
    """The functions that one process has made; none if it has written no such file.

    Args:
        pid: The process.
        uid: Its user.
        born_ns: The process lives since then (of CLOCK_REALTIME): an older file is another process'.
        folder: Where the files lie.
    """

    def __init__(self, pid: int, uid: int, born_ns: int = 0, folder: Path = _FOLDER) -> None:
        found: dict[int, tuple[int, int, str]] = {}
        for line in _read(folder / f"perf-{pid}.map", uid, born_ns).split(b"\n")[-_MAX_FUNCTIONS:]:
            parts = line.split(maxsplit=2)
            if len(parts) == _PARTS:
                try:
                    begin, size = int(parts[0], 16), int(parts[1], 16)
                except ValueError:
                    continue
                if not (0 <= begin < _MAX_ADDRESS and 0 <= size < _MAX_ADDRESS):
                    continue
                found[begin] = begin, begin + size, parts[2][:_MAX_NAME].decode(errors="replace")
        # Memory is used again: of several functions at one place, the last one in the file is the newest.
        self._functions = sorted(found.values())

    def at(self, address: int) -> tuple[int, str]:
        """Begin and name of the function at an address; the name is empty if it is not known."""
        place = bisect.bisect_right(self._functions, address, key=lambda each: each[0]) - 1
        if place < 0 or address >= self._functions[place][1]:
            return 0, ""
        begin, _, name = self._functions[place]
        return begin, name


def _read(path: Path, uid: int, born_ns: int) -> bytes:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_NOCTTY)
    except OSError:
        return b""
    with os.fdopen(fd, "rb") as stream:
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode) or found.st_uid not in {0, uid} or found.st_mtime_ns < born_ns:
            return b""
        return stream.read(_MAX_BYTES)
