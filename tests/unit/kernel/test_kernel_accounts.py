"""The kernel's own counts, read from files in its form."""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING

import pytest

from lo2io.kernel.accounts import (
    CGROUP_NAMES,
    DISK_NAMES,
    PROCESS_NAMES,
    difference,
    read_cgroup,
    read_disks,
    read_process,
    snapshot,
)
from lo2io.units import kernel_dev

if TYPE_CHECKING:
    from pathlib import Path

DISKSTATS = """\
   8       0 sda 100 7 1600 50 20 3 320 9 0 60 61 5 1 4096 2 11 3
   8       1 sda1 90 7 1500 40 20 3 320 9 0 60 61 5 1 4096 2 0 0
 253       0 dm-0 107 0 1600 50 23 0 320 9 0 60 61 5 0 4096 2 11 3
 254       0 vdb 1 0 8 1 1 0 8 1 0 1 1 0 0 0 0 0 0
 104       0 cciss/c0d0 2 0 16 1 0 0 0 1 0 1 1 0 0 0 0 0 0
"""
IO = "rchar: 323934931\nwchar: 323929600\nsyscr: 632687\nsyscw: 632675\nread_bytes: 8\nwrite_bytes: 9\n{}"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A machine with disks that take requests (one keeps no statistics), one that takes bios, and a partition."""
    (tmp_path / "proc/7").mkdir(parents=True)
    (tmp_path / "proc/diskstats").write_text(DISKSTATS)
    (tmp_path / "proc/7/io").write_text(IO.format("cancelled_write_bytes: 0\n"))
    for disk, statistics in (("sda", "1"), ("vdb", "0"), ("cciss!c0d0", "1"), ("dm-0", "1")):
        folder = tmp_path / "sys/block" / disk
        (folder / "queue").mkdir(parents=True)
        (folder / "queue/iostats").write_text(f"{statistics}\n")
        if disk != "dm-0":
            (folder / "mq").mkdir()
    return tmp_path


def test_disks_that_take_requests(root: Path) -> None:
    """Each number has the meaning of its name; sectors become bytes; no partitions, no stacked disks."""
    sda, array = read_disks(root)
    assert (sda.source, sda.subject, sda.device) == ("diskstats", "sda", kernel_dev(8, 0))
    assert dict(zip(sda.names, sda.values, strict=True)) == {
        "reads": 100, "read_bytes": 1600 * 512, "writes": 20, "write_bytes": 320 * 512, "discards": 5,
        "discard_bytes": 4096 * 512, "flushes": 11,
    }  # fmt: skip
    assert (array.subject, array.device) == ("cciss/c0d0", kernel_dev(104, 0))


def test_a_kernel_without_flushes_is_no_source(root: Path) -> None:
    """Before 5.5 the lines are shorter: nothing is read, and nothing breaks."""
    (root / "proc/diskstats").write_text("8 0 sda 1 2 3 4 5 6 7 8 9 10 11\n")
    assert read_disks(root) == ()
    (root / "proc/diskstats").unlink()
    assert read_disks(root) == ()


def test_a_process(root: Path) -> None:
    """Six numbers; a process that is gone has none, nor one whose file breaks off."""
    (io,) = read_process(7, root)
    assert (io.subject, io.names, io.values) == ("7", PROCESS_NAMES, (323934931, 323929600, 632687, 632675, 8, 9))
    assert read_process(8, root) == ()
    (root / "proc/7/io").write_text("rchar: 1\n")
    assert read_process(7, root) == ()


def test_a_cgroup_of_version_2(tmp_path: Path) -> None:
    """A line a device; what controllers add after is passed over, and a line without numbers too."""
    (tmp_path / "io.stat").write_text(
        "8:0 rbytes=1 wbytes=2 rios=3 wios=4 dbytes=5 dios=6 cost.vrate=100.00\n259:1 \n\nx rbytes=1\n"
    )
    disk, other = read_cgroup(tmp_path)
    assert (disk.device, disk.names, disk.values) == (kernel_dev(8, 0), CGROUP_NAMES, (1, 2, 3, 4, 5, 6))
    assert (other.device, other.values) == (kernel_dev(259, 1), (0,) * 6)


def test_a_cgroup_of_version_1(tmp_path: Path) -> None:
    """Two files: bytes, and how often; sums of all devices are passed over."""
    lines = "8:0 Read {}\n8:0 Write {}\n8:0 Sync 9\n8:0 Async 9\n8:0 Discard {}\n8:0 Total 9\nTotal 9\n"
    (tmp_path / "blkio.throttle.io_service_bytes_recursive").write_text(lines.format(1, 2, 5))
    (tmp_path / "blkio.throttle.io_serviced_recursive").write_text(lines.format(3, 4, 6))
    (disk,) = read_cgroup(tmp_path)
    assert (disk.source, disk.subject, disk.device) == ("cgroup_io", str(tmp_path), kernel_dev(8, 0))
    assert disk.values == (1, 2, 3, 4, 5, 6)


def test_a_cgroup_without_accounts(tmp_path: Path) -> None:
    """A hierarchy without the I/O controller has none."""
    assert read_cgroup(tmp_path) == ()


def test_difference(root: Path) -> None:
    """Increase, times on the spool's clock, and how long each look took."""
    ticks = count(100, 10)
    first = snapshot(7, root=root, clock=lambda: next(ticks))
    (root / "proc/diskstats").write_text(DISKSTATS.replace("sda 100 7 1600", "sda 104 9 1664"))
    (root / "proc/7/io").write_text(IO.format("").replace("632687", "632690"))
    last = snapshot(7, root=root, clock=lambda: next(ticks))
    disk, process = difference(first, last, lambda time_ns: time_ns + 5000)
    assert disk.values == (4, 64 * 512, 0, 0, 0, 0, 0)
    assert (disk.begin_ns, disk.begin_slack_ns, disk.end_ns, disk.end_slack_ns) == (5120, 10, 5160, 10)
    assert (process.values, process.subject) == ((0, 0, 3, 0, 0, 0), "7")
    assert (process.begin_ns, process.end_ns) == (5100, 5140)


def test_disks_that_come_and_go(root: Path) -> None:
    """A new one began with nothing; one that has less than before is another; one that is gone has no account."""
    first = snapshot(root=root)
    (root / "proc/diskstats").write_text(
        "8 0 sda 1 7 1600 50 20 3 320 9 0 60 61 5 1 4096 2 11 3\n8 16 sdb 3 0 24 1 0 0 0 1 0 1 1 0 0 0 0 0 0\n"
    )
    (root / "sys/block/sda").rename(root / "sys/block/sdb")
    (root / "sys/block/vdb").rename(root / "sys/block/sda")
    (root / "sys/block/sda/queue/iostats").write_text("1\n")
    (account,) = difference(first, snapshot(root=root))
    assert (account.subject, account.values) == ("sdb", (3, 24 * 512, 0, 0, 0, 0, 0))
    assert len(account.values) == len(DISK_NAMES)


def test_a_process_needs_both_looks(root: Path) -> None:
    """A process' I/O before the first look is unknown, so there is no account."""
    assert difference((), snapshot(7, root=root)) == ()
    assert [each.source for each in difference(snapshot(root=root), snapshot(7, root=root))] == []
