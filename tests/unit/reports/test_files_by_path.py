"""A file that is made anew again and again is one line of each view, and all its numbers are in that line."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

import pytest
from build import tablemaker
from build.tablemaker import OPENAT, READ, UNLINKAT, WRITE, Row, make_batch, write_trace

from lo2io.reports.html.page import gather_pictures
from lo2io.reports.summary.owners import Owners
from lo2io.reports.summary.paths import Paths
from lo2io.reports.summary.summary import summarize
from lo2io.reports.summary.sums import gather
from lo2io.reports.text.page import render_page, report_console
from lo2io.top.window import watch_window

if TYPE_CHECKING:
    from pathlib import Path

    from lo2io.trace.reader import Trace

FSYNC = len(tablemaker.CALLS)
SYNC = tablemaker.known_call("fsync")
NR_JOURNALS = 150
HERE, ELSEWHERE = 64_769, 64_770
THREADS = [{"task": 0, "process": 7, "pid": 100, "tid": 100, "comm": b"db"}]
DATABASE, OTHER, NAMELESS = NR_JOURNALS, NR_JOURNALS + 1, NR_JOURNALS + 2


@pytest.fixture
def trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Trace:
    """A database that makes a journal for each commit; a file of the journal's name on another device."""
    monkeypatch.setattr(tablemaker, "CALLS", (*tablemaker.CALLS, SYNC))
    journals = [
        {"file": number, "path": b"/db-journal", "device": HERE, "inode": number, "mode": 0o100644}
        for number in range(NR_JOURNALS)
    ]
    files = [
        *journals,
        {"file": DATABASE, "path": b"/db", "device": HERE, "inode": 999, "mode": 0o100644},
        {"file": OTHER, "path": b"/db-journal", "device": ELSEWHERE, "inode": 3, "mode": 0o100644},
    ]
    handles = [{"handle": file["file"], "process": 7, "file": file["file"], "fd": 4} for file in files]
    handles.append({"handle": NAMELESS, "process": 7, "fd": 9})
    calls: list[Row] = []
    for number in range(NR_JOURNALS):
        write = {"handle": number, "bytes_request": 512, "bytes_result": 512}
        calls += [
            {"call": OPENAT, "handle": number},
            {"call": WRITE, **write, "offset_bytes": 0},
            {"call": WRITE, **write, "offset_bytes": 512},
            {"call": FSYNC, "handle": number},
            {"call": WRITE, "handle": DATABASE, "offset_bytes": 8192 * number, "bytes_result": 4096},
            {"call": UNLINKAT},
        ]
    calls.append({"call": READ, "handle": OTHER, "offset_bytes": 0, "bytes_result": 7})
    calls.append({"call": READ, "handle": NAMELESS, "bytes_result": 9})
    rows = [
        {"id": index + 1, "task": 0, "begin_time_ns": 1000 * index, "end_time_ns": 1000 * index + 100, **row}
        for index, row in enumerate(calls)
    ]
    return write_trace(tmp_path, [make_batch(tasks=THREADS, files=files, handles=handles, operations=rows)])


def test_one_row_a_path(trace: Trace) -> None:
    """All journals are one row, with how many there were; the other device's file is another, and nothing is lost."""
    summary = summarize(trace)
    rows = {(row.path, row.activity.reads > 0): row for row in summary.files if row.kind == "named"}
    journal, other = rows["/db-journal", False], rows["/db-journal", True]
    assert (journal.files, journal.activity.calls, journal.activity.bytes_written) == (150, 600, 150 * 1024)
    assert (other.files, other.activity.calls, rows["/db", False].files) == (1, 1, 1)
    assert len(rows) == 3
    assert sum(row.activity.calls for row in summary.files) == summary.activity.calls
    assert sum(row.activity.bytes_written for row in summary.files) == summary.activity.bytes_written
    assert sum(row.files for row in summary.files) == summary.nr_files == 152
    assert {row.kind: row.files for row in summary.files if row.kind != "named"} == {"unnamed": 0, "none": 0}


def test_what_is_about_bytes_is_each_files_own(trace: Trace) -> None:
    """The second journal does not write the first one's bytes again, though both start at 0."""
    found = summarize(trace).io
    assert found is not None
    (journal,) = (row for row in found.patterns if row.path == "/db-journal" and row.operation == "write")
    assert (journal.files, journal.accesses, journal.placed, journal.consecutive) == (150, 300, 150, 150)
    assert (journal.bytes, journal.extent_bytes, journal.again_bytes) == (150 * 1024, 150 * 1024, 0)
    (opens,) = found.opens
    assert (opens.path, opens.files, opens.opens, opens.syncs, opens.sync_ns) == ("/db-journal", 150, 150, 150, 15_000)


def test_the_page_says_how_many(trace: Trace) -> None:
    """After the path, where it was more than one."""
    out = io.StringIO()
    render_page(summarize(trace), report_console(out))
    lines = [line.split("  ")[0] for line in out.getvalue().splitlines()]
    assert lines.count("/db-journal (150 files)") == 3  # calls, accesses, opens
    assert "/db" in lines


def test_a_sync_of_each_new_file_stands_out(trace: Trace) -> None:
    """150 syncs of 150 files with one name are what one file's would be."""
    (finding,) = (finding for finding in summarize(trace).findings if finding.rule == "sync-per-write")
    assert (finding.subject, finding.rows, finding.ids[:2]) == ("/db-journal", 150, (4, 10))
    assert finding.evidence == {"syncs": 150, "synced_writes": 0, "writes": 300, "sync_ns": 15_000}


def test_pictures_and_top_have_one_line_a_path(trace: Trace) -> None:
    """With the bytes of all its files."""
    files = gather_pictures(gather(trace))["files"]
    written = list(zip(files["names"], map(sum, files["written"]), strict=True))
    assert {("/db-journal", 150 * 1024), ("/db-journal", 0), ("/db", 150 * 4096)} <= set(written)
    assert sorted(files["names"]) == sorted(
        ["/db", "/db-journal", "/db-journal", "unnamed fds of db (100)", "calls without an fd", "others"]
    )
    moved = {(row.path, row.activity.bytes_read): row.activity.bytes_written for row in watch_window(trace).files}
    assert moved["/db-journal", 0] == 150 * 1024
    assert moved["/db-journal", 7] == 0


def test_without_paths_nothing_is_merged(tmp_path: Path) -> None:
    """Files that nobody could name stand for themselves, and a trace without files has none."""
    files = [{"file": number, "device": HERE} for number in range(3)]
    trace = write_trace(tmp_path / "a", [make_batch(tasks=THREADS, files=files)])
    assert Paths(trace, Owners(trace)).of.tolist() == list(range(6))
    trace = write_trace(tmp_path / "b", [make_batch(tasks=THREADS)])
    assert Paths(trace, Owners(trace)).of.tolist() == list(range(3))


def test_more_paths_than_arrow_can_count_are_not_merged(trace: Trace, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond 2 GiB of paths each file has a row of its own, and nothing is lost."""
    monkeypatch.setattr("lo2io.reports.summary.paths._MAX_BYTES", 100)
    summary = summarize(trace)
    assert sum(row.activity.calls for row in summary.files) == summary.activity.calls
    assert [row.files for row in summary.files if row.path == "/db-journal"][:5] == [1] * 5
