"""Where the time of calls went, against workloads that wait for one known thing, and against the kernel's accounts."""

from __future__ import annotations

import json
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from workloads import waits
from workloads.disks import loop_device
from workloads.record import Recorded, record, verified

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [
    pytest.mark.requires("root", "tracefs", "events", "losetup", "sched:sched_switch", "sched:sched_waking"),
    pytest.mark.usefixtures("busy_cpus"),
]

EXT4 = ("mkfs.ext4", "-q", "-F", "-b", "4096", "-J", "size=8")
XFS = ("mkfs.xfs", "-q", "-f")
DISK_BYTES = 400 << 20
PROGRAM = Path(waits.__file__)


@pytest.fixture
def disk() -> Iterator[Path]:
    """A device of 400 MiB in a file."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder, loop_device(Path(folder) / "image", DISK_BYTES) as disk:
        yield disk


def recorded(name: str, folder: Path, trace: Path, *options: str) -> Recorded:
    """A workload's recording with the layer, which keeps every rule."""
    command = [sys.executable, "-S", PROGRAM, name, folder]
    found = record(trace, command, "--layers", "waits", *options, attempts=3)
    verified(trace)
    return found


def by_reason(run: Recorded, *names: str) -> Counter[str]:
    """How long these calls waited, by reason."""
    ids = {call["id"] for call in run.calls(*names)}
    waited: Counter[str] = Counter()
    for row in run.trace.table("off_cpu").to_pylist():
        if row["operation"] in ids and row["wake_time_ns"] is not None:
            waited[row["reason"]] += row["wake_time_ns"] - row["begin_time_ns"]
    return waited


def check_shares(run: Recorded, *names: str) -> None:
    """Each call's stretches are the parts of its time, to the nanosecond."""
    parts: dict[int, list[int]] = {}
    for row in run.trace.table("off_cpu").to_pylist():
        if row["end_time_ns"] is not None and row["wake_time_ns"] is not None:
            sums = parts.setdefault(row["operation"], [0, 0])
            sums[0] += row["end_time_ns"] - row["wake_time_ns"]
            sums[1] += row["wake_time_ns"] - row["begin_time_ns"]
    calls = run.calls(*names)
    known = [call for call in calls if call["blocked_ns"] is not None]
    assert len(known) >= 0.95 * len(calls)
    for call in known:
        assert [call["run_queue_ns"], call["blocked_ns"]] == parts.get(call["id"], [0, 0])
        assert call["run_queue_ns"] + call["blocked_ns"] <= call["end_time_ns"] - call["begin_time_ns"]


def most(waited: Counter[str], reason: str) -> bool:
    """True if more than half of the time was waited for this."""
    return 2 * waited[reason] > waited.total()


@pytest.mark.requires("mkfs.ext4", "mkfs.xfs")
@pytest.mark.parametrize("make", [EXT4, XFS], ids=["ext4", "xfs"])
def test_syncs_wait_for_the_journal(disk: Path, tmp_path: Path, make: tuple[str, ...]) -> None:
    """Append and fsync by two threads: more than half of the waits of fsync is the journal's commit."""
    (tmp_path / "mnt").mkdir()
    with waits.mounted(disk, tmp_path / "mnt", *make) as folder:
        run = recorded("sync", folder, tmp_path / "T")
    assert most(by_reason(run, "fsync"), "journal"), by_reason(run, "fsync")
    check_shares(run, "fsync", "write")


@pytest.mark.requires("mkfs.ext4", "mkfs.xfs")
@pytest.mark.parametrize("make", [EXT4, XFS], ids=["ext4", "xfs"])
def test_writers_of_one_file_wait_for_its_lock(disk: Path, tmp_path: Path, make: tuple[str, ...]) -> None:
    """Two threads that append to one file past the page cache wait for the inode's lock."""
    (tmp_path / "mnt").mkdir()
    with waits.mounted(disk, tmp_path / "mnt", *make) as folder:
        run = recorded("lock", folder, tmp_path / "T")
    waited = by_reason(run, "write")
    assert waited["lock"] > 0.7 * waited["direct I/O"], waited
    check_shares(run, "write")


@pytest.mark.requires("mkfs.ext4")
def test_cold_reads_wait_for_pages(disk: Path, tmp_path: Path) -> None:
    """Random reads of pages that are not in the cache wait for these pages."""
    (tmp_path / "mnt").mkdir()
    with waits.mounted(disk, tmp_path / "mnt", *EXT4) as folder:
        waits.prepare(folder)
        run = recorded("cold", folder, tmp_path / "T")
    waited = by_reason(run, "pread64")
    waited["page"] += waited.pop("short I/O", 0)  # no stack is taken of what a fast disk answers within 50 us
    assert most(waited, "page"), waited
    check_shares(run, "pread64")


@pytest.mark.parametrize("extra", [(), ("--sched",)], ids=["alone", "with switches"])
def test_readers_of_pipes(tmp_path: Path, extra: tuple[str, ...]) -> None:
    """Two threads that pass a byte on wait for the pipe, and each is woken by the other."""
    run = recorded("pipe", tmp_path, tmp_path / "T", *extra)
    check_shares(run, "read", "write")
    delays: dict[str, int] = json.loads(run.stdout)["run_delay_ns"]
    tids = {int(tid) for tid in delays}
    reads = {call["id"]: call for call in run.calls("read") if call["tid"] in tids and call["bytes_request"] == 1}
    stretches = [row for row in run.trace.table("off_cpu").to_pylist() if row["operation"] in reads]
    woken = [row for row in stretches if row["waker_tid"] is not None]
    assert len(woken) > len(reads) / 4
    assert all(row["reason"] in {"pipe", "short"} for row in woken)
    others = [row for row in woken if row["waker_tid"] in tids - {reads[row["operation"]]["tid"]}]
    assert len(others) >= 0.98 * len(woken)


def test_time_ready_without_a_cpu_is_what_the_scheduler_counted(tmp_path: Path) -> None:
    """Of long reads beside a busy process, on one CPU. The scheduler also counts time between calls."""
    run = recorded("crowd", tmp_path, tmp_path / "T")
    for tid, delay_ns in json.loads(run.stdout)["run_delay_ns"].items():
        calls: list[dict[str, Any]] = [call for call in run.operations() if call["tid"] == int(tid)]
        first, *_, last = [call["begin_time_ns"] for call in calls if str(call["path"]).endswith("/schedstat")]
        queued = sum(call["run_queue_ns"] or 0 for call in calls if first <= call["begin_time_ns"] < last)
        assert 0.5 * delay_ns < queued <= 1.05 * delay_ns + 1_000_000


ALTERNATING = """
import os, threading, time
ends, asked = os.pipe(), threading.Semaphore(0)
def answer():
    for _ in range(60):
        asked.acquire()
        time.sleep(0.001)
        os.write(ends[1], b"x")
threading.Thread(target=answer).start()
for number in range(60):
    asked.release()
    os.read(ends[0], 1) if number % 3 else os.readv(ends[0], [bytearray(1)])
"""


def test_stacks_that_come_again(tmp_path: Path) -> None:
    """Two calls sleep in the same function by turns. Each sleep has the stack of its own call, each stack one row."""
    command = [sys.executable, "-S", "-c", ALTERNATING]
    run = record(tmp_path / "T", command, "--layers", "waits", "-e", "read,readv", attempts=3)
    functions = {row["stack"]: row["functions"] for row in run.trace.table("kernel_stacks").to_pylist()}
    calls = {row["id"]: row["call"] for row in run.calls("read", "readv") if row["bytes_result"] == 1}
    slept = [row for row in run.trace.table("off_cpu").to_pylist() if row["stack"] is not None]
    seen = Counter((calls[row["operation"]], row["stack"]) for row in slept if row["operation"] in calls)
    for call, stack in seen:
        assert "pipe_read" in functions[stack]
        assert ("readv" in functions[stack]) == (call == "readv")
    assert seen.total() >= 50
    assert len(seen) <= 4
