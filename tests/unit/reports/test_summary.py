"""The summary against the same sums made by hand, row by row; and its page."""

from __future__ import annotations

import dataclasses
import errno
import io
import json
from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from build.tablemaker import CALLS, COPY, FSTAT, OPENAT, READ, UNLINKAT, WRITE, Row, make_batch, meta, write_trace
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console

from lo2io.model import UNKNOWN_I64, UNKNOWN_U32, CallKind, Completeness, EventCompleteness
from lo2io.reports.summary.summary import Activity, Summary, _realtime_ns, summarize, to_json
from lo2io.reports.summary.sums import gather
from lo2io.reports.summary.tally import MERGED
from lo2io.reports.text.lines import shorten
from lo2io.reports.text.page import render_page, report_console
from lo2io.reports.words import printable

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from lo2io.trace.reader import Trace

SDA, VDA, UNLISTED = 8 << 20, 254 << 20, 9 << 20 | 1
THREADS = [
    {"task": 0, "process": 7, "pid": 100, "tid": 100, "comm": b"dd"},
    {"task": 1, "process": 7, "pid": 100, "tid": 101, "comm": b"worker"},
    {"task": 2, "process": 9, "pid": 200, "tid": 200, "comm": b"child"},
]
FILES = [{"file": 0, "path": b"/data/in"}, {"file": 1, "path": b"/data/out"}]
HANDLES = [
    {"handle": 0, "process": 7, "file": 0, "fd": 3},
    {"handle": 1, "process": 7, "file": 1, "fd": 4},
    {"handle": 2, "process": 9, "file": 0, "fd": 3},
    {"handle": 3, "process": 9, "fd": 5},
    {"handle": 4, "process": 7, "fd": 6},
]
MOVES = {CallKind.READ: (1, 0), CallKind.WRITE: (0, 1), CallKind.COPY: (1, 1)}


def text_of(summary: Summary) -> str:
    """The page as a pipe gets it."""
    out = io.StringIO()
    render_page(summary, report_console(out))
    return out.getvalue()


def operations() -> st.SearchStrategy[list[Row]]:
    """Operations of any call, handle and outcome."""
    time = st.integers(0, 10**9)
    row = st.fixed_dictionaries(
        {
            "begin_time_ns": time,
            "lasts": st.one_of(st.none(), st.integers(0, 10**6)),
            "task": st.sampled_from([0, 1, 2, 55]),
            "call": st.integers(0, len(CALLS) - 1),
            "handle": st.sampled_from([0, 1, 2, 3, 4, 99, UNKNOWN_U32]),
            "handle2": st.sampled_from([0, 1, 3, UNKNOWN_U32]),
            "bytes_result": st.one_of(st.just(UNKNOWN_I64), st.integers(0, 2**31)),
            "error": st.sampled_from([0, 0, 2, 11, 4095]),
        }
    )
    return st.lists(row, max_size=30).map(lambda rows: [finished(row) for row in rows])


def finished(row: Row) -> Row:
    """``lasts`` to an end time and a status."""
    lasts = row.pop("lasts")
    end = UNKNOWN_I64 if lasts is None else row["begin_time_ns"] + lasts
    return {**row, "end_time_ns": end, "status": int(lasts is None)}


def activity(rows: list[Row]) -> Activity:
    """The sums, in plain Python."""
    moved = [max(0, row["bytes_result"]) for row in rows]
    moves = [MOVES.get(CALLS[row["call"]].kind, (0, 0)) for row in rows]
    return Activity(
        calls=len(rows),
        errors=sum(row["error"] != 0 for row in rows),
        reads=sum(read for read, _ in moves),
        writes=sum(write for _, write in moves),
        bytes_read=sum(size * read for size, (read, _) in zip(moved, moves, strict=True)),
        bytes_written=sum(size * write for size, (_, write) in zip(moved, moves, strict=True)),
        time_ns=sum(row["end_time_ns"] - row["begin_time_ns"] for row in rows if row["end_time_ns"] != UNKNOWN_I64),
    )


@settings(max_examples=30, deadline=None)
@given(rows=operations(), cut=st.integers(0, 30))
def test_sums_agree_with_plain_python(rows: list[Row], cut: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Totals, processes, calls and errors, over two batches."""
    batches = [make_batch(tasks=THREADS, operations=rows[:cut]), make_batch(handles=HANDLES, files=FILES)]
    summary = summarize(write_trace(tmp_path_factory.mktemp("t"), [*batches, make_batch(operations=rows[cut:])]))
    assert summary.activity == activity(rows)
    pid_of = {0: 100, 1: 100, 2: 200, 55: None}
    assert {row.pid: row.activity for row in summary.processes} == {
        pid: activity(part) for pid in (100, 200, None) if (part := [r for r in rows if pid_of[r["task"]] == pid])
    }
    assert {row.name: row.activity for row in summary.calls} == {
        call.abi_name: activity(part) for index, call in enumerate(CALLS) if (part := calls_of(rows, index))
    }
    for row in summary.calls:
        part = calls_of(rows, next(i for i, call in enumerate(CALLS) if call.abi_name == row.name))
        assert row.in_flight == sum(r["status"] for r in part)
        assert row.latency.nr == len(part) - row.in_flight
        assert row.latency.total_ns == row.activity.time_ns
    errors = Counter((r["error"], CALLS[r["call"]].abi_name) for r in rows if r["error"])
    assert {(row.number, name): nr for row in summary.errors for name, nr in row.calls.items()} == errors


def calls_of(rows: list[Row], call: int) -> list[Row]:
    """The rows of one call."""
    return [row for row in rows if row["call"] == call]


@settings(max_examples=30, deadline=None)
@given(rows=operations())
def test_files_agree_with_plain_python(rows: list[Row], tmp_path_factory: pytest.TempPathFactory) -> None:
    """Named files over all their handles, unnamed fds by process, calls without an fd; copies write to their target."""
    tables = make_batch(tasks=THREADS, handles=HANDLES, files=FILES, operations=rows)
    summary = summarize(write_trace(tmp_path_factory.mktemp("t"), [tables]))
    group = {0: "/data/in", 1: "/data/out", 2: "/data/in", 3: 200, 4: 100}
    expected: dict[Any, Counter[str]] = {}
    for row in rows:
        sums = activity([row])
        values = {name: getattr(sums, name) for name in Activity.__slots__}
        if row["call"] == COPY:
            written = expected.setdefault(group.get(row["handle2"]), Counter())
            written["writes"] += values.pop("writes")
            written["bytes_written"] += values.pop("bytes_written")
        expected.setdefault(group.get(row["handle"]), Counter()).update(values)
    seen = {
        row.path or row.pid: Counter({n: getattr(row.activity, n) for n in Activity.__slots__}) for row in summary.files
    }
    assert {key: +value for key, value in seen.items()} == {key: +value for key, value in expected.items()}
    kinds = {row.path or row.pid: row.kind for row in summary.files}
    assert all(kind == {str: "named", int: "unnamed"}.get(type(key), "none") for key, kind in kinds.items())


def example(directory: Path) -> Trace:
    """A small trace with something in every section."""
    rows = [
        {"call": OPENAT, "handle": 0, "task": 0, "result": 3, "fd": 3},
        {"call": OPENAT, "task": 0, "error": errno.ENOENT},
        {"call": UNLINKAT, "task": 2, "error": errno.ENOENT},
        *({"call": READ, "handle": 0, "task": 0, "bytes_result": 4096} for _ in range(1500)),
        {"call": READ, "handle": 3, "task": 2, "error": errno.EAGAIN},
        {"call": READ, "handle": 3, "task": 2, "end_time_ns": UNKNOWN_I64, "status": 1},
        *({"call": WRITE, "handle": 1, "task": 1, "bytes_result": 1 << 20} for _ in range(3)),
        {"call": COPY, "handle": 0, "handle2": 4, "task": 0, "bytes_result": 512},
        {"call": FSTAT, "handle": 1, "task": 1},
    ]
    timed = [
        {"begin_time_ns": 1000 * index, "end_time_ns": 1000 * index + 300 + index, **row}
        for index, row in enumerate(rows)
    ]
    requests = [
        {"device": SDA, "insert_time_ns": 10, "issue_time_ns": 40, "complete_time_ns": 1040, "bytes_result": 4096},
        {"device": SDA, "insert_time_ns": 10, "issue_time_ns": 60, "complete_time_ns": 2060, "bytes_result": 4096},
        {"device": SDA, "insert_time_ns": 20, "status": 2, "bytes_result": 0},
        {"device": SDA, "operation": 1, "issue_time_ns": 5, "complete_time_ns": 9, "bytes_result": 0, "error": 5},
        {"device": UNLISTED, "operation": 2, "insert_time_ns": 5, "status": 1, "nr_requeues": 2},
    ]
    proof = Completeness(7, 2, 1, 1, 2, 3016, False, (EventCompleteness("syscalls:sys_exit_read", 0, 3023, 5, 3016),))
    odd_files = [*FILES, {"file": 2, "path": b"/data/\x1b[31mred\n\xff"}]
    handles = [*HANDLES, {"handle": 5, "process": 7, "file": 2}]
    timed.append({"begin_time_ns": 9, "end_time_ns": 19, "call": FSTAT, "handle": 5, "task": 0})
    batch = make_batch(tasks=THREADS, handles=handles, files=odd_files, operations=timed, requests=requests)
    return write_trace(
        directory, [batch], spool=meta(notices=("ring halved to 512 KiB",)), completeness=proof, span=(0, 2_000_000_000)
    )


def test_page(tmp_path: Path, golden: Callable[[str, str], None]) -> None:
    """The whole page, as a pipe gets it."""
    text = text_of(summarize(example(tmp_path))).replace(str(tmp_path), "T")
    assert "\x1b" not in text
    assert max(map(len, text.splitlines()[:-1])) <= 100
    golden("summary.txt", text)


def test_json(tmp_path: Path, golden: Callable[[str, str], None]) -> None:
    """Keys and values; a key that changes breaks what users have built on it."""
    text = to_json(summarize(example(tmp_path))).replace(str(tmp_path), "T")
    assert json.loads(text)["schema_version"] == 5
    golden("summary.json", text + "\n")


def test_requests_by_device_and_operation(tmp_path: Path) -> None:
    """Queue is insert to issue, device is issue to completion; merged requests count apart."""
    reads, writes, flushes = summarize(example(tmp_path)).devices
    assert (reads.name, reads.operation, reads.requests, reads.bytes, reads.merged) == ("sda", "read", 2, 8192, 1)
    assert (reads.queue.nr, reads.queue.min_ns, reads.queue.max_ns) == (2, 30, 50)
    assert (reads.device.nr, reads.device.min_ns, reads.device.max_ns) == (2, 1000, 2000)
    assert (writes.operation, writes.errors, writes.queue.nr, writes.device.max_ns) == ("write", 1, 0, 4)
    assert (flushes.name, flushes.operation, flushes.in_flight, flushes.requeues) == ("9:1", "flush", 1, 2)
    assert flushes.device.nr == 0


def test_what_vanishes_when_a_disk_is_full_is_not_the_machine_s_fault(tmp_path: Path) -> None:
    """Events count until recording can be ended: the page says so, if the recording ended early."""
    summary = summarize(example(tmp_path))
    early = dataclasses.replace(summary, completeness={**summary.completeness, "ended_early": True})
    assert (
        "no buffer was full;\n"
        "some virtual machines deliver nothing while a CPU runs its idle task or a thread of pid 1\n"
        in text_of(summary)
    )
    assert "no buffer was full;\ncounted before recording could be ended\n" in text_of(early)


def test_the_page_is_quiet_about_what_is_missing_elsewhere(tmp_path: Path) -> None:
    """If the recorded processes' part is whole, there is no table of missing events: the last line has them."""
    summary = summarize(example(tmp_path))
    assert "\nMissing" in text_of(summary)
    assert "\nMissing" not in text_of(dataclasses.replace(summary, verdict="complete"))


@pytest.mark.parametrize(("verdict", "colour"), [("complete", "32"), ("incomplete", "1;33"), ("short", "1;31")])
def test_the_line_on_completeness_has_its_verdict_s_colour(verdict: str, colour: str, tmp_path: Path) -> None:
    """Green, bold yellow, and bold red where the kernel's own accounts hold much more; that is said first, too."""
    shortfall = "captured only 0 % of 10 MiB" if verdict == "short" else ""
    summary = dataclasses.replace(summarize(example(tmp_path)), verdict=verdict, shortfall=shortfall)
    out = io.StringIO()
    render_page(summary, Console(file=out, force_terminal=True, color_system="standard", width=100, no_color=False))
    lines = out.getvalue().splitlines()
    assert lines[-1].startswith(f"\x1b[{colour}m")
    assert lines[0].startswith(f"\x1b[1;31m{shortfall}") == bool(shortfall)


def test_empty_trace(tmp_path: Path) -> None:
    """No event and no time: no division by it, no empty tables."""
    summary = summarize(write_trace(tmp_path, [], spool=meta(syncs=(), command=(), mode="system"), span=(5, 5)))
    assert (summary.span_ns, summary.bytes_read_per_s, summary.start_realtime_ns) == (0, None, None)
    text = text_of(summary)
    assert text.startswith("the whole system\n")
    assert "0 ns · 0 calls" in text
    assert "File" not in text


def test_only_block(tmp_path: Path) -> None:
    """Without system calls the page is about devices."""
    text = text_of(summarize(write_trace(tmp_path, [make_batch(requests=[{"device": VDA, "bytes_result": 8}])])))
    assert "\nvda" in text
    assert "Process" not in text


def test_numbers_are_never_cut(tmp_path: Path) -> None:
    """Columns too wide for the page make it wider; only names are shortened, at their beginning."""
    rows = [
        {"call": WRITE, "handle": 0, "bytes_result": 2**50, "end_time_ns": 3 * 10**15, "error": 1},
        {"call": FSTAT, "handle": 0, "end_time_ns": 1},
    ]
    files = [{"file": 0, "path": b"/" + b"d" * 300 + b"/the-name"}]
    trace = write_trace(tmp_path, [make_batch(handles=HANDLES[:1], files=files, operations=rows, tasks=THREADS)])
    out = io.StringIO()
    console = report_console(out)
    console.width = 40
    render_page(summarize(trace), console)
    assert "d/the-name  " in out.getvalue()
    assert out.getvalue().count("1,024 TiB") >= 3
    assert out.getvalue().count("3,000,000 s") >= 3


def test_a_poor_locale_gets_escapes(tmp_path: Path) -> None:
    """Characters the output cannot hold are spelled out."""
    raw = io.BytesIO()
    out = io.TextIOWrapper(raw, encoding="ascii", write_through=True)
    render_page(summarize(example(tmp_path)), report_console(out))
    assert rb"1.8 \xb5s" in raw.getvalue()


def test_many_rows_are_summed_up(tmp_path: Path) -> None:
    """Beyond the limit files and processes make one row each, and nothing is lost from the sums."""
    number = 250
    threads = [{"task": i, "process": i, "pid": i + 1, "tid": i + 1, "comm": b"c%d" % i} for i in range(number)]
    files = [{"file": i, "path": b"/f%d" % i} for i in range(number)]
    handles = [{"handle": i, "process": i, "file": i} for i in range(number)]
    rows = [{"call": READ, "task": i, "handle": i, "end_time_ns": i, "bytes_result": 1} for i in range(number)]
    summary = summarize(
        write_trace(tmp_path, [make_batch(tasks=threads, files=files, handles=handles, operations=rows)])
    )
    assert (summary.nr_processes, summary.nr_files) == (number, number)
    assert summary.files[0].path == "/f249"
    assert summary.processes[0].comm == "c249"
    assert (summary.files[-1].kind, summary.files[-1].path) == ("others", "150 others")
    assert sum(row.activity.bytes_read for row in summary.files) == number
    assert sum(row.activity.calls for row in summary.processes) == number
    assert sum(row.threads for row in summary.processes) == number


@pytest.mark.parametrize(
    ("text", "shown"),
    [("a\nb", r"a\nb"), ("\x1b[31m", r"\x1b[31m"), ("ü µ 中", "ü µ 中"), ("\udcff", r"\udcff"), ("\u202e", r"\u202e")],
)
def test_names_cannot_move_the_cursor(text: str, shown: str) -> None:
    """Escapes, line ends and direction marks are spelled out; letters of any script stay."""
    assert printable(text) == shown


def test_shorten_counts_cells() -> None:
    """Wide characters take two columns."""
    assert shorten("abc", 3) == "abc"
    assert shorten("abcd", 3) == "…cd"
    assert shorten("中中中中", 5) == "…中中"


def test_a_long_name_is_shortened_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A look at all letters for each letter that is cut off would take minutes."""
    looks: list[str] = []

    def counted(text: str) -> int:
        looks.append(text)
        return cell_len(text)

    monkeypatch.setattr("lo2io.reports.text.lines.cell_len", counted)
    assert shorten("中" + "x" * 10_000, 5) == "…xxxx"
    assert len(looks) < 10


def test_terminal_is_coloured_and_says_the_same(tmp_path: Path) -> None:
    """On a terminal there is colour; the words are those of the plain page."""
    summary = summarize(example(tmp_path))
    out = io.StringIO()
    console = report_console(out)
    coloured = type(console)(
        file=out, force_terminal=True, width=200, highlight=False, markup=False, color_system="standard"
    )
    render_page(summary, coloured)
    assert "\x1b[" in out.getvalue()
    assert summary.completeness_line.split(" · ")[0] in out.getvalue()


def test_late_samples_make_no_negative_time(tmp_path: Path) -> None:
    """An end before its start counts as no time at all."""
    trace = write_trace(tmp_path, [make_batch(operations=[{"begin_time_ns": 9, "end_time_ns": 4, "call": READ}])])
    summary = summarize(trace)
    assert (summary.activity.time_ns, summary.calls[0].latency.max_ns) == (0, 0)
    assert np.int64(summary.calls[0].latency.nr) == 1


def test_attached_processes_are_named(tmp_path: Path) -> None:
    """Without a command the page begins with the processes that were attached to."""
    spool = meta(command=(), roots=(7, 12), mode="process")
    assert text_of(summarize(write_trace(tmp_path, [], spool=spool))).startswith("process 7, 12\n")


def test_the_start_is_told_by_the_nearest_reading() -> None:
    """The first one may lie days before a flight recorder's window, and clocks drift."""
    syncs = [{"time_ns": 0, "realtime_ns": 10**18}, {"time_ns": 10**14, "realtime_ns": 10**18 + 10**14 + 10**9}]
    assert _realtime_ns({"syncs": syncs, "start_ns": 9 * 10**13}) == 10**18 + 9 * 10**13 + 10**9
    assert _realtime_ns({"syncs": syncs, "start_ns": 1}) == 10**18 + 1
    assert _realtime_ns({"syncs": [], "start_ns": 1}) is None


def test_files_that_are_not_in_the_trace_are_unknown(tmp_path: Path) -> None:
    """As in a damaged trace: whatever table names them."""

    def told(file: int) -> str:
        span = {"begin_time_ns": 10, "end_time_ns": 20}
        batch = make_batch(
            tasks=THREADS,
            files=FILES,
            handles=[{"handle": 0, "process": 7, "file": file, "fd": 3}],
            operations=[{"id": 1, "task": 0, "call": READ, "handle": 0, "bytes_result": 5, **span}],
            requests=[{"id": 7, "device": SDA, "operation": 1, "bytes_issued": 4096, "status": 0}],
            request_parts=[{"request": 7, "kind": 0, "file": file, "bytes": 4096}],
            write_backs=[{"request": 7, "charged": 1, "task": 0, "file": file, "bytes": 4096}],
            faults=[{"operation": 1, "file": file, "inside": 0, **span}] * 500,
            fills=[{"file": file, "why": why, "pages": 1, "used_pages": 1, "page_bytes": 4096} for why in range(3)],
        )
        layers = ("parts", "dirty", "cache", "faults")
        found = summarize(write_trace(tmp_path / str(file), [batch], spool=meta(layers=layers), span=(0, 10**6)))
        return to_json(dataclasses.replace(found, trace=""))

    assert told(len(FILES)) == told(5000) == told(UNKNOWN_U32) != told(1)


def test_merged_requests_are_none_of_their_process(tmp_path: Path) -> None:
    """Their bytes went with the requests into which they were merged."""
    sent = {"device": 8 << 20, "task": 0, "operation": 1, "bytes_result": 4096}
    batch = make_batch(
        tasks=[{"task": 0, "process": 0, "pid": 100, "tid": 100, "comm": b"dd"}],
        requests=[{**sent, "id": 1}, {**sent, "id": 2, "status": MERGED}],
    )
    tally = gather(write_trace(tmp_path, [batch])).requests
    assert (tally.process_requests.tolist(), tally.process_bytes.tolist()) == ([1, 0], [4096, 0])


def test_an_end_that_nobody_saw_tells_no_latency(tmp_path: Path) -> None:
    """It had ended by then, and perhaps long before."""
    sent = {"device": 8 << 20, "operation": 0, "issue_time_ns": 100}
    requests = [{**sent, "id": 1, "complete_time_ns": 150}, {**sent, "id": 2, "complete_time_ns": 900, "status": 3}]
    (row,) = summarize(write_trace(tmp_path, [make_batch(requests=requests)])).devices
    assert (row.requests, row.device.nr, row.device.max_ns) == (2, 1, 50)
