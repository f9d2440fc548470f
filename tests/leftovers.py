"""Processes that tests start must not outlive them, whatever happens to the tests.

All processes of a test inherit a mark in their environment, even if their parents have ended. :func:`kept` ends all
that still have the mark after the last test. If pytest is killed, a keeper does that, a process of its own. Run as a
program, this module is the keeper: ``leftovers.py PIDFD MARK``.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

VARIABLE = "LO2IO_TESTS"
GRACE_SECONDS = 2
"""A process that ends by itself just after the last test is not left behind."""


@contextlib.contextmanager
def kept() -> Iterator[None]:
    """Mark the processes that this one starts from now on, and end those that are left.

    Raises:
        AssertionError: A process was left behind: its pid, command line, and the test that started it.
    """
    mark = f"{os.getpid()}-{time.monotonic_ns()}"
    pidfd = os.pidfd_open(os.getpid())
    keeper = subprocess.Popen(
        [sys.executable, "-S", __file__, str(pidfd), mark],
        pass_fds=[pidfd],
        start_new_session=True,  # signals to pytest's group do not reach it
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    os.environ[VARIABLE] = mark
    try:
        yield
    finally:
        del os.environ[VARIABLE]
        end = time.monotonic() + GRACE_SECONDS
        while living(mark, keeper.pid) and time.monotonic() < end:
            time.sleep(0.05)
        left = [described(pid) for pid in living(mark, keeper.pid)]
        end_all(mark, keeper.pid)
        keeper.kill()
        keeper.wait()
        os.close(pidfd)
    assert not left, "\n".join(["tests have left processes behind; they are ended now:", *left])


def living(mark: str, spared: int = 0) -> list[int]:
    """Pids of processes that have the mark or that this one forked, without ``spared`` and zombies.

    A fork without an exec shows the environment with which its parent was started.
    """
    wanted, found = f"{VARIABLE}={mark}".encode(), []
    for pid in (int(folder.name) for folder in Path("/proc").iterdir() if folder.name.isdecimal()):
        state, parent = (_read(pid, "stat").rpartition(b")")[2].split() or [b"Z", b"0"])[:2]
        is_ours = int(parent) == os.getpid() or wanted in _read(pid, "environ").split(b"\0")
        if is_ours and state != b"Z" and pid != spared:
            found.append(pid)
    return found


def described(pid: int) -> str:
    """A description of the process: pytest itself notes the running test in the environment."""
    tests = [part for part in _read(pid, "environ").split(b"\0") if part.startswith(b"PYTEST_CURRENT_TEST=")]
    origin = b"".join(tests).decode(errors="replace").partition("=")[2] or "a fixture"
    return f"{pid}: {_read(pid, 'cmdline').replace(bytes(1), b' ').decode(errors='replace')!r} of {origin}"


def end_all(mark: str, spared: int = 0) -> None:
    """End all that :func:`living` finds, and what these start before their end."""
    while pids := living(mark, spared):
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.01)


def _read(pid: int, name: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/{name}").read_bytes()
    except OSError:  # it has ended, or belongs to somebody else
        return b""


if __name__ == "__main__":
    select.select([int(sys.argv[1])], [], [])  # readable when pytest has ended
    end_all(sys.argv[2])
