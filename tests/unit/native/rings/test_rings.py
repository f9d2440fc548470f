"""docs/explanation/rules/rings.md: rings: their lives, owners and totals."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from build.ringrig import FD, NO_FD, PID, SQPOLL, A, B, Rig

if TYPE_CHECKING:
    from pathlib import Path

OTHER = 20
"""Another process."""
CHILD = 30
KWORKER = 44
FILES = 2
"""IORING_REGISTER_FILES"""


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
    """Like an open."""
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
    """The end of the first one was not seen; its requests in flight stay its own."""
    rig.setup(fd=5)
    rig.submit(1)
    again = rig.setup(fd=6)
    rig.requests(2)
    rig.run()
    assert rig.of("rings", "fd", "nr_requests", "create_time_ns", "end_time_ns")[0][:2] == (5, 1)
    assert rig.of("rings", "fd", "nr_requests", "create_time_ns", "end_time_ns")[1] == (6, 2, again, None)
    assert rig.of("rings", "end_time_ns") == [None, None]


def test_two_rings_of_one_process(rig: Rig) -> None:
    """Their addresses tell them apart."""
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
    """Whichever thread submits to it then."""
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
    """The fate of its first one is unknown; the second one's close ends it."""
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


@pytest.mark.parametrize("loses", [False, True])
def test_records_lost_within_a_call_leave_the_rings_descriptor_unknown(tmp_path: Path, *, loses: bool) -> None:
    """Entry and exit may be of two calls then, so the entry's descriptor need not be the ring that waits."""
    rig = Rig(tmp_path, born=False)
    rig.enter("io_uring_enter", fd=FD, min_complete=1)
    if loses:
        rig.spool.lost(rig.tick(), 1, 3)
    rig.event("cqring_wait", ctx=A, min_events=1)
    rig.leave("io_uring_enter")
    rig.run()
    (handle,) = rig.rows["handles"]
    assert (handle["fd"], rig.ring()["nr_batches"]) == (FD, 1)
    assert (rig.ring()["fd"], rig.ring()["handle"]) == ((-1, None) if loses else (FD, handle["handle"]))


def test_a_ring_ends_with_its_process(rig: Rig) -> None:
    """No close is needed; completions that kernel threads post afterwards count."""
    rig.setup()
    rig.submit(1)
    end = rig.ends(PID, PID)
    rig.complete(1, -125, tid=KWORKER)
    rig.run()
    assert (rig.ring()["end_time_ns"], rig.ring()["nr_completions"], rig.ring()["nr_orphans"]) == (end, 1, 0)


def test_a_ring_of_unknown_descriptor_ends_with_its_process(tmp_path: Path) -> None:
    """A ring older than the trace that is never entered."""
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
    """Its descriptor may have a duplicate without close-on-exec."""
    rig = Rig(tmp_path, born=False)
    rig.submit(1)
    rig.name(PID, PID, b"ten", is_exec=True)
    rig.run()
    assert rig.ring()["end_time_ns"] is None


def test_an_exec_closes_a_rings_descriptor(rig: Rig) -> None:
    """Rings' descriptors are close-on-exec."""
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


def test_a_ring_is_its_makers_though_another_process_submits(rig: Rig) -> None:
    """A fork passed it on."""
    rig.setup()
    rig.fork(CHILD, CHILD, PID)
    rig.submit(1, tid=CHILD)
    rig.run()
    assert (rig.ring()["pid"], rig.ring()["nr_requests"]) == (PID, 1)


def test_the_most_that_was_registered(rig: Rig) -> None:
    """Not the number at the end."""
    rig.setup()
    for files, buffers in ((5, 0), (5, 7), (2, 1)):
        rig.event("register", ctx=A, opcode=FILES, nr_files=files, nr_bufs=buffers, ret=0)
    rig.run()
    assert (rig.ring()["nr_files"], rig.ring()["nr_buffers"]) == (5, 7)


def test_a_ring_of_which_no_process_is_known_has_no_row(tmp_path: Path) -> None:
    """Though a CQE of it was seen, in a context that proves nothing."""
    rig = Rig(tmp_path, born=False)
    rig.complete(1, -125, tid=KWORKER)
    rig.run()
    assert not rig.rows["rings"]
    assert not rig.rows["ring_states"]
    assert rig.totals.nr_orphan_cqes == 1


def test_a_ring_outside_of_the_cgroup_is_not_recorded(rig: Rig) -> None:
    """Events of rings are those of everybody."""
    rig.setup()
    rig.requests(1)
    rig.run(cgroup="/elsewhere")
    assert not rig.rows["rings"]
    assert rig.totals.nr_ring_requests == 0


def test_rings_of_others_have_no_rows(tmp_path: Path) -> None:
    """In process mode, and they count nowhere."""
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


def test_a_completion_of_a_request_that_no_recorded_thread_had_is_an_orphan(tmp_path: Path) -> None:
    """The request has no row, so nothing else counts its CQE."""
    rig = Rig(tmp_path, mode="process", born=False)
    rig.spool.fact_task(1_000, PID, PID, flags=1)
    rig.setup()
    rig.event("file_get", OTHER, ctx=A, req=1, user_data=7, fd=4)
    rig.complete(1, 4096, tid=OTHER, user_data=7)
    rig.run()
    assert not rig.rows["ring_requests"]
    assert (rig.ring()["nr_orphans"], rig.totals.nr_orphan_cqes) == (1, 1)


def test_links_of_unknown_requests_are_counted_for_recorded_threads(tmp_path: Path) -> None:
    """Nothing tells whose ring a stranger's event is about."""
    rig = Rig(tmp_path, mode="process", born=False)
    rig.spool.fact_task(1_000, PID, PID, flags=1)
    rig.event("link", PID, ctx=B, req=1, target_req=2)
    rig.event("link", OTHER, ctx=B, req=1, target_req=2)
    rig.run()
    assert rig.totals.nr_ring_unclear == 1


def test_rings_of_lo2io_itself_have_no_rows(tmp_path: Path) -> None:
    """They are left out, like its calls."""
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
    """Its number was given to another file: the time of its close is unknown."""
    rig.setup()
    rig.call("openat", FD, dfd=-100)
    rig.run()
    assert rig.ring()["end_time_ns"] is None
