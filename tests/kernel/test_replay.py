"""A recording is replayed, and recorded again: same operations, offsets and bytes; the original files do not change."""

from __future__ import annotations

import sys
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from workloads.disks import device_number, loop_device
from workloads.record import LO2IO, Recorded, record
from workloads.served import lo2io

from lo2io.exports.fio.plan import make_plan
from lo2io.trace.reader import open_trace

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

pytestmark = [
    pytest.mark.requires("root", "tracefs", "events", "fio", "losetup"),
    pytest.mark.usefixtures("busy_cpus"),
]

CALLS = ("-e", "syscalls")
"""For tests that need no disks: some virtual machines lose samples of their completions."""
Action = tuple[str, str, int, int]
NAMES = {
    "read": "read", "pread64": "read", "readv": "read", "write": "write", "pwrite64": "write", "writev": "write",
    "fsync": "sync", "fdatasync": "datasync",
}  # fmt: skip

WORK = """
import mmap, os, sys, threading
os.chdir(sys.argv[1])
for name in os.listdir():
    os.unlink(name)
open("input", "wb").write(os.urandom(100_000))

def first():
    fd = os.open("input", os.O_RDONLY)
    while os.read(fd, 30_000):
        pass
    os.pread(fd, 50, 12_345)
    os.readv(os.dup(fd), [bytearray(10), bytearray(20)])
    os.lseek(fd, 500, os.SEEK_SET)
    os.readv(fd, [bytearray(10), bytearray(20)])
    other = os.open("name with space", os.O_RDWR | os.O_CREAT | os.O_TRUNC)
    for _ in range(5):
        os.write(other, b"a" * 4096)
    os.fdatasync(other)
    os.pwrite(other, b"b", 100_000)
    os.pread(other, 8192, 4096)
    os.fsync(other)

def second():
    page = mmap.mmap(-1, 8192)
    direct = os.open("direct", os.O_RDWR | os.O_CREAT | os.O_DIRECT)
    for place in (3, 1, 2):
        os.pwritev(direct, [page], place * 8192)
    os.preadv(direct, [page], 8192)
    log = os.open("log", os.O_WRONLY | os.O_CREAT | os.O_DSYNC | os.O_APPEND)
    for _ in range(3):
        os.write(log, b"c" * 77)

threads = [threading.Thread(target=each) for each in (first, second)]
for thread in threads:
    thread.start()
    thread.join()
"""
FIRST: list[Action] = [
    *(("read", "input", offset, min(30_000, 100_000 - offset)) for offset in range(0, 100_000, 30_000)),
    ("read", "input", 12_345, 50),
    ("read", "input", 500, 30),
    *(("write", "name with space", 4096 * place, 4096) for place in range(5)),
    ("datasync", "name with space", 0, 0),
    ("write", "name with space", 100_000, 1),
    ("read", "name with space", 4096, 8192),
    ("sync", "name with space", 0, 0),
]
DIRECT: list[Action] = [
    *(("write", "direct", 8192 * place, 8192) for place in (3, 1, 2)),
    ("read", "direct", 8192, 8192),
]
LOG: list[Action] = [("write", "log", 77 * place, 77) for place in range(3)]


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> tuple[Recorded, Path]:
    """A workload of two threads and four files, and the folder of the files."""
    folder = tmp_path_factory.mktemp("replay") / "data"
    folder.mkdir()
    return record(folder.parent / "T", [sys.executable, "-S", "-c", WORK, folder], *CALLS), folder


def actions(recorded: Recorded, folder: Path, names: dict[str, str]) -> list[list[Action]]:
    """The acts of each thread on the files of this folder, with translated names."""
    found: defaultdict[Any, list[Action]] = defaultdict(list)
    for row in recorded.operations():
        path = Path(row["path"] or "/")
        action = NAMES.get(row["call"].removesuffix("2").replace("pwritev", "write").replace("preadv", "read"))
        if action is None or path.parent != folder or row["bytes_result"] == 0 or path.name not in names:
            continue
        found[row["task"]].append((action, names[path.name], row["offset_bytes"] or 0, row["bytes_result"] or 0))
    return sorted(found.values())


def record_replay(original: Recorded, target: Path, options: Sequence[str | Path]) -> Recorded:
    """Record a replay."""
    return record(target, [LO2IO, "replay", original.trace.path, *options], *CALLS)


def short_names(original: Recorded) -> dict[str, str]:
    """The original name after each name that a replay uses."""
    paths = make_plan(original.trace, "thread", lambda _: None).paths
    return {f"f{number:06d}": Path(path.decode()).name for number, path in enumerate(paths)}


def folder_of(recorded: Recorded) -> Path:
    """The folder of a replay's files."""
    (line,) = (line for line in recorded.stderr.splitlines() if line.startswith("lo2io: left in "))
    return Path(line.removeprefix("lo2io: left in "))


def test_workload_is_what_it_says(original: tuple[Recorded, Path]) -> None:
    """The trace to replay has the program's acts."""
    recorded, folder = original
    names = {name: name for name in ("input", "name with space", "direct", "log")}
    created = [("write", "input", 0, 100_000)]
    assert actions(recorded, folder, names) == sorted([created, FIRST, DIRECT + LOG])


@pytest.mark.parametrize("options", [[], ["--no-wait", "--copy"]])
def test_same_again(original: tuple[Recorded, Path], tmp_path: Path, options: list[str]) -> None:
    """Operations, files, offsets and bytes in each thread's order.

    Files opened in another way are replayed beside it.
    """
    recorded, folder = original
    before = {path: path.read_bytes() for path in folder.iterdir()}
    again = record_replay(recorded, tmp_path / "R", ["--on", tmp_path, "--keep", *options])
    own = {"input", "name with space", "direct", "log"}
    names = {short: name for short, name in short_names(recorded).items() if name in own}
    found = actions(again, folder_of(again), names)
    replayed = [part for part in found if part not in made(again, names, {"--copy"} & set(options))]
    assert replayed == sorted([[("write", "input", 0, 100_000)], FIRST, DIRECT, LOG])
    flags = {
        row["flags"] & 0o40000 for row in again.calls("openat") if names.get(Path(row["path"] or "/").name) == "direct"
    }
    assert 0o40000 in flags
    assert {path: path.read_bytes() for path in folder.iterdir()} == before


def made(again: Recorded, names: dict[str, str], copied: set[str]) -> Iterator[list[Action]]:
    """Files that lo2io wrote before fio began."""
    main = next(row["task"] for row in again.operations())
    folder = folder_of(again)
    own: list[Action] = []
    for row in again.operations():
        path = Path(row["path"] or "/")
        if row["task"] == main and path.parent == folder and row["call"] in NAMES and path.name in names:
            own.append((NAMES[row["call"]], names[path.name], row["offset_bytes"] or 0, row["bytes_result"] or 0))
    assert copied or all(action in {"write", "sync"} for action, *_ in own)
    yield own


def test_in_place(tmp_path: Path) -> None:
    """With --in-place, the replay writes to the original files; without, it does not."""
    data = tmp_path / "data"
    data.write_bytes(b"a" * 5000)
    work = "import os, sys; fd = os.open(sys.argv[1], os.O_RDWR); os.read(fd, 100); os.pwrite(fd, b'b' * 1000, 2000)"
    recorded = record(tmp_path / "T", [sys.executable, "-S", "-c", work, data], *CALLS)
    command = ["replay", recorded.trace.path]
    refused = lo2io(*command)
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "--in-place" in refused.stderr
    before = data.read_bytes()
    done = lo2io(*command, "--in-place")
    assert done.returncode == 0, done.stderr
    after = data.read_bytes()
    assert (after[:2000], after[3000:]) == (before[:2000], before[3000:])
    assert after[2000:3000] != before[2000:3000]


DISK_WORK = """
import mmap, os, sys
fd = os.open(sys.argv[1], os.O_RDWR | os.O_DIRECT)
page = mmap.mmap(-1, 65536)
for place in (5, 1, 3):
    os.pwritev(fd, [page], place * 65536)
os.fsync(fd)
for place in (1, 5):
    os.preadv(fd, [memoryview(page)[:4096]], place * 65536)
"""


def test_disk_to_disk(loop: Path, tmp_path: Path) -> None:
    """Block requests of one disk are replayed on another: the same operations, sectors and sizes, in order."""
    recorded = record_disk(tmp_path / "T", [sys.executable, "-S", "-c", DISK_WORK, loop])
    refused = lo2io("replay", recorded.trace.path, "--by", "device", "--on", loop)
    assert refused.returncode == 2
    assert "the trace was recorded on it" in refused.stderr
    with loop_device(tmp_path / "other") as other:
        options = ["--by", "device", "--on", other, "--depth", "1", "--filter", f"device == {loop.name}"]
        again = record_disk(tmp_path / "R", [LO2IO, "replay", recorded.trace.path, *options])
        sent, replayed = (requests(each, disk) for each, disk in ((recorded, loop), (again, other)))
    assert [row for row in sent if row[0] != "flush"] == [
        *(("write", 128 * place, 65536) for place in (5, 1, 3)),
        *(("read", 128 * place, 4096) for place in (1, 5)),
    ]
    assert [row for row in sent if row[0] == "flush"] == [("flush", 0, 0)]
    assert replayed == sent


def record_disk(target: Path, command: Sequence[str | Path], attempts: int = 3) -> Recorded:
    """Like ``record``, but requests of other disks may have begun before.

    It does not wait for completion times, either: some virtual machines lose samples of interrupts.
    """
    arguments = ["record", "--force", "-o", target, "--", *command]
    done = lo2io(*arguments)
    assert done.returncode == 0, done.stderr
    recorded = Recorded(open_trace(target), done.returncode, done.stdout, done.stderr)
    proof = recorded.trace.completeness
    if attempts > 1 and any(each.vanished for each in proof.events if each.event != "block:block_rq_complete"):
        return record_disk(target, command, attempts - 1)
    assert (proof.lost - proof.vanished, proof.late) == (0, 0), done.stderr
    return recorded


def requests(recorded: Recorded, disk: Path) -> list[tuple[str, int, int]]:
    """The requests to a disk in the order of their issue: operation, sector, bytes."""
    number = device_number(disk)
    rows = [row for row in recorded.trace.requests.to_pylist() if row["device"] == number]
    rows.sort(key=lambda row: row["issue_time_ns"])
    return [(row["operation"], row["sector"], row["bytes_issued"] or 0) for row in rows]
