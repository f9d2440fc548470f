"""The rules of docs/explanation/design.md for the ways that requests of rings go, and when they are executed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from requestrig import (
    ASYNC,
    BY_ISSUE,
    BY_PATH,
    CANCELLED,
    DEVICE,
    DRAIN,
    DRAINED,
    EBADF,
    ECANCELED,
    ETIME,
    FSYNC,
    HARDLINK,
    INLINE,
    LINK,
    LINK_TIMEOUT,
    MORE,
    NOP,
    PATH_CANCELLED,
    PATH_REFUSED,
    POLL,
    POLL_ADD,
    READ,
    RECV,
    SILENT,
    SKIP,
    TIMEOUT,
    TORN_DOWN,
    UNHEARD_OF,
    UNKNOWN,
    WORKER,
    RequestRig,
    phases,
)
from ringrig import PID, A, B

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


# -- paths by what was seen


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
    """It keeps its way."""
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


# -- inline or device


def test_inline_in_a_batch(rig: RequestRig) -> None:
    """CQEs behind all submissions, then the call's exit."""
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
    """Of a DEFER_TASKRUN ring."""
    rig.submit(1, opcode=READ)
    rig.submit(2, opcode=READ)
    rig.cqe(1, 5)
    rig.cqe(2, 5)
    rig.event("local_work_run", ctx=A, count=1)
    assert paths(rig) == [(INLINE, 0), (DEVICE, BY_PATH)]


@pytest.mark.parametrize("decides", ["submit", "refuse", "wait", "enter", "exit", "end", "thread"])
def test_what_decides_for_inline(rig: RequestRig, decides: str) -> None:
    """A run of task work behind it claims nothing any more."""
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
    """They take their place in the count."""
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
    """Nobody else's thread submits it."""
    rig.fork(PID, OTHER_THREAD, PID)
    rig.submit(1, opcode=READ)
    rig.cqe(1, 5, tid=OTHER_THREAD)
    assert paths(rig) == [(DEVICE, 0)]


def test_a_wake_shows_an_explicit_poll(rig: RequestRig) -> None:
    """It has waited, though nothing was armed; one that is ready at once has not."""
    rig.submit(1, opcode=POLL_ADD)
    rig.wake(1)
    rig.cqe(1, 1)
    rig.submit(2, opcode=POLL_ADD)
    rig.cqe(2, 1)
    assert paths(rig) == [(DEVICE, 0), (INLINE, 0)]


@pytest.mark.parametrize(("opcode", "path"), [(READ, DEVICE), (NOP, INLINE)])
def test_a_ring_that_polls(rig: RequestRig, opcode: int, path: int) -> None:
    """Its reads are the device's, even in one call."""
    rig.setup(flags=IOPOLL)
    rig.submit(1, opcode=opcode)
    rig.cqe(1, 5)
    assert paths(rig) == [(path, 0)]


@pytest.mark.parametrize(("opcode", "path"), [(NOP, INLINE), (RECV, INLINE), (UNHEARD_OF, DEVICE), (TIMEOUT, DEVICE)])
def test_opcodes_that_no_device_queues_are_inline(rig: RequestRig, opcode: int, path: int) -> None:
    """Whenever they complete; of new ones nobody knows."""
    rig.submit(1, opcode=opcode)
    rig.call("read", 0, fd=0)
    rig.cqe(1)
    assert paths(rig) == [(path, 0)]


def test_older_than_the_trace_is_device(rig: RequestRig) -> None:
    """It was not done at once, or it would have been done by then."""
    rig.gets(1, 3, user_data=5)
    rig.cqe(1, 5, user_data=5)
    rig.submit(2, opcode=READ)
    assert paths(rig)[0] == (DEVICE, 0)
    assert rig.all()[0]["opcode"] == 255


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
    """Registered files: it was executed in the first run behind its predecessor."""
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
    """Submitted and left alone: device; what was not executed yet is unknown."""
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


# -- when it is executed


def test_a_free_request_is_executed_at_once(rig: RequestRig) -> None:
    """When it was submitted, inferred; when it looks up its descriptor right then, known."""
    first = rig.submit(1)
    rig.submit(2, opcode=READ)
    got = rig.gets(2, 3)
    rig.cqe(1)
    rig.cqe(2, 5)
    assert [(issue, flags & BY_ISSUE) for issue, flags in rig.column("issue_time_ns", "inferred")] == [
        (first, BY_ISSUE),
        (got, 0),
    ]


@pytest.mark.parametrize("flags", [LINK, HARDLINK, DRAIN, ASYNC])
def test_others_are_not(rig: RequestRig, flags: int) -> None:
    """Until something shows it."""
    rig.submit(1, flags=flags)
    rig.submit(2)
    assert rig.column("issue_time_ns")[0] is None


def test_phases_of_an_inline_request(rig: RequestRig) -> None:
    """Executing lasts until the thread's next event; a wake or a second look-up is none."""
    submitted = rig.submit(1, opcode=READ)
    got = rig.gets(1, 3)
    rig.wake(77, user_data=5)
    over = rig.submit(2)
    completed = rig.cqe(1, 5)
    assert phases(rig.all()[0]) == (got - submitted, over - got, completed - over)


@pytest.mark.parametrize("end", ["exit", "wait", "link", "run", "register"])
def test_what_ends_an_execution(rig: RequestRig, end: str) -> None:
    """Every other event of the thread, entry and exit of its calls."""
    rig.enter("io_uring_enter", fd=5, to_submit=1)
    begun = rig.submit(1, opcode=READ)
    over = {
        "exit": lambda: rig.leave("io_uring_enter", 1),
        "wait": lambda: rig.event("cqring_wait", ctx=A, min_events=1),
        "link": lambda: rig.link(8, 9),
        "run": lambda: rig.ran(1),
        "register": lambda: rig.event("register", ctx=A, opcode=2, ret=0),
    }[end]()
    completed = rig.cqe(1, 5)
    assert phases(rig.all()[0]) == (0, over - begun, completed - over)


def test_phases_of_a_poll(rig: RequestRig) -> None:
    """Executing until it is armed; when it goes on after the wake is not known."""
    begun = rig.submit(1, opcode=RECV)
    armed = rig.arm(1)
    rig.wake(1)
    completed = rig.cqe(1, 5)
    assert phases(rig.only()) == (0, armed - begun, completed - armed)


def test_executed_again_after_a_look_up(rig: RequestRig) -> None:
    """Both count."""
    begun = rig.submit(1, opcode=RECV)
    armed = rig.arm(1)
    again = rig.gets(1, 3)
    completed = rig.cqe(1, 5)
    assert phases(rig.only()) == (0, armed - begun + completed - again, again - armed)


def test_a_head_is_executed_when_its_chain_is_complete(rig: RequestRig) -> None:
    """And its member when it is done."""
    first = rig.submit(1, flags=LINK)
    rig.submit(2, flags=LINK)
    rig.link(2, 1)
    rig.submit(3)
    closed = rig.link(3, 2)
    done = rig.cqe(1)
    done2 = rig.cqe(2)
    rig.cqe(3)
    assert rig.column("issue_time_ns") == [closed, done, done2]
    assert all(flags & BY_ISSUE for flags in rig.column("inferred"))
    assert phases(rig.all()[0]) == (closed - first, done - closed, 0)
    assert phases(rig.all()[1])[1] == 0


def test_a_head_that_looks_up_its_descriptor(rig: RequestRig) -> None:
    """Behind the event that closes the chain."""
    rig.submit(1, opcode=READ, flags=LINK)
    rig.submit(2)
    rig.link(2, 1)
    got = rig.gets(1, 3)
    rig.cqe(1, 5)
    row = rig.all()[0]
    assert (row["issue_time_ns"], row["inferred"] & BY_ISSUE, row["fd"]) == (got, 0, 3)


@pytest.mark.parametrize("flags", [DRAIN, ASYNC])
def test_a_head_that_waits_or_goes_to_a_worker(rig: RequestRig, flags: int) -> None:
    """Is not executed when its chain is complete."""
    rig.submit(1, flags=LINK | flags)
    rig.submit(2)
    rig.link(2, 1)
    rig.punt(1)
    assert rig.column("issue_time_ns") == [None, None]


def test_a_linked_timeout(rig: RequestRig) -> None:
    """It is armed with its predecessor; cancelled, nobody knows whether it was."""
    rig.submit(1, opcode=RECV, flags=LINK)
    rig.submit(2, opcode=LINK_TIMEOUT)
    rig.link(2, 1)
    got = rig.gets(1, 3)
    rig.arm(1)
    rig.cqe(2, ETIME)
    rig.cqe(1, ECANCELED)
    rig.ran(2)
    rig.submit(3, flags=LINK)
    rig.submit(4, opcode=LINK_TIMEOUT)
    rig.link(4, 3)
    rig.cqe(3)
    rig.cqe(4, ECANCELED)
    rig.submit(5, opcode=LINK_TIMEOUT)
    rows = rig.all()
    assert (rows[1]["issue_time_ns"], rows[1]["inferred"] & BY_ISSUE, rows[1]["path"]) == (got, BY_ISSUE, DEVICE)
    assert (rows[3]["issue_time_ns"], rows[3]["path"]) == (None, PATH_CANCELLED)
    assert rows[4]["issue_time_ns"] is None


def test_a_drained_request(rig: RequestRig) -> None:
    """By its flag, or because one before it has it; it waits for its turn."""
    rig.submit(1, flags=DRAIN)
    rig.submit(2)
    rig.event("defer", ctx=A, req=2, data=0, opcode=NOP)
    rig.submit(3)
    completed = rig.cqe(2)
    assert [traits & DRAINED for traits in rig.column("traits")] == [DRAINED, DRAINED, 0]
    assert rig.column("issue_time_ns")[:2] == [None, completed]


def test_shown_to_be_executed_by_its_cqe(rig: RequestRig) -> None:
    """Without a predecessor: then; with one that is done: since then."""
    rig.submit(1, opcode=READ, flags=DRAIN)
    completed = rig.cqe(1, EBADF)
    assert rig.column("issue_time_ns") == [completed]
    assert rig.only()["inferred"] & BY_ISSUE


def test_a_repeating_request_is_queued_once(rig: RequestRig) -> None:
    """Its phases add up to its last CQE."""
    begun = rig.submit(1, opcode=RECV, user_data=5)
    armed = rig.arm(1)
    rig.cqe(0, 5, user_data=5, flags=MORE)
    last = rig.cqe(1, 6, user_data=5)
    assert phases(rig.only()) == (0, armed - begun, last - armed)


def test_phases_of_what_has_no_end(rig: RequestRig) -> None:
    """What is known of them."""
    begun = rig.submit(1, opcode=READ)
    got = rig.gets(1, 3)
    rig.submit(2, opcode=READ, flags=ASYNC)
    assert phases(rig.all()[0])[0] == got - begun
    assert phases(rig.all()[0])[2] is None
    assert phases(rig.all()[1]) == (None, None, None)
