"""Runs a program on a terminal of its own, and presses keys after certain output."""

from __future__ import annotations

import os
import pty
import select
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

LIMIT_S = 120


def on_terminal(command: Sequence[str], *steps: tuple[str, bytes | Callable[[int], object]]) -> tuple[int, str]:
    """Exit code (negative: the signal) and all output.

    Each step waits for its text, then types its bytes, or calls its function with the program's pid.
    """
    pid, terminal = pty.fork()
    if pid == 0:
        os.execvp(command[0], command)  # noqa: S606 - the program itself is wanted
    shown, seen, left = b"", 0, list(steps)
    end = time.monotonic() + LIMIT_S
    while True:
        assert time.monotonic() < end, shown.decode()
        if select.select([terminal], [], [], 1)[0]:
            try:
                shown += os.read(terminal, 1 << 16)
            except OSError:  # EIO: the terminal's other end is closed
                break
        while left and left[0][0].encode() in shown[seen:]:
            text, act = left.pop(0)
            seen = shown.index(text.encode(), seen) + len(text)
            if callable(act):
                act(pid)
            else:
                os.write(terminal, act)
    os.close(terminal)
    assert not left, shown.decode()
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), shown.decode(errors="replace")
