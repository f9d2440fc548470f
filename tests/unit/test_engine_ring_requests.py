"""The rules of docs/explanation/design.md for requests of rings: which is which, and how they end."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from requestrig import (
    ACCEPT,
    BY_IDENTITY,
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
    MULTISHOT,
    NOP,
    NOTIF,
    NOTIFIED,
    OLDER,
    OPENAT,
    OVERFLOWED,
    POLL,
    POLL_ADD,
    READ,
    RECV,
    REFUSED,
    SEND_ZC,
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
from ringrig import FD, PID, A, B

from lo2io.catalog import load_catalog
from lo2io.pairing import Engine
from lo2io.spool.reader import SpoolReader

if TYPE_CHECKING:
    from pathlib import Path

OTHER, KWORKER = 20, 44
"""Another process, and a thread of the kernel."""
TIME_AT, REQ_AT = 8, 20 + 16
"""In a sample's record: its time, and the field ``req`` of submit_req and complete."""
ERAS = ("5.10", "6.1", "6.12", "6.18")


@pytest.fixture
def rig(tmp_path: Path) -> RequestRig:
    """Process 10, born in the trace."""
    return RequestRig(tmp_path)


# -- identity


def test_a_request_from_submission_to_its_cqe(rig: RequestRig) -> None:
    """All that the two events tell."""
    submitted = rig.submit(7, opcode=READ, user_data=2**64 - 3, flags=1 | 1 << 40)
    completed = rig.cqe(7, 100, user_data=2**64 - 3, flags=5 << 16 | 1)
    row = rig.only()
    (task,) = [t["task"] for t in rig.rows["tasks"] if t["tid"] == PID]
    assert (row["ring"], row["task"], row["pid"], row["tid"]) == (rig.ring()["ring"], task, PID, PID)
    assert (row["user_data"], row["opcode"], row["sqe_flags"]) == (2**64 - 3, READ, 1)
    assert (row["submit_time_ns"], row["complete_time_ns"]) == (submitted, completed)
    assert (row["status"], row["result"], row["error"], row["bytes_result"]) == (COMPLETED, 100, 0, 100)
    assert (row["cqe_flags"], row["nr_completions"], row["traits"]) == (5 << 16 | 1, 1, 0)
    assert (row["notify_time_ns"], row["previous"], row["culprit"]) == (None, 0, 0)
    assert rig.totals.nr_ring_requests == 1


def test_an_address_comes_again(rig: RequestRig) -> None:
    """Each submission is a request of its own."""
    for user_data in (1, 2, 3):
        rig.submit(7, user_data=user_data)
        rig.cqe(7, user_data, user_data=user_data)
    assert rig.column("user_data", "result") == [(1, 1), (2, 2), (3, 3)]
    assert len({row["id"] for row in rig.all()}) == 3


def test_an_address_comes_again_though_its_request_lives(rig: RequestRig) -> None:
    """That one has ended unseen: in flight, or silent if it asked for no CQE."""
    rig.submit(7, user_data=1)
    rig.submit(7, user_data=2, flags=SKIP)
    rig.submit(7, user_data=3)
    rig.cqe(7, 5, user_data=3)
    assert rig.column("status", "result") == [(IN_FLIGHT, 0), (SILENT, 0), (COMPLETED, 5)]
    assert rig.column("complete_time_ns")[:2] == [None, None]
    assert rig.totals.nr_in_flight_ring_requests == 1


def test_an_address_comes_again_on_another_ring(rig: RequestRig) -> None:
    """A kernel address means one request at a time, whatever the ring."""
    rig.submit(7, ctx=A)
    rig.submit(7, ctx=B)
    rig.cqe(7, 3, ctx=A)
    rig.cqe(7, 4, ctx=B)
    assert rig.column("status", "result") == [(IN_FLIGHT, 0), (COMPLETED, 4)]
    assert rig.totals.nr_orphan_cqes == 1


def test_a_cqe_of_an_unknown_request_is_an_orphan(rig: RequestRig) -> None:
    """Counted for its ring, too; a second CQE without F_MORE is one."""
    rig.submit(7)
    rig.cqe(7)
    rig.cqe(7)
    rig.cqe(9)
    assert len(rig.all()) == 1
    assert (rig.totals.nr_orphan_cqes, rig.ring()["nr_orphans"], rig.ring()["nr_completions"]) == (2, 2, 3)


@pytest.mark.parametrize("era", ERAS)
def test_every_era_pairs_submission_and_cqe(tmp_path: Path, era: str) -> None:
    """By address where the format has it, else by user_data, in order; then that is said."""
    rig = RequestRig(tmp_path, era=era)
    for req, user_data in ((1, 5), (2, 6), (3, 5)):
        rig.submit(req, opcode=READ, user_data=user_data)
    for req, user_data, res in ((2, 6, 60), (3, 5, 51), (1, 5, 50)):
        rig.cqe(req, res, user_data=user_data)
    by_order = era == "5.10"
    assert rig.column("result") == ([51, 60, 50] if by_order else [50, 60, 51])
    assert {flags & BY_IDENTITY for flags in rig.column("inferred")} == {BY_IDENTITY if by_order else 0}
    assert (rig.totals.nr_orphan_cqes, rig.totals.nr_ring_unclear) == (0, 0)


def test_events_without_an_address_are_about_what_is_executed(tmp_path: Path) -> None:
    """5.10: the punt has an address, the submission has none; the poll has both."""
    rig = RequestRig(tmp_path, era="5.10")
    rig.submit(0, opcode=READ, user_data=1)
    punted = rig.punt(77, hashed=1)
    rig.submit(0, opcode=RECV, user_data=2)
    armed = rig.arm(78, user_data=2, opcode=RECV)
    woken = rig.wake(0, user_data=2, opcode=RECV, tid=PID)
    rig.cqe(0, 3, user_data=2)
    rig.cqe(0, 4, user_data=1)
    assert rig.column("punt_time_ns", "poll_arm_time_ns", "wake_time_ns", "result") == [
        (punted, None, None, 4),
        (None, armed, woken, 3),
    ]
    assert rig.totals.nr_ring_unclear == 0


def test_a_descriptor_that_is_looked_up_before_the_submission(tmp_path: Path) -> None:
    """Up to 5.17: file_get names ring and fd, and the next request is meant, if that is the next event."""
    rig = RequestRig(tmp_path, era="5.10")
    rig.gets(0, 4)
    rig.submit(0, opcode=READ, user_data=1)
    rig.submit(0, opcode=NOP, user_data=2)
    rig.gets(0, 6)
    rig.cqe(0, user_data=1)
    rig.submit(0, opcode=NOP, user_data=3)
    assert rig.column("fd") == [4, -1, -1]


def test_fail_link_without_a_ring(tmp_path: Path) -> None:
    """Up to 5.17: the addresses are enough."""
    rig = RequestRig(tmp_path, era="5.10")
    rig.submit(0, opcode=READ, user_data=1)
    rig.punt(1)
    rig.submit(0, opcode=NOP, user_data=2)
    rig.punt(2)
    rig.fail_link(1, 2)
    first, second = rig.all()
    assert second["culprit"] == first["id"]


# -- CQEs that name no request


def test_a_repeating_request(rig: RequestRig) -> None:
    """Its CQEs with F_MORE have no address; the last one has, and ends it."""
    rig.submit(1, opcode=RECV, user_data=5)
    for res in (40, 41):
        rig.cqe(0, res, user_data=5, flags=MORE)
    last = rig.cqe(1, 42, user_data=5)
    row = rig.only()
    assert (row["nr_completions"], row["bytes_result"], row["result"]) == (3, 123, 42)
    assert (row["traits"], row["complete_time_ns"], row["inferred"] & BY_IDENTITY) == (MULTISHOT, last, 0)
    assert rig.ring()["nr_messages"] == 0


def test_bytes_stay_when_the_last_cqe_fails(rig: RequestRig) -> None:
    """What was moved was moved; a result is no number of bytes where the opcode returns none."""
    rig.submit(1, opcode=RECV, user_data=5)
    rig.cqe(0, 40, user_data=5, flags=MORE)
    rig.cqe(1, EIO, user_data=5)
    rig.submit(2, opcode=ACCEPT)
    rig.cqe(2, 9)
    rig.submit(3, opcode=READ)
    rig.cqe(3, EIO)
    assert rig.column("bytes_result", "result", "error") == [(40, EIO, 5), (None, 9, 0), (None, EIO, 5)]


def test_of_repeating_twins_the_oldest_is_meant(rig: RequestRig) -> None:
    """And that it was their order that decided is said."""
    rig.submit(1, opcode=POLL_ADD, user_data=5)
    rig.submit(2, opcode=POLL_ADD, user_data=5)
    rig.cqe(0, 1, user_data=5, flags=MORE)
    assert rig.column("nr_completions", "inferred") == [(1, rig.all()[0]["inferred"]), (0, rig.all()[1]["inferred"])]
    assert [row["inferred"] & BY_IDENTITY for row in rig.all()] == [BY_IDENTITY, 0]


def test_a_cqe_that_nobody_asked_for_is_a_message(rig: RequestRig) -> None:
    """Another ring's, even with F_MORE; a request that cannot repeat itself is not meant."""
    rig.submit(1, opcode=READ, user_data=5)
    rig.cqe(0, 70, user_data=5)
    rig.cqe(0, 71, user_data=5, flags=MORE)
    rig.cqe(0, 72, user_data=99)
    assert rig.column("nr_completions") == [0]
    assert (rig.ring()["nr_messages"], rig.totals.nr_orphan_cqes) == (3, 0)


def test_a_notification_ends_a_zero_copy_send(rig: RequestRig) -> None:
    """Result and time are those of the CQE before; the address is another one's."""
    rig.submit(1, opcode=SEND_ZC, user_data=5)
    sent = rig.cqe(1, 1000, user_data=5, flags=MORE)
    notified = rig.cqe(9, 0, user_data=5, flags=NOTIF)
    row = rig.only()
    assert (row["result"], row["bytes_result"], row["cqe_flags"], row["nr_completions"]) == (1000, 1000, MORE, 2)
    assert (row["complete_time_ns"], row["notify_time_ns"], row["traits"]) == (sent, notified, NOTIFIED)
    assert row["status"] == COMPLETED


def test_a_notification_never_comes(rig: RequestRig) -> None:
    """It was completed all the same; one without a request is an orphan."""
    rig.submit(1, opcode=SEND_ZC, user_data=5)
    rig.cqe(1, 1000, user_data=5, flags=MORE)
    rig.cqe(2, 0, user_data=6, flags=NOTIF)
    row = rig.only()
    assert (row["status"], row["result"], row["notify_time_ns"], row["traits"]) == (COMPLETED, 1000, None, 0)
    assert rig.totals.nr_orphan_cqes == 1


def test_a_send_that_fails_has_no_notification(rig: RequestRig) -> None:
    """Its CQE does not announce one."""
    rig.submit(1, opcode=SEND_ZC, user_data=5)
    rig.cqe(1, EIO, user_data=5)
    rig.cqe(9, 0, user_data=5, flags=NOTIF)
    assert rig.column("status", "error", "traits") == [(COMPLETED, 5, 0)]
    assert rig.totals.nr_orphan_cqes == 1


def test_an_overflow_ends_the_oldest_with_its_user_data(rig: RequestRig) -> None:
    """It has no address; those that asked for no CQE are meant last."""
    rig.submit(1, user_data=5, flags=SKIP)
    rig.submit(2, user_data=5)
    rig.submit(3, user_data=5)
    rig.submit(4, user_data=6)
    times = [rig.overflow(5, res) for res in (20, 30, 10)]
    assert rig.column("result", "status", "complete_time_ns") == [
        (10, COMPLETED, times[2]),
        (20, COMPLETED, times[0]),
        (30, COMPLETED, times[1]),
        (0, IN_FLIGHT, None),
    ]
    assert [row["traits"] & OVERFLOWED for row in rig.all()] == [OVERFLOWED] * 3 + [0]
    assert [row["inferred"] & BY_IDENTITY for row in rig.all()] == [BY_IDENTITY] * 3 + [0]
    assert rig.ring()["nr_overflows"] == 3


def test_the_older_of_two_classes_overflows(rig: RequestRig) -> None:
    """Whether it can repeat itself or not; with F_MORE only one that can is meant."""
    rig.submit(1, opcode=READ, user_data=5)
    rig.submit(2, opcode=RECV, user_data=5)
    rig.overflow(5, 1, flags=MORE)
    rig.overflow(5, 2)
    rig.overflow(5, 3)
    rig.overflow(5, 4)
    assert rig.column("result", "nr_completions") == [(2, 1), (3, 2)]
    assert rig.totals.nr_orphan_cqes == 1


def test_a_notification_overflows(rig: RequestRig) -> None:
    """It is known by its flag."""
    rig.submit(1, opcode=SEND_ZC, user_data=5)
    rig.cqe(1, 10, user_data=5, flags=MORE)
    rig.overflow(5, flags=NOTIF)
    assert rig.column("traits", "nr_completions") == [(NOTIFIED | OVERFLOWED, 2)]


def test_many_with_the_same_user_data(rig: RequestRig) -> None:
    """Taken out of the middle, from the front and the back of their row, the order of the rest stays."""
    for req in range(1, 9):
        rig.submit(req, user_data=5)
    for req in (4, 1, 8):
        rig.cqe(req, 100, user_data=5)
    for res in range(5):
        rig.overflow(5, res)
    assert rig.column("result") == [100, 0, 1, 100, 2, 3, 4, 100]


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
    """Its SQE's offset and length are told; its CQE comes later."""
    begun = rig.refuse(1, opcode=UNHEARD_OF, user_data=5, flags=LINK, off=4096, len=77)
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
    """One that fails does speak."""
    rig.submit(1, flags=SKIP)
    rig.submit(2, flags=SKIP)
    rig.cqe(2, EIO)
    assert rig.column("status", "sqe_flags") == [(SILENT, SKIP), (COMPLETED, SKIP)]
    assert rig.totals.nr_in_flight_ring_requests == 0


def test_torn_down_with_its_ring(rig: RequestRig) -> None:
    """What is completed before it goes is not."""
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
    """Its ring is gone, and the address another's: nobody can fetch it, and nobody misses its begin."""
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
    """Of a thread that is not seen to execute anything: its next CQE on that ring. Not on another one."""
    rig.worker(30)
    rig.submit(1, opcode=WRITE, flags=16)
    rig.submit(2, opcode=WRITE, flags=16, ctx=B)
    rig.event("short_write", 30, ctx=A, fpos=512, wanted=4096, got=100)
    rig.cqe(1, 4096, tid=30)
    rig.event("short_write", 30, ctx=A, fpos=1, wanted=2, got=1)
    rig.cqe(2, 4096, tid=30, ctx=B)
    assert rig.column("offset_bytes", "bytes_request") == [(512, 4096), (None, None)]


# -- whose


def test_requests_of_the_sq_thread(rig: RequestRig) -> None:
    """They are its own, and marked; it is known by its name or by the event."""
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


def test_an_older_request_that_nobody_shows(rig: RequestRig) -> None:
    """Woken, then completed in a thread that is not recorded: an orphan."""
    rig.setup()
    rig.wake(1, user_data=5, opcode=RECV)
    assert rig.all() == []


def test_unclear_events_are_counted(rig: RequestRig) -> None:
    """They name requests nobody knows, and nothing else that would tell."""
    rig.submit(1)
    rig.link(8, 9)
    rig.fail_link(1, 9)
    rig.cqe(1)
    rig.event("fail_link", ctx=A, req=1, link=1)
    assert rig.run().totals.nr_ring_unclear == 3


# -- descriptors it opens and closes


def test_a_request_opens_a_descriptor(rig: RequestRig) -> None:
    """What a later request or call names is that handle."""
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
    """One that fails closes nothing."""
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
