"""Events are closed in a process of their own, so that nobody waits: the kernel takes 40 to 50 ms for each tracepoint.

This process keeps the events' fds and leaves the user's terminal and pipes. When lo2io has closed its own copies, the
process exits, and the kernel closes the events.
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
_NO_CHILD = -1
_MAX_WAIT_S = 60
"""lo2io closes its copies within milliseconds. After this time the process exits in any case."""


def close_in_background(opened: OpenEvents) -> None:
    """Close all events and buffers in the background. Call this when no other thread of lo2io runs.

    If the kernel refuses the process, they are closed here, and the caller waits.
    """
    fds = list(opened.iter_fds())
    parents_end, own_end = os.pipe()
    child = _NO_CHILD
    with warnings.catch_warnings(), contextlib.suppress(OSError):
        # Python 3.12 warns of threads that might hold locks; the child takes none.
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        _keep_until_eof(fds, parents_end, keeps_links=opened.kernel is not None)
    os.close(parents_end)
    if child != _NO_CHILD:
        with contextlib.suppress(OSError):
            os.waitpid(child, 0)
    opened.unmap()
    for fd in fds:
        os.close(fd)
    if opened.keep is not None:
        # The binding's objects live until the exit: their destructors would close fds whose numbers are reused by now.
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(opened.keep))
    os.close(own_end)


def _find_links() -> set[int]:
    """The links that attach programs to events: closing one waits until no CPU can be running the program."""
    found = set()
    for entry in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):  # the fd that lists the others
            if str(entry.readlink()).startswith(_LINKS):
                found.add(int(entry.name))
    return found


def _keep_until_eof(fds: Iterable[int], pipe: int, *, keeps_links: bool) -> NoReturn:
    """In the child: leave the user's session, keep only the events, and wait until lo2io has closed its copies."""
    try:
        kept = {*fds, pipe, *(_find_links() if keeps_links else ())}
        os.setsid()
        os.chdir("/")
        null = os.open(os.devnull, os.O_RDWR)
        for fd in (0, 1, 2):
            os.dup2(null, fd)
        for name in os.listdir("/proc/self/fd"):  # noqa: PTH208 - numbers are wanted
            fd = int(name)
            if fd > 2 and fd not in kept:  # noqa: PLR2004 - standard streams are closed above
                with contextlib.suppress(OSError):
                    os.close(fd)
        if os.fork() != 0:  # not before: while lo2io waits, the lock of the spool is given back here
            os._exit(0)  # nobody has to wait for a grandchild
        os.nice(10)
        poll = select.poll()
        poll.register(pipe, select.POLLIN)
        poll.poll(_MAX_WAIT_S * 1000)
    finally:
        os._exit(0)
