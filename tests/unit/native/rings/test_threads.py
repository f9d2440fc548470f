"""docs/explanation/rules/rings.md: threads that the kernel makes for rings."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from build.ringrig import PID, SQPOLL, A, B, Rig

if TYPE_CHECKING:
    from pathlib import Path

THREAD, WORKER, POLLER = 0, 1, 2
W1, W2, SECOND, OTHER = 11, 12, 21, 30


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    """Process 10, born in the trace."""
    return Rig(tmp_path)


def kinds(rig: Rig) -> dict[int, int]:
    """Kinds of threads, by tid."""
    return {row["tid"]: row["kind"] for row in rig.rows["tasks"]}


def test_the_kernels_names_tell_the_kinds(rig: Rig) -> None:
    """A name that only resembles does not."""
    for tid, name in ((11, b"iou-wrk-10"), (12, b"iou-sqp-10"), (13, b"iou-work-10"), (14, b"my-iou-wrk-1")):
        rig.fork(PID, tid, PID)
        rig.name(PID, tid, name)
    rig.ends(PID, 11)
    rig.run()
    assert kinds(rig) == {1: THREAD, 10: THREAD, 11: WORKER, 12: POLLER, 13: THREAD, 14: THREAD}


def test_who_makes_calls_has_only_taken_the_name(rig: Rig) -> None:
    """The kernel's threads never enter one."""
    rig.worker(W1)
    rig.call("sync", tid=W1)
    rig.run()
    assert kinds(rig)[W1] == THREAD


def test_who_has_made_calls_becomes_no_worker_by_a_name(rig: Rig) -> None:
    """The thread serves no ring."""
    rig.setup()
    rig.submit(1)
    rig.fork(PID, W1, PID)
    rig.call("sync", tid=W1)
    rig.name(PID, W1, b"iou-wrk-10")
    rig.run()
    assert kinds(rig)[W1] == THREAD
    assert rig.ring()["nr_workers"] == 0


def test_births_and_deaths_of_workers_are_turning_points(rig: Rig) -> None:
    """With the time of the name, and of the exit; a worker made by a worker has the name from its birth on."""
    rig.setup()
    rig.submit(1)
    first = rig.worker(W1)
    second = rig.fork(PID, W2, W1)
    rig.name(PID, W2, b"iou-wrk-10")
    gone = rig.ends(PID, W1)
    rig.run()
    assert rig.of("ring_states", "time_ns", "workers")[1:] == [(first, 1), (second, 2), (gone, 1)]
    assert rig.ring()["nr_workers"] == 2


def test_workers_serve_the_rings_of_their_owner(rig: Rig) -> None:
    """Not those of another thread of the process; two rings of one thread share them."""
    rig.fork(PID, SECOND, PID)
    rig.setup(A, 5)
    rig.setup(B, 6)
    rig.setup(B + 1, 7)
    rig.submit(1, A)
    rig.submit(1, B)
    rig.submit(1, B + 1, tid=SECOND)
    rig.worker(W1)
    rig.run()
    assert rig.of("rings", "fd", "nr_workers") == [(5, 1), (6, 1), (7, 0)]


def test_two_submitters_bring_two_sets_of_workers(rig: Rig) -> None:
    """All of them serve the ring."""
    rig.fork(PID, SECOND, PID)
    rig.setup()
    rig.submit(1)
    rig.submit(2, tid=SECOND)
    rig.submit(3)
    rig.worker(W1)
    rig.worker(W2, owner=SECOND, maker=SECOND)
    rig.run()
    assert rig.of("ring_states", "workers")[-1] == 2
    assert rig.ring()["nr_workers"] == 2


def test_workers_of_a_poller(rig: Rig) -> None:
    """With SQPOLL the poller submits."""
    rig.enter("io_uring_setup", entries=4)
    rig.fork(PID, SECOND, PID)
    rig.event("create", ctx=A, fd=5, sq_entries=4, cq_entries=8, flags=SQPOLL)
    rig.leave("io_uring_setup", 5)
    rig.name(PID, SECOND, b"iou-sqp-10")
    rig.submit(1, tid=SECOND)
    rig.worker(W1, owner=SECOND, maker=SECOND)
    rig.run()
    assert rig.ring()["nr_workers"] == 1


def test_workers_that_live_already_serve_a_new_ring(rig: Rig) -> None:
    """But they were not born for it."""
    rig.worker(W1)
    rig.setup()
    first = rig.submit(1)
    rig.run()
    assert rig.of("ring_states", "time_ns", "workers") == [(first, 0), (first, 1)]
    assert rig.ring()["nr_workers"] == 0


def test_workers_that_have_ended_serve_no_new_ring(rig: Rig) -> None:
    """Of two, the one that lives does."""
    rig.worker(W1)
    rig.worker(W2)
    rig.ends(PID, W1)
    rig.setup()
    first = rig.submit(1)
    rig.run()
    assert rig.of("ring_states", "time_ns", "workers") == [(first, 0), (first, 1)]


def test_workers_older_than_the_trace(tmp_path: Path) -> None:
    """Facts tell of them; they live, and were not born."""
    rig = Rig(tmp_path, born=False)
    rig.spool.fact_task(1_000, PID, W1, comm=b"iou-wrk-10")
    rig.setup()
    rig.submit(1)
    gone = rig.ends(PID, W1)
    rig.run()
    assert kinds(rig)[W1] == WORKER
    assert rig.of("ring_states", "time_ns", "workers")[-1] == (gone, 0)
    assert rig.ring()["nr_workers"] == 0


def test_a_worker_of_another_process_serves_nobody_here(rig: Rig) -> None:
    """The number in its name is a thread of its own process."""
    rig.setup()
    rig.submit(1)
    rig.fork(OTHER, OTHER, 1)
    rig.spool.fork(rig.tick(), 0, OTHER, 31, OTHER, OTHER)
    rig.name(OTHER, 31, b"iou-wrk-10")
    rig.run()
    assert rig.ring()["nr_workers"] == 0


def test_an_owner_that_exits_takes_its_workers_along(rig: Rig) -> None:
    """Their exits may come later, or be lost."""
    rig.fork(PID, SECOND, PID)
    rig.setup()
    rig.submit(1, tid=SECOND)
    rig.worker(W1, owner=SECOND, maker=SECOND)
    rig.worker(W2, owner=SECOND, maker=SECOND)
    gone = rig.ends(PID, SECOND)
    rig.ends(PID, W1)
    rig.run()
    assert rig.of("ring_states", "time_ns", "workers")[-1] == (gone, 0)


def test_a_worker_outlives_its_owner(rig: Rig) -> None:
    """Another thread has the owner's number by then: the worker was none of its own."""
    rig.fork(PID, SECOND, PID)
    rig.setup()
    rig.submit(1, tid=SECOND)
    rig.worker(W1, owner=SECOND, maker=SECOND)
    rig.ends(PID, SECOND)
    rig.fork(PID, SECOND, PID)
    rig.submit(2, tid=SECOND)
    rig.worker(W2, owner=SECOND, maker=SECOND)
    rig.ends(PID, W1)
    rig.submit(3)
    rig.run()
    assert rig.of("ring_states", "workers")[-1] == 1


@pytest.mark.parametrize("name", [b"iou-wrk-", b"iou-wrk-x", b"iou-wrk-9999999", b"iou-wrk-11", b"iou-wrk-0"])
def test_names_that_make_no_sense_do_no_harm(rig: Rig, name: bytes) -> None:
    """No owner, no service."""
    rig.setup()
    rig.submit(1)
    rig.fork(PID, W1, PID)
    rig.name(PID, W1, name)
    rig.ends(PID, W1)
    rig.run()
    assert rig.ring()["nr_workers"] == 0


def test_a_birth_is_told_to_64_rings_at_most(tmp_path: Path) -> None:
    """The cost of one record is bounded, even if its rows are more than a batch has room for."""
    rig = Rig(tmp_path, batch_rows=8)
    for index in range(70):
        rig.setup(A + (index << 12), 5 + index)
        rig.submit(1, A + (index << 12))
    born = rig.worker(W1)
    rig.run()
    assert sum(rig.of("rings", "nr_workers")) == 64
    assert rig.of("ring_states", "time_ns", "workers").count((born, 1)) == 64
