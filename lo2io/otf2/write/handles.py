"""Definitions of I/O handles, in columns, since a trace of many small files has millions of handles.

In: from the native loop each handle's OTF2 reference, and whether an event creates the handle; and the engine's rows.
Out: columns by reference, which the native part writes. Of many references, only some have columns at a time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from lo2io.model import UNKNOWN_U32
from lo2io.model.number_sets import distinct
from lo2io.native._lib import ffi, lib
from lo2io.otf2.library import UNDEFINED_U32
from lo2io.otf2.values import value

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from numpy.typing import NDArray

MOST_REFS: Final = 1 << 19
"""References whose definitions are made at a time."""
_NATIVE = np.dtype(
    {
        "names": ["ref", "state"],
        "formats": [np.uint32, np.uint8],
        "offsets": [ffi.offsetof("lo2_otf2_handle", name) for name in ("ref", "state")],
        "itemsize": ffi.sizeof("lo2_otf2_handle"),
    }
)


def name_used(writer: Any, rows: Iterable[NDArray[Any]]) -> None:
    """Give references to handles that only the tables name, in the order of their numbers.

    Args:
        writer: ``lo2_otf2_writer *``.
        rows: The engine's rows, in any order, in pieces of :data:`~lo2io.otf2.write.rows.HANDLE_DTYPE`.

    Raises:
        MemoryError: There is none for the references.
    """
    native = _natives(writer)
    used = (piece["handle"][piece["used"] != 0] for piece in rows)
    unnamed = [numbers[_look_up(native, numbers) == UNKNOWN_U32] for numbers in used]
    for number in np.sort(np.concatenate(unnamed)).tolist() if unnamed else ():
        if lib.lo2_otf2_name_handle(writer, number):
            raise MemoryError


class HandleTable:
    """Columns of shape (references,) with the definitions of consecutive references.

    Args:
        writer: ``lo2_otf2_writer *``.
        rows: As for :func:`name_used`, which comes first.
        refs: The references.
    """

    def __init__(self, writer: Any, rows: Iterable[NDArray[Any]], refs: range) -> None:
        self._writer, self._rows, self._refs = writer, rows, refs
        count = len(refs)
        self._fd: NDArray[np.int32] = np.full(count, -1, np.int32)
        self._file: NDArray[np.uint32] = np.full(count, UNKNOWN_U32, np.uint32)
        self._name: NDArray[np.uint32] = np.full(count, UNDEFINED_U32, np.uint32)
        self._file_ref: NDArray[np.uint32] = np.full(count, UNDEFINED_U32, np.uint32)
        self._paradigm: NDArray[np.uint8] = np.zeros(count, np.uint8)
        self._status: NDArray[np.uint32] = np.zeros(count, np.uint32)
        # For unknown flags, READ_WRITE excludes nothing. The handles table marks these flags as unknown.
        self._access: NDArray[np.uint8] = np.full(count, value("IO_ACCESS_MODE_READ_WRITE"), np.uint8)
        self._flags: NDArray[np.uint32] = np.full(count, value("IO_HANDLE_FLAG_PRE_CREATED"), np.uint32)
        native = _natives(writer)
        for first in range(0, len(native), MOST_REFS):
            piece = native[first : first + MOST_REFS]
            created = piece["ref"][(piece["state"] & lib.LO2_OTF2_CREATED) != 0]
            self._flags[self._places(created[self._has(created)])] = value("IO_HANDLE_FLAG_NONE")
        for piece in rows:
            found = _look_up(native, piece["handle"])
            mine = self._has(found)
            self._set(self._places(found[mine]), piece[mine])

    def __contains__(self, ref: int) -> bool:
        return ref in self._refs

    def _has(self, refs: NDArray[np.uint32]) -> NDArray[np.bool_]:
        """True for each reference of this table."""
        return (refs >= self._refs.start) & (refs < self._refs.stop)

    def _places(self, refs: NDArray[np.uint32]) -> NDArray[np.uint32]:
        return refs - np.uint32(self._refs.start)

    def _set(self, where: NDArray[np.uint32], rows: NDArray[Any]) -> None:
        """Set descriptors, files and states."""
        self._fd[where], self._file[where], open_flags = rows["fd"], rows["file"], rows["open_flags"]
        access, creation, status = ffi.new("uint8_t *"), ffi.new("uint32_t *"), ffi.new("uint32_t *")
        for flags in distinct(open_flags).tolist():
            if flags != UNKNOWN_U32:
                lib.lo2_otf2_open_flags(self._writer, flags, access, creation, status)
                same = where[open_flags == flags]
                self._access[same], self._status[same] = access[0], status[0]

    def name_by_file(self, find: Callable[[int], tuple[int, int] | None]) -> None:
        """Name handles by their files. ``find`` returns string and file for a row of the files table."""
        known = self._file != UNKNOWN_U32
        numbers = self._file[known]
        names, files = (np.full(_size(numbers), UNDEFINED_U32, np.uint32) for _ in range(2))
        for number in _distinct(numbers):
            names[number], files[number] = find(number) or (UNDEFINED_U32, UNDEFINED_U32)
        self._name[known], self._file_ref[known] = names[numbers], files[numbers]

    def name_by_fd(self, string: Callable[[str], int]) -> None:
        """Name the remaining handles by their descriptor's number."""
        unnamed = self._name == UNDEFINED_U32
        numbers = self._fd[unnamed].view(np.uint32) + np.uint32(1)  # -1 is the lowest
        names = np.zeros(_size(numbers), np.uint32)
        for number in _distinct(numbers):
            names[number] = string(f"fd {number - 1}")
        self._name[unnamed] = names[numbers]

    def replace(self, ref: int, name: int, file: int, flags: int, access: int, *, paradigm: int = 0) -> None:
        """Set a handle of this table without a row: a device's, or that of sync(2)."""
        place = ref - self._refs.start
        self._name[place], self._file_ref[place], self._flags[place] = name, file, flags
        self._access[place], self._status[place], self._paradigm[place] = access, 0, paradigm

    def mirror(self, refs: NDArray[np.uint32], handles: NDArray[np.uint32], paradigm: int) -> None:
        """Set handles of another paradigm as copies of the engine's ``handles``: of equal name, file and state."""
        mine = self._has(refs)
        where, handles = self._places(refs[mine]), handles[mine]
        self._paradigm[where] = paradigm
        for piece in self._rows if len(where) else ():
            order = np.argsort(piece["handle"], kind="stable")
            numbers = piece["handle"][order]
            place = np.searchsorted(numbers, handles).clip(0, len(numbers) - 1)
            known = numbers[place] == handles
            self._set(where[known], piece[order[place[known]]])

    def native(self) -> Any:
        """The columns as ``lo2_otf2_handle_columns *``, valid as long as this table lives."""
        columns = ffi.new("lo2_otf2_handle_columns *")
        columns.first, columns.count = self._refs.start, len(self._refs)
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


def _natives(writer: Any) -> NDArray[Any]:
    """A row for each of the engine's handles, in the native loop's memory. Naming a handle may move the rows."""
    view = lib.lo2_otf2_state(writer)
    size = view.nr_handles * _NATIVE.itemsize
    return np.frombuffer(ffi.buffer(view.handles, size) if size else b"", _NATIVE)


def _look_up(native: NDArray[Any], numbers: NDArray[np.uint32]) -> NDArray[np.uint32]:
    """The reference of each of the engine's handles; UNKNOWN_U32: none."""
    refs = np.full(len(numbers), UNKNOWN_U32, np.uint32)
    known = numbers < len(native)
    refs[known] = native["ref"][numbers[known]]
    return refs


def _size(numbers: NDArray[np.uint32]) -> int:
    """The size of a table indexed by these numbers."""
    return int(numbers.max()) + 1 if len(numbers) else 0


def _distinct(numbers: NDArray[np.uint32]) -> list[int]:
    """Each number once, in ascending order. The numbers are small, so a table is cheaper than sorting."""
    present = np.zeros(_size(numbers), np.bool_)
    present[numbers] = True
    found: list[int] = np.flatnonzero(present).tolist()
    return found
