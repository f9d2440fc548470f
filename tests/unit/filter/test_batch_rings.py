"""Requests of rings are filtered in place as a slow filter over whole tables filters them."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from build.filterrig import SETTINGS, Played, assert_same, filtered, filters
from build.otf2_batches import CALLS, META
from hypothesis import given
from hypothesis import strategies as st
from reference.filters import SlowFilter, read_tables

from lo2io.filter.parser import parse
from lo2io.filter.rows import Criteria
from lo2io.model import UNKNOWN_I64, UNKNOWN_U32, CallKind

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lo2io.filter.language import Filter
    from lo2io.model import Batch

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
                {"table": "off_cpu", "request": row["id"], "task": task, "before": ordinal, "begin_time_ns": number},
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
    """The same with names, which the makers of rows do not know."""

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
    """Ordinals over batches give their place, like that of handle events; no two may change their order."""
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
    """Fields of READ inline, READ by a worker, WRITE by an unknown path, OPENAT polled, and an unknown opcode."""
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
