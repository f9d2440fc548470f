"""File positions of another tool's trace, as far as its seeks tell them.

A seek tells the position. From then on the position is followed, as long as only one call at a time uses the
description, and each such call either reads or writes at the position or leaves it where it is. Any other call makes
the position unknown until the next seek. So does a transfer of unknown size.

A handle is known by its reference and the group of locations that uses it. Some tools have one definition for all
processes (Score-P for standard streams): each process then has a position of its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lo2io.model import UNKNOWN_I64
from lo2io.trace.columns import OFFSET_SOURCE

if TYPE_CHECKING:
    from lo2io.otf2.foreign.rows import Row

    Place = tuple[int, int]

_MOVING: Final = frozenset({
    "read", "write", "readv", "writev", "fread", "fwrite", "fread_unlocked", "fwrite_unlocked", "fgets", "fputs",
    "MPI_File_read", "MPI_File_write",
})  # fmt: skip
"""Calls that transfer at the position, and advance it by the bytes moved (manual pages; MPI 4.1, 14.4.3)."""
_STILL: Final = (
    *("pread", "pread64", "preadv", "preadv64", "pwrite", "pwrite64", "pwritev", "pwritev64", "fsync", "fdatasync"),
    *("MPI_File_read_at", "MPI_File_write_at", "fflush"),
)
"""Calls that leave the position where it is."""
_WRITE: Final = 1
_FOLLOWED: Final = OFFSET_SOURCE.index("followed")


class Positions:
    """Positions by open file description."""

    def __init__(self) -> None:
        self._description: dict[Place, Place] = {}
        self._at: dict[Place, int] = {}
        self._busy: dict[Place, int] = {}
        self._appends: set[Place] = set()

    def _of(self, handle: Place) -> Place:
        return self._description.get(handle, handle)

    def open(self, handle: Place, *, append: bool) -> None:
        """Open a new description. Its position is unknown until a seek."""
        self.close(handle)
        self.append(handle, append=append)

    def close(self, handle: Place) -> None:
        """Forget a handle. Its reference may be used again."""
        if self._description.pop(handle, handle) == handle:
            self._at.pop(handle, None)
        self._appends.discard(handle)

    def duplicate(self, old: Place, new: Place) -> None:
        """Let both handles share one position."""
        self._description[new] = self._of(old)
        if old in self._appends:
            self._appends.add(new)

    def append(self, handle: Place, *, append: bool) -> None:
        """Note whether writes go to the end of the file."""
        (self._appends.add if append else self._appends.discard)(handle)

    def seek(self, handle: Place, position: int | None) -> None:
        """Set the position, unless another call may move it at the same time."""
        description = self._of(handle)
        if position is None or self._busy.get(description):
            self._at.pop(description, None)
        else:
            self._at[description] = position

    def begin(self, row: Row, handle: Place, call: str) -> None:
        """Begin a transfer. The row gets its offset if the position is known."""
        description = self._of(handle)
        if call in _STILL:
            return
        if self._busy.get(description) or call not in _MOVING or (row.mode == _WRITE and handle in self._appends):
            self._at.pop(description, None)
        self._busy[description] = self._busy.get(description, 0) + 1
        row.place = description
        at = self._at.get(description)
        if at is not None:
            row.offset, row.source = at, _FOLLOWED

    def complete(self, row: Row) -> None:
        """End a transfer, which moved the position."""
        description = row.place
        if description is None:
            return
        busy = self._busy[description] - 1
        if busy:
            self._busy[description] = busy
        else:
            del self._busy[description]
        # A transfer that began in the meantime has made the position unknown.
        if row.source == _FOLLOWED and row.moved != UNKNOWN_I64 and self._at.get(description) == row.offset:
            self._at[description] = row.offset + row.moved
        else:
            self._at.pop(description, None)
