"""Every view of a trace adds up to its tables, and so to every other view: page, pictures, top, exports, parts."""

from __future__ import annotations

import csv
from collections import Counter
from itertools import count
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest
from build.tablemaker import CALLS, FSYNC, READV, WRITEV, Row, make_batch, write_trace
from hypothesis import given, settings
from hypothesis import strategies as st

from lo2io.exports import formats
from lo2io.model import UNKNOWN_I64, UNKNOWN_U32
from lo2io.reports.html.page import gather_pictures
from lo2io.reports.summary.summary import summarize
from lo2io.reports.summary.sums import gather
from lo2io.reports.words import printable
from lo2io.top.window import watch_window
from lo2io.trace.selection.selection import select

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from lo2io.trace.reader import Trace

SPAN = 1_000_000
DISKS = (8 << 20, 254 << 20)
THREADS = [
    {"task": 0, "process": 7, "pid": 100, "tid": 100, "comm": b"dd"},
    {"task": 1, "process": 7, "pid": 100, "tid": 101, "comm": b"dd"},
    {"task": 2, "process": 9, "pid": 200, "tid": 200, "comm": b"cp"},
]
FILES = [{"file": 0, "path": b"/data/in\n"}, {"file": 1, "path": b'/data/"<\xff>,'}]
HANDLES = [
    {"handle": 0, "process": 7, "file": 0, "fd": 3},
    {"handle": 1, "process": 9, "file": 1, "fd": 4},
    {"handle": 2, "process": 9, "fd": 5},
]
RINGS = [{"ring": ring, "process": 7, "pid": 100, "task": 0, "fd": 9} for ring in (0, 1)]
TIMES = st.integers(-50, SPAN)
"""Some begin before the recording did."""
LENGTHS = st.one_of(st.none(), st.integers(0, SPAN // 4))
SIZES = st.one_of(st.just(UNKNOWN_I64), st.integers(0, 1 << 40))
MOVES = {"read": (1, 0), "write": (0, 1), "copy": (1, 1)}


def with_end(row: Row, begin: str, end: str) -> Row:
    """``lasts`` to an end time and a status."""
    lasts = row.pop("lasts")
    return {**row, end: UNKNOWN_I64 if lasts is None else row[begin] + lasts, "status": int(lasts is None)}


def rows(begin: str, end: str, **columns: st.SearchStrategy[Any]) -> st.SearchStrategy[list[Row]]:
    """Calls or requests; some never end."""
    row = st.fixed_dictionaries(
        {
            begin: TIMES,
            "lasts": LENGTHS,
            "task": st.sampled_from([0, 1, 2]),
            "handle": st.sampled_from([0, 1, 2, UNKNOWN_U32]),
            "handle2": st.sampled_from([0, 1, 2, UNKNOWN_U32]),
            "offset_bytes": st.one_of(st.just(UNKNOWN_I64), st.integers(0, 1 << 20)),
            "bytes_result": SIZES,
            "error": st.sampled_from([0, 0, 2, 11]),
            **columns,
        }
    )
    return st.lists(row.map(lambda row: with_end(row, begin, end)), max_size=20)


CALL_ROWS = rows("begin_time_ns", "end_time_ns", call=st.integers(0, len(CALLS) - 1))
RING_ROWS = rows(
    "submit_time_ns", "complete_time_ns", opcode=st.sampled_from([READV, WRITEV, FSYNC]), ring=st.integers(0, 1)
)


@st.composite
def block_requests(draw: st.DrawFn) -> list[Row]:
    """Completed ones, some without an insert; some in flight, some merged."""
    found = []
    for _ in range(draw(st.integers(0, 12))):
        insert, issue, complete = sorted(draw(st.tuples(TIMES, TIMES, TIMES)))
        times = {"insert_time_ns": insert, "issue_time_ns": issue, "complete_time_ns": complete}
        status = draw(st.integers(0, 2))
        gone = [("insert_time_ns",), ("complete_time_ns",), ("issue_time_ns", "complete_time_ns")][status]
        rest = {"device": draw(st.sampled_from(DISKS)), "operation": draw(st.integers(0, 3)), "bytes_result": 512}
        found.append({**rest, "status": status, **{key: time for key, time in times.items() if key not in gone}})
    return found


def pids(parts: Iterable[Row]) -> list[Row]:
    """With the process of each, as the engine tells it."""
    return [{**row, "pid": 200 if row["task"] == 2 else 100} for row in parts]


@settings(max_examples=12, deadline=None)
@given(
    calls=CALL_ROWS,
    ring_requests=RING_ROWS,
    blocks=block_requests(),
    part=st.sampled_from([{}, {"begin": "@300000", "end": "@600000"}, None]),
)
def test_every_view_adds_up_to_the_tables(
    calls: list[Row],
    ring_requests: list[Row],
    blocks: list[Row],
    part: dict[str, str] | None,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """The whole, a span of it, and what fits a filter."""
    folder, ids = tmp_path_factory.mktemp("t"), count(1)
    numbered = [[{"id": next(ids), **row} for row in table] for table in (pids(calls), pids(ring_requests), blocks)]
    tables = dict(zip(("operations", "ring_requests", "requests"), numbered, strict=True))
    batch = make_batch(tasks=THREADS, handles=HANDLES, files=FILES, rings=RINGS, **tables)
    whole = write_trace(folder / "T", [batch], span=(0, SPAN))
    check(select(whole, ["pid == 200"]) if part is None else select(whole, **part), folder)


def check(trace: Trace, folder: Path) -> None:
    """Every view of a trace against its exported tables."""
    tables = exported(trace, folder)
    check_report(trace, tables)
    check_pictures(trace, tables)
    check_top(trace, tables)


def exported(trace: Trace, folder: Path) -> dict[str, list[Row]]:
    """The rows of Parquet files; those of CSV files are the same."""
    for name in ("parquet", "csv"):
        formats.export(trace, name, folder / name, lambda _: None)
    tables = {}
    for name in ("operations", "requests", "ring_requests"):
        tables[name] = pq.read_table(folder / f"parquet/{name}.parquet").to_pylist()
        with (folder / f"csv/{name}.csv").open(newline="", encoding="utf-8") as file:
            lines = list(csv.DictReader(file))
        assert [{key: spelled(value) for key, value in row.items()} for row in tables[name]] == lines
    kinds = {row["call"]: row["kind"] for row in pq.read_table(folder / "parquet/calls.parquet").to_pylist()}
    opcodes = {row["opcode"]: row["kind"] for row in pq.read_table(folder / "parquet/opcodes.parquet").to_pylist()}
    paths = {row["file"]: row["path"] for row in pq.read_table(folder / "parquet/files.parquet").to_pylist()}
    handles = pq.read_table(folder / "parquet/handles.parquet").to_pylist()
    names = {row["handle"]: paths[row["file"]] for row in handles if row["file"] is not None}
    for row in tables["operations"] + tables["ring_requests"]:
        row["paths"] = (names.get(row["handle"]), names.get(row["handle2"]))
    for row in tables["operations"]:
        row["moves"] = MOVES.get(kinds[row["call"]], (0, 0))
    for row in tables["ring_requests"]:
        row["moves"] = MOVES.get(opcodes[row["opcode"]], (0, 0))
    return tables


def spelled(value: Any) -> str:
    """In CSV's spelling."""
    return "" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def lasted(row: Row, begin: str = "begin_time_ns", end: str = "end_time_ns") -> int:
    """0: it did not end."""
    return 0 if row[end] is None else row[end] - row[begin]


def moved(parts: Iterable[Row], direction: int) -> int:
    """Bytes read (0) or written (1)."""
    return sum((row["bytes_result"] or 0) * row["moves"][direction] for row in parts)


def by_path(parts: Iterable[Row]) -> dict[str, tuple[int, int]]:
    """Bytes read from and written to each named file; a copy reads the one and writes the other."""
    read, written = Counter[str](), Counter[str]()
    for row in parts:
        source, other = row["paths"]
        read[source] += moved([row], 0)
        written[other if row["moves"] == MOVES["copy"] else source] += moved([row], 1)
    return {path: (read[path], written[path]) for path in read | written if path}


def same_files(view: Iterable[tuple[str | None, int, int]], parts: list[Row]) -> None:
    """A view's numbers of named files that moved bytes."""
    assert {path: (read, written) for path, read, written in view if path and read + written} == by_path(parts)


def sums_of(parts: list[Row]) -> tuple[int, ...]:
    """Calls, errors, bytes read and written, time."""
    errors = sum(row["error"] != 0 for row in parts)
    return (len(parts), errors, moved(parts, 0), moved(parts, 1), sum(map(lasted, parts)))


def numbers(row: Any) -> tuple[int, ...]:
    """The same numbers of a row of the report."""
    return (row.calls, row.errors, row.bytes_read, row.bytes_written, row.time_ns)


def check_report(trace: Trace, tables: dict[str, list[Row]]) -> None:
    """Totals; and what processes, files, calls, classes, latencies and command lines add up to."""
    summary, calls = summarize(trace), tables["operations"]
    expected = sums_of(calls)
    assert numbers(summary.activity) == expected
    for view in (summary.processes, summary.files, summary.cmdlines):
        assert tuple(map(sum, zip((0,) * 5, *(numbers(row.activity) for row in view), strict=True))) == expected
    assert {row.name: numbers(row.activity) for row in summary.calls} == {
        name: sums_of([row for row in calls if row["call"] == name]) for name in {row["call"] for row in calls}
    }
    assert {row.pid: numbers(row.activity) for row in summary.processes if row.activity.calls} == {
        pid: sums_of([row for row in calls if row["pid"] == pid]) for pid in {row["pid"] for row in calls}
    }
    assert {row.name for row in summary.cmdlines} == {row.name for row in summary.processes}
    for shares in ([row.share for row in summary.calls], [row.share for row in summary.cmdlines]):
        assert sum(shares) == pytest.approx(1.0 if expected[4] else 0.0)
    same_files(((row.path, row.activity.bytes_read, row.activity.bytes_written) for row in summary.files), calls)
    check_requests(summary, tables)
    if summary.io is None:
        assert not calls
        assert not tables["requests"]
        return
    total = summary.io.time.total
    assert (total.calls, total.time_ns) == (expected[0], expected[4])
    assert sum(row.time_ns for row in summary.io.time.classes) == expected[4]
    ended = sum(row["end_time_ns"] is not None for row in calls)
    assert sum(row.latency.nr for row in summary.io.latencies if row.phase == "call") == ended
    assert sum(sum(part.nr for part in row.histogram) for row in summary.io.latencies if row.phase == "call") == ended
    ids = {row["id"]: lasted(row) for row in calls}
    assert all(ids[row.id] == row.duration_ns for row in summary.io.slowest)


def check_requests(summary: Any, tables: dict[str, list[Row]]) -> None:
    """Block requests by device, and requests of rings."""
    blocks, requests = tables["requests"], tables["ring_requests"]
    alive = [row for row in blocks if row["status"] != "merged"]
    found: Counter[str] = Counter()
    for row in summary.devices:
        found.update({name: getattr(row, name) for name in ("requests", "bytes", "in_flight", "merged")})
        found.update(device=row.device.nr, queue=row.queue.nr)
    assert +found == +Counter(
        requests=len(alive),
        bytes=sum(row["bytes_result"] or 0 for row in alive),
        in_flight=sum(row["status"] == "in flight" for row in blocks),
        merged=len(blocks) - len(alive),
        device=sum(row["status"] == "completed" for row in blocks),
        queue=sum(row["insert_time_ns"] is not None and row["issue_time_ns"] is not None for row in alive),
    )
    if summary.rings is None:
        assert not requests
        return
    assert summary.rings.written == len(requests)
    assert (summary.rings.bytes_read, summary.rings.bytes_written) == (moved(requests, 0), moved(requests, 1))
    assert sum(row.written for row in summary.rings.rings) == len(requests)
    assert sum(row.ring_requests for row in summary.processes) == len(requests)
    assert sum(row.ring_bytes for row in summary.processes) == moved(requests, 0) + moved(requests, 1)


def check_pictures(trace: Trace, tables: dict[str, list[Row]]) -> None:
    """The page's: bytes by time, by process and by file; calls in the histogram."""
    pictures = gather_pictures(gather(trace))
    rows = tables["operations"] + tables["ring_requests"]
    for direction, name in enumerate(("read", "written")):
        assert sum(pictures["all"][name]) == moved(rows, direction)
        for kind in ("processes", "files"):
            assert sum(map(sum, pictures[kind][name])) == moved(rows, direction)
    named = {printable(file["path"]): file["path"] for file in trace.table("files").to_pylist() if file["path"]}
    lanes = zip(*(pictures["files"][key] for key in ("names", "read", "written")), strict=True)
    same_files(((named[name], sum(read), sum(written)) for name, read, written in lanes if name in named), rows)


def check_top(trace: Trace, tables: dict[str, list[Row]]) -> None:
    """Ended ones by then: calls and requests of rings together."""
    window = watch_window(trace)
    calls = [row for row in tables["operations"] if row["end_time_ns"] is not None]
    requests = [row for row in tables["ring_requests"] if row["complete_time_ns"] is not None]
    rows = calls + requests
    time_ns = sum(map(lasted, calls)) + sum(lasted(row, "submit_time_ns", "complete_time_ns") for row in requests)
    errors = sum(row["error"] != 0 for row in rows)
    expected = (len(rows), errors, moved(rows, 0), moved(rows, 1), time_ns)
    for view in ([window.total], *([row.activity for row in part] for part in (window.processes, window.files))):
        columns = ((row.operations, row.errors, row.bytes_read, row.bytes_written, row.time_ns) for row in view)
        assert tuple(map(sum, zip((0,) * 5, *columns, strict=True))) == expected
    same_files(((row.path, row.activity.bytes_read, row.activity.bytes_written) for row in window.files), rows)
    done = [row for row in tables["requests"] if row["status"] == "completed"]
    assert sum(row.requests for row in window.devices) == len(done)
    assert sum(row.bytes_read + row.bytes_written for row in window.devices) == 512 * sum(
        row["operation"] in {"read", "write"} for row in done
    )
