"""A part of a trace equals a recording with the same filter, and a check of each row."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

import pytest
from build.filestory import Story, returned
from build.filterrig import SETTINGS, filters
from build.kernelwriter import WHOLE
from build.perfwriter import SpoolBuilder, replay
from build.tablemaker import COMPLETE, make_batch, meta, write_trace
from hypothesis import given, settings
from hypothesis import strategies as st
from reference.block_histories import block_histories
from reference.histories import History, call_histories
from reference.ring_histories import ring_histories
from reference.specs import SPECS

from lo2io.catalog.catalog import load_catalog
from lo2io.convert.engine import BatchStream, Engine
from lo2io.errors import UsageError
from lo2io.filter.batches import FilteredStream, find_passing
from lo2io.filter.language import Filter
from lo2io.filter.parser import parse
from lo2io.filter.rows import Criteria
from lo2io.model import UNKNOWN_I64, BlockDevice, Totals
from lo2io.spool.reader import SpoolReader
from lo2io.trace import writer
from lo2io.trace.reader import TABLES, Trace, open_trace
from lo2io.trace.selection.selection import select

DEVICES = (
    BlockDevice(8 << 20, "sda", None, None, 1 << 20),
    BlockDevice(8 << 20 | 1, "sda1", None, None, 16 * 512, disk=8 << 20, start_sector=1016),
)
SPAN = (0, 1_000_000)
FEW = settings(SETTINGS, max_examples=int(os.environ.get("LO2IO_EXAMPLES", "20")))
"""Both ways are held to the slow one in tests/unit/filter/test_batches.py, too."""


def convert(spool: SpoolReader, catalog: Any, trace: Path, chosen: Filter | None = None) -> Trace:
    """The tables of a spool, batches of 8 rows and files of 16, with or without a filter."""

    def streams() -> BatchStream:
        return BatchStream(Engine(spool, catalog, batch_rows=8), 2)

    criteria = Criteria(chosen) if chosen else Criteria()
    stream = FilteredStream(streams(), find_passing(streams, criteria, spool.meta, catalog.calls))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(writer, "CHUNK_ROWS", 16)
        with writer.TableWriter(trace, spool.meta, catalog.calls, catalog.opcodes) as tables, stream:
            for batch in stream:
                tables.write(batch)
                stream.release(batch)
            left = stream.left_out
            filtered = {"calls": left.calls, "requests": left.requests, "ring_requests": left.ring_requests}
            more = {"filter": str(Filter() & chosen), "filtered": filtered} if chosen else {}
            tables.close(Totals(), COMPLETE, *SPAN, more)
    return open_trace(trace)


def assert_same(found: Trace, expected: Trace) -> None:
    """Every row of every table, and the metadata."""
    for table in TABLES:
        assert found.table(table).to_pylist() == expected.table(table).to_pylist(), table
        assert found.rows(table) == expected.rows(table) == found.table(table).num_rows, table
    for key in ("filter", "filtered", "tables", "start_ns", "stop_ns"):
        assert found.metadata[key] == expected.metadata[key], key


@FEW
@given(call_histories(), block_histories(), filters())
def test_choosing_afterwards_is_recording_so(calls: History, blocks: History, chosen: Filter) -> None:
    """Calls, requests, handles with their forefathers, files: as the filter had been given to `convert`."""
    with tempfile.TemporaryDirectory() as folder:
        builder = SpoolBuilder(Path(folder) / "spool", 2)
        replay(builder, sorted([*calls, *blocks], key=lambda item: item[1][0]))
        spool, catalog = SpoolReader(builder.write(devices=DEVICES)), load_catalog()
        whole = convert(spool, catalog, Path(folder) / "whole")
        assert_same(select(whole, [str(chosen)]), convert(spool, catalog, Path(folder) / "part", chosen))


@FEW
@given(ring_histories(), filters(["opcode", "via", "kind", "tid", "path", "size", "latency", "operation"]))
def test_choosing_of_rings_afterwards_is_recording_so(history: History, chosen: Filter) -> None:
    """Rings' requests, their works, batches and files."""
    with tempfile.TemporaryDirectory() as folder:
        builder = SpoolBuilder(Path(folder) / "spool", 2, rings="6.18", start_ns=100_500)
        replay(builder, history)
        spool, catalog = SpoolReader(builder.write()), load_catalog()
        whole = convert(spool, catalog, Path(folder) / "whole")
        assert_same(select(whole, [str(chosen)]), convert(spool, catalog, Path(folder) / "part", chosen))


@pytest.mark.parametrize(
    "text", ["path ~ /home/**", "path !~ /home/**", "path == /home/me/nope", "operation == openat", "comm == x"]
)
def test_paths_that_calls_were_given(tmp_path: Path, text: str) -> None:
    """Calls without a handle go by them, and they go with their calls."""
    story = Story(tmp_path / "spool", "bpf")
    story.fact_task(1_000, 10, 10)
    story.does(60_000, 10, "openat", 3, returned(3, b"/data/file"))
    story.kernel_path(60_004, 0, 10, b"/link", [])
    story.does(60_010, 10, "openat", -2)
    story.kernel_path(60_014, 0, 10, b"nope", [b"me", b"home"])
    story.does(60_030, 10, "openat", -2).kernel_path(60_034, 0, 10, b"x", [b"home"], flags=WHOLE)
    spool = SpoolReader(story.write())
    whole = convert(spool, SPECS, tmp_path / "whole")
    assert_same(select(whole, [text]), convert(spool, SPECS, tmp_path / "part", parse(text)))


# ---- spans of time ----


@st.composite
def threads_calls(draw: st.DrawFn) -> tuple[list[dict[str, Any]], list[dict[str, Any]], dict[int, int]]:
    """Calls of three threads, one after the other in each, with waits in some; and of each wait its call's id."""
    calls, waits, owners = [], [], {}
    clock = dict.fromkeys(range(3), 0)
    for number, (task, gap, length, waited) in enumerate(
        draw(st.lists(st.tuples(*[st.integers(0, 2)] * 4), max_size=30)), start=1
    ):
        begin = clock[task] + 10 * gap
        clock[task] = begin + 10 * length + 1
        ended = draw(st.booleans()) or waited
        times = {"begin_time_ns": begin, "end_time_ns": clock[task] - 1 if ended else UNKNOWN_I64}
        calls.append({"id": number, "call": number % 2, "task": task, "tid": task, "handle": task, **times})
        for which in range(waited if length else 0):
            owners[len(waits)] = number
            at = begin + 10 * which
            waits.append({"task": task, "begin_time_ns": at, "end_time_ns": at + 5, "before": 0})
    order = draw(st.permutations(range(len(waits))))
    return calls, [waits[place] for place in order], {at: owners[place] for at, place in enumerate(order)}


@FEW
@given(threads_calls(), st.integers(0, 60), st.integers(1, 60), st.booleans())
def test_spans_and_the_waits_of_calls(
    history: tuple[list[dict[str, Any]], list[dict[str, Any]], dict[int, int]], begin: int, length: int, reads: bool
) -> None:
    """A call belongs to every span that it touches, its waits go with it, and so do handles that it names."""
    calls, waits, owners = history
    end = begin + length
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(writer, "CHUNK_ROWS", 8)
        handles = [{"handle": task, "used": 1, "open_flags": 0} for task in range(3)]
        batches = [make_batch(operations=calls[at : at + 4]) for at in range(0, len(calls), 4)]
        more = make_batch(handles=handles, tasks=[{"task": task} for task in range(3)], off_cpu=waits)
        whole = write_trace(Path(folder), [*batches, more], span=(0, 200))
        found = select(whole, ["operation == sys_read"] if reads else [], begin=f"@{begin}", end=f"@{end}")
        kept = {
            row["id"]: row
            for row in calls
            if row["begin_time_ns"] < end
            and (row["end_time_ns"] == UNKNOWN_I64 or row["end_time_ns"] > begin or row["begin_time_ns"] >= begin)
            and (row["call"] == 0 or not reads)
        }
        assert found.operations["id"].to_pylist() == list(kept)
        assert sorted(found.handles["handle"].to_pylist()) == sorted({row["handle"] for row in kept.values()})
        stays = [wait for place, wait in enumerate(waits) if owners[place] in kept]
        assert found.table("off_cpu")["begin_time_ns"].to_pylist() == [wait["begin_time_ns"] for wait in stays]
        assert (found.metadata["start_ns"], found.metadata["stop_ns"]) == (begin, end)
        inside = [call for call in calls if call["id"] in kept or (reads and call["call"] == 1)]
        left_out = found.metadata.get("filtered", {"calls": 0})["calls"]
        assert found.metadata["selection"]["outside"]["calls"] + left_out == len(calls) - len(kept)
        assert len(inside) >= len(kept)


def test_stretches_of_workers_stay_with_their_requests(tmp_path: Path) -> None:
    """Those of calls stay with their calls."""
    rings = [
        {"id": 6, "submit_time_ns": 10, "complete_time_ns": 12},
        {"id": 7, "submit_time_ns": 50, "complete_time_ns": 60},
    ]
    calls = [{"id": 5, "task": 1, "begin_time_ns": 40, "end_time_ns": 60}]
    waits = [
        {"task": 2, "begin_time_ns": 11, "end_time_ns": 12, "request": 6},
        {"task": 2, "begin_time_ns": 51, "end_time_ns": 55, "request": 7},
        {"task": 1, "begin_time_ns": 45, "end_time_ns": 46},
    ]
    batch = make_batch(operations=calls, ring_requests=rings, off_cpu=waits)
    whole = write_trace(tmp_path, [batch], span=(0, 100), spool=meta(layers=("waits", "workers")))
    found = select(whole, [], begin="@30", end="@100")
    assert sorted(found.table("off_cpu")["begin_time_ns"].to_pylist()) == [45, 51]


def test_requests_in_spans(tmp_path: Path) -> None:
    """From their insert, or issue without one, to their completion; merged ones are where they were merged."""
    known = {"device": 8 << 20, "operation": 0}
    requests = [
        {"id": 1, "insert_time_ns": 10, "issue_time_ns": 20, "complete_time_ns": 30, **known},
        {"id": 2, "issue_time_ns": 20, "complete_time_ns": 30, **known},
        {"id": 3, "insert_time_ns": 10, "status": 2, **known},
        {"id": 4, "insert_time_ns": 10, "issue_time_ns": 20, "status": 1, **known},
        {"id": 5, "issue_time_ns": 90, "complete_time_ns": 95, **known},
        {"id": 8, "issue_time_ns": 62, "status": 3, "end_earliest_ns": 62, "end_latest_ns": 70, **known},
    ]
    rings = [
        {"id": 6, "submit_time_ns": 10, "complete_time_ns": 12},
        {"id": 7, "submit_time_ns": UNKNOWN_I64, "complete_time_ns": 40},
    ]
    works = [{"id": 7, "task": 1}, {"id": 6, "task": 1}]
    whole = write_trace(tmp_path, [make_batch(requests=requests, ring_requests=rings, ring_works=works)], span=(0, 100))

    def ids(begin: str | None, end: str | None) -> tuple[list[int], list[int], list[int]]:
        part = select(whole, begin=begin, end=end)
        return tuple(part.table(name)["id"].to_pylist() for name in ("requests", "ring_requests", "ring_works"))  # type: ignore[return-value]

    assert ids("@15", "@18") == ([1, 4], [7], [7])
    assert ids(None, "@18") == ([1, 3, 4], [6, 7], [7, 6])
    assert ids("@30", "@60") == ([4], [7], [7])
    assert ids("@60", None) == ([4, 5, 8], [], [])
    assert ids("@65", "@68") == ([4, 8], [], [])
    assert ids("@71", None) == ([4, 5], [], [])
    assert select(whole, ["kind == ring"], begin="@15").metadata["selection"]["outside"] == {
        "calls": 0,
        "requests": 1,
        "ring_requests": 1,
    }


def test_the_state_that_held_at_the_begin_stays(tmp_path: Path) -> None:
    """For each ring, the last one before the span, and all in it."""
    states = [
        {"time_ns": time, "ring": ring, "in_flight": time} for time, ring in ((1, 0), (2, 1), (3, 0), (5, 0), (9, 1))
    ]
    whole = write_trace(tmp_path, [make_batch(ring_states=states)], span=(0, 10))
    assert select(whole, begin="@4", end="@9").table("ring_states")["time_ns"].to_pylist() == [2, 3, 5]
    assert select(whole, ["tid == 1"]).table("ring_states").num_rows == 5


def test_what_lies_under_nulls_stays(tmp_path: Path) -> None:
    """lo2io's own reader takes it for unknown."""
    calls = [
        {"id": n, "begin_time_ns": n, "end_time_ns": n, "bytes_result": n if n % 2 else UNKNOWN_I64}
        for n in range(1, 9)
    ]
    requests = [{"id": n, "issue_time_ns": n, "complete_time_ns": n, "device": 8, "reason": n % 2} for n in range(1, 9)]
    whole = write_trace(tmp_path, [make_batch(operations=calls, requests=requests)])
    part = select(whole, begin="@3", end="@7")
    assert part.table("requests")["reason"].to_pylist() == ["other", None, "other", None]
    assert part.column("operations", "bytes_result").tolist() == [3, UNKNOWN_I64, 5, UNKNOWN_I64]
    assert part.operations["bytes_result"].to_pylist() == [3, None, 5, None]


def test_nothing_asked_is_the_trace_itself(tmp_path: Path) -> None:
    """No pass over the tables is made."""
    whole = write_trace(tmp_path, [make_batch()])
    assert select(whole) is whole
    assert select(whole, [" "]) is whole


def test_filters_join_with_the_recordings(tmp_path: Path) -> None:
    """A part of a part has both filters, and counts the omissions of both."""
    calls = [{"id": n, "begin_time_ns": n, "end_time_ns": n + 1, "tid": n, "pid": n % 2} for n in range(8)]
    whole = write_trace(tmp_path, [make_batch(operations=calls)])
    part = select(select(whole, ["pid == 1"]), ["tid != 3"])
    assert part.metadata["filter"] == "pid == 1 and tid != 3"
    assert part.metadata["filtered"] == {"calls": 5, "requests": 0, "ring_requests": 0}
    assert part.column("operations", "tid").tolist() == [1, 5, 7]


@pytest.mark.parametrize(
    ("begin", "end", "answer"),
    [("2s", None, "it is 1 s long"), ("600ms", "500ms", "from 600ms until 500ms"), (None, "@0", "until @0")],
)
def test_an_empty_span_is_refused(tmp_path: Path, begin: str | None, end: str | None, answer: str) -> None:
    """A typing error must not look like a trace of nothing."""
    with pytest.raises(UsageError, match=answer):
        select(write_trace(tmp_path, [make_batch()]), begin=begin, end=end)
