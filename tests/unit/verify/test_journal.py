"""``verify`` on commits of journals."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from build.otf2_builder import Breakage
from build.otf2_rings import RingTrace, rings

from lo2io.verify import verify

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

breaks = Breakage()


def committing() -> RingTrace:
    """A trace with two commits, of which the first lacks a moment."""
    trace = rings()
    trace.meta["layers"] = ("journal",)
    first = {"begin_time_ns": 10, "flushing_time_ns": 12, "logging_time_ns": 12, "end_time_ns": 20}
    names = ("begin", "locking", "flushing", "logging", "end")
    second = {f"{name}_time_ns": time for time, name in enumerate(names, 20)}
    trace.tables["commits"] = [{"tid": 5, "transaction": number, **row} for number, row in enumerate((first, second))]
    return trace


@breaks("journal.commit")
def _out_of_order(trace: RingTrace) -> None:
    trace.row("commits", 1)["logging_time_ns"] = 21


@breaks("journal.commit")
def _they_overlap(trace: RingTrace) -> None:
    trace.row("commits", 1)["begin_time_ns"] = 19


@pytest.mark.parametrize(("rule", "change"), breaks.changes, ids=breaks.ids)
def test_broken_in_exactly_one_way(rule: str, change: Callable[[Any], object], tmp_path: Path) -> None:
    """Only that rule is reported."""
    breaks.check(rule, change, committing(), tmp_path / "T")


def test_the_right_one(tmp_path: Path) -> None:
    """Nothing is reported; another thread's commits may overlap."""
    trace = committing()
    trace.row("commits", 1)["tid"] = 6
    trace.row("commits", 1)["begin_time_ns"] = 19
    assert not verify(trace.write(tmp_path / "T")).broken
    assert not verify(committing().write(tmp_path / "U")).broken
