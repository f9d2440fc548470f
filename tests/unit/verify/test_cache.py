"""``verify`` on what reads found in the page cache."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from build.otf2_builder import Breakage
from build.otf2_rings import RingTrace, rings

from lo2io.trace.columns import CACHE_VERDICT, FILL_REASON
from lo2io.verify import verify

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

breaks = Breakage()
DEMAND, AHEAD = FILL_REASON.index("demand"), FILL_REASON.index("ahead")
HIT, MISS = CACHE_VERDICT.index("hit"), CACHE_VERDICT.index("miss")


def cached() -> RingTrace:
    """A trace whose first call missed 3 pages and read 5 ahead, of which 2 were used; and whose first request hit."""
    trace = rings()
    trace.meta["layers"] = ("cache",)
    found = {"cache": MISS, "cache_missed_pages": 3, "cache_ahead_pages": 5, "cache_wait_ns": 700}
    trace.row("operations").update(found)
    trace.row("ring_requests").update(cache=HIT, cache_missed_pages=0, cache_ahead_pages=0, cache_wait_ns=0)
    cause = trace.row("operations")["id"]
    trace.tables["fills"] = [
        {"time_ns": 1, "cause": cause, "pages": 3, "used_pages": 3, "why": DEMAND, "first_use": cause},
        {"time_ns": 1, "cause": cause, "pages": 4, "used_pages": 2, "why": AHEAD, "first_use": cause},
        {"time_ns": 1, "cause": cause, "pages": 1, "used_pages": 0, "why": AHEAD},
    ]
    return trace


@breaks("cache.verdict")
def _a_hit_that_missed(trace: RingTrace) -> None:
    trace.row("operations")["cache"] = HIT
    trace.row("operations")["cache_wait_ns"] = 0


@breaks("cache.verdict")
def _a_hit_that_waited(trace: RingTrace) -> None:
    trace.row("ring_requests")["cache_wait_ns"] = 5


@breaks("cache.verdict")
def _pages_of_no_verdict(trace: RingTrace) -> None:
    trace.row("operations")["cache"] = 0
    trace.row("operations")["cache_wait_ns"] = -(2**63)


@breaks("cache.fills")
def _another_sum(trace: RingTrace) -> None:
    trace.row("fills", 1)["pages"] = 5


@breaks("cache.fills")
def _more_used_than_filled(trace: RingTrace) -> None:
    trace.row("fills", 1)["used_pages"] = 5


@breaks("cache.fills")
def _used_by_nobody(trace: RingTrace) -> None:
    trace.row("fills", 2)["used_pages"] = 1


@pytest.mark.parametrize(("rule", "change"), breaks.changes, ids=breaks.ids)
def test_broken_in_exactly_one_way(rule: str, change: Callable[[Any], object], tmp_path: Path) -> None:
    """Only that rule is reported."""
    breaks.check(rule, change, cached(), tmp_path / "T")


def test_the_right_one(tmp_path: Path) -> None:
    """Nothing is reported."""
    assert not verify(cached().write(tmp_path / "T")).broken


def test_filtered_sums_are_not_compared(tmp_path: Path) -> None:
    """A filter may leave out a fill's call."""
    trace = cached()
    trace.row("fills", 0)["cause"] = 0
    trace.meta["filter"] = "path ~ '*'"
    assert "cache.fills" not in verify(trace.write(tmp_path / "T")).broken
