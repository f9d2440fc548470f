"""Closing of events where nobody waits for it: the kernel takes 40 to 50 ms for each tracepoint.

A process of its own keeps the events' fds, detached from the user's terminal and pipes; once lo2io has closed its own
copies, it exits, and the kernel closes the events as part of that.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lo2io.capture.events.opened import OpenEvents

_LINKS = ("anon_inode:bpf_link", "anon_inode:bpf-raw-tracepoint")
_MAX_WAIT_S = 60
"""lo2io lets go within milliseconds; a closer that outlives this was forgotten."""


def close_in_background(opened: OpenEvents) -> None:
    """Give up all events and rings; returns at once. Call it when no other thread of lo2io runs."""
    fds = list(opened.iter_fds())
    keeps_links = opened.kernel is not None
    parents_end, own_end = os.pipe()
    with warnings.catch_warnings():
        # Python 3.12 warns of threads that might hold locks; the child takes none.
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        _keep_until_eof({*fds, parents_end, *(_find_links() if keeps_links else ())}, parents_end)
    os.close(parents_end)
    os.waitpid(child, 0)
    opened.unmap()
    for fd in fds:
        os.close(fd)
    if opened.keep is not None:
        # The binding would go on to close fds by numbers that are others' by now: its objects live until the exit.
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(opened.keep))
    os.close(own_end)


def _find_links() -> set[int]:
    """What attaches programs to events: taking one off waits until no CPU can be running it."""
    found = set()
    for entry in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):  # the one by which they are listed
            if str(entry.readlink()).startswith(_LINKS):
                found.add(int(entry.name))
    return found


def _keep_until_eof(kept: Iterable[int], pipe: int) -> NoReturn:
    """In the child: leave the user's session, hold nothing but the events, wait for lo2io to let go of them."""
    try:
        os.setsid()
        if os.fork() != 0:
            os._exit(0)  # the grandchild is nobody's child to wait for
        os.chdir("/")
        null = os.open(os.devnull, os.O_RDWR)
        for fd in (0, 1, 2):
            os.dup2(null, fd)
        for name in os.listdir("/proc/self/fd"):  # noqa: PTH208 - numbers are wanted
            fd = int(name)
            if fd > 2 and fd not in kept:  # noqa: PLR2004 - standard streams are closed above
                with contextlib.suppress(OSError):
                    os.close(fd)
        os.nice(10)
        poll = select.poll()
        poll.register(pipe, select.POLLIN)
        poll.poll(_MAX_WAIT_S * 1000)
    finally:
        os._exit(0)
