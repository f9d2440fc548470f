"""``verify`` on stacks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from build.otf2_builder import Breakage
from build.otf2_rings import RingTrace, rings

from lo2io.verify import verify

if TYPE_CHECKING:
    from pathlib import Path

breaks = Breakage()


@breaks("stack.call")
def _a_stack_of_no_operation(trace: RingTrace) -> None:
    trace.meta["layers"] = ("stacks",)
    trace.tables["call_stacks"] = [{"operation": 4_321, "stack": 0}]


def test_a_stack_of_an_operation_that_is_not_there(tmp_path: Path) -> None:
    """Each stack is an operation's, and has frames."""
    trace = rings()
    _a_stack_of_no_operation(trace)
    found = verify(trace.write(tmp_path / "T"))
    assert "stack.call" in found.broken
