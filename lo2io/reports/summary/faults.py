"""Page faults that needed I/O, by file.

In: the tables of faults and files. Out: a :class:`FaultsSummary`. Memory grows with the number of files.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from lo2io.frozen import dataclass
from lo2io.model import UNKNOWN_I64, UNKNOWN_U32

if TYPE_CHECKING:
    from lo2io.reports.summary.sums import TraceSums

MAX_ROWS: Final = 100
"""Files listed by the time of their faults."""
_PARTS: Final = {"blocked_ns": UNKNOWN_I64, "filled_pages": UNKNOWN_U32}
"""Column → the value that means unknown."""


@dataclass(frozen=True, slots=True)
class FaultsRow:
    """The faults of one file."""

    path: str | None
    """None: of all files whose path is not known."""
    faults: int
    time_ns: int
    longest_ns: int
    blocked_ns: int | None
    """Of ``time_ns``; None: of no fault it is known."""
    filled_pages: int | None
    """Pages of the file that faults outside of calls put into the page cache; None: of no fault it is known."""


@dataclass(frozen=True, slots=True)
class FaultsSummary:
    """Page faults that needed I/O, in recorded threads."""

    faults: int
    inside_calls: int
    """Of them, inside of recorded calls: their time is these calls', too."""
    unknown: int
    """Faults among them whose start and file are unknown, such as those on memory that was swapped out."""
    files: tuple[FaultsRow, ...]
    """All but the unknown ones."""


def summarize_faults(sums: TraceSums) -> FaultsSummary | None:
    """Sum up the faults; None: the layer was not recorded, or there was none.

    Raises:
        TraceError: A table is missing or damaged.
    """
    trace = sums.trace
    if "faults" not in trace.metadata.get("layers", ()) or not trace.rows("faults"):
        return None
    nr_files = sums.owners.nr_files
    numbers, longest = np.zeros((nr_files + 1, 2), np.int64), np.zeros(nr_files + 1, np.int64)
    parts = {name: (np.zeros(nr_files + 1, np.int64), np.zeros(nr_files + 1, np.bool_)) for name in _PARTS}
    columns = [name for name in _PARTS if name in trace.schema("faults").names]
    faults = inside = unknown = 0
    for rows in trace.batches("faults", ("inside", "begin_time_ns", "end_time_ns", "file", *columns)):
        known = rows["begin_time_ns"] != UNKNOWN_I64
        file = sums.owners.files(rows["file"], nr_files)[known]
        lasted = (rows["end_time_ns"] - rows["begin_time_ns"])[known]
        np.add.at(numbers, file, np.stack([np.ones(len(lasted), np.int64), lasted], axis=1))
        np.maximum.at(longest, file, lasted)
        for name in columns:
            values = rows[name][known]
            told = values != _PARTS[name]
            np.add.at(parts[name][0], file[told], values[told])
            parts[name][1][file[told]] = True
        faults += len(known)
        inside += int(np.count_nonzero(rows["inside"]))
        unknown += int(np.count_nonzero(~known))
    shown = np.argsort(-numbers[:, 1], kind="stable")[: int(np.count_nonzero(numbers[:, 0]))][:MAX_ROWS].tolist()
    paths = trace.texts("files", "file", "path", [number for number in shown if number < nr_files])
    found = [
        FaultsRow(
            paths.get(at),
            int(numbers[at, 0]),
            int(numbers[at, 1]),
            int(longest[at]),
            *(int(sums[at]) if told[at] else None for sums, told in parts.values()),
        )
        for at in shown
    ]
    return FaultsSummary(faults, inside, unknown, tuple(found))
