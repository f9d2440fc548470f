"""The first rows behind findings: a second reading of a table, which ends as soon as enough were found."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

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
REPEAT_ROWS: Final = 10_000
"""Rows that are looked at for files that come again."""
AGAIN: Final = 10
"""Calls about each file, from which on a program looks at the same files again and again."""
_COLUMNS: Final[Mapping[str, Sequence[str]]] = {
    "operations": OPERATION_COLUMNS,
    "requests": ("id", "device", "operation", "status", "insert_time_ns", "issue_time_ns"),
    "ring_requests": ("id", "ring", "path", "nr_punts", "traits"),
    "batches": ("id", "ring", "asked", "submitted"),
}
"""What the rules look at."""


@dataclass(slots=True)
class _Rows:
    """The first rows behind a finding: their ids, and of calls the groups of the files that they are about."""

    finding: Finding
    ids: list[int] = field(default_factory=list)
    groups: list[int] = field(default_factory=list)

    @property
    def wanted(self) -> int:
        """How many are looked for."""
        if self.finding.if_repeated:
            return REPEAT_ROWS
        of_process = self.finding.table == "operations" and self.finding.group < 0
        return PATH_ROWS if of_process else MAX_IDS


def fill_rows(sums: TraceSums, findings: Sequence[Finding]) -> tuple[Finding, ...]:
    """Put the ids of the first rows into the findings, and of calls the paths that they were given.

    Returns:
        Those that stand.

    Raises:
        TraceError: A table is missing or damaged.
    """
    looked_at: list[_Rows] = []
    for table in _COLUMNS:
        looked_at += _find_rows(sums, table, [finding for finding in findings if finding.table == table])
    calls = [rows for rows in looked_at if rows.finding.table == "operations"]
    wanted = {number for rows in calls for number in rows.ids}
    paths = sums.trace.texts("paths", "operation", "path", wanted) if wanted else {}
    for rows in looked_at:
        rows.finding.ids = tuple(rows.ids[:MAX_IDS])
    for rows in calls:
        # Of those told equally often the later ones first: programs begin with their loader's.
        told = Counter(path for number in reversed(rows.ids[:PATH_ROWS]) if (path := paths.get(number)))
        rows.finding.paths = dict(told.most_common(MAX_PATHS))
    dropped = [rows.finding for rows in calls if rows.finding.if_repeated and not _repeats(sums, rows, paths)]
    return tuple(finding for finding in findings if not any(finding is each for each in dropped))


def _repeats(sums: TraceSums, rows: _Rows, paths: Mapping[int, str | None]) -> bool:
    """Whether the calls are about the same files again and again, as far as most of them are known."""
    directories = sums.trace.texts("paths", "operation", "directory", set(rows.ids))
    known: Counter[tuple[Any, ...]] = Counter()
    for number, group in zip(rows.ids, rows.groups, strict=True):
        if path := paths.get(number):
            known[directories.get(number), path] += 1
        elif group < sums.owners.nr_files:
            known[(int(sums.paths.of[group]),)] += 1
    return 2 * known.total() >= len(rows.ids) and known.total() >= AGAIN * len(known)


def _find_rows(sums: TraceSums, table: str, findings: Sequence[Finding]) -> list[_Rows]:
    """The ids of the first rows behind each; many of a process, whose calls are given paths."""
    found = [_Rows(finding) for finding in findings]
    wanting = found
    for batch in read_ahead(sums.trace.batches(table, _COLUMNS[table])) if wanting else ():
        rows = derive(batch, sums.owners, sums.classes, sums.spans) if table == "operations" else batch
        for each in wanting:
            which = np.flatnonzero(each.finding.where(rows))[: each.wanted - len(each.ids)]
            each.ids.extend(rows["id"][which].tolist())
            each.groups.extend(rows["group"][which].tolist() if table == "operations" else ())
        wanting = [each for each in wanting if len(each.ids) < min(each.wanted, each.finding.rows)]
        if not wanting:
            break
    return found
