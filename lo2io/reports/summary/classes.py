"""Classes of calls, by which tables and pictures sum them up; and which calls wait by their nature.

In: the metadata's ``calls``, the flags of ``fcntl`` and ``clone``, and the types of files of reads, writes and copies.
Out: a class for each row, and whether its call waits for another program. ``tracepoints/syscalls.toml`` assigns the
classes, and the metadata repeats them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from lo2io.model import CallClass
from lo2io.native._lib import ffi
from lo2io.reports.summary.file_types import FileType

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

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
    CallClass.POLL, CallClass.RING, CallClass.SOCKET, CallClass.FUTEX, CallClass.PROCESS, CallClass.PIPE,
    CallClass.TERMINAL,
)  # fmt: skip
"""Calls that do nothing to a file: the list of slow calls leaves them out. A lock of a file is not among them."""
_TRANSFERS: Final = frozenset({"read", "write", "copy"})
"""Kinds of calls whose class depends on the file: storage or not."""
_OF_TYPE: Final = {
    FileType.PIPE: CallClass.PIPE,
    FileType.SOCKET: CallClass.SOCKET,
    FileType.TERMINAL: CallClass.TERMINAL,
    FileType.EVENT: CallClass.POLL,
    FileType.SPECIAL: CallClass.SPECIAL,
}
CLASS_OF_TYPE: Final = np.array([_OF_TYPE.get(kind, CallClass.READ) for kind in FileType], np.uint8)
"""The class of reads, writes and copies by the type of their file, unless the file is storage."""


def native_traits(calls: Sequence[Mapping[str, Any]]) -> Any:
    """The traits of the metadata's ``calls`` that sums use, as an array of ``lo2_call_traits``."""
    return ffi.new(
        "lo2_call_traits[]",
        [
            {
                "kind": class_of(call),
                "reads": call["kind"] in {"read", "copy"},
                "writes": call["kind"] in {"write", "copy"},
                "transfers": call["kind"] in _TRANSFERS,
                "copies": call["kind"] == "copy",
                "locks": call["kind"] == "fcntl",
                "waits": call.get("waits", False),
                "may_wait": call["kind"] in _TRANSFERS or class_of(call) == CallClass.OPEN,
                "waits_if": call.get("waits_if", 0),
                "synced_if": call.get("synced_if", 0),
            }
            for call in calls
        ],
    )


def class_of(call: Mapping[str, Any]) -> CallClass:
    """The class of one of the metadata's ``calls``. For ``fcntl``, the class of commands without locks."""
    return CallClass[call["class"].upper()]


def classes_of(call: Mapping[str, Any]) -> set[CallClass]:
    """All classes that operations of one of the metadata's ``calls`` can have."""
    further = {CallClass.LOCK} if call["kind"] == "fcntl" else set()
    return {class_of(call), *further, *(_OF_TYPE.values() if call["kind"] in _TRANSFERS else ())}
