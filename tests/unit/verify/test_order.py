"""``verify`` on what may overlap: calls and requests that outlive a descriptor, locations that share a tick."""

from __future__ import annotations

from typing import TYPE_CHECKING

import _otf2
import pytest
from build import otf2_builder as build

from lo2io.verify import verify

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

TIE = build.START + 400


# ---- descriptors that are closed while something goes on: Linux allows it ----

BEFORE, CLOSED, AFTER = build.START + 150, build.START + 200, build.START + 250
"""Thread 10, on location 0, closes READ_FD."""


def _call_of_another_thread(trace: build.Trace) -> None:
    trace.events[1] += [build.begin(BEFORE, build.READ_FD, 9), build.complete(AFTER, build.READ_FD, 9)]


def _effect_of_another_threads_call(trace: build.Trace) -> None:
    seek = ("IoSeek", AFTER, build.READ_FD, 0, _otf2.IO_SEEK_FROM_START, 0)
    trace.events[1] += [("Enter", BEFORE, 0), seek, ("Leave", AFTER, 0)]


def _request_of_the_same_thread(trace: build.Trace) -> None:
    trace.events[0][-1:-1] = [build.begin(BEFORE, build.READ_FD, 9, flags=build.NON_BLOCKING)]
    trace.events[0] += [("IoOperationIssued", CLOSED, build.READ_FD, 9), build.complete(AFTER, build.READ_FD, 9)]


@pytest.mark.parametrize(
    "legal", [_call_of_another_thread, _effect_of_another_threads_call, _request_of_the_same_thread]
)
def test_what_is_under_way_outlives_its_descriptor(legal: Callable[[build.Trace], None], tmp_path: Path) -> None:
    """A call keeps its file when another thread closes the descriptor; a non-blocking request when any does."""
    trace = build.correct()
    legal(trace)
    assert not verify(trace.write(tmp_path / "T")).broken


def test_what_begins_after_a_close_is_wrong(tmp_path: Path) -> None:
    """A call that is entered later, or whose own thread closed the descriptor, cannot use it."""
    for name, entered, place in (("later", CLOSED + 1, 1), ("own", BEFORE, 0)):
        trace = build.correct()
        seek = ("IoSeek", AFTER, build.READ_FD, 0, _otf2.IO_SEEK_FROM_START, 0)
        trace.events[place] += [seek, ("Leave", AFTER, 0)]
        trace.events[place].insert(-2 - (entered < CLOSED and place == 0), ("Enter", entered, 0))
        assert set(verify(trace.write(tmp_path / name)).broken) == {"handle.inactive"}


# ---- ties: events of different locations at one tick have no order ----


def _destroy_and_use(trace: build.Trace, destroys: int) -> None:
    del trace.events[1][-2]
    trace.events[destroys].append(("IoDestroyHandle", TIE, build.WRITE_FD))
    trace.events[1 - destroys].append(build.begin(TIE, build.WRITE_FD, 9))
    trace.events[1 - destroys].append(build.complete(TIE, build.WRITE_FD, 9))


def _create_and_use(trace: build.Trace, creates: int) -> None:
    trace.events[creates].append(build.created(TIE))
    trace.events[1 - creates].append(build.begin(TIE, build.READ_FD, 9))
    trace.events[1 - creates].append(build.complete(TIE, build.READ_FD, 9))


def _destroy_and_create(trace: build.Trace, creates: int) -> None:
    del trace.events[1][-2]
    trace.events[creates].append(build.created(TIE, build.WRITE_FD))
    trace.events[1 - creates].append(("IoDestroyHandle", TIE, build.WRITE_FD))


def _complete_and_begin_again(trace: build.Trace, begins: int) -> None:
    _one_open_operation(trace, 1 - begins)
    trace.events[1 - begins].append(build.complete(TIE, build.READ_FD, 9))
    trace.events[begins].append(build.begin(TIE, build.READ_FD, 9))
    trace.events[begins].append(build.complete(TIE + 1, build.READ_FD, 9))


def _begin_and_complete(trace: build.Trace, begins: int) -> None:
    trace.events[0].append(build.created(build.START + 300))
    trace.events[begins].append(build.begin(TIE, build.READ_FD, 9))
    trace.events[1 - begins].append(build.complete(TIE, build.READ_FD, 9))


def _issue_and_test_and_complete(trace: build.Trace, issues: int) -> None:
    _one_open_operation(trace, issues, flags=build.NON_BLOCKING)
    trace.events[issues].append(("IoOperationIssued", TIE, build.READ_FD, 9))
    trace.events[1 - issues].append(build.complete(TIE, build.READ_FD, 9))
    trace.events[issues].append(("IoOperationTest", TIE, build.READ_FD, 9))


def _one_open_operation(trace: build.Trace, location: int, flags: object = _otf2.IO_OPERATION_FLAG_NONE) -> None:
    trace.events[location].append(build.created(build.START + 300))
    trace.events[location].append(build.begin(build.START + 310, build.READ_FD, 9, flags=flags))


TIES = [
    _destroy_and_use,
    _create_and_use,
    _destroy_and_create,
    _complete_and_begin_again,
    _begin_and_complete,
    _issue_and_test_and_complete,
]


@pytest.mark.parametrize("first", [0, 1])
@pytest.mark.parametrize("tie", TIES, ids=[tie.__name__[1:] for tie in TIES])
def test_ties_are_read_in_favour_of_the_trace(
    tie: Callable[[build.Trace, int], None], first: int, tmp_path: Path
) -> None:
    """If any order of the locations' events is right, nothing is wrong, whichever way the merge goes."""
    trace = build.correct()
    tie(trace, first)
    for location in (0, 1):
        trace.events[location].append(("Enter", TIE + 10, 0))
        trace.events[location].append(("Leave", TIE + 10, 0))
    assert set(verify(trace.write(tmp_path / "T")).broken) <= {"operation.elsewhere", "operation.id-again"}


def test_one_location_has_an_order_within_a_tick(tmp_path: Path) -> None:
    """A use after the destruction at the same tick on the same location is wrong."""
    trace = build.correct()
    trace.events[1].insert(-1, ("IoSeek", build.START + 100, build.WRITE_FD, 0, _otf2.IO_SEEK_FROM_START, 0))
    verdict = verify(trace.write(tmp_path / "T"))
    assert set(verdict.broken) == {"handle.inactive"}
    assert verdict.findings[0].event == 6


def test_a_clock_that_stands_still(tmp_path: Path) -> None:
    """Wrong events at one and the same tick are all reported, without waiting for the end."""
    number = 2_000
    trace = build.correct()
    trace.events[2] += [build.complete(build.START + build.LENGTH, build.DISK, 9) for _ in range(number)]
    verdict = verify(trace.write(tmp_path / "T"))
    assert dict(verdict.broken) == {"operation.not-begun": number}
    assert len(verdict.findings) == 20


def test_a_tie_at_the_very_end(tmp_path: Path) -> None:
    """Findings held back at the end of the trace are reported."""
    trace = build.correct()
    trace.events[2].append(build.complete(build.START + build.LENGTH, build.DISK, 9))
    assert set(verify(trace.write(tmp_path / "T")).broken) == {"operation.not-begun"}
