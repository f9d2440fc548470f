"""``lo2io top``: a window's numbers against the same sums made by hand, its page, and the keys."""

from __future__ import annotations

import io
import json
import os
import re
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from build.tablemaker import (
    CALLS,
    COMPLETE,
    FSYNC,
    NOP,
    READ,
    READV,
    WRITEV,
    Row,
    make_batch,
    write_trace,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from lo2io.errors import CaptureError, UsageError
from lo2io.model import UNKNOWN_I64, UNKNOWN_U32, CallKind
from lo2io.reports.summary.summary import summarize
from lo2io.top.look import DOWN, ESCAPE, UP, Look, check_look
from lo2io.top.page import render_top
from lo2io.top.screen import Pipe, Terminal
from lo2io.top.session import Recorder, TopOptions, _Loop, watch
from lo2io.top.window import NO_SPREAD, Activity, DeviceNow, FileNow, ProcessNow, Spread, Window, spreads, watch_window

if TYPE_CHECKING:
    from pathlib import Path

VDA = 254 << 20
THREADS = [
    {"task": 0, "process": 7, "pid": 100, "tid": 100, "comm": b"dd"},
    {"task": 1, "process": 9, "pid": 200, "tid": 200, "comm": b"child"},
]
FILES = [{"file": 0, "path": b"/data/in"}, {"file": 1, "path": b"/data/out"}]
HANDLES = [
    {"handle": 0, "process": 7, "file": 0, "fd": 3},
    {"handle": 1, "process": 9, "file": 1, "fd": 4},
    {"handle": 2, "process": 9, "fd": 5},
]
PIDS = (100, 200)
GROUPS = {0: "/data/in", 1: "/data/out", 2: 200}
_TIMED = (CallKind.READ, CallKind.WRITE, CallKind.COPY, CallKind.SYNC)


def rows_of(kinds: int, begin: str, end: str, kind: str) -> st.SearchStrategy[list[Row]]:
    """Calls or requests that may not have ended, on any handle."""
    row = st.fixed_dictionaries(
        {
            begin: st.integers(0, 10**9),
            end: st.one_of(st.none(), st.integers(0, 10**6)),
            "task": st.sampled_from([0, 1]),
            kind: st.integers(0, kinds - 1),
            "handle": st.sampled_from([0, 1, 2, UNKNOWN_U32]),
            "handle2": st.sampled_from([0, 1, UNKNOWN_U32]),
            "bytes_result": st.one_of(st.just(UNKNOWN_I64), st.integers(0, 2**31)),
            "error": st.sampled_from([0, 0, 11]),
        }
    )

    def finish(row: Row) -> Row:
        lasts = row[end]
        row[end] = UNKNOWN_I64 if lasts is None else row[begin] + lasts
        return {**row, "status": int(lasts is None), "pid": PIDS[row["task"]]}

    return st.lists(row.map(finish), max_size=20)


def plain(rows: list[Row], *, requests: bool) -> list[dict[str, Any]]:
    """The amounts of each row, in plain Python."""
    added = []
    for row in rows:
        begin, end = ("submit_time_ns", "complete_time_ns") if requests else ("begin_time_ns", "end_time_ns")
        if row[end] == UNKNOWN_I64:
            continue
        moved = max(0, row["bytes_result"])
        if requests:
            timed, copies = row["opcode"] != NOP, False
            reads, writes = row["opcode"] == READV, row["opcode"] == WRITEV
        else:
            kind = CALLS[row["call"]].kind
            timed, copies = kind in _TIMED, kind == CallKind.COPY
            reads, writes = kind == CallKind.READ, kind == CallKind.WRITE
        added.append(
            {
                "pid": row["pid"],
                "file": GROUPS.get(row["handle"]),
                "copies": copies,
                "target": GROUPS.get(row["handle2"]),
                "errors": int(row["error"] != 0),
                "bytes_read": moved * (reads or copies),
                "bytes_written": moved * (writes or copies),
                "time_ns": row[end] - row[begin],
                "timed": timed,
            }
        )
    return added


def activity(rows: list[dict[str, Any]], more_written: int = 0) -> Activity:
    """The sums; percentiles by counting."""
    latencies = sorted(row["time_ns"] for row in rows if row["timed"])

    def rank(share: int) -> int:
        return next(value for value in latencies if sum(v <= value for v in latencies) * 100 >= share * len(latencies))

    spread = Spread(len(latencies), rank(50), rank(99), latencies[-1]) if latencies else NO_SPREAD
    sums = {name: sum(row[name] for row in rows) for name in ("errors", "bytes_read", "bytes_written", "time_ns")}
    sums["bytes_written"] += more_written
    return Activity(operations=len(rows), **sums, latency=spread)


@settings(max_examples=30, deadline=None)
@given(
    calls=rows_of(len(CALLS), "begin_time_ns", "end_time_ns", "call"),
    requests=rows_of(FSYNC + 1, "submit_time_ns", "complete_time_ns", "opcode"),
    cut=st.integers(0, 20),
)
def test_a_window_agrees_with_plain_python(
    calls: list[Row], requests: list[Row], cut: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Calls and requests of rings, by process and file; copies write to their target; what runs on does not count."""
    batches = [
        make_batch(tasks=THREADS, handles=HANDLES, files=FILES, operations=calls[:cut], ring_requests=requests),
        make_batch(operations=calls[cut:]),
    ]
    window = watch_window(write_trace(tmp_path_factory.mktemp("t"), batches, span=(0, 2 * 10**9)))
    added = plain(calls, requests=False) + plain(requests, requests=True)
    assert window.span_ns == 2 * 10**9
    assert window.total == activity(added)
    assert {row.pid: row.activity for row in window.processes} == {
        pid: activity(part) for pid in PIDS if (part := [row for row in added if row["pid"] == pid])
    }
    expected = {}
    for name in (*GROUPS.values(), None):
        here = [
            {**row, "bytes_written": 0 if row["copies"] else row["bytes_written"]}
            for row in added
            if row["file"] == name
        ]
        written = sum(row["bytes_written"] for row in added if row["copies"] and row["target"] == name)
        if here or written:
            expected[name] = activity(here, written)
    assert {row.path or row.pid: row.activity for row in window.files} == expected
    pairs = {}
    for pid in PIDS:
        for name in (*GROUPS.values(), None):
            mine = [row for row in added if row["pid"] == pid]
            here = [
                {**row, "bytes_written": 0 if row["copies"] else row["bytes_written"]}
                for row in mine
                if row["file"] == name
            ]
            to = [row["bytes_written"] for row in mine if row["copies"] and row["target"] == name]
            if here or sum(to):
                pairs[pid, name] = activity(here, sum(to))
    assert {
        (window.processes[pair.process].pid, window.files[pair.file].path or window.files[pair.file].pid): pair.activity
        for pair in window.pairs
    } == pairs
    assert window.unlisted_pairs == 0


@settings(max_examples=20, deadline=None)
@given(calls=rows_of(len(CALLS), "begin_time_ns", "end_time_ns", "call"))
def test_numbers_are_those_of_the_report(calls: list[Row], tmp_path_factory: pytest.TempPathFactory) -> None:
    """For a window's processes and files, `lo2io report` and top show the same."""
    ended = [row for row in calls if row["end_time_ns"] != UNKNOWN_I64]
    batch = make_batch(tasks=THREADS, handles=HANDLES, files=FILES, operations=ended)
    trace = write_trace(tmp_path_factory.mktemp("t"), [batch])
    window, summary = watch_window(trace), summarize(trace)
    assert numbers({row.pid: row.activity for row in window.processes}) == numbers(
        {row.pid: row.activity for row in summary.processes}
    )
    # The report has no row for writes to unknown files only.
    files = [row for row in window.files if row.kind != "none" or row.activity.operations]
    assert numbers({row.path or row.pid: row.activity for row in files}) == numbers(
        {row.path or row.pid: row.activity for row in summary.files}
    )


def numbers(rows: dict[Any, Any]) -> dict[Any, tuple[int, ...]]:
    """The numbers that both have; a file that a copy only read does not count."""
    found = {key: (row.errors, row.bytes_read, row.bytes_written, row.time_ns) for key, row in rows.items()}
    return {key: row for key, row in found.items() if any(row)}


def test_who_only_looks_on_is_left_out(tmp_path: Path) -> None:
    """As if it had done nothing."""
    calls = [
        {"begin_time_ns": 0, "end_time_ns": 5, "task": task, "pid": PIDS[task], "call": READ, "bytes_result": 7}
        for task in (0, 1, 1)
    ]
    window = watch_window(write_trace(tmp_path, [make_batch(tasks=THREADS, operations=calls)]), {200})
    assert [(row.pid, row.activity.operations) for row in window.processes] == [(100, 1)]
    assert (window.total.operations, window.total.bytes_read) == (1, 7)


@pytest.mark.parametrize(("rows", "found", "unlisted"), [(1, [], 3), (2, [9, 5], 1), (3, [9, 5, 5], 0)])
def test_pairs_that_are_in_no_list_are_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rows: int, found: list[int], unlisted: int
) -> None:
    """Those that did less than others, and those whose process or file is not listed."""
    monkeypatch.setattr("lo2io.top.window.MAX_ROWS", rows)
    calls = [
        {"end_time_ns": 5, "begin_time_ns": 0, "task": task, "handle": handle, "call": READ, "bytes_result": moved}
        for task, handle, moved in ((0, 0, 9), (0, 1, 5), (1, 1, 5))
    ]
    batch = make_batch(tasks=THREADS, handles=HANDLES, files=FILES, operations=calls)
    window = watch_window(write_trace(tmp_path, [batch]))
    assert [pair.activity.bytes_read for pair in window.pairs] == found
    assert window.unlisted_pairs == unlisted


def test_a_request_older_than_the_window_has_no_latency(tmp_path: Path) -> None:
    """Its bytes count all the same."""
    request = {"task": 0, "pid": 100, "opcode": READV, "complete_time_ns": 9, "bytes_result": 5}
    window = watch_window(write_trace(tmp_path, [make_batch(tasks=THREADS, ring_requests=[request])]))
    assert window.total == Activity(1, 0, 5, 0, 0, NO_SPREAD)


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 50)), max_size=250))
def test_percentiles_are_exact(pairs: list[tuple[int, int]]) -> None:
    """By nearest rank, each key for itself."""
    keys, values = (np.array(part, np.int64) for part in (zip(*pairs, strict=True) if pairs else ((), ())))
    found = spreads(keys, values)
    for key in set(keys.tolist()):
        mine = sorted(value for other, value in pairs if other == key)
        assert found[key] == Spread(
            len(mine), mine[-(-len(mine) // 2) - 1], mine[-(-len(mine) * 99 // 100) - 1], mine[-1]
        )
    assert found.keys() == set(keys.tolist())


def test_devices(tmp_path: Path) -> None:
    """A device is busy while any request is at it; merged requests do not count; unfinished ones are in flight.

    A request with an unseen end was there until its latest moment. One of unknown end was there for an unknown time.
    """

    def request(insert: int, issue: int, complete: int, operation: int = 0, **columns: int) -> Row:
        times = {"insert_time_ns": insert, "issue_time_ns": issue, "complete_time_ns": complete}
        return {"device": VDA, "operation": operation, "bytes_result": 4096, **times, **columns}

    requests = [
        request(0, 10, 110),
        request(0, 60, 160, 1, error=5),
        request(UNKNOWN_I64, 200, 230, 2, bytes_result=UNKNOWN_I64),
        request(0, UNKNOWN_I64, 900, status=2),
        request(0, 900, UNKNOWN_I64, status=1),
        request(UNKNOWN_I64, 400, UNKNOWN_I64, status=3, end_latest_ns=420, bytes_result=UNKNOWN_I64),
        request(UNKNOWN_I64, 500, UNKNOWN_I64, status=4, bytes_result=UNKNOWN_I64),
    ]
    window = watch_window(write_trace(tmp_path, [make_batch(requests=requests)], span=(0, 1000)))
    assert window.devices == (
        DeviceNow(
            name="vda",
            requests=4,
            errors=1,
            bytes_read=4096,
            bytes_written=4096,
            in_flight=1,
            busy_ns=150 + 30 + 100 + 20,
            queue=Spread(2, 10, 60, 60),
            device=Spread(3, 100, 100, 100),
        ),
    )


def test_losses_are_told_apart(tmp_path: Path) -> None:
    """Records without room in a buffer, and vanished ones."""
    window = watch_window(
        write_trace(tmp_path, [make_batch()], completeness=replace(COMPLETE, lost=5, vanished=2, proven=False))
    )
    assert (window.lost, window.vanished, window.proven) == (3, 2, False)


# ---- the page ----

BUSY = Activity(4_000, 3, 8 << 20, 2 << 20, 500_000_000, Spread(10, 1_500, 2_000_000, 3_000_000))
QUIET = Activity(6_000, 0, 0, 1 << 10, 1_000, Spread(2, 5_000_000, 9_000_000, 9_000_000))
WINDOW = Window(
    span_ns=2 * 10**9,
    total=BUSY,
    processes=(ProcessNow(100, "dd", BUSY), ProcessNow(None, None, QUIET)),
    files=(
        FileNow("named", "/data/\x1b[31mred", None, None, BUSY),
        FileNow("unnamed", None, 7, "cat", QUIET),
        FileNow("none", None, None, None, replace(QUIET, bytes_written=0)),
    ),
    devices=(DeviceNow("vda", 50, 0, 4096, 0, 2, 10**9, NO_SPREAD, Spread(50, 10, 20, 30)),),
    lost=0,
    vanished=0,
    proven=True,
)


def text_of(window: Window, look: Look, height: int | None = None, width: int = 110) -> list[str]:
    """The page's lines."""
    out = io.StringIO()
    console = Console(file=out, width=width, highlight=False, markup=False)
    console.print(render_top(window, look, width, height))
    return [line.rstrip() for line in out.getvalue().splitlines()]


def words(text: str) -> list[str]:
    """The texts of a row."""
    return text.split()


@pytest.mark.parametrize(
    ("changes", "style"), [({}, "green"), ({"proven": False}, "bold yellow"), ({"lost": 1}, "bold yellow")]
)
def test_what_is_missing_stands_out(changes: dict[str, Any], style: str) -> None:
    """Only a window that is proven complete is green."""
    out = io.StringIO()
    console = Console(file=out, width=100, highlight=False, force_terminal=True, color_system="standard")
    console.print(render_top(replace(WINDOW, **changes), Look(), 100, 30))
    code = {"green": "32", "bold yellow": "1;33"}[style]
    assert f"\x1b[{code}m" in out.getvalue().splitlines()[1]


def test_page_of_processes() -> None:
    """Rates are per second of the window; what has no latency has a dash."""
    lines = text_of(WINDOW, Look())
    assert lines[0] == "lo2io top · the last 2 s · 2,000 operations/s · read 4 MiB/s · written 1 MiB/s · 3 failed"
    assert lines[1] == "complete · by process, most bytes first"
    assert lines[3].split() == words("Process ops/s read/s written/s failed in calls p50 p99 max")
    assert lines[4].split() == words("dd (100) 2,000 4 MiB/s 1 MiB/s 3 25% 1.5 µs 2 ms 3 ms")
    assert lines[5].split() == words("unknown 3,000 0 B/s 512 B/s 0 0% 5 ms 9 ms 9 ms")
    assert len(lines) == 6


@pytest.mark.parametrize(
    ("sort", "first"), [("bytes", "dd"), ("operations", "unknown"), ("time", "dd"), ("latency", "unknown")]
)
def test_order(sort: str, first: str) -> None:
    """By the chosen column, the most first."""
    assert text_of(WINDOW, Look(sort=sort))[4].startswith(first)


def test_page_of_files_and_devices() -> None:
    """A name cannot move the cursor; a file without a name has its process' name."""
    files = text_of(WINDOW, Look(view="file"))
    assert [line.split("  ")[0] for line in files[4:]] == ["/data/\\x1b[31mred", "unnamed, of cat (7)", "no descriptor"]
    devices = text_of(WINDOW, Look(view="device"))
    assert devices[4].split() == words("vda 25 2 KiB/s 0 B/s 50% 2 - 10 ns 20 ns 30 ns")


@pytest.mark.parametrize("view", ["process", "file", "device"])
@pytest.mark.parametrize("width", [30, 40, 60, 80, 120])
def test_a_narrow_terminal_has_fewer_columns(view: str, width: int) -> None:
    """None of them is cut: a wide terminal shows each cell, too."""
    long = replace(WINDOW, files=(replace(WINDOW.files[0], path="/d" * 200 + "/end"),))
    wide = text_of(WINDOW, Look(view), width=400)[3:]
    lines = text_of(long, Look(view), width=width)
    table = lines[lines.index("", 1) + 1 :]
    assert all(len(line) <= width for line in lines)
    cells = {cell for line in wide for cell in re.split(r" {2,}", line)}
    for line in table:
        assert set(re.split(r" {2,}", line)[1:]) <= cells, line
    if view == "file":
        name = table[1].split("  ")[0]
        assert name.startswith("…")
        assert name.endswith("end")
        assert len(name) >= (20 if width >= 60 else 5)


def test_page_on_a_terminal() -> None:
    """No higher than the terminal, whatever there is, and with the keys; losses and notices are seen."""
    many = replace(WINDOW, processes=WINDOW.processes[:1] * 50, lost=7, vanished=1, proven=False)
    lines = text_of(many, Look(paused=True, notice="the ring\nwas halved " + "x" * 200), height=24)
    assert len(lines) <= 24
    assert sum(line.startswith("dd (100)") for line in lines) == 24 - 7
    assert "and 33 more" in lines
    assert lines[1].startswith("paused · 7 lost, 1 vanished")
    assert lines[-1].startswith("the ring\\nwas halved")
    assert "q quit" in lines[-2]
    assert all(len(line) <= 110 for line in lines)


def test_unknown_views_are_refused() -> None:
    """With what there is."""
    with pytest.raises(UsageError) as refused:
        check_look(Look(view="user"))
    assert refused.value.remedy == "choose one of process, file, device"
    with pytest.raises(UsageError, match="sort by 'name'"):
        check_look(Look(sort="name"))


@pytest.mark.parametrize("as_json", [False, True])
def test_views_in_a_pipe(capsys: pytest.CaptureFixture[str], *, as_json: bool) -> None:
    """Plain text with every row, or an object a line; each view at once."""
    with Pipe(as_json=as_json) as pipe:
        assert not pipe.key(0)
        pipe.show(WINDOW, Look("file"))
        first = capsys.readouterr().out
        pipe.show(WINDOW, Look("file"))
    assert capsys.readouterr().out == first
    if as_json:
        assert json.loads(first) == {
            "schema": "lo2io-top",
            "schema_version": 3,
            **json.loads(json.dumps(asdict(WINDOW))),
        }
        assert first.count("\n") == 1
    else:
        assert "\x1b" not in first
        assert first.splitlines()[4].startswith("/data/\\x1b[31mred")
        assert first.endswith("\n\n")


# ---- the loop ----


class FakeScreen:
    """Presses keys, one at each request, and notes the output."""

    def __init__(self, keys: str) -> None:
        self.keys = list(keys)
        self.shown: list[Look] = []

    def show(self, window: Window, look: Look) -> None:
        """As of ``Terminal``, and so the other."""
        assert window is WINDOW
        self.shown.append(look)

    def key(self, timeout_s: float) -> str:
        """The next, once there was something to see."""
        assert timeout_s <= 1
        return self.keys.pop(0) if self.shown and self.keys else ""


class FakeRecorder(Recorder):
    """Has one window again and again."""

    def __init__(self, failure: Exception | None = None) -> None:
        super().__init__(TopOptions())
        self.failure = failure

    def window(self) -> Window:
        """The window, or the error."""
        if self.failure:
            raise self.failure
        return WINDOW


def look_on(keys: str, count: int | None = None, failure: Exception | None = None) -> list[Look]:
    """The output until the user quit, or until so many views."""
    screen = FakeScreen(keys)
    with ThreadPoolExecutor(1) as pool:
        _Loop(TopOptions(interval_s=0, count=count), screen, Look(), FakeRecorder(failure)).run(pool)
    return screen.shown


def test_keys_change_the_view_at_once() -> None:
    """Without a new window; keys that mean nothing draw nothing."""
    shown = look_on("fxdsspq")
    looks = list(dict.fromkeys(shown))
    assert looks == [
        Look(),
        Look("file"),
        Look("device"),
        Look("device", "operations"),
        Look("device", "time"),
        Look("process", "time"),
    ]


def test_what_is_shown_is_drawn_anew_when_asked() -> None:
    """By Ctrl-L, or since the terminal has another size; paused or not."""
    shown = look_on(" \x0c\x0cq")
    assert [look.paused for look in shown if look.paused] == [True] * 3


@pytest.mark.parametrize("width", [30, 50, 80, 100, 200])
def test_the_first_line_has_whole_numbers(width: int) -> None:
    """As many as fit; whether the view is paused is never cut off."""
    lines = text_of(WINDOW, Look(paused=True), width=width)
    whole = text_of(WINDOW, Look(), width=500)[0].split(" · ")
    assert all(part in whole for part in lines[0].split(" · "))
    assert lines[1].startswith("paused · ")


def test_the_first_view_comes_sooner() -> None:
    """Somebody waits for it: it does not take the interval of an hour."""
    screen = FakeScreen("")
    with ThreadPoolExecutor(1) as pool:
        _Loop(TopOptions(interval_s=3600, first_s=0, count=1), screen, Look(), FakeRecorder()).run(pool)
    assert screen.shown == [Look()]


def test_count_ends_it() -> None:
    """With keys pressed or not."""
    assert look_on("", count=3) == [Look()] * 3


def test_paused_views_stand_still() -> None:
    """New windows come and go unseen until the next space."""
    shown = look_on("  q")
    assert Look(paused=True) in shown
    assert shown.count(Look(paused=True)) == 1


def test_a_recorder_that_ends_is_told() -> None:
    """Its own words."""
    with pytest.raises(CaptureError, match="the disk is full"):
        look_on("", failure=CaptureError("record", "the disk is full"))


@pytest.mark.parametrize(
    ("options", "remedy"),
    [
        ({"interval_s": 0.5}, "use --interval 2s"),
        ({"arguments": ("--cpus", "0")}, "leave away --events, --filter, --cpus, --cgroup and --backend"),
        ({}, "name the directory given with -o to a recording with --last"),
    ],
)
def test_what_cannot_be_watched_is_refused(tmp_path: Path, options: dict[str, Any], remedy: str) -> None:
    """Before anything is drawn."""
    with pytest.raises(UsageError) as refused:
        watch(TopOptions(trace=tmp_path, **{"interval_s": 1.0, **options}), FakeScreen(""), Look())
    assert refused.value.remedy == remedy


def test_keys_count_until_the_terminal_hangs_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """However long nobody pressed one. A terminal that was hung up is not read again: it would be ready for ever."""
    reader, writer = os.pipe()
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(fileno=lambda: reader, isatty=lambda: True))
    screen = Terminal()
    assert screen.key(0) == ""
    os.write(writer, b"q")
    assert (screen.key(0), screen.key(0)) == ("q", "")
    os.write(writer, b"\x1bOA\x1b[B")
    assert (screen.key(0), screen.key(0), screen.key(0)) == (UP, DOWN, "")
    os.write(writer, b"\x1b")
    assert screen.key(0) == ESCAPE
    os.close(writer)
    assert screen.key(0) == ""
    os.close(reader)
    assert screen.key(0) == ""
