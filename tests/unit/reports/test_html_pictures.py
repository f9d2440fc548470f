"""The report's pictures, compared with the tables."""

from __future__ import annotations

import html
import json
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from build import ringtables
from build.tablemaker import (
    CALLS,
    CLOSE,
    COMPLETE,
    COPY,
    OPCODES,
    OPENAT,
    READ,
    READV,
    WRITE,
    Row,
    make_batch,
    meta,
    write_trace,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from lo2io.errors import TraceError
from lo2io.model import UNKNOWN_I64, UNKNOWN_U32, CallKind, Totals
from lo2io.reports.findings.finding import Finding
from lo2io.reports.html.collect import latency_bin, latency_edges_ns
from lo2io.reports.html.page import gather_pictures, gather_with_calls, render_html
from lo2io.reports.html.sheets import sheets
from lo2io.reports.summary.summary import summarize
from lo2io.reports.summary.sums import gather
from lo2io.trace.reader import open_trace
from lo2io.trace.writer import TableWriter

if TYPE_CHECKING:
    from pathlib import Path

    from lo2io.model import Columns
    from lo2io.trace.reader import Trace

SDA = 8 << 20
SPAN = 1_000_000
THREADS = [
    {"task": 0, "process": 7, "pid": 100, "tid": 100, "comm": b"dd"},
    {"task": 1, "process": 9, "pid": 200, "tid": 200, "comm": b"cp"},
]
FILES = [{"file": 0, "path": b"/data/in"}, {"file": 1, "path": b"/data/<out>"}]
HANDLES = [
    {"handle": 0, "process": 7, "file": 0, "fd": 3},
    {"handle": 1, "process": 9, "file": 1, "fd": 4},
    {"handle": 2, "process": 9, "fd": 5},
]
TIMES = st.integers(0, SPAN)


def _operation(begin: int, last: int | None, size: int) -> st.SearchStrategy[Row]:
    end = UNKNOWN_I64 if last is None else min(begin + last, SPAN)
    fixed = {"begin_time_ns": begin, "end_time_ns": end, "status": int(last is None), "bytes_result": size}
    return st.fixed_dictionaries(
        {
            "task": st.sampled_from([0, 1, 55]),
            "call": st.integers(0, len(CALLS) - 1),
            "handle": st.sampled_from([0, 1, 2, UNKNOWN_U32]),
            "handle2": st.sampled_from([0, 1, UNKNOWN_U32]),
            "offset_bytes": st.one_of(st.just(UNKNOWN_I64), st.integers(0, 1 << 40)),
        }
    ).map(lambda row: {**row, **fixed})


SIZES = st.one_of(st.just(UNKNOWN_I64), st.integers(0, 1 << 30))
OPERATIONS = st.lists(
    st.tuples(TIMES, st.one_of(st.none(), TIMES), SIZES).flatmap(lambda row: _operation(*row)), max_size=25
)


def made(directory: Path, **tables: list[Row]) -> tuple[Trace, dict[str, Any]]:
    """A trace of these rows, and its pictures."""
    batch = make_batch(tasks=THREADS, handles=HANDLES, files=FILES, **tables)
    trace = write_trace(directory, [batch], span=(0, SPAN))
    return trace, gather_pictures(gather(trace))


@settings(max_examples=40, deadline=None)
@given(rows=OPERATIONS, lanes=st.sampled_from([0, 1, 40]), kept=st.sampled_from([1, 3, 60]))
def test_one_pass_draws_what_two_passes_draw(
    rows: list[Row], lanes: int, kept: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Where everyone gets a lane at first, and the others are put together when the busiest are known."""
    rows = [{**row, "id": index + 1} for index, row in enumerate(rows)]
    request = {"id": 99, "ring": 0, "task": 0, "handle": 0, "opcode": READV, "submit_time_ns": 0,
               "complete_time_ns": SPAN // 2, "bytes_result": 100, "offset_bytes": 7}  # fmt: skip
    batch = make_batch(tasks=THREADS, handles=HANDLES, files=FILES, operations=rows, ring_requests=[request])
    trace = write_trace(tmp_path_factory.mktemp("t"), [batch], span=(0, SPAN))
    with pytest.MonkeyPatch.context() as patch:
        for kind in ("PROCESSES", "FILES", "THREADS"):
            patch.setattr(f"lo2io.reports.html.lanes.MAX_{kind}", lanes)
        for kind in ("SLICES", "POINTS"):
            patch.setattr(f"lo2io.reports.html.calls.MAX_{kind}", kept)
        sums, calls = gather_with_calls(trace)
        assert calls is not None
        assert gather_pictures(sums, calls) == gather_pictures(sums)
        patch.setattr("lo2io.reports.html.calls.MAX_EVERYONE", (9, 9, 1))
        assert gather_with_calls(trace)[1] is None


def test_what_fails_beside_the_sums_fails_the_report(tmp_path: Path) -> None:
    """A report never lacks what another thread could not add up."""

    def see(rows: Columns) -> None:
        raise TraceError(f"draw {len(rows['id'])} calls", "the disk is full", "make room")

    operations = [{"id": 1, "task": 0, "call": 0, "begin_time_ns": 0, "end_time_ns": 10}]
    batch = make_batch(tasks=THREADS, handles=HANDLES, files=FILES, operations=operations)
    trace = write_trace(tmp_path, [batch], span=(0, SPAN))
    with pytest.raises(TraceError, match="the disk is full"):
        gather(trace, lambda *_: see)


def moved_by(rows: list[Row], *calls: int) -> int:
    """Bytes of these calls."""
    return sum(max(0, row["bytes_result"]) for row in rows if row["call"] in calls)


@settings(max_examples=25, deadline=None)
@given(rows=OPERATIONS)
def test_pictures_hold_what_the_table_holds(rows: list[Row], tmp_path_factory: pytest.TempPathFactory) -> None:
    """Bytes and time of all bins and lanes add up to the operations'; by class, and by process and file."""
    rows = [{**row, "id": index + 1} for index, row in enumerate(rows)]
    trace, pictures = made(tmp_path_factory.mktemp("t"), operations=rows)
    summary = summarize(trace)
    for name, calls in (("read", (READ, COPY)), ("written", (WRITE, COPY))):
        assert sum(pictures["all"][name]) == moved_by(rows, *calls)
        for kind in ("processes", "files"):
            assert sum(map(sum, pictures[kind][name])) == moved_by(rows, *calls)
    assert sum(pictures["all"]["read"]) == summary.activity.bytes_read
    times = [(SPAN if row["end_time_ns"] == UNKNOWN_I64 else row["end_time_ns"]) - row["begin_time_ns"] for row in rows]
    for kind in ("processes", "files"):
        assert sum(map(sum, pictures[kind]["time_ns"])) == sum(times)
    by_name = dict(zip(pictures["files"]["names"], pictures["files"]["written"], strict=True))
    to_out = [row for row in rows if row["call"] == WRITE and row["handle"] == 1]
    to_out += [row for row in rows if row["call"] == COPY and row["handle2"] == 1]
    assert sum(by_name.get("/data/<out>", [0])) == moved_by(to_out, WRITE, COPY)
    ended = [row for row in rows if row["end_time_ns"] != UNKNOWN_I64]
    counts = {row["name"]: int(np.sum(row["counts"])) for row in pictures["latency"]["rows"]}
    assert sum(counts.values()) == len(ended)
    assert counts.get("open", 0) == sum(row["call"] == OPENAT for row in ended)


@settings(max_examples=25, deadline=None)
@given(rows=OPERATIONS)
def test_points_and_slices_are_the_operations(rows: list[Row], tmp_path_factory: pytest.TempPathFactory) -> None:
    """If there is room for all, each operation is drawn once, in its place."""
    rows = [{**row, "id": index + 1} for index, row in enumerate(rows)]
    _, pictures = made(tmp_path_factory.mktemp("t"), operations=rows)
    known = [row for row in rows if row["offset_bytes"] != UNKNOWN_I64 and moved_by([row], READ, WRITE, COPY) > 0]
    stop = [SPAN if row["end_time_ns"] == UNKNOWN_I64 else row["end_time_ns"] for row in known]
    expected = sorted(
        (end, row["offset_bytes"], row["bytes_result"], int(row["call"] == WRITE))
        for row, end in zip(known, stop, strict=True)
    )
    seen = []
    for picture in pictures["file_points"]:
        columns = (picture[name] for name in ("time_ns", "offset_bytes", "bytes", "write"))
        seen += list(zip(*columns, strict=True))
        assert picture["of"] == len(picture["time_ns"])
    assert sorted(seen) == expected
    slices = pictures["slices"]
    assert sorted(slices.get("id", [])) == [row["id"] for row in rows]
    begin_of = {row["id"]: (row["begin_time_ns"], CALLS[row["call"]].abi_name) for row in rows}
    for number, begin, call in zip(*(slices.get(name, ()) for name in ("id", "begin_ns", "call")), strict=True):
        assert (begin, call) == begin_of[number]


def test_requests_of_devices(tmp_path: Path) -> None:
    """Queued from insertion to issue, in the device from there to the completion; merged ones are nowhere."""
    requests = [
        {"id": 1, "device": SDA, "insert_time_ns": 0, "issue_time_ns": 250_000, "complete_time_ns": 500_000,
         "sector": 8, "bytes_result": 4096},
        {"id": 2, "device": SDA, "operation": 1, "issue_time_ns": 0, "complete_time_ns": SPAN, "sector": 16,
         "bytes_result": 512},
        {"id": 3, "device": SDA, "insert_time_ns": 0, "status": 2, "bytes_result": 0},
    ]  # fmt: skip
    _, pictures = made(tmp_path, requests=requests)
    devices = pictures["devices"]
    assert devices["names"] == ["sda", "others"]
    bins = pictures["heat"]["bins"]
    assert (sum(devices["read"][0]), sum(devices["written"][0])) == (4096, 512)
    assert sum(devices["queued"][0]) / bins == pytest.approx(0.25, abs=0.01)
    assert sum(devices["served"][0]) / bins == pytest.approx(1.25, abs=0.01)
    (points,) = pictures["device_points"]
    assert (points["offset_bytes"], points["write"]) == ([4096, 8192], [0, 1])


def test_copies_of_rings_write_to_another_file(tmp_path: Path) -> None:
    """Like those of calls, and as in the table of files in rings."""
    splice = replace(OPCODES[READV], number=4, name="SPLICE", kind=CallKind.COPY)
    request = {"id": 5, "ring": 0, "task": 0, "opcode": 4, "handle": 0, "handle2": 1, "submit_time_ns": 0,
               "complete_time_ns": SPAN // 2, "bytes_result": 100}  # fmt: skip
    with TableWriter(tmp_path, meta(), CALLS, (*OPCODES, splice)) as writer:
        rings = {"rings": [{"ring": 0}], "ring_requests": [request]}
        writer.write(make_batch(tasks=THREADS, handles=HANDLES, files=FILES, **rings))
        writer.close(Totals(), COMPLETE, 0, SPAN)
    files = gather_pictures(gather(open_trace(tmp_path)))["files"]
    moved = {name: (sum(files["read"][row]), sum(files["written"][row])) for row, name in enumerate(files["names"])}
    assert {name: both for name, both in moved.items() if any(both)} == {"/data/in": (100, 0), "/data/<out>": (0, 100)}


def test_what_libaio_does_not_tell_is_unknown(tmp_path: Path) -> None:
    """Bytes, errors, overflows and workers of its contexts are not 0; io_uring's do not change."""
    summary = summarize(ringtables.example(tmp_path))
    (table,) = (each for each in sheets(summary) if each.key == "rings")
    at = [name for name, _ in table.columns]
    rows = {row[0].text: {name: row[at.index(name)].text for name in at} for row in table.rows}
    untold = ("read", "written", "errors", "overflows", "executed by workers")
    assert {rows["libaio 2"][name] for name in untold} == {"-"}
    assert (rows["libaio 2"]["enters"], rows["io_uring 0"]["overflows"]) == ("2", "0")
    assert "-" not in {rows["io_uring 0"][name] for name in untold}


def test_every_row_has_a_cell_a_column(tmp_path: Path) -> None:
    """In all tables of the page, and numbers stand in columns of numbers."""
    calls = [
        {"id": n, "call": READ, "handle": 0, "task": 0, "begin_time_ns": n, "end_time_ns": n + 1, "offset_bytes": 7 * n,
         "bytes_result": 7, "error": n // 2} for n in range(3)
    ]  # fmt: skip
    requests = [{"id": 9, "device": SDA, "issue_time_ns": 0, "complete_time_ns": 9, "bytes_result": 7}]
    trace, _ = made(tmp_path / "a", operations=calls, requests=requests)
    tables = [*sheets(summarize(trace)), *sheets(summarize(ringtables.example(tmp_path / "b")))]
    assert {"processes", "files", "calls", "errors", "devices", "patterns", "slowest", "rings"} <= {
        t.key for t in tables
    }
    account = {"source": "/proc/PID/io", "subject": "comm", "name": "rchar", "counted": 9, "captured": 7}
    (accounts,) = (t for t in sheets(replace(summarize(trace), reconciliation=(account,))) if t.key == "accounts")
    for table in (*tables, accounts):
        for row in table.rows:
            assert [cell.value is not None for cell in row] == [number for _, number in table.columns], table.key
    (patterns,) = (table for table in tables if table.key == "patterns")
    names = [name for name, _ in patterns.columns]
    cells = {name: cell.text for name, cell in zip(names, patterns.rows[0], strict=True)}
    assert (cells["accesses"], cells["order known"], cells["consecutive"], cells["random"]) == ("3", "2", "2", "0")


def test_nobody_is_in_a_call_after_its_end(tmp_path: Path) -> None:
    """A call that never ended is drawn until its thread ended, or the trace where that is not known."""
    tasks = [{**THREADS[0], "exit_time_ns": 400}, THREADS[1]]
    calls = [{"id": 1 + task, "call": CLOSE, "task": task, "begin_time_ns": 100, "status": 1} for task in (0, 1)]
    trace = write_trace(tmp_path, [make_batch(tasks=tasks, operations=calls)], span=(0, 1000))
    pictures = gather_pictures(gather(trace))
    times = dict(zip(pictures["processes"]["names"], map(sum, pictures["processes"]["time_ns"]), strict=True))
    assert (times["dd (100)"], times["cp (200)"]) == (300, 900)
    assert sorted(pictures["slices"]["duration_ns"]) == [300, 900]


def test_lost_completions_are_no_queue(tmp_path: Path) -> None:
    """If events were lost or may be, a request without a completion is not drawn as endless."""
    request = {"id": 1, "device": SDA, "issue_time_ns": 0, "status": 1}
    batch = make_batch(requests=[request])
    for lost, proven, expected in ((0, True, 1.0), (3, True, 0.0), (0, False, 0.0)):
        proof = type(COMPLETE)(lost, 0, 0, 0, 1, 8, proven)
        trace = write_trace(tmp_path / f"{lost}{proven}", [batch], completeness=proof, span=(0, SPAN))
        served = gather_pictures(gather(trace))["devices"]["served"][0]
        assert served[:-1] == [expected] * (len(served) - 1)  # the last piece reaches beyond the trace's end


def test_requests_of_rings(tmp_path: Path) -> None:
    """Their bytes count for files and processes, and they are in flight from submission to completion."""
    request = {"id": 5, "ring": 0, "task": 0, "handle": 0, "opcode": READV, "submit_time_ns": 0,
               "complete_time_ns": SPAN // 2, "bytes_result": 100, "offset_bytes": 7}  # fmt: skip
    rings = [{"ring": 0, "task": 0, "nr_requests": 1}]
    _, pictures = made(tmp_path, ring_requests=[request], rings=rings)
    assert sum(pictures["all"]["read"]) == 100
    files = dict(zip(pictures["files"]["names"], map(sum, pictures["files"]["read"]), strict=True))
    assert files["/data/in"] == 100
    assert pictures["processes"]["names"][0] == "dd (100)"
    in_flight = pictures["rings"]["in_flight"][0]
    assert sum(in_flight) / len(in_flight) == pytest.approx(0.5, abs=0.01)
    assert pictures["file_points"][0]["offset_bytes"] == [7]


def test_findings_name_their_paths(tmp_path: Path) -> None:
    """As the text does: where a process looked in vain, say. The words are no markup."""
    trace, pictures = made(tmp_path)
    found = Finding(
        "missing-files", "app (1)", "found none", {"missing": 3}, "operations", 3, lambda _: np.ones(0, bool)
    )
    found.paths = {"/no/<b>": 2, "/no/b": 1}
    page = render_html(replace(summarize(trace), findings=(found,)), pictures)
    assert "<p>such as /no/&lt;b&gt;, /no/b</p>" in page


@given(st.integers(0, 2**47))
def test_latencies_lie_in_their_bin(duration: int) -> None:
    """Between the edge of its bin and the next one."""
    edges = [*latency_edges_ns(), 2.0**48]
    (index,) = latency_bin(np.array([duration])).tolist()
    assert edges[index] <= duration < edges[index + 1]


def test_page_stands_alone(tmp_path: Path) -> None:
    """The page loads nothing from elsewhere; names of files are text, whatever they contain."""
    rows = [{"id": 1, "task": 0, "call": READ, "handle": 1, "begin_time_ns": 1, "end_time_ns": 9, "bytes_result": 5}]
    batch = make_batch(tasks=THREADS, handles=HANDLES, files=FILES, operations=rows)
    trace = write_trace(tmp_path, [batch], spool=meta(command=("</script>", "<b>")), span=(0, SPAN))
    sums = gather(trace)
    page = render_html(summarize(trace), gather_pictures(sums))
    own = page[: page.index("<script>/**")] if "<script>/**" in page else page
    assert not re.search(r"""(src|href)\s*=\s*["']?(https?:)?//""", own)
    assert "default-src &#39;none&#39;" in page or "default-src 'none'" in page
    assert "<b>" not in own
    assert html.escape("/data/<out>") in own
    assert len(json.dumps(trace.metadata["calls"])) < len(page)
