"""``verify`` on charges of what requests write."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from build.otf2_builder import Breakage

from lo2io.verify import verify

from .test_parts import parted

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from build.otf2_rings import RingTrace

breaks = Breakage()


def charged() -> RingTrace:
    """A trace with a request in two parts, each charged; and pages that nobody has written."""
    trace = parted()
    trace.meta["layers"] = ("parts", "dirty")
    row = {
        "charged": 1,
        "tid": 1,
        "first_dirtied_ns": 0,
        "last_dirtied_ns": 1,
        "issue_time_ns": 1,
        "complete_time_ns": 2,
    }
    trace.tables["write_backs"] = [
        row | {"request": 900, "number": 0, "bytes": 1024},
        row | {"request": 900, "number": 0, "bytes": 3072},
        row | {"request": 900, "number": 1, "bytes": 4096, "tid": 2},
        {"charged": 1, "tid": 1, "bytes": 8192, "first_dirtied_ns": 1, "last_dirtied_ns": 1},
    ]
    return trace


@breaks("request.charged")
def _a_charge_too_large(trace: RingTrace) -> None:
    trace.tables["write_backs"][0]["bytes"] = 4096


@breaks("request.charged")
def _a_charge_too_early(trace: RingTrace) -> None:
    trace.tables["write_backs"][0]["last_dirtied_ns"] = 2


@breaks("request.charged")
def _a_call_too_late(trace: RingTrace) -> None:
    trace.tables["write_backs"][3]["call_begin_ns"] = 2


@breaks("request.told")
def _a_reason_that_the_trace_lacks(trace: RingTrace) -> None:
    trace.tables["requests"][0]["reason"] = 4


@breaks("request.told")
def _a_thread_that_the_trace_lacks(trace: RingTrace) -> None:
    for row in trace.tables["write_backs"]:
        row["tid"] = 1


def test_charges_that_add_up(tmp_path: Path) -> None:
    """Each part is charged whole, after it was dirtied. Trace and table tell no reason, and charge no single thread."""
    assert not {rule for rule, _ in breaks.changes} & set(verify(charged().write(tmp_path / "T")).broken)


@pytest.mark.parametrize(("rule", "change"), breaks.changes, ids=breaks.ids)
def test_what_cannot_be(tmp_path: Path, rule: str, change: Callable[[Any], object]) -> None:
    """More than the part's bytes, before the pages were dirty, or not as the trace itself says."""
    trace = charged()
    change(trace)
    assert rule in verify(trace.write(tmp_path / "T")).broken
