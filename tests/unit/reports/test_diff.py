"""Two traces beside each other: rows that belong together, their order, and what stands for what is not there."""

from __future__ import annotations

import io
import json
from typing import TYPE_CHECKING, Any

import pytest
from build import tablemaker
from build.tablemaker import READ, WRITE, Row, make_batch
from rich.console import Console

from lo2io.reports.diff.compare import Diff, compare, to_json
from lo2io.reports.summary.summary import MAX_ROWS, summarize
from lo2io.reports.text.diff import render_diff

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

SYNC = len(tablemaker.CALLS)
SDA = 8 << 20
FILES = [
    {"file": 0, "path": b"/data/f", "mode": 0o100644},
    {"file": 1, "path": b"pipe:[1]", "mode": 0o010600},
    {"file": 2, "path": b"pipe:[2]", "mode": 0o010600},
    {"file": 3, "path": b"/run/fifo", "mode": 0o010600},
    {"file": 4, "path": b"/data/odd:[3]", "mode": 0o100600},
]


def write(index: int, duration: int = 500) -> Row:
    """The index-th block of 4 KiB."""
    begin = 1_000_000 * index
    return {
        "call": WRITE, "handle": 0, "offset_bytes": 4096 * index, "bytes_request": 4096, "bytes_result": 4096,
        "begin_time_ns": begin, "end_time_ns": begin + duration,
    }  # fmt: skip


def sync(index: int) -> Row:
    """A sync that takes 1 ms."""
    return {"call": SYNC, "handle": 0, "begin_time_ns": 10**9 + index, "end_time_ns": 10**9 + index + 1_000_000}


def read_pipe(handle: int) -> Row:
    """Eight bytes from a pipe."""
    return {"call": READ, "handle": handle, "bytes_request": 8, "bytes_result": 8, "end_time_ns": 100}


@pytest.fixture
def compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Diff]:
    """The differences of two lists of operations, of processes with different pids."""
    monkeypatch.setattr(tablemaker, "CALLS", (*tablemaker.CALLS, tablemaker.known_call("fsync")))

    def diff(before: list[Row], after: list[Row], **tables: list[Row]) -> Diff:
        summaries = []
        for side, operations in (("A", before), ("B", after)):
            pid = 100 if side == "A" else 200
            threads = [{"task": 0, "process": 7, "pid": pid, "tid": pid, "comm": b"app"}]
            handles = [{"handle": place, "process": 7, "file": place, "fd": 3 + place} for place in range(len(FILES))]
            rows = [{"id": index + 1, "task": 0, "begin_time_ns": 0, **row} for index, row in enumerate(operations)]
            folder = tmp_path / side
            folder.mkdir()
            batch = make_batch(tasks=threads, handles=handles, files=FILES, operations=rows, **tables)
            summaries.append(summarize(tablemaker.write_trace(folder, [batch], span=(0, 2 * 10**9))))
        return compare(*summaries)

    return diff


def page(diff: Diff) -> str:
    """The page, without the folders' names."""
    text = io.StringIO()
    render_diff(diff, Console(file=text, width=120, no_color=True))
    return text.getvalue().replace(diff.before.trace, "T/A").replace(diff.after.trace, "T/B")


def test_what_changed(compared: Callable[..., Diff], golden: Callable[[str, str], None]) -> None:
    """A sync after each write, and one in the end: the finding is gone, and the syncs' time stands first."""
    writes = [write(index) for index in range(120)]
    device = [
        {"id": 1, "device": SDA, "issue_time_ns": 5, "complete_time_ns": 25, "bytes_request": 4096, "operation": 1}
    ]
    diff = compared([*writes, *map(sync, range(120))], [*writes, sync(0)], requests=device)
    assert [each.name for each in diff.calls] == ["fsync", "write"]
    assert [(side.count, side.time_ns) for side in (diff.calls[0].before, diff.calls[0].after)] == [
        (120, 120_000_000), (1, 1_000_000),
    ]  # fmt: skip
    assert diff.calls[0].before.p50_ns == pytest.approx(1_000_000, rel=0.01)
    assert [(each.rule, each.subject, each.before, each.after) for each in diff.findings] == [
        ("sync-per-write", "/data/f", True, False)
    ]
    golden("diff.txt", page(diff))


def test_numbers_of_a_run_are_no_names(compared: Callable[..., Diff]) -> None:
    """Pids and the inodes of pipes differ from run to run. Their rows belong together all the same."""
    diff = compared([read_pipe(1)], [read_pipe(2), read_pipe(1)])
    assert [(each.name, each.before.count, each.after.count) for each in diff.files] == [("pipes", 1, 2)]
    assert [(each.name, each.before.count, each.after.count) for each in diff.programs] == [("app", 1, 2)]


def test_other_names_stay(compared: Callable[..., Diff]) -> None:
    """A pipe with a path, and a file whose path ends as a pipe's name does."""
    diff = compared([read_pipe(3), read_pipe(4)], [])
    assert {each.name for each in diff.files} == {"/run/fifo", "/data/odd:[3]"}


def test_no_process_passes_for_the_rest(tmp_path: Path) -> None:
    """The summary leaves programs out, and two programs have names like that row. The two keep rows of their own."""
    names = [b"7 others", b"not listed", *(b"app%d" % number for number in range(MAX_ROWS + 3))]
    threads = [
        {"task": pid, "process": pid, "pid": 100 + pid, "tid": 100 + pid, "comm": name}
        for pid, name in enumerate(names)
    ]
    calls = [
        {"id": pid + 1, "call": READ, "task": pid, "begin_time_ns": 0, "end_time_ns": 1000 - pid}
        for pid in range(len(names))
    ]
    batch = make_batch(tasks=threads, operations=calls)
    summary = summarize(tablemaker.write_trace(tmp_path, [batch], span=(0, 20_000)))
    diff = compare(summary, summary)
    rows = [(each.name, each.before.count, each.rest) for each in diff.programs]
    odd = [row for row in rows if not row[0].startswith("app")]
    assert sorted(odd) == [("7 others", 1, False), ("not listed", 1, False), ("not listed", 5, True)]
    assert len(rows) == MAX_ROWS + 1
    told = json.loads(to_json(diff))["programs"]
    assert [row["before"]["count"] for row in told if row["rest"]] == [5]


def test_a_row_of_one_side(compared: Callable[..., Diff]) -> None:
    """A call that only one trace has counts as 0 in the other, and its latency is unknown there, not 0."""
    diff = compared([], [write(0)])
    (change,) = diff.calls
    assert (change.before.count, change.before.p50_ns, change.after.count, change.time_ns) == (0, None, 1, 500)
    (row,) = (line for line in page(diff).splitlines() if line.startswith("write  "))
    assert row.split()[-7:] == ["new", "-", "500", "ns", "to", "500", "ns"]


def test_equal_rows_are_not_shown(compared: Callable[..., Diff]) -> None:
    """Two equal traces have no table but the totals, and each total is the same."""
    text = page(compared([write(0)], [write(0)]))
    assert "By" not in text
    totals = [line for line in text.splitlines()[4:] if line]
    assert {line.split()[-1] for line in totals} == {"="}


def test_json(compared: Callable[..., Diff]) -> None:
    """The JSON has every row, changed or not."""
    found: dict[str, Any] = json.loads(to_json(compared([write(0)], [write(0)])))
    assert (found["schema"], found["schema_version"]) == ("lo2io-diff", 1)
    assert [row["name"] for row in found["calls"]] == ["write"]
    assert found["before"]["command"] == found["after"]["command"]
