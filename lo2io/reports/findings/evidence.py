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
_COLUMNS: Final[Mapping[str, Sequence[str]]] = {
    "operations": OPERATION_COLUMNS,
    "requests": ("id", "device", "status", "insert_time_ns", "issue_time_ns"),
    "ring_requests": ("id", "ring", "path", "nr_punts", "traits"),
    "batches": ("id", "ring", "asked", "submitted"),
}
"""What the rules look at."""


def fill_rows(sums: TraceSums, findings: Sequence[Finding]) -> tuple[Finding, ...]:
    """Put the ids of the first rows into the findings, and of calls the paths that they were given.

    Raises:
        TraceError: A table is missing or damaged.
    """
    for table in _COLUMNS:
        _find_rows(sums, table, [finding for finding in findings if finding.table == table])
    calls = [finding for finding in findings if finding.table == "operations"]
    wanted = {number for finding in calls for number in finding.ids}
    paths = sums.trace.texts("paths", "operation", "path", wanted) if wanted else {}
    for finding in calls:
        told = Counter(path for number in finding.ids if (path := paths.get(number)))
        finding.paths = dict(told.most_common())
    return tuple(findings)


def _find_rows(sums: TraceSums, table: str, findings: Sequence[Finding]) -> None:
    wanting = list(findings)
    for batch in read_ahead(sums.trace.batches(table, _COLUMNS[table])) if wanting else ():
        rows = derive(batch, sums.owners, sums.classes, sums.spans) if table == "operations" else batch
        for finding in wanting:
            which = np.flatnonzero(finding.where(rows))[: MAX_IDS - len(finding.ids)]
            finding.ids += tuple(rows["id"][which].tolist())
        wanting = [finding for finding in wanting if len(finding.ids) < min(MAX_IDS, finding.rows)]
        if not wanting:
            break
