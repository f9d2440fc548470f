"""docs/explanation/rules/ring-requests.md: requests of rings: how they end, whose they are, which are older."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from build.requestrig import (
    BY_SIZE,
    CANCELLED,
    CLOSE,
    COMPLETED,
    EBADF,
    ECANCELED,
    EINVAL,
    EIO,
    IN_FLIGHT,
    LINK,
    MORE,
    OLDER,
    OPENAT,
    POLL,
    READ,
    RECV,
    REFUSED,
    SHORT,
    SILENT,
    SKIP,
    SQPOLL,
    TORN_DOWN,
    UNHEARD_OF,
    WRITE,
    RequestRig,
    phases,
)
from build.ringrig import FD, PID, A, B

from lo2io.catalog.catalog import load_catalog
from lo2io.convert.engine import Engine
from lo2io.spool.reader import SpoolReader

if TYPE_CHECKING:
    from pathlib import Path

OTHER, KWORKER = 20, 44
"""Another process, and a thread of the kernel."""
TIME_AT, REQ_AT = 8, 20 + 16
"""In a sample's record: its time, and the field ``req`` of submit_req and complete."""


@pytest.fixture
def rig(tmp_path: Path) -> RequestRig:
    """Process 10, born in the trace."""
    return RequestRig(tmp_path)


# -- ends


@pytest.mark.parametrize(
    ("res", "status", "error"),
    [(0, COMPLETED, 0), (EIO, COMPLETED, 5), (ECANCELED, CANCELLED, 125), (-5000, COMPLETED, 0)],
)
def test_the_result_tells_the_status(rig: RequestRig, res: int, status: int, error: int) -> None:
    """Only one error means cancelled, and below -4095 there are none."""
    rig.submit(1)
    rig.cqe(1, res)
    assert rig.column("status", "error", "result") == [(status, error, res)]


def test_a_refused_request(rig: RequestRig) -> None:
    """Its SQE's offset and length are known; its CQE comes later."""
    begun = rig.refuse(1, opcode=UNHEARD_OF, user_data=5, flags=LINK, off=4096, len=77)
    rig.arm(1, user_data=5)
    ended = rig.cqe(1, EINVAL, user_data=5)
    row = rig.only()
    assert (row["status"], row["opcode"], row["sqe_flags"], row["error"]) == (REFUSED, UNHEARD_OF, LINK, 22)
    assert (row["submit_time_ns"], row["complete_time_ns"], row["issue_time_ns"]) == (begun, ended, None)
    assert (row["offset_bytes"], row["bytes_request"], row["inferred"]) == (4096, 77, 0)
    assert phases(row) == (ended - begun, 0, 0)


def test_a_refused_request_whose_cqe_is_not_seen(rig: RequestRig) -> None:
    """Why it was refused is known."""
    rig.refuse(1, error=EIO)
    assert rig.column("status", "result", "error", "nr_completions") == [(REFUSED, EIO, 5, 0)]
    assert rig.totals.nr_in_flight_ring_requests == 0


def test_silent_until_its_ring_is_gone(rig: RequestRig) -> None:
    """A failed one posts a CQE."""
    rig.submit(1, flags=SKIP)
    rig.submit(2, flags=SKIP)
    rig.cqe(2, EIO)
    assert rig.column("status", "sqe_flags") == [(SILENT, SKIP), (COMPLETED, SKIP)]
    assert rig.totals.nr_in_flight_ring_requests == 0


def test_one_that_has_spoken_is_not_silent(rig: RequestRig) -> None:
    """It is in flight: its last CQE may still come."""
    rig.submit(1, opcode=RECV, flags=SKIP)
    rig.cqe(1, 5, flags=MORE)
    assert rig.column("status", "nr_completions") == [(IN_FLIGHT, 1)]


def test_torn_down_with_its_ring(rig: RequestRig) -> None:
    """Requests that complete before the ring goes are not."""
    rig.setup()
    rig.submit(1)
    rig.submit(2, flags=SKIP)
    rig.submit(3)
    rig.ends(PID, PID)
    rig.cqe(3, ECANCELED, tid=KWORKER)
    assert rig.column("status") == [TORN_DOWN, SILENT, CANCELLED]
    assert rig.column("complete_time_ns")[:2] == [None, None]
    assert (rig.totals.nr_orphan_cqes, rig.totals.nr_in_flight_ring_requests) == (0, 0)


def test_a_cqe_of_what_was_torn_down_is_passed_over(rig: RequestRig) -> None:
    """Its ring is gone, and the address another's: nobody can fetch it, and nobody misses its start."""
    rig.setup()
    rig.submit(1)
    rig.ends(PID, PID)
    rig.fork(OTHER, OTHER, 1)
    rig.setup(tid=OTHER)
    rig.cqe(1, ECANCELED, tid=KWORKER)
    assert rig.column("status", "nr_completions") == [(TORN_DOWN, 0)]
    assert rig.totals.nr_orphan_cqes == 0
    assert [ring["nr_completions"] for ring in rig.rows["rings"]] == [0, 0]


def test_in_flight_at_the_end(rig: RequestRig) -> None:
    """A repeating one keeps its CQEs."""
    rig.submit(1)
    rig.submit(2, opcode=RECV, user_data=5)
    last = rig.cqe(0, 8, user_data=5, flags=MORE)
    assert rig.column("status", "complete_time_ns", "bytes_result") == [(IN_FLIGHT, None, None), (IN_FLIGHT, last, 8)]
    assert rig.totals.nr_in_flight_ring_requests == 2


def test_the_oldest_of_too_many_is_given_up(rig: RequestRig) -> None:
    """2**17 may live; what completes afterwards is an orphan."""
    most, more = 1 << 17, 3
    for name in ("submit_req", "complete"):
        rig.event(name, ctx=A, req=1, user_data=0)
    submitted, completed = rig.spool.rings[0][-2:]
    for record, event in ((submitted, "submit_req"), (completed, "complete")):
        many = np.tile(np.frombuffer(record, np.uint8), (most + more, 1))
        many[:, TIME_AT : TIME_AT + 8].view("<i8")[:, 0] = rig.now + np.arange(1, most + more + 1)
        many[:, REQ_AT : REQ_AT + 8].view("<u8")[:, 0] = np.arange(2, most + more + 2)
        rig.spool.raw(0, many.tobytes())
        rig.spool.samples[f"io_uring:io_uring_{event}"][0] += most + more
        rig.now += most + more
    engine = Engine(SpoolReader(rig.spool.write()), load_catalog())
    columns = [[batch.ring_requests[name].copy() for name in ("id", "status")] for batch in engine.batches()]
    ids, statuses = (np.concatenate(parts) for parts in zip(*columns, strict=True))
    statuses = statuses[np.argsort(ids)]
    assert statuses.tolist() == [COMPLETED] + [IN_FLIGHT] * more + [COMPLETED] * most
    assert (engine.totals.nr_orphan_cqes, engine.totals.nr_in_flight_ring_requests) == (more, more)


def test_a_short_write_is_of_what_is_executed(rig: RequestRig) -> None:
    """The first tells offset and size."""
    rig.submit(1, opcode=WRITE)
    rig.event("short_write", ctx=A, fpos=512, wanted=4096, got=100)
    rig.event("short_write", ctx=A, fpos=612, wanted=3996, got=100)
    rig.cqe(1, 4096)
    row = rig.only()
    assert (row["offset_bytes"], row["bytes_request"], row["traits"], row["inferred"] & BY_SIZE) == (
        512,
        4096,
        SHORT,
        BY_SIZE,
    )


def test_a_short_write_before_the_cqe_of_its_request(rig: RequestRig) -> None:
    """Its thread is not seen to execute a request: it belongs to the next CQE on that ring, not on another."""
    rig.worker(30)
    rig.submit(1, opcode=WRITE, flags=16)
    rig.submit(2, opcode=WRITE, flags=16, ctx=B)
    rig.submit(3, opcode=WRITE, flags=16, ctx=B)
    rig.submit(4, opcode=WRITE, flags=16)
    rig.submit(5, opcode=WRITE, flags=16)
    rig.event("short_write", 30, ctx=A, fpos=512, wanted=4096, got=100)
    rig.cqe(1, 4096, tid=30)
    rig.cqe(2, 4096, tid=30, ctx=B)
    rig.event("short_write", 30, ctx=A, fpos=1, wanted=2, got=1)
    rig.cqe(3, 4096, tid=30, ctx=B)
    rig.cqe(4, 4096, tid=30)
    rig.cqe(5, 4096, tid=30)
    none = (None, None)
    assert rig.column("offset_bytes", "bytes_request") == [(512, 4096), none, none, (1, 2), none]


# -- whose


def test_requests_of_the_sq_thread(rig: RequestRig) -> None:
    """They belong to the thread, and are marked; its name or the event shows that it is one."""
    rig.fork(PID, 40, PID)
    rig.name(PID, 40, b"iou-sqp-10")
    rig.submit(1, tid=40)
    rig.event("submit_req", PID, ctx=A, req=2, sq_thread=1)
    rig.submit(3)
    assert rig.column("tid", "traits") == [(40, SQPOLL), (PID, SQPOLL), (PID, 0)]


def test_requests_of_threads_that_are_not_recorded(tmp_path: Path) -> None:
    """In process mode they do not exist, nor do their CQEs."""
    rig = RequestRig(tmp_path, mode="process", roots=(PID,), born=False)
    rig.spool.fact_task(1_000, PID, PID, flags=1)
    rig.submit(1, tid=OTHER, ctx=B)
    rig.cqe(1, tid=OTHER, ctx=B)
    rig.gets(5, 3, tid=OTHER, ctx=B)
    rig.submit(1)
    rig.cqe(1, tid=KWORKER)
    assert rig.column("tid", "status") == [(PID, COMPLETED)]
    assert (rig.totals.nr_ring_requests, rig.totals.nr_orphan_cqes, rig.totals.nr_ring_unclear) == (1, 0, 0)
    assert len(rig.rows["rings"]) == 1


def test_lo2ios_own_requests(tmp_path: Path) -> None:
    """Counted, and nowhere else."""
    rig = RequestRig(tmp_path, recorder_pid=OTHER)
    rig.spool.fact_task(1_000, OTHER, OTHER)
    rig.submit(1, tid=OTHER)
    rig.cqe(1, tid=OTHER)
    rig.submit(2, ctx=B)
    rig.cqe(2, ctx=B)
    assert rig.column("tid") == [PID]
    assert (rig.totals.nr_own_requests, rig.totals.nr_ring_requests) == (1, 1)


def test_a_sample_has_whole_requests(tmp_path: Path) -> None:
    """Rows, events and works of those chosen, all of each; totals of all."""
    rig = RequestRig(tmp_path, sample_rate=7)
    rig.worker(30)
    for req in range(1, 201):
        rig.submit(req, opcode=READ, flags=16)
        rig.punt(req)
        rig.gets(req, 3, tid=30)
        rig.cqe(req, 5, tid=30)
    chosen = set(rig.column("id"))
    assert 10 < len(chosen) < 60
    assert {row["id"] for row in rig.rows["ring_events"]} == chosen
    assert {row["id"] for row in rig.rows["ring_works"]} == chosen
    assert len(rig.rows["ring_events"]) == 3 * len(chosen)
    assert (rig.totals.nr_ring_requests, rig.ring()["nr_completions"]) == (200, 200)


# -- older than the trace


def test_older_requests_show_themselves(rig: RequestRig) -> None:
    """By what has their user_data; they belong to the thread they are seen with."""
    armed = rig.arm(1, user_data=5, opcode=RECV)
    woken = rig.wake(1, user_data=5, opcode=RECV)
    ended = rig.cqe(1, 8, user_data=5)
    row = rig.only()
    assert (row["traits"], row["opcode"], row["user_data"], row["tid"]) == (OLDER, RECV, 5, PID)
    assert (row["submit_time_ns"], row["issue_time_ns"], row["queued_ns"], row["waiting_ns"]) == (
        None,
        None,
        None,
        None,
    )
    assert (row["poll_arm_time_ns"], row["wake_time_ns"], row["complete_time_ns"]) == (armed, woken, ended)
    assert (row["path"], row["bytes_result"], row["status"]) == (POLL, 8, COMPLETED)


def test_an_older_request_is_not_its_wakers(rig: RequestRig) -> None:
    """Nor a worker's: it is its owner's."""
    rig.setup()
    rig.fork(OTHER, OTHER, 1)
    rig.wake(1, user_data=5, opcode=RECV, tid=OTHER)
    rig.cqe(1, 8, user_data=5)
    rig.fork(PID, 11, PID)
    rig.worker(30, owner=11, maker=11)
    rig.gets(2, 3, tid=30, user_data=6)
    rig.cqe(2, 9, tid=30, user_data=6)
    assert rig.column("tid", "user_data", "result", "traits") == [(PID, 5, 8, OLDER), (11, 6, 9, OLDER)]
    assert rig.column("waker_tid") == [OTHER, None]


def test_what_an_older_request_does_shows_late(rig: RequestRig) -> None:
    """Before, it might repeat itself; then it cannot."""
    rig.gets(1, 3, user_data=5)
    rig.cqe(0, 7, user_data=6, flags=MORE)
    rig.arm(1, user_data=5, opcode=READ)
    rig.cqe(0, 7, user_data=5, flags=MORE)
    rig.cqe(1, 8, user_data=5)
    assert rig.column("opcode", "nr_completions", "result") == [(READ, 1, 8)]
    assert rig.ring()["nr_messages"] == 2


def test_an_older_request_that_nobody_shows(rig: RequestRig) -> None:
    """Woken, then completed in a thread that is not recorded: an orphan."""
    rig.setup()
    rig.wake(1, user_data=5, opcode=RECV)
    assert rig.all() == []


def test_a_wake_of_what_has_ended_makes_nothing(rig: RequestRig) -> None:
    """The wake came too late; other events there are of a request whose start was lost."""
    rig.setup()
    rig.submit(1, opcode=RECV, user_data=5)
    rig.cqe(1, 4, user_data=5)
    rig.wake(1, user_data=5, opcode=RECV)
    rig.cqe(1, 6, user_data=5)
    rig.submit(2, opcode=RECV, user_data=5)
    rig.cqe(2, 4, user_data=5)
    rig.arm(2, user_data=5, opcode=RECV)
    rig.cqe(2, 7, user_data=5)
    assert rig.column("result", "traits") == [(4, 0), (4, 0), (7, OLDER)]
    assert rig.totals.nr_orphan_cqes == 1


def test_unclear_events_are_counted(rig: RequestRig) -> None:
    """They name unknown requests, and have no user_data."""
    rig.submit(1)
    rig.link(8, 9)
    rig.fail_link(1, 9)
    rig.cqe(1)
    rig.event("fail_link", ctx=A, req=1, link=1)
    assert rig.run().totals.nr_ring_unclear == 3


# -- descriptors it opens and closes


def test_a_request_opens_a_descriptor(rig: RequestRig) -> None:
    """Later requests and calls name that handle."""
    rig.setup()
    rig.submit(1, opcode=OPENAT)
    rig.cqe(1, 9)
    rig.submit(2, opcode=READ)
    rig.gets(2, 9)
    rig.cqe(2, 5)
    rig.call("read", 1, fd=9, count=1)
    row = rig.all()[1]
    (handle,) = [h for h in rig.rows["handles"] if h["fd"] == 9]
    assert (row["fd"], row["handle"]) == (9, handle["handle"])
    assert rig.of("operations", "handle")[-1] == handle["handle"]
    assert handle["open_time_ns"] == rig.all()[0]["complete_time_ns"]


@pytest.mark.parametrize(("res", "stays"), [(EBADF, True), (0, False)])
def test_a_close_that_succeeds_may_be_of_any_descriptor(rig: RequestRig, res: int, stays: bool) -> None:
    """A failed one closes nothing."""
    rig.call("read", 1, fd=3, count=1)
    rig.submit(1, opcode=CLOSE)
    rig.cqe(1, res)
    rig.call("read", 1, fd=3, count=1)
    first, second = rig.run().of("operations", "handle")
    assert (first == second) == stays


def test_rings_of_two_contexts_keep_their_requests_apart(rig: RequestRig) -> None:
    """By user_data, too."""
    rig.setup(ctx=A, fd=FD)
    rig.setup(ctx=B, fd=FD + 1)
    rig.submit(1, ctx=A, user_data=5)
    rig.submit(2, ctx=B, user_data=5)
    rig.overflow(5, 20, ctx=B)
    rig.overflow(5, 10, ctx=A)
    assert rig.column("ring", "result") == [(0, 10), (1, 20)]
