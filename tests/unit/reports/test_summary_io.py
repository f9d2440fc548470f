"""Time, sizes, order of accesses and slow calls against the same worked out row by row; and their page."""

from __future__ import annotations

import errno
import io
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from build import tablemaker
from build.tablemaker import CLOSE, COMPLETE, COPY, OPENAT, READ, WRITE, Row, make_batch, meta, write_trace
from hypothesis import example, given, settings
from hypothesis import strategies as st
from lo2io.native._lib import ffi, lib

from lo2io.cli.report import report
from lo2io.errors import UsageError
from lo2io.model import UNKNOWN_I64, EventCompleteness
from lo2io.reports.summary.histogram import Bin, LatencyHistograms
from lo2io.reports.summary.io import MAX_COMMON
from lo2io.reports.summary.spans import Spans
from lo2io.reports.summary.summary import summarize
from lo2io.reports.text.io import draw
from lo2io.reports.text.page import render_page, report_console
from lo2io.trace.selection.selection import select

if TYPE_CHECKING:
    from pathlib import Path

    from lo2io.reports.summary.io import IoSummary, PatternRow
    from lo2io.reports.summary.summary import Summary

NEAR = 128 << 10
SWITCHES = {False: COMPLETE, True: replace(COMPLETE, events=(EventCompleteness("sched:sched_switch", 0, 1, 0, 1, 0),))}
SDA = 8 << 20
NAMES = {READ: "read", WRITE: "write", COPY: "copy", OPENAT: "open", CLOSE: "close"}
THREADS = [
    {"task": 0, "process": 7, "pid": 100, "tid": 100, "comm": b"dd"},
    {"task": 1, "process": 7, "pid": 100, "tid": 101, "comm": b"helper"},
]
FILES = [{"file": 0, "path": b"/a", "mode": 0o100644}, {"file": 1, "path": b"pipe:[1]", "mode": 0o010600}]
HANDLES = [
    {"handle": 0, "process": 7, "file": 0, "fd": 3},
    {"handle": 1, "process": 7, "file": 0, "fd": 4},
    {"handle": 2, "process": 7, "file": 1, "fd": 5},
]
PATHS = {0: "/a", 1: "/a", 2: "pipe:[1]"}


def operations(least: int = 0) -> st.SearchStrategy[list[Row]]:
    """Calls one after the other of each thread, some of them in flight."""
    place = st.one_of(st.just(UNKNOWN_I64), st.sampled_from([0, 1, 4096, 4096 + NEAR, 4097 + NEAR, 8192, 1 << 30]))
    row = st.fixed_dictionaries(
        {
            "call": st.sampled_from(list(NAMES)),
            "task": st.sampled_from([0, 1]),
            "handle": st.sampled_from([0, 1, 2]),
            "offset_bytes": place,
            "bytes_request": st.sampled_from([0, 1, 4095, 4096, 8192]),
            "moves": st.sampled_from([0, 1, 1, 1]),
            "lasts": st.one_of(st.none(), st.integers(0, 900), st.sampled_from([600, 900])),
        }
    )
    rows = st.lists(row, min_size=least, max_size=25)
    return rows.map(lambda rows: [finished(index, row) for index, row in enumerate(rows)])


def finished(index: int, row: Row) -> Row:
    """With times, an id and a result."""
    row, lasts, moves = dict(row), row["lasts"], row["moves"]
    del row["lasts"], row["moves"]
    begin = 1000 * index
    end = UNKNOWN_I64 if lasts is None else begin + lasts
    moved = row["bytes_request"] if moves and lasts is not None else UNKNOWN_I64
    return {**row, "id": index + 1, "begin_time_ns": begin, "end_time_ns": end, "bytes_result": moved,
            "status": int(lasts is None)}  # fmt: skip


def requests() -> st.SearchStrategy[list[Row]]:
    """Block requests of both threads and of nobody, that overlap as they like."""
    row = st.tuples(st.sampled_from([0, 1, 2**32 - 1]), *(st.integers(0, 6000) for _ in range(3)), st.booleans())

    def made(index: int, values: tuple[Any, ...]) -> Row:
        task, *times, queued = values
        insert, issue, complete = sorted(times)
        return {"id": 1000 + index, "device": SDA, "task": task, "issue_time_ns": issue, "complete_time_ns": complete,
                "insert_time_ns": insert if queued else UNKNOWN_I64}  # fmt: skip

    return st.lists(row, max_size=8).map(lambda rows: [made(index, values) for index, values in enumerate(rows)])


def covered(rows: list[Row], task: int, begin: int, end: int) -> tuple[int, int]:
    """Nanoseconds of a stretch in which a request of the thread was at a device, and in which one waited alone."""
    own = [row for row in rows if row["task"] == task]
    device = {ns for row in own for ns in range(row["issue_time_ns"], row["complete_time_ns"])}
    either = {
        ns
        for row in own
        if row["insert_time_ns"] != UNKNOWN_I64
        for ns in range(row["insert_time_ns"], row["issue_time_ns"])
    }
    span = set(range(begin, end))
    return len(span & device), len(span & (either - device))


def io_of(summary: Summary) -> IoSummary:
    """The part of the summary that these tests are about."""
    assert summary.io is not None
    return summary.io


def lasted(row: Row) -> int:
    """0: in flight."""
    return 0 if row["end_time_ns"] == UNKNOWN_I64 else row["end_time_ns"] - row["begin_time_ns"]


def stretches() -> st.SearchStrategy[list[Row]]:
    """Times without a CPU of each thread, one after the other; of some nobody saw the end, and of some the wakeup."""
    states, wakes = st.sampled_from([0, 1, 2, 3]), st.sampled_from([None, -0.1, 0, 0.25, 0.5, 0.75, 1, 1.1])
    gaps, lengths = st.sampled_from([1, 50, 333, 900]), st.sampled_from([0, 100, 400, 901])  # many meet a call
    place = st.tuples(gaps, lengths, states, st.booleans(), wakes)

    def made(places: list[list[tuple[int, int, int, bool, float | None]]]) -> list[Row]:
        rows = []
        for task, own in enumerate(places):
            moment = 0
            for gap, length, state, seen, wake in own:
                begin, moment = moment + gap, moment + gap + length
                end, woken = (
                    moment if seen else UNKNOWN_I64,
                    UNKNOWN_I64 if wake is None else begin + round(wake * length),
                )
                times = {"begin_time_ns": begin, "end_time_ns": end, "wake_time_ns": woken}
                rows.append({"task": task, "state": state, **times})
        return rows

    return st.lists(st.lists(place, min_size=3, max_size=6), min_size=2, max_size=2).map(made)


def divided(row: Row, blocks: list[Row], off: list[Row]) -> dict[str, int]:
    """A call's nanoseconds, each with the state that is known."""
    found: Counter[str] = Counter()
    own = [each for each in off if each["task"] == row["task"]]
    sent = [each for each in blocks if each["task"] == row["task"]]
    for ns in range(row["begin_time_ns"], row["begin_time_ns"] + lasted(row)):
        at = next((each for each in reversed(own) if each["begin_time_ns"] <= ns), None)
        if at is None or (at["end_time_ns"] != UNKNOWN_I64 and at["end_time_ns"] <= ns):
            found["cpu_ns"] += 1
        elif at["end_time_ns"] == UNKNOWN_I64:
            found["unexplained_ns"] += 1
        elif at["state"] == 0 or UNKNOWN_I64 != at["wake_time_ns"] <= ns:
            found["preempted_ns"] += 1
        elif any(each["issue_time_ns"] <= ns < each["complete_time_ns"] for each in sent):
            found["device_ns"] += 1
        elif any(each["insert_time_ns"] != UNKNOWN_I64 and each["insert_time_ns"] <= ns < each["issue_time_ns"]
                 for each in sent):  # fmt: skip
            found["queue_ns"] += 1
        else:  # a pipe is waited for, but not to be closed
            found["waiting_ns" if row["handle"] == 2 and row["call"] != CLOSE else "blocked_ns"] += 1
    return found


def without_switches(row: Row, blocks: list[Row]) -> dict[str, int]:
    """The same if it is unknown when threads had a CPU."""
    device, queue = covered(blocks, row["task"], row["begin_time_ns"], row["begin_time_ns"] + lasted(row))
    rest = lasted(row) - device - queue
    waits = row["handle"] == 2 and row["call"] != CLOSE
    return {"device_ns": device, "queue_ns": queue, "waiting_ns" if waits else "unexplained_ns": rest}


def class_name(row: Row) -> str:
    """A pipe is no storage."""
    return "pipe" if row["handle"] == 2 and row["call"] in {READ, WRITE, COPY} else NAMES[row["call"]]


PARTS = ("device_ns", "queue_ns", "waiting_ns", "blocked_ns", "preempted_ns", "cpu_ns", "unexplained_ns")


@settings(max_examples=25, deadline=None)
@given(rows=operations(least=6), blocks=requests(), off=stretches(), switches=st.booleans())
@example(rows=[], blocks=[], off=[], switches=True)
def test_time_agrees_with_plain_python(
    rows: list[Row], blocks: list[Row], off: list[Row], switches: bool, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """By class: all of the time, and the parts of it, which add up to it; what needs switches is unknown without."""
    batch = make_batch(
        tasks=THREADS, handles=HANDLES, files=FILES, operations=rows, requests=blocks, off_cpu=off if switches else ()
    )
    summary = summarize(write_trace(tmp_path_factory.mktemp("t"), [batch], completeness=SWITCHES[switches]))
    if not rows and not blocks:
        assert summary.io is None
        return
    expected: dict[str, Counter[str]] = {}
    for row in rows:
        parts = divided(row, blocks, off) if switches else without_switches(row, blocks)
        expected.setdefault(class_name(row), Counter()).update({"calls": 1, "time_ns": lasted(row), **parts})
    time = io_of(summary).time
    found = {row.kind: Counter({name: getattr(row, name) or 0 for name in ("calls", "time_ns", *PARTS)})
             for row in time.classes}  # fmt: skip
    assert {kind: +counts for kind, counts in found.items()} == {kind: +counts for kind, counts in expected.items()}
    assert all(sum(row[part] for part in PARTS) == row["time_ns"] for row in found.values())
    assert {getattr(time.total, part) is None for part in ("blocked_ns", "preempted_ns", "cpu_ns")} == {not switches}
    assert time.total.time_ns == summary.activity.time_ns == sum(row.time_ns for row in time.classes)
    assert time.total.calls == summary.activity.calls


def classify(rows: list[Row], wanted: int) -> dict[str, Counter[str]]:
    """Sizes and order by path, with a dictionary for each handle's last end."""
    ends: dict[int, int] = {}
    found: dict[str, Counter[str]] = {}
    for row in rows:
        moved = max(0, row["bytes_result"])
        if row["call"] != wanted or not moved or row["handle"] == 2:
            continue
        sums = found.setdefault(PATHS[row["handle"]], Counter())
        sums.update(accesses=1, small=int(row["bytes_request"] < 4096))
        if row["offset_bytes"] == UNKNOWN_I64:
            continue
        sums.update(bytes=moved)
        before = ends.get(row["handle"])
        ends[row["handle"]] = row["offset_bytes"] + moved
        if before is not None:
            gap = row["offset_bytes"] - before
            near = 0 <= gap <= NEAR
            sums.update(placed=1, consecutive=int(gap == 0), sequential=int(near), random=int(not near))
    return found


def counts_of(row: PatternRow) -> Counter[str]:
    """The numbers that :func:`classify` makes."""
    names = ("accesses", "small", "placed", "consecutive", "sequential", "random", "bytes")
    return Counter({name: getattr(row, name) for name in names})


@settings(max_examples=25, deadline=None)
@given(rows=operations(), cut=st.integers(0, 25))
def test_order_agrees_with_plain_python(rows: list[Row], cut: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    """By file and direction, over two batches; and all files together."""
    first = make_batch(tasks=THREADS, handles=HANDLES, files=FILES, operations=rows[:cut])
    trace = write_trace(tmp_path_factory.mktemp("t"), [first, make_batch(operations=rows[cut:])])
    found = summarize(trace).io
    for operation, call in (("read", READ), ("write", WRITE)):
        expected = classify(rows, call)
        seen = {row.path: row for row in found.patterns if row.operation == operation} if found else {}
        assert {path: +counts_of(row) for path, row in seen.items()} == {path: +sums for path, sums in expected.items()}
        made = [row for row in rows if row["call"] == call and row["bytes_result"] > 0 and row["handle"] != 2]
        placed = [row for row in made if row["offset_bytes"] >= 0]
        for path, row in seen.items():
            spans = [
                (r["offset_bytes"], r["offset_bytes"] + r["bytes_result"]) for r in placed if PATHS[r["handle"]] == path
            ]
            extent = max(end for _, end in spans) - min(begin for begin, _ in spans) if spans else 0
            assert (row.extent_bytes, row.again_bytes) == (extent, max(0, row.bytes - extent))
        totals = [row for row in found.accesses if row.operation == operation] if found else []
        for row in totals:
            sizes = Counter(r["bytes_request"] for r in made)
            assert row.common == sizes
            assert sum(size.accesses for size in row.sizes) == row.accesses
            for size in row.sizes:
                assert size.accesses == sum(nr for value, nr in sizes.items() if size.least <= value <= size.most)


@settings(max_examples=25, deadline=None)
@given(rows=operations())
def test_the_slowest_are_the_slowest(rows: list[Row], tmp_path_factory: pytest.TempPathFactory) -> None:
    """By duration, then by id; those that took no time are none, nor what waited for a pipe."""
    trace = write_trace(
        tmp_path_factory.mktemp("t"), [make_batch(tasks=THREADS, handles=HANDLES, files=FILES, operations=rows)]
    )
    found = summarize(trace).io
    order = sorted(
        (row for row in rows if lasted(row) and (row["handle"] != 2 or row["call"] == CLOSE)),
        key=lambda row: (-lasted(row), row["id"]),
    )
    slowest = found.slowest if found else ()
    assert [(row.id, row.duration_ns) for row in slowest] == [(row["id"], lasted(row)) for row in order[:20]]
    for row, expected in zip(slowest, order, strict=False):
        assert (row.path, row.tid, row.at_ns) == (
            PATHS[expected["handle"]],
            100 + expected["task"],
            expected["begin_time_ns"],
        )


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 50), st.integers(0, 20)), max_size=20), st.data())
def test_spans_agree_with_plain_python(parts: list[tuple[int, int, int]], data: st.DataObject) -> None:
    """For any stretch, the moments that a span of the task covers."""
    task, begin, length = (
        (np.array(column, np.int64) for column in zip(*parts, strict=True)) if parts else 3 * (np.zeros(0, np.int64),)
    )
    tasks = np.arange(5, dtype=np.uint32)
    spans = Spans(task.astype(np.uint32), begin, begin + length, tasks)
    numbers = ffi.new("int32_t[]", list(range(len(tasks))))
    native = ffi.new("lo2_call_spans *", {"of_task": numbers, "nr_tasks": len(tasks)})
    native.device = native.either = spans.native()
    low = data.draw(st.integers(0, 80))
    high = data.draw(st.integers(low, 90))
    for number in tasks.tolist():
        moments = {ns for who, first, long in parts if who == number for ns in range(first, first + long)}
        device, queue = ffi.new("int64_t[1]"), ffi.new("int64_t[1]")
        lib.lo2_spans_within(native, 1, [number], [low], [high - low], device, queue)
        assert (device[0], queue[0]) == (len(moments & set(range(low, high))), 0)


@given(st.lists(st.one_of(st.integers(0, 5), st.integers(0, 2**47 - 1)), min_size=1, max_size=40), st.integers(0, 39))
def test_powers_of_two(values: list[int], cut: int) -> None:
    """Two rows together are one; each duration is in the bin whose edges are around it."""
    histograms = LatencyHistograms(2)
    durations = np.array(values)
    histograms.add((np.arange(len(values)) >= cut).astype(np.intp), durations)
    rows = np.arange(2)
    expected = Counter(max(value.bit_length() - 1, 0) for value in values)
    assert histograms.log2(rows) == tuple(
        Bin(1 << power if power else 0, 2 << power, nr) for power, nr in sorted(expected.items())
    )
    both = histograms.latency(rows)
    assert (both.nr, both.total_ns, both.min_ns, both.max_ns) == (len(values), sum(values), min(values), max(values))


def test_bars() -> None:
    """The fullest bin is a full bar, the least one a low one, and no bin a dot."""
    bins = (Bin(0, 2, 1), Bin(4, 8, 800), Bin(8, 16, 400))
    assert draw(bins, 0, 5) == "▁··█▄·"
    assert draw(bins, 0, 5, "12345678") == "1..84."


def sample(directory: Path) -> Any:
    """Two reads of 1 and 3 µs, a failed open and a close in flight."""
    rows = [
        {"id": 1, "call": READ, "task": 0, "handle": 0, "begin_time_ns": 0, "end_time_ns": 1000, "bytes_result": 5},
        {"id": 2, "call": READ, "task": 0, "handle": 0, "begin_time_ns": 5000, "end_time_ns": 8000, "bytes_result": 5},
        {"id": 3, "call": OPENAT, "task": 0, "begin_time_ns": 9000, "end_time_ns": 10_000, "error": errno.ENOENT},
        {"id": 4, "call": CLOSE, "task": 0, "handle": 0, "begin_time_ns": 11_000, "status": 1},
    ]
    batch = make_batch(tasks=THREADS, handles=HANDLES, files=FILES, operations=rows)
    return write_trace(directory, [batch], span=(0, 20_000))


def test_a_part_of_a_trace(tmp_path: Path) -> None:
    """Every number is the part's: by what fits, and by time."""
    trace = sample(tmp_path)
    slow = summarize(select(trace, ["latency >= 2us"]))
    assert [row.id for row in io_of(slow).slowest] == [2]
    assert (slow.activity.calls, slow.activity.bytes_read, io_of(slow).time.total.time_ns) == (1, 5, 3000)
    early = summarize(select(trace, [], end="2us"))
    assert [row.id for row in io_of(early).slowest] == [1]
    assert early.span_ns == 2000


def test_a_poor_terminal_gets_digits(tmp_path: Path) -> None:
    """If bars cannot be printed, digits show their height."""
    raw = io.BytesIO()
    out = io.TextIOWrapper(raw, encoding="ascii", write_through=True)
    render_page(summarize(sample(tmp_path)), report_console(out))
    lines = [line.split() for line in raw.getvalue().decode().splitlines()]
    assert ["read", "2", "8.8"] in [line[:3] for line in lines]


def test_without_block_requests_the_page_says_so(tmp_path: Path) -> None:
    """Device and queue are not 0 then: they are not known."""
    out = io.StringIO()
    render_page(summarize(sample(tmp_path)), report_console(out))
    assert "block requests were not recorded: device and queue are not known" in out.getvalue()


def test_time_without_a_cpu(tmp_path: Path) -> None:
    """By state, where switches were recorded; a stretch whose end was not seen adds no time."""
    off = [
        {"task": 0, "begin_time_ns": 10, "end_time_ns": 110, "state": 1},
        {"task": 0, "begin_time_ns": 200, "state": 3},
    ]
    row = {"id": 1, "call": READ, "task": 0, "end_time_ns": 400}
    trace = write_trace(tmp_path, [make_batch(tasks=THREADS, operations=[row], off_cpu=off)], spool=meta())
    found = io_of(summarize(trace)).time.off_cpu
    assert [(row.state, row.times, row.time_ns) for row in found] == [
        ("waiting for a device", 1, 100),
        ("sleeping", 1, 0),
    ]


def test_nobody_waits_for_zeros(tmp_path: Path) -> None:
    """A read of /dev/zero works, one of a terminal waits."""
    files = [{"file": 0, "path": b"/dev/zero", "mode": 0o020666}, {"file": 1, "path": b"/dev/pts/0", "mode": 0o020620}]
    rows = [
        {"id": 1 + file, "call": READ, "task": 0, "handle": 2 * file, "end_time_ns": 10 + file} for file in range(2)
    ]
    trace = write_trace(tmp_path, [make_batch(tasks=THREADS, handles=HANDLES, files=files, operations=rows)])
    found = {row.kind: (row.unexplained_ns, row.waiting_ns) for row in io_of(summarize(trace)).time.classes}
    assert found == {"special": (10, 0), "terminal": (0, 11)}


def test_how_near_is_near(tmp_path: Path) -> None:
    """128 KiB after the last end are still sequential, a byte more or a byte back is not."""
    places = [0, 10, 20 + NEAR, 30 + NEAR + NEAR + 1, 39 + 2 * NEAR + 1]
    rows = [
        {"id": number + 1, "call": READ, "task": 0, "handle": 0, "offset_bytes": offset, "bytes_request": 10,
         "bytes_result": 10, "end_time_ns": 1}
        for number, offset in enumerate(places)
    ]  # fmt: skip
    trace = write_trace(tmp_path, [make_batch(tasks=THREADS, handles=HANDLES, files=FILES, operations=rows)])
    (found,) = io_of(summarize(trace)).patterns
    assert (found.accesses, found.placed, found.consecutive, found.sequential, found.random) == (5, 4, 1, 2, 2)


def test_slow_calls_without_a_descriptor_show_their_path(tmp_path: Path) -> None:
    """The argument, after its directory; no path if it could not be read."""
    calls = [
        {"id": number, "call": tablemaker.UNLINKAT, "task": 0, "end_time_ns": 10 - number} for number in range(1, 5)
    ]
    paths = [
        {"operation": 1, "place": 1, "source": 3, "path": b"other", "directory": b"/d"},
        {"operation": 1, "source": 3, "path": b"sub/name", "directory": b"/d"},
        {"operation": 2, "source": 3, "path": b"/abs", "directory": b"/"},
        {"operation": 3, "path": b""},
    ]
    trace = write_trace(tmp_path, [make_batch(tasks=THREADS, operations=calls, paths=paths)])
    found = [(row.kind, row.path) for row in io_of(summarize(trace)).slowest]
    assert found == [("given", "/d/sub/name"), ("given", "/abs"), ("none", None), ("none", None)]
    out = io.StringIO()
    render_page(summarize(trace), report_console(out))
    assert "/d/sub/name" in out.getvalue()


def test_making_a_process_is_no_slow_io(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A shell's vfork lasts until the child has its program: no reason to look at storage."""
    monkeypatch.setattr(tablemaker, "CALLS", (*tablemaker.CALLS, tablemaker.known_call("vfork")))
    calls = [
        {"id": 1, "call": len(tablemaker.CALLS) - 1, "task": 0, "begin_time_ns": 0, "end_time_ns": 9_000},
        {"id": 2, "call": READ, "handle": 0, "task": 0, "begin_time_ns": 10_000, "end_time_ns": 10_001},
    ]
    batch = make_batch(tasks=THREADS, handles=HANDLES, files=FILES, operations=calls)
    found = summarize(write_trace(tmp_path, [batch])).io
    assert found is not None
    assert ([row.id for row in found.slowest], found.time.total.calls) == ([2], 2)


def test_a_wait_for_a_lock_is_a_slow_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A poll is not."""
    names = ("flock", "poll")
    monkeypatch.setattr(tablemaker, "CALLS", (*tablemaker.CALLS, *map(tablemaker.known_call, names)))
    first = len(tablemaker.CALLS) - len(names)
    calls = [
        {"id": number + 1, "call": first + number, "handle": 0, "task": 0, "begin_time_ns": 0, "end_time_ns": 9_000}
        for number in range(2)
    ]
    batch = make_batch(tasks=THREADS, handles=HANDLES, files=FILES, operations=calls)
    assert [row.call for row in io_of(summarize(write_trace(tmp_path, [batch]))).slowest] == ["flock"]


def test_force_is_for_pages(tmp_path: Path) -> None:
    """The error says that the page's name is missing."""
    with pytest.raises(UsageError, match="only a page can be replaced"):
        report(tmp_path, force=True)


def test_a_slow_call_has_both_times(tmp_path: Path) -> None:
    """On the trace's clock, which mostly is far from 0, and since the trace's start."""
    row = {"id": 1, "call": READ, "handle": 0, "begin_time_ns": 5_700, "end_time_ns": 5_900}
    batch = make_batch(tasks=THREADS, handles=HANDLES, files=FILES, operations=[row])
    found = summarize(write_trace(tmp_path, [batch], span=(5_000, 9_000))).io
    assert found is not None
    assert [(slow.begin_ns, slow.at_ns, slow.duration_ns) for slow in found.slowest] == [(5_700, 700, 200)]


def test_only_the_most_common_sizes_are_told(tmp_path: Path) -> None:
    """Among sizes that are equally common, the smaller ones are told."""
    sizes = [512, *range(1, MAX_COMMON + 2), 512]
    row = {"call": READ, "handle": 0, "end_time_ns": 1}
    rows = [{**row, "id": number, "bytes_request": size, "bytes_result": size} for number, size in enumerate(sizes, 1)]
    batch = make_batch(tasks=THREADS, handles=HANDLES, files=FILES, operations=rows)
    found = summarize(write_trace(tmp_path, [batch])).io
    assert found is not None
    assert list(found.accesses[0].common.items()) == [(512, 2), *((size, 1) for size in range(1, MAX_COMMON))]


def test_a_wait_ends_with_the_wakeup(tmp_path: Path) -> None:
    """Then the thread is ready to run, as a preempted one is: in the table of times, and in the sums of states."""
    calls = [{"id": 1, "call": READ, "handle": 0, "task": 0, "begin_time_ns": 0, "end_time_ns": 100}]
    off = [{"task": 0, "state": 2, "begin_time_ns": 10, "wake_time_ns": 40, "end_time_ns": 60}]
    batch = make_batch(tasks=THREADS, handles=HANDLES, files=FILES, operations=calls, off_cpu=off)
    time = io_of(summarize(write_trace(tmp_path, [batch], completeness=SWITCHES[True]))).time
    assert (time.total.blocked_ns, time.total.preempted_ns, time.total.cpu_ns) == (30, 20, 50)
    assert [(row.state, row.times, row.time_ns) for row in time.off_cpu] == [("preempted", 0, 20), ("blocked", 1, 30)]
