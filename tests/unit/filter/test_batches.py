"""Filtering batches in place gives the same as a slow filter over whole tables, for every recording and filter."""

from __future__ import annotations

import dataclasses
import itertools
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from build.filterrig import SETTINGS, Played, assert_same, filtered, filters
from build.otf2_batches import CALLS, META, BatchMaker
from build.perfwriter import SpoolBuilder, replay
from hypothesis import given
from hypothesis import strategies as st
from reference.block_histories import block_histories
from reference.filters import SlowFilter, read_tables
from reference.histories import History, call_histories

from lo2io.catalog.catalog import load_catalog
from lo2io.convert.engine import BatchStream, Engine
from lo2io.filter.batches import FilteredStream, find_passing, properties
from lo2io.filter.parser import parse
from lo2io.filter.rows import Criteria, Numbered, _Devices
from lo2io.model import UNKNOWN_I64, BlockDevice, CallKind, Mount, RequestOp
from lo2io.model.number_sets import NumberSet
from lo2io.spool.reader import SpoolReader

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lo2io.filter.language import Filter
    from lo2io.model import Batch

DEVICES = (
    BlockDevice(8 << 20, "sda", None, None, 1 << 20),
    BlockDevice(8 << 20 | 1, "sda1", None, None, 16 * 512, disk=8 << 20, start_sector=1016),
)
"""The histories' files lie on the partition, their requests partly in it."""


def merged(calls: History, blocks: History) -> History:
    """Both at once; facts keep their place among the rings' records, which have their own order."""
    return sorted([*calls, *blocks], key=lambda item: item[1][0])


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


@st.composite
def waits(draw: st.DrawFn) -> list[list[dict[str, Any]]]:
    """Calls of three threads, some with stretches that come before the call, perhaps in an earlier batch."""
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
            parts[-1] += [{"table": table, "operation": number} for table in ("call_stacks", "futexes")]
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
    """A wait stays if the call does that its thread ends next, in whatever batch. So do stacks and futexes of calls."""
    whole = read_tables(Played(parts))
    found, _ = filtered(lambda: Played(parts), Criteria(chosen), META, CALLS)
    assert_same(found, SlowFilter(whole, CALLS, META.devices, "").apply(chosen))


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
    """The filter's text and its omissions; nothing if everything passed."""
    stream = FilteredStream(Played([]), find_passing(lambda: Played([]), Criteria(), META, CALLS))
    assert properties(Criteria(), stream.left_out) == {}
    assert properties(Criteria(parse("pid==1")), stream.left_out) == {
        "FILTER": "pid == 1",
        "FILTERED_CALLS": "0",
        "FILTERED_REQUESTS": "0",
        "FILTERED_RING_REQUESTS": "0",
    }


OF_ROWS: list[tuple[str, str, list[tuple[dict[str, int], bool]]]] = [
    ("fills", "page_bytes", [({"cause": 1}, True), ({"cause": 3}, False), ({"cause": 20}, True), ({}, False)]),
    (
        "evictions",
        "page_bytes",
        [
            ({"cause": 1, "file": 9}, True),
            ({"cause": 3, "file": 0}, True),
            ({"cause": 3, "file": 1}, False),
            ({"cause": 20, "file": 9}, True),
        ],
    ),
    ("request_parts", "number", [({"request": 10}, True), ({"request": 11}, False)]),
    ("write_backs", "number", [({"request": 10}, True), ({"request": 11}, False), ({}, False)]),
    ("faults", "address", [({"operation": 1}, True), ({"operation": 3}, False)]),
    ("iocbs", "place", [({"operation": 5}, True), ({"operation": 6}, False)]),
    ("off_cpu", "stack", [({"request": 20}, True), ({"request": 21}, False)]),
]
"""Table, a column that numbers its rows here, and rows: what they belong to, and True if they stay."""


@pytest.mark.parametrize(("table", "column", "rows"), OF_ROWS, ids=[table for table, _, _ in OF_ROWS])
def test_what_belongs_to_a_row_stays_with_it(table: str, column: str, rows: list[tuple[dict[str, int], bool]]) -> None:
    """Calls 1 and 5, the disk's request 10, the ring's request 20 and the file 0 stay, and no others."""
    submit = next(code for code, call in enumerate(CALLS) if call.kind is CallKind.AIO_SUBMIT)
    parts: list[list[dict[str, Any]]] = [
        [
            *({"table": "files", "file": number} for number in (0, 1)),
            *({"table": "handles", "handle": number, "file": number} for number in (0, 1)),
            {"table": "operations", "id": 1, "tid": 7, "handle": 0},
            {"table": "operations", "id": 3, "tid": 8, "handle": 1},
            {"table": "operations", "id": 5, "tid": 7, "call": submit},
            {"table": "operations", "id": 6, "tid": 8, "call": submit},
            {"table": "requests", "id": 10, "tid": 7},
            {"table": "requests", "id": 11, "tid": 8},
            {"table": "ring_requests", "id": 20, "tid": 7},
            {"table": "ring_requests", "id": 21, "tid": 8},
        ],
        [{"table": table, **row, column: number} for number, (row, _) in enumerate(rows)],
    ]
    passing = find_passing(lambda: Played(parts), Criteria(parse("tid == 7")), META, CALLS)
    found = [getattr(batch, table)[column].tolist() for batch in FilteredStream(Played(parts), passing)]
    assert found == [[], [number for number, (_, stays) in enumerate(rows) if stays]]


def test_a_fault_names_no_request_that_was_left_out() -> None:
    """The fault itself stays with its call."""
    parts: list[list[dict[str, Any]]] = [
        [{"table": "operations", "id": 1, "tid": 7}],
        [{"table": "requests", "id": 10, "tid": 7}, {"table": "requests", "id": 11, "tid": 8}],
        [{"table": "faults", "operation": 1, "request": number} for number in (10, 11, 0)],
    ]
    passing = find_passing(lambda: Played(parts), Criteria(parse("tid == 7")), META, CALLS)
    *_, last = FilteredStream(Played(parts), passing)
    assert last.faults["request"].tolist() == [10, 0, 0]


@pytest.mark.parametrize(
    ("text", "ids"),
    [
        ("size == 8KiB", [1, 3]),
        ("size < 8KiB", [2]),
        ("device == sda1", [1, 2]),
        ("device != sda1", [3, 4]),
        ("device == sda", [1, 2, 3, 4]),
        ("device == sda1 and operation == flush", []),
    ],
)
def test_what_a_disks_request_has(text: str, ids: list[int]) -> None:
    """Others were merged into the first one, the second never was issued, and a flush is about the whole disk."""
    known = [
        {"sector": 1016, "bytes_request": 4096, "bytes_issued": 8192},
        {"sector": 1031, "bytes_request": 4096, "bytes_issued": UNKNOWN_I64},
        {"sector": 1032, "bytes_request": 8192, "bytes_issued": 8192},
        {"sector": 1020, "bytes_request": UNKNOWN_I64, "bytes_issued": UNKNOWN_I64, "operation": RequestOp.FLUSH},
    ]
    rows = [{"table": "requests", "id": 1 + at, "device": 8 << 20, **row} for at, row in enumerate(known)]
    meta = dataclasses.replace(META, devices=DEVICES)
    passing = find_passing(lambda: Played([rows]), Criteria(parse(text)), meta, CALLS)
    (batch,) = FilteredStream(Played([rows]), passing)
    assert batch.requests["id"].tolist() == ids


@given(st.lists(st.integers(0, 2**40) | st.integers(0, 3000)), st.lists(st.integers(0, 3000)))
def test_number_sets(inside: list[int], asked: list[int]) -> None:
    """Like Python's sets."""
    numbers = NumberSet()
    for part in (inside[:3], inside[3:]):
        numbers.add(np.array(part, np.uint64))
    both = inside + asked
    assert numbers.holds(np.array(both, np.uint64)).tolist() == [number in inside for number in both]


@given(st.dictionaries(st.integers(0, 3000), st.integers(0, 100)), st.lists(st.integers(0, 2**32 - 1)))
def test_numbered_columns(values: dict[int, int], asked: list[int]) -> None:
    """A number without a value has the unknown value, however large the number is."""
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
