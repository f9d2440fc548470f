"""The first rows behind findings: a second reading of a table, which ends as soon as enough were found."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

import numpy as np

from lo2io.reports.tally import OPERATION_COLUMNS, derive, read_ahead

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lo2io.reports.findings.finding import Finding
    from lo2io.reports.sums import TraceSums

MAX_IDS: Final = 10
"""Rows named of each finding."""
MAX_PATHS: Final = 10
PATH_ROWS: Final = 1000
"""Rows of which the paths are looked at: a program's first calls are its loader's, whatever it does then."""
_COLUMNS: Final[Mapping[str, Sequence[str]]] = {
    "operations": OPERATION_COLUMNS,
    "requests": ("id", "device", "operation", "status", "insert_time_ns", "issue_time_ns"),
    "ring_requests": ("id", "ring", "path", "nr_punts", "traits"),
    "batches": ("id", "ring", "asked", "submitted"),
}
"""What the rules look at."""


def fill_rows(sums: TraceSums, findings: Sequence[Finding]) -> tuple[Finding, ...]:
    """Put the ids of the first rows into the findings, and of calls the paths that they were given.

    Raises:
        TraceError: A table is missing or damaged.
    """
    looked_at: list[tuple[Finding, list[int]]] = []
    for table in _COLUMNS:
        looked_at += _find_rows(sums, table, [finding for finding in findings if finding.table == table])
    for finding, ids in looked_at:
        finding.ids = tuple(ids[:MAX_IDS])
    calls = [(finding, ids) for finding, ids in looked_at if finding.table == "operations"]
    wanted = {number for _, ids in calls for number in ids}
    paths = sums.trace.texts("paths", "operation", "path", wanted) if wanted else {}
    for finding, ids in calls:
        # Of those told equally often the later ones first: programs begin with their loader's.
        told = Counter(path for number in reversed(ids) if (path := paths.get(number)))
        finding.paths = dict(told.most_common(MAX_PATHS))
    return tuple(findings)


def _find_rows(sums: TraceSums, table: str, findings: Sequence[Finding]) -> list[tuple[Finding, list[int]]]:
    """The ids of the first rows behind each; many of a process, whose calls are given paths."""
    found: list[tuple[Finding, list[int]]] = [(finding, []) for finding in findings]
    wanting = found
    for batch in read_ahead(sums.trace.batches(table, _COLUMNS[table])) if wanting else ():
        rows = derive(batch, sums.owners, sums.classes, sums.spans) if table == "operations" else batch
        for finding, ids in wanting:
            which = np.flatnonzero(finding.where(rows))[: _wanted(finding) - len(ids)]
            ids.extend(rows["id"][which].tolist())
        wanting = [(finding, ids) for finding, ids in wanting if len(ids) < min(_wanted(finding), finding.rows)]
        if not wanting:
            break
    return found


def _wanted(finding: Finding) -> int:
    of_process = finding.table == "operations" and finding.group < 0
    return PATH_ROWS if of_process else MAX_IDS
