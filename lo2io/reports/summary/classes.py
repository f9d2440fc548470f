"""Classes of calls, by which tables and pictures sum them up; and which calls wait by their nature.

In: the metadata's ``calls``; of ``fcntl`` and ``clone`` the flags; of reads, writes and copies what their file is. Out:
a class for each row, and whether its call waits for somebody else. ``tracepoints/syscalls.toml`` assigns
the classes; the metadata repeats them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from lo2io.model import CallClass
from lo2io.reports.summary.file_types import FileType

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

NR_CLASSES: Final = len(CallClass)
METADATA: Final = (
    CallClass.OPEN, CallClass.CLOSE, CallClass.STAT, CallClass.DIRECTORY, CallClass.NAME, CallClass.ATTRIBUTE,
)  # fmt: skip
"""Calls about files, not about their contents."""
STORAGE: Final = (
    CallClass.READ, CallClass.WRITE, CallClass.COPY, CallClass.SYNC, CallClass.SEEK, CallClass.LOCK, *METADATA,
)  # fmt: skip
"""Calls about files and their contents."""
PASSIVE: Final = (
    CallClass.POLL, CallClass.RING, CallClass.LOCK, CallClass.SOCKET, CallClass.PROCESS, CallClass.PIPE,
    CallClass.TERMINAL,
)  # fmt: skip
"""Calls that do nothing to a file, or wait for others: the list of slow calls leaves them out."""
_TRANSFERS: Final = frozenset({"read", "write", "copy"})
"""Kinds of calls whose class depends on the file: storage or not."""
_OF_TYPE: Final = {
    FileType.PIPE: CallClass.PIPE,
    FileType.SOCKET: CallClass.SOCKET,
    FileType.TERMINAL: CallClass.TERMINAL,
    FileType.EVENT: CallClass.POLL,
    FileType.SPECIAL: CallClass.SPECIAL,
}
_CLASS_OF_TYPE: Final = np.array([_OF_TYPE.get(kind, CallClass.READ) for kind in FileType], np.intp)
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
        self._transfers: NDArray[np.bool_] = np.array([call["kind"] in _TRANSFERS for call in calls], np.bool_)
        self._copies: NDArray[np.bool_] = np.array([call["kind"] == "copy" for call in calls], np.bool_)
        self.may_wait: NDArray[np.bool_] = self._transfers | (self.of_call == CallClass.OPEN)
        """Whether each call waits if its file is a pipe or its like; other calls on such files return at once."""
        self._waits: NDArray[np.bool_] = np.array([call.get("waits", False) for call in calls], np.bool_)
        self._waits_if: NDArray[np.uint32] = np.array([call.get("waits_if", 0) for call in calls], np.uint32)
        self._synced_if: NDArray[np.uint32] = np.array([call.get("synced_if", 0) for call in calls], np.uint32)

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
        synced: NDArray[np.bool_] = flags & self._synced_if[call] != 0
        return synced

    def waiting(
        self, call: NDArray[np.intp], classes: NDArray[np.intp], flags: NDArray[np.uint32]
    ) -> NDArray[np.bool_]:
        """Which operations wait by their nature, whatever their file is; ``classes`` as :meth:`of_rows` gives them."""
        found: NDArray[np.bool_] = self._waits[call] | (classes == CallClass.LOCK) | (flags & self._waits_if[call] != 0)
        return found


def class_of(call: Mapping[str, Any]) -> CallClass:
    """The class of one of the metadata's ``calls``; of ``fcntl`` that of commands that are not about locks."""
    return CallClass[call["class"].upper()]


def classes_of(call: Mapping[str, Any]) -> set[CallClass]:
    """All classes that operations of one of the metadata's ``calls`` may be of."""
    further = {CallClass.LOCK} if call["kind"] == "fcntl" else set()
    return {class_of(call), *further, *(_OF_TYPE.values() if call["kind"] in _TRANSFERS else ())}
