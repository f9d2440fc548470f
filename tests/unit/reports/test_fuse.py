"""Requests to servers of FUSE file systems in the report, and in the chain of a call."""

from __future__ import annotations

import io
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from build.tablemaker import READV, make_batch, meta, write_trace
from rich.console import Console

from lo2io.model import UNKNOWN_I64, Mount
from lo2io.reports.summary.summary import summarize
from lo2io.reports.text.fuse import render_fuse
from lo2io.reports.why.chain import explain

if TYPE_CHECKING:
    from pathlib import Path

    from lo2io.trace.reader import Trace

READ, WRITE = 15, 16
MOUNT = Mount(31, 41, "/mnt/far", "fuse.sshfs", "far:/")


def request(unique: int, begin: int, end: int | None, **more: Any) -> dict[str, Any]:
    """A request to read, of the call with the id 5."""
    known = {"end_time_ns": UNKNOWN_I64, "bytes_replied": UNKNOWN_I64} if end is None else {"end_time_ns": end}
    row = {"connection": 41, "unique": unique, "opcode": READ, "operation": 5, "task": 0, "tid": 100}
    return row | {"begin_time_ns": begin, "bytes_sent": 80, "bytes_replied": 4112} | known | more


def written(folder: Path) -> Trace:
    """Reads and a failed write on one file system, and a request in flight on another one, in no call."""
    call = {"id": 5, "call": READV, "begin_time_ns": 1_000, "end_time_ns": 9_000, "task": 0, "pid": 100, "tid": 100}
    rows = [
        request(2, 1_500, 3_500),
        request(4, 4_000, 5_000),
        request(6, 6_000, 6_100, opcode=WRITE, error=28, bytes_sent=4_176, bytes_replied=16),
        request(2, 7_000, None, connection=42, operation=0),
    ]
    threads = [{"task": 0, "process": 0, "pid": 100, "tid": 100, "comm": b"cat"}]
    batch = make_batch(tasks=threads, operations=[call], fuse_requests=rows)
    return write_trace(folder / "T", [batch], spool=meta(mounts=(MOUNT,), layers=("fuse",)))


def test_sums_by_file_system_and_opcode(tmp_path: Path) -> None:
    """The kind with most time first; what is in flight has no time."""
    found = summarize(written(tmp_path)).fuse
    assert found is not None
    assert (found.requests, found.in_flight, found.outside_calls) == (4, 1, 1)
    reads, write, unknown = (asdict(row) for row in found.rows)
    assert reads == {
        "mount_point": "/mnt/far",
        "connection": "0:41",
        "opcode": "READ",
        "requests": 2,
        "in_flight": 0,
        "errors": 0,
        "time_ns": 3_000,
        "longest_ns": 2_000,
        "bytes_sent": 160,
        "bytes_replied": 8_224,
    }
    assert (write["opcode"], write["errors"], write["bytes_sent"]) == ("WRITE", 1, 4_176)
    assert (unknown["mount_point"], unknown["connection"], unknown["in_flight"]) == (None, "0:42", 1)
    assert (unknown["time_ns"], unknown["bytes_replied"]) == (0, 0)


def test_the_page(tmp_path: Path) -> None:
    """A row for each kind, by mount point or number, and what the rows do not say."""
    out = io.StringIO()
    render_fuse(summarize(written(tmp_path)).fuse, Console(file=out, width=100))
    head, reads, write, other, *notes = out.getvalue().strip().splitlines()
    assert head.split() == [
        "Requests",
        "to",
        "FUSE",
        "servers",
        "asks",
        "for",
        "requests",
        "time",
        "longest",
        "sent",
        "replied",
        "errors",
    ]
    assert reads.split() == ["/mnt/far", "READ", "2", "3", "µs", "2", "µs", "160", "B", "8.03", "KiB", "0"]
    assert write.split()[:3] == ["/mnt/far", "WRITE", "1"]
    assert other.startswith("file system 0:42")
    assert [note.strip() for note in notes] == [
        "1 request sent in no recorded call",
        "1 request had not ended when the recording did",
    ]


def test_a_trace_without_requests(tmp_path: Path) -> None:
    """It has no such part."""
    assert summarize(write_trace(tmp_path / "T", [make_batch()])).fuse is None


def test_the_chain_of_a_call(tmp_path: Path) -> None:
    """Each request is a step at its time, with sizes and error."""
    (chain,) = explain(written(tmp_path), [5])
    steps = [(step.at_ns, step.duration_ns, step.text) for step in chain.steps if step.text.startswith("FUSE")]
    assert steps == [
        (500, 2_000, "FUSE: READ 2: 80 B sent, 4.02 KiB replied"),
        (3_000, 1_000, "FUSE: READ 4: 80 B sent, 4.02 KiB replied"),
        (5_000, 100, "FUSE: WRITE 6: 4.08 KiB sent, 16 B replied, ENOSPC"),
    ]
