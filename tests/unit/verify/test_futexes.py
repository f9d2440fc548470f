"""``verify`` on futexes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from build.otf2_builder import Breakage
from build.otf2_rings import RingTrace, rings

from lo2io.verify import verify

if TYPE_CHECKING:
    from pathlib import Path

breaks = Breakage()


@breaks("futex.call")
def _a_futex_of_another_call(trace: RingTrace) -> None:
    other = trace.tables["operations"][0]["id"]
    trace.tables["futexes"] = [{"operation": number, "address": 64} for number in (4_321, 4_321, other)]


def test_a_futex_of_a_call_that_is_none(tmp_path: Path) -> None:
    """Each row is that of one call on a futex."""
    trace = rings()
    _a_futex_of_another_call(trace)
    found = verify(trace.write(tmp_path / "T"))
    told = [each.text for each in found.findings if each.rule == "futex.call"]
    assert [text.partition(": ")[2].split(" ", 2)[2] for text in told] == [
        "has two rows",
        *["is no call on a futex"] * 2,
    ]
