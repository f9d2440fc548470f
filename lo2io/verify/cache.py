"""Rules of the page cache: what reads found there, and the fills that they caused.

In: the tables. Out: findings. ``docs/explanation/rules/cache.md`` says what a verdict means.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from lo2io.model import UNKNOWN_I64, UNKNOWN_U32
from lo2io.trace.columns import CACHE_VERDICT, FILL_REASON

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from lo2io.model import Columns
    from lo2io.trace.reader import Trace
    from lo2io.verify.rules import Verification

    Flags = NDArray[np.bool_]
    Sums = tuple[NDArray[np.uint64], NDArray[np.int64]]

NO_READ, UNKNOWN, HIT, WAIT, MISS = (
    CACHE_VERDICT.index(name) for name in ("no read", "unknown", "hit", "wait", "miss")
)
_READS: Final = ("operations", "ring_requests")
_COLUMNS: Final = ("id", "cache", "cache_missed_pages", "cache_ahead_pages", "cache_wait_ns")


def knows_cache(trace: Trace) -> bool:
    """True if the layer ``cache`` was recorded."""
    return "cache" in trace.metadata.get("layers", ())


def check_cache(trace: Trace, verdict: Verification) -> None:
    """Report rows that break a rule. Memory grows with the number of calls and requests that filled pages.

    Raises:
        TraceError: A table cannot be read.
    """
    for table in _READS:
        for rows in trace.batches(table, _COLUMNS):
            _report(
                verdict,
                "cache.verdict",
                rows["id"][_unlikely(rows)],
                f"{table}: the pages or waits of {{}} do not fit its verdict",
            )
    for rows in trace.batches("fills", ("cause", "pages", "used_pages", "first_use")):
        known = rows["used_pages"] != UNKNOWN_U32
        used = np.where(known, rows["used_pages"], 0)
        bad = (used > rows["pages"]) | ((used > 0) != (rows["first_use"] != 0))
        _report(
            verdict,
            "cache.fills",
            rows["cause"][bad],
            "fills: more pages were used than filled, or nobody used them: cause {}",
        )
    if not trace.metadata.get("filter") and int(trace.metadata.get("sample_rate", 1)) == 1:
        for reason, column in (("demand", "cache_missed_pages"), ("ahead", "cache_ahead_pages")):
            _check_sums(trace, verdict, reason, column)


def _unlikely(rows: Columns) -> Flags:
    cache, missed, wait = rows["cache"], rows["cache_missed_pages"], rows["cache_wait_ns"]
    counted = missed != UNKNOWN_U32
    bad: Flags = counted != (cache > UNKNOWN)
    bad |= counted & ((missed > 0) != (cache == MISS))
    bad |= ((cache == HIT) & (wait > 0)) | ((cache <= UNKNOWN) & (wait != UNKNOWN_I64))
    return bad


def _check_sums(trace: Trace, verdict: Verification, reason: str, column: str) -> None:
    """Compare the pages of each read's fills with the read's column."""
    filled = _sum(
        [
            (rows["cause"][chosen], rows["pages"][chosen])
            for rows in trace.batches("fills", ("cause", "pages", "why"))
            for chosen in [(rows["why"] == FILL_REASON.index(reason)) & (rows["cause"] != 0)]
        ]
    )
    for table in _READS:
        for rows in trace.batches(table, ("id", column)):
            known = rows[column] != UNKNOWN_U32
            expected = _at(filled, rows["id"][known])
            bad = expected != rows[column][known]
            _report(
                verdict,
                "cache.fills",
                rows["id"][known][bad],
                f"{table}: the fills of {{}} have other pages than its {column}",
            )


def _sum(parts: list[tuple[NDArray[np.uint64], NDArray[np.uint32]]]) -> Sums:
    """The sum of pages of each id, in the order of the ids."""
    if not parts:
        return np.zeros(0, np.uint64), np.zeros(0, np.int64)
    ids = np.concatenate([each for each, _ in parts])
    found, places = np.unique(ids, return_inverse=True)
    return found, np.bincount(places, np.concatenate([pages for _, pages in parts]), len(found)).astype(np.int64)


def _at(sums: Sums, ids: NDArray[np.uint64]) -> NDArray[np.int64]:
    found, pages = sums
    if not len(found):
        return np.zeros(len(ids), np.int64)
    places = np.minimum(np.searchsorted(found, ids), len(found) - 1)
    return np.where(found[places] == ids, pages[places], 0)


def _report(verdict: Verification, rule: str, ids: NDArray[np.uint64], text: str) -> None:
    for each in ids.tolist():
        verdict.report(rule, text.format(each))
