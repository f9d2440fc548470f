"""docs/explanation/rules/rings.md: requests of libaio, as BPF programs tell."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from build.ringrig import PID
from build.sqerig import SqeRig

if TYPE_CHECKING:
    from pathlib import Path

PREAD, PWRITE, FSYNC, POLL, PREADV, PWRITEV = 0, 1, 2, 5, 7, 8
CONTEXT, UNKNOWN_COMMAND, O_APPEND = 0x7F0000000000, 9, 0o2000
ASKS = ("place", "opcode", "fd", "offset_bytes", "bytes_request", "data", "iocb")


@pytest.fixture
def rig(tmp_path: Path) -> SqeRig:
    """Process 10, born in the trace."""
    return SqeRig(tmp_path)


def submit(rig: SqeRig, iocbs: list[dict[str, Any]], ret: int, tid: int = PID) -> None:
    """An io_submit of these, which takes so many."""
    time = None
    for place, told in enumerate(iocbs):
        time = rig.iocb(place, time=time, tid=tid, **told)
    rig.call("io_submit", ret, tid=tid, ctx_id=CONTEXT, nr=len(iocbs))


def test_each_request_is_a_row(rig: SqeRig) -> None:
    """Its arguments, in the order of the array; vectors have an unknown number of bytes, other opcodes move none."""
    submit(
        rig,
        [
            {"opcode": PREAD, "fd": 7, "off": 4096, "length": 512, "data": 2**64 - 1, "iocb": 0x7FFE0000},
            {"opcode": PWRITE, "fd": 8, "off": 2**40, "length": 2**33, "data": 5},
            {"opcode": PREADV, "fd": 7, "off": 1, "length": 3},
            {"opcode": FSYNC, "fd": 8, "off": 9, "length": 9},
            {"opcode": POLL, "fd": 9},
            {"opcode": 4711, "fd": 9},
        ],
        6,
    )
    rig.run()
    (call,) = rig.of("operations", "id")
    assert rig.of("iocbs", "operation") == [call] * 6
    assert rig.of("iocbs", *ASKS) == [
        (0, PREAD, 7, 4096, 512, 2**64 - 1, 0x7FFE0000),
        (1, PWRITE, 8, 2**40, 2**33, 5, 0),
        (2, PREADV, 7, 1, None, 0, 0),
        (3, FSYNC, 8, None, None, 0, 0),
        (4, POLL, 9, None, None, 0, 0),
        (5, UNKNOWN_COMMAND, 9, None, None, 0, 0),
    ]


@pytest.mark.parametrize(("ret", "rows"), [(3, 3), (2, 2), (0, 0), (-9, 0), (4, 3)])
def test_rows_are_of_those_that_the_call_took(rig: SqeRig, ret: int, rows: int) -> None:
    """As many as the result, but none without a record."""
    submit(rig, [{"fd": 7}] * 3, ret)
    rig.run()
    assert rig.of("iocbs", "place") == list(range(rows))


def test_each_call_has_its_own(rig: SqeRig) -> None:
    """Also if two threads submit at the same time, and if one call's end is not seen."""
    rig.fork(PID, 11, PID)
    rig.iocb(0, fd=7, data=1)
    rig.enter("io_submit", ctx_id=CONTEXT, nr=1)
    submit(rig, [{"fd": 8, "data": 2}], 1, tid=11)
    rig.leave("io_submit", 1)
    rig.iocb(0, fd=7, data=3)
    rig.enter("io_submit", ctx_id=CONTEXT, nr=1)
    submit(rig, [{"fd": 7, "data": 4}], 1)
    rig.run()
    calls = {row["id"]: (row["tid"], row["result"]) for row in rig.rows["operations"]}
    found = [(*calls[row["operation"]], row["data"]) for row in rig.rows["iocbs"]]
    assert found == [(11, 1, 2), (PID, 1, 1), (PID, 1, 4)]


def test_a_lost_record_ends_the_row_of_places(rig: SqeRig) -> None:
    """Records after it may be another call's."""
    time = rig.iocb(0, fd=7)
    rig.iocb(2, time=time, fd=7)
    rig.call("io_submit", 3, ctx_id=CONTEXT, nr=3)
    rig.run()
    assert rig.of("iocbs", "place") == [0]


def test_what_is_told_of_a_lost_call_is_not_the_next_ones(rig: SqeRig) -> None:
    """The next call's own records have another time."""
    rig.iocb(0, fd=7, data=1)
    submit(rig, [{"fd": 7, "data": 2}], 1)
    rig.run()
    assert rig.of("iocbs", "data") == [2]


def test_the_handle_is_that_of_the_entry(rig: SqeRig) -> None:
    """A fact names it, at its own time; another thread closes the descriptor after the call."""
    rig.fork(PID, 11, PID)
    opened = rig.call("openat", 7, dfd=-100)
    rig.told(7, b"data")
    rig.iocb(0, fd=7, length=10)
    rig.call("io_submit", 1, ctx_id=CONTEXT, nr=1)
    closed = rig.call("close", tid=11, fd=7)
    rig.run()
    (row,) = rig.rows["handles"]
    assert (row["open_time_ns"], row["close_time_ns"]) == (opened, closed)
    assert rig.of("iocbs", "handle") == [row["handle"]]
    assert rig.names()[row["handle"]] == b"/data"


def test_a_write_that_appends_has_no_offset(rig: SqeRig) -> None:
    """Linux appends, whatever the offset is."""
    rig.call("openat", 7, dfd=-100, flags=O_APPEND)
    submit(rig, [{"opcode": opcode, "fd": 7, "off": 512, "length": 10} for opcode in (PWRITE, PREAD, PWRITEV)], 3)
    rig.run()
    assert rig.of("iocbs", "offset_bytes") == [None, 512, None]


def test_a_requests_own_flags_prevail_over_the_files(rig: SqeRig) -> None:
    """RWF_APPEND (0x10) appends through any descriptor, RWF_NOAPPEND (0x20) through none. No read appends."""
    rig.call("openat", 7, dfd=-100, flags=O_APPEND)
    rig.call("openat", 8, dfd=-100, flags=0)
    asked = ((8, PWRITE, 0x10), (7, PWRITEV, 0x20), (7, PWRITE, 0x10), (8, PWRITE, 0x20), (8, PREAD, 0x10))
    submit(rig, [{"opcode": what, "fd": fd, "off": 512, "length": 10, "rw_flags": how} for fd, what, how in asked], 5)
    rig.run()
    assert rig.of("iocbs", "offset_bytes") == [None, 512, None, 512, 512]


def test_many_do_not_fit_into_a_batch(tmp_path: Path) -> None:
    """They wait for the next batches, in order."""
    rig = SqeRig(tmp_path, batch_rows=8)
    submit(rig, [{"fd": 7, "data": n} for n in range(100)], 100)
    rig.run()
    assert rig.of("iocbs", "data") == list(range(100))


def test_a_thread_that_ends_takes_them_along(rig: SqeRig) -> None:
    """A later thread of its number does not find them."""
    rig.fork(PID, 11, PID)
    time = rig.iocb(0, tid=11, fd=7)
    rig.ends(PID, 11)
    rig.fork(PID, 11, PID)
    rig.iocb(1, time=time, tid=11, fd=7)
    rig.call("io_submit", 2, tid=11, ctx_id=CONTEXT, nr=2)
    rig.run()
    assert rig.of("iocbs", "place") == []
