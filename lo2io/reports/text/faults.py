"""The part of the page about page faults that needed I/O.

In: a :class:`~lo2io.reports.summary.faults.FaultsSummary`. Out: lines on a rich console.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lo2io.reports.text.lines import print_line, print_more, print_table
from lo2io.reports.words import count_of, printable
from lo2io.units import format_duration

if TYPE_CHECKING:
    from rich.console import Console

    from lo2io.reports.summary.faults import FaultsRow, FaultsSummary

ROWS: Final = 8
"""Files of the table; the JSON has more."""
_HEADINGS: Final = ("Page faults that needed I/O", "faults", "time", "mean", "longest", "waited", "filled")


def render_faults(faults: FaultsSummary | None, console: Console) -> None:
    """Print the faults of each file; nothing without faults."""
    if faults is None:
        return
    rows = [
        [
            path_of(row),
            f"{row.faults:,}",
            *map(format_duration, (row.time_ns, row.time_ns // row.faults, row.longest_ns)),
            "-" if row.blocked_ns is None else format_duration(row.blocked_ns),
            "-" if row.filled_pages is None else count_of(row.filled_pages, "page"),
        ]
        for row in faults.files[:ROWS]
    ]
    print_table(console, _HEADINGS, "lrrrrrr", rows)
    print_more(console, len(faults.files) - ROWS)
    for line in notes_of(faults):
        print_line(console, line)


def path_of(row: FaultsRow) -> str:
    """The file, or words for those without a path."""
    return printable(row.path or "files that nobody recorded had opened")


def notes_of(faults: FaultsSummary) -> list[str]:
    """What the table does not say."""
    told = []
    if faults.inside_calls:
        told.append(f"{count_of(faults.inside_calls, 'fault')} inside of calls: their time is these calls', too")
    if faults.unknown:
        told.append(f"{count_of(faults.unknown, 'fault')} of no known file (swapped memory, say)")
    return told
