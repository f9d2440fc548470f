"""Writes and syncs a file: alone, beside a thread that computes, alone again. It times that by its own clocks.

In: the file's path. Out: JSON on stdout. ``beside``: start and end of the second phase, in which the thread lived, by
CLOCK_MONOTONIC; ``computed_ns``: the thread's time on a CPU while it computed; ``pid``.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import threading
import time

_ALONE, _ROUNDS = 20, 100_000


def write_once(fd: int) -> None:
    """One write and one sync."""
    os.pwrite(fd, b"x" * 65536, 0)
    os.fsync(fd)


def compute(took: list[int]) -> None:
    """Use a CPU without Python's lock, and call nothing that is recorded."""
    begin = time.thread_time_ns()
    hashlib.pbkdf2_hmac("sha256", b"password", b"salt", _ROUNDS)
    took.append(time.thread_time_ns() - begin)


def main() -> None:
    """Run the three phases."""
    fd, took = os.open(sys.argv[1], os.O_CREAT | os.O_RDWR), list[int]()
    for _ in range(_ALONE):
        write_once(fd)
    begin, thread = time.monotonic_ns(), threading.Thread(target=compute, args=(took,))
    thread.start()
    while thread.is_alive():
        write_once(fd)
    thread.join()
    end = time.monotonic_ns()
    for _ in range(_ALONE):
        write_once(fd)
    print(json.dumps({"beside": (begin, end), "computed_ns": took[0], "pid": os.getpid()}))


if __name__ == "__main__":
    main()
