"""Recordings in Perfetto's trace processor: its answers are the tables."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
from workloads.rings import GROUPS
from workloads.served import lo2io

from lo2io.exports import formats
from lo2io.exports.perfetto import calls as perfetto_calls
from lo2io.exports.perfetto import disks
from lo2io.exports.perfetto import rings as perfetto_rings
from lo2io.trace.reader import open_trace

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from build.traceprocessor import TraceProcessor
    from workloads.rings import Run

    from lo2io.trace.reader import Trace

    Row = dict[str, Any]

pytestmark = pytest.mark.requires("root", "tracefs", "events")
LEFT_OUT_IF_ZERO = {
    *("error", "flags", "sqe_flags", "cqe_flags", "traits", "inferred"),
    *("nr_requeues", "nr_merges", "nr_polls", "nr_punts"),
}


def load(processor: TraceProcessor, trace: Trace, folder: Path) -> None:
    """Export a trace as a user would, and load it; every row must be drawn."""
    summary = formats.export(trace, "perfetto", folder / "T.pftrace", lambda _: None)
    assert summary.notes == ()
    processor.load(folder / "T.pftrace")


def assert_same(drawn: list[Row], table: list[Row], notes: Sequence[str]) -> None:
    """One slice a row, with its numbers."""
    slices = {row["id"]: row for row in drawn}
    assert len(slices) == len(drawn) == len(table)
    for row in table:
        for name in notes:
            value, shown = row[name], slices[row["id"]].get(name)
            if value is None or (name in LEFT_OUT_IF_ZERO and value == 0):
                assert shown is None
            elif isinstance(value, int):
                assert shown is not None
                assert (shown - value) % 2**64 == 0, name
            else:
                assert shown == value, name


@pytest.mark.requires("gcc", "losetup", "io_uring:io_uring_complete")
@pytest.mark.parametrize("group", GROUPS)
def test_rings(group: str, rings: Callable[[str], Run], processor: TraceProcessor, tmp_path: Path) -> None:
    """Each request of a ring, execution by a worker and call, with all its numbers, times and arrows."""
    trace = open_trace(rings(group).folder.parent / "T")
    load(processor, trace, tmp_path)
    requests = trace.ring_requests.to_pylist()
    drawn = processor.drawn("ring request")
    assert_same(drawn, requests, perfetto_rings._NOTES)
    lengths = {row["id"]: row["dur"] for row in drawn}
    for row in requests:
        if row["submit_time_ns"] is not None and row["complete_time_ns"] is not None:
            assert lengths[row["id"]] == row["complete_time_ns"] - row["submit_time_ns"]
    operations = trace.operations.to_pylist()
    assert_same(processor.drawn("call"), operations, perfetto_calls._NOTES)
    works = trace.table("ring_works").to_pylist()
    assert sorted((row["id"], row["ts"]) for row in processor.drawn("worker")) == sorted(
        (row["id"], row["begin_time_ns"]) for row in works
    )
    arrows = Counter((a, b) for a, _, b, _ in processor.flows())
    linked = {row["id"] for row in requests}
    assert arrows["ring request", "ring request"] == sum(row["previous"] in linked for row in requests)
    assert arrows["submit", "ring request"] == sum(row["submit_time_ns"] is not None for row in requests)


@pytest.mark.requires("block:block_rq_issue")
def test_disks(processor: TraceProcessor, tmp_path: Path) -> None:
    """Calls with their files, and the block requests they led to."""
    target = tmp_path / "out"
    command = ["dd", "if=/dev/zero", f"of={target}", "bs=64k", "count=20", "oflag=direct", "conv=fsync"]
    # Not `record` of workloads, for here requests of others may be under way at the start.
    lo2io("record", "-o", tmp_path / "T", "--", *command, check=True)
    trace = open_trace(tmp_path / "T")
    load(processor, trace, tmp_path)
    operations, requests = trace.operations.to_pylist(), trace.requests.to_pylist()
    calls, drawn = processor.drawn("call"), processor.drawn("block request")
    assert_same(calls, operations, perfetto_calls._NOTES)
    assert_same(drawn, requests, disks._NOTES)
    assert sum(row.get("file") == str(target) for row in calls if row["name"] == "write") == 20
    ended = {row["id"]: row["end_time_ns"] - row["begin_time_ns"] for row in operations if row["end_time_ns"]}
    assert {row["id"]: row["dur"] for row in calls if row["id"] in ended} == ended
    known = {row["id"] for row in requests if row["task"] is not None}
    assert {b for a, _, kind, b in processor.flows() if (a, kind) == ("submit", "block request")} == known
