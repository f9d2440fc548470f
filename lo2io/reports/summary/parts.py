"""What block requests carried: bytes by file and by kind, whoever sent them.

In: the tables of requests' parts and of files. Out: a :class:`PartsSummary`. Memory grows with the number of files.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from lo2io.frozen import dataclass
from lo2io.trace.columns import PART_KIND, REQUEST_OPERATION

if TYPE_CHECKING:
    from lo2io.reports.summary.sums import TraceSums
    from lo2io.trace.reader import Trace

MAX_ROWS: Final = 100
"""Files listed by the bytes that requests carried for them."""
_READ, _FILE = REQUEST_OPERATION.index("read"), PART_KIND.index("file")


@dataclass(frozen=True, slots=True)
class PartsRow:
    """Parts of one kind, or of one file."""

    kind: str
    path: str | None
    """Of a file's data: its path, if anybody who is recorded had opened it."""
    parts: int
    bytes_read: int
    bytes_written: int


@dataclass(frozen=True, slots=True)
class PartsSummary:
    """Bytes that requests carried from or to disks. Parts of requests that failed count, too."""

    kinds: tuple[PartsRow, ...]
    files: tuple[PartsRow, ...]
    """Of the kind *file*; one row has the bytes of all files without a name."""
    cut: int
    """Requests with further parts, which are not known."""


def summarize_parts(sums: TraceSums) -> PartsSummary | None:
    """Sum up the parts; None: the layer was not recorded, or there was no request.

    Raises:
        TraceError: A table is missing or damaged.
    """
    trace = sums.trace
    if "parts" not in trace.metadata.get("layers", ()) or not trace.rows("request_parts"):
        return None
    nr_files = sums.owners.nr_files
    kinds, files = np.zeros((len(PART_KIND), 3), np.int64), np.zeros((nr_files + 1, 3), np.int64)
    reads, cut = _reads(trace), 0
    for rows in trace.batches("request_parts", ("request", "kind", "file", "bytes", "cut")):
        is_read = np.isin(rows["request"], reads)
        size = rows["bytes"].astype(np.int64)
        numbers = np.stack([np.ones(len(size), np.int64), size * is_read, size * ~is_read], axis=1)
        np.add.at(kinds, rows["kind"], numbers)
        of_file = rows["kind"] == _FILE
        file = sums.owners.files(rows["file"], nr_files)[of_file]
        np.add.at(files, file, numbers[of_file])
        cut += int(np.count_nonzero(rows["cut"]))
    moved = files[:, 1] + files[:, 2]
    shown = np.argsort(-moved, kind="stable")[: int(np.count_nonzero(moved))][:MAX_ROWS].tolist()
    paths = trace.texts("files", "file", "path", [number for number in shown if number < nr_files])
    return PartsSummary(
        tuple(PartsRow(name, None, *kinds[place].tolist()) for place, name in enumerate(PART_KIND) if kinds[place, 0]),
        tuple(PartsRow("file", paths.get(number), *files[number].tolist()) for number in shown),
        cut,
    )


def _reads(trace: Trace) -> np.ndarray[tuple[int], np.dtype[np.uint64]]:
    """The ids of all reads."""
    parts = [rows["id"][rows["operation"] == _READ] for rows in trace.batches("requests", ("id", "operation"))]
    return np.concatenate(parts) if parts else np.zeros(0, np.uint64)
