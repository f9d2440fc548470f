"""What calls are for, and which of them wait by their nature: the classes by which tables and pictures sum them up.

In: the metadata's ``calls``; of ``fcntl`` and ``clone`` the flags; of reads, writes and copies what their file is. Out:
a class for each row, and whether its call waits for somebody else. Which call belongs where follows from its kind and
group in ``tracepoints/syscalls.toml``.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from lo2io.reports.summary.file_types import FileType

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
    PIPE = 19
    """Reads, writes and copies that are about no storage: of pipes …"""
    TERMINAL = 20
    """… of terminals …"""
    SPECIAL = 21
    """… and of other devices and what the kernel makes up. Those of sockets are ``SOCKET``, of eventfds ``POLL``."""


NR_CLASSES: Final = len(CallClass)
METADATA: Final = (
    CallClass.OPEN, CallClass.CLOSE, CallClass.STAT, CallClass.DIRECTORY, CallClass.NAME, CallClass.ATTRIBUTE,
)  # fmt: skip
"""Calls about files rather than about what is in them."""
STORAGE: Final = (
    CallClass.READ, CallClass.WRITE, CallClass.COPY, CallClass.SYNC, CallClass.SEEK, CallClass.LOCK, *METADATA,
)  # fmt: skip
"""Calls about files, and what is in them."""
PASSIVE: Final = (
    CallClass.POLL, CallClass.RING, CallClass.LOCK, CallClass.SOCKET, CallClass.PROCESS, CallClass.PIPE,
    CallClass.TERMINAL,
)  # fmt: skip
"""Calls that do nothing to a file, or wait for others: none of them is a slow operation on one."""
_TRANSFERS: Final = frozenset({"read", "write", "copy"})
"""Kinds of calls that are of another class if they are about no storage."""
_OF_TYPE: Final = {
    FileType.PIPE: CallClass.PIPE,
    FileType.SOCKET: CallClass.SOCKET,
    FileType.TERMINAL: CallClass.TERMINAL,
    FileType.EVENT: CallClass.POLL,
    FileType.SPECIAL: CallClass.SPECIAL,
}
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
"""Groups whose calls open, read and write something else than files."""
_CLASS_OF_TYPE: Final = np.array([_OF_TYPE.get(kind, CallClass.READ) for kind in FileType], np.intp)
_NEVER_WAIT: Final = frozenset({"epoll_ctl", "io_setup", "io_submit", "io_uring_setup", "io_uring_register"})
"""Calls that begin or change what others then wait for: a submission does the work, or hands it on."""
_WAIT: Final = frozenset({"accept", "accept4", "connect", "msync", "vfork"})
"""Until somebody connects or answers, until it is on the disk, until the child has its program (accept(2) …)."""
_CLONE_VFORK: Final = 0x4000
"""clone(2); include/uapi/linux/sched.h."""
LOCK_COMMANDS: Final = (5, 6, 7, 36, 37, 38)
"""F_GETLK, F_SETLK, F_SETLKW, and the three of open file descriptions (include/uapi/asm-generic/fcntl.h)."""
RWF_SYNCED: Final = 0x2 | 0x4
"""RWF_DSYNC and RWF_SYNC of pwritev2(2) (include/uapi/linux/fs.h)."""


class Classes:
    """The class of each call of a trace.

    Args:
        calls: The metadata's ``calls``.
    """

    def __init__(self, calls: Sequence[Mapping[str, Any]]) -> None:
        self.of_call: NDArray[np.intp] = np.array([class_of(call) for call in calls], np.intp)
        """Of each code of ``operations.call``."""
        self._locks: NDArray[np.bool_] = np.array([call["kind"] == "fcntl" for call in calls], np.bool_)
        self._transfers: NDArray[np.bool_] = np.array([call["kind"] in _TRANSFERS for call in calls], np.bool_)
        self._copies: NDArray[np.bool_] = np.array([call["kind"] == "copy" for call in calls], np.bool_)
        self.may_wait: NDArray[np.bool_] = self._transfers | (self.of_call == CallClass.OPEN)
        """Of each call, whether it waits where its file is a pipe or its like; others about it work, and return."""
        self._waits: NDArray[np.bool_] = np.array([waits(call) for call in calls], np.bool_)
        self._rwf: NDArray[np.bool_] = np.array([call["name"] == "pwritev2" for call in calls], np.bool_)
        self._clones: NDArray[np.bool_] = np.array([call["name"] == "clone" for call in calls], np.bool_)

    def of_rows(
        self,
        call: NDArray[np.intp],
        flags: NDArray[np.uint32],
        types: NDArray[np.uint8],
        written: NDArray[np.uint8],
    ) -> NDArray[np.intp]:
        """The class of each operation.

        Args:
            call: Codes of ``operations.call``.
            flags: ``operations.flags``; of ``fcntl``, which takes locks too, the command.
            types: :class:`FileType` of the file that each is about …
            written: … and of a copy that of the file which is written: it is about storage if one of them is.
        """
        classes = self.of_call[call]
        other = np.flatnonzero(self._transfers[call] & (types > FileType.STORAGE))
        if len(other):
            other = other[~(self._copies[call[other]] & (written[other] == FileType.STORAGE))]
            classes[other] = _CLASS_OF_TYPE[types[other]]
        fcntl = np.flatnonzero(self._locks[call])
        if len(fcntl):
            classes[fcntl[np.isin(flags[fcntl], LOCK_COMMANDS)]] = CallClass.LOCK
        return classes

    def writes_synced(self, call: NDArray[np.intp], flags: NDArray[np.uint32]) -> NDArray[np.bool_]:
        """Which operations are writes whose own flags ask for a sync."""
        synced: NDArray[np.bool_] = self._rwf[call] & (flags & np.uint32(RWF_SYNCED) != 0)
        return synced

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
    if group in _NO_FILES and kind in {"open", "read", "write"}:
        kind = ""
    return _OF_KIND.get(kind, _OF_GROUP.get(group, CallClass.OTHER))


def classes_of(call: Mapping[str, Any]) -> set[CallClass]:
    """All classes that operations of one of the metadata's ``calls`` may be of."""
    further = {CallClass.LOCK} if call["kind"] == "fcntl" else set()
    return {class_of(call), *further, *(_OF_TYPE.values() if call["kind"] in _TRANSFERS else ())}


def waits(call: Mapping[str, Any]) -> bool:
    """Whether one of the metadata's ``calls`` waits for others by its nature; locks by ``fcntl`` aside."""
    if call["name"] in _NEVER_WAIT:
        return False
    kind = class_of(call)
    by_class = kind in {CallClass.SYNC, CallClass.LOCK, CallClass.POLL, CallClass.RING}
    return by_class or call["name"] in _WAIT or (call["group"] == "socket" and call["kind"] in {"read", "write"})
