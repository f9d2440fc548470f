"""docs/explanation/rules/rings.md: ``ring_states``: in flight, punted, workers, what may lie in the CQ."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from build.ringrig import FD, PID, A, B, Rig

if TYPE_CHECKING:
    from pathlib import Path

KWORKER, SECOND, CHILD = 44, 12, 30
GETEVENTS = 1


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    """Process 10, born in the trace."""
    return Rig(tmp_path)


def fill(rig: Rig) -> list[tuple[int, int | None, int | None]]:
    """Time, least and most of the completion queue."""
    return rig.of("ring_states", "time_ns", "cq_least", "cq_most")


def enter(rig: Rig, submits: int = 0, wants: int = 0, tid: int = PID) -> int:
    """The entry of an io_uring_enter."""
    return rig.enter("io_uring_enter", tid, fd=FD, to_submit=submits, min_complete=wants, flags=GETEVENTS)


def test_a_row_at_each_turn(rig: Rig) -> None:
    """The last submission, the last completion."""
    rig.setup()
    rig.submit(1)
    second = rig.submit(2)
    rig.complete(1)
    done = rig.complete(2)
    third = rig.submit(3)
    rig.run()
    assert rig.of("ring_states", "time_ns", "in_flight") == [(second, 2), (done, 0), (third, 1)]


def test_punts_go_with_submissions(rig: Rig) -> None:
    """One row for all; a request counts as punted once, however often it is handed over."""
    rig.setup()
    rig.submit(1)
    rig.event("queue_async_work", ctx=A, req=1)
    rig.submit(2)
    last = rig.event("queue_async_work", ctx=A, req=2)
    rig.complete(1)
    rig.submit(3)
    rig.run()
    assert rig.of("ring_states", "time_ns", "in_flight", "punted")[0] == (last, 2, 2)
    assert rig.of("ring_states", "in_flight", "punted")[1] == (1, 1)
    assert rig.ring()["nr_punts"] == 2


def test_a_second_punt_counts_for_the_ring_alone(rig: Rig) -> None:
    """``punted`` counts requests."""
    rig.setup()
    rig.submit(1)
    rig.event("queue_async_work", ctx=A, req=1)
    rig.event("queue_async_work", ctx=A, req=1)
    rig.run()
    assert rig.of("ring_states", "punted")[-1] == 1
    assert rig.ring()["nr_punts"] == 2


def test_completions_may_be_collected_at_once(rig: Rig) -> None:
    """Outside of a call nothing proves that one still lies there; none is known to be collected either."""
    rig.setup()
    rig.submit(1)
    rig.submit(2)
    done = rig.complete(1, tid=KWORKER)
    rig.run()
    assert fill(rig)[-1] == (done, 0, 1)


def test_there_are_never_more_than_fit(rig: Rig) -> None:
    """The queue has a size."""
    rig.setup(cq=2, sq=1)
    rig.requests(5)
    rig.run()
    assert fill(rig)[-1][2] == 2


def test_the_only_user_collects_nothing_while_it_is_in_the_kernel(rig: Rig) -> None:
    """From its entry to its exit: the interval collapses after a wait that shows the queue empty."""
    rig.setup()
    rig.requests(2)
    enter(rig, 1, 1)
    submitted = rig.submit(3)
    waited = rig.event("cqring_wait", ctx=A, min_events=1)
    done = rig.complete(3)
    left = rig.leave("io_uring_enter", 1)
    rig.run()
    assert fill(rig)[-4:] == [(submitted, 0, 2), (waited, 0, 0), (done, 1, 1), (left, 0, 1)]


def test_with_a_second_thread_anything_may_be_collected(rig: Rig) -> None:
    """The thread need not even use the ring."""
    rig.fork(PID, SECOND, PID)
    rig.setup()
    enter(rig)
    rig.event("cqring_wait", ctx=A, min_events=1)
    done = rig.complete(1, user_data=1)
    rig.leave("io_uring_enter", 0)
    rig.run()
    assert fill(rig)[-1] == (done, 0, 1)


def test_a_worker_is_no_user(rig: Rig) -> None:
    """Nor is a poller, nor a thread that one of them makes, before it has its name."""
    rig.setup()
    rig.submit(9)
    rig.worker(11)
    rig.fork(PID, 13, 11)
    rig.fork(PID, 15, PID)
    rig.name(PID, 15, b"iou-sqp-10")
    rig.fork(PID, 16, 15)
    enter(rig, 1)
    rig.fork(PID, 14, PID)
    rig.submit(1)
    rig.complete(1)
    rig.leave("io_uring_enter", 1)
    rig.run()
    assert [row[1] for row in fill(rig)][-2:] == [1, 0]


def test_a_thread_that_nobody_saw_born_may_collect(rig: Rig) -> None:
    """It turns up during the call."""
    rig.setup()
    enter(rig)
    rig.submit(1)
    rig.complete(1)
    rig.submit(2)
    rig.call("sync", tid=SECOND)
    rig.spool.fact_task(rig.now + 10_000, PID, SECOND)
    done = rig.complete(2)
    rig.leave("io_uring_enter", 2)
    rig.run()
    assert fill(rig)[-1] == (done, 0, 2)


def test_a_child_may_collect(rig: Rig) -> None:
    """The queue's mapping may be its, too."""
    rig.setup()
    rig.fork(CHILD, CHILD, PID)
    enter(rig)
    rig.submit(1)
    done = rig.complete(1)
    rig.leave("io_uring_enter", 1)
    rig.run()
    assert fill(rig)[-1] == (done, 0, 1)


def test_a_child_born_before_the_ring_cannot_collect(rig: Rig) -> None:
    """It has no mapping of the ring."""
    rig.fork(CHILD, CHILD, PID)
    rig.setup()
    enter(rig)
    rig.submit(1)
    done = rig.complete(1)
    left = rig.leave("io_uring_enter", 1)
    rig.run()
    assert fill(rig)[-2:] == [(done, 1, 1), (left, 0, 1)]


def test_a_process_that_got_the_descriptor_is_not_the_rings(rig: Rig) -> None:
    """Another process' thread may collect in the meantime."""
    rig.fork(CHILD, CHILD, 1)
    rig.setup()
    rig.enter("io_uring_enter", CHILD, fd=9, to_submit=1)
    rig.submit(1, tid=CHILD)
    rig.leave("io_uring_enter", 1, CHILD)
    rig.enter("io_uring_enter", CHILD, fd=9, to_submit=1)
    rig.submit(2, tid=CHILD)
    done = rig.complete(2, tid=CHILD)
    rig.leave("io_uring_enter", 1, CHILD)
    rig.run()
    assert fill(rig)[-1] == (done, 0, 1)


def test_who_shares_a_ring_older_than_the_trace_is_not_known(tmp_path: Path) -> None:
    """Nor how many lie in its queue, until a wait tells; its size is unknown, so there is no limit."""
    rig = Rig(tmp_path, born=False)
    enter(rig, 2, 3)
    submitted = rig.submit(1)
    rig.complete(1)
    rig.submit(2)
    waited = rig.event("cqring_wait", ctx=A, min_events=3)
    done = rig.complete(2)
    rig.leave("io_uring_enter", 2)
    rig.run()
    assert fill(rig)[0] == (submitted, 0, None)
    assert fill(rig)[-2:] == [(waited, 0, 2), (done, 0, 3)]


def test_what_others_post_before_the_wait_is_told_may_have_come_behind_the_look(rig: Rig) -> None:
    """The kernel looks, writes the event, and sleeps."""
    rig.setup()
    rig.submit(1)
    rig.submit(2)
    rig.complete(9, tid=KWORKER, user_data=9)
    enter(rig, 1, 1)
    rig.submit(3)
    rig.complete(1, tid=KWORKER)
    waited = rig.event("cqring_wait", ctx=A, min_events=1)
    rig.run()
    assert fill(rig)[-1] == (waited, 1, 1)


def test_what_the_waiting_thread_did_itself_came_before_the_look(rig: Rig) -> None:
    """So did all that others had posted by then."""
    rig.setup()
    rig.submit(1)
    enter(rig, 1, 3)
    rig.complete(1, tid=KWORKER)
    rig.submit(2)
    rig.complete(2)
    waited = rig.event("cqring_wait", ctx=A, min_events=3)
    rig.run()
    assert fill(rig)[-1] == (waited, 2, 2)


def test_what_came_before_the_call_or_a_submission_was_there_when_it_looked(rig: Rig) -> None:
    """So a wait shows that it has been collected."""
    rig.setup()
    rig.requests(3)
    enter(rig, 0, 1)
    first = rig.event("cqring_wait", ctx=A, min_events=1)
    rig.leave("io_uring_enter", 0)
    rig.requests(3)
    enter(rig, 2, 2)
    rig.submit(1)
    rig.complete(1, tid=KWORKER)
    rig.submit(2)
    second = rig.event("cqring_wait", ctx=A, min_events=2)
    rig.run()
    assert [row for row in fill(rig) if row[0] in {first, second}] == [(first, 0, 0), (second, 1, 1)]


def test_a_wait_outside_of_a_call_proves_nothing(rig: Rig) -> None:
    """Its entry was lost, so what the thread saw in its look is unknown."""
    rig.setup()
    rig.submit(1)
    rig.complete(1)
    waited = rig.event("cqring_wait", ctx=A, min_events=1)
    rig.run()
    assert fill(rig)[-1] == (waited, 0, 1)


def test_rings_keep_their_order(rig: Rig) -> None:
    """Rows of two rings may come in any, those of one in time's."""
    rig.setup(A, 5)
    rig.setup(B, 6)
    for req in range(1, 6):
        rig.submit(req, A)
        rig.submit(req, B)
        rig.complete(req, ctx=B)
        rig.complete(req, ctx=A)
    rig.run()
    for ring in {row["ring"] for row in rig.rows["ring_states"]}:
        times = [row["time_ns"] for row in rig.rows["ring_states"] if row["ring"] == ring]
        assert times == sorted(times)
        assert len(times) == 10


def test_a_small_batch_holds_the_same_rows(tmp_path: Path) -> None:
    """Rows wait for room, in order."""
    found = []
    for folder, batch_rows in (("a", 8), ("b", 1 << 12)):
        rig = Rig(tmp_path / folder, batch_rows=batch_rows)
        rig.setup()
        for _ in range(50):
            rig.requests(2)
        found.append(rig.run().rows["ring_states"])
    assert found[0] == found[1]
    assert len(found[0]) == 100


def test_a_ring_that_has_ended_has_no_workers(rig: Rig) -> None:
    """Its thread may have got them for another ring; nor do later ones serve it."""
    rig.setup()
    rig.submit(1)
    rig.worker(11)
    closed = rig.call("close", fd=FD)
    rig.worker(13)
    rig.ends(PID, 11)
    last = rig.complete(1, -125)
    rig.run()
    assert rig.of("ring_states", "time_ns", "workers", "in_flight")[-2:] == [(closed, 0, 1), (last, 0, 0)]
    assert rig.ring()["nr_workers"] == 1


def test_what_may_be_silent_leaves_with_its_ring(rig: Rig) -> None:
    """CQE_SKIP: nothing else tells their end; one that fails after all is no second one that leaves."""
    rig.setup()
    rig.submit(9, flags=0x40)
    rig.complete(9, -22)
    for req, flags in ((1, 0x40), (2, 0x40), (3, 0), (4, 0)):
        rig.submit(req, flags=flags)
    closed = rig.call("close", fd=FD)
    rig.complete(2, -125)
    last = rig.complete(3, -125)
    rig.event("cqring_wait", ctx=A, min_events=1)
    rig.run()
    assert rig.of("ring_states", "time_ns", "in_flight")[-3:-1] == [(closed, 2), (last, 1)]


def test_a_closed_ring_that_is_used_again_has_them_still(rig: Rig) -> None:
    """The ring had not ended."""
    rig.setup()
    rig.submit(1, flags=0x40)
    rig.call("close", fd=FD)
    rig.submit(2)
    rig.run()
    assert rig.of("ring_states", "in_flight")[-1] == 2


def test_what_leaves_with_its_ring_is_punted_no_longer(rig: Rig) -> None:
    """No more can be punted than are in flight."""
    rig.setup()
    rig.submit(1, flags=0x40)
    rig.event("queue_async_work", ctx=A, req=1)
    ended = rig.ends(PID, PID)
    rig.run()
    assert rig.of("ring_states", "time_ns", "in_flight", "punted")[-1] == (ended, 0, 0)
