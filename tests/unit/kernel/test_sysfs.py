"""Reads of /sys, on trees built for the test."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lo2io.kernel import sysfs
from lo2io.model import BlockDevice, Cpu

if TYPE_CHECKING:
    from pathlib import Path


def put(root: Path, **files: str) -> None:
    """Write files; ``__`` in a name is a slash."""
    for name, text in files.items():
        path = root / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


@pytest.mark.parametrize(
    ("text", "cpus"), [("0\n", (0,)), ("0-3", (0, 1, 2, 3)), ("0-1,4,6-7\n", (0, 1, 4, 6, 7)), ("\n", ())]
)
def test_cpu_lists(text: str, cpus: tuple[int, ...]) -> None:
    """Single numbers and ranges, as the kernel prints them."""
    assert sysfs.parse_cpu_list(text) == cpus


def test_topology_of_the_cpus_that_run(tmp_path: Path) -> None:
    """CPUs that are off are left out; without a topology, each is a core of one package."""
    root = tmp_path / "sys/devices/system/cpu"
    put(root, online="0,2-3\n", cpu0__topology__core_id="4\n", cpu0__topology__physical_package_id="1\n")
    put(root, cpu1__topology__core_id="5\n", cpu2__topology__core_id="6\n")
    assert sysfs.read_cpus(tmp_path) == (Cpu(0, 4, 1), Cpu(2, 6, 0), Cpu(3, 3, 0))


def test_disks_and_partitions(tmp_path: Path) -> None:
    """Numbers as the tracepoints have them; a partition's queue is its disk's; what vanished is left out."""
    devices = tmp_path / "sys/devices"
    put(devices, vda__dev="254:0\n", vda__size="2048\n", vda__queue__scheduler="none [mq-deadline] kyber\n")
    put(devices, vda__queue__rotational="1\n", vda__device__model="Disk 5  \n")
    put(
        devices,
        vda__vda1__dev="254:1\n",
        vda__vda1__size="1024\n",
        vda__vda1__partition="1\n",
        vda__vda1__start="512\n",
    )
    put(devices, nvme0n1__dev="259:300\n", nvme0n1__queue__scheduler="none\n", nvme0n1__queue__rotational="0\n")
    (devices / "cciss!c0d0").mkdir()
    put(devices / "cciss!c0d0", dev="104:0")
    put(devices, loop0__dev="7:0\n", loop0__loop__backing_file="/var/image\n", loop0__loop__dio="0\n")
    links = tmp_path / "sys/class/block"
    links.mkdir(parents=True)
    for name in ("nvme0n1", "vda/vda1", "vda", "gone", "cciss!c0d0", "loop0"):
        (links / name.rpartition("/")[2]).symlink_to(devices / name)
    assert sysfs.read_devices(tmp_path) == (
        BlockDevice(7 << 20, "loop0", None, None, None, image="/var/image", image_direct=False),
        BlockDevice(104 << 20, "cciss/c0d0", None, None, None, None),
        BlockDevice(254 << 20, "vda", "mq-deadline", True, 1 << 20, "Disk 5"),
        BlockDevice(254 << 20 | 1, "vda1", "mq-deadline", True, 512 << 10, "Disk 5", disk=254 << 20, start_sector=512),
        BlockDevice(259 << 20 | 300, "nvme0n1", "none", False, None, None),
    )
    assert sysfs.read_devices(tmp_path / "nowhere") == ()
