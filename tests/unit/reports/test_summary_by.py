"""The report by system call, as strace -c has it, and by command line."""

from __future__ import annotations

import errno
import io
import json
from typing import TYPE_CHECKING

from build.tablemaker import CLOSE, OPENAT, READ, READV, WRITE, make_batch, write_trace

from lo2io.reports.html.sheets import sheets
from lo2io.reports.summary.summary import MAX_ROWS, share_of_time, summarize, to_json
from lo2io.reports.summary.tally import Sums
from lo2io.reports.text.page import render_page, report_console

if TYPE_CHECKING:
    from pathlib import Path

    from lo2io.reports.summary.summary import Summary
    from lo2io.trace.reader import Trace

LINES = {20: b"pg: idle", 21: b"pg: idle", 22: b"python3\0/x/a.py\0--fast", 23: b"", 24: b""}
"""Command lines by process: two workers with one title, a script, and two that nobody looked at."""
COMMS = {20: b"postgres", 21: b"postgres", 22: b"python3", 23: b"dd", 24: b"dd"}
CALLS = [(READ, 20, 3, 5), (WRITE, 21, 4, 6), (READ, 22, 9, 7), (READ, 23, 1, 8), (READ, 24, 1, 9), (READ, 99, 2, 1)]
"""Call, thread (99 is none that the trace knows), duration and bytes."""


def section(summary: Summary, heading: str) -> list[list[str]]:
    """The words of each line of a table of the page, without its headings."""
    out = io.StringIO()
    render_page(summary, report_console(out))
    lines = out.getvalue().split(f"\n{heading}", 1)[1].split("\n\n", 1)[0].splitlines()[1:]
    return [line.split() for line in lines]


def calls_of_one(directory: Path) -> Trace:
    """Two reads of 1 and 3 µs, a failed open and a close in flight."""
    rows = [
        {"id": 1, "call": READ, "task": 0, "begin_time_ns": 0, "end_time_ns": 1000, "bytes_result": 5},
        {"id": 2, "call": READ, "task": 0, "begin_time_ns": 5000, "end_time_ns": 8000, "bytes_result": 5},
        {"id": 3, "call": OPENAT, "task": 0, "begin_time_ns": 9000, "end_time_ns": 10_000, "error": errno.ENOENT},
        {"id": 4, "call": CLOSE, "task": 0, "begin_time_ns": 11_000, "status": 1},
    ]
    return write_trace(directory, [make_batch(operations=rows)], span=(0, 20_000))


def calls_of_many(directory: Path) -> Trace:
    """A call of each process and of nobody, and a request of a ring."""
    threads = [
        {"task": pid, "process": pid, "pid": pid, "tid": pid, "comm": COMMS[pid], "cmdline": line}
        for pid, line in LINES.items()
    ]
    calls = [
        {"id": n, "call": call, "task": task, "begin_time_ns": n, "end_time_ns": n + took, "bytes_result": size}
        for n, (call, task, took, size) in enumerate(CALLS)
    ]
    request = {"id": 100, "task": 24, "bytes_result": 4096, "opcode": READV}
    batch = make_batch(tasks=threads, operations=calls, ring_requests=[request])
    return write_trace(directory, [batch], span=(0, 20_000))


def test_by_system_call(tmp_path: Path) -> None:
    """Each call once; shares of the time, means of those that ended, and a last line with the sums."""
    summary = summarize(calls_of_one(tmp_path / "T"))
    rows = {row.name: row for row in summary.calls}
    assert list(rows) == ["read", "openat", "close"]
    assert (rows["read"].share, rows["read"].latency.mean_ns, rows["openat"].activity.errors) == (0.8, 2000, 1)
    assert (rows["close"].in_flight, rows["close"].share, rows["close"].latency.nr) == (1, 0.0, 0)
    lines = [" ".join(line) for line in section(summary, "By system call")]
    assert lines == [
        "read 2 0 10 B 4 µs 80.0 % 2 µs 1 µs 3 µs 3 µs",
        "openat 1 1 0 B 1 µs 20.0 % 1 µs 1 µs 1 µs 1 µs",
        "close 1 0 0 B 0 ns 0.0 % - - - -",
        "all 4 1 10 B 5 µs 100.0 % 1.67 µs",
        "close: 1 in flight",
    ]
    assert [row["share"] for row in json.loads(to_json(summary))["calls"]] == [0.8, 0.2, 0.0]


def test_by_command_line(tmp_path: Path) -> None:
    """Processes that share one are a row; those without one are rows by their names."""
    summary = summarize(calls_of_many(tmp_path / "T"))
    told = [
        (row.cmdline, row.name, row.processes, row.activity.calls, row.activity.bytes_read, row.activity.bytes_written)
        for row in summary.cmdlines
    ]
    assert told == [
        ("python3 /x/a.py --fast", "python3 a.py", 1, 1, 7, 0),
        ("pg: idle", "pg: idle", 2, 2, 5, 6),
        (None, "dd", 2, 2, 17, 0),
        (None, None, 0, 1, 1, 0),
    ]
    assert [row.activity.time_ns for row in summary.cmdlines] == [9, 7, 2, 2]
    assert json.loads(to_json(summary))["cmdlines"][2] == {
        "cmdline": None, "name": "dd", "processes": 2, "share": 0.1, "ring_requests": 1, "ring_bytes": 4096,
        "activity": {
            "calls": 2, "errors": 0, "reads": 2, "writes": 0, "bytes_read": 17, "bytes_written": 0, "time_ns": 2,
        },
        "rest": False,
    }  # fmt: skip
    assert [" ".join(line) for line in section(summary, "By command line")] == [
        "python3 /x/a.py --fast 1 1 7 B 0 B 0 B 9 ns 45.0 %",
        "pg: idle 2 2 5 B 6 B 0 B 7 ns 35.0 %",
        "dd 2 2 17 B 0 B 4 KiB 2 ns 10.0 %",
        "unknown 0 1 1 B 0 B 0 B 2 ns 10.0 %",
    ]


def test_command_lines_of_one_process_each_are_not_on_the_page(tmp_path: Path) -> None:
    """The table of processes has them; the JSON and the page with pictures have both tables."""
    summary = summarize(calls_of_one(tmp_path))
    out = io.StringIO()
    render_page(summary, report_console(out))
    assert "By command line" not in out.getvalue()
    assert [row.processes for row in summary.cmdlines] == [0]
    assert {sheet.key for sheet in sheets(summary)} >= {"calls", "cmdlines"}


def test_of_many_command_lines_the_rest_is_one_row(tmp_path: Path) -> None:
    """Like processes and files, and the sums stay exact."""
    pids = range(MAX_ROWS + 5)
    threads = [
        {"task": pid, "process": pid, "pid": pid, "tid": pid, "cmdline": b"job\0%d" % pid}
        for pid in range(MAX_ROWS + 5)
    ]
    calls = [{"id": pid, "call": READ, "task": pid, "bytes_result": 3} for pid in pids]
    trace = write_trace(tmp_path, [make_batch(tasks=threads, operations=calls)], span=(0, 20_000))
    *listed, rest = summarize(trace).cmdlines
    assert (len(listed), rest.cmdline, rest.name, rest.processes) == (MAX_ROWS, None, "5 others", 5)
    assert (rest.activity.calls, rest.activity.bytes_read) == (5, 15)
    assert [row.rest for row in listed] + [rest.rest] == [False] * MAX_ROWS + [True]


def test_long_command_lines_are_cut_at_their_end(tmp_path: Path) -> None:
    """Their starts show the program; the JSON has them whole."""
    line = b"cc1\0-O2\0" + b"\0".join(b"-I/usr/include/%d" % each for each in range(9))
    threads = [{"task": pid, "process": pid, "pid": pid, "tid": pid, "cmdline": line} for pid in (1, 2)]
    calls = [{"id": pid, "call": READ, "task": pid, "bytes_result": 3} for pid in (1, 2)]
    summary = summarize(write_trace(tmp_path, [make_batch(tasks=threads, operations=calls)], span=(0, 20_000)))
    assert summary.cmdlines[0].cmdline == line.replace(b"\0", b" ").decode()
    (cells,) = section(summary, "By command line")
    assert " ".join(cells).startswith("cc1 -O2 -I/usr/include/0 -I/usr… 2 2 6 B")


def test_of_no_calls_there_is_no_share() -> None:
    """Zero is not divided by zero."""
    assert share_of_time(Sums(2), 0) == 0.0
