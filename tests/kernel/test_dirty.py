"""Who caused the disk's writes: each byte of a file's data is charged to the process that dirtied its page."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from workloads import dirtying
from workloads.dirtying import WRITERS
from workloads.disks import device_number, loop_device
from workloads.served import lo2io

from lo2io.exports import formats
from lo2io.trace.reader import Trace, open_trace

from .test_parts import DISK_BYTES, mounted

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from build.traceprocessor import TraceProcessor
pytestmark = [
    pytest.mark.alone,
    pytest.mark.requires(
        "root",
        "tracefs",
        "events",
        "losetup",
        "mkfs.ext4",
        "mkfs.xfs",
        "mkfs.btrfs",
        "fio",
        "block:block_rq_issue",
        "writeback:writeback_dirty_folio",
        "writeback:writeback_start",
    ),
]
SIZE = 4 << 20
HALF = SIZE // 2
STEPS = (
    *(f"{name}:{name}:0:{SIZE}" for name in WRITERS),
    f"write:halves:0:{HALF}",
    f"scattered:halves:{HALF}:{HALF}",
    "sync",
    f"mapped:again:0:{SIZE}",
    f"write:unwritten:0:{HALF}",
)
"""Before the recording, `again` has been written whole, and the first half of `before`."""


class Recorded(NamedTuple):
    """A recording of all writers on one disk."""

    system: str
    trace: Trace
    rows: list[dict[str, Any]]
    """Of write_backs, with ``pid`` and ``reason``; those of this file system's files."""
    parts: Counter[int]
    """Bytes of parts of files that the disk wrote, by inode."""
    pids: dict[str, int]
    inodes: dict[str, int]

    def charged(self, file: str, *, written: bool = True) -> Counter[tuple[str, int | None]]:
        """Bytes of a file by kind of the charge and pid."""
        sums: Counter[tuple[str, int | None]] = Counter()
        for row in self.rows:
            if row["inode"] == self.inodes[file] and (row["request"] is not None) == written:
                sums[row["charged"], row["pid"]] += row["bytes"]
        return sums


def record_writers(folder: Path, system: str) -> Recorded:
    """All writers on a file system of this kind, while the whole machine is recorded."""
    with loop_device(folder / "image", DISK_BYTES) as device, mounted(system, device, folder / "on"):
        for name in (*WRITERS, "halves", "again", "before", "unwritten"):
            (folder / "on" / name).touch()
        for name in ("mapped", "again"):
            (folder / "on" / name).write_bytes(bytes(SIZE))
        subprocess.run(["sync", "-f", folder / "on"], check=True)
        (folder / "on/before").write_bytes(bytes(HALF))
        program = [sys.executable, dirtying.__file__, folder / "on", *STEPS]
        command = ["system-wide", "-a", "-q", "-o", folder / "T", "--", *program]
        done = lo2io(*command)
        assert done.returncode == 0, done.stderr
        pids = {line.rpartition(" ")[0]: int(line.rpartition(" ")[2]) for line in done.stdout.splitlines()}
        inodes = {path.name: path.stat().st_ino for path in (folder / "on").iterdir() if path.is_file()}
        of_files = device_of_files(folder / "on")
        number = device_number(device)
    trace = open_trace(folder / "T")
    return Recorded(
        system,
        trace,
        rows_of(trace, of_files),
        parts_of(trace, number),
        pids,
        inodes,
    )


def device_of_files(place: Path) -> int:
    """s_dev of a mounted file system. On btrfs, stat(2) shows another number."""
    mounts = (line.split() for line in Path("/proc/self/mountinfo").read_text(encoding="utf-8").splitlines())
    major, minor = next(words[2] for words in mounts if words[4] == str(place)).split(":")
    return int(major) << 20 | int(minor)


def rows_of(trace: Trace, device: int) -> list[dict[str, Any]]:
    """Rows of write_backs of this file system's files, with the pid of the thread and the request's reason."""
    pids = dict(zip(*(trace.table("threads")[column].to_pylist() for column in ("task", "pid")), strict=True))
    reasons = dict(zip(*(trace.requests[column].to_pylist() for column in ("id", "reason")), strict=True))
    rows = [row for row in trace.table("write_backs").to_pylist() if row["device"] == device]
    return [row | {"pid": pids.get(row["task"]), "reason": reasons.get(row["request"])} for row in rows]


def parts_of(trace: Trace, device: int) -> Counter[int]:
    """Bytes of files' data that requests of this disk wrote, by inode."""
    writes = {
        row["id"] for row in trace.requests.to_pylist() if row["device"] == device and row["operation"] == "write"
    }
    sums: Counter[int] = Counter()
    for row in trace.table("request_parts").to_pylist():
        if row["request"] in writes and row["kind"] == "file":
            sums[row["inode"]] += row["bytes"]
    return sums


@pytest.fixture(scope="module", params=["ext4", "xfs", "btrfs"])
def written(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    awake: Callable[[], AbstractContextManager[None]],
) -> Recorded:
    """The writers on each kind of file system."""
    with awake():
        return record_writers(tmp_path_factory.mktemp(f"dirty-{request.param}"), request.param)


@pytest.mark.parametrize("name", list(WRITERS))
def test_a_single_writer_is_charged_with_each_byte(written: Recorded, name: str) -> None:
    """All bytes that the disk wrote of its file are its own, however it dirtied them."""
    in_all = written.parts[written.inodes[name]]  # the kernel may have written pages back, and then once more
    assert in_all >= SIZE
    assert written.charged(name) == {("dirtied", written.pids[f"{name}:{name}:0:{SIZE}"]): in_all}


@pytest.mark.parametrize("name", ["write", "synced", "append", "scattered", "sent"])
def test_each_call_is_charged_with_its_own_bytes(written: Recorded, name: str) -> None:
    """What each call wrote is what disks wrote for it. Stores to mappings and workers of a ring make no calls."""
    sums: Counter[int | None] = Counter()
    for row in written.rows:
        if row["inode"] == written.inodes[name] and row["request"]:
            sums[row["call_begin_ns"]] += row["bytes"]
    calls = {
        row["begin_time_ns"]: row["bytes_result"]
        for row in written.trace.operations.to_pylist()
        if row["pid"] == written.pids[f"{name}:{name}:0:{SIZE}"] and row["call"] in {"write", "pwrite64", "sendfile"}
    }
    if written.parts[written.inodes[name]] == SIZE:  # else the kernel has written some pages twice
        assert sums == {begin: size for begin, size in calls.items() if begin in sums}
        assert sums.total() == SIZE
    assert None not in sums


@pytest.mark.parametrize("name", list(WRITERS))
def test_workers_say_why_they_write(written: Recorded, name: str) -> None:
    """The last step's sync, unless the kernel has come before. An fsync, and workers of btrfs, write for themselves."""
    own = {None} if written.system == "btrfs" else set()
    reasons = {row["reason"] for row in written.rows if row["inode"] == written.inodes[name] and row["request"]}
    if name == "synced":
        assert None in reasons
    else:
        assert reasons
        assert reasons <= {"sync", "background", "periodic"} | own


def test_two_writers_of_one_file_are_told_apart(written: Recorded) -> None:
    """Each is charged with the half that it has written."""
    pids = [written.pids[step] for step in STEPS if ":halves:" in step]
    assert set(written.charged("halves")) == {("dirtied", pid) for pid in pids}
    assert min(written.charged("halves").values()) >= HALF


def test_pages_that_were_dirty_before_are_unknown(written: Recorded) -> None:
    """Nobody is charged with what was dirtied before the recording began."""
    assert set(written.charged("before")) <= {("unknown", None)}  # none: the kernel has written them before, too


def test_pages_that_nobody_wrote_back_are_told(written: Recorded) -> None:
    """They are dirty at the end of the recording, unless the kernel has begun to write them back."""
    for step in STEPS[-2:]:
        file = step.split(":")[1]
        sums = written.charged(file) + written.charged(file, written=False)
        assert set(sums) == {("dirtied", written.pids[step])}
        assert sum(sums.values()) >= int(step.rpartition(":")[2])


def test_charges_are_the_parts(written: Recorded) -> None:
    """The charged bytes of each file add up to its parts. A page is dirtied before it is written.

    The end of a request is unknown only if the kernel's counts prove that as many ends were not delivered.
    """
    sums: Counter[int] = Counter()
    endless: set[int] = set()
    for row in written.rows:
        if row["request"] is not None:
            sums[row["inode"]] += row["bytes"]
            if row["charged"] == "dirtied":
                assert row["first_dirtied_ns"] <= row["last_dirtied_ns"] <= row["issue_time_ns"]
                if row["complete_time_ns"] is None:
                    endless.add(row["request"])
                else:
                    assert row["issue_time_ns"] <= row["complete_time_ns"]
    assert sums == written.parts
    proof = written.trace.completeness
    assert len(endless) <= sum(event.vanished for event in proof.events if event.event == "block:block_rq_complete")


def test_verify_and_report_know_charges(written: Recorded) -> None:
    """The trace keeps every rule, and the report names the processes."""
    done = lo2io("verify", written.trace.path)
    assert done.returncode == 0, done.stdout
    command = ["report", "--json", written.trace.path]
    summary = json.loads(lo2io(*command, check=True).stdout)
    told = {row["pid"]: row for row in summary["write_backs"]["processes"]}
    for name in WRITERS:
        row = told[written.pids[f"{name}:{name}:0:{SIZE}"]]
        assert (row["bytes_written_back"], row["bytes_unwritten"]) == (written.parts[written.inodes[name]], 0)
    page = lo2io("report", "--full", written.trace.path, check=True)
    assert "Who caused the disk's writes" in page.stdout


def test_perfetto_leads_from_writers_to_the_disk(written: Recorded, processor: TraceProcessor, tmp_path: Path) -> None:
    """An arrow for each run of pages that a thread dirtied and a request wrote; what is left stays dirty."""
    formats.export(written.trace, "perfetto", tmp_path / "T.pftrace", lambda _: None)
    processor.load(tmp_path / "T.pftrace")
    rows = written.trace.table("write_backs").to_pylist()
    sent = [row for row in rows if row["request"] is not None and row["issue_time_ns"] is not None]
    known = [row for row in sent if row["task"] is not None and row["first_dirtied_ns"] is not None]
    arrows = processor.query(
        "select count(*) from flow join slice a on a.id = flow.slice_out join slice b on b.id = flow.slice_in "
        "where a.category = 'dirty' and b.category = 'write-back'"
    )
    assert arrows == [(len(known),)]
    assert len(processor.drawn("write-back")) == len(sent)
    left = sum(row["bytes"] for row in rows if row["last_dirtied_ns"] is not None and row["issue_time_ns"] is None)
    *_, (_, last) = processor.counter("dirty, at least", "Page cache")
    assert (last, left > 0) == (left, True)
