"""``verify`` on requests to servers of FUSE file systems."""

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


def asked() -> RingTrace:
    """A trace with two requests of a call, and one outside of calls."""
    trace = rings()
    call = trace.row("operations")
    call["task"] = 0
    begin = call["begin_time_ns"]
    row = {"connection": 41, "opcode": 15, "task": 0, "tid": 10, "operation": call["id"]}
    row |= {"begin_time_ns": begin, "end_time_ns": begin + 5, "bytes_sent": 80, "bytes_replied": 16}
    trace.tables["fuse_requests"] = [
        row | {"unique": 2},
        row | {"unique": 4, "end_time_ns": -(2**63)},
        row | {"unique": 2, "connection": 42, "operation": 0, "begin_time_ns": 1, "end_time_ns": 2},
    ]
    return trace


@breaks("fuse.request")
def _a_request_that_stands_twice(trace: RingTrace) -> None:
    again = trace.tables["fuse_requests"][1]
    trace.tables["fuse_requests"].append(dict(again))


def test_a_later_mount_may_have_the_number_of_an_earlier_one(tmp_path: Path) -> None:
    """The kernel gives a device number again, and each mount counts its requests anew."""
    trace = asked()
    trace.tables["fuse_requests"][2]["connection"] = 41
    assert "fuse.request" not in verify(trace.write(tmp_path / "T")).broken


@breaks("fuse.request")
def _an_end_before_the_begin(trace: RingTrace) -> None:
    trace.tables["fuse_requests"][2]["end_time_ns"] = 0


@breaks("fuse.request")
def _a_request_before_its_call(trace: RingTrace) -> None:
    trace.tables["fuse_requests"][0]["begin_time_ns"] -= 1


@breaks("fuse.request")
def _a_request_after_its_call(trace: RingTrace) -> None:
    after = trace.row("operations")["end_time_ns"] + 1
    trace.tables["fuse_requests"][0] |= {"begin_time_ns": after, "end_time_ns": after}


@breaks("fuse.request")
def _another_threads_request(trace: RingTrace) -> None:
    trace.tables["fuse_requests"][1]["task"] += 1


@breaks("fuse.request")
def _a_call_that_is_none(trace: RingTrace) -> None:
    trace.tables["fuse_requests"][0]["operation"] = 987_654


def test_requests_of_their_calls(tmp_path: Path) -> None:
    """Numbers count within a connection; a request may be in flight, or outside of calls."""
    assert "fuse.request" not in verify(asked().write(tmp_path / "T")).broken


@pytest.mark.parametrize(("rule", "change"), breaks.changes, ids=breaks.ids)
def test_what_cannot_be(tmp_path: Path, rule: str, change: Callable[[Any], object]) -> None:
    """Twice, backwards, or not of its call."""
    trace = asked()
    change(trace)
    assert verify(trace.write(tmp_path / "T")).broken[rule] == 1
