"""docs/explanation/rules/rings.md: descriptors that requests of rings open and close."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from build.ringrig import FD, PID, A, Rig

if TYPE_CHECKING:
    from pathlib import Path

OPENAT, CLOSE, FILES = 18, 19, 2
OPENED, UNSEEN, BY_RING = 0, 4, 5
OPENER, CLOSER = 77, 78
"""user_data, to tell them apart."""


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    """Process 10, born in the trace, with a ring."""
    rig = Rig(tmp_path)
    rig.setup()
    return rig


def open_by_ring(rig: Rig, fd: int) -> int:
    """An OPENAT that gives this number."""
    rig.submit(1, opcode=OPENAT, user_data=OPENER)
    done = rig.complete(1, fd, user_data=OPENER)
    rig.call("sync")
    return done


def close_by_ring(rig: Rig, result: int = 0) -> int:
    """A CLOSE; of what, nothing tells."""
    rig.submit(1, opcode=CLOSE, user_data=CLOSER)
    done = rig.complete(1, result, user_data=CLOSER)
    rig.call("sync")
    return done


def read(rig: Rig, fd: int) -> None:
    """Read one byte."""
    rig.call("read", 1, fd=fd, count=1)


def handles(rig: Rig, fd: int) -> list[tuple[int | None, ...]]:
    """Handles of a number, in the order of their starts: origin, open time, close time."""
    found = sorted((h for h in rig.rows["handles"] if h["fd"] == fd), key=lambda h: h["handle"])
    return [(h["origin"], h["open_time_ns"], h["close_time_ns"]) for h in found]


def test_what_a_request_opens_is_a_handle(rig: Rig) -> None:
    """Calls name it; flags and position are unknown, and its first use is marked."""
    opened = open_by_ring(rig, 7)
    read(rig, 7)
    closed = rig.call("close", fd=7)
    rig.run()
    assert handles(rig, 7) == [(BY_RING, opened, closed)]
    assert rig.of("operations", "first_use", "offset_bytes")[2] == (1, None)
    assert [h["open_flags"] for h in rig.rows["handles"] if h["fd"] == 7] == [None]


def test_what_was_in_the_slot_ended_unseen(rig: Rig) -> None:
    """The number was free."""
    rig.call("openat", 7, dfd=-100)
    opened = open_by_ring(rig, 7)
    rig.run()
    assert [row[2] for row in handles(rig, 7)] == [None, None]
    assert [row[0] for row in handles(rig, 7)] == [OPENED, BY_RING]
    assert handles(rig, 7)[1][1] == opened


def test_with_registered_files_the_result_may_be_an_index(rig: Rig) -> None:
    """Then the slot is unknown, even if it has not changed.

    When no files are registered any more, results are descriptors.
    """
    rig.event("register", ctx=A, opcode=FILES, nr_files=8, nr_bufs=0, ret=0)
    rig.call("openat", 7, dfd=-100)
    open_by_ring(rig, 7)
    read(rig, 7)
    rig.event("register", ctx=A, opcode=FILES + 1, nr_files=0, nr_bufs=0, ret=0)
    open_by_ring(rig, 8)
    rig.run()
    assert [row[0] for row in handles(rig, 7)] == [OPENED, UNSEEN]
    assert [row[0] for row in handles(rig, 8)] == [BY_RING]


def test_a_ring_older_than_the_trace_may_have_registered_files(tmp_path: Path) -> None:
    """Unless a fact says that it has none."""
    for folder, nr_files, origin in (("a", None, UNSEEN), ("b", 0, BY_RING), ("c", 2, UNSEEN)):
        rig = Rig(tmp_path / folder, born=False)
        rig.spool.fact_fd(2_000, PID, FD, b"anon_inode:[io_uring]")
        if nr_files is not None:
            rig.spool.fact_ring(2_000, PID, FD, nr_files=nr_files)
        rig.enter("io_uring_enter", fd=FD, to_submit=1)
        rig.submit(1, opcode=OPENAT, user_data=OPENER)
        rig.complete(1, 7, user_data=OPENER)
        rig.leave("io_uring_enter", 1)
        read(rig, 7)
        rig.run()
        assert [row[0] for row in handles(rig, 7)] == [origin]


def test_a_close_by_a_ring_may_have_closed_anything(rig: Rig) -> None:
    """Every handle ends at an unknown time; later uses appear unseen, and no earlier look names them."""
    rig.call("openat", 7, dfd=-100)
    rig.call("openat", 8, dfd=-100)
    begin = rig.tick()
    close_by_ring(rig)
    rig.spool.fact_fd(rig.now + 5, PID, 7, b"/late", begin=begin)
    read(rig, 7)
    rig.run()
    assert handles(rig, 7)[0][2] is None
    assert handles(rig, 8)[0][2] is None
    assert handles(rig, 7)[1][:2] == (UNSEEN, None)
    assert rig.totals.nr_names_refused == 1


def test_a_later_look_names_what_is_left(rig: Rig) -> None:
    """If it began after the close."""
    rig.call("openat", 7, dfd=-100)
    close_by_ring(rig)
    rig.now += 10_000
    rig.spool.fact_fd(rig.tick(), PID, 7, b"/late")
    rig.now += 10_000
    read(rig, 7)
    rig.run()
    assert rig.totals.nr_names_verified == 1
    (named,) = [h for h in rig.rows["handles"] if h["name_source"]]
    assert rig.of("operations", "handle")[-1] == named["handle"]


def test_who_is_amid_a_call_moves_what_comes_there(rig: Rig) -> None:
    """A read from before the close may read the file that is opened after it, whose position is then unknown."""
    rig.fork(PID, 11, PID)
    rig.enter("read", 11, fd=7, count=10)
    close_by_ring(rig)
    rig.call("openat", 7, dfd=-100, flags=2)
    rig.call("read", 10, fd=7, count=10)
    rig.leave("read", 10, 11)
    rig.run()
    reads = [row for row in rig.rows["operations"] if row["fd"] == 7 and row["bytes_request"] == 10]
    assert [row["offset_bytes"] for row in reads] == [None, None]


def test_a_close_that_fails_changes_nothing(rig: Rig) -> None:
    """EBADF: there was none."""
    rig.call("openat", 7, dfd=-100)
    close_by_ring(rig, -9)
    closed = rig.call("close", fd=7)
    rig.run()
    assert handles(rig, 7)[0][2] == closed


def test_rings_are_never_closed_by_a_ring(rig: Rig) -> None:
    """The kernel refuses: handle and ring live on."""
    close_by_ring(rig)
    rig.enter("io_uring_enter", fd=FD, to_submit=1)
    rig.leave("io_uring_enter", 0)
    closed = rig.call("close", fd=FD)
    rig.run()
    assert len(handles(rig, FD)) == 1
    assert rig.of("batches", "ring") == [rig.ring()["ring"]]
    assert rig.ring()["end_time_ns"] == closed
