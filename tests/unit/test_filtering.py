"""Filtering batches in place gives what a slow filter over whole tables gives, whatever is recorded and asked."""

from __future__ import annotations

import dataclasses
import itertools
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from otf2_batches import CALLS, META, BatchMaker
from perfwriter import SpoolBuilder, replay
from reference.block_histories import block_histories
from reference.filters import NAMES, SlowFilter, Tables, read_tables
from reference.histories import History, call_histories

from lo2io.catalog import load_catalog
from lo2io.filtering import FilteredStream, find_passing, properties
from lo2io.filters.language import FIELDS, OPERATORS, Comparison, Filter, Kind
from lo2io.filters.text import parse
from lo2io.matching import Criteria, Numbered, _Devices
from lo2io.model import UNKNOWN_I64, UNKNOWN_U32, BlockDevice, CallKind, Mount
from lo2io.number_sets import NumberSet
from lo2io.pairing import BatchStream, Engine
from lo2io.spool.reader import SpoolReader

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from lo2io.model import Batch, SpoolMeta

SETTINGS = settings(
    max_examples=int(os.environ.get("LO2IO_EXAMPLES", "100")), deadline=None, suppress_health_check=list(HealthCheck)
)
DEVICES = (
    BlockDevice(8 << 20, "sda", None, None, 1 << 20),
    BlockDevice(8 << 20 | 1, "sda1", None, None, 16 * 512, disk=8 << 20, start_sector=1016),
)
"""The histories' files lie on the partition, their requests partly in it."""


def merged(calls: History, blocks: History) -> History:
    """Both at once; facts keep their place among the rings' records, which have their own order."""
    return sorted([*calls, *blocks], key=lambda item: item[1][0])


WORDS: dict[str, tuple[Any, ...]] = {
    "pid": (100, 101, 102, 55),
    "tid": (100, 101, 102, 55, 1),
    "comm": ("io", "old", "name*", "prog[01]", "seen", "*"),
    "cgroup": ("/seen0", "/seen*", "/**", "/a/**", "/"),
    "path": ("/**", "/*", "/f1", "*1", "/x/*"),
    "device": ("sda", "sda1", "8:0", "8:1", "253:1", "sd*", "8*"),
    "operation": ("read", "write", "flush", "close", "pread64", "sys_read", "copy", "discard", "openat", "other"),
    "size": (0, 1, 512, 4096, 8192, 2**40),
    "latency": (0, 1, 2, 7, 1500, 10_000),
    "kind": ("call", "request", "ring"),
    "opcode": ("READ", "WRITE", "OPENAT", "NOP"),
    "via": ("inline", "poll", "worker", "cancelled"),
}


@st.composite
def filters(draw: st.DrawFn, fields: Sequence[str] = tuple(FIELDS)) -> Filter:
    """Comparisons with values that occur."""
    found = []
    for field in draw(st.lists(st.sampled_from(list(fields)), min_size=1, max_size=3)):
        operator = draw(st.sampled_from(OPERATORS[FIELDS[field]]))
        most = 1 if operator[0] in "<>" else 2
        values = draw(st.lists(st.sampled_from(WORDS[field]), min_size=1, max_size=most, unique=True))
        if FIELDS[field] in (Kind.OPERATION, Kind.OPCODE) and operator in ("~", "!~"):
            values = [f"{str(value)[:3]}*" for value in values]
        found.append(Comparison(field, operator, tuple(values)))
    return Filter(tuple(found))


def filtered(streams: Any, criteria: Criteria, meta: SpoolMeta, calls: Any) -> tuple[Tables, FilteredStream]:
    """The rows of a filtered stream, and the stream."""
    passing = find_passing(streams, criteria, meta, calls)
    with FilteredStream(streams(), passing) as stream:

        def each() -> Iterator[Batch]:
            for batch in stream:
                assert batch.native is None or [getattr(batch.native, f"nr_{name}") for name in NAMES] == [
                    len(next(iter(getattr(batch, name).values()))) for name in NAMES
                ]
                assert batch.native is None or batch.native.first_operation == batch.first_operation
                yield batch
                stream.release(batch)

        return read_tables(each()), stream


def check_spool(spool: SpoolReader, criteria: Criteria, rows: int) -> None:
    """The fast way and the slow way on one spool."""
    catalog = load_catalog()

    def streams() -> BatchStream:
        return BatchStream(Engine(spool, catalog, batch_rows=rows), 2)

    whole = read_tables(Engine(spool, catalog, batch_rows=rows).batches())
    slow = SlowFilter(whole, catalog.calls, DEVICES, criteria.requests_of_cgroup)
    found, stream = filtered(streams, criteria, spool.meta, catalog.calls)
    expected = slow.apply(criteria.filter)
    assert_same(found, expected)
    for table, count in (
        ("operations", stream.left_out.calls),
        ("requests", stream.left_out.requests),
        ("ring_requests", stream.left_out.ring_requests),
    ):
        assert len(whole[table]) - len(expected[table]) == count


def assert_same(found: Tables, expected: Tables) -> None:
    """Every table; ``first`` counts rows that were taken out."""
    for name in NAMES:
        rows = [[{**row, "first": 0} for row in tables[name]] for tables in (found, expected)]
        assert rows[0] == rows[1], name


@SETTINGS
@given(
    call_histories(),
    block_histories(),
    filters(),
    st.sampled_from([8, 16, 4096]),
    st.sampled_from(["", "", "/seen1", "/"]),
)
def test_filtering_in_place_is_filtering(
    calls: History, blocks: History, chosen: Filter, rows: int, cgroup: str
) -> None:
    """Calls, requests, handles, files, what happens to handles, and their ordinals, in batches of any size."""
    with tempfile.TemporaryDirectory() as directory:
        builder = SpoolBuilder(Path(directory), 2)
        replay(builder, merged(calls, blocks))
        check_spool(SpoolReader(builder.write(devices=DEVICES)), Criteria(chosen, cgroup), rows)


# ---- waits, in batches made by hand ----


class Played:
    """A stream of batches that can be played again."""

    def __init__(self, parts: list[list[dict[str, Any]]]) -> None:
        self._parts = parts
        self.released = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def __iter__(self) -> Iterator[Batch]:
        first = 0
        for part in self._parts:
            maker = BatchMaker()
            maker.first_operation = first
            for row in part:
                maker.row(**row)
            batch = maker.make()
            first += len(batch.operations["id"])
            yield batch

    def release(self, _: Batch) -> None:
        """Count."""
        self.released += 1


@st.composite
def waits(draw: st.DrawFn) -> list[list[dict[str, Any]]]:
    """Calls of three threads, some with waits that are told before the call, perhaps in an earlier batch."""
    parts: list[list[dict[str, Any]]] = [[]]
    ordinal = 0
    for number, (task, what, cut) in enumerate(draw(st.lists(st.tuples(*[st.integers(0, 2)] * 3), max_size=40))):
        if what == 0:
            parts[-1].append(
                {"table": "off_cpu", "before": ordinal, "task": task, "begin_time_ns": number, "end_time_ns": number}
            )
        else:
            ids = {"id": number, "call": what - 1, "task": task, "pid": 100, "tid": 100 + task}
            times = {"begin_time_ns": 10 * number, "end_time_ns": 10 * number + 5}
            parts[-1].append({"table": "operations", **ids, **times, "handle": task, "bytes_request": number})
            ordinal += 1
        if not cut:
            parts.append([])
    for task in range(3):
        parts[-1].append({"table": "files", "file": task})
        parts[-1].append({"table": "handles", "handle": task, "file": task})
        parts[-1].append({"table": "tasks", "task": task, "pid": 100, "tid": 100 + task})
    return parts


@SETTINGS
@given(waits(), filters(["tid", "operation", "size", "kind", "path"]))
def test_waits_go_with_their_calls(parts: list[list[dict[str, Any]]], chosen: Filter) -> None:
    """A wait stays if the call does that its thread ends next, in whatever batch."""
    whole = read_tables(Played(parts))
    found, _ = filtered(lambda: Played(parts), Criteria(chosen), META, CALLS)
    assert_same(found, SlowFilter(whole, CALLS, META.devices, "").apply(chosen))


# ---- requests of rings, likewise ----

RING_CALLS = (*CALLS, dataclasses.replace(CALLS[0], name="io_uring_enter", kind=CallKind.RING_ENTER, io_mode="none"))
BATCH_CALL = len(CALLS)
OPCODES = (0, 1, 18, 22, 23, 255)
"""NOP, READV, OPENAT, READ, WRITE, unknown."""


@st.composite
def rings(draw: st.DrawFn) -> list[list[dict[str, Any]]]:
    """Requests of three threads and three files: begun in one batch, worked on and done in later ones, among calls."""
    parts: list[list[dict[str, Any]]] = [[]]
    waiting: list[dict[str, Any]] = []
    ordinal, number = 0, 10
    steps = st.tuples(st.integers(0, 4), st.integers(0, 2), st.integers(0, 2), st.booleans())
    for what, task, handle, cut in draw(st.lists(steps, max_size=30)):
        number += 1
        thread = {"task": task, "pid": 100 + task // 2, "tid": 100 + task}
        handles = {"handle": handle or UNKNOWN_U32, "handle2": UNKNOWN_U32 - what % 2 * (UNKNOWN_U32 - 2)}
        if what == 0:
            row = {"table": "operations", "id": number, "call": BATCH_CALL if task else 0, **thread, "handle": handle}
            parts[-1].append(row | {"begin_time_ns": 10 * number, "end_time_ns": 10 * number + 5})
            if task:
                parts[-1].append({"table": "batches", "id": number})
            ordinal += 1
        elif what < 4 or not waiting:
            known = draw(st.booleans())
            opcode, path = draw(st.sampled_from(OPCODES)), draw(st.integers(0, 6))
            ids = {"id": number, "opcode": opcode, "path": path, **thread}
            parts[-1].append({"table": "ring_events", "before": ordinal, **ids, "handle": handles["handle"]})
            times = {"submit_time_ns": number, "complete_time_ns": number + task if known else UNKNOWN_I64}
            waiting.append({**ids, **handles, **times, "bytes_result": 512 * handle if known else UNKNOWN_I64})
        else:
            row = waiting.pop(draw(st.integers(0, len(waiting) - 1)))
            done = {"id": row["id"], "before": ordinal, **thread, "kind": 2}
            parts[-1] += [
                {"table": "ring_works", "id": row["id"], "task": 7},
                {"table": "ring_events", **done},
                {"table": "ring_requests", **row},
            ]
        if cut:
            parts.append([])
    parts.append([{"table": "ring_requests", **row} for row in waiting])
    for index in range(3):
        parts[-1].append({"table": "files", "file": index})
        parts[-1].append({"table": "handles", "handle": index, "file": index, "used": 1})
        parts[-1].append({"table": "tasks", "task": index, "pid": 100 + index // 2, "tid": 100 + index})
    parts[-1].append({"table": "rings", "ring": 0, "handle": 2})
    parts[-1].append({"table": "ring_states", "ring": 0})
    return parts


class Named(Played):
    """The same with names, which the makers of rows know nothing of."""

    TEXT = b"/f0/f1/f2iooldio"

    def __iter__(self) -> Iterator[Batch]:
        """Give files and threads theirs."""
        for batch in super().__iter__():
            batch.text = self.TEXT
            batch.files["path_offset"][:], batch.files["path_length"][:] = 3 * batch.files["file"], 3
            batch.tasks["comm_offset"][:] = 9 + np.array([0, 2, 5])[batch.tasks["task"]]
            batch.tasks["comm_length"][:] = np.array([2, 3, 2])[batch.tasks["task"]]
            batch.tasks["cgroup_offset"][:], batch.tasks["cgroup_length"][:] = 3 * batch.tasks["task"], 3
            yield batch


@SETTINGS
@given(
    rings(),
    filters(["tid", "pid", "comm", "operation", "opcode", "via", "size", "latency", "kind", "path"]),
    st.sampled_from(["", "", "/f1"]),
)
def test_requests_of_rings_are_filtered(parts: list[list[dict[str, Any]]], chosen: Filter, cgroup: str) -> None:
    """With all of their events and works, whatever is asked; batches go with their calls, rings and states stay."""
    whole = read_tables(Named(parts))
    found, stream = filtered(lambda: Named(parts), Criteria(chosen, cgroup), META, RING_CALLS)
    assert_same(found, SlowFilter(whole, RING_CALLS, META.devices, cgroup).apply(chosen))
    assert stream.left_out.ring_requests == len(whole["ring_requests"]) - len(found["ring_requests"])


def test_events_of_rings_count_the_rows_that_stay() -> None:
    """Their place is told by ordinals, over batches, as that of handle events is; no two may change their order."""
    call = {"table": "operations", "end_time_ns": 1}
    event = {"table": "ring_events", "id": 50}
    parts: list[list[dict[str, Any]]] = [
        [{**call, "id": 1, "tid": 7}, {**event, "before": 1}, {**call, "id": 2}, {**event, "before": 2}],
        [{**event, "before": 1}, {**call, "id": 3, "tid": 7}, {**call, "id": 4}, {**event, "before": 4}],
        [{"table": "ring_requests", "id": 50, "tid": 7, "complete_time_ns": 9}],
    ]
    found, _ = filtered(lambda: Played(parts), Criteria(parse("tid == 7")), META, CALLS)
    assert [row["id"] for row in found["operations"]] == [1, 3]
    assert [row["before"] for row in found["ring_events"]] == [1, 1, 1, 2]


@pytest.mark.parametrize(
    ("text", "ids"),
    [
        ("kind == ring", [1, 2, 3, 4, 5]),
        ("opcode == READ", [1, 2]),
        ("opcode != READ", [3, 4]),
        ("operation == read", [1, 2]),
        ("operation == open", [4]),
        ("operation != read and kind == ring", [3, 4]),
        ("via == worker", [2]),
        ("via != worker", [1, 4]),
        ("via == worker and opcode ~ 'WRI*'", []),
        ("size >= 1KiB", [2]),
        ("latency > 1ns", [3, 5]),
        ("kind == call", []),
        ("pid == 100", [1, 2, 3, 5]),
    ],
)
def test_what_a_ring_request_has(text: str, ids: list[int]) -> None:
    """Of READ inline, READ by a worker, WRITE by an unknown way, OPENAT polled, and an unknown opcode."""
    known = [
        {"opcode": 22, "path": 1, "bytes_result": 512, "complete_time_ns": 1},
        {"opcode": 22, "path": 4, "bytes_result": 1024},
        {"opcode": 23, "path": 0, "bytes_result": UNKNOWN_I64, "complete_time_ns": 2},
        {"opcode": 18, "path": 3, "pid": 200, "bytes_result": UNKNOWN_I64},
        {"opcode": 255, "path": 0, "complete_time_ns": 5},
    ]
    unknown = {"pid": 100, "complete_time_ns": UNKNOWN_I64}
    rows = [{"table": "ring_requests", "id": 1 + at, **unknown, **row} for at, row in enumerate(known)]
    found, _ = filtered(lambda: Played([rows]), Criteria(parse(text)), META, CALLS)
    assert [row["id"] for row in found["ring_requests"]] == ids


# ---- small things ----


def test_a_handles_forefathers_stay_in_the_table(tmp_path: Path) -> None:
    """A grandchild reads what its grandfather opened: no reference leads nowhere, and the file has its name."""
    builder = SpoolBuilder(tmp_path, 1)
    builder.fact_task(1_000, 100, 100).call(10_000, 0, 100, "openat", 3, filename=0, flags=0)
    builder.call(20_000, 0, 100, "openat", 4, filename=0, flags=0)
    builder.fact_fd(40_000, 100, 3, b"/x", begin=30_000)
    builder.fork(50_000, 0, 101, 101, 100, 100).call(60_000, 0, 101, "read", 1, fd=3, count=1)
    builder.fork(70_000, 0, 102, 102, 101, 101).call(80_000, 0, 102, "read", 1, fd=3, count=1)
    spool, catalog = SpoolReader(builder.write()), load_catalog()

    def streams() -> BatchStream:
        return BatchStream(Engine(spool, catalog), 2)

    for text, calls in (("pid == 102", 1), ("path == /x and pid == 102", 1), ("path == /x", 3)):
        found, _ = filtered(streams, Criteria(parse(text)), spool.meta, catalog.calls)
        assert len(found["operations"]) == calls
        handles = {row["handle"]: row for row in found["handles"]}
        assert len(handles) == 3
        youngest = handles[found["operations"][-1]["handle"]]
        assert handles[handles[youngest["parent"]]["parent"]]["fd"] == 3
        assert sorted(row["used"] for row in handles.values()) == ([1, 1, 1] if calls == 3 else [0, 0, 1])
        assert [row["path"] for row in found["files"]] == ["/x"]


def test_every_batch_is_given_back() -> None:
    """By each run over the spool, and by the filtered stream only when it is."""
    played = Played([[{"table": "operations", "id": n, "end_time_ns": 1}] for n in range(3)])
    passing = find_passing(lambda: played, Criteria(parse("kind == call")), META, CALLS)
    assert played.released == 3
    ticks = itertools.count()
    find_passing(lambda: played, Criteria(parse("kind == call")), META, CALLS, lambda: next(ticks))
    assert next(ticks) == 3
    seen: list[int] = []
    stream = FilteredStream(played, passing, lambda batch: seen.append(len(batch.operations["id"])))
    for batch in stream:
        stream.release(batch)
    assert played.released == 9
    assert seen == [1, 1, 1]


def test_who_watches_sees_what_was_recorded() -> None:
    """All calls and requests, but no requests of other cgroups."""
    parts: list[list[dict[str, Any]]] = [
        [
            {"table": "operations", "id": 1, "end_time_ns": 1},
            *({"table": "requests", "id": 2 + task, "task": task, "operation": 1} for task in (0, 1, 2)),
        ]
    ]
    paths = b"/a/x/ab/"

    class WithTasks(Played):
        def __iter__(self) -> Iterator[Batch]:
            for batch in super().__iter__():
                maker = BatchMaker()
                maker.row("tasks", task=0, cgroup_offset=0, cgroup_length=4)
                maker.row("tasks", task=1, cgroup_offset=4, cgroup_length=3)
                more = maker.make()
                batch.tasks, batch.text = more.tasks, paths
                yield batch

    criteria = Criteria(parse("operation == read"), "/a")
    passing = find_passing(lambda: WithTasks(parts), criteria, META, CALLS)
    seen: list[tuple[int, list[int]]] = []
    stream = FilteredStream(
        WithTasks(parts),
        passing,
        lambda batch: seen.append((len(batch.operations["id"]), batch.requests["id"].tolist())),
    )
    assert [len(batch.requests["id"]) for batch in stream] == [0]
    assert seen == [(1, [2])]
    assert stream.left_out.requests == 3


def test_what_a_trace_says_of_its_filter() -> None:
    """The filter's text and what it left out; nothing where everything passed."""
    stream = FilteredStream(Played([]), find_passing(lambda: Played([]), Criteria(), META, CALLS))
    assert properties(Criteria(), stream.left_out) == {}
    assert properties(Criteria(parse("pid==1")), stream.left_out) == {
        "FILTER": "pid == 1",
        "FILTERED_CALLS": "0",
        "FILTERED_REQUESTS": "0",
        "FILTERED_RING_REQUESTS": "0",
    }


@given(st.lists(st.integers(0, 2**40) | st.integers(0, 3000)), st.lists(st.integers(0, 3000)))
def test_number_sets(inside: list[int], asked: list[int]) -> None:
    """As Python's."""
    numbers = NumberSet()
    for part in (inside[:3], inside[3:]):
        numbers.add(np.array(part, np.uint64))
    both = inside + asked
    assert numbers.holds(np.array(both, np.uint64)).tolist() == [number in inside for number in both]


@given(st.dictionaries(st.integers(0, 3000), st.integers(0, 100)), st.lists(st.integers(0, 2**32 - 1)))
def test_numbered_columns(values: dict[int, int], asked: list[int]) -> None:
    """A number without a value has the one that says so, however large it is."""
    column = Numbered(np.uint32, 7)
    column.put(np.array(list(values), np.uint32), np.array(list(values.values()), np.uint32))
    asked += list(values)
    assert column.at(np.array(asked, np.uint32)).tolist() == [values.get(number, 7) for number in asked]


@pytest.mark.parametrize(
    ("path", "mode", "device", "mount", "names"),
    [
        ("/dev/sda", 0o060644, 5, 0, {"sda", "8:0"}),
        ("/dev/sda1", 0o060644, 5, 0, {"sda", "8:0", "sda1", "8:1"}),
        ("/dev/sdz", 0o060644, 0x800, 0, set()),
        ("/x", 0o100644, 0x801, 0, {"sda", "8:0", "sda1", "8:1"}),
        ("/x", 0o100644, 0x25, 31, {"sda", "8:0", "sda1", "8:1"}),
        ("/x", 0o100644, 0x25, 32, set()),
    ],
)
def test_the_device_of_a_file(path: str, mode: int, device: int, mount: int, names: set[str]) -> None:
    """By its number, by its mount where file systems have numbers of their own, or as a device file itself."""
    mounts = (Mount(31, 0x25, "/m", "btrfs", "/dev/sda1"), dataclasses.replace(META.mounts[0], id=32, source="tmpfs"))
    assert _Devices(DEVICES, mounts).of_file(device, mode, mount, path) == names
