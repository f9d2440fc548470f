"""Whole conversions of large machines: many threads, files and CPUs become traces, in bounded memory.

Each conversion runs in a process of its own, with the limit of open files that most shells set at first.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import otf2
import pytest
from build.otf2_written import transfers_by_thread
from build.scalereader import mixed, peak_bytes
from build.scalewriter import ScaleSpool, number_paths

from lo2io.convert.convert import convert
from lo2io.errors import TraceError
from lo2io.model import ClockSync
from lo2io.otf2.write.archive import CHUNK_BYTES
from lo2io.otf2.write.writer import OWN_LOCATIONS
from lo2io.trace.reader import open_trace
from lo2io.verify import verify

if TYPE_CHECKING:
    from lo2io.verify.rules import Counts

MIB = 1 << 20
FIRST = 100_000
SOFT_LIMIT = 1_024
MOST = 1 << 20
"""Bytes: more than any call here returns."""


def converted(spool: Path, trace: Path, limits: tuple[int, int] | None = None) -> dict[str, Any]:
    """Messages of a conversion that may open so many files: at first, and at most."""
    soft, hard = limits or (SOFT_LIMIT, resource.getrlimit(resource.RLIMIT_NOFILE)[1])
    done = subprocess.run(
        [sys.executable, __file__, str(spool), str(trace), str(soft), str(hard)],
        stdout=subprocess.PIPE,
        check=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
    )
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def verified(trace: Path) -> Counts:
    """The trace keeps every rule, without a warning."""
    verdict = verify(trace)
    assert not verdict.broken, verdict.findings[:3]
    return verdict.counts


def threads_spool(path: Path, threads: int, processes: int, calls: int) -> Path:
    """Threads of some processes that read again and again, all at the same time."""
    spool = ScaleSpool(path, 8, calls=("read",), stop_ns=10**13)
    thread, call = np.tile(np.arange(threads), calls), np.repeat(np.arange(calls), threads)
    tid = 10_000 + np.arange(threads)
    spool.fact_task(1_000, tid // processes * processes, tid)
    tid, t = 10_000 + thread, FIRST + 10**6 * call + 100 * thread
    spool.call(t, t + 500_000, thread % 8, tid, "read", mixed(tid, t), exit_cpu=(thread + 1) % 8, fd=3, count=MOST)
    return spool.write()


def test_2500_threads_are_2500_locations(tmp_path: Path) -> None:
    """Their files are written although the soft limit of open files is far below."""
    spool = threads_spool(tmp_path / "spool", 2_500, 125, 2)
    found = converted(spool, tmp_path / "trace")
    assert (found["samples"], found["proven"], found["lost"], found["orphan"]) == (10_000, True, 0, 0)
    counts = verified(tmp_path / "trace")
    assert (counts.operations, counts.handles) == (5_000, 20)
    assert len(list((tmp_path / "trace/traces").glob("*.evt"))) == 2_500 + 20 + 8, "threads, metrics of processes, CPUs"
    assert found["peak_bytes"] < 256 * MIB


def short_threads_spool(path: Path, threads: int, calls: int) -> Path:
    """Threads of one process, one after another, four at a time at most; each makes more calls than the one before."""
    spool = ScaleSpool(path, 4, calls=("read",), stop_ns=10**13)
    spool.fact_task(1_000, 10, 10).call(FIRST, FIRST + 10, 0, 10, "read", 1, fd=3, count=MOST)
    number = np.arange(threads)
    born, tid = FIRST + 10**6 * (number + 1), 10_000 + number
    spool.fork(born, number % 4, 10, tid, 10)
    for call in range(calls):
        t = born + 1_000 + call * 10**5 * np.ones(threads, np.int64)
        makes = number % calls >= call
        spool.call(t[makes], t[makes] + 500, number[makes] % 4, tid[makes], "read", 5, fd=3, count=MOST)
    spool.task_exit(born + 3 * 10**6, number % 4, 10, tid)
    return spool.write()


def test_1500_short_threads_share_locations(tmp_path: Path) -> None:
    """Their files are no more than any shell allows to open, and no thread's calls are taken for another's."""
    spool = short_threads_spool(tmp_path / "spool", 1_500, 3)
    trace = tmp_path / "trace"
    assert converted(spool, trace)["proven"]
    assert verified(trace).operations == 1 + 2 * 1_500
    assert len(list((trace / "traces").glob("*.evt"))) <= OWN_LOCATIONS + 8, "four threads at a time, and the CPUs"
    tids = open_trace(trace).operations.column("tid").to_pylist()
    assert transfers_by_thread(trace) == Counter(tids)
    done = subprocess.run(["otf2-print", "-Werror", trace / "traces.otf2"], stdout=subprocess.DEVNULL, check=False)
    assert done.returncode == 0


def test_1200_processes_that_run_once_share_locations(tmp_path: Path) -> None:
    """Like those that a shell or make starts."""
    spool = ScaleSpool(tmp_path / "spool", 4, calls=("read",), stop_ns=10**13)
    spool.fact_task(1_000, 10, 10).call(FIRST, FIRST + 10, 0, 10, "read", 1, fd=3, count=MOST)
    number = np.arange(1_200)
    born, pid = FIRST + 10**6 * (number + 1), 10_000 + number
    spool.fork(born, number % 4, pid, pid, 10)
    spool.call(born + 1_000, born + 1_500, number % 4, pid, "read", 5, fd=3, count=MOST)
    spool.task_exit(born + 10**6 + 5, number % 4, pid, pid)
    trace = tmp_path / "trace"
    assert converted(spool.write(), trace)["proven"]
    assert verified(trace).operations == 1_201
    assert len(list((trace / "traces").glob("*.evt"))) <= OWN_LOCATIONS * 2 + 8, "metrics of processes among them"
    assert transfers_by_thread(trace) == Counter([10, *pid.tolist()])


def test_600_busy_threads_take_bounded_memory(tmp_path: Path) -> None:
    """Each has more than a chunk of events. With all chunks and libotf2's buffers of files, it would be 427 MiB."""
    found = converted(threads_spool(tmp_path / "spool", 600, 60, 6_500), tmp_path / "trace")
    assert found["proven"]
    sizes = [path.stat().st_size for path in (tmp_path / "trace/traces").glob("*.evt")]
    assert sum(size > CHUNK_BYTES for size in sizes) >= 600
    assert found["peak_bytes"] < 256 * MIB


def test_threads_with_much_to_say_keep_no_file_open(tmp_path: Path) -> None:
    """60 locations of more than a chunk of events each, where a process may open 80 files."""
    spool = threads_spool(tmp_path / "spool", 60, 60, 6_000)
    assert converted(spool, tmp_path / "trace", (80, 80))["samples"] == 720_000
    assert verified(tmp_path / "trace").operations == 360_000


def test_256_cpus(tmp_path: Path) -> None:
    """Calls of 512 threads and block requests on all of them."""
    spool = ScaleSpool(tmp_path / "spool", 256, calls=("read",), stop_ns=10**13)
    number = np.arange(200_000)
    tid, begin, cpu = 1_000 + number % 512, FIRST + 100 * number, number * 5 % 256
    tids = 1_000 + np.arange(512)
    spool.fact_task(1_000, tids // 32 * 32, tids)
    exit_cpu, end = (cpu + number % 3) % 256, begin + 100 + number * 7_919 % 40_000
    spool.call(begin, end, cpu, tid, "read", mixed(tid, begin), exit_cpu=exit_cpu, fd=3, count=MOST)
    number = np.arange(20_000)
    t, cpu = FIRST + 900 * number, number % 256
    same = {"dev": 8 << 20, "sector": number * 8, "nr_sector": 8, "rwbs": b"R"}
    spool.sample("block:block_rq_issue", t, cpu, 1_000 + cpu, **same, bytes=4_096)
    spool.sample("block:block_rq_complete", t + 1_000, (cpu + 1) % 256, 0, **same)
    found = converted(spool.write(), tmp_path / "trace")
    assert (found["samples"], found["proven"], found["late"], found["orphan"]) == (440_000, True, 0, 0)
    assert found["peak_bytes"] < 320 * MIB
    counts = verified(tmp_path / "trace")
    assert (counts.operations, counts.samples) == (220_000, 40_000)


def test_50000_files(tmp_path: Path) -> None:
    """Opened, seen in /proc, read and closed: each is a file and a handle of the trace."""
    spool = ScaleSpool(tmp_path / "spool", 8, calls=("openat", "read", "close"), stop_ns=10**13)
    spool.fact_task(1_000, 10, 10)
    number = np.arange(50_000)
    t, cpu = FIRST + 20_000 * number, number % 8
    spool.call(t, t + 10, cpu, 10, "openat", 3, flags=0)
    spool.fact_fd(t + 8_000, 10, 3, number, number_paths(b"/data/", number))
    spool.call(t + 12_000, t + 12_010, cpu, 10, "read", 512, fd=3, count=512)
    spool.call(t + 15_000, t + 15_010, cpu, 10, "close", 0, fd=3)
    found = converted(spool.write(), tmp_path / "trace")
    assert found["proven"]
    counts = verified(tmp_path / "trace")
    assert (counts.operations, counts.handles, counts.files) == (50_000, 50_000, 50_000)
    assert found["peak_bytes"] < 384 * MIB


@pytest.mark.parametrize("slept_s", [0, 3_600])
def test_a_trace_of_a_machine_that_slept_begins_when_it_did(tmp_path: Path, slept_s: int) -> None:
    """An hour asleep is a step of CLOCK_REALTIME at an unknown place, which must not stretch the time before."""
    spool = ScaleSpool(tmp_path / "spool", 1, calls=("read",), start_ns=10**9, stop_ns=10**10)
    spool.fact_task(1_000, 10, 10).call(2 * 10**9, 3 * 10**9, 0, 10, "read", 5, fd=3, count=9)
    last = 10**18 + 10**10 + slept_s * 10**9
    path = spool.write(syncs=(ClockSync(0, 0, 10**18, 100), ClockSync(10**10, 10**10, last, 100)))
    converted(path, tmp_path / "trace")
    with otf2.reader.open(str(tmp_path / "trace/traces.otf2")) as trace:
        assert trace.definitions.clock_properties.realtime_timestamp == 10**18 + 10**9


def _answer(spool: Path, trace: Path) -> dict[str, Any]:
    try:
        done = convert(spool, trace).completeness
    except TraceError as error:
        return {"answer": error.answer, "remedy": error.remedy}
    names = ("samples", "proven", "lost", "late", "orphan")
    return {name: getattr(done, name) for name in names} | {"peak_bytes": peak_bytes()}


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_NOFILE, (int(sys.argv[3]), int(sys.argv[4])))
    print(json.dumps(_answer(Path(sys.argv[1]), Path(sys.argv[2]))))
