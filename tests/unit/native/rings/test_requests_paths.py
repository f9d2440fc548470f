"""docs/explanation/rules/ring-requests.md: the ways that requests of rings go."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from build.requestrig import (
    ASYNC,
    BY_PATH,
    CANCELLED,
    DEVICE,
    ECANCELED,
    FSYNC,
    INLINE,
    LINK,
    NOP,
    PATH_CANCELLED,
    PATH_REFUSED,
    POLL,
    POLL_ADD,
    READ,
    RECV,
    TIMEOUT,
    UNHEARD_OF,
    UNKNOWN,
    WORKER,
    RequestRig,
    phases,
)
from build.ringrig import PID, A

if TYPE_CHECKING:
    from pathlib import Path

IOPOLL = 1
OTHER_THREAD, WORKER_TID = 11, 30


@pytest.fixture
def rig(tmp_path: Path) -> RequestRig:
    """Process 10, born in the trace."""
    return RequestRig(tmp_path)


def paths(rig: RequestRig) -> list[tuple[int, int]]:
    """Path of each request, and whether it is inferred."""
    return [(path, flags & BY_PATH) for path, flags in rig.column("path", "inferred")]


# -- paths by events


def test_refused(rig: RequestRig) -> None:
    """Whatever else."""
    rig.refuse(1, opcode=READ)
    rig.cqe(1, -22)
    assert paths(rig) == [(PATH_REFUSED, 0)]


def test_cancelled_before_it_was_executed(rig: RequestRig) -> None:
    """A member of a chain that nobody saw executed; one that a worker may have had is inferred to be."""
    rig.submit(1, flags=LINK)
    rig.submit(2)
    rig.link(2, 1)
    rig.cqe(1)
    rig.cqe(2, ECANCELED)
    rig.submit(3, flags=ASYNC)
    rig.punt(3)
    rig.cqe(3, ECANCELED)
    assert paths(rig)[1:] == [(PATH_CANCELLED, 0), (PATH_CANCELLED, BY_PATH)]
    assert [phases(row)[1:] for row in rig.all()[1:]] == [(0, 0), (0, 0)]
    assert rig.column("issue_time_ns")[1:] == [None, None]


def test_cancelled_after_it_was_executed(rig: RequestRig) -> None:
    """It keeps its path."""
    for req, opcode in ((1, RECV), (2, TIMEOUT), (3, READ)):
        rig.submit(req, opcode=opcode)
        if req == 1:
            rig.arm(1)
    rig.punt(3)
    rig.call("read", 0, fd=0)
    for req in (1, 2, 3):
        rig.cqe(req, ECANCELED)
    assert paths(rig) == [(POLL, 0), (DEVICE, 0), (WORKER, 0)]
    assert set(rig.column("status")) == {CANCELLED}


def test_worker_before_poll(rig: RequestRig) -> None:
    """Punted once is worker, whatever it does besides."""
    rig.submit(1, opcode=RECV)
    rig.arm(1)
    rig.wake(1)
    rig.punt(1)
    rig.cqe(1, 5)
    assert rig.column("path", "nr_polls", "nr_punts") == [(WORKER, 1, 1)]


def test_polls_and_wakes(rig: RequestRig) -> None:
    """First arm, last wake, by whom; a wake with mask 0 is a cancellation."""
    rig.fork(PID, OTHER_THREAD, PID)
    rig.submit(1, opcode=RECV)
    first = rig.arm(1)
    rig.wake(1, tid=OTHER_THREAD)
    rig.arm(1)
    last = rig.wake(1, tid=PID)
    rig.wake(1, tid=OTHER_THREAD, mask=0)
    rig.cqe(1, 5)
    row = rig.only()
    (task,) = [t["task"] for t in rig.rows["tasks"] if t["tid"] == PID]
    assert (row["poll_arm_time_ns"], row["wake_time_ns"], row["nr_polls"]) == (first, last, 2)
    assert (row["waker"], row["waker_tid"], row["path"]) == (task, PID, POLL)
    assert rig.events("waker_tid") == [(None,), (None,), (PID,)]


# -- inline or device


def test_inline_in_a_batch(rig: RequestRig) -> None:
    """CQEs after all submissions, then the call's exit."""
    rig.enter("io_uring_enter", fd=5, to_submit=3)
    for req in (1, 2, 3):
        rig.submit(req, opcode=READ)
    for req in (1, 2, 3):
        rig.cqe(req, 5)
    rig.leave("io_uring_enter", 3)
    assert paths(rig) == [(INLINE, 0)] * 3


def test_task_work_claims_the_last_completions(rig: RequestRig) -> None:
    """Two of four came out of it."""
    for req in (1, 2, 3, 4):
        rig.submit(req, opcode=READ)
    for req in (1, 2, 3, 4):
        rig.cqe(req, 5)
    rig.ran(2)
    assert paths(rig) == [(INLINE, 0), (INLINE, 0), (DEVICE, BY_PATH), (DEVICE, BY_PATH)]


def test_local_work_does_so_too(rig: RequestRig) -> None:
    """On a DEFER_TASKRUN ring."""
    rig.submit(1, opcode=READ)
    rig.submit(2, opcode=READ)
    rig.cqe(1, 5)
    rig.cqe(2, 5)
    rig.event("local_work_run", ctx=A, count=1)
    assert paths(rig) == [(INLINE, 0), (DEVICE, BY_PATH)]


@pytest.mark.parametrize("decides", ["submit", "refuse", "wait", "enter", "exit", "end", "thread"])
def test_what_decides_for_inline(rig: RequestRig, decides: str) -> None:
    """A run of task work after it claims nothing any more."""
    rig.enter("io_uring_enter", fd=5, to_submit=1)
    rig.submit(1, opcode=READ)
    rig.cqe(1, 5)
    if decides == "submit":
        rig.submit(2)
    elif decides == "refuse":
        rig.refuse(2)
    elif decides == "wait":
        rig.event("cqring_wait", ctx=A, min_events=1)
    elif decides == "enter":
        rig.enter("read", fd=0)
    elif decides == "exit":
        rig.leave("io_uring_enter", 1)
    elif decides == "thread":
        rig.ends(PID, PID)
    if decides not in {"end", "thread"}:
        rig.ran(1)
    assert paths(rig)[0] == (INLINE, 0)


def test_what_decides_nothing(rig: RequestRig) -> None:
    """Events within a run of task work; of other threads; messages."""
    rig.fork(PID, OTHER_THREAD, PID)
    rig.submit(1, opcode=READ)
    rig.submit(2, opcode=RECV)
    rig.cqe(1, 5)
    rig.wake(2)
    rig.gets(2, 3)
    rig.cqe(0, 7, user_data=99)
    rig.event("register", ctx=A, opcode=2, ret=0)
    rig.submit(3, tid=OTHER_THREAD)
    rig.ran(1, tid=OTHER_THREAD)
    rig.ran(2)
    assert paths(rig)[0] == (DEVICE, BY_PATH)


@pytest.mark.parametrize("item", ["punt", "arm", "overflow", "cqe"])
def test_items_of_task_work_that_are_no_completions(rig: RequestRig, item: str) -> None:
    """They count as items."""
    rig.submit(2, opcode=RECV, user_data=9)
    rig.submit(1, opcode=READ)
    rig.cqe(1, 5)
    {
        "punt": lambda: rig.punt(2),
        "arm": lambda: rig.arm(2),
        "overflow": lambda: rig.overflow(9),
        "cqe": lambda: rig.cqe(2),
    }[item]()
    rig.ran(1)
    assert paths(rig)[1] == (INLINE, 0)


def test_what_workers_completed_is_freed_by_task_work(rig: RequestRig) -> None:
    """Such a run claims nothing that the submitter posted; once."""
    rig.worker(WORKER_TID)
    rig.submit(1, opcode=READ)
    rig.submit(2, opcode=FSYNC, flags=ASYNC)
    rig.punt(2)
    rig.cqe(2, tid=WORKER_TID)
    rig.cqe(1, 5)
    rig.ran(1)
    rig.submit(3, opcode=READ)
    rig.cqe(3, 5)
    rig.ran(1)
    assert [path for path, _ in paths(rig)] == [INLINE, WORKER, DEVICE]


@pytest.mark.parametrize("between", ["exit", "enter", "wait", "run"])
def test_later_than_its_batch_is_device(rig: RequestRig, between: str) -> None:
    """The thread has done something else since the submission."""
    rig.enter("io_uring_enter", fd=5, to_submit=1)
    rig.submit(1, opcode=READ)
    if between == "exit":
        rig.leave("io_uring_enter", 1)
    elif between == "enter":
        rig.enter("read", fd=0)
    elif between == "wait":
        rig.event("cqring_wait", ctx=A, min_events=1)
    else:
        rig.ran(1)
    rig.cqe(1, 5)
    rig.submit(2)
    assert paths(rig)[0] == (DEVICE, 0)


def test_completed_in_another_thread_is_device(rig: RequestRig) -> None:
    """No other thread submits it."""
    rig.fork(PID, OTHER_THREAD, PID)
    rig.submit(1, opcode=READ)
    rig.cqe(1, 5, tid=OTHER_THREAD)
    assert paths(rig) == [(DEVICE, 0)]


def test_a_wake_shows_an_explicit_poll(rig: RequestRig) -> None:
    """It has waited, though no poll was armed; one that is ready at once has not."""
    rig.submit(1, opcode=POLL_ADD)
    rig.wake(1)
    rig.cqe(1, 1)
    rig.submit(2, opcode=POLL_ADD)
    rig.cqe(2, 1)
    assert paths(rig) == [(DEVICE, 0), (INLINE, 0)]


@pytest.mark.parametrize(("opcode", "path"), [(READ, DEVICE), (NOP, INLINE), (POLL_ADD, INLINE)])
def test_a_ring_that_polls(rig: RequestRig, opcode: int, path: int) -> None:
    """Its reads are the device's, even in one call."""
    rig.setup(flags=IOPOLL)
    rig.submit(1, opcode=opcode)
    rig.cqe(1, 5)
    assert paths(rig) == [(path, 0)]


@pytest.mark.parametrize(("opcode", "path"), [(NOP, INLINE), (RECV, INLINE), (UNHEARD_OF, DEVICE), (TIMEOUT, DEVICE)])
def test_opcodes_that_no_device_queues_are_inline(rig: RequestRig, opcode: int, path: int) -> None:
    """Whenever they complete; new opcodes may be queued."""
    rig.submit(1, opcode=opcode)
    rig.call("read", 0, fd=0)
    rig.cqe(1)
    assert paths(rig) == [(path, 0)]


def test_the_way_of_what_is_older_than_the_trace(rig: RequestRig) -> None:
    """It is unknown: the submission may have come right before the first event."""
    rig.gets(1, 3, user_data=5)
    rig.cqe(1, 5, user_data=5)
    rig.submit(2, opcode=READ)
    assert paths(rig)[0] == (UNKNOWN, 0)
    assert rig.all()[0]["opcode"] == 255
