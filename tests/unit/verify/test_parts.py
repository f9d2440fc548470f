"""``verify`` on the parts of block requests."""

from __future__ import annotations

from typing import TYPE_CHECKING

from build.otf2_builder import Breakage
from build.otf2_rings import RingTrace, rings

from lo2io.verify import verify

if TYPE_CHECKING:
    from pathlib import Path

breaks = Breakage()
REQUEST = {
    "id": 900,
    "device": 8 << 20,
    "issue_time_ns": 1,
    "complete_time_ns": 2,
    "bytes_issued": 8192,
    "operation": 1,
}


def parted() -> RingTrace:
    """A trace with a request of 8 KiB in two parts."""
    trace = rings()
    trace.meta["layers"] = ("parts",)
    trace.tables["requests"] = [dict(REQUEST)]
    trace.tables["request_parts"] = [
        {"request": 900, "number": number, "kind": 1, "bytes": 4096, "sector": 8 * number} for number in range(2)
    ]
    return trace


@breaks("request.parts")
def _a_part_that_is_missing(trace: RingTrace) -> None:
    trace.tables["request_parts"].pop()


def broken(trace: RingTrace, folder: Path) -> bool:
    """True if the rule of parts is broken."""
    return "request.parts" in verify(trace.write(folder / "T")).broken


def test_parts_that_add_up(tmp_path: Path) -> None:
    """The whole request is there."""
    assert not broken(parted(), tmp_path)


def test_a_part_that_is_missing(tmp_path: Path) -> None:
    """Half of the bytes belong to no part."""
    trace = parted()
    _a_part_that_is_missing(trace)
    assert broken(trace, tmp_path)


def test_doubtful_requests_are_not_judged(tmp_path: Path) -> None:
    """A request that was issued again, one with further parts, and one without any."""
    for place, change in enumerate(({"nr_requeues": 1}, {"cut": True}, {})):
        trace = parted()
        _a_part_that_is_missing(trace)
        if "cut" in change:
            trace.tables["request_parts"][0]["cut"] = True
        elif change:
            trace.tables["requests"][0] |= change
        else:
            trace.tables["request_parts"].clear()
        (tmp_path / str(place)).mkdir()
        assert not broken(trace, tmp_path / str(place))
