"""The summary as tables of an HTML page. Each cell has the text that is shown and the exact value it is sorted by.

In: a :class:`~lo2io.reports.summary.summary.Summary`. Out: :class:`Sheet`. This module counts nothing itself.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from lo2io.reports.html.cache_sheets import cache_sheets
from lo2io.reports.html.cells import (
    ACTIVITY,
    LATENCY,
    OVERLAP,
    Cell,
    Sheet,
    activity,
    count,
    file_of,
    latency,
    overlap,
    share,
    sheet,
    size,
    text,
    time,
)
from lo2io.reports.html.flames import flames
from lo2io.reports.html.io_sheets import io_sheets
from lo2io.reports.html.ring_sheets import ring_sheets
from lo2io.reports.text.faults import notes_of, path_of
from lo2io.reports.text.fuse import TITLE as FUSE_TITLE
from lo2io.reports.text.fuse import notes_of as fuse_notes_of
from lo2io.reports.text.fuse import place_of as fuse_place_of
from lo2io.reports.text.futexes import TITLE as FUTEXES_TITLE
from lo2io.reports.text.futexes import place_of as futex_of
from lo2io.reports.text.futexes import wakers_of
from lo2io.reports.text.parts import text_of
from lo2io.reports.text.stacks import TITLE as STACKS_TITLE
from lo2io.reports.text.stacks import path_of as stack_of
from lo2io.reports.text.write_backs import TITLE, WHY, name_of
from lo2io.reports.words import who

if TYPE_CHECKING:
    from collections.abc import Callable

    from lo2io.reports.summary.faults import FaultsSummary
    from lo2io.reports.summary.fuse import FuseSummary
    from lo2io.reports.summary.futexes import FutexSummary
    from lo2io.reports.summary.parts import PartsSummary
    from lo2io.reports.summary.stacks import StacksSummary
    from lo2io.reports.summary.summary import Summary
    from lo2io.reports.summary.usage import UsageRow
    from lo2io.reports.summary.write_backs import WriteBackSummary


def _processes(summary: Summary) -> Sheet:
    columns = [("process", False), ("threads", True), *ACTIVITY]
    columns += [("ring requests", True), ("ring bytes", True), ("block requests", True), ("on devices", True)]
    columns += [
        (name, True)
        for name in ("wall", "user", "system", "waited for disks", "major faults", "minor faults", "switches")
    ]
    columns += [*OVERLAP, ("cgroup", False)]
    rows = [
        [
            Cell(who(row.pid, row.name)),
            count(row.threads),
            *activity(row.activity),
            count(row.ring_requests),
            size(row.ring_bytes),
            count(row.requests),
            size(row.request_bytes),
            *_usage(row.usage),
            *overlap(row.overlap),
            text(row.container or row.cgroup),
        ]
        for row in summary.processes
    ]
    return sheet("processes", "Processes", columns, rows)


def _usage(usage: UsageRow | None) -> list[Cell]:
    """Wall, user and system time, block delay, major and minor faults, voluntary switches."""
    if usage is None:
        return [count(None)] * 7
    times = (usage.wall_ns, usage.user_ns, usage.system_ns, usage.block_delay_ns)
    return [*map(time, times), *map(count, (usage.major_faults, usage.minor_faults, usage.voluntary_switches))]


def _command_lines(summary: Summary) -> Sheet:
    columns = [("command line", False), ("processes", True), *ACTIVITY, ("share", True)]
    columns += [("ring requests", True), ("ring bytes", True)]
    rows = [
        [
            text(row.cmdline or row.name or "unknown"),
            count(row.processes),
            *activity(row.activity),
            share(row.share),
            count(row.ring_requests),
            size(row.ring_bytes),
        ]
        for row in summary.cmdlines
    ]
    return sheet("cmdlines", "Command lines", columns, rows, "share: of the time of all calls")


def _files(summary: Summary) -> Sheet:
    rows = [[file_of(row), Cell(row.type), count(row.files or None), *activity(row.activity)] for row in summary.files]
    note = "By path; files: how many bore it, one after the other as a rule."
    return sheet("files", "Files", [("file", False), ("type", False), ("files", True), *ACTIVITY], rows, note)


def _calls(summary: Summary) -> Sheet:
    columns = [("call", False), ("calls", True), ("errors", True), ("in flight", True), ("read", True)]
    columns += [("written", True), ("share", True), *LATENCY]
    rows = [
        [
            Cell(row.name),
            count(row.activity.calls),
            count(row.activity.errors),
            count(row.in_flight),
            size(row.activity.bytes_read),
            size(row.activity.bytes_written),
            share(row.share),
            *latency(row.latency),
        ]
        for row in summary.calls
    ]
    return sheet("calls", "System calls", columns, rows, "Each call counts once. share: of the time of all calls")


def _errors(summary: Summary) -> Sheet:
    rows = [
        [
            Cell(row.name),
            count(row.nr),
            text(row.text),
            text(", ".join(f"{name} {nr:,}" for name, nr in row.calls.items())),
        ]
        for row in summary.errors
    ]
    columns = [("error", False), ("times", True), ("meaning", False), ("in", False)]
    return sheet("errors", "Errors", columns, rows)


def _devices(summary: Summary) -> Sheet:
    columns = [("device", False), ("operation", False), ("requests", True), ("bytes", True)]
    columns += [("in flight", True), ("ends unseen", True), ("merged", True), ("requeued", True), ("errors", True)]
    columns += [(f"queue {name}", True) for name, _ in LATENCY] + [(f"device {name}", True) for name, _ in LATENCY]
    rows = [
        [
            text(row.name),
            Cell(row.operation),
            count(row.requests),
            size(row.bytes),
            count(row.in_flight),
            count(row.inferred + row.end_unknown),
            count(row.merged),
            count(row.requeues),
            count(row.errors),
            *latency(row.queue),
            *latency(row.device),
        ]
        for row in summary.devices
    ]
    note = "queue: from insertion to the last issue; device: from there to the completion"
    return sheet("devices", "Devices", columns, rows, note)


def _parts(parts: PartsSummary) -> Sheet:
    rows = [
        [Cell(text_of(row)), count(row.parts), size(row.bytes_read), size(row.bytes_written)]
        for row in (*parts.files, *(kind for kind in parts.kinds if kind.kind != "file"))
    ]
    heads = [("file, or kind", False), ("parts", True), ("read", True), ("written", True)]
    return sheet("parts", "What block requests carried", heads, rows)


def _write_backs(found: WriteBackSummary) -> list[Sheet]:
    heads = [
        ("written", True),
        ("deferred", True),
        ("device time", True),
        ("to disk: p50", True),
        ("max", True),
        ("unwritten", True),
    ]
    note = "deferred: in requests that another process sent; unwritten: dirty when the recording ended"
    made = []
    for name, title, first, rows in (
        ("write-backs", TITLE, "process", (*found.processes, found.total)),
        ("write-backs-files", f"{TITLE}: files", "file", found.files),
        ("write-backs-reasons", WHY, "reason", found.reasons),
    ):
        cells = [
            [
                Cell(name_of(row)),
                size(row.bytes_written_back),
                size(row.bytes_deferred),
                time(row.device_time_ns),
                time(row.until_disk.p50_ns if row.until_disk.nr else None),
                time(row.until_disk.max_ns if row.until_disk.nr else None),
                size(row.bytes_unwritten),
            ]
            for row in rows
        ]
        made.append(sheet(name, title, [(first, False), *heads], cells, note))
    return made


def _faults(faults: FaultsSummary) -> Sheet:
    rows = [
        [
            Cell(path_of(row)),
            count(row.faults),
            *map(time, (row.time_ns, row.longest_ns, row.blocked_ns)),
            count(row.filled_pages),
        ]
        for row in faults.files
    ]
    heads = [("file", False), ("faults", True), ("time", True), ("longest", True), ("waited", True)]
    heads += [("pages filled", True)]
    return sheet("faults", "Page faults that needed I/O", heads, rows, "; ".join(notes_of(faults)))


def _fuse(fuse: FuseSummary) -> Sheet:
    rows = [
        [
            Cell(fuse_place_of(row)),
            Cell(row.opcode),
            count(row.requests),
            time(row.time_ns),
            time(row.longest_ns),
            size(row.bytes_sent),
            size(row.bytes_replied),
            count(row.errors),
        ]
        for row in fuse.rows
    ]
    heads = [("file system", False), ("asks for", False)]
    heads += [(name, True) for name in ("requests", "time", "longest", "sent", "replied", "errors")]
    return sheet("fuse", FUSE_TITLE, heads, rows, "; ".join(fuse_notes_of(fuse)))


def _futexes(futexes: FutexSummary) -> Sheet:
    rows = [
        [
            Cell(futex_of(row)),
            count(row.waits),
            time(row.time_ns),
            time(row.longest_ns),
            count(row.threads),
            Cell(wakers_of(row)),
        ]
        for row in futexes.futexes
    ]
    heads = [
        ("futex", False),
        ("waits", True),
        ("time", True),
        ("longest", True),
        ("threads", True),
        ("woken by", False),
    ]
    return sheet("futexes", FUTEXES_TITLE, heads, rows)


def _stacks(stacks: StacksSummary) -> Sheet:
    rows = [
        [Cell(stack_of(row, len(row.functions))), count(row.calls), time(row.time_ns), size(row.bytes)]
        for row in stacks.stacks
    ]
    heads = [("stack", False), ("calls", True), ("time", True), ("bytes", True)]
    return replace(sheet("stacks", STACKS_TITLE, heads, rows), flames=tuple(flames(stacks)))


def _losses(summary: Summary) -> Sheet:
    columns = [("CPU", True), ("buffer full", True), ("times", True), ("for", True), ("vanished", True)]
    rows = [
        [count(row.cpu), count(row.lost), count(row.gaps), time(row.gap_ns), count(row.vanished)]
        for row in summary.losses
    ]
    return sheet("losses", "Missing", columns, rows, "vanished: counted by the kernel, and never delivered")


def _accounts(summary: Summary) -> Sheet:
    columns = [("account", False), ("of", False), ("the kernel's", True), ("captured", True)]
    rows = []
    for row in summary.reconciliation:
        show: Callable[[int | None], Cell] = size if row["name"].endswith(("bytes", "char")) else count
        rows.append(
            [text(f"{row['source']} {row['subject']}"), Cell(row["name"]), show(row["counted"]), show(row["captured"])]
        )
    return sheet("accounts", "The kernel's own accounts", columns, rows)


def sheets(summary: Summary) -> list[Sheet]:
    """All tables that have a row, in the page's order."""
    every = [_processes(summary), _command_lines(summary), _files(summary), _calls(summary)]
    every += [_errors(summary), _devices(summary)]
    every += io_sheets(summary.io) if summary.io else []
    every += cache_sheets(summary.cache) if summary.cache else []
    every += [_parts(summary.parts)] if summary.parts else []
    every += _write_backs(summary.write_backs) if summary.write_backs else []
    every += [_faults(summary.faults)] if summary.faults else []
    every += [_fuse(summary.fuse)] if summary.fuse else []
    every += [_futexes(summary.futexes)] if summary.futexes else []
    every += [_stacks(summary.stacks)] if summary.stacks else []
    every += ring_sheets(summary.rings) if summary.rings else []
    every += [_losses(summary), _accounts(summary)]
    return [each for each in every if each.rows]
