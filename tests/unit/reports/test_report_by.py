"""The tables of ``report --by``: a line a system call, a line a command line."""

from __future__ import annotations

import errno
import io
import json
from typing import TYPE_CHECKING, Any

import pytest
from build.tablemaker import CLOSE, OPENAT, READ, READV, WRITE, make_batch, write_trace

from lo2io.cli.options import print_summary
from lo2io.errors import UsageError
from lo2io.reports.summary.summary import summarize
from lo2io.reports.summary.sums import gather
from lo2io.reports.text.by import TABLES, render, to_json
from lo2io.reports.text.page import report_console

if TYPE_CHECKING:
    from pathlib import Path

    from lo2io.trace.reader import Trace

LINES = {20: b"pg: idle", 21: b"pg: idle", 22: b"python3\0/x/a.py\0--fast", 23: b"", 24: b""}
"""Command lines by process: two workers with one title, a script, and two that nobody looked at."""
COMMS = {20: b"postgres", 21: b"postgres", 22: b"python3", 23: b"dd", 24: b"dd"}
CALLS = [(READ, 20, 3, 5), (WRITE, 21, 4, 6), (READ, 22, 9, 7), (READ, 23, 1, 8), (READ, 24, 1, 9), (READ, 99, 2, 1)]
"""Call, thread (99 is none that the trace knows), duration and bytes."""


def by(what: str, trace: Trace) -> tuple[Any, Any, Any]:
    """The table of ``--by``, its rows and the summary beside them."""
    table, sums = TABLES[what], gather(trace)
    summary = summarize(trace, sums)
    return table, table.rows(sums, summary), summary


def printed_by(what: str, trace: Trace) -> list[list[str]]:
    """The words of each line of the table."""
    out = io.StringIO()
    render(*by(what, trace), report_console(out))
    return [line.split() for line in out.getvalue().splitlines()]


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
    table, found, summary = by("syscall", calls_of_one(tmp_path / "T"))
    rows = {row.name: row for row in found}
    assert list(rows) == ["read", "openat", "close"]
    assert (rows["read"].share, rows["read"].mean_ns, rows["openat"].errors) == (0.8, 2000, 1)
    assert (rows["close"].in_flight, rows["close"].mean_ns) == (1, 0)
    lines = printed_by("syscall", calls_of_one(tmp_path / "again"))
    assert lines[2] == ["80.00", "0.000004", "2.000", "2", "read"]
    assert lines[-2] == ["100.00", "0.000005", "1.667", "4", "1", "total"]
    assert " ".join(lines[-1]) == summary.completeness_line
    document = json.loads(to_json(table, found, summary))
    assert (document["schema"], document["schema_version"]) == ("lo2io-syscalls", 1)
    assert document["syscalls"][0] == {
        "name": "read", "calls": 2, "errors": 0, "in_flight": 0, "time_ns": 4000, "share": 0.8, "mean_ns": 2000,
    }  # fmt: skip


def test_by_command_line(tmp_path: Path) -> None:
    """Processes that share one are a row; those without one are rows by their names."""
    table, found, summary = by("cmdline", calls_of_many(tmp_path / "T"))
    told = [(row.cmdline, row.name, row.processes, row.calls, row.bytes_read, row.bytes_written) for row in found]
    assert told == [
        ("python3 /x/a.py --fast", "python3 a.py", 1, 1, 7, 0),
        ("pg: idle", "pg: idle", 2, 2, 5, 6),
        (None, "dd", 2, 2, 17, 0),
        (None, None, 0, 1, 1, 0),
    ]
    assert [row.time_ns for row in found] == [9, 7, 2, 2]
    document = json.loads(to_json(table, found, summary))
    assert (document["schema"], document["schema_version"]) == ("lo2io-cmdlines", 1)
    assert document["cmdlines"][2] == {
        "cmdline": None, "name": "dd", "processes": 2, "calls": 2, "errors": 0, "bytes_read": 17, "bytes_written": 0,
        "ring_requests": 1, "ring_bytes": 4096, "time_ns": 2, "share": 0.1,
    }  # fmt: skip
    lines = [" ".join(line) for line in printed_by("cmdline", calls_of_many(tmp_path / "again"))]
    assert lines[2] == "45.00 0.000000 1 7 B 0 B 0 B 1 python3 /x/a.py --fast"
    assert lines[-2] == "100.00 0.000000 6 30 B 6 B 4 KiB 5 total"
    assert lines[-1] == summary.completeness_line


def test_of_no_calls_there_is_no_share(tmp_path: Path) -> None:
    """Nothing is divided by nothing."""
    trace = write_trace(tmp_path, [])
    assert printed_by("syscall", trace)[-2] == ["0.00", "0.000000", "0.000", "0", "total"]
    assert " ".join(printed_by("cmdline", trace)[-2]) == "0.00 0.000000 0 0 B 0 B 0 B 0 total"


def test_other_tables_are_refused(tmp_path: Path) -> None:
    """Before the trace is read, with those that there are."""
    with pytest.raises(UsageError, match="there is no such table") as caught:
        print_summary(tmp_path / "none", as_json=False, to_stdout=True, by="file")
    assert caught.value.remedy == "write --by syscall or --by cmdline"
