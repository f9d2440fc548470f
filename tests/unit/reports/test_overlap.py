"""How much of the time with I/O under way a process computed, worked out by hand."""

from __future__ import annotations

from dataclasses import astuple, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
from build.tablemaker import (
    COMPLETE,
    FSYNC,
    META,
    NOP,
    READ,
    READV,
    WRITE,
    make_batch,
    write_trace,
)

from lo2io.errors import TraceError
from lo2io.model import UNKNOWN_I64, EventCompleteness
from lo2io.reports.summary.overlap import _threads
from lo2io.reports.summary.summary import summarize
from lo2io.reports.summary.sums import gather
from lo2io.trace.reader import EARLIEST_BEGIN, LATEST_END

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from lo2io.model import Completeness, SpoolMeta
    from lo2io.trace.reader import Trace

WAITS = replace(META, layers=("waits",))
PIPE = [{"file": 0, "mode": 0o010600}]


def thread(task: int, begin: int | None, end: int | None, cpu: int | None = None, **more: Any) -> dict[str, Any]:
    """A thread of process 1; None: unknown."""
    known = {"start_time_ns": begin, "exit_time_ns": end, "cpu_ns": cpu}
    row = {"task": task, "process": 1, "pid": 100, "tid": 100 + task, "comm": b"app"}
    return {**row, **{name: value for name, value in known.items() if value is not None}, **more}


def call(task: int, begin: int, end: int | None, kind: int = READ, **more: Any) -> dict[str, Any]:
    """A call that keeps no CPU; ``end`` None: in flight."""
    times = {} if end is None else {"end_time_ns": end, "run_queue_ns": 0, "blocked_ns": end - begin}
    row = {"task": task, "call": kind, "begin_time_ns": begin, "status": int(end is None)}
    return {**row, **times, **more}


def overlap(
    directory: Path, threads: Iterable[dict[str, Any]], calls: Iterable[dict[str, Any]], **tables: Any
) -> tuple[int, ...]:
    """I/O, overlapped, not overlapped, unknown: of the trace of 1,000 ns."""
    rows = [{"id": number, **row} for number, row in enumerate(calls, 1)]
    batch = make_batch(tasks=threads, operations=rows, **tables)
    found = summarize(write_trace(directory, [batch], spool=WAITS, span=(0, 1000))).overlap
    assert found is not None
    assert found.io_ns == found.overlapped_ns + found.unoverlapped_ns + found.unknown_ns
    return astuple(found)


def test_a_thread_alone_overlaps_nothing(tmp_path: Path) -> None:
    """While the only thread is in a call, nobody computes, whatever is known of its CPU time."""
    calls = [call(0, 100, 300), call(0, 300, 310, WRITE), call(0, 500, 600)]
    assert overlap(tmp_path, [thread(0, None, None)], calls) == (310, 0, 310, 0)


def test_threads_that_are_all_in_calls_overlap_nothing(tmp_path: Path) -> None:
    """Time with two calls under way counts once, and each moment of it has nobody outside of a call."""
    threads = [thread(0, 0, 1000, 900), thread(1, 200, 500, 100)]
    assert overlap(tmp_path, threads, [call(1, 200, 500), call(0, 100, 600)]) == (500, 0, 500, 0)


@pytest.mark.parametrize(
    ("cpu", "parts"),
    [
        (300, (300, 300, 0, 0)),  # it had a CPU all the time
        (0, (300, 0, 300, 0)),  # it slept all the time
        (100, (300, 0, 200, 100)),  # 100 ns, some perhaps in the 100 ns without I/O
        (250, (300, 150, 50, 100)),  # all but 50 of its 400 - 100 ns: at least 150 while I/O was under way
        (None, (300, 0, 0, 300)),
    ],
)
def test_cpu_time_bounds_what_a_free_thread_computed(tmp_path: Path, cpu: int | None, parts: tuple[int, ...]) -> None:
    """A thread outside of calls computed at most its CPU time, and at least what its time without I/O cannot hold."""
    life = (300, 600) if cpu in {300, 0} else (300, 700)
    threads = [thread(0, 0, 1000, 0), thread(1, *life, cpu)]
    assert overlap(tmp_path, threads, [call(0, 300, 600)]) == parts


def test_cpu_time_in_calls_is_not_computing(tmp_path: Path) -> None:
    """A thread that used its CPU time in calls of its own did not compute beside another's I/O."""
    threads = [thread(0, 0, 1000, 0), thread(1, 300, 600, 200)]
    copied = call(1, 300, 500, blocked_ns=0)  # 200 ns on a CPU, all it ever had
    assert overlap(tmp_path, threads, [copied, call(0, 300, 600)]) == (300, 0, 300, 0)


def test_calls_whose_cpu_time_is_unknown_widen_the_bounds(tmp_path: Path) -> None:
    """Of 200 ns of CPU time up to 100 may have gone into a call of which no part is known."""
    threads = [thread(0, 0, 1000, 0), thread(1, 300, 600, 200)]
    unseen = {"run_queue_ns": -(1 << 63), "blocked_ns": -(1 << 63)}
    assert overlap(tmp_path, threads, [call(1, 300, 400, **unseen), call(0, 300, 600)]) == (300, 100, 100, 100)


def test_a_thread_that_is_older_than_the_trace_has_no_lower_bound(tmp_path: Path) -> None:
    """Its CPU time may be from before the trace."""
    assert overlap(tmp_path, [thread(0, 0, 1000, 0), thread(1, None, 400, 400)], [call(0, 0, 400)]) == (400, 0, 0, 400)


def test_several_threads_together_bound_more_than_one(tmp_path: Path) -> None:
    """At most, threads computed one after the other; at least, all at one time."""
    threads = [thread(0, 0, 1000, 0), thread(1, 100, 500, 300), thread(2, 100, 500, 50)]
    assert overlap(tmp_path, threads, [call(0, 100, 500)]) == (400, 300, 50, 50)


def test_workers_and_pollers_of_rings_do_not_compute(tmp_path: Path) -> None:
    """The kernel's threads of a ring are no threads of the program."""
    threads = [thread(0, 0, 1000, 0), thread(1, 0, 1000, 900, kind=1), thread(2, 0, 1000, 900, kind=2)]
    assert overlap(tmp_path, threads, [call(0, 100, 500)]) == (400, 0, 400, 0)


def test_requests_of_rings_overlap_with_their_own_thread(tmp_path: Path) -> None:
    """A thread that computes all its life does so while its requests are under way; a NOP is no I/O."""
    requests = [
        {"id": 10, "task": 0, "opcode": READV, "submit_time_ns": 100, "complete_time_ns": 300},
        {"id": 11, "task": 0, "opcode": FSYNC, "submit_time_ns": 200, "complete_time_ns": 400},
        {"id": 12, "task": 0, "opcode": NOP, "submit_time_ns": 500, "complete_time_ns": 700},
        {"id": 13, "task": 0, "opcode": READV, "submit_time_ns": 950, "status": 1},
    ]
    assert overlap(tmp_path, [thread(0, 0, 1000, 1000)], [], ring_requests=requests) == (350, 350, 0, 0)


def test_a_call_in_flight_lasts_as_long_as_its_thread(tmp_path: Path) -> None:
    """It ends with the thread, or with the trace."""
    threads = [thread(0, 0, 700, 0), thread(1, 0, None)]
    assert overlap(tmp_path, threads, [call(0, 600, None), call(1, 900, None)]) == (200, 0, 100, 100)


def test_pipes_are_no_storage(tmp_path: Path) -> None:
    """A read of a pipe waits for another program. Its thread does not compute meanwhile."""
    threads = [thread(0, 0, 1000, 0), thread(1, 0, 1000, 0)]
    handles = [{"handle": 5, "process": 1, "file": 0}]
    calls = [call(0, 100, 200), call(1, 0, 1000, handle=5)]
    assert overlap(tmp_path, threads, calls, handles=handles, files=PIPE) == (100, 0, 100, 0)


def test_calls_of_unknown_threads_are_unknown(tmp_path: Path) -> None:
    """Nothing tells who else was in their process."""
    assert overlap(tmp_path, [thread(0, 0, 1000, 0)], [call(9, 100, 200)]) == (100, 0, 0, 100)


def test_the_sum_of_processes_is_the_sum_of_their_own_times(tmp_path: Path) -> None:
    """Threads of other processes neither compute for one, nor share its time."""
    threads = [thread(0, 0, 1000, 0), thread(1, 0, 1000, 1000, process=2, pid=200)]
    calls = [call(0, 100, 300), call(1, 200, 400)]
    assert overlap(tmp_path, threads, calls) == (400, 0, 400, 0)


def brute_force(threads: list[dict[str, Any]], calls: list[dict[str, Any]], stop: int) -> tuple[int, int]:
    """I/O under way, and of it the time without a thread outside of calls, moment by moment."""
    busy, free = np.zeros(stop, np.int64), np.zeros(stop, np.int64)
    for row in threads:
        free[row["start_time_ns"] : row["exit_time_ns"]] += 1
    for row in calls:
        busy[row["begin_time_ns"] : row["end_time_ns"]] += 1
        free[row["begin_time_ns"] : row["end_time_ns"]] -= 1
    return int((busy > 0).sum()), int(((busy > 0) & (free == 0)).sum())


def write_bounds(trace: Trace, shift_ns: int | None) -> None:
    """Write the operations anew, with bounds that are so far too late; None: without bounds."""
    file = trace.path / "lo2io/operations.arrow"
    batches = list(trace.record_batches("operations"))
    with pa.ipc.new_file(pa.OSFile(str(file), "wb"), batches[0].schema) as new:
        for batch in batches:
            begin, end = min(batch["begin_time_ns"].to_pylist()), max(batch["end_time_ns"].to_pylist())
            told = {EARLIEST_BEGIN: str(begin + (shift_ns or 0)), LATEST_END: str(end)}
            new.write_batch(batch, None if shift_ns is None else told)


@pytest.mark.parametrize("told", [True, False])
def test_calls_that_reach_far_back_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, told: bool) -> None:
    """Over many batches, with calls that outlast some, each moment is counted as it was.

    Also in a trace of an earlier version, whose file does not tell the bounds of its batches.
    """
    monkeypatch.setattr("lo2io.trace.writer.CHUNK_ROWS", 1)
    random, stop = np.random.default_rng(3), 20_000
    threads = [thread(task, 0, stop) for task in range(4)]
    calls: list[dict[str, Any]] = []
    for task in range(4):
        time = 0
        while (time := time + int(random.integers(1, 30))) < stop - 1:
            lasted = int(random.integers(2000, 6000) if random.random() < 0.02 else random.integers(0, 40))
            calls.append(call(task, time, min(time + lasted, stop)))
            time += lasted
    calls.sort(key=lambda row: row["end_time_ns"])
    rows = [{"id": number, **row} for number, row in enumerate(calls, 1)]
    batches = [
        make_batch(tasks=threads if not at else [], operations=rows[at : at + 20]) for at in range(0, len(rows), 20)
    ]
    trace = write_trace(tmp_path, batches, span=(0, stop))
    assert sum(1 for _ in trace.batches("operations", ["id"])) > 20
    if not told:
        write_bounds(trace, None)
    assert (trace.operation_bounds() is not None) == told
    found = gather(trace).overlap.of(slice(None))
    io_ns, certain_ns = brute_force(threads, calls, stop)
    assert found is not None
    assert (found.io_ns, found.unoverlapped_ns, found.unknown_ns) == (io_ns, certain_ns, io_ns - certain_ns)


def test_wrong_bounds_of_a_batch_are_a_trace_error(tmp_path: Path) -> None:
    """By them calls are looked up that last long."""
    threads = [thread(task, 0, 1000) for task in range(2)]
    rows = [{"id": 1, **call(0, 100, 300)}, {"id": 2, **call(1, 200, 400)}]
    trace = write_trace(tmp_path, [make_batch(tasks=threads, operations=rows)], span=(0, 1000))
    assert trace.operation_bounds() == [(100, 400)]
    write_bounds(trace, 0)
    assert gather(trace).overlap.of(slice(None)) is not None
    write_bounds(trace, 1)
    with pytest.raises(TraceError, match="from 101 to 400 ns, its rows from 100 to 400"):
        gather(trace)
    for shift in (1 << 64, -(1 << 64)):
        write_bounds(trace, shift)
        with pytest.raises(TraceError, match=r"operations\.arrow"):
            gather(trace)


def test_requests_that_reach_far_back_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests of a ring count as calls do, where their table has many batches and operations have few."""
    monkeypatch.setattr("lo2io.trace.writer.CHUNK_ROWS", 1)
    rows = [
        {"task": 0, "opcode": READV, "submit_time_ns": at, "complete_time_ns": at + 5} for at in range(100, 900, 10)
    ]
    rows.insert(70, {"task": 0, "opcode": READV, "submit_time_ns": 103, "complete_time_ns": 804})
    requests = [{"id": number, **row} for number, row in enumerate(rows, 10)]
    batches = [make_batch(ring_requests=requests[at : at + 8]) for at in range(0, len(requests), 8)]
    first = make_batch(tasks=[thread(0, 0, 1000, 0)], operations=[{"id": 1, **call(0, 0, 50)}])
    found = summarize(write_trace(tmp_path, [first, *batches], span=(0, 1000))).overlap
    assert found is not None
    assert astuple(found) == (50 + 3 + 702 + 45, 0, 50 + 3 + 702 + 45, 0)


def test_requests_are_read_far_ahead_of_calls(tmp_path: Path) -> None:
    """One batch of requests covers several of calls. Each waits for its moment in a queue of its own."""
    nr = 9_000
    calls = [{"id": 2 * n + 1, **call(0, 10 * n + 2, 10 * n + 4, NOP)} for n in range(nr)]
    rings = [
        {"id": 2 * n + 2, "task": 0, "opcode": READV, "submit_time_ns": 10 * n, "complete_time_ns": 10 * n + 5}
        for n in range(nr)
    ]
    threads = [thread(0, 0, 10 * nr, 0), thread(1, 0, 10 * nr, 0)]
    batches = [make_batch(tasks=threads, operations=calls[:3_000], ring_requests=rings)]
    batches += [make_batch(operations=calls[at : at + 3_000]) for at in range(3_000, nr, 3_000)]
    trace = write_trace(tmp_path, batches, span=(0, 10 * nr))
    found = gather(trace).overlap.of(slice(None))
    assert found is not None
    assert found.io_ns == 5 * nr


def test_a_sample_of_requests_tells_nothing(tmp_path: Path) -> None:
    """A request that was left out may have been under way at any time."""
    batch = make_batch(tasks=[thread(0, 0, 1000)], operations=[{"id": 1, **call(0, 0, 50)}])
    summary = summarize(write_trace(tmp_path, [batch], spool=replace(WAITS, sample_rate=10), span=(0, 1000)))
    assert summary.overlap is None
    assert summary.overlap_unknown == "a part of the rings' requests was written"


@pytest.mark.parametrize("event", ["syscalls:sys_exit_read", "task:task_newtask"])
def test_nothing_is_said_where_records_are_missing(tmp_path: Path, event: str) -> None:
    """A lost call or thread may have been anything. Lost requests of disks change nothing."""
    batch = make_batch(tasks=[thread(0, 0, 1000)], operations=[{"id": 1, **call(0, 0, 50)}])
    for name, known in ((event, False), ("block:block_rq_complete", True)):
        events = (EventCompleteness(event=name, cpu=0, count=3, lost=1, samples=2, slack=0),)
        proof = replace(COMPLETE, lost=1, events=events)
        trace = write_trace(tmp_path / name.replace(":", "-"), [batch], completeness=proof, span=(0, 1000))
        summary = summarize(trace)
        assert (summary.overlap is not None) == known
        assert summary.overlap_unknown == ("" if known else "records of calls or threads are missing")
        assert (summary.processes[0].overlap is not None) == known


@pytest.mark.parametrize(
    ("proof", "spool"),
    [
        (replace(COMPLETE, compat=1), WAITS),
        (replace(COMPLETE, foreign=1), WAITS),
        (replace(COMPLETE, absent_cpus=1), WAITS),
        (replace(COMPLETE, untold_iocbs=1), WAITS),
        (COMPLETE, replace(WAITS, tasks_lost=1)),
        (COMPLETE, replace(WAITS, missed_runs=1)),
    ],
)
def test_nothing_is_said_where_calls_were_not_seen(tmp_path: Path, proof: Completeness, spool: SpoolMeta) -> None:
    """No event counts these calls."""
    batch = make_batch(tasks=[thread(0, 0, 1000)], operations=[{"id": 1, **call(0, 0, 50)}])
    summary = summarize(write_trace(tmp_path, [batch], completeness=proof, spool=spool, span=(0, 1000)))
    assert (summary.overlap, summary.overlap_unknown) == (None, "records of calls or threads are missing")


def test_the_time_on_a_cpu_is_known_of_whoever_ends_within_the_trace(tmp_path: Path) -> None:
    """Later the thread may have computed, and its time at its exit has that, too."""
    threads = [thread(0, 100, 1000, 70), thread(1, 100, 1001, 70), thread(2, 100, None)]
    trace = write_trace(tmp_path, [make_batch(tasks=threads)], spool=WAITS, span=(0, 1000))
    assert _threads(trace, 3, 0, 1000)["cpu_ns"].tolist() == [70, UNKNOWN_I64, UNKNOWN_I64]
