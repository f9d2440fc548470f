"""Logs for fio: their content, order and times; omissions, which are reported."""

from __future__ import annotations

import json
import shutil
import subprocess
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from build.tablemaker import CALLS, COMPLETE, OPCODES, READV, WRITEV, Row, make_batch, meta
from hypothesis import given, settings
from hypothesis import strategies as st

from lo2io.exports.fio import export, iolog
from lo2io.exports.fio.plan import BLOCK_BYTES, Extents, make_plan
from lo2io.exports.formats import export as export_as
from lo2io.model import UNKNOWN_U32, CallKind, CallSpec, Mount, Returns, RingStatus, Totals
from lo2io.trace.reader import Trace, open_trace
from lo2io.trace.writer import TableWriter

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from lo2io.exports.target import ExportSummary

ALL_CALLS = (
    *CALLS,
    *(
        CallSpec(name, name, "sync", True, CallKind.SYNC, Returns.ZERO, "flush", "file_io", {})
        for name in ("fsync", "fdatasync", "sync_file_range")
    ),
)
READ, WRITE, COPY, FSYNC, FDATASYNC, RANGE = 0, 1, 4, 7, 8, 9
REGULAR, PIPE = 0o100644, 0o010600
O_DIRECT, O_DSYNC, O_SYNC = 0o40000, 0o10000, 0o4010000
FILES = [
    {"file": 0, "mode": REGULAR, "device": 65024, "path": b"/data/a"},
    {"file": 1, "mode": REGULAR, "device": 65024, "path": b"/data/b"},
    {"file": 2, "mode": PIPE, "device": 12, "path": b"pipe:[3]"},
    {"file": 3, "mode": REGULAR, "device": 65024, "path": b"/data/with space"},
    {"file": 4, "mode": REGULAR, "device": 21, "path": b"/proc/self/stat"},
    {"file": 5, "path": b"relative"},
]
HANDLES: list[Row] = [{"handle": number, "file": number} for number in range(6)] + [{"handle": 6}]
TASKS = [
    {"task": 0, "process": 0, "pid": 100, "tid": 100, "comm": b"db"},
    {"task": 1, "process": 0, "pid": 100, "tid": 101, "comm": b"wal writer"},
    {"task": 2, "process": 1, "pid": 200, "tid": 200, "comm": b"cp"},
]
SPOOL = meta(mounts=(Mount(22, 21, "/proc", "proc", "proc"),))


def call(time_us: int, kind: int, handle: int = 0, offset: int = 0, size: int = 0, **more: Any) -> Row:
    """A call that began then and took a microsecond."""
    row = {
        "begin_time_ns": time_us * 1000, "end_time_ns": time_us * 1000 + 1000, "task": 0, "call": kind,
        "handle": handle, "result": size,
    }  # fmt: skip
    if kind in {READ, WRITE, COPY}:
        row |= {"offset_bytes": offset, "bytes_request": size, "bytes_result": size}
    return row | more


def make_trace(folder: Path, *batches: Sequence[Row], **tables: Sequence[Row]) -> Trace:
    """A trace of these operations, a batch each."""
    tables = {"handles": HANDLES, "files": FILES, "tasks": TASKS, **tables}
    first, *others = batches or [[]]
    with TableWriter(folder, SPOOL, ALL_CALLS, OPCODES) as writer:
        for index, rows in enumerate([first, *others]):
            numbered = [{"id": 1000 * index + place, **row} for place, row in enumerate(rows)]
            writer.write(make_batch(operations=numbered, **({} if index else tables)))
        writer.close(Totals(), COMPLETE, 0, 10**9)
    return open_trace(folder)


def written(trace: Trace, folder: Path, **options: Any) -> tuple[dict[str, list[str]], ExportSummary]:
    """The lines of each log by its name."""
    folder.mkdir()
    summary = export.export(trace, folder, lambda _: None, **options)
    return {path.stem: path.read_text().splitlines() for path in folder.glob("*.iolog")}, summary


def test_log_with_times(tmp_path: Path) -> None:
    """A file is added and opened at its first use, closed at the end; times count from the first action, in µs."""
    rows = [
        call(500, WRITE, 0, 0, 4096),
        call(510, FSYNC, 0),
        call(700, READ, 1, 10, 20),
        call(900, FDATASYNC, 0),
    ]
    logs, summary = written(make_trace(tmp_path / "T", rows), tmp_path / "E")
    assert logs == {
        "process-100-db": [
            "fio version 3 iolog",
            "1 /data/a add",
            "1 /data/a open",
            "1 /data/a write 0 4096",
            "11 /data/a sync 0 0",
            "201 /data/b add",
            "201 /data/b open",
            "201 /data/b read 10 20",
            "401 /data/a datasync 0 0",
            "401 /data/b close",
            "401 /data/a close",
        ]
    }
    assert (summary.rows, summary.notes) == (4, ())


def test_late_job_waits_for_its_turn(tmp_path: Path) -> None:
    """A job whose first action is late begins with a line at 1 all the same: fio counts from a log's first line."""
    rows = [call(1, READ, 0, 0, 8), call(3001, READ, 1, 0, 8, task=2)]
    logs, _ = written(make_trace(tmp_path / "T", rows), tmp_path / "E")
    assert logs["process-200-cp"][1:4] == ["1 /data/b add", "3001 /data/b open", "3001 /data/b read 0 8"]


def test_log_without_times(tmp_path: Path) -> None:
    """Version 2 has the same actions."""
    rows = [call(500, WRITE, 0, 0, 4096), call(900, FSYNC, 0)]
    logs, _ = written(make_trace(tmp_path / "T", rows), tmp_path / "E", version="2")
    expected = ["/data/a add", "/data/a open", "/data/a write 0 4096", "/data/a sync 0 0", "/data/a close"]
    assert logs == {"process-100-db": ["fio version 2 iolog", *expected]}


def test_threads_and_modes_apart(tmp_path: Path) -> None:
    """By thread, each has its log, by process one is enough; a file opened in another way is another job."""
    handles = [
        {"handle": 0, "file": 0, "open_flags": O_DIRECT},
        {"handle": 1, "file": 1, "open_flags": O_DSYNC},
        {"handle": 2, "file": 1, "open_flags": O_SYNC | O_DIRECT},
        {"handle": 3, "file": 0, "open_flags": 0},
    ]
    rows = [call(time, WRITE, time % 4, 512 * time, 512, task=time // 4) for time in range(8)]
    trace = make_trace(tmp_path / "T", rows, handles=handles)
    by_thread, _ = written(trace, tmp_path / "E1", by="thread")
    threads = ["thread-100-db", "thread-101-wal_writer"]
    modes = ["", "-direct", "-direct-sync", "-dsync"]
    assert sorted(by_thread) == sorted(thread + mode for thread in threads for mode in modes)
    by_process, _ = written(trace, tmp_path / "E2", by="process")
    assert sorted(by_process) == ["process-100-db" + mode for mode in modes]
    sections = (tmp_path / "E2" / "job.fio").read_text().split("\n\n")
    assert sections[0] == "[global]\nioengine=psync\nfadvise_hint=0\ninvalidate=0"
    lines = {part.splitlines()[0]: part.splitlines()[2:] for part in sections[1:]}
    assert lines == {
        "[process-100-db]": [],
        "[process-100-db-direct]": ["direct=1"],
        "[process-100-db-dsync]": ["sync=dsync"],
        "[process-100-db-direct-sync]": ["direct=1", "sync=sync"],
    }


def test_pids_used_again(tmp_path: Path) -> None:
    """Two processes of one number have two logs."""
    tasks = [{"task": n, "process": n, "pid": 7, "tid": 7, "comm": b"sh"} for n in range(2)]
    rows = [call(1, READ, 0, 0, 8), call(2, READ, 0, 8, 8, task=1)]
    logs, _ = written(make_trace(tmp_path / "T", rows, tasks=tasks), tmp_path / "E")
    assert sorted(logs) == ["process-7-sh", "process-7-sh-2"]


def test_syncs_alone(tmp_path: Path) -> None:
    """A log of syncs alone in version 3 is refused by fio; next to a wait, in version 2, it is accepted."""
    logs, _ = written(make_trace(tmp_path / "T", [call(5, FSYNC, 0)]), tmp_path / "E")
    expected = ["/data/a add", "/data/a open", "/data/a wait 0 0", "/data/a sync 0 0", "/data/a close"]
    assert logs == {"process-100-db": ["fio version 2 iolog", *expected]}


def test_all_left_out_is_told(tmp_path: Path) -> None:
    """Operations that fio lacks are in no log, and counted by reason."""
    unknown = -(2**63)
    rows = [
        call(1, READ, 0, 0, 8),
        call(2, READ, 2, 0, 8),  # a pipe
        call(3, READ, 4, 0, 8),  # /proc
        call(4, READ, 6, 0, 8),  # unnamed
        call(5, COPY, 0, unknown, 8, handle2=1),
        call(6, RANGE, 0),
        call(7, READ, 0, 0, 8, end_time_ns=unknown, bytes_result=unknown),
        call(8, READ, 0, 0, 0),  # the end of the file
        call(9, WRITE, 0, 0, 8, bytes_result=unknown, error=28),
        call(10, FSYNC, 0, error=5),
        call(11, WRITE, 0, unknown, 8),
        call(12, READ, 3, 0, 8),  # a space
        call(13, READ, 5, 0, 8),  # no root
        call(14, 2, 0),  # openat: nothing to do again
    ]
    logs, summary = written(make_trace(tmp_path / "T", rows), tmp_path / "E")
    assert [line for lines in logs.values() for line in lines if " read " in line] == ["1 /data/a read 0 8"]
    assert summary.rows == 1
    assert summary.notes == (
        "left out: 2 on pipes, sockets, terminals, folders, /proc and their like",
        "left out: 1 on files without a known name",
        "left out: 1 copies between descriptors",
        "left out: 1 syncs of ranges or whole file systems",
        "left out: 1 in flight at the end of the trace",
        "left out: 3 failed, or moved nothing",
        "left out: 1 at offsets that are not known",
        "left out: 2 on files whose names no iolog can hold; `lo2io replay` can do them",
    )


def test_rings_and_libaio(tmp_path: Path) -> None:
    """Requests of both are there, at their submission; FSYNC by its flag, and as a whole one if that is not known.

    A request whose completion was collected without a call counts with its requested bytes.
    """
    opcodes = {"fsync": 3}
    ring = {"ring": 0, "task": 2, "pid": 200, "tid": 200, "complete_time_ns": 90_000, "inferred": 0}
    ring_requests = [
        {**ring, "id": 1, "opcode": WRITEV, "submit_time_ns": 2000, "handle": 0, "offset_bytes": 5, "bytes_result": 7},
        {**ring, "id": 2, "opcode": READV, "submit_time_ns": 4000, "handle": 1, "offset_bytes": 1, "bytes_result": 2},
        {**ring, "id": 3, "opcode": opcodes["fsync"], "submit_time_ns": 5000, "handle": 0, "op_flags": 1},
        {**ring, "id": 4, "opcode": opcodes["fsync"], "submit_time_ns": 6000, "handle": 0, "op_flags": 0},
        {**ring, "id": 7, "opcode": opcodes["fsync"], "submit_time_ns": 7000, "handle": 0, "op_flags": UNKNOWN_U32},
    ]
    unseen = {"status": RingStatus.UNSEEN, "complete_time_ns": -(2**63), "bytes_result": -(2**63), "handle": 1}
    ring_requests += [
        {**ring, "id": 5, "opcode": WRITEV, "submit_time_ns": 3000, **unseen, "offset_bytes": 100, "bytes_request": 50},
        {**ring, "id": 6, "opcode": WRITEV, "submit_time_ns": 3500, **unseen, "offset_bytes": 100},
    ]
    trace = make_trace(tmp_path / "T", [], ring_requests=ring_requests)
    logs, summary = written(trace, tmp_path / "E")
    assert [line for line in logs["process-200-cp"][1:] if len(line.split()) == 5] == [
        "1 /data/a write 5 7",
        "2 /data/b write 100 50",
        "3 /data/b read 1 2",
        "4 /data/a datasync 0 0",
        "5 /data/a sync 0 0",
        "6 /data/a sync 0 0",
    ]
    assert summary.notes == ("left out: 1 failed, or moved nothing",)


def test_disks(tmp_path: Path) -> None:
    """By device: each disk's issued requests, in bytes, flushes as syncs, discards as trims.

    Merged ones are reported.
    """
    base = {"device": 8 << 20, "complete_time_ns": 10**6}
    requests = [
        {**base, "id": 1, "issue_time_ns": 1000, "sector": 8, "bytes_issued": 4096, "operation": 0},
        {**base, "id": 2, "issue_time_ns": 3000, "sector": 16, "bytes_issued": 512, "operation": 1},
        {**base, "id": 3, "issue_time_ns": 4000, "sector": 0, "operation": 2},
        {**base, "id": 4, "issue_time_ns": 5000, "sector": 2, "bytes_issued": 1024, "operation": 3},
        {**base, "id": 5, "sector": 2, "operation": 1, "status": 2},
        {**base, "id": 6, "issue_time_ns": 2000, "sector": 1, "bytes_issued": 512, "operation": 1, "device": 254 << 20},
        {**base, "id": 7, "issue_time_ns": 2000, "sector": 1, "bytes_issued": 512, "operation": 1, "device": 9 << 20},
    ]
    logs, summary = written(make_trace(tmp_path / "T", [], requests=requests), tmp_path / "E", by="device")
    assert logs["device-sda"][1:] == [
        "1 /dev/sda add",
        "1 /dev/sda open",
        "1 /dev/sda read 4096 4096",
        "3 /dev/sda write 8192 512",
        "4 /dev/sda sync 0 0",
        "5 /dev/sda trim 1024 1024",
        "5 /dev/sda close",
    ]
    assert logs["device-vda"][3:4] == ["2 /dev/vda write 512 512"]
    assert summary.rows == 5
    assert [note.split()[2] for note in summary.notes] == ["1", "1"]
    assert "ioengine=libaio\niodepth=64\ndirect=1" in (tmp_path / "E" / "job.fio").read_text()


@settings(deadline=None, max_examples=15)
@given(st.lists(st.lists(st.tuples(st.integers(0, 50), st.integers(1, 40)), max_size=6), min_size=1, max_size=5))
def test_order_is_that_of_begins(
    tmp_path_factory: pytest.TempPathFactory, batches: list[list[tuple[int, int]]]
) -> None:
    """However the rows of a table lie, actions come in the order of their start, each once."""
    rows = [[call(begin, READ, 0, index * 100 + place, size) for place, (begin, size) in enumerate(part)]
            for index, part in enumerate(batches)]  # fmt: skip
    trace = make_trace(tmp_path_factory.mktemp("order") / "T", *rows)
    plan = make_plan(trace, "process", lambda _: None)
    found = [row for part in plan.actions(lambda _: None) for row in zip(part["time_ns"], part["offset"], strict=True)]
    expected = sorted(
        ((row["begin_time_ns"], row["offset_bytes"]) for part in rows for row in part), key=lambda pair: pair[0]
    )
    assert [time for time, _ in found] == [time for time, _ in expected]
    assert sorted(found) == sorted(expected)


_ACTION = st.tuples(st.integers(0, 1), st.integers(0, 1), st.booleans(), st.integers(0, 12), st.integers(1, 12))


@settings(deadline=None)
@given(st.lists(_ACTION, min_size=4, max_size=20), st.integers(1, 6), st.booleans())
def test_extents(actions: list[tuple[int, int, bool, int, int]], step: int, in_turn: bool) -> None:
    """Such reads are needed whose job has not written all of their range before, in any pieces."""
    unit = BLOCK_BYTES // 4
    needed, ends = [0, 0], [0, 0]
    blocks: dict[int, set[int]] = {}
    written: dict[tuple[int, int], set[int]] = {(job, file): set() for job in range(2) for file in range(2)}
    for job, file, is_write, offset, length in actions:
        end = (offset + length) * unit
        ends[file] = max(ends[file], end)
        places = set(range(offset, offset + length))
        if is_write:
            written[job, file] |= places
        elif not places <= written[job, file] or not in_turn:
            needed[file] = max(needed[file], end)
            blocks.setdefault(file, set()).update(range(offset * unit // BLOCK_BYTES, (end - 1) // BLOCK_BYTES + 1))
    extents = Extents(2, in_turn=in_turn)
    for start in range(0, len(actions), step):
        part = [(*row[:3], row[3] * unit, row[4] * unit) for row in actions[start : start + step]]
        names = ("job", "file", "action", "offset", "length")
        extents.add({name: np.array([row[place] for row in part], np.int64) for place, name in enumerate(names)})
    assert extents.needed.tolist() == needed
    assert extents.ends.tolist() == ends
    assert extents.blocks == blocks


def test_what_is_written_in_pieces_is_written() -> None:
    """A page that was begun lies on the disk, whatever of it is read; the pages around it do not."""
    rows = [(WRITE, 4100, 10), (READ, 4096, 4096), (WRITE, BLOCK_BYTES - 1, 2), (READ, BLOCK_BYTES - 4096, 8192)]
    extents = Extents(1)
    for row in [*rows, (READ, 4095, 2)]:
        assert not extents.blocks
        columns = dict(zip(("action", "offset", "length"), row, strict=True))
        extents.add(
            {"job": np.zeros(1, np.int64), "file": np.zeros(1, np.int64)}
            | {name: np.array([value]) for name, value in columns.items()}
        )
    assert (extents.blocks, extents.needed.tolist()) == ({0: {0}}, [4097])


def test_files_are_closed_where_they_are_many(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fio may have only so many open, so those that a job is done with go first."""
    monkeypatch.setattr(iolog, "MAX_DONE", 2)
    files = [{"file": number, "mode": REGULAR, "device": 65024, "path": b"/data/%d" % number} for number in range(5)]
    rows = [call(number, READ, number, 0, 8) for number in range(5)]
    logs, _ = written(make_trace(tmp_path / "T", rows, files=files), tmp_path / "E")
    words = [line.split(maxsplit=1)[1] for line in logs["process-100-db"][1:]]
    closed = ["/data/0 close", "/data/1 close", "/data/2 close", "/data/3 add"]
    assert words[words.index("/data/2 read 0 8") :][1:5] == closed
    assert words[-3:] == ["/data/4 read 0 8", "/data/3 close", "/data/4 close"]


@pytest.mark.skipif(shutil.which("fio") is None, reason="fio is not installed")
def test_fio_takes_it_for_another_file(tmp_path: Path) -> None:
    """A log goes to the file or disk that fio is told to use, however many it names."""
    rows = [call(1, READ, 0, 0, 1000), call(2, WRITE, 1, 0, 2000), call(30, READ, 0, 1000, 24)]
    written(make_trace(tmp_path / "T", rows), tmp_path / "E")
    (tmp_path / "other").write_bytes(bytes(4096))
    command = ["fio", "--name=x", "--read_iolog=process-100-db.iolog", f"--replay_redirect={tmp_path / 'other'}"]
    done = subprocess.run(
        [*command, "--output-format=json"], cwd=tmp_path / "E", capture_output=True, text=True, check=True
    )
    (job,) = json.loads(done.stdout[done.stdout.index("{") :])["jobs"]
    assert (job["read"]["io_bytes"], job["write"]["io_bytes"]) == (1024, 2000)


def takes_syncs_alone(folder: Path) -> bool:
    """Whether this fio takes a log that has nothing but a sync: 3.33 does, 3.39 does not."""
    log, data = folder / "syncs.iolog", folder / "synced"
    data.write_bytes(b"x")
    lines = [
        "fio version 2 iolog",
        *(f"{data} {action}" for action in ("add", "open", "wait 0 0", "sync 0 0", "close")),
    ]
    log.write_text("\n".join([*lines, ""]), encoding="ascii")
    command = ["fio", "--name=syncs", "--ioengine=psync", f"--read_iolog={log}"]
    return subprocess.run(command, cwd=folder, capture_output=True, check=False).returncode == 0


@pytest.mark.skipif(shutil.which("fio") is None, reason="fio is not installed")
@pytest.mark.parametrize("version", ["2", "3"])
def test_fio_takes_it(tmp_path: Path, version: str) -> None:
    """The whole export is replayed: reads, writes and syncs as many as there are, in bytes, too."""
    data = tmp_path / "data"
    data.write_bytes(b"x" * 10_000)
    files = [{"file": 0, "mode": REGULAR, "device": 65024, "path": str(data).encode()}]
    rows = [
        call(1, READ, 0, 0, 1000),
        call(20, READ, 0, 999, 9001),
        call(30, WRITE, 0, 5000, 10_000),
        call(40, FSYNC, 0),
        call(50, READ, 0, 14_999, 1),
        call(60, FSYNC, 0, task=2),
    ]
    trace = make_trace(tmp_path / "T", rows, files=files)
    export_as(trace, "fio", tmp_path / "E", lambda _: None, options=[f"version={version}"])
    alone = takes_syncs_alone(tmp_path)
    command = ["fio", "--output-format=json", "job.fio"]
    done = subprocess.run(command, cwd=tmp_path / "E", capture_output=True, text=True, check=alone)
    jobs = {job["jobname"]: job for job in json.loads(done.stdout[done.stdout.index("{") :])["jobs"]}
    main = jobs["process-100-db"]
    assert (main["read"]["total_ios"], main["read"]["io_bytes"]) == (3, 10_002)
    assert (main["write"]["total_ios"], main["write"]["io_bytes"]) == (1, 10_000)
    assert (main["sync"]["total_ios"], jobs["process-200-cp"]["sync"]["total_ios"]) == (1, int(alone))
    assert data.stat().st_size == 15_000


@pytest.mark.parametrize("white", [b" ", b"\t", b"\n", b"\v", b"\f", b"\r", b"\0"])
def test_a_name_with_white_space_fits_no_log(white: bytes) -> None:
    """A log ends the name there: each of these alone, wherever it stands."""
    assert iolog.is_fit(b"/a/b")
    assert not iolog.is_fit(b"/a" + white + b"b")
    assert not iolog.is_fit(b"/ab" + white)
