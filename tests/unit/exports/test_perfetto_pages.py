"""The page cache in a Perfetto trace: who dirtied what a request writes, and counters."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from build.tablemaker import CALLS, READV, WRITEV, make_batch, meta, write_trace

from lo2io.exports import formats
from lo2io.model import UNKNOWN_U32
from lo2io.trace.columns import CACHE_VERDICT

if TYPE_CHECKING:
    from pathlib import Path

    from build.traceprocessor import TraceProcessor

    Row = dict[str, Any]

VDA = 254 << 20
WIDTH = 500_000  # a second in at most 2,000 parts
PAGES = meta(layers=("cache", "dirty"))
WAYS = """
    select call.name, call.ts, moment.name, moment.ts, written.name, written.ts, request.name, request.ts,
    id.int_value
    from flow join slice moment on moment.id = flow.slice_out join slice written on written.id = flow.slice_in
    join slice call on call.id = moment.parent_id join slice request on request.track_id = written.track_id
    join args id on id.arg_set_id = request.arg_set_id and id.key = 'debug.id'
    join args whose on whose.arg_set_id = written.arg_set_id and whose.key = 'debug.request'
    where id.int_value = whose.int_value and request.category = 'block request'
    and request.ts <= written.ts and written.ts <= request.ts + request.dur
    and moment.category = 'dirty' order by moment.ts, written.ts
"""
"""Calls with a moment of dirtying, and the requests to which arrows lead from there."""


def call(begin: int, end: int, **more: Any) -> Row:
    """A call of the thread."""
    return {"id": begin, "task": 0, "pid": 100, "tid": 100, "begin_time_ns": begin, "end_time_ns": end, **more}


def written(request: int, size: int, dirtied: tuple[int, int] | None, issue: int | None, task: int | None = 0) -> Row:
    """A row of write_backs."""
    row: Row = {"request": request, "bytes": size, "offset_bytes": 0, "charged": 1}
    row |= {"task": UNKNOWN_U32, "tid": UNKNOWN_U32} if task is None else {"task": task, "tid": 100}
    row |= {"first_dirtied_ns": dirtied[0], "last_dirtied_ns": dirtied[1]} if dirtied else {}
    return row | ({} if issue is None else {"issue_time_ns": issue, "complete_time_ns": issue + 900})


def load(processor: TraceProcessor, folder: Path, **tables: list[Row]) -> TraceProcessor:
    """A trace of these rows, exported and loaded."""
    threads = [{"task": 0, "process": 7, "pid": 100, "tid": 100, "comm": b"dd"}]
    trace = write_trace(folder / "T", [make_batch(tasks=threads, **tables)], spool=PAGES)
    formats.export(trace, "perfetto", folder / "T.pftrace", lambda _: None)
    return processor.load(folder / "T.pftrace")


def test_from_the_call_to_the_request_that_writes(processor: TraceProcessor, tmp_path: Path) -> None:
    """An arrow for each run of pages, from a moment in the call to one in the request."""
    calls = [call(1_000, 2_000, call=WRITEV), call(3_000, 4_000, call=WRITEV)]
    times = {"insert_time_ns": 9_000, "issue_time_ns": 9_500, "complete_time_ns": 10_400}
    requests = [{"id": number, "device": VDA, "operation": 1, **times} for number in (51, 52)]
    rows = [
        written(51, 4096, (1_500, 1_600), 9_500),
        written(52, 8192, (1_700, 1_800), 9_500),
        written(52, 4096, (3_500, 3_500), 9_500),
        written(52, 512, None, 9_500, task=None),
        written(0, 4096, (3_600, 3_600), None),
    ]
    load(processor, tmp_path, operations=calls, requests=requests, write_backs=rows)
    found = processor.query(WAYS)
    name = CALLS[WRITEV].name
    first, second = (name, 1_000), (name, 3_000)
    behind = ("writes pages back", 9_500, "write", 9_000)
    assert found == [
        (*first, "dirties pages", 1_500, *behind, 51),
        (*first, "dirties pages", 1_700, *behind, 52),
        (*second, "dirties pages", 3_500, *behind, 52),
    ]
    notes = [(row["request"], row["bytes"], row.get("tid")) for row in processor.drawn("write-back")]
    assert notes == [(51, 4096, 100), (52, 8192, 100), (52, 4096, 100), (52, 512, None)]
    assert len({row["track"] for row in processor.drawn("write-back")}) == 2
    assert len(processor.drawn("dirty")) == 3


def test_dirty_bytes(processor: TraceProcessor, tmp_path: Path) -> None:
    """From the moment at which all of a run is dirty until its request is issued; the rest stays dirty."""
    rows = [
        written(51, 4096, (1_000, 2_000), 7_000),
        written(51, 8192, (1_500, 3_000), 7_000),
        written(0, 512, (4_000, 4_000), None),
        written(52, 4096, None, 6_000, task=None),
    ]
    load(processor, tmp_path, write_backs=rows)
    assert processor.counter("dirty, at least", "Page cache") == [
        (2_000, 4096),
        (3_000, 12288),
        (4_000, 12800),
        (7_000, 512),
    ]


def test_share_of_hits(processor: TraceProcessor, tmp_path: Path) -> None:
    """Of the reads of calls and rings that ended in an interval; what asks no page cache does not count."""
    verdicts = {name: code for code, name in enumerate(CACHE_VERDICT)}
    seen = [("hit", 10), ("miss", 20), ("wait", 30), ("none", 40), ("memory", 50), ("unknown", 60), ("hit", 3 * WIDTH)]
    calls = [call(end - 5, end, call=READV, cache=verdicts[name]) for name, end in seen]
    ring = {"opcode": 22, "submit_time_ns": 1, "complete_time_ns": 70, "task": 0, "cache": verdicts["hit"]}
    load(processor, tmp_path, operations=calls, ring_requests=[{"id": 900, "ring": 0, **ring}])
    assert processor.counter("hits of reads", "Page cache") == [(0, 50), (3 * WIDTH, 100)]


def test_a_trace_without_reads(processor: TraceProcessor, tmp_path: Path) -> None:
    """And without known dirtying: it has no counters, and no track of the page cache."""
    load(processor, tmp_path, operations=[call(10, 20, call=WRITEV)], write_backs=[written(51, 512, None, 9, None)])
    assert processor.query("select count(*) from track where name = 'Page cache'") == [(0,)]
