"""The order of a thread's events: calls in flight, handles that end, one batch after another, time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from build.otf2_batches import STOP, BatchMaker
from build.otf2_written import Written, attributes

if TYPE_CHECKING:
    from collections.abc import Callable

Write = Any
T = 2_000_000


def test_call_in_flight_has_no_complete(before: BatchMaker, write: Write) -> None:
    """Its region is left at the thread's next call, or at the end of the trace, and marked."""
    before.call("read", T, None, handle=0, bytes_request=1)
    before.call("newfstat", T + 50, None)
    written = write(before.make())
    assert written.shape() == [
        ("+read", T),
        ("OperationBegin", T),
        ("-read", T + 50),
        ("+fstat", T + 50),
        ("-fstat", STOP),
    ]
    assert [attributes(event) for event in written.find("Leave")] == [{"InFlight": 1}] * 2
    assert [attributes(event) for event in written.find("Enter")] == [{}] * 2


def test_call_in_flight_ends_with_its_thread(maker: BatchMaker, write: Write) -> None:
    """A thread that has exited is in no call; one still there is in it until the trace ends."""
    maker.task(0, exit_time_ns=T + 70)
    maker.task(1)
    for task in (0, 1):
        maker.call("newfstat", T, None, task=task)
    written: Written = write(maker.make())
    assert written.shape("thread fio 100")[-1] == ("-fstat", T + 70)
    assert written.shape("thread fio 101")[-1] == ("-fstat", STOP)


def test_dup_target_is_destroyed_within_the_call(before: BatchMaker, write: Write) -> None:
    """The engine orders dup2's silent close after the row; it happened inside the call, before the new handle."""
    before.row("handles", handle=1, fd=4, origin=3)
    before.row("handles", handle=2, fd=4, origin=1, parent=0)
    before.call("dup3", T, T + 9, handle=0, handle2=2, fd=3, result=4)
    before.row("handle_events", before=1, time_ns=T + 9, task=0, handle=1)
    assert write(before.make()).shape() == [
        ("+dup3", T),
        ("DestroyHandle", T + 9),
        ("DuplicateHandle", T + 9),
        ("-dup3", T + 9),
    ]


def test_handles_closed_by_exec_end_inside_it(before: BatchMaker, write: Write) -> None:
    """The event is known before execve's row, whose beginning lies earlier; another thread's call comes between."""
    before.task(1)
    before.row("handle_events", before=0, time_ns=T + 5, task=0, handle=0)
    before.call("newfstat", T + 6, T + 7, task=1)
    before.call("execve", T, T + 9, result=0)
    assert write(before.make()).shape() == [("+execve", T), ("DestroyHandle", T + 5), ("-execve", T + 9)]


def test_handle_event_at_the_moment_of_the_entry_is_inside(before: BatchMaker, write: Write) -> None:
    """Only the call can end a handle then."""
    before.row("handle_events", before=0, time_ns=T, task=0, handle=0)
    before.call("execve", T, T + 9, result=0)
    assert write(before.make()).shape() == [("+execve", T), ("DestroyHandle", T), ("-execve", T + 9)]


def test_handle_events_between_and_after_calls(maker: BatchMaker, write: Write) -> None:
    """Each at its own time; twice the same handle is destroyed once."""
    maker.task(0)
    for handle in range(3):
        maker.row("handles", handle=handle, fd=handle, origin=3)
    maker.row("handle_events", before=0, time_ns=T - 5, task=0, handle=0)
    maker.call("newfstat", T, T + 1)
    maker.row("handle_events", before=1, time_ns=T + 20, task=0, handle=1)
    maker.row("handle_events", before=1, time_ns=T + 21, task=0, handle=1)
    assert write(maker.make()).shape() == [
        ("DestroyHandle", T - 5),
        ("+fstat", T),
        ("-fstat", T + 1),
        ("DestroyHandle", T + 20),
    ]


def test_state_lives_on_from_batch_to_batch(write: Write) -> None:
    """Handles, open regions and waiting handle events of one batch are those of the next."""
    first, second = BatchMaker(), BatchMaker()
    first.call("openat", T, T + 1, handle=0, fd=3, result=3)
    first.row("handle_events", before=2, time_ns=T + 15, task=0, handle=0)
    first.call("newfstat", T + 10, None)
    second.first_operation = 2
    second.call("execve", T + 12, T + 20)
    second.task(0)
    second.row("handles", handle=0, fd=3)
    assert write(first.make(), second.make()).shape() == [
        ("+openat", T),
        ("CreateHandle", T + 1),
        ("-openat", T + 1),
        ("+fstat", T + 10),
        ("-fstat", T + 12),
        ("+execve", T + 12),
        ("DestroyHandle", T + 15),
        ("-execve", T + 20),
    ]


def test_time_never_decreases_and_says_how_often_it_would(before: BatchMaker, write: Callable[..., Written]) -> None:
    """OTF2 drops an event whose time decreases: it is moved instead, and counted in the trace's properties."""
    before.call("newfstat", T, T + 10)
    before.call("newfstat", T + 4, T + 20)
    written = write(before.make())
    assert [time for _, time in written.shape()] == [T, T + 10, T + 10, T + 20]
    assert "LO2IO::MOVED_EVENTS\nProperty value                 1" in written.printed("-I")
