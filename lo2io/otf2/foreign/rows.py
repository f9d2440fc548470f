"""Rows of calls and requests of other tools' traces, kept in files of fixed records.

The names of all calls are known only after the last event, but tables need the names first. So rows wait in files, and
memory stays constant. Times in these rows are the trace's ticks.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from lo2io.errors import TraceError
from lo2io.model import UNKNOWN_I64, UNKNOWN_U32
from lo2io.units import NS_PER_S

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from numpy.typing import NDArray

UNKNOWN_TICKS: Final = 2**64 - 1
CHUNK_ROWS: Final = 65536

CALL_ROW: Final = np.dtype([
    ("begin", "u8"), ("end", "u8"), ("location", "u8"), ("key", "u4"), ("handle", "u4"), ("handle2", "u4"),
    ("flags", "u4"), ("offset", "i8"), ("asked", "i8"), ("moved", "i8"), ("result", "i8"), ("error", "i2"),
    ("status", "u1"), ("source", "u1"), ("closes", "u1"), ("nested", "u1"),
])  # fmt: skip
"""A call. ``key`` is the number of its name. ``nested`` is 1 if the call lies within another call of its thread."""
REQUEST_ROW: Final = np.dtype([
    ("begin", "u8"), ("issue", "u8"), ("end", "u8"), ("location", "u8"), ("handle", "u4"), ("tid", "u4"),
    ("sector", "u8"), ("asked", "i8"), ("moved", "i8"), ("error", "i4"), ("operation", "u4"), ("mode", "u1"),
    ("status", "u1"), ("user_data", "u8"), ("result", "i4"), ("ring", "u4"),
    ("path", "u4"),
])  # fmt: skip
"""A request of a disk or ring. ``operation``, ``ring`` and ``path`` are references of strings, or unknown."""
COMPLETED, IN_FLIGHT, CANCELLED = range(3)
"""``status`` of both kinds of rows. For requests of disks, the last value means *merged*."""
INFERRED: Final = 3
"""``status`` of requests of disks only: the end was not seen; the row's end is the latest possible moment."""


@dataclass(frozen=True, slots=True)
class Clock:
    """Converts ticks to nanoseconds."""

    resolution: int
    offset: int
    length: int
    realtime: int

    def ns(self, ticks: NDArray[Any]) -> NDArray[np.int64]:
        """Nanoseconds of these ticks, rounded down. Unknown stays unknown."""
        ticks = ticks.astype(np.uint64)
        whole, part = np.divmod(ticks, np.uint64(self.resolution))
        found = (whole * np.uint64(NS_PER_S) + part * np.uint64(NS_PER_S) // np.uint64(self.resolution)).astype(
            np.int64
        )
        return np.where(ticks == UNKNOWN_TICKS, UNKNOWN_I64, found)

    def moment(self, ticks: int) -> int:
        """Nanoseconds of one time."""
        return ticks * NS_PER_S // self.resolution


class Spill:
    """Rows that wait in a file. They are written and read in chunks."""

    def __init__(self, path: Path, dtype: np.dtype[Any]) -> None:
        self.rows = 0
        self._path, self._dtype = path, dtype
        self._waiting: list[tuple[Any, ...]] = []
        self._file = path.open("wb")

    def add(self, row: tuple[Any, ...]) -> None:
        """Add a row, with values in the order of the type's fields."""
        self._waiting.append(row)
        if len(self._waiting) >= CHUNK_ROWS:
            self._flush()

    def finish(self) -> None:
        """Write the last rows, and close the file for writing."""
        self._flush()
        self.close()

    def close(self) -> None:
        """Close the file. Rows not yet written are dropped."""
        self._file.close()

    def chunks(self) -> Iterator[NDArray[Any]]:
        """All rows, in the order in which they were added."""
        with self._path.open("rb") as file:
            while len(rows := np.fromfile(file, self._dtype, CHUNK_ROWS)):
                yield rows

    def _flush(self) -> None:
        try:
            # tofile() does not tell the reason of a failure; write() does.
            self._file.write(np.array(self._waiting, self._dtype).tobytes())
        except OSError as error:
            raise TraceError(
                f"cannot write rows of the trace to {self._path.parent}",
                error.strerror or str(error),
                "free space there, or set TMPDIR to a place that has some",
            ) from error
        self.rows += len(self._waiting)
        self._waiting.clear()


class Row:
    """A call or request that is under way, with what is known of it so far."""

    __slots__ = (
        "asked", "begin", "closes", "error", "filled", "flags", "frame", "handle", "handle2", "issue", "kind",
        "location", "mode", "moved", "nested", "offset", "operation", "paradigm", "parts", "path", "place", "region",
        "result", "ring", "sector", "source", "status", "tid", "user_data", "vector",
    )  # fmt: skip

    def __init__(self, location: int, begin: int, region: int, *, frame: bool, nested: bool) -> None:
        self.location, self.begin, self.region, self.frame, self.nested = location, begin, region, frame, nested
        self.paradigm, self.kind, self.filled = -1, 0, False
        self.parts, self.vector = 0, False  # the number of transfers under way
        self.place: tuple[int, int] | None = None
        self.handle = self.handle2 = self.tid = self.operation = self.ring = self.path = UNKNOWN_U32
        self.offset = self.asked = self.moved = self.result = UNKNOWN_I64
        self.flags = self.error = self.source = self.closes = self.mode = self.sector = self.user_data = 0
        self.status, self.issue = COMPLETED, UNKNOWN_TICKS

    def join(self, asked: int) -> None:
        """Add a transfer that begins before the others have ended: the transfers belong to one vector."""
        self.parts, self.vector = self.parts + 1, True
        self.asked = self.asked + asked if self.asked != UNKNOWN_I64 and asked < 2**63 else UNKNOWN_I64

    def call(self, key: int, end: int) -> tuple[Any, ...]:
        """The row's values for :data:`CALL_ROW`."""
        return (
            *(self.begin, end if self.status != IN_FLIGHT else UNKNOWN_TICKS, self.location, key, self.handle),
            *(self.handle2, self.flags, self.offset, self.asked, self.moved, self.result, self.error),
            *(min(self.status, IN_FLIGHT), self.source, self.closes, self.nested),
        )

    def request(self, end: int) -> tuple[Any, ...]:
        """The row's values for :data:`REQUEST_ROW`."""
        result = -self.error if self.error else max(self.moved, 0) if self.result == UNKNOWN_I64 else self.result
        return (
            *(self.begin, self.issue, end, self.location, self.handle, self.tid, self.sector, self.asked, self.moved),
            *(self.error, self.operation, self.mode, self.status, self.user_data, result),
            *(self.ring, self.path),
        )
