"""The rules of docs/explanation/design.md for rings: their lives, owners and totals."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from ringrig import FD, NO_FD, PID, SQPOLL, A, B, Rig

if TYPE_CHECKING:
    from pathlib import Path

OTHER = 20
"""Another process."""
CHILD = 30
KWORKER = 44
FILES, RESIZE = 2, 33
"""IORING_REGISTER_*"""


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    """Process 10, born in the trace."""
    return Rig(tmp_path)


def test_a_ring_that_is_made_and_closed(rig: Rig) -> None:
    """Everything create tells, the handle its setup opened, and the end."""
    made = rig.setup(flags=0x40)
    rig.requests(3)
    closed = rig.call("close", fd=FD)
    rig.run()
    row = rig.ring()
    (handle,) = [h for h in rig.rows["handles"] if h["fd"] == FD]
    (task,) = [t["task"] for t in rig.rows["tasks"] if t["tid"] == PID]
    assert (row["kind"], row["context"] % 2**64, row["pid"], row["task"]) == (0, A, PID, task)
    assert (row["fd"], row["handle"]) == (FD, handle["handle"])
    assert (row["sq_entries"], row["cq_entries"], row["flags"]) == (4, 8, 0x40)
    assert (row["create_time_ns"], row["end_time_ns"]) == (made, closed)
    assert (row["nr_requests"], row["nr_completions"], row["most_in_flight"]) == (3, 3, 3)
    assert (row["nr_files"], row["nr_buffers"], row["poller"]) == (0, 0, None)
    assert (handle["open_flags"], handle["close_on_exec"], handle["close_time_ns"]) == (0o2000002, 1, closed)
    assert rig.totals.nr_ring_requests == 3


def test_the_call_that_makes_a_ring_names_its_handle(rig: Rig) -> None:
    """As an open does."""
    rig.setup()
    rig.run()
    (row,) = rig.rows["operations"]
    assert (row["fd"], row["handle"], row["result"]) == (FD, rig.ring()["handle"], FD)


def test_a_ring_without_a_descriptor(rig: Rig) -> None:
    """SETUP_REGISTERED_FD_ONLY: the result is an index; standard output is not closed by it."""
    rig.call("write", 1, fd=1, count=1)
    rig.enter("io_uring_setup", entries=4)
    rig.event("create", ctx=A, fd=1, sq_entries=4, cq_entries=8, flags=NO_FD)
    rig.leave("io_uring_setup", 1)
    rig.call("write", 1, fd=1, count=1)
    rig.run()
    assert (rig.ring()["fd"], rig.ring()["handle"]) == (-1, None)
    first, setup, second = rig.of("operations", "handle")
    assert first == second
    assert setup is None


def test_an_address_that_comes_again_is_another_ring(rig: Rig) -> None:
    """Nobody saw the first one end; what was in flight on it stays its own."""
    rig.setup(fd=5)
    rig.submit(1)
    again = rig.setup(fd=6)
    rig.requests(2)
    rig.run()
    assert rig.of("rings", "fd", "nr_requests", "create_time_ns", "end_time_ns")[0][:2] == (5, 1)
    assert rig.of("rings", "fd", "nr_requests", "create_time_ns", "end_time_ns")[1] == (6, 2, again, None)
    assert rig.of("rings", "end_time_ns") == [None, None]


def test_two_rings_of_one_process(rig: Rig) -> None:
    """Are told apart by their addresses."""
    rig.setup(A, 5)
    rig.setup(B, 6)
    rig.requests(1, A)
    rig.requests(3, B)
    rig.run()
    assert rig.of("rings", "fd", "nr_requests") == [(5, 1), (6, 3)]


def test_a_ring_lives_until_its_last_descriptor(rig: Rig) -> None:
    """A duplicate keeps it."""
    rig.setup()
    rig.call("dup", 9, fildes=FD)
    rig.call("close", fd=FD)
    end = rig.call("close", fd=9)
    rig.run()
    assert rig.ring()["end_time_ns"] == end


def test_a_childs_descriptor_keeps_a_ring(rig: Rig) -> None:
    """The ring is still its maker's."""
    rig.setup()
    rig.fork(CHILD, CHILD, PID)
    rig.ends(PID, PID)
    rig.submit(1, tid=CHILD)
    end = rig.ends(CHILD, CHILD)
    rig.run()
    assert (rig.ring()["pid"], rig.ring()["nr_requests"], rig.ring()["end_time_ns"]) == (PID, 1, end)


def test_when_all_who_had_it_are_gone_an_address_is_another_rings(rig: Rig) -> None:
    """Whoever submits to it then."""
    rig.setup()
    rig.fork(CHILD, CHILD, PID)
    rig.ends(PID, PID)
    rig.ends(CHILD, CHILD)
    rig.fork(OTHER, OTHER, 1)
    rig.submit(1, tid=OTHER)
    rig.run()
    assert rig.of("rings", "pid", "nr_requests") == [(PID, 0), (OTHER, 1)]


def test_a_child_that_never_used_it_keeps_a_ring_to_the_end_of_the_trace(rig: Rig) -> None:
    """Its copy of the descriptor is open."""
    rig.setup()
    rig.fork(CHILD, CHILD, PID)
    rig.call("close", fd=FD)
    rig.run()
    assert rig.ring()["end_time_ns"] is None


def test_a_ring_is_known_by_another_descriptor_after_all(rig: Rig) -> None:
    """What became of its first is not known; that it is closed by the second is."""
    rig.setup()
    rig.call("openat", FD, dfd=-100)
    rig.enter("io_uring_enter", fd=9, to_submit=1)
    rig.submit(1)
    rig.leave("io_uring_enter", 1)
    end = rig.call("close", fd=9)
    rig.run()
    assert (rig.ring()["fd"], rig.ring()["end_time_ns"]) == (FD, end)
    assert rig.of("batches", "ring") == [0]


def test_events_know_better_which_ring_a_descriptor_is(rig: Rig) -> None:
    """Its number was given to another ring, unseen: who has it holds that one."""
    rig.setup(A)
    rig.enter("io_uring_enter", fd=FD, to_submit=1)
    rig.submit(1, B)
    rig.leave("io_uring_enter", 1)
    rig.fork(CHILD, CHILD, PID)
    end = rig.ends(PID, PID)
    rig.run()
    assert rig.of("rings", "end_time_ns") == [end, None]
    assert rig.of("batches", "ring") == [1]


def test_a_ring_ends_with_its_process(rig: Rig) -> None:
    """No close is needed; completions that kernel threads post afterwards count."""
    rig.setup()
    rig.submit(1)
    end = rig.ends(PID, PID)
    rig.complete(1, -125, tid=KWORKER)
    rig.run()
    assert (rig.ring()["end_time_ns"], rig.ring()["nr_completions"], rig.ring()["nr_orphans"]) == (end, 1, 0)


def test_a_ring_of_unknown_descriptor_ends_with_its_process(tmp_path: Path) -> None:
    """One older than the trace that is never entered."""
    rig = Rig(tmp_path, born=False)
    rig.submit(1)
    end = rig.ends(PID, PID)
    rig.run()
    assert (rig.ring()["fd"], rig.ring()["end_time_ns"]) == (-1, end)


def test_the_end_of_the_trace_ends_no_ring(tmp_path: Path) -> None:
    """Its threads are alive, and its requests in flight, not torn down."""
    rig = Rig(tmp_path, born=False)
    rig.submit(1)
    rig.run()
    assert rig.ring()["end_time_ns"] is None
    assert rig.of("ring_requests", "status") == [1]


def test_an_exec_ends_no_ring_of_unknown_descriptor(tmp_path: Path) -> None:
    """It may have been duplicated without close-on-exec."""
    rig = Rig(tmp_path, born=False)
    rig.submit(1)
    rig.name(PID, PID, b"ten", is_exec=True)
    rig.run()
    assert rig.ring()["end_time_ns"] is None


def test_an_exec_closes_a_rings_descriptor(rig: Rig) -> None:
    """It is close-on-exec."""
    rig.setup()
    end = rig.name(PID, PID, b"ten", is_exec=True)
    rig.run()
    assert rig.ring()["end_time_ns"] == end


def test_a_closed_ring_that_is_used_has_not_ended(rig: Rig) -> None:
    """A mapping or a registered descriptor holds it: with a poller no call is needed."""
    rig.setup(flags=SQPOLL)
    rig.call("close", fd=FD)
    rig.submit(1)
    rig.run()
    assert rig.ring()["end_time_ns"] is None
    assert rig.ring()["nr_requests"] == 1


def test_after_its_process_an_address_is_another_rings(rig: Rig) -> None:
    """Its create was lost: sizes and maker are not known."""
    rig.setup()
    end = rig.ends(PID, PID)
    rig.fork(OTHER, OTHER, 1)
    rig.requests(1, tid=OTHER)
    rig.run()
    assert rig.of("rings", "pid", "task", "cq_entries", "end_time_ns")[1] == (OTHER, None, 0, None)
    assert rig.of("rings", "end_time_ns")[0] == end


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
    """What a worker executes does not make it the worker's, nor what a kernel thread completes that thread's."""
    rig = Rig(tmp_path, born=False)
    rig.worker(11)
    rig.event("file_get", tid=11, ctx=A, req=1, user_data=4, fd=3)
    rig.complete(1, 5, tid=KWORKER, user_data=4)
    rig.enter("io_uring_enter", fd=7, to_submit=1)
    rig.submit(2)
    rig.leave("io_uring_enter", 1)
    rig.run()
    assert (rig.ring()["pid"], rig.ring()["fd"], rig.ring()["nr_requests"]) == (PID, 7, 2)


def test_a_ring_is_its_makers_though_another_process_submits(rig: Rig) -> None:
    """It was passed over a fork."""
    rig.setup()
    rig.fork(CHILD, CHILD, PID)
    rig.submit(1, tid=CHILD)
    rig.run()
    assert (rig.ring()["pid"], rig.ring()["nr_requests"]) == (PID, 1)


def test_the_fact_of_a_ring_gives_what_events_cannot(tmp_path: Path) -> None:
    """Sizes, poller and what is registered: behind the fact of its descriptor, before the ring is known."""
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
    """What events have said stands."""
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


def test_the_most_that_was_registered(rig: Rig) -> None:
    """Not what is left at the end."""
    rig.setup()
    for files, buffers in ((5, 0), (5, 7), (2, 1)):
        rig.event("register", ctx=A, opcode=FILES, nr_files=files, nr_bufs=buffers, ret=0)
    rig.run()
    assert (rig.ring()["nr_files"], rig.ring()["nr_buffers"]) == (5, 7)


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


def test_a_ring_of_which_no_process_is_known_has_no_row(tmp_path: Path) -> None:
    """Though a CQE of it was seen, in a context that proves nothing."""
    rig = Rig(tmp_path, born=False)
    rig.complete(1, -125, tid=KWORKER)
    rig.run()
    assert not rig.rows["rings"]
    assert not rig.rows["ring_states"]
    assert rig.totals.nr_orphan_cqes == 1


def test_an_older_request_tells_whose_its_ring_is(tmp_path: Path) -> None:
    """A worker executes it for its owner."""
    rig = Rig(tmp_path, born=False)
    rig.worker(11)
    rig.event("file_get", tid=11, ctx=A, req=1, user_data=4, fd=3)
    rig.complete(2, tid=KWORKER)
    rig.run()
    assert (rig.ring()["pid"], rig.ring()["nr_requests"], rig.ring()["nr_orphans"]) == (PID, 1, 1)


def test_a_ring_outside_of_the_cgroup_is_not_recorded(rig: Rig) -> None:
    """Events of rings are those of everybody."""
    rig.setup()
    rig.requests(1)
    rig.run(cgroup="/elsewhere")
    assert not rig.rows["rings"]
    assert rig.totals.nr_ring_requests == 0


def test_rings_of_others_have_no_rows(tmp_path: Path) -> None:
    """In process mode, and what they do counts nowhere."""
    rig = Rig(tmp_path, mode="process", born=False)
    rig.spool.fact_task(1_000, PID, PID, flags=1)
    rig.setup(B, tid=OTHER)
    rig.requests(3, B, tid=OTHER)
    rig.setup(A)
    rig.requests(2, A)
    rig.run()
    assert rig.of("rings", "pid", "nr_requests") == [(PID, 2)]
    assert rig.totals.nr_ring_requests == 2
    assert {row["ring"] for row in rig.rows["ring_states"]} == {rig.ring()["ring"]}


def test_rings_of_lo2io_itself_have_no_rows(tmp_path: Path) -> None:
    """It is left out, like its calls."""
    rig = Rig(tmp_path, recorder_pid=OTHER)
    rig.setup(B, tid=OTHER)
    rig.requests(3, B, tid=OTHER)
    rig.run()
    assert not rig.rows["rings"]
    assert rig.totals.nr_ring_requests == 0


def test_many_rings_that_have_ended_are_not_kept(tmp_path: Path) -> None:
    """1,024 are; of older ones the rows come at once, each exactly once, and a batch may be small."""
    rig = Rig(tmp_path, batch_rows=8)
    for index in range(1_200):
        rig.setup(A + (index << 12), FD)
        rig.call("close", fd=FD)
    for index in (0, 175, 176, 1_199):
        rig.event("complete", KWORKER, ctx=A + (index << 12), req=0, user_data=1)
    rig.run()
    assert [row["ring"] for row in rig.rows["rings"] if row["nr_messages"]] == [176, 1_199]
    assert len(rig.rows["rings"]) == 1_200
    assert len({row["ring"] for row in rig.rows["rings"]}) == 1_200
    assert None not in rig.of("rings", "end_time_ns")


def test_what_closes_unseen_does_not_end_a_ring(rig: Rig) -> None:
    """Its number was given to another file: when it was closed nobody knows."""
    rig.setup()
    rig.call("openat", FD, dfd=-100)
    rig.run()
    assert rig.ring()["end_time_ns"] is None


@pytest.mark.parametrize("late", [False, True])
def test_the_poller_tells_which_descriptor_an_older_ring_has(tmp_path: Path, *, late: bool) -> None:
    """Nobody enters it; the fact of the descriptor names the thread that submits, be it told before or later."""
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
    """Its number was given away while the call ran: when it was closed nobody knows."""
    rig = Rig(tmp_path, born=False)
    rig.fork(PID, 12, PID)
    rig.enter("io_uring_enter", fd=3, to_submit=1)
    rig.submit(1)
    rig.call("openat", 3, tid=12, dfd=-100)
    rig.leave("io_uring_enter", 1)
    rig.run()
    assert (rig.ring()["fd"], rig.ring()["end_time_ns"]) == (3, None)
