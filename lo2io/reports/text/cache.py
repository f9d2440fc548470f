"""The part of the page about the page cache.

In: a :class:`~lo2io.reports.summary.cache.CacheSummary`. Out: lines on a rich console.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lo2io.reports.text.lines import print_line, print_more, print_table
from lo2io.reports.words import named, share_of, who
from lo2io.units import format_bytes, format_duration

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from lo2io.reports.summary.cache import CacheRow, CacheSummary

ROWS: Final = 8
"""Rows of each table; the JSON has more."""
_HEADINGS: Final = ("reads", "hit", "waited", "missed", "from disk", "waits", "ahead", "unused")


def render_cache(cache: CacheSummary, console: Console) -> None:
    """Print what reads found in the page cache, by process and by file."""
    rows = [*cache.processes[:ROWS], *([cache.total] if len(cache.processes) > 1 else [])]
    if cache.total.reads:
        _table("Page cache", rows, console)
        print_more(console, max(0, len(cache.processes) - ROWS))
        _table("Page cache: files", cache.files[:ROWS], console)
        print_more(console, max(0, len(cache.files) - ROWS))
    others = [
        f"{count:,} {text}"
        for count, text in (
            (cache.total.memory, "of files in memory"),
            (cache.total.uncached, "past the page cache"),
            (cache.total.unknown, "of which it is not known"),
        )
        if count
    ]
    if others:
        print_line(console, f"other reads: {', '.join(others)}")


def _table(title: str, rows: Sequence[CacheRow], console: Console) -> None:
    print_table(console, [title, *_HEADINGS], "l" + "r" * len(_HEADINGS), [_cells(row) for row in rows])


def _cells(row: CacheRow) -> list[str]:
    shares = (share_of(number / row.reads) if number else "-" for number in (row.hits, row.waits, row.misses))
    sizes = (format_bytes(number) if number else "-" for number in (row.ahead_bytes, row.unused_bytes))
    return [
        name_of(row),
        f"{row.reads:,}",
        *shares,
        format_bytes(row.missed_bytes) if row.missed_bytes else "-",
        format_duration(row.wait_ns) if row.wait_ns else "-",
        *sizes,
    ]


def name_of(row: CacheRow) -> str:
    """The process or the file of a row."""
    if row.kind == "all":
        return "= all"
    if row.kind == "process":
        return who(row.pid, row.process)
    return f"unnamed fds of {who(row.pid, row.process)}" if row.kind == "unnamed" else named(row.path, 1)
