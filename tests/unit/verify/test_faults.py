"""``verify`` on page faults."""

from __future__ import annotations

from typing import TYPE_CHECKING

from build.otf2_builder import Breakage
from build.otf2_rings import RingTrace, rings

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
