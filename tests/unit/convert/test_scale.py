"""Machines no test runs on: 256 CPUs, thousands of threads and files, CPUs that come and go, an hour asleep.

Counts are exact, rows come in order, and memory is bounded: four times as much of what may come and go (calls, threads,
processes, cgroups) takes no more, and a file that was seen takes less than its name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from build.scalereader import mixed, read_apart
from build.scalewriter import ScaleSpool, number_paths

from lo2io.model import ClockSync

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

MIB = 1 << 20
SLACK_BYTES = 2 * MIB
"""Peaks of one program differ by so much from run to run, at most; what leaks 16 bytes a call takes more."""
FIRST = 100_000
"""Nanoseconds: the first call."""
NOTHING_WRONG = {
    "disordered": 0,
    "mispaired": 0,
    "nr_late": 0,
    "nr_reordered": 0,
    "nr_orphan_exits": 0,
    "nr_in_flight_calls": 0,
    "nr_lost": 0,
    "nr_undecoded": 0,
    "truncated_bytes": 0,
}


def assert_nothing_wrong(found: dict[str, Any]) -> None:
    """Every sample was paired, in order."""
    assert {name: found[name] for name in NOTHING_WRONG} == NOTHING_WRONG


def assert_bounded(make: Callable[[int], dict[str, Any]], count: int, growth: int = SLACK_BYTES) -> None:
    """Four times as many take at most so many bytes more; a busy machine may keep some longer, once or twice."""
    for _ in range(3):
        small, large = make(count)["peak_bytes"], make(4 * count)["peak_bytes"]
        if large - small < growth:
            break
    assert large - small < growth, f"{count}: {small / MIB:.1f} MiB, {4 * count}: {large / MIB:.1f} MiB"


# ---- 256 CPUs ----


def wide_spool(path: Path, count: int, cpus: int = 256, threads: int = 512) -> dict[str, Any]:
    """Calls of threads that go from CPU to CPU, also within a call; they end in quite another order than they begin."""
    spool = ScaleSpool(path, cpus, calls=("read",), stop_ns=10**12)
    tids = 1_000 + np.arange(threads)
    spool.fact_task(1_000, tids // 32 * 32, tids)
    number = np.arange(count)
    tid, begin, cpu = 1_000 + number % threads, FIRST + 100 * number, number * 5 % cpus
    end = begin + 100 + number * 7_919 % 40_000
    spool.call(begin, end, cpu, tid, "read", mixed(tid, begin), exit_cpu=(cpu + number % 3) % cpus, fd=3, count=1 << 20)
    return read_apart(spool.write())


def test_256_cpus(tmp_path: Path) -> None:
    """Two thirds of the calls end on another CPU than they began on; all are paired, in the order they ended in."""
    found = wide_spool(tmp_path / "spool", 100_000)
    assert_nothing_wrong(found)
    assert found["calls"] == {"read": 100_000}
    assert found["nr_samples"] == 200_000
    assert found["rows"]["tasks"] == 512


def test_256_cpus_take_memory_for_rings_only(tmp_path: Path) -> None:
    """Their calls take none."""
    assert_bounded(lambda count: wide_spool(tmp_path / str(count), count), 50_000)


def wide_requests(path: Path, count: int, cpus: int = 256) -> dict[str, Any]:
    """Requests issued on one CPU and completed on another, some hundred in flight at a time; keys come again."""
    spool = ScaleSpool(path, cpus, calls=(), stop_ns=10**13)
    number = np.arange(count)
    t, cpu, end = FIRST + 100 * number, number % cpus, FIRST + 100 * number + 50 + number * 7_919 % 40_000
    same = {"dev": 8 << 20, "sector": number % 1_000 * 8, "nr_sector": 8, "rwbs": np.where(number % 2, b"R", b"W")}
    spool.sample("block:block_rq_insert", t, cpu, 1_000 + cpu, **same, bytes=4_096)
    spool.sample("block:block_rq_issue", t + 20, cpu, 1_000 + cpu, **same, bytes=4_096)
    spool.sample("block:block_rq_complete", end, (cpu + 1) % cpus, 0, **same)
    return read_apart(spool.write())


def test_requests_that_complete_on_another_cpu(tmp_path: Path) -> None:
    """None is left over, and none is an orphan."""
    found = wide_requests(tmp_path / "spool", 50_000)
    assert_nothing_wrong(found)
    assert found["rows"]["requests"] == found["completed"] == 50_000
    assert found["nr_orphan_completions"] == 0


def test_requests_that_have_ended_take_no_memory(tmp_path: Path) -> None:
    """Requests begin and end all the time."""
    assert_bounded(lambda count: wide_requests(tmp_path / str(count), count), 50_000)


# ---- threads and processes ----


def threaded_spool(path: Path, waves: int, threads: int = 5_000, processes: int = 40) -> dict[str, Any]:
    """Wave after wave of 5,000 threads at once, four calls each."""
    spool = ScaleSpool(path, 8, calls=("read",), stop_ns=10**13)
    leaders = 100 + np.arange(processes)
    spool.fact_task(1_000, leaders, leaders)
    number = np.arange(threads)
    for wave in range(waves):
        begin, tid, pid = FIRST + wave * 10**9, 10_000 + wave * threads + number, 100 + number % processes
        spool.fork(begin + number, number % 8, pid, tid, pid)
        for call in range(4):
            t = begin + 10**7 * (call + 1) + 1_000 * number
            spool.call(t, t + 900_000, number % 8, tid, "read", mixed(tid, t), exit_cpu=(number + 1) % 8, fd=3)
        spool.task_exit(begin + 10**8 + number, number % 8, pid, tid)
    return read_apart(spool.write())


def test_5000_threads_in_40_processes(tmp_path: Path) -> None:
    """Each has its row, and its calls."""
    found = threaded_spool(tmp_path / "spool", 1)
    assert_nothing_wrong(found)
    assert found["calls"] == {"read": 20_000}
    assert found["rows"]["tasks"] == 5_040
    assert found["rows"]["handles"] == 40


def test_threads_that_have_ended_take_no_memory(tmp_path: Path) -> None:
    """20,000 threads one after another take what 5,000 take."""
    assert_bounded(lambda waves: threaded_spool(tmp_path / str(waves), waves), 1)


def test_5000_threads_that_only_facts_tell_of(tmp_path: Path) -> None:
    """They share their process' descriptors: one handle a process, whichever thread uses it."""
    spool = ScaleSpool(tmp_path / "spool", 8, calls=("read",), stop_ns=10**13)
    number = np.arange(5_000)
    tid, pid = 1_000 + number, 1_000 + number // 125 * 125
    spool.fact_task(1_000, pid, tid)
    t = FIRST + 1_000 * number
    found = read_apart(spool.call(t, t + 500, number % 8, tid, "read", mixed(tid, t), fd=3).write())
    assert_nothing_wrong(found)
    assert (found["rows"]["tasks"], found["rows"]["handles"], found["rows"]["operations"]) == (5_000, 40, 5_000)


def short_processes(path: Path, count: int) -> dict[str, Any]:
    """Processes that live for 900 ns, some at a time, each in a cgroup of its own."""
    spool = ScaleSpool(path, 8, calls=("openat", "read", "close"), stop_ns=10**13)
    spool.fact_task(1_000, 10, 10)
    number = np.arange(count)
    t, cpu, pid = FIRST + 100 * number, number % 8, 1_000 + number
    spool.fork(t, cpu, pid, pid, 10).exec(t + 10, cpu, pid, b"short")
    paths = number_paths(b"/cg/", number)
    spool.sample("cgroup:cgroup_attach_task", t + 20, 0, 2, pid=pid, dst_root=0, dst_path=paths)
    spool.call(t + 100, t + 101, cpu, pid, "openat", 3, flags=0)
    spool.call(t + 200, t + 201, cpu, pid, "read", mixed(pid, t + 200), fd=3).task_exit(t + 900, cpu, pid, pid)
    return read_apart(spool.write())


def test_50000_short_processes(tmp_path: Path) -> None:
    """Each has its row, its handle, its cgroup."""
    found = short_processes(tmp_path / "spool", 50_000)
    assert_nothing_wrong(found)
    assert found["calls"] == {"openat": 50_000, "read": 50_000}
    assert (found["rows"]["tasks"], found["rows"]["handles"], found["cgroups"]) == (50_001, 50_000, 50_000)


def test_processes_that_have_ended_take_no_memory(tmp_path: Path) -> None:
    """Nor do the cgroups nobody is in any more."""
    assert_bounded(lambda count: short_processes(tmp_path / str(count), count), 12_500)


# ---- files ----

STEP = 20_000


def many_files(path: Path, count: int, rounds: int = 1) -> dict[str, Any]:
    """Files opened, seen in /proc, read and closed, one after another, all of them in each round."""
    spool = ScaleSpool(path, 8, calls=("openat", "read", "close"), era="6.19", stop_ns=10**13)
    spool.fact_task(1_000, 10, 10)
    number = np.arange(count * rounds)
    t, cpu, file = STEP * number + FIRST - FIRST % STEP, number % 8, (number + FIRST // STEP) % count
    spool.call(t, t + 10, cpu, 10, "openat", 3, flags=0, __filename_val=number_paths(b"", file))
    spool.fact_fd(t + 8_000, 10, 3, file, number_paths(b"/data/", file))
    spool.call(t + 12_000, t + 12_010, cpu, 10, "read", mixed(10, t + 12_000), fd=3)
    spool.call(t + 15_000, t + 15_010, cpu, 10, "close", 0, fd=3)
    return read_apart(spool.write(), STEP, count)


def test_100000_files(tmp_path: Path) -> None:
    """Each has a row for the path its open gave and one for what /proc showed; each handle has its own file."""
    found = many_files(tmp_path / "spool", 100_000)
    assert_nothing_wrong(found)
    assert found["calls"] == {"openat": 100_000, "read": 100_000, "close": 100_000}
    assert (found["rows"]["handles"], found["rows"]["files"]) == (100_000, 200_000)
    assert (found["nr_names_verified"], found["nr_names_refused"]) == (100_000, 0)
    assert (found["named"], found["misnamed"]) == (100_000, 0)


def test_a_file_is_known_again_long_after_its_row(tmp_path: Path) -> None:
    """Only its digest is kept: the second and third time it is found by that."""
    found = many_files(tmp_path / "spool", 10_000, rounds=3)
    assert (found["rows"]["handles"], found["rows"]["files"]) == (30_000, 20_000)
    assert (found["named"], found["misnamed"]) == (30_000, 0)


def test_a_file_takes_less_than_its_name(tmp_path: Path) -> None:
    """75,000 more files are 150,000 more rows, 40 bytes each at most."""
    assert_bounded(lambda count: many_files(tmp_path / str(count), count), 25_000, 150_000 * 40 + SLACK_BYTES)


def test_files_that_come_again_take_nothing(tmp_path: Path) -> None:
    """However often they are opened."""
    assert_bounded(lambda rounds: many_files(tmp_path / str(rounds), 5_000, rounds), 4)


# ---- CPUs that come and go, and a machine that sleeps ----


def test_a_cpu_that_goes_away_and_comes_back(tmp_path: Path) -> None:
    """Its ring has a hole in time; who was there goes on elsewhere, also in the middle of a call. CPU 3 comes late."""
    spool = ScaleSpool(tmp_path / "spool", 4, calls=("read",), stop_ns=10**13)
    number = np.arange(60_000)
    begin, tid = FIRST + 100_000 * number, 1_000 + number % 50
    end = begin + 4_000_000

    def where(t: Any) -> Any:
        gone = (t > 2 * 10**9) & (t < 4 * 10**9)
        return np.where((number % 4 == 2) & gone | (number % 4 == 3) & (t < 10**9), 0, number % 4)

    spool.fact_task(1_000, 1_000, 1_000 + np.arange(50))
    spool.call(begin, end, where(begin), tid, "read", mixed(tid, begin), exit_cpu=where(end), fd=3)
    assert sum(len(times) for times in spool.rings[2].times) < 30_000
    found = read_apart(spool.write())
    assert_nothing_wrong(found)
    assert found["calls"] == {"read": 60_000}
    assert found["rows"]["losses"] == 0


@pytest.mark.parametrize("clock", ["perf", "monotonic"])
def test_a_machine_that_slept_for_an_hour(tmp_path: Path, clock: str) -> None:
    """The clocks of samples and of facts stop during sleep, CLOCK_REALTIME does not: names are still proven."""
    spool = ScaleSpool(tmp_path / "spool", 2, calls=("openat", "read", "close"), stop_ns=10**10)
    spool.fact_task(1_000, 10, 10)
    number = np.arange(1_000)
    t = STEP * number + FIRST
    spool.call(t, t + 10, 0, 10, "openat", 3, flags=0)
    spool.fact_fd(t + 8_000, 10, 3, number, number_paths(b"/data/", (number + 5) % 1_000))
    spool.call(t + 15_000, t + 15_010, 1, 10, "close", 0, fd=3)
    hour = 3_600 * 10**9
    syncs = (ClockSync(0, 0, 10**18, 100), ClockSync(10**10, 10**10, 10**18 + 10**10 + hour, 100))
    found = read_apart(spool.write(syncs=syncs, clock=clock), STEP, 1_000)
    assert_nothing_wrong(found)
    assert (found["nr_names_verified"], found["nr_names_refused"], found["misnamed"]) == (1_000, 0, 0)
