"""File positions of another tool's trace, as far as its seeks tell.

A seek says where the position is. From there it is followed while the handle's description is only used by one call at
a time, by calls that are known to read or write at the position, and by those that are known not to move it. All else
makes it unknown until the next seek; so does what nobody knows the size of.

A handle is named by the group of locations that uses it, and its reference: where a tool has one definition for all
processes (Score-P's of standard streams, say), each has a position of its own.
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
"""Calls that transfer at the position and move it by what they moved (their manual pages; MPI 4.1, 14.4.3)."""
_STILL: Final = (
    *("pread", "pread64", "preadv", "preadv64", "pwrite", "pwrite64", "pwritev", "pwritev64", "fsync", "fdatasync"),
    *("MPI_File_read_at", "MPI_File_write_at", "fflush"),
)
"""Calls that leave it where it is."""
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
        """A description of its own, at a place that only a seek will tell."""
        self.close(handle)
        self.append(handle, append=append)

    def close(self, handle: Place) -> None:
        """The handle's reference may be used again."""
        if self._description.pop(handle, handle) == handle:
            self._at.pop(handle, None)
        self._appends.discard(handle)

    def duplicate(self, old: Place, new: Place) -> None:
        """Both share one position."""
        self._description[new] = self._of(old)
        if old in self._appends:
            self._appends.add(new)

    def append(self, handle: Place, *, append: bool) -> None:
        """Whether writes go to the end of the file."""
        (self._appends.add if append else self._appends.discard)(handle)

    def seek(self, handle: Place, position: int | None) -> None:
        """It is there now, unless another call is moving it."""
        description = self._of(handle)
        if position is None or self._busy.get(description):
            self._at.pop(description, None)
        else:
            self._at[description] = position

    def begin(self, row: Row, handle: Place, call: str) -> None:
        """A transfer begins; gets its offset if that is known."""
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
        """A transfer ended, and moved the position."""
        description = row.place
        if description is None:
            return
        busy = self._busy[description] - 1
        if busy:
            self._busy[description] = busy
        else:
            del self._busy[description]
        # One that began meanwhile has made it unknown.
        if row.source == _FOLLOWED and row.moved != UNKNOWN_I64 and self._at.get(description) == row.offset:
            self._at[description] = row.offset + row.moved
        else:
            self._at.pop(description, None)
