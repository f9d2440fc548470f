"""Shared by all parts of a Perfetto trace: the trace, its tracks, and columns of tables as notes.

A note has the name of its column, so ``docs/reference/tables.md`` says what the note means.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from lo2io.exports.perfetto.packets import ADDRESS, INSTANT, NAMED, NUMBER, OPEN, UNSIGNED, Note
from lo2io.model import UNKNOWN_I64, UNKNOWN_U32
from lo2io.trace.reader import TABLES

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from lo2io.exports.perfetto.packets import PacketWriter
    from lo2io.exports.perfetto.tracks import Tracks
    from lo2io.exports.target import Progress
    from lo2io.model import Columns
    from lo2io.trace.reader import Column, Trace

    Times = NDArray[np.int64]

LINKED, ENDED_BY, WOKEN, DIRTIED = (kind << 61 for kind in (1, 2, 3, 4))
"""Added to a request's id, or to a row's number, for flows other than the request's own."""
_ADDRESSES: Final = frozenset({"user_data"})
_UNLESS_ZERO: Final = frozenset(
    (
        *("error", "flags", "sqe_flags", "cqe_flags", "traits", "inferred"),
        *("nr_requeues", "nr_merges", "nr_polls", "nr_punts"),
    )
)
"""Columns that are always known. Their value 0 gets no note."""
_LATER_THAN_ALL: Final = 2**63 - 1


@dataclass(slots=True)
class Scene:
    """A trace, and the writer and tracks that draw it."""

    trace: Trace
    writer: PacketWriter
    tracks: Tracks
    progress: Progress
    all_rows: int
    """Number of rows that are read in all."""
    files: NDArray[np.int64]
    """Handle → number of its file's interned path; 0: the file has no name."""
    exits: NDArray[np.int64]
    """Thread → time of its end; ``OPEN``: not known, or still alive."""
    rows: int = 0
    """Number of rows that were drawn."""
    undrawn: int = 0
    """Number of rows without any time, which are not drawn."""
    _read: int = 0
    _columns: dict[tuple[str, str], Column] = field(default_factory=dict)

    def batches(self, table: str, columns: Sequence[str]) -> Iterator[Columns]:
        """As :meth:`Trace.batches`, and report the progress."""
        for batch in self.trace.batches(table, columns):
            yield batch
            self._read += len(batch[columns[0]])
            self.progress(min(1.0, self._read / max(1, self.all_rows)))

    def notes(self, table: str, batch: Columns, columns: Sequence[str]) -> list[Note]:
        """Columns of a table as notes."""
        return [self._note(table, batch, name) for name in columns]

    def file_notes(self, batch: Columns) -> list[Note]:
        """The paths of a batch's handles."""
        pairs = (("file", "handle"), ("file2", "handle2"))
        return [Note(name, self.file_of(batch[key]), NAMED, 0) for name, key in pairs if key in batch]

    def file_of(self, handles: NDArray[np.uint32]) -> NDArray[np.int64]:
        """Numbers of the interned paths; 0: none."""
        known = handles < len(self.files)
        found = np.zeros(len(handles), np.int64)
        found[known] = self.files[handles[known]]
        return found

    def _note(self, table: str, batch: Columns, name: str) -> Note:
        column = self._column(table, name)
        values = batch[name]
        if isinstance(column.labels, tuple):
            numbers = self.writer.labels(column.labels)
            return Note(name, numbers[values], NAMED, None)
        kind = ADDRESS if name in _ADDRESSES else UNSIGNED if column.dtype == "uint64" else NUMBER
        return Note(name, values, kind, 0 if name in _UNLESS_ZERO else column.null)

    def _column(self, table: str, name: str) -> Column:
        found = self._columns.get((table, name))
        if found is None:
            found = self._columns[table, name] = next(c for c in TABLES[table] if c.name == name)
        return found


def earliest(*times: Times) -> Times:
    """The first known time of each row; ``OPEN``: no time is known."""
    known = np.minimum.reduce([np.where(time == UNKNOWN_I64, _LATER_THAN_ALL, time) for time in times])
    return np.where(known == _LATER_THAN_ALL, OPEN, known)


def latest(*times: Times) -> Times:
    """The last known time of each row; ``OPEN``: no time is known."""
    found: Times = np.maximum.reduce(times)
    return found


def last_of_threads(tasks: NDArray[np.uint32], times: Times, known: Times) -> Times:
    """The latest time of each thread, from the known times and those of a batch. The array grows as needed."""
    named = tasks != UNKNOWN_U32
    chosen, their_times = tasks[named], times[named]
    size = int(chosen.max(initial=0)) + 1
    if size > len(known):
        known = np.concatenate([known, np.full(max(size, 2 * len(known)) - len(known), OPEN)])
    np.maximum.at(known, chosen, their_times)
    return known


def at_threads(tasks: NDArray[np.uint32], known: Times) -> Times:
    """The known time of each row's thread; ``OPEN``: not known."""
    there = tasks < len(known)
    found = np.full(len(tasks), OPEN)
    found[there] = known[tasks[there]]
    return found


def instants(rows: int) -> Times:
    """Ends of rows that are all instants."""
    return np.full(rows, INSTANT)


def flow(ids: Any, kind: int, chosen: NDArray[np.bool_]) -> NDArray[np.uint64]:
    """Ids of flows for the chosen rows; 0 for the others."""
    return np.where(chosen, np.asarray(ids, np.uint64) | np.uint64(kind), np.uint64(0))
