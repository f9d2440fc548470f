"""The page cache: ``Summary.cache`` as tables of the page."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lo2io.reports.html.cells import Cell, Sheet, count, share, sheet, size, time
from lo2io.reports.text.cache import name_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lo2io.reports.summary.cache import CacheRow, CacheSummary

_COLUMNS: Final = (
    ("reads", True), ("hit rate", True), ("hits", True), ("waits", True), ("misses", True), ("from disk", True),
    ("waited", True), ("read ahead", True), ("never used", True), ("past the cache", True), ("not known", True),
)  # fmt: skip


def cache_sheets(cache: CacheSummary) -> list[Sheet]:
    """The tables, empty ones included."""
    return [
        _sheet("cache-processes", "Page cache by process", "process", (cache.total, *cache.processes)),
        _sheet("cache-files", "Page cache by file", "file", cache.files),
    ]


def _sheet(name: str, title: str, subject: str, rows: Sequence[CacheRow]) -> Sheet:
    cells = [
        [
            Cell(name_of(row)),
            count(row.reads),
            Cell("-") if row.hit_rate is None else share(row.hit_rate),
            count(row.hits),
            count(row.waits),
            count(row.misses),
            size(row.missed_bytes),
            time(row.wait_ns),
            size(row.ahead_bytes),
            size(row.unused_bytes),
            count(row.uncached + row.memory),
            count(row.unknown),
        ]
        for row in rows
    ]
    return sheet(name, title, [(subject, False), *_COLUMNS], cells)
