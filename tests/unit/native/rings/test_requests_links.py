"""docs/explanation/rules/ring-requests.md: linked requests, and for workers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from build.requestrig import (
    ASYNC,
    BOUNDED,
    BY_BEGIN,
    BY_BOUND,
    BY_CULPRIT,
    BY_END,
    BY_ISSUE,
    CONTINUED,
    ECANCELED,
    EINVAL,
    EIO,
    FSYNC,
    HARDLINK,
    HASHED,
    LINK,
    NOP,
    READ,
    RECV,
    UNBOUNDED,
    UNHEARD_OF,
    WRITE,
    RequestRig,
    phases,
)
from build.ringrig import PID, A, B

if TYPE_CHECKING:
    from pathlib import Path

W, W2, OTHER = 30, 31, 11
"""Two workers and another thread."""


@pytest.fixture
def rig(tmp_path: Path) -> RequestRig:
    """Process 10, born in the trace, with a worker."""
    rig = RequestRig(tmp_path)
    rig.worker(W)
    return rig


def links(rig: RequestRig) -> list[tuple[int | None, int | None]]:
    """Position of each request's predecessor and culprit among the requests."""
    place = {row["id"]: at for at, row in enumerate(rig.all())} | {0: None}
    return [(place[row["previous"]], place[row["culprit"]]) for row in rig.all()]


# -- links


@pytest.mark.parametrize("names", ["the one before", "the head"])
def test_a_member_stands_behind_the_last(rig: RequestRig, names: str) -> None:
    """Whomever the kernel names."""
    rig.submit(1, flags=LINK)
    for req in (2, 3, 4):
        rig.submit(req, flags=LINK if req < 4 else 0)
        rig.link(req, 1 if names == "the head" else req - 1)
    assert links(rig) == [(None, None), (0, None), (1, None), (2, None)]


def test_two_chains_of_two_rings(rig: RequestRig) -> None:
    """Each has its own."""
    for base, ctx in ((10, A), (20, B)):
        rig.submit(base, flags=HARDLINK, ctx=ctx)
        rig.submit(base + 1, ctx=ctx)
        rig.link(base + 1, base, ctx=ctx)
    assert links(rig) == [(None, None), (0, None), (None, None), (2, None)]


def test_culprit_and_victims(rig: RequestRig) -> None:
    """fail_link comes after the culprit's CQE."""
    for req in (1, 2, 3):
        rig.submit(req, flags=LINK if req < 3 else 0)
        if req > 1:
            rig.link(req, req - 1)
    rig.cqe(1, EIO)
    rig.fail_link(1, 2)
    rig.fail_link(1, 3)
    rig.fail_link(2, 3)
    rig.cqe(2, ECANCELED)
    rig.cqe(3, ECANCELED)
    assert links(rig) == [(None, None), (0, 0), (1, 0)]
    assert [flags & BY_CULPRIT for flags in rig.column("inferred")] == [0, 0, 0]


def test_a_refused_member(rig: RequestRig) -> None:
    """It is the culprit of all others; the kernel names the head, which is a victim itself."""
    rig.submit(1, flags=LINK)
    rig.refuse(2, opcode=UNHEARD_OF, flags=LINK)
    rig.submit(3)
    rig.link(3, 2)
    rig.cqe(1, ECANCELED)
    rig.fail_link(1, 2)
    rig.fail_link(1, 3)
    rig.cqe(2, EINVAL)
    rig.cqe(3, ECANCELED)
    assert links(rig) == [(None, 1), (0, None), (1, 1)]
    assert [flags & BY_CULPRIT for flags in rig.column("inferred")] == [BY_CULPRIT, 0, BY_CULPRIT]
    assert rig.column("issue_time_ns") == [None, None, None]


@pytest.mark.parametrize("between", ["none", "ring", "thread", "exit", "cqe", "register", "closed"])
def test_a_refused_one_is_a_member_only_right_behind_a_chain(rig: RequestRig, between: str) -> None:
    """Of the same thread and ring, with only links in between."""
    rig.enter("io_uring_enter", fd=5, to_submit=3)
    rig.submit(1, flags=LINK)
    rig.submit(2, flags=0 if between == "closed" else LINK)
    rig.link(2, 1)
    if between == "exit":
        rig.leave("io_uring_enter", 1)
    elif between == "cqe":
        rig.cqe(9)
    elif between == "register":
        rig.event("register", ctx=A, opcode=2, ret=0)
    tid = OTHER if between == "thread" else PID
    if tid == OTHER:
        rig.fork(PID, OTHER, PID)
    rig.refuse(3, ctx=B if between == "ring" else A, tid=tid)
    assert links(rig)[2] == ((1, None) if between == "none" else (None, None))
    assert links(rig)[0] == ((None, 2) if between == "none" else (None, None))


# -- workers


def test_an_execution_by_a_worker(rig: RequestRig) -> None:
    """Between the descriptor's look-up and the CQE, both in the worker."""
    begun = rig.submit(1, opcode=READ, flags=ASYNC)
    punted = rig.punt(1)
    got = rig.gets(1, 3, tid=W)
    done = rig.cqe(1, 5, tid=W)
    row = rig.only()
    (task,) = [t["task"] for t in rig.rows["tasks"] if t["tid"] == W]
    assert (row["punt_time_ns"], row["work_begin_time_ns"], row["work_end_time_ns"]) == (punted, got, done)
    assert (row["worker"], row["issue_time_ns"], row["nr_punts"]) == (task, got, 1)
    assert row["inferred"] & (BY_BEGIN | BY_END | BY_ISSUE) == 0
    assert phases(row) == (got - begun, done - got, 0)
    assert rig.of("ring_works", "id", "task", "opcode", "inferred") == [(row["id"], task, READ, 0)]
    assert rig.of("ring_works", "queue_time_ns", "begin_time_ns", "end_time_ns") == [(punted, got, done)]


def test_tried_before_it_is_punted(rig: RequestRig) -> None:
    """The try counts; the worker's start is then bounded by the punt."""
    begun = rig.submit(1, opcode=WRITE)
    got = rig.gets(1, 3)
    punted = rig.punt(1, hashed=1)
    done = rig.cqe(1, 5, tid=W)
    row = rig.only()
    assert (row["issue_time_ns"], row["work_begin_time_ns"], row["work_end_time_ns"]) == (got, punted, done)
    assert row["inferred"] & (BY_BEGIN | BY_END | BY_ISSUE) == BY_BEGIN
    assert phases(row) == (got - begun, punted - got + done - punted, 0)


def test_what_bounds_an_unseen_begin(rig: RequestRig) -> None:
    """The end of the worker's last execution."""
    for req in (1, 2):
        rig.submit(req, opcode=WRITE)
        rig.gets(req, 3)
        rig.punt(req, hashed=1)
    first = rig.cqe(1, 5, tid=W)
    second = rig.cqe(2, 5, tid=W)
    assert rig.column("work_begin_time_ns", "work_end_time_ns")[1] == (first, second)


def test_a_worker_that_is_born_for_it(rig: RequestRig) -> None:
    """The execution began no earlier than the worker."""
    rig.submit(1, opcode=WRITE)
    rig.punt(1)
    born = rig.fork(PID, W2, PID)
    rig.name(PID, W2, b"iou-wrk-10")
    rig.cqe(1, 5, tid=W2)
    assert rig.column("work_begin_time_ns") == [born]


def test_a_worker_that_gets_a_cpu(rig: RequestRig) -> None:
    """The first time since the punt; blocking in between does not count."""
    rig.submit(1, opcode=WRITE)
    rig.punt(1)
    rig.spool.switch(rig.tick(), 1, 0, W)
    woken = rig.now
    rig.spool.switch(rig.tick(), 1, W, 0, 2)
    rig.spool.switch(rig.tick(), 1, 0, W)
    rig.cqe(1, 5, tid=W)
    assert rig.column("work_begin_time_ns") == [woken]


def test_a_worker_that_had_its_cpu_before_the_punt(rig: RequestRig) -> None:
    """This bounds nothing."""
    rig.spool.switch(rig.tick(), 1, 0, W)
    rig.submit(1, opcode=WRITE)
    punted = rig.punt(1)
    rig.cqe(1, 5, tid=W)
    assert rig.column("work_begin_time_ns") == [punted]


def test_completed_in_the_submitter(rig: RequestRig) -> None:
    """Then the worker had done, at the latest when it left its CPU."""
    rig.submit(1, opcode=READ, flags=ASYNC)
    rig.punt(1)
    rig.gets(1, 3, tid=W)
    rig.spool.switch(rig.tick(), 1, W, 0, 1)
    left = rig.now
    rig.cqe(1, 5)
    rig.submit(2, opcode=READ, flags=ASYNC)
    rig.punt(2)
    rig.spool.switch(rig.tick(), 1, 0, W)
    rig.gets(2, 3, tid=W)
    done = rig.cqe(2, 5)
    assert [end for end, _ in rig.column("work_end_time_ns", "inferred")] == [left, done]
    assert [flags & (BY_BEGIN | BY_END) for flags in rig.column("inferred")] == [BY_END, BY_END]


def test_nothing_tells_which_worker_it_was(rig: RequestRig) -> None:
    """O_DIRECT: descriptor and CQE are the submitter's."""
    rig.submit(1, opcode=WRITE)
    rig.gets(1, 3)
    rig.punt(1)
    rig.cqe(1, 5)
    assert rig.column("worker", "work_begin_time_ns", "work_end_time_ns") == [(None, None, None)]
    assert rig.rows["ring_works"] == []


def test_the_next_request_ends_the_one_before(rig: RequestRig) -> None:
    """If its own end was not seen; a wake of another request does not."""
    for req in (1, 2):
        rig.submit(req, opcode=READ, flags=ASYNC)
        rig.punt(req)
    first = rig.gets(1, 3, tid=W)
    rig.wake(2, tid=W)
    second = rig.gets(2, 3, tid=W)
    done = rig.cqe(2, 5, tid=W)
    rig.cqe(1, 5)
    rig.run()
    assert rig.of("ring_works", "begin_time_ns", "end_time_ns", "inferred") == [
        (first, second, BY_END),
        (second, done, 0),
    ]


@pytest.mark.parametrize("end", ["worker", "trace", "address"])
def test_an_execution_without_end(rig: RequestRig, end: str) -> None:
    """Its row comes all the same."""
    rig.submit(1, opcode=READ, flags=ASYNC)
    rig.punt(1)
    got = rig.gets(1, 3, tid=W)
    if end == "worker":
        rig.ends(PID, W)
    elif end == "address":
        rig.submit(1)
    rig.run()
    assert rig.of("ring_works", "begin_time_ns", "end_time_ns", "inferred") == [(got, None, 0)]
    assert rig.column("work_begin_time_ns", "work_end_time_ns", "executing_ns")[0] == (got, None, None)


def test_a_worker_that_exits_before_the_cqe(rig: RequestRig) -> None:
    """When it was done is not known, though the CQE comes later, elsewhere."""
    rig.submit(1, opcode=READ, flags=ASYNC)
    rig.punt(1)
    got = rig.gets(1, 3, tid=W)
    rig.ends(PID, W)
    rig.cqe(1, 5)
    rig.run()
    assert rig.of("ring_works", "begin_time_ns", "end_time_ns") == [(got, None)]
    assert rig.column("work_end_time_ns") == [None]


def test_a_worker_arms_a_poll(rig: RequestRig) -> None:
    """Then the worker is free; another execution follows the second punt."""
    rig.submit(1, opcode=RECV, flags=ASYNC)
    first = rig.punt(1)
    got = rig.gets(1, 3, tid=W)
    armed = rig.arm(1, tid=W)
    rig.wake(1)
    second = rig.punt(1)
    done = rig.cqe(1, 5, tid=W)
    row = rig.only()
    assert rig.of("ring_works", "queue_time_ns", "begin_time_ns", "end_time_ns", "inferred") == [
        (first, got, armed, 0),
        (second, second, done, BY_BEGIN),
    ]
    assert (row["nr_punts"], row["punt_time_ns"], row["work_begin_time_ns"]) == (2, second, second)
    assert (row["traits"] & (BOUNDED | UNBOUNDED), row["inferred"] & BY_BOUND) == (UNBOUNDED, BY_BOUND)
    assert (row["executing_ns"], row["inferred"] & BY_ISSUE) == (armed - got + done - second, 0)


def test_another_execution_without_a_punt(rig: RequestRig) -> None:
    """The one before has used it up; nor is it continued, for nothing is before it."""
    rig.worker(W2)
    rig.submit(1, opcode=RECV, flags=ASYNC)
    punted = rig.punt(1)
    rig.gets(1, 3, tid=W)
    rig.arm(1, tid=W)
    rig.gets(1, 3, tid=W2)
    rig.cqe(1, 5, tid=W2)
    rig.run()
    assert rig.of("ring_works", "queue_time_ns") == [punted, None]
    assert rig.only()["traits"] & CONTINUED == 0


def test_an_unseen_begin_is_an_inferred_issue(rig: RequestRig) -> None:
    """If it is the first execution."""
    rig.submit(1, flags=ASYNC)
    punted = rig.punt(1)
    rig.cqe(1, tid=W)
    row = rig.only()
    assert (row["issue_time_ns"], row["inferred"] & BY_ISSUE) == (punted, BY_ISSUE)


def test_a_chain_that_goes_on_in_another_worker(rig: RequestRig) -> None:
    """The member began when the one before it was done."""
    rig.worker(W2)
    rig.submit(1, flags=LINK | ASYNC)
    rig.submit(2)
    rig.link(2, 1)
    rig.punt(1)
    done = rig.cqe(1, tid=W)
    rig.cqe(2, tid=W2)
    assert rig.column("work_begin_time_ns")[1] == done


def test_a_chain_that_goes_on_in_a_worker(rig: RequestRig) -> None:
    """Without being queued; the start of one without a descriptor is bounded by its predecessor's end."""
    rig.submit(1, opcode=WRITE, flags=LINK | ASYNC)
    rig.submit(2, opcode=FSYNC, flags=LINK)
    rig.link(2, 1)
    rig.submit(3)
    rig.link(3, 2)
    punted = rig.punt(1)
    rig.gets(1, 3, tid=W)
    rig.cqe(1, 5, tid=W)
    got = rig.gets(2, 3, tid=W)
    done = rig.cqe(2, tid=W)
    last = rig.cqe(3, tid=W)
    assert [traits & CONTINUED for traits in rig.column("traits")] == [0, CONTINUED, CONTINUED]
    assert rig.of("ring_works", "queue_time_ns") == [punted, None, None]
    assert rig.of("ring_works", "begin_time_ns", "end_time_ns")[1:] == [(got, done), (done, last)]
    assert [row["traits"] & (BOUNDED | UNBOUNDED) for row in rig.all()] == [UNBOUNDED] * 3
    assert [row["inferred"] & BY_BOUND for row in rig.all()] == [BY_BOUND] * 3


def test_what_continues_runs_where_its_predecessor_did(rig: RequestRig) -> None:
    """Though that one's address is used again by then."""
    rig.submit(1, opcode=WRITE, flags=LINK)
    rig.submit(2)
    rig.link(2, 1)
    rig.punt(1, hashed=1)
    rig.cqe(1, 5, tid=W)
    rig.submit(1)
    rig.cqe(2, tid=W)
    assert [traits & (CONTINUED | BOUNDED) for traits in rig.column("traits")] == [BOUNDED, CONTINUED | BOUNDED, 0]


@pytest.mark.parametrize(
    ("opcode", "flags", "looks_up", "arms", "hashed", "expected"),
    [
        (WRITE, 0, True, False, 1, (HASHED | BOUNDED, 0)),
        (WRITE, 0, True, False, 0, (0, 0)),
        (WRITE, ASYNC, False, False, 0, (UNBOUNDED, BY_BOUND)),
        (WRITE, ASYNC, True, False, 0, (0, 0)),
        (WRITE, 0, False, False, 0, (0, 0)),
        (RECV, 0, True, True, 0, (UNBOUNDED, BY_BOUND)),
        (FSYNC, ASYNC, False, False, 0, (BOUNDED, BY_BOUND)),
        (NOP, ASYNC, False, False, 0, (BOUNDED, BY_BOUND)),
        (UNHEARD_OF, ASYNC, False, False, 0, (0, 0)),
    ],
)
def test_bounded_or_unbounded(  # noqa: PLR0917 - a table
    rig: RequestRig,
    opcode: int,
    flags: int,
    looks_up: bool,
    arms: bool,
    hashed: int,
    expected: tuple[int, int],
) -> None:
    """Known of hashed requests, inferred of others, where the opcode tells."""
    rig.submit(1, opcode=opcode, flags=flags)
    if looks_up:
        rig.gets(1, 3)
    if arms:
        rig.arm(1)
    rig.punt(1, hashed=hashed)
    row = rig.only()
    assert (row["traits"] & (HASHED | BOUNDED | UNBOUNDED), row["inferred"] & BY_BOUND) == expected
