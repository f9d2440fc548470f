"""System calls in a Perfetto trace: its own trace processor agrees with the tables."""

from __future__ import annotations

import tracemalloc
from typing import TYPE_CHECKING, Any

import _otf2
import numpy as np
import pytest
from build.foreign_archives import START, Archive
from build.tablemaker import COMPLETE, FSTAT, READ, UNLINKAT, WRITE, make_batch, repeat_operation, write_trace

from lo2io.exports import formats
from lo2io.exports.perfetto.packets import MAGIC
from lo2io.otf2.foreign.opening import open_any

if TYPE_CHECKING:
    from pathlib import Path

    from build.traceprocessor import TraceProcessor

    Row = dict[str, Any]

THREADS = [
    {"task": 0, "process": 7, "pid": 100, "tid": 100, "comm": b"dd"},
    {"task": 1, "process": 7, "pid": 100, "tid": 101, "comm": b"helper", "exit_time_ns": 9_000},
    {"task": 2, "process": 8, "pid": 100, "tid": 100, "comm": b"cat", "start_time_ns": 50_000},
    {"task": 3, "process": 9, "pid": 300, "tid": 300, "comm": b"idle one"},
]
FILES = [{"file": 4, "path": b"/data/in"}, {"file": 9, "path": "/data/größe\n".encode()}]
HANDLES = [{"handle": 0, "file": 4, "fd": 3}, {"handle": 1, "file": 9, "fd": 4}, {"handle": 5, "fd": 6}]
NOTES = ("id", "cpu", "fd", "offset_bytes", "bytes_request", "bytes_result", "result")


def call(number: int, begin: int, end: int | None, **more: Any) -> Row:
    """A row of operations."""
    ended = {"status": 1} if end is None else {"end_time_ns": end}
    return {"id": number, "begin_time_ns": begin, "task": 0, "call": READ, **ended, **more}


def drawn(
    processor: TraceProcessor, folder: Path, operations: list[Row], *, threads: list[Row] = THREADS, **tables: list[Row]
) -> list[Row]:
    """The calls of such a trace as the trace processor has them, in the order of time."""
    batch = make_batch(tasks=threads, files=FILES, handles=HANDLES, operations=operations, **tables)
    trace = write_trace(folder / "T", [batch])
    formats.export(trace, "perfetto", folder / "T.pftrace", lambda _: None)
    return processor.load(folder / "T.pftrace").drawn("call")


def test_a_call_is_what_the_table_says(processor: TraceProcessor, tmp_path: Path) -> None:
    """Times, name, and all its numbers as notes. Unknown values have no note, nor have error and flags of 0."""
    rows = [
        call(1, 1_000, 1_500, handle=0, fd=3, cpu=1, offset_bytes=0, bytes_request=4096, bytes_result=10, result=10),
        call(2, 2_000, 2_001, call=WRITE, handle=1, handle2=0, error=5, result=-5, offset_bytes=2**62, flags=2**31),
        call(3, 3_000, 3_000, call=FSTAT, handle=5, result=-(2**63) + 1),
    ]
    found = drawn(processor, tmp_path, rows)
    assert [(row["name"], row["ts"], row["dur"]) for row in found] == [
        ("read", 1_000, 500),
        ("write", 2_000, 1),
        ("fstat", 3_000, 0),
    ]
    beside = ("slice", "name", "ts", "dur", "track", "depth")
    assert [{key: value for key, value in row.items() if key not in beside} for row in found] == [
        {
            **dict(zip(NOTES, (1, 1, 3, 0, 4096, 10, 10), strict=True)),
            "file": "/data/in",
        },
        {
            "id": 2,
            "cpu": 0,
            "offset_bytes": 2**62,
            "result": -5,
            "error": 5,
            "flags": 2**31,
            "file": "/data/größe\n",
            "file2": "/data/in",
        },
        {"id": 3, "cpu": 0, "result": -(2**63) + 1},
    ]


def test_threads_are_perfettos(processor: TraceProcessor, tmp_path: Path) -> None:
    """Calls lie in threads with their names, of processes.

    One pid may be two processes, which differ by their start.
    """
    drawn(processor, tmp_path, [call(1, 1_000, 1_500), call(2, 2_000, 3_000, task=1), call(3, 60_000, 70_000, task=2)])
    sql = """
        select s.ts, t.tid, t.name, p.pid, p.name, p.start_ts, p.upid from slice s
        join thread_track on s.track_id = thread_track.id join thread t using (utid) join process p using (upid)
        order by s.ts
    """
    first, second, third = processor.query(sql)
    assert first[:6] == (1_000, 100, "dd", 100, "dd", None)
    assert second[:6] == (2_000, 101, "helper", 100, "dd", None)
    assert third[:6] == (60_000, 100, "cat", 100, "cat", 50_000)
    assert first[6] == second[6] != third[6]
    assert processor.query("select count(*) from process where pid = 300") == [(0,)]


def test_calls_in_flight(processor: TraceProcessor, tmp_path: Path) -> None:
    """A thread's last call goes on until the thread's end, or has none; an earlier one is a moment: it came back."""
    rows = [
        call(1, 1_000, None),
        call(2, 2_000, 2_500),
        call(3, 3_000, None),
        call(4, 4_000, None, task=1),
    ]
    found = drawn(processor, tmp_path, rows)
    assert [(row["id"], row["dur"], row.get("status")) for row in found] == [
        (1, 0, "in flight"),
        (2, 500, None),
        (3, -1, "in flight"),
        (4, 5_000, "in flight"),
    ]


def test_calls_of_nobody(processor: TraceProcessor, tmp_path: Path) -> None:
    """Calls of unknown threads may overlap, and keep their lengths."""
    nobody = 2**32 - 1
    rows = [call(1, 1_000, 5_000, task=nobody), call(2, 2_000, 6_000, task=nobody), call(3, 6_000, 7_000, task=nobody)]
    found = drawn(processor, tmp_path, rows)
    assert [(row["id"], row["dur"], row["depth"]) for row in found] == [(1, 4_000, 0), (2, 4_000, 0), (3, 1_000, 0)]


def test_paths(processor: TraceProcessor, tmp_path: Path) -> None:
    """Paths that calls were given: whole where the directory is known; the longest, too."""
    longest = b"x" * 4095
    rows = [call(number, 1_000 * number, 1_000 * number + 1, call=UNLINKAT) for number in range(1, 6)]
    paths = [
        {"operation": 1, "path": b"a", "directory": b"/d"},
        {"operation": 1, "place": 1, "path": b"/b", "directory": b"/"},
        {"operation": 3, "path": b"", "directory": b"/d", "source": 3},
        {"operation": 4, "path": longest, "directory": b"/"},
        {"operation": 5, "directory": b"/d"},
    ]
    found = drawn(processor, tmp_path, rows, paths=paths)
    assert [(row.get("path"), row.get("path2")) for row in found] == [
        ("/d/a", "/b"),
        (None, None),
        ("/d", None),
        (f"/{longest.decode()}", None),
        (None, None),
    ]


def test_off_the_cpu(processor: TraceProcessor, tmp_path: Path) -> None:
    """Stretches lie within their calls, also where both end at one time and the next call begins then."""
    rows = [call(1, 1_000, 2_000), call(2, 2_000, 2_700), call(3, 3_000, None)]
    stretches = [
        {"task": 0, "begin_time_ns": 1_100, "end_time_ns": 1_200, "state": 0},
        {"task": 0, "begin_time_ns": 1_500, "end_time_ns": 2_000, "state": 1},
        {"task": 0, "begin_time_ns": 2_600, "state": 3},
        {"task": 0, "begin_time_ns": 3_100, "state": 2},
    ]
    found = drawn(processor, tmp_path, rows, off_cpu=stretches)
    assert [(row["id"], row["dur"], row["depth"]) for row in found] == [(1, 1_000, 0), (2, 700, 0), (3, -1, 0)]
    assert [(row["name"], row["ts"], row["dur"], row["depth"]) for row in processor.drawn("off CPU")] == [
        ("preempted", 1_100, 100, 1),
        ("waiting for a device", 1_500, 500, 1),
        ("sleeping", 2_600, 0, 1),
        ("blocked", 3_100, -1, 1),
    ]


def test_many_batches(processor: TraceProcessor, tmp_path: Path) -> None:
    """Calls and their paths find each other over the borders of batches; progress ends at all."""
    rows, step = 140_000, 20  # more than two batches of calls
    operations = repeat_operation(call(1, 0, 0, call=UNLINKAT), rows)
    ids = operations.operations["id"] = np.arange(1, rows + 1, dtype=np.uint64)
    operations.operations["begin_time_ns"] = 10 * ids.astype(np.int64)
    operations.operations["end_time_ns"] = 10 * ids.astype(np.int64) + 5
    paths = [{"operation": n, "path": b"p%d" % n} for n in range(step, rows + 1, step)]
    trace = write_trace(tmp_path / "T", [make_batch(tasks=THREADS), operations, make_batch(paths=paths)])
    told: list[float] = []
    formats.export(trace, "perfetto", tmp_path / "T.pftrace", told.append)
    processor.load(tmp_path / "T.pftrace")
    sql = """
        select count(*), count(p.string_value), sum(p.string_value = 'p' || i.int_value), sum(i.int_value), sum(s.dur)
        from slice s join args i on i.arg_set_id = s.arg_set_id and i.key = 'debug.id'
        left join args p on p.arg_set_id = s.arg_set_id and p.key = 'debug.path' where s.category = 'call'
    """
    assert processor.query(sql) == [(rows, len(paths), len(paths), rows * (rows + 1) // 2, 5 * rows)]
    assert told == sorted(told)
    assert told[-1] == 1.0


def test_memory_does_not_grow_with_calls(tmp_path: Path) -> None:
    """Four times the calls need no more of it."""
    part = repeat_operation(call(1, 1_000, 1_500, handle=0), 65_536)
    peaks = []
    for batches in (2, 8):
        trace = write_trace(tmp_path / f"T{batches}", [make_batch(tasks=THREADS, files=FILES), *[part] * batches])
        tracemalloc.start()
        formats.export(trace, "perfetto", tmp_path / f"{batches}.pftrace", lambda _: None)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < 1.1 * peaks[0]


def test_the_recording_and_its_losses(processor: TraceProcessor, tmp_path: Path) -> None:
    """One slice spans the recording and says what it is and how complete; each gap is on one CPU's track."""
    losses = [
        {"cpu": 1, "begin_time_ns": 500, "end_time_ns": 900, "lost": 3},
        {"cpu": 1, "end_time_ns": 400, "lost": 1},
        {"cpu": 0, "begin_time_ns": 700, "lost": 2},
    ]
    drawn(processor, tmp_path, [], losses=losses)
    (recording,) = processor.drawn("recording")
    assert (recording["ts"], recording["dur"]) == (0, 1_000_000_000)
    assert recording["command"] == "dd if=/dev/zero"
    assert (recording["hostname"], recording["kernel"], recording["lost"]) == ("node1", "6.18.0", COMPLETE.lost)
    assert [(row["cpu"], row["ts"], row["dur"], row["lost"]) for row in processor.drawn("loss")] == [
        (1, 0, 400, 1),
        (1, 500, 400, 3),
        (0, 700, 1_000_000_000 - 700, 2),
    ]


def test_clocks(processor: TraceProcessor, tmp_path: Path) -> None:
    """Times are the trace's own numbers, with the readings of the other clocks beside them."""
    drawn(processor, tmp_path, [call(1, 1_000, 1_500)])
    readings = processor.query("select clock_id, clock_value from clock_snapshot order by clock_id")
    assert readings == [(1, 1_700_000_000_000_000_000), (3, 5_000), (10, 0)]
    assert processor.query("select int_value from metadata where name = 'trace_time_clock_id'") == [(10,)]


def test_only_a_trace_of_lo2ios_is_replaced(tmp_path: Path) -> None:
    """It begins with a packet that marks it; with --force it is replaced, another program's is not."""
    trace, target = write_trace(tmp_path / "T", [make_batch()]), tmp_path / "T.pftrace"
    formats.export(trace, "perfetto", target, lambda _: None)
    assert target.read_bytes().startswith(MAGIC)
    assert formats.FORMATS["perfetto"].magic == MAGIC
    formats.export(trace, "perfetto", target, lambda _: None, force=True)
    target.write_bytes(b"\n\x02P\x01")
    with pytest.raises(formats.UsageError, match="not such an export"):
        formats.export(trace, "perfetto", target, lambda _: None, force=True)


def test_operations_of_other_tools_that_do_not_block(processor: TraceProcessor, tmp_path: Path) -> None:
    """They continue during other calls of their thread, so they have tracks of their own, and no slice ends another."""
    archive = Archive("Score-P 9.0", resolution=1_000_000_000)
    file, region = archive.handle(0, "/data/in"), archive.region("read")
    read = _otf2.IO_OPERATION_MODE_READ, _otf2.IO_OPERATION_FLAG_NON_BLOCKING, 100
    begins = [("IoOperationBegin", 11 + number, file, *read, number) for number in range(3)]
    archive.call("aio_read", 10, 20, *begins)
    archive.add("Enter", 30, region)
    archive.add("IoOperationComplete", 40, file, 100, 0)
    archive.add("Leave", 50, region)
    archive.add("IoOperationComplete", 60, file, 100, 1)
    with open_any(archive.trace.write(tmp_path / "T")) as trace:
        formats.export(trace, "perfetto", tmp_path / "x", lambda _: None)
    found = processor.load(tmp_path / "x").drawn("call")
    assert [(row["name"], row["ts"] - START, row["dur"]) for row in found] == [
        ("aio_read", 10, 10),
        ("POSIX I/O read, non-blocking", 11, 29),
        ("POSIX I/O read, non-blocking", 12, 48),
        ("POSIX I/O read, non-blocking", 13, -1),
        ("read", 30, 20),
    ]
    assert {row["depth"] for row in found} == {0}
    tracks = [row["track"] for row in found]
    assert tracks[0] == tracks[4]
    assert len(set(tracks)) == 4


def test_threads_that_nobody_knows_have_one_track(processor: TraceProcessor, tmp_path: Path) -> None:
    """A task without a row among the threads."""
    drawn(processor, tmp_path, [call(1, 1_000, 1_500, task=77)])
    sql = "select t.name from slice s join track t on s.track_id = t.id where s.ts = 1000"
    assert ("unknown threads",) in processor.query(sql)
