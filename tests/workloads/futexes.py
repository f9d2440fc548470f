"""Threads that wait on futexes of their own, and know how often. Prints what they did as JSON.

``given`` was woken by the other thread after it slept, and ``late`` ended with a timeout. ``vain`` never slept: the
futex did not have the expected value.
"""

from __future__ import annotations

import ctypes
import errno
import json
import threading
import time
from pathlib import Path

NR_FUTEX = 202  # x86-64
WAIT, WAKE = 128, 129  # FUTEX_WAIT, FUTEX_WAKE and FUTEX_PRIVATE_FLAG
ROUNDS, VAIN, LATE = 40, 500, 5
_libc = ctypes.CDLL(None, use_errno=True)
given, late, vain = (ctypes.c_uint32(0) for _ in range(3))


class Timespec(ctypes.Structure):
    """``struct timespec``."""

    _fields_ = (("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long))


def wait(word: ctypes.c_uint32, expected: int, timeout_ns: int | None = None) -> int:
    """Wait on a futex: 0, or the error."""
    timeout = None if timeout_ns is None else ctypes.byref(Timespec(0, timeout_ns))
    done = _libc.syscall(NR_FUTEX, ctypes.byref(word), WAIT, expected, timeout, None, 0)
    return ctypes.get_errno() if done < 0 else 0


def sleep_often(told: dict[str, int]) -> None:
    """Sleep until the other thread wakes this one, again and again."""
    told["sleeper"] = threading.get_native_id()
    for _ in range(ROUNDS):
        assert wait(given, 0) == 0


def wake_often(told: dict[str, int]) -> None:
    """Wake the other thread each time that it sleeps on the futex."""
    stat = Path(f"/proc/self/task/{told['sleeper']}/syscall")
    for _ in range(ROUNDS):
        while hex(ctypes.addressof(given)) not in stat.read_text("ascii").split()[1:2]:
            time.sleep(0.0005)
        while not _libc.syscall(NR_FUTEX, ctypes.byref(given), WAKE, 1, None, None, 0):
            pass


def main() -> None:
    """Do all of it."""
    told: dict[str, int] = {}
    sleeper = threading.Thread(target=sleep_often, args=(told,))
    sleeper.start()
    while "sleeper" not in told:
        time.sleep(0.001)
    wake_often(told)
    sleeper.join()
    assert all(wait(vain, 1) == errno.EAGAIN for _ in range(VAIN))
    assert all(wait(late, 0, 3_000_000) == errno.ETIMEDOUT for _ in range(LATE))
    addresses = {name: ctypes.addressof(word) for name, word in (("given", given), ("late", late), ("vain", vain))}
    print(json.dumps({**told, "waker": threading.get_native_id(), **addresses}))


if __name__ == "__main__":
    main()
