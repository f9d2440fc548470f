"""Reads of ``/sys``: online CPUs and their places, disks.

Every function takes the ``root`` under which ``sys`` lies. Formats: Documentation/ABI of the kernel's source,
stable/sysfs-devices-system-cpu and stable/sysfs-block; of loop devices drivers/block/loop.c.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from lo2io.model import BlockDevice, Cpu
from lo2io.units import SECTOR_BYTES, kernel_dev

if TYPE_CHECKING:
    from collections.abc import Iterable

ROOT = Path("/")


def parse_cpu_list(text: str) -> tuple[int, ...]:
    """``0-2,5`` → (0, 1, 2, 5).

    Raises:
        ValueError: The text is no such list.
    """
    cpus: list[int] = []
    for part in text.strip().split(","):
        if part:
            first, _, last = part.partition("-")
            cpus.extend(range(int(first), int(last or first) + 1))
    return tuple(cpus)


def format_cpu_list(cpus: Iterable[int]) -> str:
    """(0, 1, 2, 5) → ``0-2,5``."""
    ranges: list[list[int]] = []
    for cpu in sorted(set(cpus)):
        if ranges and ranges[-1][1] == cpu - 1:
            ranges[-1][1] = cpu
        else:
            ranges.append([cpu, cpu])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in ranges)


def read_online_cpus(root: Path = ROOT) -> tuple[int, ...]:
    """The online CPUs, in ascending order."""
    return parse_cpu_list((root / "sys/devices/system/cpu/online").read_text(encoding="ascii"))


def read_cpus(root: Path = ROOT) -> tuple[Cpu, ...]:
    """Package and core of each online CPU. If the machine does not tell them, it counts as one package of own cores."""
    found = []
    for cpu in read_online_cpus(root):
        topology = root / f"sys/devices/system/cpu/cpu{cpu}/topology"
        core, package = _read_int(topology / "core_id"), _read_int(topology / "physical_package_id")
        found.append(Cpu(cpu, cpu if core is None else core, 0 if package is None else package))
    return tuple(found)


def read_devices(root: Path = ROOT) -> tuple[BlockDevice, ...]:
    """Every disk and partition, by device number. A partition has its disk's queue."""
    folder = root / "sys/class/block"
    if not folder.is_dir():
        return ()
    found = [_read_device(entry) for entry in folder.iterdir()]
    return tuple(sorted((device for device in found if device is not None), key=lambda device: device.device))


def _read_device(entry: Path) -> BlockDevice | None:
    """The disk or partition of a folder; None: it vanished (a loop device, a pulled disk)."""
    device = _read_dev(entry)
    if device is None:
        return None
    disk = entry.resolve()
    whole = None
    if (disk / "partition").exists():
        disk = disk.parent
        whole = _read_dev(disk)
    rotational = _read_int(disk / "queue/rotational")
    sectors = _read_int(entry / "size")
    image_direct = _read_int(disk / "loop/dio")
    return BlockDevice(
        device=device,
        name=entry.name.replace("!", "/"),  # sysfs writes ! for a slash in a name: cciss!c0d0
        scheduler=_chosen(_read_text(disk / "queue/scheduler")),
        rotational=None if rotational is None else bool(rotational),
        size_bytes=None if sectors is None else sectors * SECTOR_BYTES,
        model=_read_text(disk / "device/model"),
        disk=whole,
        start_sector=None if whole is None else _read_int(entry / "start"),
        image=_read_text(disk / "loop/backing_file"),
        image_direct=None if image_direct is None else bool(image_direct),
    )


def _read_dev(entry: Path) -> int | None:
    major, _, minor = (_read_text(entry / "dev") or "").partition(":")
    return kernel_dev(int(major), int(minor)) if minor else None


def _chosen(text: str | None) -> str | None:
    """``none [mq-deadline] kyber`` → mq-deadline. A queue without a choice has just ``none``."""
    if not text:
        return None
    return next((word[1:-1] for word in text.split() if word.startswith("[")), text.split()[0])


def _read_text(path: Path) -> str | None:
    """The stripped text of a file; None: the file does not exist or is empty."""
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip() or None
    except OSError:
        return None


def _read_int(path: Path) -> int | None:
    text = _read_text(path)
    try:
        return None if text is None else int(text)
    except ValueError:
        return None
