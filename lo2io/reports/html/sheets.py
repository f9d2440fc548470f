"""The summary as tables of an HTML page: each cell with the text that is shown and the exact value it is sorted by.

In: a :class:`~lo2io.reports.rows.Summary`. Out: :class:`Sheet`. It counts nothing: each number is the summary's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from lo2io.reports.lines import printable, who
from lo2io.units import format_bytes, format_duration

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lo2io.reports.histogram import Latency
    from lo2io.reports.ring_rows import RingsSummary
    from lo2io.reports.rows import Activity, FileRow, Summary


class Cell(NamedTuple):
    """``value`` None: text, sorted as such."""

    text: str
    value: float | None = None


@dataclass(frozen=True, slots=True)
class Sheet:
    """A table. ``columns``: heading, and whether it holds numbers."""

    key: str
    """Unique in the page, a word."""
    title: str
    note: str
    columns: tuple[tuple[str, bool], ...]
    rows: tuple[tuple[Cell, ...], ...]


_NO_VALUE: Final = -1.0
"""Below all values: what has none is last."""


def _text(text: str | None) -> Cell:
    return Cell(printable(text or ""))


def _count(number: int | None) -> Cell:
    return Cell("-", _NO_VALUE) if number is None else Cell(f"{number:,}", number)


def _bytes(size: int | None) -> Cell:
    return Cell("-", _NO_VALUE) if size is None else Cell(format_bytes(size), size)


def _time(duration_ns: int | None) -> Cell:
    return Cell("-", _NO_VALUE) if duration_ns is None else Cell(format_duration(duration_ns), duration_ns)


def _latency(latency: Latency) -> list[Cell]:
    values = (latency.total_ns, latency.mean_ns, latency.p50_ns, latency.p95_ns, latency.p99_ns, latency.max_ns)
    return [_time(value if latency.nr else None) for value in values]


_LATENCY: Final = (("time", True), ("mean", True), ("p50", True), ("p95", True), ("p99", True), ("max", True))
_ACTIVITY: Final = (
    ("calls", True), ("reads", True), ("writes", True), ("read", True), ("written", True), ("time", True),
    ("errors", True),
)  # fmt: skip


def _activity(activity: Activity) -> list[Cell]:
    return [
        _count(activity.calls),
        _count(activity.reads),
        _count(activity.writes),
        _bytes(activity.bytes_read),
        _bytes(activity.bytes_written),
        _time(activity.time_ns),
        _count(activity.errors),
    ]


def _sheet(
    key: str, title: str, note: str, columns: Sequence[tuple[str, bool]], rows: Sequence[Sequence[Cell]]
) -> Sheet:
    return Sheet(key, title, note, tuple(columns), tuple(tuple(row) for row in rows))


def _processes(summary: Summary) -> Sheet:
    columns = [("process", False), ("threads", True), *_ACTIVITY]
    columns += [("ring requests", True), ("ring bytes", True), ("block requests", True), ("on devices", True)]
    columns += [("cgroup", False)]
    rows = [
        [
            Cell(who(row.pid, row.comm)),
            _count(row.threads),
            *_activity(row.activity),
            _count(row.ring_requests),
            _bytes(row.ring_bytes),
            _count(row.requests),
            _bytes(row.request_bytes),
            _text(row.container or row.cgroup),
        ]
        for row in summary.processes
    ]
    return _sheet("processes", "Processes", "", columns, rows)


def _file_name(row: FileRow) -> str:
    if row.kind == "unnamed":
        return f"unnamed fds of {who(row.pid, row.comm)}"
    if row.kind == "none":
        return "calls without an fd"
    return printable(row.path or "unnamed")


def _files(summary: Summary) -> Sheet:
    rows = [[Cell(_file_name(row)), *_activity(row.activity)] for row in summary.files]
    return _sheet("files", "Files", "", [("file", False), *_ACTIVITY], rows)


def _calls(summary: Summary) -> Sheet:
    columns = [("call", False), ("calls", True), ("errors", True), ("in flight", True), ("read", True)]
    columns += [("written", True), *_LATENCY]
    rows = [
        [
            Cell(row.name),
            _count(row.activity.calls),
            _count(row.activity.errors),
            _count(row.in_flight),
            _bytes(row.activity.bytes_read),
            _bytes(row.activity.bytes_written),
            *_latency(row.latency),
        ]
        for row in summary.calls
    ]
    return _sheet("calls", "System calls", "Each call counts once.", columns, rows)


def _errors(summary: Summary) -> Sheet:
    rows = [
        [
            Cell(row.name),
            _count(row.nr),
            _text(row.text),
            _text(", ".join(f"{name} {nr:,}" for name, nr in row.calls.items())),
        ]
        for row in summary.errors
    ]
    columns = [("error", False), ("times", True), ("meaning", False), ("in", False)]
    return _sheet("errors", "Errors", "", columns, rows)


def _devices(summary: Summary) -> Sheet:
    columns = [("device", False), ("operation", False), ("requests", True), ("bytes", True)]
    columns += [("in flight", True), ("merged", True), ("requeued", True), ("errors", True)]
    columns += [(f"queue {name}", True) for name, _ in _LATENCY] + [(f"device {name}", True) for name, _ in _LATENCY]
    rows = [
        [
            _text(row.name),
            Cell(row.operation),
            _count(row.requests),
            _bytes(row.bytes),
            _count(row.in_flight),
            _count(row.merged),
            _count(row.requeues),
            _count(row.errors),
            *_latency(row.queue),
            *_latency(row.device),
        ]
        for row in summary.devices
    ]
    note = "queue: from insertion to the last issue; device: from there to the completion"
    return _sheet("devices", "Devices", note, columns, rows)


def _rings(rings: RingsSummary) -> list[Sheet]:
    columns = [("ring", False), ("process", False), ("set up with", False), ("SQ", True), ("CQ", True)]
    columns += [("requests", True), ("most in flight", True), ("read", True), ("written", True), ("errors", True)]
    columns += [("overflows", True), ("enters", True), ("executed by workers", True)]
    rows = []
    ways, opcodes = [], []
    for ring in rings.rings:
        name = "others" if ring.kind is None else f"{ring.kind} {ring.ring}"
        workers = ring.workers.bounded + ring.workers.unbounded + ring.workers.untold
        rows.append(
            [
                Cell(name),
                Cell(who(ring.pid, ring.comm)),
                _text(" ".join(ring.flags or ())),
                _count(ring.sq_entries),
                _count(ring.cq_entries),
                _count(ring.requests),
                _count(ring.most_in_flight),
                _bytes(ring.bytes_read),
                _bytes(ring.bytes_written),
                _count(ring.errors),
                _count(ring.overflows),
                _count(ring.batches.calls),
                _count(workers),
            ]
        )
        ways += [[Cell(name), Cell(way.path), _count(way.requests), *_latency(way.latency)] for way in ring.paths]
        opcodes += [
            [
                Cell(name),
                Cell(row.opcode),
                Cell(row.path),
                _count(row.requests),
                _bytes(row.bytes),
                _count(row.errors),
                *_latency(row.latency),
            ]
            for row in ring.opcodes
        ]
    way_columns = [("ring", False), ("path", False), ("requests", True), *_LATENCY]
    code_columns = [("ring", False), ("opcode", False), ("path", False), ("requests", True), ("bytes", True)]
    code_columns += [("errors", True), *_LATENCY]
    return [
        _sheet("rings", "Rings", "io_uring instances and libaio contexts", columns, rows),
        _sheet("ring-ways", "The ways that requests of rings went", "", way_columns, ways),
        _sheet("ring-opcodes", "Requests of rings by opcode", "", code_columns, opcodes),
    ]


def _losses(summary: Summary) -> Sheet:
    columns = [("CPU", True), ("ring full", True), ("times", True), ("for", True), ("vanished", True)]
    rows = [
        [_count(row.cpu), _count(row.lost), _count(row.gaps), _time(row.gap_ns), _count(row.vanished)]
        for row in summary.losses
    ]
    return _sheet("losses", "Missing", "vanished: counted by the kernel, and never delivered", columns, rows)


def _accounts(summary: Summary) -> Sheet:
    columns = [("account", False), ("of", False), ("the kernel's", True), ("captured", True)]
    rows = []
    for row in summary.reconciliation:
        show: Callable[[int | None], Cell] = _bytes if row["name"].endswith(("bytes", "char")) else _count
        subject = printable(f"{row['source']} {row['subject']}")
        rows.append([Cell(subject), Cell(row["name"]), show(row["counted"]), show(row["captured"])])
    return _sheet("accounts", "The kernel's own accounts", "", columns, rows)


def sheets(summary: Summary) -> list[Sheet]:
    """All tables of the page that have a row, in its order."""
    every = [_processes(summary), _files(summary), _calls(summary), _errors(summary), _devices(summary)]
    every += _rings(summary.rings) if summary.rings else []
    every += [_losses(summary), _accounts(summary)]
    return [sheet for sheet in every if sheet.rows]
