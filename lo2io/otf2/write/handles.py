"""Definitions of I/O handles, in whole columns, since a trace of many small files has millions of handles.

In: from the native loop each handle's OTF2 reference, and whether an event creates the handle; and the engine's rows.
Out: columns by reference, which the native part writes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from lo2io.model import UNKNOWN_U32
from lo2io.model.number_sets import distinct
from lo2io.native._lib import ffi, lib
from lo2io.otf2.library import UNDEFINED_U32
from lo2io.otf2.values import value

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from lo2io.model import Columns

_NATIVE = np.dtype(
    {
        "names": ["ref", "state"],
        "formats": [np.uint32, np.uint8],
        "offsets": [ffi.offsetof("lo2_otf2_handle", name) for name in ("ref", "state")],
        "itemsize": ffi.sizeof("lo2_otf2_handle"),
    }
)


class HandleTable:
    """Columns of shape (references,) with the definition of each handle.

    Args:
        writer: ``lo2_otf2_writer *``. Handles that only the tables name get references here.
        rows: The engine's rows, in any order: ``handle``, ``fd``, ``file``, ``open_flags``, ``used``.
    """

    def __init__(self, writer: Any, rows: Columns) -> None:
        refs, created = _references(writer, rows)
        count = lib.lo2_otf2_state(writer).nr_handle_refs
        self.fd: NDArray[np.int32] = np.full(count, -1, np.int32)
        self.file: NDArray[np.uint32] = np.full(count, UNKNOWN_U32, np.uint32)
        self._name: NDArray[np.uint32] = np.full(count, UNDEFINED_U32, np.uint32)
        self._file_ref: NDArray[np.uint32] = np.full(count, UNDEFINED_U32, np.uint32)
        self._paradigm: NDArray[np.uint8] = np.zeros(count, np.uint8)
        self._status: NDArray[np.uint32] = np.zeros(count, np.uint32)
        # For unknown flags, READ_WRITE excludes nothing. The handles table marks these flags as unknown.
        self._access: NDArray[np.uint8] = np.full(count, value("IO_ACCESS_MODE_READ_WRITE"), np.uint8)
        self._flags: NDArray[np.uint32] = np.full(count, value("IO_HANDLE_FLAG_PRE_CREATED"), np.uint32)
        self._flags[created] = value("IO_HANDLE_FLAG_NONE")
        named = refs[rows["handle"]] != UNKNOWN_U32
        where = refs[rows["handle"][named]]
        self.fd[where] = rows["fd"][named]
        self.file[where] = rows["file"][named]
        self._set_states(writer, where, rows["open_flags"][named])

    def _set_states(self, writer: Any, where: NDArray[np.uint32], open_flags: NDArray[np.uint32]) -> None:
        access, creation, status = ffi.new("uint8_t *"), ffi.new("uint32_t *"), ffi.new("uint32_t *")
        for flags in distinct(open_flags).tolist():
            if flags != UNKNOWN_U32:
                lib.lo2_otf2_open_flags(writer, flags, access, creation, status)
                same = where[open_flags == flags]
                self._access[same], self._status[same] = access[0], status[0]

    def name_by_file(self, find: Callable[[int], tuple[int, int] | None]) -> None:
        """Name handles by their files. ``find`` returns string and file for a row of the files table."""
        known = self.file != UNKNOWN_U32
        numbers = self.file[known]
        names, files = (np.full(_size(numbers), UNDEFINED_U32, np.uint32) for _ in range(2))
        for number in _distinct(numbers):
            names[number], files[number] = find(number) or (UNDEFINED_U32, UNDEFINED_U32)
        self._name[known], self._file_ref[known] = names[numbers], files[numbers]

    def name_by_fd(self, string: Callable[[str], int]) -> None:
        """Name the remaining handles by their descriptor's number."""
        unnamed = self._name == UNDEFINED_U32
        numbers = self.fd[unnamed].view(np.uint32) + np.uint32(1)  # -1 is the lowest
        names = np.zeros(_size(numbers), np.uint32)
        for number in _distinct(numbers):
            names[number] = string(f"fd {number - 1}")
        self._name[unnamed] = names[numbers]

    def replace(self, ref: int, name: int, file: int, flags: int, access: int, *, paradigm: int = 0) -> None:
        """Set a handle without a row: a device's, or that of sync(2)."""
        self._name[ref], self._file_ref[ref], self._flags[ref] = name, file, flags
        self._access[ref], self._status[ref], self._paradigm[ref] = access, 0, paradigm

    def mirror(
        self, writer: Any, rows: Columns, refs: NDArray[np.uint32], handles: NDArray[np.uint32], paradigm: int
    ) -> None:
        """Set handles of another paradigm as copies of the engine's ``handles``: of equal name, file and state."""
        self._paradigm[refs] = paradigm
        numbers = rows["handle"]
        size = max(_size(numbers), _size(handles))
        row_of = np.full(size, -1, np.int64)
        row_of[numbers] = np.arange(len(numbers))
        row = row_of[handles]
        where, row = refs[row >= 0], row[row >= 0]
        self.fd[where] = rows["fd"][row]
        self.file[where] = rows["file"][row]
        self._set_states(writer, where, rows["open_flags"][row])

    def native(self) -> Any:
        """The columns as ``lo2_otf2_handle_columns *``, valid as long as this table lives."""
        columns = ffi.new("lo2_otf2_handle_columns *")
        columns.count = len(self.fd)
        columns.pre_created = value("IO_HANDLE_FLAG_PRE_CREATED")
        for member, array in (
            ("name", self._name),
            ("file", self._file_ref),
            ("flags", self._flags),
            ("status", self._status),
            ("paradigm", self._paradigm),
            ("access", self._access),
        ):
            kind = "uint8_t *" if array.dtype == np.uint8 else "uint32_t *"
            setattr(columns, member, ffi.cast(kind, array.ctypes.data))
        return columns


def _references(writer: Any, rows: Columns) -> tuple[NDArray[np.uint32], NDArray[np.uint32]]:
    """Engine's number → OTF2 reference (UNKNOWN_U32: none), and the references of handles that an event creates."""
    view = lib.lo2_otf2_state(writer)
    size = view.nr_handles * _NATIVE.itemsize
    known = np.frombuffer(ffi.buffer(view.handles, size) if size else b"", _NATIVE)
    highest = max(len(known), int(rows["handle"].max()) + 1 if len(rows["handle"]) else 0)
    refs = np.full(highest, UNKNOWN_U32, np.uint32)
    refs[: len(known)] = known["ref"]
    created = known["ref"][(known["ref"] != UNKNOWN_U32) & ((known["state"] & lib.LO2_OTF2_CREATED) != 0)].copy()
    used = rows["handle"][rows["used"] != 0]
    for number in np.sort(used[refs[used] == UNKNOWN_U32]).tolist():
        refs[number] = lib.lo2_otf2_new_handle(writer)
    return refs, created


def _size(numbers: NDArray[np.uint32]) -> int:
    """The size of a table indexed by these numbers."""
    return int(numbers.max()) + 1 if len(numbers) else 0


def _distinct(numbers: NDArray[np.uint32]) -> list[int]:
    """Each number once, in ascending order. The numbers are small, so a table is cheaper than sorting."""
    present = np.zeros(_size(numbers), np.bool_)
    present[numbers] = True
    found: list[int] = np.flatnonzero(present).tolist()
    return found
