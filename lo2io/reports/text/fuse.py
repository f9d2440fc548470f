"""The part of the page about requests to the servers of FUSE file systems.

In: a :class:`~lo2io.reports.summary.fuse.FuseSummary`. Out: lines on a rich console.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lo2io.reports.text.lines import print_line, print_more, print_table
from lo2io.reports.words import count_of, printable
from lo2io.units import format_bytes, format_duration

if TYPE_CHECKING:
    from rich.console import Console

    from lo2io.reports.summary.fuse import FuseRow, FuseSummary

TITLE: Final = "Requests to FUSE servers"
ROWS: Final = 8
"""Rows of the table; the JSON has more."""


def render_fuse(fuse: FuseSummary | None, console: Console) -> None:
    """Print the requests of each kind that took most time; nothing without requests."""
    if fuse is None:
        return
    rows = [
        [
            place_of(row),
            row.opcode,
            f"{row.requests:,}",
            *map(format_duration, (row.time_ns, row.longest_ns)),
            format_bytes(row.bytes_sent),
            format_bytes(row.bytes_replied),
            f"{row.errors:,}",
        ]
        for row in fuse.rows[:ROWS]
    ]
    headings = (TITLE, "asks for", "requests", "time", "longest", "sent", "replied", "errors")
    print_table(console, headings, "llrrrrrr", rows)
    print_more(console, len(fuse.rows) - ROWS)
    for line in notes_of(fuse):
        print_line(console, line)


def place_of(row: FuseRow) -> str:
    """Where the file system is mounted, or its number."""
    return printable(row.mount_point or f"file system {row.connection}")


def notes_of(fuse: FuseSummary) -> list[str]:
    """What the table does not say."""
    told = []
    if fuse.outside_calls:
        told.append(f"{count_of(fuse.outside_calls, 'request')} sent in no recorded call")
    if fuse.in_flight:
        told.append(f"{count_of(fuse.in_flight, 'request')} had not ended when the recording did")
    return told
