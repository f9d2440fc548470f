"""docs/explanation/rules/rings.md: rings older than the trace, and for facts about rings."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from build.ringrig import FD, PID, SQPOLL, A, B, Rig

if TYPE_CHECKING:
    from pathlib import Path

KWORKER = 44
FILES = 2
"""IORING_REGISTER_FILES"""


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    """Process 10, born in the trace."""
    return Rig(tmp_path)


def test_a_ring_older_than_the_trace(tmp_path: Path) -> None:
    """Its first submission inside of a call tells process, descriptor and handle; the rest is unknown."""
    rig = Rig(tmp_path, born=False)
    rig.enter("io_uring_enter", fd=7, to_submit=1)
    rig.requests(1)
    rig.leave("io_uring_enter", 1)
    rig.run()
    row = rig.ring()
    (operation,) = rig.rows["operations"]
    assert (row["fd"], row["pid"], row["handle"]) == (7, PID, operation["handle"])
    assert (row["task"], row["create_time_ns"], row["flags"]) == (None, None, None)
    assert (row["sq_entries"], row["cq_entries"], row["nr_files"]) == (0, 0, None)


def test_a_ring_that_was_heard_of_before_it_was_used(tmp_path: Path) -> None:
    """A worker's execution does not make it the worker's, nor a kernel thread's completion that thread's."""
    rig = Rig(tmp_path, born=False)
    rig.worker(11)
    rig.event("file_get", tid=11, ctx=A, req=1, user_data=4, fd=3)
    rig.complete(1, 5, tid=KWORKER, user_data=4)
    rig.enter("io_uring_enter", fd=7, to_submit=1)
    rig.submit(2)
    rig.leave("io_uring_enter", 1)
    rig.run()
    assert (rig.ring()["pid"], rig.ring()["fd"], rig.ring()["nr_requests"]) == (PID, 7, 2)


def test_the_fact_of_a_ring_gives_what_events_cannot(tmp_path: Path) -> None:
    """Sizes, poller and registered files: after the fact of its descriptor, before the ring is known."""
    rig = Rig(tmp_path, born=False)
    rig.spool.fact_task(1_000, PID, 11, ppid=1, comm=b"iou-sqp-10")
    rig.spool.fact_fd(2_000, PID, 7, b"anon_inode:[io_uring]")
    rig.spool.fact_ring(2_000, PID, 7, sq_entries=64, cq_entries=128, poller=11, nr_files=3, nr_buffers=2)
    rig.enter("io_uring_enter", fd=7, min_complete=1, flags=1)
    rig.event("cqring_wait", ctx=A, min_events=1)
    rig.leave("io_uring_enter")
    rig.run()
    row = rig.ring()
    (poller,) = [t["task"] for t in rig.rows["tasks"] if t["tid"] == 11]
    assert (row["sq_entries"], row["cq_entries"], row["poller"]) == (64, 128, poller)
    assert (row["nr_files"], row["nr_buffers"], row["create_time_ns"]) == (3, 2, None)


def test_a_fact_of_a_ring_that_is_known_fills_gaps_alone(tmp_path: Path) -> None:
    """Values of events stay."""
    rig = Rig(tmp_path, born=False)
    rig.spool.fact_fd(2_000, PID, 7, b"anon_inode:[io_uring]")
    rig.enter("io_uring_enter", fd=7, to_submit=1)
    rig.submit(1)
    rig.leave("io_uring_enter", 1)
    rig.event("register", ctx=A, opcode=FILES, nr_files=9, nr_bufs=0, ret=0)
    rig.spool.fact_ring(rig.now + 5, PID, 7, sq_entries=64, cq_entries=128, nr_files=3, nr_buffers=2)
    rig.call("sync")
    rig.run()
    row = rig.ring()
    assert (row["sq_entries"], row["cq_entries"], row["nr_files"], row["nr_buffers"]) == (64, 128, 9, 0)


def test_a_fact_of_a_ring_that_was_made_in_the_trace_tells_nothing_new(rig: Rig) -> None:
    """Create has said all, the poller's birth included."""
    rig.enter("io_uring_setup", entries=4)
    rig.fork(PID, 11, PID)
    rig.event("create", ctx=A, fd=FD, sq_entries=4, cq_entries=8, flags=SQPOLL)
    rig.leave("io_uring_setup", FD)
    rig.now += 10_000
    rig.spool.fact_ring(rig.tick(), PID, FD, sq_entries=64, cq_entries=128, poller=PID, nr_files=3, nr_buffers=2)
    rig.now += 10_000
    rig.submit(1, tid=11)
    rig.run()
    row, tasks = rig.ring(), {t["tid"]: t["task"] for t in rig.rows["tasks"]}
    assert (row["sq_entries"], row["cq_entries"], row["poller"]) == (4, 8, tasks[11])
    assert (row["nr_files"], row["nr_buffers"]) == (0, 0)


def test_where_closes_are_not_seen_a_fact_proves_nothing(tmp_path: Path) -> None:
    """The descriptor may be another one by now."""
    for folder, changes, found in (("a", {}, 128), ("b", {"chosen_cpus": (0,)}, 0)):
        rig = Rig(tmp_path / folder, born=False)
        rig.enter("io_uring_enter", fd=7, to_submit=1)
        rig.submit(1)
        rig.leave("io_uring_enter", 1)
        rig.now += 10_000
        rig.spool.fact_ring(rig.tick(), PID, 7, cq_entries=128)
        rig.run(**changes)
        assert rig.ring()["cq_entries"] == found


def test_a_fact_about_a_descriptor_that_changed_meanwhile_proves_nothing(rig: Rig) -> None:
    """The look began before the ring was there."""
    begin = rig.tick()
    rig.setup(flags=0)
    rig.spool.fact_ring(rig.now + 5, PID, FD, begin=begin, sq_entries=64, cq_entries=128, poller=PID)
    rig.call("sync")
    rig.run()
    assert rig.ring()["poller"] is None


def test_registering_tells_the_descriptor_of_an_older_ring(tmp_path: Path) -> None:
    """The call names it, unless by an index."""
    rig = Rig(tmp_path, born=False)
    for ctx, fd, opcode in ((A, 7, FILES), (B, 1, FILES | 1 << 31)):
        rig.enter("io_uring_register", fd=fd, opcode=opcode)
        rig.event("register", ctx=ctx, opcode=FILES, nr_files=1, nr_bufs=0, ret=0)
        rig.leave("io_uring_register")
    rig.run()
    assert rig.of("rings", "fd") == [7, -1]
    assert rig.of("operations", "fd", "handle")[1] == (-1, None)


def test_the_poller_is_born_inside_of_setup(rig: Rig) -> None:
    """A worker of the same time is not."""
    rig.enter("io_uring_setup", entries=4)
    rig.fork(PID, 11, PID)
    rig.event("create", ctx=A, fd=FD, sq_entries=4, cq_entries=8, flags=SQPOLL)
    rig.leave("io_uring_setup", FD)
    rig.name(PID, 11, b"iou-sqp-10")
    rig.worker(12, owner=11, maker=11)
    rig.run()
    tasks = {t["tid"]: t["task"] for t in rig.rows["tasks"]}
    assert rig.ring()["poller"] == tasks[11]


def test_a_shared_poller_is_known_by_its_submissions(rig: Rig) -> None:
    """SETUP_ATTACH_WQ: no thread is born."""
    rig.fork(PID, 11, PID)
    rig.name(PID, 11, b"iou-sqp-10")
    rig.setup(flags=SQPOLL | 1 << 5)
    rig.submit(1, tid=11)
    rig.run()
    tasks = {t["tid"]: t["task"] for t in rig.rows["tasks"]}
    assert rig.ring()["poller"] == tasks[11]


def test_an_older_request_tells_whose_its_ring_is(tmp_path: Path) -> None:
    """A worker executes it for its owner."""
    rig = Rig(tmp_path, born=False)
    rig.worker(11)
    rig.event("file_get", tid=11, ctx=A, req=1, user_data=4, fd=3)
    rig.complete(2, tid=KWORKER)
    rig.run()
    assert (rig.ring()["pid"], rig.ring()["nr_requests"], rig.ring()["nr_orphans"]) == (PID, 1, 1)


@pytest.mark.parametrize("late", [False, True])
def test_the_poller_tells_which_descriptor_an_older_ring_has(tmp_path: Path, *, late: bool) -> None:
    """No thread enters it. The fact of the descriptor names the poller, before or after the submission."""
    rig = Rig(tmp_path, born=False)
    rig.spool.fact_task(1_000, PID, 11, ppid=1, comm=b"iou-sqp-10")
    if late:
        rig.submit(9, tid=11)
        rig.now += 10_000
    at = rig.now if late else 2_000
    rig.spool.fact_fd(at, PID, 7, b"anon_inode:[io_uring]")
    rig.spool.fact_ring(at, PID, 7, sq_entries=64, cq_entries=128, poller=11)
    rig.now += 10_000
    rig.submit(1, tid=11)
    rig.run()
    assert (rig.ring()["fd"], rig.ring()["sq_entries"], rig.ring()["cq_entries"]) == (7, 64, 128)


def test_a_poller_of_two_descriptors_tells_nothing(tmp_path: Path) -> None:
    """Either may be the ring."""
    rig = Rig(tmp_path, born=False)
    rig.spool.fact_task(1_000, PID, 11, ppid=1, comm=b"iou-sqp-10")
    for fd in (7, 8):
        rig.spool.fact_fd(2_000, PID, fd, b"anon_inode:[io_uring]")
        rig.spool.fact_ring(2_000, PID, fd, sq_entries=64, cq_entries=128, poller=11)
    rig.submit(1, tid=11)
    rig.run()
    assert (rig.ring()["fd"], rig.ring()["sq_entries"]) == (-1, 0)


def test_a_descriptor_found_for_one_call_ends_no_ring(tmp_path: Path) -> None:
    """Its number was given away during the call: the time of its close is unknown."""
    rig = Rig(tmp_path, born=False)
    rig.fork(PID, 12, PID)
    rig.enter("io_uring_enter", fd=3, to_submit=1)
    rig.submit(1)
    rig.call("openat", 3, tid=12, dfd=-100)
    rig.leave("io_uring_enter", 1)
    rig.run()
    assert (rig.ring()["fd"], rig.ring()["end_time_ns"]) == (3, None)
