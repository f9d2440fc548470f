"""``verify`` on page faults."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from build.otf2_builder import Breakage
from build.otf2_rings import RingTrace, rings

from lo2io.model import UNKNOWN_I64
from lo2io.verify import verify

if TYPE_CHECKING:
    from pathlib import Path

breaks = Breakage()


def faulty() -> RingTrace:
    """A trace with a fault of unknown file."""
    trace = rings()
    trace.meta["layers"] = ("faults",)
    trace.tables["faults"] = [{"operation": 0, "task": 0, "tid": 10, "end_time_ns": 5}]
    return trace


@breaks("fault.read")
def _a_fault_of_no_operation(trace: RingTrace) -> None:
    trace.tables["faults"] = [{"operation": 4_321, "task": 0, "tid": 10, "begin_time_ns": 3, "end_time_ns": 5}]


def broken(trace: RingTrace, folder: Path) -> bool:
    """True if the rule of faults is broken."""
    return "fault.read" in verify(trace.write(folder / "T")).broken


def test_a_fault_without_an_operation(tmp_path: Path) -> None:
    """It names none."""
    assert not broken(faulty(), tmp_path)


def test_a_fault_of_an_operation_that_is_not_there(tmp_path: Path) -> None:
    """Each fault that names an operation is that operation."""
    trace = faulty()
    _a_fault_of_no_operation(trace)
    assert broken(trace, tmp_path)


@pytest.mark.parametrize(("queued", "blocked"), [(1, 2), (-1, 1), (UNKNOWN_I64, 1)])
def test_parts_that_do_not_fit(tmp_path: Path, queued: int, blocked: int) -> None:
    """The parts of a fault's time are no more than its time, and known together."""
    trace = faulty()
    trace.tables["faults"][0].update(begin_time_ns=3, run_queue_ns=queued, blocked_ns=blocked)
    assert broken(trace, tmp_path)


def test_parts_that_fit(tmp_path: Path) -> None:
    """All of its time, or unknown."""
    trace = faulty()
    trace.tables["faults"][0].update(begin_time_ns=3, run_queue_ns=1, blocked_ns=1)
    assert not broken(trace, tmp_path)
    trace.tables["faults"][0].update(run_queue_ns=UNKNOWN_I64, blocked_ns=UNKNOWN_I64)
    assert not broken(trace, tmp_path / "U")
