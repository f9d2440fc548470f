"""What the report says of who caused the disk's writes, worked out by hand."""

from __future__ import annotations

from typing import TYPE_CHECKING

from build.tablemaker import OPENAT, Row, make_batch, meta, write_trace

from lo2io.model import UNKNOWN_U32
from lo2io.reports.summary.summary import summarize
from lo2io.trace.columns import CHARGED, WRITE_REASON

if TYPE_CHECKING:
    from pathlib import Path

    from lo2io.reports.summary.write_backs import WriteBackSummary

KIB = 1 << 10
UNKNOWN, DIRTIED, DIRECT = (CHARGED.index(name) for name in ("unknown", "dirtied", "direct"))
SYNC = WRITE_REASON.index("sync")
REQUEST = {"id": 7, "device": 8 << 20, "operation": 1, "task": 1, "bytes_issued": 8 * KIB, "status": 0, "reason": SYNC}
TIMES = {"issue_time_ns": 1000, "complete_time_ns": 1800}


def summed(folder: Path, *charges: Row, requests: tuple[Row, ...] = (REQUEST | TIMES,)) -> WriteBackSummary:
    """Process 100 writes /f, process 200 sends a request."""
    batch = make_batch(
        tasks=[
            {"task": 0, "process": 0, "pid": 100, "tid": 100, "comm": b"dd"},
            {"task": 1, "process": 1, "pid": 200, "tid": 200, "comm": b"sync"},
        ],
        files=[{"file": 0, "path": b"/f"}],
        handles=[{"handle": 0, "file": 0, "process": 0}],
        operations=[{"id": 1, "task": 0, "call": OPENAT, "handle": 0}],
        requests=list(requests),
        write_backs=list(charges),
    )
    found = summarize(write_trace(folder, [batch], spool=meta(layers=("parts", "dirty")))).write_backs
    assert found is not None
    return found


def test_sums(tmp_path: Path) -> None:
    """A request's time is divided by bytes. What another process sent was deferred, and direct I/O is its sender's."""
    found = summed(
        tmp_path,
        {"request": 7, "charged": DIRTIED, "task": 0, "file": 0, "bytes": 4 * KIB, "first_dirtied_ns": 500, **TIMES},
        {"request": 7, "charged": DIRECT, "task": 1, "file": UNKNOWN_U32, "bytes": 2 * KIB, **TIMES},
        {"request": 7, "charged": UNKNOWN, "file": UNKNOWN_U32, "bytes": 2 * KIB, **TIMES},
        {"charged": DIRTIED, "task": 0, "file": 0, "bytes": 12 * KIB, "first_dirtied_ns": 900},
    )
    rows = [
        (row.kind, row.pid, row.bytes_written_back, row.bytes_deferred, row.device_time_ns) for row in found.processes
    ]
    assert rows == [
        ("process", 100, 4 * KIB, 4 * KIB, 400),
        ("process", 200, 2 * KIB, 0, 200),
        ("unknown", None, 2 * KIB, 2 * KIB, 200),
    ]
    assert [(row.reason, row.bytes_written_back, row.bytes_deferred) for row in found.reasons] == [
        ("sync", 8 * KIB, 6 * KIB)
    ]
    assert [row.bytes_unwritten for row in found.processes] == [12 * KIB, 0, 0]
    assert [(row.path, row.bytes_written_back, row.bytes_unwritten) for row in found.files] == [
        ("/f", 4 * KIB, 12 * KIB),
        (None, 4 * KIB, 0),
    ]
    assert (found.total.bytes_written_back, found.total.device_time_ns) == (8 * KIB, 800)
    assert (found.processes[0].until_disk.nr, found.processes[0].until_disk.max_ns) == (1, 1300)


def test_nothing_written_yet(tmp_path: Path) -> None:
    """A command that writes and does not sync sends no request."""
    found = summed(
        tmp_path,
        {"charged": DIRTIED, "task": 0, "file": 0, "bytes": 12 * KIB, "first_dirtied_ns": 900},
        requests=(),
    )
    assert [(row.pid, row.bytes_written_back, row.bytes_unwritten) for row in found.processes] == [(100, 0, 12 * KIB)]


def test_each_request_divides_its_own_time(tmp_path: Path) -> None:
    """Rows of requests stand in the order of their ends, which is not that of their ids."""
    requests = tuple(
        {**REQUEST, "id": number, "bytes_issued": size} | TIMES for number, size in ((9, KIB), (7, 8 * KIB))
    )
    charge = {"charged": DIRTIED, "task": 0, "file": 0, "bytes": KIB, "first_dirtied_ns": 500, **TIMES}
    found = summed(tmp_path, {**charge, "request": 7}, requests=requests)
    assert [row.device_time_ns for row in found.processes] == [100]
    found = summed(tmp_path / "other", {**charge, "request": 9}, requests=requests)
    assert [row.device_time_ns for row in found.processes] == [800]
