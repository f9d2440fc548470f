"""What calls are for, and which of them wait by their nature: the classes by which tables and pictures sum them up.

In: the metadata's ``calls``, and of ``fcntl`` and ``clone`` the flags. Out: a class for each row, and whether its call
waits for somebody else. Which call belongs where follows from its kind and group in ``tracepoints/syscalls.toml``.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Any, Final

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray


class CallClass(enum.IntEnum):
    """What a call is for; each call belongs to one."""

    READ = 0
    WRITE = 1
    COPY = 2
    SYNC = 3
    OPEN = 4
    CLOSE = 5
    SEEK = 6
    STAT = 7
    DIRECTORY = 8
    NAME = 9
    ATTRIBUTE = 10
    LOCK = 11
    POLL = 12
    MEMORY = 13
    RING = 14
    DESCRIPTOR = 15
    SOCKET = 16
    PROCESS = 17
    OTHER = 18


NR_CLASSES: Final = len(CallClass)
METADATA: Final = (
    CallClass.OPEN, CallClass.CLOSE, CallClass.STAT, CallClass.DIRECTORY, CallClass.NAME, CallClass.ATTRIBUTE,
)  # fmt: skip
"""Calls about files rather than about what is in them."""
PASSIVE: Final = (CallClass.POLL, CallClass.RING, CallClass.LOCK, CallClass.SOCKET, CallClass.PROCESS)
"""Calls that do nothing to a file, or wait for others: none of them is a slow operation on one."""
TRANSFERS: Final = (CallClass.READ, CallClass.WRITE, CallClass.COPY, CallClass.OPEN)
"""Calls that wait where their file is a pipe or its like; all others about it do their work, and return."""
_OF_KIND: Final = {
    "read": CallClass.READ,
    "write": CallClass.WRITE,
    "copy": CallClass.COPY,
    "sync": CallClass.SYNC,
    "open": CallClass.OPEN,
    "close": CallClass.CLOSE,
    "close_range": CallClass.CLOSE,
    "seek": CallClass.SEEK,
}
_OF_GROUP: Final = {
    "metadata-stat": CallClass.STAT,
    "metadata-directory": CallClass.DIRECTORY,
    "metadata-name": CallClass.NAME,
    "metadata-size": CallClass.ATTRIBUTE,
    "metadata-attribute": CallClass.ATTRIBUTE,
    "metadata-xattr": CallClass.ATTRIBUTE,
    "lock": CallClass.LOCK,
    "poll": CallClass.POLL,
    "mmap": CallClass.MEMORY,
    "io_uring": CallClass.RING,
    "aio": CallClass.RING,
    "descriptor": CallClass.DESCRIPTOR,
    "fdsource": CallClass.DESCRIPTOR,
    "socket": CallClass.SOCKET,
    "process": CallClass.PROCESS,
}
_NO_FILES: Final = frozenset({"socket", "fdsource", "mount"})
"""Groups whose calls of the kind ``open`` give a descriptor of something else than a file."""
_NEVER_WAIT: Final = frozenset({"epoll_ctl", "io_setup", "io_submit", "io_uring_setup", "io_uring_register"})
"""Calls that begin or change what others then wait for: a submission does the work, or hands it on."""
_WAIT: Final = frozenset({"accept", "accept4", "connect", "msync", "vfork"})
"""Until somebody connects or answers, until it is on the disk, until the child has its program (accept(2) …)."""
_CLONE_VFORK: Final = 0x4000
"""clone(2); include/uapi/linux/sched.h."""
LOCK_COMMANDS: Final = (5, 6, 7, 36, 37, 38)
"""F_GETLK, F_SETLK, F_SETLKW, and the three of open file descriptions (include/uapi/asm-generic/fcntl.h)."""


class Classes:
    """The class of each call of a trace.

    Args:
        calls: The metadata's ``calls``.
    """

    def __init__(self, calls: Sequence[Mapping[str, Any]]) -> None:
        self.of_call: NDArray[np.intp] = np.array([class_of(call) for call in calls], np.intp)
        """Of each code of ``operations.call``."""
        self._locks: NDArray[np.bool_] = np.array([call["kind"] == "fcntl" for call in calls], np.bool_)
        self._waits: NDArray[np.bool_] = np.array([waits(call) for call in calls], np.bool_)
        self._clones: NDArray[np.bool_] = np.array([call["name"] == "clone" for call in calls], np.bool_)

    def of_rows(self, call: NDArray[np.intp], flags: NDArray[np.uint32]) -> NDArray[np.intp]:
        """The class of each operation; ``fcntl`` takes locks too, and ``flags`` has its command."""
        classes = self.of_call[call]
        fcntl = np.flatnonzero(self._locks[call])
        if len(fcntl):
            classes[fcntl[np.isin(flags[fcntl], LOCK_COMMANDS)]] = CallClass.LOCK
        return classes

    def waiting(
        self, call: NDArray[np.intp], classes: NDArray[np.intp], flags: NDArray[np.uint32]
    ) -> NDArray[np.bool_]:
        """Which operations wait by their nature, whatever they are about; ``classes`` as :meth:`of_rows` gives them."""
        found: NDArray[np.bool_] = self._waits[call] | (classes == CallClass.LOCK)
        clones = np.flatnonzero(self._clones[call])
        found[clones] |= flags[clones] & np.uint32(_CLONE_VFORK) != 0
        return found


def class_of(call: Mapping[str, Any]) -> CallClass:
    """The class of one of the metadata's ``calls``; of ``fcntl`` that of commands that are not about locks."""
    kind, group = call["kind"], call["group"]
    if kind == "open" and group in _NO_FILES:
        kind = ""
    return _OF_KIND.get(kind, _OF_GROUP.get(group, CallClass.OTHER))


def waits(call: Mapping[str, Any]) -> bool:
    """Whether one of the metadata's ``calls`` waits for others by its nature; locks by ``fcntl`` aside."""
    if call["name"] in _NEVER_WAIT:
        return False
    kind = class_of(call)
    by_class = kind in {CallClass.SYNC, CallClass.LOCK, CallClass.POLL, CallClass.RING}
    return by_class or call["name"] in _WAIT or (call["group"] == "socket" and call["kind"] in {"read", "write"})
