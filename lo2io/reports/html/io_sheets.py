"""Time, slow calls, sizes and order of accesses, opens: ``Summary.io`` as tables of the page."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lo2io.reports.html.cells import LATENCY, Cell, Sheet, count, file_of, latency, sheet, size, text, time
from lo2io.reports.summary.io import TIME_PARTS
from lo2io.reports.text.io import phases_of
from lo2io.reports.words import who

if TYPE_CHECKING:
    from lo2io.reports.summary.io import IoSummary


def io_sheets(io: IoSummary) -> list[Sheet]:
    """The tables, empty ones included."""
    return [_slowest(io), _time(io), _latencies(io), _accesses(io), _patterns(io), _opens(io)]


def _slowest(io: IoSummary) -> Sheet:
    columns = [("operation", True), ("call", False), ("took", True), ("in a device", True), ("queued", True)]
    columns += [("at", True), ("file", False), ("offset", True), ("size", True), ("thread", False), ("error", False)]
    rows = [
        [
            count(row.id),
            Cell(row.call),
            time(row.duration_ns),
            time(row.device_ns),
            time(row.queue_ns),
            time(row.at_ns),
            Cell("-") if row.kind == "none" else file_of(row),
            count(row.offset_bytes),
            size(row.bytes),
            Cell(f"{who(row.pid, row.comm)} {row.tid or ''}"),
            text(row.error),
        ]
        for row in io.slowest
    ]
    return sheet("slowest", "Slowest calls", columns, rows)


def _time(io: IoSummary) -> Sheet:
    if io.time.waits:
        return _waits(io)
    columns = [("class of call", False), ("calls", True), ("errors", True), ("time", True)]
    parts = [part for part in TIME_PARTS if getattr(io.time.total, part) is not None]
    columns += [(TIME_PARTS[part], True) for part in parts]
    rows = [
        [
            Cell(row.kind),
            count(row.calls),
            count(row.errors),
            time(row.time_ns),
            *(time(getattr(row, part)) for part in parts),
        ]
        for row in (io.time.total, io.time.storage, *io.time.classes)
    ]
    note = "" if io.time.requests_recorded else "block requests were not recorded: devices and queues are in the others"
    return sheet("where", "Where the time went", columns, rows, note)


def _waits(io: IoSummary) -> Sheet:
    """The time by reason, with a column for each reason that occurs, the longest first."""
    total = io.time.waits[0]
    names = [reason.reason for reason in total.reasons]
    columns = [("class of call", False), ("calls", True), ("time", True), ("CPU", True), ("run queue", True)]
    columns += [("unknown", True), ("waited", True), *((f"for {name}", True) for name in names)]
    rows = []
    for row in io.time.waits:
        lasted = {reason.reason: reason.time_ns for reason in row.reasons}
        parts = (row.time_ns, row.cpu_ns, row.run_queue_ns, row.unknown_ns, row.blocked_ns)
        times = [*parts, *(lasted.get(name, 0) for name in names)]
        rows.append([Cell(row.kind), count(row.calls), *map(time, times)])
    return sheet("where", "Where the time went", columns, rows, "; ".join(phases_of(total)))


def _latencies(io: IoSummary) -> Sheet:
    columns = [("of", False), ("operation", False), ("phase", False), ("times", True), *LATENCY]
    rows = [
        [text(row.subject), Cell(row.operation), Cell(row.phase), count(row.latency.nr), *latency(row.latency)]
        for row in io.latencies
    ]
    return sheet("latencies", "Latencies by operation and device", columns, rows)


def _accesses(io: IoSummary) -> Sheet:
    columns = [("of", False), ("at least", True), ("at most", True), ("accesses", True)]
    rows = [
        [Cell(row.operation), size(each.least), size(each.most), count(each.accesses)]
        for row in io.accesses
        for each in row.sizes
    ]
    return sheet("sizes", "Sizes of accesses", columns, rows)


def _patterns(io: IoSummary) -> Sheet:
    columns = [("file", False), ("operation", False), ("accesses", True), ("below 4 KiB", True), ("order known", True)]
    columns += [
        ("consecutive", True),
        ("sequential", True),
        ("random", True),
        ("bytes", True),
        ("extent", True),
        ("again", True),
        ("files", True),
    ]
    rows = [
        [
            file_of(row),
            Cell(row.operation),
            count(row.accesses),
            count(row.small),
            count(row.placed),
            count(row.consecutive),
            count(row.sequential),
            count(row.random),
            size(row.bytes),
            size(row.extent_bytes),
            size(row.again_bytes),
            count(row.files or None),
        ]
        for row in io.patterns
    ]
    return sheet("patterns", "Order of accesses by file", columns, rows)


def _opens(io: IoSummary) -> Sheet:
    columns = [("file", False), ("files", True), ("opens", True), ("syncs", True), ("in syncs", True), ("locks", True)]
    columns += [("in locks", True)]
    rows = [
        [
            file_of(row),
            count(row.files or None),
            count(row.opens),
            count(row.syncs),
            time(row.sync_ns),
            count(row.locks),
            time(row.lock_ns),
        ]
        for row in io.opens
    ]
    return sheet("opens", "Opens, syncs and locks", columns, rows)
