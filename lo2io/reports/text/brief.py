"""The summary on one screen: what was recorded, what cost most, and the largest rows of each kind.

In: a :class:`~lo2io.reports.summary.summary.Summary`. Out: at most 50 lines on a rich console of 80
columns or more. ``page.py`` prints everything.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lo2io.reports.text.head import print_answer, print_end, print_findings, print_head, print_losses
from lo2io.reports.text.lines import print_line, print_table
from lo2io.reports.words import duration_of, named, printable, who
from lo2io.units import format_bytes, format_duration

if TYPE_CHECKING:
    from rich.console import Console

    from lo2io.reports.summary.summary import Summary

_SCREEN: Final = 50
"""Lines."""
_SIZES: Final = ((3, 3), (3, 2), (2, 1), (1, 1))
"""Findings, and rows of each kind: the first two numbers that fit on the screen."""
_ERRORS: Final = 3


def render_brief(summary: Summary, console: Console) -> None:
    """Print the screen. Empty sections are left out. Fewer rows of each kind stand there if lines are too many."""
    for findings, rows in _SIZES:
        with console.capture() as screen:
            _render(summary, console, findings, rows)
        if screen.get().count("\n") <= _SCREEN:
            break
    _render(summary, console, findings, rows)


def _render(summary: Summary, console: Console, findings: int, rows: int) -> None:
    print_head(summary, console, brief=True)
    print_findings("Findings", summary.findings[:findings], console, brief=True)
    further = len(summary.findings) - findings
    if further > 0:
        print_line(console, f"and {further:,} more that cost less")
    if not summary.findings and (summary.activity.calls or summary.rings):
        print_line(console, "\nNothing stands out by lo2io's rules.")
    if summary.answer:
        print_answer(summary.answer, console, most=2 * rows)
    _processes(summary, console, rows)
    _files(summary, console, rows)
    _devices(summary, console, rows)
    _errors(summary, console)
    print_losses(summary, console, brief=True)
    print_end(summary, console, notes=rows)


def _processes(summary: Summary, console: Console, most: int) -> None:
    if not summary.processes:
        return
    in_rings = summary.rings is not None and summary.rings.written > 0
    rows = [
        [
            who(row.pid, row.name),
            f"{row.activity.calls:,}",
            format_bytes(row.activity.bytes_read),
            format_bytes(row.activity.bytes_written),
            *([format_bytes(row.ring_bytes)] if in_rings else []),
            format_duration(row.activity.time_ns),
        ]
        for row in summary.processes[:most]
    ]
    headings = ["Process (pid)", "calls", "read", "written", *(["in rings"] if in_rings else []), "in calls"]
    print_table(console, _counted(headings, len(summary.processes), most), "l" + "r" * (len(headings) - 1), rows)


def _files(summary: Summary, console: Console, most: int) -> None:
    """Storage alone: pipes, sockets and devices stand on the full page."""
    stored = [row for row in summary.files if row.kind == "named" and row.type in {"storage", "unknown"}]
    if not stored:
        return
    rows = [
        [
            named(row.path, row.files),
            f"{row.activity.calls:,}",
            format_bytes(row.activity.bytes_read),
            format_bytes(row.activity.bytes_written),
            format_duration(row.activity.time_ns),
        ]
        for row in stored[:most]
    ]
    number = len(stored) if len(stored) <= most else summary.nr_files  # summaries do not list all
    headings = _counted(["File", "calls", "read", "written", "in calls"], number, most)
    print_table(console, headings, "lrrrr", rows)


def _devices(summary: Summary, console: Console, most: int) -> None:
    """Latencies are those of the device, from issue to completion."""
    if not summary.devices:
        return
    busiest = sorted(summary.devices, key=lambda row: -row.device.total_ns)
    rows = [
        [
            f"{printable(row.name)} {row.operation}",
            f"{row.requests:,}",
            format_bytes(row.bytes),
            *(duration_of(row.queue, row.queue.p50_ns), duration_of(row.device, row.device.p50_ns)),
            *(duration_of(row.device, row.device.p99_ns), duration_of(row.device, row.device.max_ns)),
        ]
        for row in busiest[:most]
    ]
    headings = ["Device", "requests", "bytes", "queue p50", "device p50", "p99", "max"]
    print_table(console, _counted(headings, len(busiest), most), "lrrrrrr", rows)


def _errors(summary: Summary, console: Console) -> None:
    if not summary.errors:
        return
    told = [f"{row.name} {row.nr:,} ({next(iter(row.calls))})" for row in summary.errors[:_ERRORS]]
    print_line(console, f"\nErrors: {', '.join(told)}{' …' if len(summary.errors) > _ERRORS else ''}")


def _counted(headings: list[str], number: int, shown: int) -> list[str]:
    """The headings; the first one says how many rows there are, if not all are shown."""
    return [f"{headings[0]}, {shown} of {number:,}", *headings[1:]] if number > shown else headings
