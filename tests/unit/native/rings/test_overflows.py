"""docs/explanation/rules/rings.md: overflows and sizes: what proves that a completion queue is full."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from build.ringrig import FD, MIXED, PID, A, Rig

if TYPE_CHECKING:
    from pathlib import Path

KWORKER = 44
RESIZE, FILES = 33, 2
GETEVENTS = 1


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    """Process 10, born in the trace."""
    return Rig(tmp_path)


def fill(rig: Rig) -> list[tuple[int, int | None, int | None]]:
    """Time, least and most of the completion queue."""
    return rig.of("ring_states", "time_ns", "cq_least", "cq_most")


def enter(rig: Rig, submits: int = 0, wants: int = 0) -> int:
    """The entry of an io_uring_enter."""
    return rig.enter("io_uring_enter", PID, fd=FD, to_submit=submits, min_complete=wants, flags=GETEVENTS)


def test_the_size_that_a_fact_tells_bounds_what_lies_there(tmp_path: Path) -> None:
    """From then on."""
    rig = Rig(tmp_path, born=False)
    rig.spool.fact_fd(2_000, PID, FD, b"anon_inode:[io_uring]")
    enter(rig, 1)
    rig.submit(1)
    rig.leave("io_uring_enter", 1)
    rig.spool.fact_ring(rig.now + 5_000, PID, FD, cq_entries=128)
    rig.now += 20_000
    rig.complete(1)
    rig.run()
    assert [row[2] for row in fill(rig)] == [None, 128]


def test_an_overflow_shows_a_full_queue_at_that_moment(rig: Rig) -> None:
    """No thread is known to be in the kernel, so the next moment some may be collected."""
    rig.setup(cq=4, sq=2)
    rig.submit(1)
    full = rig.event("cqe_overflow", tid=KWORKER, ctx=A, user_data=0, res=0)
    rig.run()
    assert fill(rig)[1:3] == [(full, 4, 4), (full, 0, 4)]
    assert (rig.ring()["nr_overflows"], rig.ring()["nr_completions"]) == (1, 1)


def test_a_full_queue_stays_full_while_its_user_is_in_the_kernel(rig: Rig) -> None:
    """To the exit."""
    rig.setup(cq=4, sq=2)
    enter(rig, 1)
    rig.submit(1)
    full = rig.event("cqe_overflow", ctx=A, user_data=0, res=0)
    left = rig.leave("io_uring_enter", 1)
    rig.run()
    assert fill(rig)[-2:] == [(full, 4, 4), (left, 0, 4)]


def test_a_second_overflow_proves_nothing(rig: Rig) -> None:
    """It waits after the first, though there may be room. A CQE that is posted shows that none waits any more."""
    rig.setup(cq=4, sq=2)
    for req in (1, 2, 3, 4):
        rig.submit(req)
    rig.event("cqe_overflow", tid=KWORKER, ctx=A, user_data=0, res=0)
    second = rig.event("cqe_overflow", tid=KWORKER, ctx=A, user_data=0, res=0)
    rig.submit(5)
    rig.complete(5, tid=KWORKER)
    third = rig.event("cqe_overflow", tid=KWORKER, ctx=A, user_data=0, res=0)
    rig.run()
    full = [row[0] for row in fill(rig) if row[1:] == (4, 4)]
    assert second not in full
    assert third in full


def test_after_a_wait_that_shows_room_an_overflow_proves_again(rig: Rig) -> None:
    """The kernel moves in what waits before it looks."""
    rig.setup(cq=4, sq=2)
    enter(rig, 2, 1)
    rig.submit(1)
    rig.submit(2)
    rig.event("cqe_overflow", ctx=A, user_data=0, res=0)
    rig.leave("io_uring_enter", 2)
    enter(rig, 0, 1)
    rig.event("cqring_wait", ctx=A, min_events=1)
    full = rig.event("cqe_overflow", tid=KWORKER, ctx=A, user_data=0, res=0)
    rig.run()
    assert fill(rig)[-1] == (full, 4, 4)


def test_an_overflow_of_unknown_room_adds_one(tmp_path: Path) -> None:
    """The kernel will move it into the queue without an event."""
    rig = Rig(tmp_path, born=False)
    enter(rig, 1, 2)
    rig.submit(1)
    rig.event("cqring_wait", ctx=A, min_events=2)
    rig.complete(1)
    over = rig.event("cqe_overflow", tid=KWORKER, ctx=A, user_data=9, res=0)
    rig.run()
    assert fill(rig)[-1] == (over, 0, 3)


def test_where_cqes_differ_in_size_an_overflow_proves_nothing(rig: Rig) -> None:
    """CQE_MIXED: how many fill the queue is not known."""
    rig.setup(cq=4, sq=2, flags=MIXED)
    rig.submit(1)
    rig.event("cqe_overflow", tid=KWORKER, ctx=A, user_data=0, res=0)
    rig.run()
    assert fill(rig)[-1][1:] == (0, 4)


def test_a_queue_that_is_resized_has_no_known_size(rig: Rig) -> None:
    """If it was; any other register operation leaves it."""
    rig.setup(cq=2, sq=1)
    rig.event("register", ctx=A, opcode=FILES, ret=0)
    rig.event("register", ctx=A, opcode=RESIZE, ret=-22)
    rig.requests(3)
    rig.event("register", ctx=A, opcode=RESIZE, ret=0)
    rig.requests(1)
    rig.run()
    assert [row[2] for row in fill(rig)] == [0, 2, None, None]
    assert rig.ring()["cq_entries"] == 2
