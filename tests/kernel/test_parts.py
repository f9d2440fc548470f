"""Which file each block request carries, against FIEMAP, stat(2) and /proc/diskstats, on file systems of its own."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import struct
import subprocess
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from workloads.disks import device_number, loop_device
from workloads.names import MAKERS
from workloads.served import lo2io

from lo2io.trace.reader import Trace, open_trace

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

pytestmark = [
    pytest.mark.alone,
    pytest.mark.requires(
        "root", "tracefs", "events", "losetup", "mkfs.ext4", "mkfs.xfs", "mkfs.btrfs", "block:block_rq_issue"
    ),
]

DISK_BYTES = 400 << 20
SECTOR = 512
NR_SMALL = 300
WRITER = f"""
set -e
cd "$1"
dd if=/dev/urandom of=sequential bs=64k count=128 status=none
for block in 40 3 77 12 60 5 99 31; do
    dd if=/dev/urandom of=random bs=16k count=1 seek=$block conv=notrunc status=none
done
mkdir small
i=0
while [ $i -lt {NR_SMALL} ]; do i=$((i + 1)); printf %04096d $i > small/$i; done
sync -f .
echo 3 > /proc/sys/vm/drop_caches
cat sequential > /dev/null
dd if=sequential of=/dev/null bs=128k iflag=direct status=none
dd if=/dev/urandom of=direct bs=128k count=8 oflag=direct status=none
"""


class Recorded(NamedTuple):
    """The parts of the requests of one disk, with their request's columns, and the truth."""

    trace: Trace
    parts: list[dict[str, Any]]
    bytes_counted: int
    """That the disk read and wrote meanwhile, by /proc/diskstats."""
    extents: dict[str, list[tuple[int, int, int]]]
    """Path → its extents by FIEMAP: offset in the file, place on the disk, length; in bytes."""
    inodes: dict[str, tuple[int, int]]
    """Path → number of its inode, and its size."""


def file_extents(path: Path) -> list[tuple[int, int, int]]:
    """FS_IOC_FIEMAP (include/uapi/linux/fiemap.h), without those whose place on the disk is not their own."""
    room = 512
    with path.open("rb") as file:
        asked = struct.pack("=QQIIII", 0, 1 << 62, 0, 0, room, 0)
        told = bytearray(asked + bytes(56 * room))
        fcntl.ioctl(file, 0xC020660B, told)
    (number,) = struct.unpack_from("=I", told, 20)
    rows = [struct.unpack_from("=QQQQQI", told, 32 + 56 * place) for place in range(number)]
    return [(row[0], row[1], row[2]) for row in rows if not row[5] & 0x2 | row[5] & 0x4]


def bytes_counted(trace: Trace, device: Path) -> int:
    """Bytes that the disk read and wrote during the recording, by /proc/diskstats."""
    rows = [
        row
        for row in trace.metadata["reconciliation"]
        if row["source"] == "diskstats" and row["subject"] == device.name
    ]
    return sum(row["counted"] for row in rows if row["name"] in {"read_bytes", "write_bytes"})


@contextlib.contextmanager
def mounted(system: str, device: Path, place: Path) -> Iterator[None]:
    """A new file system on a disk."""
    at_once = ["-E", "lazy_itable_init=0,lazy_journal_init=0"] if system == "ext4" else []  # else ext4 goes on writing
    subprocess.run([*MAKERS[system], *at_once, device], check=True, capture_output=True)
    place.mkdir()
    subprocess.run(["mount", device, place], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", place], check=True)


def parts_of(trace: Trace, device: int) -> list[dict[str, Any]]:
    """Parts with ``path`` and the columns of their requests as ``request``; no flushes and discards."""
    paths = dict(zip(*(trace.files[column].to_pylist() for column in ("file", "path")), strict=True))
    requests = {row["id"]: row for row in trace.requests.to_pylist() if row["device"] == device}
    rows = [row for row in trace.table("request_parts").to_pylist() if row["request"] in requests]
    return [
        row | {"path": paths.get(row["file"]), "request": requests[row["request"]]}
        for row in rows
        if row["kind"] not in {"flush", "discard"}
    ]


def record_writer(folder: Path, system: str) -> Recorded:
    """The writer on a file system of this kind, while the whole machine is recorded."""
    with loop_device(folder / "image", DISK_BYTES) as device, mounted(system, device, folder / "on"):
        command = ["system-wide", "-a", "-q", "-o", folder / "T", "--", "sh", "-c", WRITER, "sh", folder / "on"]
        done = lo2io(*command)
        assert done.returncode == 0, done.stderr
        files = [path for path in (folder / "on").rglob("*") if path.is_file()]
        extents = {str(path): file_extents(path) for path in files}
        inodes = {str(path): (path.stat().st_ino, path.stat().st_size) for path in files}
        number = device_number(device)
    trace = open_trace(folder / "T")
    return Recorded(trace, parts_of(trace, number), bytes_counted(trace, device), extents, inodes)


@pytest.fixture(scope="module", params=list(MAKERS))
def written(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    awake: Callable[[], AbstractContextManager[None]],
) -> tuple[str, Recorded]:
    """The writer on each kind of file system."""
    with awake():
        return request.param, record_writer(tmp_path_factory.mktemp(f"parts-{request.param}"), request.param)


def test_parts_add_up_to_the_disk_s_own_count(written: tuple[str, Recorded]) -> None:
    """Each request's parts add up to its bytes, and all of them to what /proc/diskstats counted."""
    _, found = written
    sums: Counter[int] = Counter()
    for part in found.parts:
        sums[part["request"]["id"]] += part["bytes"]
        assert not part["cut"]
    issued = {part["request"]["id"]: part["request"]["bytes_issued"] for part in found.parts}
    assert sums == issued
    assert sum(sums.values()) == found.bytes_counted


@pytest.mark.parametrize("written", ["ext4", "xfs"], indirect=True)
def test_parts_lie_where_fiemap_says(written: tuple[str, Recorded]) -> None:
    """Each part of a file's data, also one that a kernel's worker wrote, lies at the extent of that file and offset.

    btrfs' FIEMAP tells places in its own address space, not on the disk.
    """
    _, found = written
    judged = 0
    for part in found.parts:
        if part["kind"] != "file" or part["offset_bytes"] is None or not found.extents.get(part["path"] or ""):
            continue
        offset, place = part["offset_bytes"], SECTOR * part["sector"]
        while offset < part["offset_bytes"] + part["bytes"]:
            at = next(each for each in found.extents[part["path"]] if each[0] <= offset < each[0] + each[2])
            assert at[1] + offset - at[0] == place, (part, at)
            step = min(at[0] + at[2], part["offset_bytes"] + part["bytes"]) - offset
            offset, place, judged = offset + step, place + step, judged + step
    assert (
        judged >= 2 * (128 << 16) + 8 * 16384 + NR_SMALL * 4096
    )  # sequential is written, and read once through the cache


def test_parts_name_their_files(written: tuple[str, Recorded]) -> None:
    """Every byte of each file was written, in parts with the number of its inode; workers wrote most of them."""
    system, found = written
    written_bytes: Counter[str] = Counter()
    for part in found.parts:
        if part["kind"] == "file" and part["request"]["operation"] == "write":
            assert part["path"] in found.inodes, part
            assert part["inode"] == found.inodes[part["path"]][0]
            written_bytes[part["path"]] += part["bytes"]
    inlined = {path for path, (_, size) in found.inodes.items() if system == "btrfs" and size <= 4096}
    for path, (_, size) in found.inodes.items():
        if path.endswith("/random"):
            assert written_bytes[path] == 8 * 16384
        elif path not in inlined:
            assert written_bytes[path] >= size, path


def test_direct_reads_and_writes_name_their_file(written: tuple[str, Recorded]) -> None:
    """Their memory is the program's, so the place in the file is not known, but the file is."""
    system, found = written
    direct = [part for part in found.parts if part["direct"]]
    if system == "btrfs":  # it reads and writes these files through the page cache, for they have checksums
        assert all(part["kind"] == "file" for part in direct)
        return
    sizes = Counter[tuple[str, str]]()
    for part in direct:
        assert (part["kind"], part["offset_bytes"], part["inner_inode"]) == ("file", None, 0)
        sizes[Path(part["path"]).name, part["request"]["operation"]] += part["bytes"]
    assert sizes == {("sequential", "read"): 128 << 16, ("direct", "write"): 8 << 17}


def test_journal_and_metadata_are_told_apart(written: tuple[str, Recorded]) -> None:
    """ext4 writes its journal; all three write blocks of their own."""
    system, found = written
    kinds = Counter(part["kind"] for part in found.parts)
    assert kinds["metadata"]
    assert bool(kinds["journal"]) == (system == "ext4")
    assert not kinds["swap"]


def test_a_merged_request_has_all_its_parts(written: tuple[str, Recorded]) -> None:
    """Small files lie next to each other. XFS sends them so fast that the kernel merges their bios."""
    system, found = written
    if system == "xfs":
        assert max(part["number"] for part in found.parts) > 64


@pytest.mark.usefixtures("busy_cpus")
def test_a_loop_device_shows_both_layers(tmp_path: Path) -> None:
    """A loop device with direct I/O: the disk below names the image, and the file whose pages are written."""
    image = tmp_path / "image"
    with loop_device(image, DISK_BYTES) as device:
        subprocess.run(["losetup", "--direct-io=on", device], check=True)
        with mounted("ext4", device, tmp_path / "on"):
            script = 'dd if=/dev/urandom of="$1"/f bs=64k count=32 conv=fsync status=none'
            command = ["system-wide", "-a", "-q", "-o", tmp_path / "T", "--", "sh", "-c", script, "sh", tmp_path / "on"]
            lo2io(*command, check=True)
            upper = (tmp_path / "on/f").stat()
            below = image.stat()
            loop = device_number(device)
    trace = open_trace(tmp_path / "T")
    above = [part for part in parts_of(trace, loop) if part["kind"] == "file"]
    assert sum(part["bytes"] for part in above if part["inode"] == upper.st_ino) == 32 << 16
    device_below = os.major(below.st_dev) << 20 | os.minor(below.st_dev)
    rows = [row for row in trace.table("request_parts").to_pylist() if row["inode"] == below.st_ino]
    assert {row["device"] for row in rows} == {device_below}
    assert all(row["direct"] for row in rows)
    assert sum(row["bytes"] for row in rows if row["inner_inode"] == upper.st_ino) == 32 << 16


def test_verify_and_report_know_parts(written: tuple[str, Recorded]) -> None:
    """The trace keeps every rule, and the report tells the bytes of each file's requests."""
    _, found = written
    done = lo2io("verify", found.trace.path)
    assert done.returncode == 0, done.stdout
    page = lo2io("report", "--full", found.trace.path, check=True).stdout
    assert "What block requests carried" in page
    told = {row["path"]: row for row in summary_of(found)["parts"]["files"]}
    for path in found.inodes:
        if path.endswith(("/sequential", "/direct")):
            assert told[path]["bytes_written"] >= found.inodes[path][1]


def summary_of(found: Recorded) -> dict[str, Any]:
    """The report's JSON."""
    summary: dict[str, Any] = json.loads(lo2io("report", "--json", found.trace.path, check=True).stdout)
    return summary
