"""Rules for every trace that is exported to Perfetto."""

from __future__ import annotations

import io
import tempfile
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from build.ringtables import ring_trace
from build.tablemaker import make_batch, write_trace
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lo2io.exports import formats
from lo2io.exports.perfetto.packets import INSTANT, OPEN, PacketWriter
from lo2io.exports.perfetto.tracks import Tracks
from lo2io.trace.reader import open_trace

if TYPE_CHECKING:
    from build.traceprocessor import TraceProcessor

    Row = dict[str, Any]

SPAN = 1_000
MOMENTS = st.integers(0, SPAN)
SLOW = settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@st.composite
def histories(draw: st.DrawFn) -> list[Row]:
    """Calls of two threads one after the other, some of them without an end."""
    rows = []
    for task in (0, 1):
        moments = sorted(draw(st.lists(MOMENTS, max_size=12)))
        for begin, end in zip(moments[::2], moments[1::2], strict=False):
            known = draw(st.integers(0, 9)) > 0
            rows.append(
                {
                    "id": len(rows) + 1,
                    "task": task,
                    "begin_time_ns": begin,
                    **({"end_time_ns": end} if known else {"status": 1}),
                    "call": draw(st.integers(0, 6)),
                    "bytes_result": draw(st.integers(0, 2**63 - 1)),
                    "result": draw(st.integers(-(2**63) + 1, 2**63 - 1)),
                    "error": draw(st.integers(0, 133)),
                    "handle": draw(st.integers(0, 2)),
                }
            )
    return rows


@st.composite
def requests(draw: st.DrawFn) -> list[Row]:
    """Block requests of two disks, in no order."""
    rows = []
    for number in range(draw(st.integers(0, 12))):
        issue, complete = sorted((draw(MOMENTS), draw(MOMENTS)))
        times = {"insert_time_ns": draw(st.integers(0, issue)), "issue_time_ns": issue, "complete_time_ns": complete}
        gone = draw(st.sampled_from([(), ("insert_time_ns",), ("complete_time_ns",)]))
        rows.append(
            {
                "id": 100 + number,
                "device": draw(st.sampled_from([8 << 20, 254 << 20])),
                "bytes_result": draw(st.integers(0, 2**40)),
                "operation": draw(st.integers(0, 7)),
                "status": int("complete_time_ns" in gone),
                "ring_request": draw(st.integers(0, 3)),
                "task": draw(st.sampled_from([0, 1, 2**32 - 1])),
                **{name: time for name, time in times.items() if name not in gone},
            }
        )
    return rows


@st.composite
def ring_requests(draw: st.DrawFn) -> list[Row]:
    """Requests of rings with any of their times, in no order."""
    names = ("issue", "punt", "poll_arm", "wake", "work_begin", "work_end", "complete")
    rows = []
    for number in range(draw(st.integers(0, 8))):
        moments = sorted(draw(st.lists(MOMENTS, min_size=8, max_size=8)))
        chosen = draw(st.sets(st.sampled_from(names)))
        times = {f"{name}_time_ns": time for name, time in zip(names, moments[1:], strict=True) if name in chosen}
        rows.append(
            {
                "id": 1 + number,
                "ring": draw(st.integers(0, 2)),
                "task": 0,
                "opcode": draw(st.integers(0, 5)),
                "user_data": draw(st.integers(0, 2**64 - 1)),
                "status": draw(st.integers(0, 5)) if "complete" in chosen else draw(st.integers(1, 5)),
                "submit_time_ns": moments[0],
                "sqe_flags": draw(st.integers(0, 15)),
                "previous": draw(st.integers(0, number)),
                "culprit": draw(st.integers(0, number)),
                "result": draw(st.integers(-(2**31), 2**31 - 1)),
                **times,
            }
        )
    return rows


@SLOW
@given(histories(), requests(), ring_requests())
def test_the_processor_reads_what_the_tables_say(
    processor: TraceProcessor, operations: list[Row], blocks: list[Row], rings: list[Row]
) -> None:
    """It finds no error, and one slice a row, with the row's times and numbers, and phases that fill it."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder)
        trace = ring_trace(path / "T", operations=operations, requests=blocks, ring_requests=rings)
        formats.export(trace, "perfetto", path / "T.pftrace", lambda _: None)
        processor.load(path / "T.pftrace")
    _same(processor.drawn("call"), operations, "begin_time_ns", "end_time_ns", ("bytes_result", "result"))
    for row in blocks:
        row["begin"] = row.get("insert_time_ns", row["issue_time_ns"])
    _same(processor.drawn("block request"), blocks, "begin", "complete_time_ns", ("bytes_result",))
    found = processor.drawn("ring request")
    _same(found, rings, "submit_time_ns", "complete_time_ns", ("result",))
    assert [row["user_data"] % 2**64 for row in sorted(found, key=lambda row: row["id"])] == [
        row["user_data"] for row in rings
    ]
    for category in ("block request", "ring request"):
        assert {row["depth"] for row in processor.drawn(category)} <= {0}
    phases = processor.query(
        "select sum(p.dur), s.dur from slice s join slice p on p.parent_id = s.id "
        "where s.category = 'ring request' and s.dur > 0 and p.category = 'phase' group by s.id"
    )
    assert all(parts == whole for parts, whole in phases)


def _same(found: list[Row], rows: list[Row], begin: str, end: str, notes: tuple[str, ...]) -> None:
    drawn = {row["id"]: row for row in found}
    assert len(drawn) == len(found) == len(rows)
    for row in rows:
        slice_ = drawn[row["id"]]
        assert slice_["ts"] == row[begin]
        if end in row:
            assert slice_["dur"] == row[end] - row[begin]
        assert [slice_.get(name) for name in notes] == [row[name] for name in notes]
        assert slice_.get("error", 0) == row.get("error", 0)


@settings(deadline=None)
@given(st.lists(st.tuples(MOMENTS, st.one_of(MOMENTS, st.sampled_from([OPEN, INSTANT]))), max_size=30), st.booleans())
def test_lanes(tmp_path_factory: Any, rows: list[tuple[int, int]], in_order: bool) -> None:
    """No two in one lane touch; if they come in the order of their ends, there are as few lanes as can be."""
    spans = [(begin, end if end in {OPEN, INSTANT} else max(begin, end)) for begin, end in rows]
    ends = [begin if end == INSTANT else 2 * SPAN if end == OPEN else end for begin, end in spans]
    if in_order:
        order = sorted(range(len(spans)), key=lambda row: (ends[row], spans[row][0]))
        spans, ends = [spans[row] for row in order], [ends[row] for row in order]
    tracks = _tracks(tmp_path_factory)
    begin, end = (np.array([span[i] for span in spans], np.int64) for i in (0, 1))
    half = len(spans) // 2
    lanes = [
        lane for part in (slice(half), slice(half, None)) for lane in tracks.lanes(2, begin[part], end[part]).tolist()
    ]
    for i, lane in enumerate(lanes):
        for j in range(i):
            assert lane != lanes[j] or ends[i] < spans[j][0] or ends[j] < spans[i][0]
    if in_order and spans:
        at_once = Counter(t for (b, _), e in zip(spans, ends, strict=True) for t in range(b, e + 1))
        assert len(set(lanes)) == max(at_once.values())


def _tracks(tmp_path_factory: Any) -> Tracks:
    folder = tmp_path_factory.getbasetemp() / "empty"
    trace = open_trace(folder) if folder.exists() else write_trace(folder, [make_batch()])
    return Tracks(trace, PacketWriter(io.BytesIO(), 10))
