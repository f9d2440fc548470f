"""A request has the handle that was in its slot whenever the kernel may have looked it up, or none."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from build.requestrig import ASYNC, READ, RequestRig
from build.ringrig import PID
from build.sqerig import SqeRig

if TYPE_CHECKING:
    from pathlib import Path

    from build.ringrig import Rig

CLOSE, OTHER, W, CONTEXT = 19, 11, 30, 0x7F0000000000


def with_two_files(rig: Rig) -> None:
    """The descriptors 3 and 5, in a process of two threads."""
    rig.fork(PID, OTHER, PID)
    for fd in (3, 5):
        rig.call("openat", fd, flags=0)


@pytest.fixture
def rig(tmp_path: Path) -> RequestRig:
    """Process 10, born in the trace, with two threads and two open files."""
    rig = RequestRig(tmp_path)
    with_two_files(rig)
    return rig


@pytest.fixture
def told(tmp_path: Path) -> SqeRig:
    """The same, if programs tell what requests ask for."""
    rig = SqeRig(tmp_path)
    with_two_files(rig)
    return rig


def exchange(rig: Rig) -> None:
    """Another thread puts 5 in the place of 3."""
    rig.call("dup2", 3, tid=OTHER, oldfd=5, newfd=3)


@pytest.mark.parametrize("when", ["before", "between", "around", "behind"])
def test_a_slot_that_is_exchanged_before_file_get(rig: RequestRig, when: str) -> None:
    """The event comes a moment after the lookup: the slot may have been exchanged in between."""
    if when == "before":
        exchange(rig)
    if when == "around":
        rig.enter("dup2", tid=OTHER, oldfd=5, newfd=3)
    rig.submit(1, opcode=READ)
    if when == "between":
        exchange(rig)
    rig.gets(1, 3)
    if when == "behind":
        exchange(rig)
    if when == "around":
        rig.leave("dup2", 3, tid=OTHER)
    rig.cqe(1, 5)
    (found,) = rig.column("handle")
    assert (found is not None) == (when in {"before", "behind"})
    assert rig.column("fd") == [3]


def test_a_slot_that_is_closed_in_between_is_not_taken_to_hold_something_else(rig: RequestRig) -> None:
    """The request met the old file, or none: its handle is its own, without a name."""
    rig.submit(1, opcode=READ)
    rig.call("close", tid=OTHER, fd=3)
    rig.gets(1, 3)
    rig.cqe(1, 5)
    rig.call("read", -9, fd=3, count=1)
    (found,) = rig.column("handle")
    assert [(row["origin"], row["close_time_ns"]) for row in rig.rows["handles"] if row["handle"] == found] == [
        (4, None)
    ]


def test_a_worker_looks_up_behind_what_it_has_done_last(rig: RequestRig) -> None:
    """An exchange between the submission and that does no harm."""
    rig.worker(W)
    rig.submit(1, opcode=READ, flags=ASYNC)
    rig.submit(2, opcode=READ, flags=ASYNC)
    rig.punt(1)
    rig.punt(2)
    rig.gets(1, 5, tid=W)
    exchange(rig)
    rig.cqe(1, 5, tid=W)
    rig.gets(2, 3, tid=W)
    rig.cqe(2, 5, tid=W)
    copy = next(row["handle"] for row in rig.run().rows["handles"] if row["fd"] == 3 and row["origin"] == 1)
    assert rig.column("handle")[1] == copy


@pytest.mark.parametrize("raced", [True, False])
def test_the_ring_of_a_call_whose_descriptor_is_exchanged(rig: RequestRig, *, raced: bool) -> None:
    """Which descriptor io_uring_enter met is unknown, so the ring does not get it."""
    rig.enter("io_uring_enter", fd=3, to_submit=1)
    if raced:
        exchange(rig)
    rig.submit(1, opcode=0)
    rig.leave("io_uring_enter", 1)
    (ring,) = rig.run().rows["rings"]
    assert (ring["handle"] is None) == raced


@pytest.mark.parametrize("raced", [True, False])
def test_a_request_of_libaio(told: SqeRig, *, raced: bool) -> None:
    """The kernel looks it up at some moment before io_submit returns."""
    told.iocb(0, fd=3, length=10)
    told.enter("io_submit", ctx_id=CONTEXT, nr=1)
    if raced:
        exchange(told)
    told.leave("io_submit", 1)
    told.run()
    assert [handle is None for handle in told.of("iocbs", "handle")] == [raced]


@pytest.mark.parametrize("raced", [True, False])
def test_a_close_by_a_request(told: SqeRig, *, raced: bool) -> None:
    """A dup2 exchanges the file that it is about to close: it may close either."""
    if raced:
        told.enter("dup2", tid=OTHER, oldfd=5, newfd=3)
    told.ask(1, opcode=CLOSE, fd=3)
    if raced:
        told.leave("dup2", 3, tid=OTHER)
    told.complete(1, 0)
    told.call("sync")
    told.run()
    assert [row["handle"] is None for row in told.rows["ring_requests"]] == [raced]
    assert [row["close_time_ns"] is None for row in told.rows["handles"] if row["fd"] == 3][-1] == raced


def test_a_close_that_has_not_ended_names_nothing(told: SqeRig) -> None:
    """Another thread may exchange it until then."""
    told.ask(1, opcode=CLOSE, fd=3)
    told.run()
    assert [(row["handle"], row["fd"]) for row in told.rows["ring_requests"]] == [(None, 3)]
