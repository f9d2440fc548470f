"""Tables of rings made by hand, and the page about them.

>>> trace = ring_trace(folder, make_batch(ring_requests=[{"id": 1, "opcode": READV}]))
>>> [(row["ring"], row["opcode"]) for row in trace.ring_requests.to_pylist()]
[(0, 'READV')]
"""

from __future__ import annotations

import errno
import io
from typing import TYPE_CHECKING, Any

from build.tablemaker import FSYNC, NOP, READV, WRITEV, Row, make_batch, meta, write_trace
from lo2io.model import Totals
from lo2io.reports.text.page import render_page, report_console

if TYPE_CHECKING:
    from pathlib import Path

    from lo2io.reports.summary.summary import Summary
    from lo2io.trace.reader import Trace

COMPLETED, IN_FLIGHT, CANCELLED, REFUSED, TORN_DOWN, SILENT = range(6)
UNKNOWN, INLINE, DEVICE, POLL, WORKER, REFUSED_PATH, CANCELLED_PATH = range(7)
ASYNC = 16
DRAINED, HASHED, CONTINUED = 2, 4, 64
BOUNDED, UNBOUNDED = 256, 512
INFERRED_PATH = 16
THREADS = [
    {"task": 0, "process": 7, "pid": 100, "tid": 100, "comm": b"db"},
    {"task": 1, "process": 7, "pid": 100, "tid": 101, "comm": b"iou-wrk-100"},
    {"task": 2, "process": 9, "pid": 200, "tid": 200, "comm": b"other"},
]
FILES = [{"file": 0, "path": b"/data/in"}, {"file": 1, "path": b"/data/out"}]
HANDLES = [
    {"handle": 0, "process": 7, "file": 0, "fd": 3},
    {"handle": 1, "process": 7, "file": 1, "fd": 4},
    {"handle": 2, "process": 9, "fd": 5},
]
RINGS: list[Row] = [
    {
        "ring": 0, "process": 7, "pid": 100, "fd": 5, "sq_entries": 64, "cq_entries": 128, "flags": 1 << 12 | 1 << 13,
        "nr_requests": 1000, "nr_completions": 990, "nr_batches": 12, "most_in_flight": 32, "nr_workers": 4,
        "nr_punts": 3, "context": 0xFFFF888100000000,
    },
    {"ring": 1, "process": 9, "pid": 200, "nr_requests": 5, "nr_overflows": 2, "cq_entries": 2},
    {"ring": 2, "kind": 1, "process": 9, "pid": 200, "context": 0x7F0000000000, "nr_batches": 2, "sq_entries": 16},
]  # fmt: skip


def ring_trace(directory: Path, *parts: Any, rate: int = 1, **tables: list[Row]) -> Trace:
    """A trace of three rings, with further rows."""
    known = {"tasks": THREADS, "handles": HANDLES, "files": FILES, "rings": RINGS, **tables}
    totals = Totals(nr_ring_requests=1005)
    return write_trace(directory, [make_batch(**known), *parts], spool=meta(sample_rate=rate), totals=totals)


def text_of(summary: Summary) -> str:
    """The page as written to a pipe."""
    out = io.StringIO()
    render_page(summary, report_console(out))
    return out.getvalue()


def example(directory: Path, rate: int = 1) -> Trace:
    """A ring with one row of each kind, and a libaio context."""
    timed = [
        *({"opcode": READV, "path": INLINE, "handle": 0, "bytes_result": 4096} for _ in range(900)),
        *({"opcode": READV, "path": DEVICE, "handle": 0, "bytes_result": 4096, "inferred": 16} for _ in range(60)),
        *(
            {
                "opcode": WRITEV, "path": WORKER, "nr_punts": 1, "traits": HASHED | BOUNDED, "handle": 1,
                "bytes_result": 65536, "work_begin_time_ns": 10**6, "work_end_time_ns": 10**6 + 40_000,
            }
            for _ in range(140)
        ),
        {"opcode": FSYNC, "path": WORKER, "nr_punts": 1, "sqe_flags": ASYNC, "handle": 1},
    ]  # fmt: skip
    rows = [
        {
            "id": index + 1, "submit_time_ns": 1000 * index, "complete_time_ns": 1000 * index + 500 + index,
            "queued_ns": 100, "executing_ns": 300, "waiting_ns": 100 + index, **row,
        }
        for index, row in enumerate(timed)
    ]  # fmt: skip
    rows += [
        {"id": 5001, "opcode": READV, "status": COMPLETED, "path": INLINE, "error": errno.EBADF},
        {"id": 5002, "opcode": READV, "status": CANCELLED, "path": CANCELLED_PATH, "error": 125, "culprit": 5001},
        {"id": 5003, "opcode": NOP, "status": REFUSED, "path": REFUSED_PATH, "error": errno.EINVAL},
        {"id": 5004, "opcode": 40, "status": IN_FLIGHT, "path": POLL, "handle": 2},
        {"id": 5005, "opcode": READV, "status": SILENT, "ring": 1, "path": UNKNOWN},
    ]
    works = [
        {"id": 961 + n, "ring": 0, "task": 1, "begin_time_ns": n, "end_time_ns": n + 40_000, "inferred": n < 7}
        for n in range(140)
    ]
    batches = [
        *({"ring": 0, "asked": 1, "submitted": 1} for _ in range(950)),
        *({"ring": 0, "asked": 40, "submitted": 38} for _ in range(4)),
        {"ring": 2, "asked": 3, "submitted": 3},
        {"ring": 2, "asked": 16, "wanted": 1, "collected": 3},
    ]
    states = [{"ring": 0, "time_ns": 1, "workers": 2}]
    rings = [{**RINGS[0], "nr_orphans": 3, "nr_messages": 1}, *RINGS[1:]]
    part = make_batch(ring_requests=rows, ring_works=works, batches=batches, ring_states=states)
    return ring_trace(directory, part, rate=rate, rings=rings)
