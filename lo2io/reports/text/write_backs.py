"""The part of the page about who caused the disk's writes.

In: a :class:`~lo2io.reports.summary.write_backs.WriteBackSummary`. Out: lines on a rich console.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lo2io.reports.text.lines import print_more, print_table
from lo2io.reports.words import duration_of, printable, who
from lo2io.trace.columns import WRITE_REASON
from lo2io.units import format_bytes, format_duration

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from lo2io.reports.summary.write_backs import WriteBackRow, WriteBackSummary

ROWS: Final = 8
"""Rows of each table; the JSON has more."""
TITLE: Final = "Who caused the disk's writes"
WHY: Final = "Why the kernel wrote them back"
OWN: Final = "(at once, as for fsync, or not known)"
"""The reason of requests that no worker sent while it wrote pages back."""
_HEADINGS: Final = ("written", "deferred", "device", "to disk: p50", "max", "unwritten")


def render_write_backs(found: WriteBackSummary, console: Console) -> None:
    """Print what disks wrote for each process, of each file, and for each reason."""
    rows = [*found.processes[:ROWS], *([found.total] if len(found.processes) > 1 else [])]
    for title, shown, every in (
        (TITLE, rows, found.processes),
        (f"{TITLE}: files", found.files[:ROWS], found.files),
        (WHY, found.reasons, found.reasons),
    ):
        _table(title, shown, console)
        print_more(console, max(0, len(every) - ROWS))


def _table(title: str, rows: Sequence[WriteBackRow], console: Console) -> None:
    print_table(console, [title, *_HEADINGS], "l" + "r" * len(_HEADINGS), [_cells(row) for row in rows])


def _cells(row: WriteBackRow) -> list[str]:
    sizes = [
        format_bytes(size) if size else "-"
        for size in (row.bytes_written_back, row.bytes_deferred, row.bytes_unwritten)
    ]
    late = row.until_disk
    times = [duration_of(late, late.p50_ns), duration_of(late, late.max_ns)]
    return [
        name_of(row),
        *sizes[:2],
        format_duration(row.device_time_ns) if row.device_time_ns else "-",
        *times,
        sizes[2],
    ]


def name_of(row: WriteBackRow) -> str:
    """The process, the file or the reason of a row."""
    words = {
        "all": "= all",
        "others": "(processes that were not recorded)",
        "unknown": "(dirtied by an unknown process)",
    }
    if row.kind in words:
        return words[row.kind]
    if row.kind == "process":
        return who(row.pid, row.process)
    if row.kind == "reason":
        return OWN if row.reason == WRITE_REASON[0] else str(row.reason)
    return printable(row.path or "files that nobody recorded had opened")
