"""Every row that names a process names it alike: by its title, where its command line tells one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from build.tablemaker import READ, READV, make_batch, write_trace

from lo2io.reports.summary.summary import summarize
from lo2io.top.window import watch_window

if TYPE_CHECKING:
    from pathlib import Path

TITLE = "pg: checkpointer"


def test_rings_and_unnamed_descriptors(tmp_path: Path) -> None:
    """With requests in flight, in the report and in top; a slow call has its thread's own name besides."""
    call = {"id": 1, "call": READ, "task": 1, "handle": 0, "begin_time_ns": 0, "end_time_ns": 9000, "bytes_result": 5}
    batch = make_batch(
        tasks=[
            {"task": 0, "process": 7, "pid": 100, "tid": 100, "comm": b"postgres", "cmdline": TITLE.encode()},
            {"task": 1, "process": 7, "pid": 100, "tid": 101, "comm": b"helper", "cmdline": TITLE.encode()},
        ],
        handles=[{"handle": 0, "process": 7, "fd": 3}],
        operations=[call],
        rings=[{"ring": 0, "process": 7, "pid": 100, "fd": 4, "nr_requests": 1}],
        ring_requests=[{"id": 2, "ring": 0, "task": 0, "handle": 0, "opcode": READV, "bytes_result": 5}],
    )
    trace = write_trace(tmp_path, [batch], span=(0, 20_000))
    summary, window = summarize(trace), watch_window(trace)
    assert summary.rings
    assert summary.io
    (slow,) = summary.io.slowest
    assert (slow.process, slow.comm) == (TITLE, "helper")
    rows = (*summary.files, *summary.io.patterns, *summary.rings.rings, *summary.rings.files)
    assert [row.process for row in rows] == [TITLE] * 4
    assert summary.living_on == {TITLE: 1}
    assert [row.process for row in (*window.processes, *window.files)] == [TITLE] * 2
