"""The first rows behind findings: a second reading of a table, which ends as soon as it has enough rows.

In: findings, and their trace. Out: the findings that stand; ids and paths for those that are listed.
Memory: 30 B for each row, and at most 10,000 rows for a process.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import numpy as np

from lo2io.model.number_sets import distinct
from lo2io.reports.summary.tally import OPERATION_COLUMNS, read_ahead
from lo2io.trace.reader import as_numpy

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pyarrow as pa
    from numpy.typing import NDArray

    from lo2io.reports.findings.finding import Finding
    from lo2io.reports.summary.sums import TraceSums
    from lo2io.trace.reader import Trace

MAX_IDS: Final = 10
"""Ids that a finding lists."""
MAX_PATHS: Final = 10
PATH_ROWS: Final = 1000
"""Rows with paths that are counted. One needs many: the first calls of any program are its loader's."""
REPEAT_ROWS: Final = 10_000
"""Rows that show whether a program comes back to the same files."""
AGAIN: Final = 10
"""Mean number of calls about each file from which on a program repeats itself."""
_COLUMNS: Final[Mapping[str, Sequence[str]]] = {
    "operations": OPERATION_COLUMNS,
    "requests": ("id", "device", "operation", "status", "insert_time_ns", "issue_time_ns"),
    "ring_requests": ("id", "ring", "path", "nr_punts", "traits"),
    "batches": ("id", "ring", "asked", "submitted"),
}
"""The columns that rules read."""
_ODD: Final = np.uint64(0x9E3779B97F4A7C15)
"""2^64 divided by the golden ratio. This factor keeps a directory's number apart from a path's."""


@dataclass(slots=True)
class _Rows:
    """The first rows behind a finding: their ids and, for calls, the groups of their files."""

    finding: Finding
    wanted: int
    ids: NDArray[np.uint64] = field(default_factory=lambda: np.zeros(0, np.uint64))
    groups: NDArray[np.int32] = field(default_factory=lambda: np.zeros(0, np.int32))


def standing(sums: TraceSums, findings: list[Finding]) -> list[Finding]:
    """The findings that stand. If calls must repeat the same files, look at the first of these calls.

    Raises:
        TraceError: A table is missing or damaged.
    """
    doubtful = [_Rows(finding, REPEAT_ROWS) for finding in findings if finding.if_repeated]
    if not doubtful:
        return findings
    _find_rows(sums, "operations", doubtful)
    stands = iter(_repeat(sums, doubtful))
    return [finding for finding in findings if not finding.if_repeated or next(stands)]


def fill_rows(sums: TraceSums, findings: Sequence[Finding]) -> None:
    """Put the ids of the first rows into the findings, and for calls the paths that they were given.

    Raises:
        TraceError: A table is missing or damaged.
    """
    looked_at = [_Rows(finding, _nr_wanted(finding)) for finding in findings]
    for table in _COLUMNS:
        _find_rows(sums, table, [rows for rows in looked_at if rows.finding.table == table])
    calls = [rows for rows in looked_at if rows.finding.table == "operations"]
    wanted = {number for rows in calls for number in rows.ids.tolist()}
    paths = sums.trace.texts("paths", "operation", "path", wanted) if wanted else {}
    for rows in looked_at:
        rows.finding.ids = tuple(rows.ids[:MAX_IDS].tolist())
    for rows in calls:
        # Among paths with the same count, later ones come first: a program's first calls are its loader's.
        named = Counter(path for number in rows.ids[::-1].tolist() if (path := paths.get(number)))
        rows.finding.paths = dict(named.most_common(MAX_PATHS))


def _nr_wanted(finding: Finding) -> int:
    """How many rows to look for: many for a process, because its calls have paths."""
    of_process = finding.table == "operations" and finding.group < 0
    return PATH_ROWS if of_process else MAX_IDS


def _find_rows(sums: TraceSums, table: str, wanting: list[_Rows]) -> None:
    """Look for the first rows behind each finding, in one pass over the table."""
    for batch in read_ahead(sums.trace.batches(table, _COLUMNS[table])) if wanting else ():
        rows = sums.context.derive(batch) if table == "operations" else batch
        for each in wanting:
            which = np.flatnonzero(each.finding.where(rows))[: each.wanted - len(each.ids)]
            each.ids = np.append(each.ids, rows["id"][which])
            if table == "operations":
                each.groups = np.append(each.groups, rows["group"][which])
        wanting = [each for each in wanting if len(each.ids) < min(each.wanted, each.finding.rows)]
        if not wanting:
            break


def _repeat(sums: TraceSums, looked_at: Sequence[_Rows]) -> list[bool]:
    """For each finding, True if its calls repeat the same files. Calls with unknown files must be the smaller part."""
    found = []
    names = _names(sums.trace, np.concatenate([rows.ids for rows in looked_at]))
    for rows in looked_at:
        name, names = names[: len(rows.ids)], names[len(rows.ids) :]
        named = name != 0
        opened = rows.groups[~named & (rows.groups < sums.owners.nr_files)]
        known = np.count_nonzero(named) + len(opened)
        files = len(distinct(name[named])) + len(distinct(sums.paths.of[opened]))
        found.append(bool(2 * known >= len(rows.ids) and known >= AGAIN * files))
    return found


def _names(trace: Trace, ids: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """For each call, a number for its path and directory, shape (n,). 0: the path is unknown."""
    names = np.zeros(len(ids), np.uint64)
    order = np.argsort(ids)
    ordered = ids[order]
    for batch in trace.record_batches("paths", ["operation", "path", "directory"]) if len(ids) else ():
        calls = as_numpy(batch.column("operation"))
        place = np.searchsorted(ordered, calls).clip(0, len(ids) - 1)
        path, directory = _numbers(batch.column("path")), _numbers(batch.column("directory"))
        name = (path + directory * _ODD) * (path != 0)
        wanted = ordered[place] == calls
        names[order[place[wanted]]] = name[wanted]
    return names


def _numbers(texts: pa.Array) -> NDArray[np.uint64]:
    """A number for each text (64 bits of a hash): equal texts have equal numbers. 0: no text, or an empty one."""
    coded = texts.dictionary_encode(null_encoding="encode")
    mask = (1 << 64) - 1
    hashes = [hash(text) & mask if text else 0 for text in coded.dictionary.to_pylist()]
    numbers: NDArray[np.uint64] = np.array(hashes, np.uint64)[as_numpy(coded)]
    return numbers
