"""docs/explanation/rules/rings.md: batches, and for libaio, which is known by its calls alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from build.ringrig import FD, PID, SQPOLL, A, B, Rig

if TYPE_CHECKING:
    from pathlib import Path

SECOND, CHILD, KWORKER = 12, 30, 44
GETEVENTS, BY_INDEX = 1, 16
CONTEXT, ANOTHER = 0x7F0000001000, 0x7F0000002000
COLUMNS = ("asked", "wanted", "submitted", "collected", "nr_requests", "nr_completions", "sleep_time_ns")


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    """Process 10, born in the trace."""
    return Rig(tmp_path)


def enter(rig: Rig, submits: int = 0, wants: int = 0, *, tid: int = PID, fd: int = FD, flags: int = GETEVENTS) -> int:
    """The entry of an io_uring_enter."""
    return rig.enter("io_uring_enter", tid, fd=fd, to_submit=submits, min_complete=wants, flags=flags)


def batches(rig: Rig) -> list[tuple[Any, ...]]:
    """The columns that are no references."""
    return rig.of("batches", *COLUMNS)


def test_a_batch_beside_its_operation(rig: Rig) -> None:
    """The same id, with the arguments and results."""
    rig.setup()
    enter(rig, 3, 2)
    rig.submit(1)
    rig.submit(2)
    rig.complete(1)
    waited = rig.event("cqring_wait", ctx=A, min_events=2)
    rig.complete(2, tid=KWORKER)
    rig.leave("io_uring_enter", 2)
    rig.run()
    assert batches(rig) == [(3, 2, 2, -1, 2, 2, waited)]
    assert rig.of("batches", "id", "ring") == [(rig.rows["operations"][1]["id"], rig.ring()["ring"])]
    assert rig.ring()["nr_batches"] == 1


def test_what_happens_outside_of_a_call_is_no_batchs(rig: Rig) -> None:
    """Requests before, CQEs after."""
    rig.setup()
    rig.submit(1)
    enter(rig, 0, 1)
    rig.leave("io_uring_enter", 0)
    rig.complete(1)
    rig.run()
    assert batches(rig) == [(0, 1, 0, -1, 0, 0, None)]


def test_only_the_own_requests_of_a_thread_count(rig: Rig) -> None:
    """Two threads are inside at once; CQEs of the ring are both's."""
    rig.fork(PID, SECOND, PID)
    rig.setup()
    enter(rig, 1)
    enter(rig, 2, tid=SECOND)
    rig.submit(1)
    rig.submit(2, tid=SECOND)
    rig.submit(3, tid=SECOND)
    for req in (1, 2, 3):
        rig.complete(req)
    rig.leave("io_uring_enter", 1)
    rig.leave("io_uring_enter", 2, tid=SECOND)
    rig.run()
    assert rig.of("batches", "nr_requests", "nr_completions") == [(1, 3), (2, 3)]


def test_what_overflowed_did_not_come_to_the_ring(rig: Rig) -> None:
    """It waits outside of the queue."""
    rig.setup(cq=2, sq=1)
    enter(rig, 1)
    rig.submit(1)
    rig.event("cqe_overflow", ctx=A, user_data=0, res=0)
    rig.leave("io_uring_enter", 1)
    rig.run()
    assert rig.of("batches", "nr_completions") == [0]
    assert rig.ring()["nr_completions"] == 1


def test_the_first_sleep_counts(rig: Rig) -> None:
    """Kernels may tell of several."""
    rig.setup()
    enter(rig, 0, 2)
    first = rig.event("cqring_wait", ctx=A, min_events=2)
    rig.event("cqring_wait", ctx=A, min_events=2)
    rig.leave("io_uring_enter", 0)
    rig.run()
    assert rig.of("batches", "sleep_time_ns") == [first]


def test_a_call_that_fails_submits_nothing(rig: Rig) -> None:
    """Its arguments stand."""
    rig.setup()
    enter(rig, 7, 1)
    rig.leave("io_uring_enter", -16)
    rig.run()
    assert batches(rig)[0][:4] == (7, 1, -1, -1)


def test_a_call_in_flight_is_a_batch_too(rig: Rig) -> None:
    """At the end, or if its exit was lost: the events so far count, in the order of operations."""
    rig.setup()
    enter(rig, 2)
    rig.submit(1)
    enter(rig, 1)
    rig.run()
    assert batches(rig) == [(2, 0, -1, -1, 1, 0, None), (1, 0, -1, -1, 0, 0, None)]
    assert rig.of("batches", "id") == [row["id"] for row in rig.rows["operations"][1:]]
    assert rig.ring()["nr_batches"] == 2


def test_a_poller_submits_outside_of_the_call(rig: Rig) -> None:
    """The call only wakes it."""
    rig.fork(PID, SECOND, PID)
    rig.name(PID, SECOND, b"iou-sqp-10")
    rig.setup(flags=SQPOLL)
    enter(rig, 1, flags=2)
    rig.submit(1, tid=SECOND)
    rig.leave("io_uring_enter", 1)
    rig.run()
    assert rig.of("batches", "submitted", "nr_requests") == [(1, 0)]


def test_a_descriptor_that_is_no_known_ring_names_none(tmp_path: Path) -> None:
    """Until a request or a wait does: from then on its batches are the ring's."""
    rig = Rig(tmp_path, born=False)
    enter(rig, 0, 0)
    rig.leave("io_uring_enter", 0)
    enter(rig, 0, 1)
    rig.event("cqring_wait", ctx=A, min_events=1)
    rig.leave("io_uring_enter", 0)
    enter(rig, 0, 0)
    rig.leave("io_uring_enter", 0)
    rig.run()
    assert rig.of("batches", "ring") == [None, 0, 0]
    assert (rig.ring()["fd"], rig.ring()["nr_batches"]) == (FD, 2)


def test_an_index_is_no_descriptor(rig: Rig) -> None:
    """IORING_ENTER_REGISTERED_RING: nothing is said of standard input; submissions tell the ring."""
    rig.setup()
    enter(rig, 1, fd=0, flags=BY_INDEX)
    rig.submit(1)
    rig.leave("io_uring_enter", 1)
    enter(rig, 0, fd=0, flags=BY_INDEX)
    rig.leave("io_uring_enter", 0)
    rig.run()
    assert rig.of("operations", "fd", "handle")[1:] == [(-1, None), (-1, None)]
    assert rig.of("batches", "ring") == [0, None]
    assert not [handle for handle in rig.rows["handles"] if handle["fd"] == 0]


def test_a_number_that_was_given_to_another_ring(rig: Rig) -> None:
    """The descriptor's description decides, not its number."""
    rig.setup(A)
    rig.call("close", fd=FD)
    rig.setup(B)
    enter(rig)
    rig.leave("io_uring_enter", 0)
    rig.run()
    assert rig.of("batches", "ring") == [1]


# ---- libaio


def submit(rig: Rig, nr: int, result: int, context: int = CONTEXT, tid: int = PID) -> int:
    """io_submit."""
    return rig.call("io_submit", result, tid, ctx_id=context, nr=nr)


def collect(rig: Rig, least: int, most: int, result: int, context: int = CONTEXT) -> int:
    """io_getevents."""
    return rig.call("io_getevents", result, ctx_id=context, min_nr=least, nr=most)


def test_a_context_from_setup_to_destroy(rig: Rig) -> None:
    """Size, maker and times; numbers submitted, collected, and in flight."""
    made = rig.call("io_setup", nr_events=32)
    first = submit(rig, 5, 4)
    second = collect(rig, 1, 8, 3)
    third = collect(rig, 1, 8, 1)
    end = rig.call("io_destroy", ctx=CONTEXT)
    rig.run()
    row = rig.ring()
    (task,) = [t["task"] for t in rig.rows["tasks"] if t["tid"] == PID]
    assert (row["kind"], row["context"], row["sq_entries"], row["task"]) == (1, CONTEXT, 32, task)
    assert (row["create_time_ns"], row["end_time_ns"], row["fd"], row["handle"]) == (made, end, -1, None)
    assert (row["nr_requests"], row["nr_completions"], row["nr_batches"], row["most_in_flight"]) == (4, 4, 3, 4)
    assert batches(rig) == [(5, 0, 4, -1, 0, 0, None), (8, 1, -1, 3, 0, 0, None), (8, 1, -1, 1, 0, 0, None)]
    assert rig.of("ring_states", "time_ns", "in_flight", "cq_least", "cq_most") == [
        (first, 4, 0, 4),
        (third, 0, 0, 0),
    ]
    assert second < third


def test_calls_that_fail_make_no_context(rig: Rig) -> None:
    """Nor do they end one; their batches have none."""
    submit(rig, 1, -22)
    rig.call("io_destroy", -22, ctx=CONTEXT)
    submit(rig, 1, 1)
    collect(rig, 1, 1, -4)
    rig.run()
    assert rig.of("batches", "ring", "submitted", "collected") == [(None, -1, -1), (0, 1, -1), (0, -1, -1)]
    assert rig.ring()["end_time_ns"] is None


def test_a_context_that_comes_again_is_another(rig: Rig) -> None:
    """Its address is given again by the next io_setup."""
    for _ in range(2):
        rig.call("io_setup", nr_events=8)
        submit(rig, 1, 1)
        rig.call("io_destroy", ctx=CONTEXT)
    rig.run()
    assert rig.of("batches", "ring") == [0, 1]
    assert rig.of("rings", "sq_entries", "nr_requests") == [(8, 1), (8, 1)]


def test_which_of_several_setups_made_a_context_is_unknown(rig: Rig) -> None:
    """Even of the last one that is left, but no longer when all are used."""
    rig.call("io_setup", nr_events=8)
    rig.call("io_setup", nr_events=16)
    submit(rig, 1, 1)
    submit(rig, 1, 1, ANOTHER)
    made = rig.call("io_setup", nr_events=4)
    submit(rig, 1, 1, CONTEXT + 8)
    rig.run()
    assert rig.of("rings", "sq_entries", "create_time_ns", "task")[:2] == [(0, None, None)] * 2
    assert rig.of("rings", "sq_entries", "create_time_ns")[2] == (4, made)


def test_setups_of_one_size_tell_the_size(rig: Rig) -> None:
    """The setup itself is still unknown."""
    rig.call("io_setup", nr_events=8)
    rig.call("io_setup", nr_events=8)
    submit(rig, 1, 1)
    submit(rig, 1, 1, ANOTHER)
    rig.run()
    assert rig.of("rings", "sq_entries", "create_time_ns") == [(8, None)] * 2


def test_a_context_may_be_older_than_the_trace(tmp_path: Path) -> None:
    """Then an io_setup before its first use proves nothing; after an exec it does."""
    rig = Rig(tmp_path, born=False)
    rig.call("io_setup", nr_events=8)
    submit(rig, 1, 1)
    end = rig.name(PID, PID, b"ten", is_exec=True)
    rig.call("io_setup", nr_events=16)
    submit(rig, 1, 1)
    rig.run()
    assert rig.of("rings", "sq_entries", "create_time_ns", "end_time_ns")[0] == (0, None, end)
    assert rig.of("rings", "sq_entries", "end_time_ns")[1] == (16, None)


def test_an_exec_leaves_no_context(rig: Rig) -> None:
    """Even an unused one is gone."""
    rig.call("io_setup", nr_events=8)
    rig.name(PID, PID, b"ten", is_exec=True)
    made = rig.call("io_setup", nr_events=16)
    submit(rig, 1, 1)
    rig.run()
    assert (rig.ring()["sq_entries"], rig.ring()["create_time_ns"]) == (16, made)


def test_a_context_made_before_the_recording_begins_has_no_row(tmp_path: Path) -> None:
    """A command's acts before its exec are not its own."""
    rig = Rig(tmp_path, mode="process", born=False)
    rig.spool.fact_task(1_000, PID, PID, flags=3)
    submit(rig, 1, 1)
    rig.name(PID, PID, b"ten", is_exec=True)
    submit(rig, 2, 2)
    rig.run()
    assert rig.of("rings", "nr_requests") == [2]
    assert rig.of("batches", "asked") == [2]


def test_a_failed_setup_made_nothing(rig: Rig) -> None:
    """It is not among the possible ones."""
    rig.call("io_setup", -11, nr_events=9)
    rig.call("io_setup", nr_events=8)
    submit(rig, 1, 1)
    rig.run()
    assert rig.ring()["sq_entries"] == 8


def test_contexts_of_two_processes_are_two(rig: Rig) -> None:
    """However equal their addresses; each ends with its process."""
    rig.fork(CHILD, CHILD, PID)
    submit(rig, 1, 1)
    submit(rig, 1, 1)
    submit(rig, 2, 2, tid=CHILD)
    end = rig.ends(CHILD, CHILD)
    rig.run()
    assert rig.of("rings", "pid", "nr_requests", "end_time_ns") == [(PID, 2, None), (CHILD, 2, end)]


def test_what_is_collected_without_a_call_stays_in_flight(rig: Rig) -> None:
    """More than was submitted is impossible: the rest is older than the trace."""
    submit(rig, 2, 2)
    collect(rig, 1, 9, 5)
    submit(rig, 1, 1)
    rig.run()
    assert rig.of("ring_states", "in_flight", "cq_most") == [(2, 2), (0, 0), (1, 1)]


def test_arguments_beyond_32_bits_are_cut(rig: Rig) -> None:
    """A program may pass anything."""
    rig.enter("io_getevents", ctx_id=CONTEXT, min_nr=2**63, nr=2**40)
    rig.leave("io_getevents", -22)
    rig.run()
    assert rig.of("batches", "asked", "wanted") == [(None, None)]
