"""Makes calls that wait for one known thing. Run as a program: ``waits.py NAME FOLDER``; prints what it knows, as JSON.

``threads``: the tids by role. ``run_delay_ns``: how long each was ready to run and did not, by ``/proc``'s schedstat.
"""

from __future__ import annotations

import contextlib
import json
import mmap
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

PAGE, SECTOR = 4096, 512
MIB = 1 << 20
ROUNDS = 60
COLD_BYTES = 32 * MIB


def run_delay() -> int:
    """How long this thread was ready to run without a CPU, in ns."""
    return int(Path("/proc/thread-self/schedstat").read_text(encoding="ascii").split()[1])


def append_and_sync(folder: Path, _: int) -> None:
    """Grow a file and sync it, so that each sync commits a journal."""
    fd = os.open(folder / f"log{threading.get_native_id()}", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for _ in range(ROUNDS):
        os.write(fd, bytes(PAGE))
        os.fsync(fd)


_BEGUN = threading.Barrier(2)
_WRITTEN = threading.Event(), threading.Event()


def write_together(folder: Path, side: int) -> None:
    """Append to a file that another thread appends to, too, less than a block and past the page cache.

    The writer sleeps until the disk is done, and holds the inode's lock: nobody spins for it.
    Both start together, and the first to finish goes on until the other has finished, too:
    at no time is there one writer only.
    """
    fd = os.open(folder / "shared", os.O_WRONLY | os.O_CREAT | os.O_DIRECT | os.O_APPEND)
    piece = mmap.mmap(-1, PAGE)
    _BEGUN.wait()
    written = 0
    while written < 4 * ROUNDS or not _WRITTEN[1 - side].is_set():
        os.write(fd, memoryview(piece)[:SECTOR])
        written += 1
        if written == 4 * ROUNDS:
            _WRITTEN[side].set()


def read_cold(folder: Path, _: int) -> None:
    """Read pages that are not in the cache."""
    fd = os.open(folder / "cold", os.O_RDONLY)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_RANDOM)
    places = [number * 7919 % (COLD_BYTES // PAGE) for number in range(4 * ROUNDS)]  # 7919 is a prime
    for place in places:
        os.pread(fd, PAGE, place * PAGE)


_PIPES = os.pipe(), os.pipe()


def pass_on(_: Path, side: int) -> None:
    """Send a byte back and forth through two pipes."""
    mine, others = _PIPES[side][0], _PIPES[1 - side][1]
    for _ in range(4 * ROUNDS):
        if side == 0:
            os.write(others, b"x")
        os.read(mine, 1)
        if side == 1:
            os.write(others, b"x")


def read_in_a_crowd(_: Path, __: int) -> None:
    """Calls that need the CPU for long, while another process keeps it busy, too."""
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    zero, buffer = os.open("/dev/zero", os.O_RDONLY), bytearray(4 * MIB)
    spinner = subprocess.Popen([sys.executable, "-S", "-c", "while True: pass"])
    try:
        for _ in range(8 * ROUNDS):
            os.readv(zero, [buffer])
    finally:
        spinner.kill()
        spinner.wait()


WORK: dict[str, tuple[Callable[[Path, int], None], int]] = {
    "sync": (append_and_sync, 2),
    "lock": (write_together, 2),
    "cold": (read_cold, 1),
    "pipe": (pass_on, 2),
    "crowd": (read_in_a_crowd, 1),
}
"""Name → what each thread does, and how many there are."""


def prepare(folder: Path) -> None:
    """Make the file that is read cold, and drop its pages."""
    fd = os.open(folder / "cold", os.O_RDWR | os.O_CREAT)
    for place in range(COLD_BYTES // MIB):
        os.pwrite(fd, bytes([place + 1]) * MIB, place * MIB)
    os.fsync(fd)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(fd)


@contextlib.contextmanager
def mounted(device: Path, folder: Path, *make: str) -> Iterator[Path]:
    """A new file system on a device. ``make`` is the command that makes it, without the device."""
    subprocess.run([*make, str(device)], check=True, capture_output=True)
    subprocess.run(["mount", str(device), str(folder)], check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def main(name: str, folder: Path) -> None:
    """Run the threads, and print what they knew."""
    work, number = WORK[name]
    known: dict[int, int] = {}

    def run(side: int) -> None:
        before = run_delay()
        work(folder, side)
        known[threading.get_native_id()] = run_delay() - before

    threads = [threading.Thread(target=run, args=(side,)) for side in range(number)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print(json.dumps({"run_delay_ns": known}))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
