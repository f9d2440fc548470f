"""Work whose block requests tell why it is slow: swapped memory, a cached image, another process' writes."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from workloads import heavy, waits
from workloads.disks import loop_device
from workloads.record import record, verified

from lo2io.kernel import sysfs
from lo2io.reports.findings import requests as rules
from lo2io.reports.summary.summary import summarize

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lo2io.model import BlockDevice
    from lo2io.reports.findings.finding import Finding

pytestmark = [
    pytest.mark.requires("root", "tracefs", "events", "losetup", "mkfs.ext4"),
    pytest.mark.usefixtures("busy_cpus"),
]

PROGRAM = Path(heavy.__file__)
DISK_BYTES = 160 << 20
V1, V2 = Path("/sys/fs/cgroup/memory"), Path("/sys/fs/cgroup")


@pytest.fixture
def disk() -> Iterator[Path]:
    """A device in a file, which is read and written through the page cache."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder, loop_device(Path(folder) / "image", DISK_BYTES) as disk:
        yield disk


@contextlib.contextmanager
def little_memory(limit_bytes: int) -> Iterator[Path]:
    """A cgroup whose processes have little memory."""
    name = f"lo2io-test-{os.getpid()}"
    if (V1 / "memory.limit_in_bytes").exists():
        group, limit = V1 / name, "memory.limit_in_bytes"
    elif "memory" in (V2 / "cgroup.subtree_control").read_text(encoding="ascii").split():
        group, limit = V2 / name, "memory.max"
    else:
        pytest.skip("no cgroup here can limit memory")
    group.mkdir()
    try:
        (group / limit).write_text(str(limit_bytes), encoding="ascii")
        yield group
    finally:
        group.rmdir()


@contextlib.contextmanager
def swapped_to(disk: Path) -> Iterator[None]:
    """The kernel swaps to this disk."""
    subprocess.run(["mkswap", disk], check=True, capture_output=True)
    subprocess.run(["swapon", "--priority", "1000", disk], check=True)
    try:
        yield
    finally:
        subprocess.run(["swapoff", disk], check=True)


def loop_of(disk: Path) -> BlockDevice:
    """The loop device as it is described now."""
    return next(device for device in sysfs.read_devices() if device.name == disk.name)


def findings(trace: Path, folder: Path, name: str, *args: str) -> tuple[dict[str, Finding], dict[str, int]]:
    """What stands out in the work, by rule, and what the program knew."""
    run = record(trace, [sys.executable, "-S", PROGRAM, name, *args], cwd=folder)
    verified(trace)
    return {finding.rule: finding for finding in summarize(run.trace).findings}, json.loads(run.stdout or "{}")


def test_swap(disk: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The reads are as many as the page faults that needed I/O, as the kernel counts them."""
    monkeypatch.setattr(rules, "DEAR_NS", 0)
    monkeypatch.setattr(rules, "OFTEN", 0)
    with swapped_to(disk), little_memory(heavy.MEMORY // 2) as group:
        found, known = findings(tmp_path / "T", tmp_path, "swap", str(group))
    swapping = found["swapping"]
    assert str(known["pid"]) in swapping.subject
    # The kernel reads several pages for a fault, and may read some that another fault finds in memory.
    assert known["major_faults"] <= swapping.rows <= known["major_faults"] * 1.2
    assert swapping.cost_ns is not None
    assert 0 < swapping.cost_ns < known["lasted_ns"]


def test_image_in_the_page_cache(disk: Path, tmp_path: Path) -> None:
    """A file that is read through a loop device without direct I/O."""
    (tmp_path / "mnt").mkdir()
    with waits.mounted(disk, tmp_path / "mnt", "mkfs.ext4", "-q", "-F") as folder:
        heavy.prepare(folder / "big")
        found, _ = findings(tmp_path / "T", folder, "read")
    twice, image = found["double-caching"], loop_of(disk).image
    assert twice.subject == disk.name
    assert image
    assert twice.text.endswith(image)
    assert heavy.MEMORY <= twice.evidence["bytes"] <= heavy.MEMORY * 1.1
    assert loop_of(disk).image_direct is False
    subprocess.run(["losetup", "--direct-io=on", disk], check=True)
    assert loop_of(disk).image_direct is True


def test_writes_of_another_process(disk: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The reads beside write-back lie in the life of the process that caused it, and both are named.

    Whether they are slower depends on the disk, so that the rule's thresholds are not asked here.
    """
    for threshold, least in (("DEAR_NS", -1 << 60), ("OFTEN", -1 << 60), ("SLOWER", 0), ("MANY", 1)):
        monkeypatch.setattr(rules, threshold, least)
    (tmp_path / "mnt").mkdir()
    with waits.mounted(disk, tmp_path / "mnt", "mkfs.ext4", "-q", "-F") as folder:
        heavy.prepare(folder / "big")
        run = record(tmp_path / "T", [sys.executable, "-S", PROGRAM, "storm"], cwd=folder)
    known = json.loads(run.stdout)
    found = {finding.rule: finding for finding in summarize(run.trace).findings}
    storm = found["write-back-storm"]
    assert str(known["reader"]) in storm.subject
    assert f"({known['writer']})" in storm.text
    columns = ("id", "insert_time_ns", "complete_time_ns", "issue_time_ns")
    rows = {row["id"]: row for row in run.trace.requests.select(columns).to_pylist()}
    for number in storm.ids:
        assert rows[number]["complete_time_ns"] >= known["begin_ns"]
    assert storm.evidence["other_reads"] >= heavy.CALM * 0.9
