"""docs/explanation/rules/ring-requests.md: requests of rings: which of them an event is about."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from build.requestrig import (
    ACCEPT,
    BY_IDENTITY,
    COMPLETED,
    EIO,
    IN_FLIGHT,
    MORE,
    MULTISHOT,
    NOP,
    NOTIF,
    NOTIFIED,
    OVERFLOWED,
    POLL_ADD,
    READ,
    RECV,
    SEND_ZC,
    SILENT,
    SKIP,
    RequestRig,
)
from build.ringrig import PID, A, B

if TYPE_CHECKING:
    from pathlib import Path

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
    """The old request has ended unseen: in flight, or silent if it asked for no CQE."""
    rig.submit(7, user_data=1)
    rig.submit(7, user_data=2, flags=SKIP)
    rig.submit(7, user_data=3)
    rig.cqe(7, 5, user_data=3)
    assert rig.column("status", "result") == [(IN_FLIGHT, 0), (SILENT, 0), (COMPLETED, 5)]
    assert rig.column("complete_time_ns")[:2] == [None, None]
    assert (rig.totals.nr_in_flight_ring_requests, rig.ring()["most_in_flight"]) == (1, 1)


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


def test_user_data_tells_that_another_one_is_meant(tmp_path: Path) -> None:
    """5.10: the event is not about the executed request; the other one's address is known from then on."""
    rig = RequestRig(tmp_path, era="5.10")
    for user_data in (1, 1, 2):
        rig.submit(0, opcode=RECV, user_data=user_data)
    first = rig.arm(76, user_data=1, opcode=RECV)
    second = rig.arm(77, user_data=1, opcode=RECV)
    punted = rig.punt(76)
    assert rig.column("poll_arm_time_ns", "punt_time_ns") == [(first, punted), (second, None), (None, None)]
    assert [flags & BY_IDENTITY for flags in rig.column("inferred")] == [BY_IDENTITY, BY_IDENTITY, 0]


def test_a_punt_of_nobody(tmp_path: Path) -> None:
    """5.10: an address alone, and nothing is being executed."""
    rig = RequestRig(tmp_path, era="5.10")
    rig.submit(0, opcode=READ, user_data=1)
    rig.cqe(0, user_data=1)
    rig.punt(77)
    assert (len(rig.all()), rig.totals.nr_ring_unclear) == (1, 1)


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
    """Bytes that were moved stay; a result counts bytes only if the opcode returns bytes."""
    rig.submit(1, opcode=RECV, user_data=5)
    rig.cqe(0, 40, user_data=5, flags=MORE)
    rig.cqe(1, EIO, user_data=5)
    rig.submit(2, opcode=ACCEPT)
    rig.cqe(2, 9)
    rig.submit(3, opcode=READ)
    rig.cqe(3, EIO)
    assert rig.column("bytes_result", "result", "error") == [(40, EIO, 5), (None, 9, 0), (None, EIO, 5)]


def test_of_repeating_twins_the_oldest_is_meant(rig: RequestRig) -> None:
    """The row says that order decided."""
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
    """The request was completed all the same; a notification without a request is an orphan."""
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
    """An overflow has no address; requests that asked for no CQE come last."""
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
    """Whether it can repeat itself or not; with F_MORE only a request that can."""
    rig.submit(1, opcode=READ, user_data=5)
    rig.submit(2, opcode=RECV, user_data=5)
    rig.overflow(5, 1, flags=MORE)
    rig.overflow(5, 2)
    rig.overflow(5, 3)
    rig.overflow(5, 4)
    assert rig.column("result", "nr_completions") == [(2, 1), (3, 2)]
    assert rig.totals.nr_orphan_cqes == 1


@pytest.mark.parametrize("repeats_first", [True, False])
def test_of_both_classes_the_oldest_overflows(rig: RequestRig, repeats_first: bool) -> None:
    """Then it does not matter whether it can repeat itself."""
    for req in (1, 2):
        rig.submit(req, opcode=RECV if (req == 1) == repeats_first else READ, user_data=5)
    rig.overflow(5, 1)
    rig.overflow(5, 2)
    assert rig.column("result") == [1, 2]


def test_a_notification_overflows(rig: RequestRig) -> None:
    """Its flag shows that it is one."""
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
    rig.submit(9, user_data=5)
    for res in range(6):
        rig.overflow(5, res)
    assert rig.column("result") == [100, 0, 1, 100, 2, 3, 4, 100, 5]
