"""The report about a recorded program agrees with the program, and with the sum of the table of its calls."""

from __future__ import annotations

import io
import json
import os
import sys
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
from rich.console import Console
from workloads.record import Recorded, record
from workloads.served import lo2io

from lo2io.reports.summary.io import TIME_PARTS
from lo2io.reports.summary.summary import summarize
from lo2io.reports.text.brief import render_brief

if TYPE_CHECKING:
    from pathlib import Path

    from lo2io.reports.summary.summary import Summary

pytestmark = pytest.mark.requires("root", "tracefs", "events")

PROGRAM = """
import os, sys
folder = sys.argv[1]
fd = os.open(folder + "/synced", os.O_RDWR | os.O_CREAT, 0o600)
for index in range(150):
    os.pwrite(fd, bytes(8192), 8192 * index)
    os.fsync(fd)
os.close(fd)
fd = os.open(folder + "/shuffled", os.O_RDONLY)
for index in range(256):
    os.pread(fd, 16384, index * 101 % 256 * 16384)
os.close(fd)
for index in range(1200):
    try:
        os.stat(f"{folder}/none/{index % 3}")
    except FileNotFoundError:
        pass
for name, flag in (("O_SYNC", os.O_SYNC), ("O_DSYNC", os.O_DSYNC)):
    fd = os.open(f"{folder}/{name}", os.O_RDWR | os.O_CREAT | flag, 0o600)
    for index in range(110):
        os.write(fd, bytes(100))
    os.close(fd)
for name, flag in (("RWF_SYNC", os.RWF_SYNC), ("RWF_DSYNC", os.RWF_DSYNC)):
    fd = os.open(f"{folder}/{name}", os.O_RDWR | os.O_CREAT, 0o600)
    for index in range(110):
        os.pwritev(fd, [bytes(100)], 100 * index, flag)
    os.close(fd)
"""
BUSY = """
import os, sys
folder = sys.argv[1]
fd = os.open(folder + "/small", os.O_RDWR | os.O_CREAT, 0o600)
for index in range(100_000):
    os.write(fd, bytes(16))
os.close(fd)
fd = os.open(folder + "/shuffled", os.O_RDONLY)
for index in range(8192):
    os.pread(fd, 16384, index * 101 % 8192 * 16384)
os.close(fd)
for index in range(40_000):
    try:
        os.stat(f"{folder}/none/{index % 3}")
    except FileNotFoundError:
        pass
"""
"""Calls that are cheap one by one, and take most of the program's time together."""


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory, awake: Any) -> Recorded:
    """The program, recorded once."""
    folder = tmp_path_factory.mktemp("work")
    (folder / "shuffled").write_bytes(bytes(256 * 16384))
    command = [sys.executable, "-I", "-S", "-c", PROGRAM, folder]
    with awake():
        # Without block requests: of its many syncs, some virtual machines lose a completion again and again.
        return record(tmp_path_factory.mktemp("trace") / "T", command, "-e", "+metadata,-block")


@pytest.fixture(scope="module")
def summary(recorded: Recorded) -> Summary:
    """Its report."""
    return summarize(recorded.trace)


def rows_of(recorded: Recorded) -> list[dict[str, Any]]:
    """The table of its calls, with their durations."""
    rows: list[dict[str, Any]] = recorded.trace.operations.to_pylist()
    return [{**row, "ns": row["end_time_ns"] - row["begin_time_ns"] if row["end_time_ns"] else 0} for row in rows]


def test_what_stands_out(summary: Summary) -> None:
    """The sync after each write, and the syncs in writes themselves, with their numbers.

    Not findings that cost next to nothing: 256 reads that jump, and 1,200 files that do not exist.
    """
    found = {(finding.rule, finding.subject.rpartition("/")[2]): finding for finding in summary.findings}
    synced = found["sync-per-write", "synced"]
    assert (synced.evidence["syncs"], synced.evidence["writes"], synced.rows) == (150, 150, 150)
    assert synced.evidence["synced_writes"] == 0
    for name in ("O_SYNC", "O_DSYNC", "RWF_SYNC", "RWF_DSYNC"):
        finding = found["sync-per-write", name]
        assert (finding.evidence["syncs"], finding.evidence["synced_writes"], finding.rows) == (110, 110, 110)
    rules = {finding.rule for finding in summary.findings}  # the duration of syncs depends on the disk
    assert rules - {"sync-bound"} == {"sync-per-write"}


def test_it_can_be_read_in_60_columns(summary: Summary) -> None:
    """No line of the screen is longer; only what is there to be pasted, with the trace's path."""
    out = io.StringIO()
    render_brief(summary, Console(file=out, width=60, force_terminal=True, color_system=None, highlight=False))
    lines = out.getvalue().splitlines()
    assert "Findings" in lines
    assert [line for line in lines if len(line) > 60 and str(summary.trace) not in line] == []


def test_what_is_cheap_one_by_one(tmp_path: Path) -> None:
    """Small writes, reads that jump, and lookups of missing files, in a program that does little else."""
    with (tmp_path / "shuffled").open("wb") as file:
        file.truncate(8192 * 16384)
    command = [sys.executable, "-I", "-S", "-c", BUSY, tmp_path]
    summary = summarize(record(tmp_path / "T", command, "-e", "+metadata,-block").trace)
    found = {finding.rule: finding for finding in summary.findings}
    assert set(found) == {"many-small-writes", "random-reads-of-whole-file", "missing-files"}
    small, shuffled = found["many-small-writes"], found["random-reads-of-whole-file"]
    assert (small.evidence["small_writes"], small.evidence["writes"], small.rows) == (100_000, 100_000, 100_000)
    assert (shuffled.evidence["random_reads"], shuffled.evidence["reads"]) == (8191, 8191)
    assert shuffled.evidence["bytes"] == shuffled.evidence["extent_bytes"] == 8192 * 16384
    assert found["missing-files"].evidence["missing"] >= 40_000  # the interpreter looks for its own, too
    assert all(finding.share and finding.cost_ns for finding in summary.findings)


def test_rows_behind_a_finding(summary: Summary, recorded: Recorded) -> None:
    """The ids are those of the finding's calls."""
    rows = {row["id"]: row for row in rows_of(recorded)}
    for finding in summary.findings:
        calls = {rows[number]["call"] for number in finding.ids}
        assert len(finding.ids) == 10
        if finding.rule == "sync-per-write":
            name = finding.subject.rpartition("/")[2]
            assert calls == {"fsync" if name == "synced" else "write" if name[0] == "O" else "pwritev2"}


def test_numbers_are_the_tables(summary: Summary, recorded: Recorded) -> None:
    """Time, slow calls and patterns are the sums of the rows of operations."""
    rows = rows_of(recorded)
    assert summary.io is not None
    assert summary.io.time.total.time_ns == sum(row["ns"] for row in rows)
    assert sum(row.calls for row in summary.io.time.classes) == len(rows)
    for kind in summary.io.time.classes:
        parts = [getattr(kind, part) or 0 for part in TIME_PARTS]
        assert sum(parts) == kind.time_ns
        assert min(parts) >= 0
    slowest = sorted(rows, key=lambda row: (-row["ns"], row["id"]))[:20]
    assert [(row.id, row.duration_ns) for row in summary.io.slowest] == [(row["id"], row["ns"]) for row in slowest]
    (writes,) = (row for row in summary.io.patterns if row.operation == "write" and str(row.path).endswith("/synced"))
    assert (writes.accesses, writes.placed, writes.consecutive, writes.bytes) == (150, 149, 149, 150 * 8192)


TICK_NS = 10_000_000
"""The longest possible tick: CONFIG_HZ=100."""
CROWDED = """
import os, sys
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
child = os.fork()
if not child:
    while os.getppid() != 1:
        sum(range(100_000))
zero, buffer, (source, target) = os.open("/dev/zero", os.O_RDONLY), bytearray(1 << 20), os.pipe()
before = open("/proc/self/schedstat").read().split()
for _ in range(3000):
    os.readv(zero, [buffer])
after = open("/proc/self/schedstat").read().split()
os.kill(child, 9)
os.set_inheritable(target, True)
if not os.fork():
    os.execvp("sleep", ["sleep", "0.1"])
os.close(target)
os.read(source, 1)
print(*(int(now) - int(then) for now, then in zip(after, before)))
"""


def test_time_on_a_cpu_is_what_the_scheduler_says(tmp_path: Path, awake: Any) -> None:
    """Of a program that another one keeps off its CPU half of the time; waiting for a pipe is no storage."""
    with awake():
        seen = record(tmp_path / "T", [sys.executable, "-I", "-S", "-c", CROWDED], "-e", "syscalls", "--sched")
    ran_ns, delayed_ns, _ = map(int, seen.stdout.split())
    summary = summarize(seen.trace)
    assert summary.io is not None
    times = {row.kind: row for row in summary.io.time.classes}
    zeros = times["special"]
    assert zeros.calls >= 3000
    assert zeros.cpu_ns is not None
    assert zeros.preempted_ns is not None
    # The interpreter uses some, too. /proc is a tick after, and leaves out interrupts and stolen time.
    assert 0.5 * ran_ns - TICK_NS < zeros.cpu_ns < 1.3 * ran_ns + TICK_NS
    assert 0.5 * delayed_ns - TICK_NS < zeros.preempted_ns < 1.3 * delayed_ns + TICK_NS
    assert zeros.cpu_ns + zeros.preempted_ns + zeros.unexplained_ns == zeros.time_ns
    # A switch from the idle task or from process 1 runs no program on some machines: then a stretch has no end.
    ends = seen.trace.table("off_cpu")["end_time_ns"]
    assert ends.null_count or not zeros.unexplained_ns
    assert times["pipe"].waiting_ns > 0
    assert sum(getattr(times["pipe"], part) for part in TIME_PARTS) == times["pipe"].time_ns
    special = {str(row.path) for row in summary.files if row.type == "special"}
    assert special >= {"/dev/zero"}
    assert all(path.startswith(("/dev/", "/proc/")) for path in special)


def test_by_system_call(recorded: Recorded) -> None:
    """The command's table has each call once; for a part of the trace, only the part's."""
    calls = Counter(row["call"] for row in rows_of(recorded))
    for options, expected in (((), calls), (("--filter", "operation == flush"), Counter(fsync=150))):
        command = ["report", recorded.trace.path, "--json", *options]
        document = json.loads(lo2io(*command, check=True).stdout)
        assert Counter({row["name"]: row["activity"]["calls"] for row in document["calls"]}) == expected


USES = """
import json, mmap, os, resource, sys, threading, time
def burn():
    end = time.thread_time() + 0.12
    while time.thread_time() < end:
        pass
threads = [threading.Thread(target=burn) for _ in range(2)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
zero = os.open("/dev/zero", os.O_RDONLY)
end = time.thread_time() + 0.1
while time.thread_time() < end:
    os.read(zero, 1 << 20)
for _ in range(20):
    time.sleep(0.001)
fd = os.open(sys.argv[1], os.O_RDONLY)
os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
with mmap.mmap(fd, 0, prot=mmap.PROT_READ) as pages:
    pages.madvise(mmap.MADV_RANDOM)
    for page in range(0, len(pages), 65536):
        pages[page]
used = resource.getrusage(resource.RUSAGE_SELF)
print(json.dumps([used.ru_utime, used.ru_stime, used.ru_majflt, used.ru_nvcsw, used.ru_nivcsw]), flush=True)
"""


@pytest.mark.parametrize("options", [("--backend", "bpf"), ("--backend", "perf", "--names", "proc")])
def test_what_a_process_used_is_what_it_says_itself(tmp_path: Path, awake: Any, options: tuple[str, ...]) -> None:
    """The process reads it last thing: it equals its threads' usage at their exits, within ticks, and wait4's."""
    (tmp_path / "file").write_bytes(bytes(1 << 20))
    os.sync()
    command = [sys.executable, "-I", "-S", "-c", USES, tmp_path / "file"]
    with awake():
        seen = record(tmp_path / "T", command, "-e", "syscalls", *options)
    user, system, faults, voluntary, involuntary = json.loads(seen.stdout)
    summary = summarize(seen.trace)
    assert summary.usage is not None
    rows = [row.usage for row in summary.processes if row.usage is not None]
    programs = "bpf" in options
    if not programs:
        assert [row.cpu_ns for row in rows] == [None]
    for usage in (summary.usage, *rows) if programs else (summary.usage,):
        assert usage.cpu_ns is not None
        assert usage.cpu_ns == pytest.approx((user + system) * 1e9, rel=0.05, abs=4 * TICK_NS)
        assert usage.user_ns is not None
        assert usage.user_ns == pytest.approx(user * 1e9, rel=0.25, abs=8 * TICK_NS)
        assert usage.major_faults is not None
        assert faults <= usage.major_faults <= faults + 2
        assert usage.voluntary_switches is not None
        assert voluntary <= usage.voluntary_switches <= voluntary + 20
        assert usage.involuntary_switches is not None
        assert involuntary <= usage.involuntary_switches
    assert summary.usage.wall_ns >= rows[0].threads_ns / 3
    assert 0 < rows[0].calls_ns < rows[0].threads_ns


@pytest.mark.parametrize("lock", ["fcntl.flock(fd, fcntl.LOCK_EX)", "fcntl.lockf(fd, fcntl.LOCK_EX)"])
def test_who_waits_for_a_lock_of_a_file(tmp_path: Path, lock: str) -> None:
    """The finding names the file, and its cost is the wait that the waiting process measures."""
    program = f"""
import fcntl, os, sys, time
reading, writing = os.pipe()
if os.fork() == 0:
    fd = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT, 0o600)
    {lock}
    os.write(writing, b"x")
    time.sleep(0.5)
    os._exit(0)
os.read(reading, 1)
fd = os.open(sys.argv[1], os.O_RDWR)
begin = time.perf_counter_ns()
{lock}
print(time.perf_counter_ns() - begin, flush=True)
os.wait()
"""
    seen = record(tmp_path / "T", [sys.executable, "-I", "-S", "-c", program, tmp_path / "locked"])
    summary = summarize(seen.trace)
    (finding,) = (each for each in summary.findings if each.rule == "file-lock-wait")
    assert summary.io is not None
    assert summary.io.slowest[0].id in finding.ids
    assert finding.subject == str(tmp_path / "locked")
    assert finding.cost_ns == pytest.approx(int(seen.stdout), rel=0.05)
