"""docs/explanation/rules/ring-requests.md: the ways that linked requests go, and those without a CQE."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from build.requestrig import (
    ASYNC,
    BY_PATH,
    DEVICE,
    INLINE,
    LINK,
    NOP,
    POLL,
    READ,
    RECV,
    SILENT,
    SKIP,
    TORN_DOWN,
    UNKNOWN,
    WORKER,
    RequestRig,
)
from build.ringrig import PID, A, B

if TYPE_CHECKING:
    from pathlib import Path

OTHER_THREAD = 11


@pytest.fixture
def rig(tmp_path: Path) -> RequestRig:
    """Process 10, born in the trace."""
    return RequestRig(tmp_path)


def paths(rig: RequestRig) -> list[tuple[int, int]]:
    """Path of each request, and whether it is inferred."""
    return [(path, flags & BY_PATH) for path, flags in rig.column("path", "inferred")]


# -- members of chains


def test_a_member_is_executed_behind_its_predecessor(rig: RequestRig) -> None:
    """In task work; but it is inline, if its CQE comes in the run in which it looked up its descriptor."""
    rig.submit(1, opcode=READ, flags=LINK)
    rig.submit(2, opcode=READ)
    rig.link(2, 1)
    rig.gets(1, 3)
    rig.cqe(1, 5)
    got = rig.gets(2, 3)
    rig.cqe(2, 5)
    rig.ran(1)
    assert paths(rig) == [(INLINE, 0), (INLINE, 0)]
    assert rig.all()[1]["issue_time_ns"] == got


def test_a_member_that_waits_for_a_device(rig: RequestRig) -> None:
    """Its CQE comes in a later run."""
    rig.submit(1, opcode=READ, flags=LINK)
    rig.submit(2, opcode=READ)
    rig.link(2, 1)
    rig.cqe(1, 5)
    rig.gets(2, 3)
    rig.ran(1)
    rig.cqe(2, 5)
    rig.ran(1)
    assert paths(rig) == [(INLINE, 0), (DEVICE, 0)]


def test_a_member_that_is_completed_in_another_thread(rig: RequestRig) -> None:
    """It waited for a device, whatever ran in that thread."""
    rig.fork(PID, OTHER_THREAD, PID)
    rig.submit(1, opcode=READ, flags=LINK)
    rig.submit(2, opcode=READ)
    rig.link(2, 1)
    rig.cqe(1, 5)
    rig.gets(2, 3)
    rig.cqe(2, 5, tid=OTHER_THREAD)
    assert paths(rig)[1] == (DEVICE, 0)


def test_a_member_that_another_thread_executed(rig: RequestRig) -> None:
    """Runs of two threads cannot be compared."""
    rig.fork(PID, OTHER_THREAD, PID)
    rig.submit(1, opcode=READ, flags=LINK)
    rig.submit(2, opcode=READ)
    rig.link(2, 1)
    rig.cqe(1, 5)
    rig.gets(2, 3, tid=OTHER_THREAD)
    rig.cqe(2, 5)
    assert paths(rig)[1] == (DEVICE, 0)


def test_a_silent_head_that_no_device_queues(rig: RequestRig) -> None:
    """It is inline without a successor."""
    rig.submit(1, flags=SKIP | LINK)
    rig.submit(2)
    rig.link(2, 1)
    rig.cqe(2)
    assert paths(rig) == [(INLINE, 0), (INLINE, 0)]


def test_a_member_behind_one_that_task_work_claims(rig: RequestRig) -> None:
    """It was executed in the run after that."""
    rig.ran(0)
    rig.submit(1, opcode=READ, flags=LINK | 1)
    rig.submit(2, opcode=READ, flags=1)
    rig.link(2, 1)
    rig.cqe(1, 5)
    rig.ran(1)
    rig.cqe(2, 5)
    rig.ran(1)
    assert paths(rig) == [(DEVICE, BY_PATH), (INLINE, BY_PATH)]


def test_a_member_counts_once_in_a_run(rig: RequestRig) -> None:
    """Its look-up and its CQE there are one item; in a later run its CQE is one of its own."""
    rig.submit(1, opcode=READ, flags=LINK)
    rig.submit(2, opcode=READ)
    rig.link(2, 1)
    rig.submit(3, opcode=READ)
    rig.cqe(1, 5)
    rig.cqe(3, 5)
    rig.gets(2, 3)
    rig.cqe(2, 5)
    rig.ran(2)
    assert [path for path, _ in paths(rig)] == [INLINE, INLINE, DEVICE]


@pytest.mark.parametrize(("runs", "path"), [(0, INLINE), (1, DEVICE)])
def test_a_member_without_a_descriptor(rig: RequestRig, runs: int, path: int) -> None:
    """Registered files: it was executed in the first run after its predecessor."""
    rig.submit(1, opcode=READ, flags=LINK | 1)
    rig.submit(2, opcode=READ, flags=1)
    rig.link(2, 1)
    rig.cqe(1, 5)
    for _ in range(runs):
        rig.ran(0)
    rig.cqe(2, 5)
    rig.ran(1)
    assert paths(rig) == [(INLINE, 0), (path, BY_PATH)]


@pytest.mark.parametrize(("runs", "path"), [(0, INLINE), (1, INLINE), (2, DEVICE)])
def test_a_member_behind_one_that_came_out_of_task_work(rig: RequestRig, runs: int, path: int) -> None:
    """It was executed in the next run."""
    rig.submit(1, opcode=READ, flags=LINK | 1)
    rig.submit(2, opcode=READ, flags=1)
    rig.link(2, 1)
    rig.event("cqring_wait", ctx=A, min_events=1)
    rig.cqe(1, 5)
    for _ in range(runs):
        rig.ran(0)
    rig.cqe(2, 5)
    rig.ran(1)
    assert paths(rig) == [(DEVICE, 0), (path, BY_PATH)]


# -- without a CQE


def test_silent_ones(rig: RequestRig) -> None:
    """Inline where no device can have been; unknown else; a worker's by its punt."""
    for req, opcode in ((1, NOP), (2, READ), (3, READ)):
        rig.submit(req, opcode=opcode, flags=SKIP)
    rig.punt(3)
    rig.call("read", 0, fd=0)
    assert paths(rig) == [(INLINE, 0), (UNKNOWN, 0), (WORKER, 0)]
    assert set(rig.column("status")) == {SILENT}


@pytest.mark.parametrize(("runs", "path"), [(0, (INLINE, BY_PATH)), (1, (UNKNOWN, 0))])
def test_a_silent_one_whose_successor_tells(rig: RequestRig, runs: int, path: tuple[int, int]) -> None:
    """Had it come back from a device, that would have cost a run of task work."""
    rig.submit(1, opcode=READ, flags=SKIP | LINK)
    rig.submit(2)
    rig.link(2, 1)
    for _ in range(runs):
        rig.ran(1)
    rig.cqe(2)
    rig.ran(1)
    assert paths(rig)[0] == path


def test_in_flight_and_torn_down(rig: RequestRig) -> None:
    """Submitted and left alone: device; unknown if not executed yet."""
    rig.setup()
    rig.enter("io_uring_enter", fd=5, to_submit=1)
    rig.submit(1, opcode=READ)
    rig.submit(2, opcode=READ, flags=ASYNC)
    rig.submit(3, opcode=RECV)
    rig.arm(3)
    rig.leave("io_uring_enter", 3)
    rig.submit(4, opcode=READ, ctx=B)
    rig.ends(PID, PID)
    rows = rig.all()
    assert paths(rig) == [(DEVICE, BY_PATH), (UNKNOWN, 0), (POLL, 0), (DEVICE, BY_PATH)]
    assert {row["status"] for row in rows} == {TORN_DOWN}


def test_in_flight_and_not_to_be_told(rig: RequestRig) -> None:
    """In its own batch; an opcode that no device queues; a member."""
    rig.submit(1, opcode=READ)
    rig.submit(1, opcode=RECV)
    rig.submit(2, opcode=READ, flags=LINK)
    rig.submit(3, opcode=READ)
    rig.link(3, 2)
    rig.cqe(2, 5)
    rig.gets(3, 3)
    rig.call("read", 0, fd=0)
    assert [path for path, _ in paths(rig)] == [UNKNOWN, UNKNOWN, INLINE, UNKNOWN]
