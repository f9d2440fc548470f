"""What changed from one trace to another: in all, by call, file, process and device, and in findings.

In: the summaries of two traces. Out: a :class:`Diff` of plain values. Rows of both traces belong together if they have
the same name: a call's, a file's path, a program's, a device with its operation. Numbers that differ from run to run
are no part of a name: pids, arguments, inodes of pipes. What a summary does not list is one row.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Final

from lo2io.units import NS_PER_S

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lo2io.reports.summary.summary import Activity, Summary

SCHEMA: Final = "lo2io-diff"
SCHEMA_VERSION: Final = 1
_PID: Final = re.compile(r" \(\d+\)")
"""A pid in the subject of a finding."""
_NUMBERED: Final = re.compile(r":\[\d+\]$")
"""The end of a path such as ``pipe:[1234]``."""
_REST: Final = "not listed"
"""The name of the row of all that a summary does not list."""


@dataclass(frozen=True, slots=True)
class Numbers:
    """One side of a row. Latencies are of single calls or requests, in ns; None: the row has none."""

    count: int = 0
    """Calls, or requests of a device."""
    bytes_read: int = 0
    bytes_written: int = 0
    time_ns: int = 0
    """Sum of the durations; of a device from issue to completion."""
    p50_ns: int | None = None
    p95_ns: int | None = None
    max_ns: int | None = None


NOTHING: Final = Numbers()


@dataclass(frozen=True, slots=True)
class Change:
    """One row in both traces. A side that lacks the row has zeroes."""

    name: str
    before: Numbers
    after: Numbers
    rest: bool = False
    """True for what the summaries do not list. A process can have the name of this row as well."""

    @property
    def time_ns(self) -> int:
        """How much more time the second trace has; negative: less."""
        return self.after.time_ns - self.before.time_ns


@dataclass(frozen=True, slots=True)
class Whole:
    """The totals of one trace."""

    trace: str
    command: tuple[str, ...]
    verdict: str
    """See :class:`~lo2io.reports.summary.summary.Summary`."""
    span_ns: int
    calls: int
    errors: int
    time_ns: int
    """In calls, over all threads."""
    bytes_read: int
    bytes_written: int
    read_per_s: float
    written_per_s: float


@dataclass(frozen=True, slots=True)
class FindingChange:
    """A finding that one of the traces has, or both."""

    rule: str
    subject: str
    before_ns: int | None
    """What it cost; None: the trace lacks it, or it is not about time (see ``before``)."""
    after_ns: int | None
    before: bool
    after: bool


@dataclass(frozen=True, slots=True)
class Diff:
    """The differences. The row whose time changed most comes first."""

    schema: str
    schema_version: int
    before: Whole
    after: Whole
    calls: tuple[Change, ...]
    files: tuple[Change, ...]
    programs: tuple[Change, ...]
    """Processes by name; an interpreter's script is part of it."""
    devices: tuple[Change, ...]
    findings: tuple[FindingChange, ...]


def compare(before: Summary, after: Summary) -> Diff:
    """Compare two traces."""
    return Diff(
        SCHEMA,
        SCHEMA_VERSION,
        _whole(before),
        _whole(after),
        _changes(_calls(before), _calls(after)),
        _changes(_files(before), _files(after)),
        _changes(_programs(before), _programs(after)),
        _changes(_devices(before), _devices(after)),
        _findings(before, after),
    )


def to_json(diff: Diff) -> str:
    """The differences as JSON. Keys are the names of the dataclasses' fields."""
    return json.dumps(asdict(diff), indent=2, ensure_ascii=True)


def _whole(summary: Summary) -> Whole:
    total = summary.activity
    seconds = summary.span_ns / NS_PER_S or 1
    return Whole(
        summary.trace,
        summary.command,
        summary.verdict,
        summary.span_ns,
        total.calls,
        total.errors,
        total.time_ns,
        total.bytes_read,
        total.bytes_written,
        total.bytes_read / seconds,
        total.bytes_written / seconds,
    )


def _of_activity(done: Activity) -> Numbers:
    return Numbers(done.calls, done.bytes_read, done.bytes_written, done.time_ns)


def _calls(summary: Summary) -> Iterable[tuple[str, Numbers]]:
    for row in summary.calls:
        done, lasted = row.activity, row.latency
        shown = (lasted.p50_ns, lasted.p95_ns, lasted.max_ns) if lasted.nr else (None, None, None)
        yield row.name, Numbers(done.calls, done.bytes_read, done.bytes_written, done.time_ns, *shown)


def _files(summary: Summary) -> Iterable[tuple[str | None, Numbers]]:
    """Rows of files. As in :func:`_programs`, the rest has the name None, which no file and no process can choose."""
    for row in summary.files:
        names = {"unnamed": f"unnamed fds of {row.process}", "none": "calls without an fd", "others": None}
        if row.kind == "named":
            path = row.path or "unnamed"
            names["named"] = f"{row.type}s" if _NUMBERED.search(path) and row.type != "storage" else path
        yield names[row.kind], _of_activity(row.activity)


def _programs(summary: Summary) -> Iterable[tuple[str | None, Numbers]]:
    for row in summary.cmdlines:
        yield None if row.rest else row.name or "unknown", _of_activity(row.activity)


def _devices(summary: Summary) -> Iterable[tuple[str, Numbers]]:
    for row in summary.devices:
        served = row.device
        reads = row.bytes if row.operation == "read" else 0
        writes = row.bytes if row.operation == "write" else 0
        shown = (served.p50_ns, served.p95_ns, served.max_ns) if served.nr else (None, None, None)
        yield f"{row.name} {row.operation}", Numbers(row.requests, reads, writes, served.total_ns, *shown)


def _changes(
    before: Iterable[tuple[str | None, Numbers]], after: Iterable[tuple[str | None, Numbers]]
) -> tuple[Change, ...]:
    """Rows of both sides by name. Rows of one side that share a name are added up. None: the rest."""
    sides: tuple[dict[str | None, list[Numbers]], dict[str | None, list[Numbers]]] = (
        defaultdict(list),
        defaultdict(list),
    )
    for rows, side in zip((before, after), sides, strict=True):
        for name, numbers in rows:
            side[name].append(numbers)
    a, b = sides
    changes = [
        Change(_REST if name is None else name, _sum(a.get(name, [])), _sum(b.get(name, [])), name is None)
        for name in {**a, **b}
    ]
    return tuple(sorted(changes, key=lambda change: (-abs(change.time_ns), change.rest, change.name)))


def _sum(rows: list[Numbers]) -> Numbers:
    if len(rows) == 1:
        return rows[0]
    return Numbers(*(sum(getattr(row, name) for row in rows) for name in Numbers.__slots__[:4]))


def _findings(before: Summary, after: Summary) -> tuple[FindingChange, ...]:
    sides = [
        {(found.rule, _PID.sub("", found.subject)): found.cost_ns for found in each.findings}
        for each in (before, after)
    ]
    a, b = sides
    changes = [FindingChange(*key, a.get(key), b.get(key), key in a, key in b) for key in {**a, **b}]
    return tuple(sorted(changes, key=lambda each: -max(each.before_ns or 0, each.after_ns or 0)))
