"""What calls are for: the classes by which a report sums them up.

In: the metadata's ``calls``, and of ``fcntl`` the command. Out: a class for each row. Which call belongs where follows
from its kind and group in ``tracepoints/syscalls.toml``.
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
    OTHER = 16


NR_CLASSES: Final = len(CallClass)
METADATA: Final = (
    CallClass.OPEN, CallClass.CLOSE, CallClass.STAT, CallClass.DIRECTORY, CallClass.NAME, CallClass.ATTRIBUTE,
)  # fmt: skip
"""Calls about files rather than about what is in them."""
PASSIVE: Final = (CallClass.POLL, CallClass.RING, CallClass.LOCK)
"""Calls whose time is mostly waiting for others: none of them is a slow operation on a file."""
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
}
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

    def of_rows(self, call: NDArray[np.intp], flags: NDArray[np.uint32]) -> NDArray[np.intp]:
        """The class of each operation; ``fcntl`` takes locks too, and ``flags`` has its command."""
        classes = self.of_call[call]
        fcntl = np.flatnonzero(self._locks[call])
        if len(fcntl):
            classes[fcntl[np.isin(flags[fcntl], LOCK_COMMANDS)]] = CallClass.LOCK
        return classes


def class_of(call: Mapping[str, Any]) -> CallClass:
    """The class of one of the metadata's ``calls``."""
    return _OF_KIND.get(call["kind"], _OF_GROUP.get(call["group"], CallClass.OTHER))
