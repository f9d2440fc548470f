"""The files of a node by folder, and by pattern: paths whose numbers are left out, such as ``/data/out.*.dat``.

In: sums by path. Out: sums by folder and by pattern, each with its number of files. Every file is in one folder and one
pattern, so their sums are those of all files.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lo2io.reports.summary.tally import Sums
from lo2io.trace.reader import as_numpy

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from lo2io.trace.reader import Trace

FOLDER, PATTERN = "folder", "pattern"
_RULES: Final = {FOLDER: (r"(?s)^(.*)/[^/]*$", r"\1/"), PATTERN: (r"[0-9]+", "*")}
"""Patterns in a path and their replacements: the part after the last slash, and each number."""


class Places(NamedTuple):
    """Places of one kind: names and sums, row by row. A name is None for files whose path is not known."""

    names: list[str | None]
    sums: Sums
    files: NDArray[np.int64]
    """How many files lie there."""


def places(trace: Trace, kind: str, by_path: Sums, chosen: NDArray[np.intp]) -> Places:
    """Add up the chosen files by folder or pattern.

    Args:
        trace: The trace with the table of files.
        kind: ``FOLDER`` or ``PATTERN``.
        by_path: Sums by path, at the file that stands for it.
        chosen: These files.

    Raises:
        TraceError: The table is damaged.
    """
    wanted = np.zeros(len(by_path.calls), np.bool_)
    wanted[chosen] = True
    numbers: dict[str | None, int] = {}
    files, rows = [np.zeros(0, np.intp)], [np.zeros(0, np.intp)]
    for batch in trace.record_batches("files", ["file", "path"]):
        file = as_numpy(batch.column("file"))
        which = wanted[file]
        texts = pc.replace_substring_regex(batch.column("path").filter(pa.array(which)), *_RULES[kind])
        found = texts.dictionary_encode()
        own = [numbers.setdefault(name, len(numbers)) for name in found.dictionary.to_pylist()]
        lacking = numbers.setdefault(None, len(numbers)) if found.null_count else -1
        place = pc.fill_null(found.indices, len(own)).to_numpy(zero_copy_only=False)
        files.append(file[which].astype(np.intp))
        rows.append(np.array([*own, lacking], np.intp)[place])
    return _added(list(numbers), by_path, np.concatenate(files), np.concatenate(rows))


def _added(names: list[str | None], by_path: Sums, files: NDArray[np.intp], rows: NDArray[np.intp]) -> Places:
    sums = Sums(len(names))
    fields: Any = sums.rows.dtype.names
    for name in fields:
        np.add.at(sums.rows[name], rows, by_path.rows[name][files])
    return Places(names, sums, np.bincount(rows, minlength=len(names)))
