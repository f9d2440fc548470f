"""The kernel's own accounts of disks, a process, a cgroup. In: running totals. Out: increases between two readings.

The kernel has three files of accounts. None depends on tracepoints:

- ``/proc/diskstats`` (Documentation/admin-guide/iostats.rst, block/genhd.c, block/blk-mq.c, Linux 6.18) counts requests
  when they complete, also failed ones. A merged request counts with the request that absorbed it. A bio that asks for a
  flush without data is a write without sectors, and the flush that serves it is a flush. Only whole disks whose driver
  takes requests are read: drivers that take bios (device mapper, md, zram) send requests to other disks.
- ``/proc/PID/io`` (fs/proc/base.c) counts the reads and writes of a process' threads, and of children that it waited
  for.
- ``io.stat`` of a cgroup (v2), or ``blkio.throttle.io_*_recursive`` (v1), counts bios when they are submitted.

Every function takes the ``root`` under which ``proc`` and ``sys`` lie.
"""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from lo2io.frozen import dataclass
from lo2io.model import Account
from lo2io.units import SECTOR_BYTES, kernel_dev

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

ROOT = Path("/")
DISKSTATS, PROC_IO, CGROUP_IO = "diskstats", "proc_io", "cgroup_io"

DISK_NAMES = ("reads", "read_bytes", "writes", "write_bytes", "discards", "discard_bytes", "flushes")
_DISK_FIELDS = (3, 5, 7, 9, 14, 16, 18)
"""Places of :data:`DISK_NAMES` in a line of diskstats, which begins with major, minor and name."""
_IN_SECTORS = frozenset({"read_bytes", "write_bytes", "discard_bytes"})
_MIN_DISK_FIELDS = max(_DISK_FIELDS) + 1
PROCESS_NAMES = ("rchar", "wchar", "syscr", "syscw", "read_bytes", "write_bytes")
CGROUP_NAMES = ("read_bytes", "write_bytes", "reads", "writes", "discard_bytes", "discards")
_V2_KEYS = ("rbytes", "wbytes", "rios", "wios", "dbytes", "dios")
_V1_FILES = (("blkio.throttle.io_service_bytes_recursive", "bytes"), ("blkio.throttle.io_serviced_recursive", "s"))
_V1_OPERATIONS = {"Read": "read", "Write": "write", "Discard": "discard"}


@dataclass(frozen=True, slots=True)
class Reading:
    """Running totals of one subject, true at some time in [begin_ns, end_ns]."""

    source: str
    subject: str
    device: int | None
    names: tuple[str, ...]
    values: tuple[int, ...]
    begin_ns: int
    """CLOCK_MONOTONIC before the file was read."""
    end_ns: int
    """CLOCK_MONOTONIC after the file was read."""


def snapshot(
    pid: int | None = None,
    cgroup: Path | None = None,
    root: Path = ROOT,
    clock: Callable[[], int] = time.monotonic_ns,
) -> tuple[Reading, ...]:
    """Read all accounts now. Accounts that cannot be read are left out.

    Args:
        pid: A process whose account is wanted.
        cgroup: The folder of a cgroup whose account is wanted.
        root: The folder above ``proc`` and ``sys``.
        clock: Returns nanoseconds. It is read before and after each file.
    """
    process = () if pid is None else read_process(pid, root, clock)
    group = () if cgroup is None else read_cgroup(cgroup, clock)
    return (*read_disks(root, clock), *process, *group)


def difference(
    first: Iterable[Reading], last: Iterable[Reading], to_spool_clock: Callable[[int], int] = lambda time_ns: time_ns
) -> tuple[Account, ...]:
    """The increase of all accounts between two snapshots.

    A subject that is missing in the first snapshot, such as a new disk, began with zero. A disk without any increase is
    left out. So is a disk with a decrease: it is another disk of the same name.

    Args:
        first: The earlier readings.
        last: The later readings.
        to_spool_clock: Turns CLOCK_MONOTONIC into the spool's clock.
    """
    before = {(each.source, each.subject, each.device): each for each in first}
    whole: dict[str, Reading] = {}
    for each in before.values():
        whole.setdefault(each.source, each)
    accounts = []
    for end in last:
        begin = before.get((end.source, end.subject, end.device))
        moment = begin or whole.get(end.source)
        if moment is None or (begin is None and end.source == PROC_IO):
            continue
        earlier = begin.values if begin else (0,) * len(end.values)
        values = tuple(late - early for early, late in zip(earlier, end.values, strict=True))
        if min(values) < 0 or (end.source == DISKSTATS and not any(values)):
            continue
        start, stop = to_spool_clock(moment.begin_ns), to_spool_clock(end.begin_ns)
        slack = (moment.end_ns - moment.begin_ns, end.end_ns - end.begin_ns)
        accounts.append(Account(end.source, end.subject, end.device, end.names, values, start, stop, *slack))
    return tuple(accounts)


def read_disks(root: Path = ROOT, clock: Callable[[], int] = time.monotonic_ns) -> tuple[Reading, ...]:
    """The accounts of every whole disk that takes requests and counts them."""
    begin = clock()
    content = _read(root / "proc/diskstats")
    end = clock()
    found = []
    for line in content.splitlines():
        fields = line.split()
        if len(fields) < _MIN_DISK_FIELDS or not _counts_requests(fields[2], root):
            continue
        numbers = [int(fields[place]) for place in _DISK_FIELDS]
        values = tuple(
            number * SECTOR_BYTES if name in _IN_SECTORS else number
            for name, number in zip(DISK_NAMES, numbers, strict=True)
        )
        device = kernel_dev(int(fields[0]), int(fields[1]))
        found.append(Reading(DISKSTATS, fields[2], device, DISK_NAMES, values, begin, end))
    return tuple(found)


def read_process(pid: int, root: Path = ROOT, clock: Callable[[], int] = time.monotonic_ns) -> tuple[Reading, ...]:
    """A process' account, also of a zombie. Empty if the process does not exist or belongs to another user."""
    begin = clock()
    content = _read(root / f"proc/{pid}/io")
    end = clock()
    numbers = {key: int(value) for key, colon, value in (line.partition(":") for line in content.splitlines()) if colon}
    if not numbers.keys() >= set(PROCESS_NAMES):
        return ()
    values = tuple(numbers[name] for name in PROCESS_NAMES)
    return (Reading(PROC_IO, str(pid), None, PROCESS_NAMES, values, begin, end),)


def add(whole: tuple[Reading, ...], part: tuple[Reading, ...]) -> tuple[Reading, ...]:
    """The account of a process plus that of a descendant, as if the process had waited for it."""
    if not whole or not part:
        return whole or part
    (first,), (second,) = whole, part
    values = tuple(a + b for a, b in zip(first.values, second.values, strict=True))
    return (replace(first, values=values, begin_ns=second.begin_ns, end_ns=second.end_ns),)


def read_cgroup(folder: Path, clock: Callable[[], int] = time.monotonic_ns) -> tuple[Reading, ...]:
    """The account of a cgroup and the cgroups below it, by device. Empty if its hierarchy does not account I/O."""
    begin = clock()
    v2 = (folder / "io.stat").exists()
    numbers = _parse_v2(_read(folder / "io.stat")) if v2 else _read_v1(folder)
    end = clock()
    return tuple(
        Reading(
            CGROUP_IO,
            str(folder),
            device,
            CGROUP_NAMES,
            tuple(counts.get(name, 0) for name in CGROUP_NAMES),
            begin,
            end,
        )
        for device, counts in numbers.items()
    )


def _parse_v2(content: str) -> dict[int, dict[str, int]]:
    """Parse ``254:0 rbytes=4096 wbytes=0 rios=1 wios=0 dbytes=0 dios=0``. Further keys belong to I/O controllers."""
    names = dict(zip(_V2_KEYS, CGROUP_NAMES, strict=True))
    found: dict[int, dict[str, int]] = {}
    for line in content.splitlines():
        place, *pairs = line.split() or [""]
        device = _device(place)
        if device is not None:
            split = (pair.partition("=") for pair in pairs)
            found[device] = {names[key]: int(value) for key, _, value in split if key in names}
    return found


def _read_v1(folder: Path) -> dict[int, dict[str, int]]:
    """Read lines like ``254:0 Read 4096``, one for each operation. Bytes and bios are in two files."""
    found: dict[int, dict[str, int]] = {}
    for name, ending in _V1_FILES:
        for line in _read(folder / name).splitlines():
            place, _, rest = line.partition(" ")
            operation, _, value = rest.partition(" ")
            device = _device(place)
            if device is not None and operation in _V1_OPERATIONS:
                joined = f"_{ending}" if ending == "bytes" else ending
                found.setdefault(device, {})[_V1_OPERATIONS[operation] + joined] = int(value)
    return found


def _device(text: str) -> int | None:
    major, colon, minor = text.partition(":")
    return kernel_dev(int(major), int(minor)) if colon and major.isdecimal() and minor.isdecimal() else None


def _counts_requests(disk: str, root: Path) -> bool:
    """True for a disk with statistics whose driver takes requests. Such a disk has a folder of hardware queues."""
    folder = root / "sys/block" / disk.replace("/", "!")
    return (folder / "mq").is_dir() and _read(folder / "queue/iostats").strip() == "1"


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii", errors="replace")
    except OSError:
        return ""
