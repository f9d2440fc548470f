"""Block requests and requests of rings in a Perfetto trace, and the ways between threads, workers, rings and disks."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from build.ringtables import CANCELLED, DEVICE, IN_FLIGHT, INLINE, POLL, REFUSED, SILENT, WORKER, ring_trace
from build.tablemaker import FSYNC, META, READV, WRITEV, make_batch, write_trace

from lo2io.exports import formats
from lo2io.exports.perfetto import disks as perfetto_disks
from lo2io.model import UNKNOWN_I64

if TYPE_CHECKING:
    from build.traceprocessor import TraceProcessor

    from lo2io.trace.reader import Trace

    Row = dict[str, Any]

VDA, SDA = 254 << 20, 8 << 20
THREADS = [{"task": 0, "process": 7, "pid": 100, "tid": 100, "comm": b"dd"}]
READ, WRITE, FLUSH = 0, 1, 2
MERGED, INFERRED, END_UNKNOWN = 2, 3, 4


def load(processor: TraceProcessor, trace: Trace) -> TraceProcessor:
    """The trace, exported and loaded."""
    target = trace.path.parent / "T.pftrace"
    formats.export(trace, "perfetto", target, lambda _: None, force=True)
    return processor.load(target)


def times(rows: list[Row], *keys: str) -> list[tuple[Any, ...]]:
    """Begin, length, and further requested columns of each slice."""
    return [(row["ts"], row["dur"], *(row.get(key) for key in keys)) for row in rows]


def block(number: int, insert: int | None, issue: int | None, complete: int | None, **more: Any) -> Row:
    """A row of requests."""
    at = {"insert_time_ns": insert, "issue_time_ns": issue, "complete_time_ns": complete}
    known = {name: time for name, time in at.items() if time is not None}
    return {"id": number, "device": VDA, "bytes_request": 4096, "operation": READ, **known, **more}


REQUESTS = [
    block(11, 1_000, 1_500, 3_000, bytes_issued=8192, bytes_result=8192, sector=2**40, task=0, tid=100, nr_merges=1),
    block(12, 1_200, None, None, status=MERGED, task=0, tid=100),
    block(13, None, 2_000, 4_000, bytes_result=4096, operation=WRITE, error=5, flags=8),
    block(14, 3_000, 3_500, 5_000, device=SDA, bytes_result=512, operation=WRITE),
    block(15, 4_000, 4_000, 4_500, operation=FLUSH),
    block(16, 5_000, 6_000, None, status=IN_FLIGHT),
    block(17, 7_000, None, None, status=IN_FLIGHT),
]


@pytest.fixture
def disks(processor: TraceProcessor, tmp_path: Path) -> TraceProcessor:
    """``REQUESTS``, loaded."""
    return load(processor, write_trace(tmp_path / "T", [make_batch(tasks=THREADS, requests=REQUESTS)]))


def test_block_requests(disks: TraceProcessor) -> None:
    """From insert (or issue) to completion, with the table's numbers; merged ones are moments, ones in flight open."""
    found = disks.drawn("block request")
    assert times(found, "id", "name", "bytes_request", "bytes_result", "sector", "status", "error") == [
        (1_000, 2_000, 11, "read", 4096, 8192, 2**40, "completed", None),
        (1_200, 0, 12, "read", 4096, None, 0, "merged", None),
        (2_000, 2_000, 13, "write", 4096, 4096, 0, "completed", 5),
        (3_000, 2_000, 14, "write", 4096, 512, 0, "completed", None),
        (4_000, 500, 15, "flush", 4096, None, 0, "completed", None),
        (5_000, -1, 16, "read", 4096, None, 0, "in flight", None),
        (7_000, -1, 17, "read", 4096, None, 0, "in flight", None),
    ]
    assert {row["depth"] for row in found} == {0}
    assert times(disks.drawn("phase"), "name", "depth") == [
        (1_000, 500, "queue", 1),
        (1_500, 1_500, "device", 1),
        (2_000, 2_000, "device", 1),
        (3_000, 500, "queue", 1),
        (3_500, 1_500, "device", 1),
        (4_000, 500, "device", 1),
        (5_000, 1_000, "queue", 1),
        (6_000, -1, "device", 1),
        (7_000, -1, "queue", 1),
    ]


def test_disks_have_lanes(disks: TraceProcessor) -> None:
    """Requests that overlap lie in different tracks, all of one name beneath their disk's, and disks beneath one."""
    sql = """
        select disk.name, top.name, lane.name, count(distinct lane.id) from slice
        join track lane on slice.track_id = lane.id join track disk on lane.parent_id = disk.id
        join track top on disk.parent_id = top.id where category = 'block request' group by 1, 2, 3 order by 1
    """
    assert disks.query(sql) == [("sda (8:0)", "Disks", "requests", 1), ("vda (254:0)", "Disks", "requests", 2)]


def test_threads_lead_to_disks(disks: TraceProcessor) -> None:
    """A moment in the thread's track where it submitted a request, and an arrow from it to the request."""
    assert times(disks.drawn("submit"), "id", "name") == [(1_000, 0, 11, "read"), (1_200, 0, 12, "read")]
    assert disks.flows() == [("submit", 11, "block request", 11), ("submit", 12, "block request", 12)]


DEPTHS = {
    "queued": [(1_000, 1), (1_500, 0), (4_000, 0), (5_000, 1), (6_000, 0), (7_000, 1)],
    "in flight": [(1_500, 1), (2_000, 2), (3_000, 1), (4_000, 1), (4_500, 0), (6_000, 1)],
}


@pytest.mark.parametrize("rows", [1 << 21, 1, 3])
def test_disks_count(processor: TraceProcessor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rows: int) -> None:
    """Requests queued and with the disk, at each change, however many are sorted at a time; merged ones are none."""
    monkeypatch.setattr(perfetto_disks, "_AT_A_TIME", rows)
    batches = [make_batch(tasks=THREADS)]
    load(processor, write_trace(tmp_path / "T", [*batches, make_batch(requests=REQUESTS)]))
    for name, expected in DEPTHS.items():
        assert processor.counter(name, "vda (254:0)") == expected
    assert processor.counter("in flight", "sda (8:0)") == [(3_500, 1), (5_000, 0)]


def test_ends_that_nobody_saw(processor: TraceProcessor, tmp_path: Path) -> None:
    """An inferred end is drawn at its latest moment; of unknown end a request is a moment, and in no count."""
    rows = [
        block(21, None, 1_000, None, status=INFERRED, end_earliest_ns=1_000, end_latest_ns=1_800, end_proof=1),
        block(22, None, 2_000, None, status=END_UNKNOWN),
    ]
    load(processor, write_trace(tmp_path / "T", [make_batch(tasks=THREADS, requests=rows)]))
    found = processor.drawn("block request")
    assert times(found, "id", "status", "end_earliest_ns", "end_latest_ns") == [
        (1_000, 800, 21, "inferred", 1_000, 1_800),
        (2_000, 0, 22, "end unknown", None, None),
    ]
    assert processor.counter("in flight", "vda (254:0)") == [(1_000, 1), (1_800, 0)]


def test_bandwidth(processor: TraceProcessor, tmp_path: Path) -> None:
    """Bytes of an interval's requests over its length, and 0 after it."""
    width = 500_000  # a second in at most 2,000 parts
    moved = [(1, width - 1, 512, READ), (2, width - 1, 512, READ), (3, width, 4096, READ), (4, 9 * width, 8, WRITE)]
    rows = [block(n, None, end - 10, end, bytes_result=size, operation=what) for n, end, size, what in moved]
    load(processor, write_trace(tmp_path / "T", [make_batch(tasks=THREADS, requests=rows)]))
    second = 1_000_000_000 // width
    assert processor.counter("read bandwidth", "vda (254:0)") == [
        (0, 1024 * second),
        (width, 4096 * second),
        (2 * width, 0),
    ]
    assert processor.counter("write bandwidth", "vda (254:0)") == [(9 * width, 8 * second), (10 * width, 0)]


@pytest.mark.parametrize(
    ("span", "width"),
    [(0, 10**5), (2 * 10**8, 10**5), (2 * 10**8 + 1, 2 * 10**5), (10**9, 5 * 10**5), (10**13, 5 * 10**9)],
)
def test_intervals(span: int, width: int) -> None:
    """1, 2 or 5 times a power of ten, so that there are at most 2,000."""
    assert perfetto_disks.interval_ns(span) == width


def ring_request(number: int, submit: int, complete: int | None, **more: Any) -> Row:
    """A row of ring_requests, of thread 0 on ring 0."""
    end = {"status": IN_FLIGHT} if complete is None else {"complete_time_ns": complete}
    own = {"id": number, "ring": 0, "task": 0, "pid": 100, "tid": 100, "opcode": READV, "user_data": number}
    return {**own, "submit_time_ns": submit, **end, **more}


def ring_load(processor: TraceProcessor, folder: Path, rows: list[Row], **tables: list[Row]) -> TraceProcessor:
    """A trace of rings with these requests, loaded."""
    return load(processor, ring_trace(folder / "T", ring_requests=rows, **tables))


def test_ring_requests(processor: TraceProcessor, tmp_path: Path) -> None:
    """From submission to completion with the table's numbers, beneath their ring, which is beneath its process."""
    rows = [
        ring_request(
            1,
            100,
            900,
            path=INLINE,
            handle=0,
            user_data=2**64 - 1,
            bytes_result=4096,
            result=4096,
            fd=3,
            op_flags=2**32 - 1,
            worker=2**32 - 1,
        ),
        ring_request(2, 200, 800, opcode=FSYNC, path=DEVICE, error=5, result=-5, queued_ns=100, executing_ns=0),
        ring_request(3, 950, None, opcode=WRITEV, ring=1),
        ring_request(4, 960, None, status=SILENT, issue_time_ns=990),
        ring_request(5, 1_000, 1_000, status=REFUSED, opcode=70),
    ]
    ring_load(processor, tmp_path, rows)
    found = processor.drawn("ring request")
    assert times(found, "id", "name", "path", "status", "file", "bytes_result", "result", "error", "queued_ns") == [
        (100, 800, 1, "READV", "inline", "completed", "/data/in", 4096, 4096, None, None),
        (200, 600, 2, "FSYNC", "device", "completed", None, None, -5, 5, 100),
        (950, -1, 3, "WRITEV", "unknown", "in flight", None, None, 0, None, None),
        (960, 30, 4, "READV", "unknown", "silent", None, None, 0, None, None),
        (1_000, 0, 5, "unknown opcode", "unknown", "refused", None, None, 0, None, None),
    ]
    assert found[0]["user_data"] % 2**64 == 2**64 - 1
    kinds = dict(processor.query("select distinct key, value_type from args where key like 'debug.%'"))
    assert (kinds["debug.user_data"], kinds["debug.id"], kinds["debug.result"]) == ("pointer", "uint", "int")
    assert [row.get("op_flags") for row in found] == [None, 0, 0, 0, 0]
    unknown = {"op_flags", "worker", "waker_tid", "offset_bytes", "previous", "culprit", "notify_time_ns"}
    assert not unknown & found[0].keys()
    sql = """
        select p.pid, ring.name, lane.name, count(*) from slice
        join track lane on slice.track_id = lane.id join process_track ring on lane.parent_id = ring.id
        join process p using (upid)
        where category = 'ring request' group by 1, 2, 3 order by 1
    """
    assert processor.query(sql) == [(100, "io_uring 0 (fd 5)", "requests", 4), (200, "io_uring 1", "requests", 1)]


def test_phases(processor: TraceProcessor, tmp_path: Path) -> None:
    """Each lasts from one known event to the next. A request executed only once has that time and the rest."""
    rows = [
        ring_request(1, 100, 900, path=DEVICE, issue_time_ns=150, executing_ns=50, queued_ns=50, waiting_ns=700),
        ring_request(
            2, 1_100, 1_900, path=WORKER, issue_time_ns=1_150, punt_time_ns=1_200, nr_punts=1,
            work_begin_time_ns=1_300, work_end_time_ns=1_800, executing_ns=550,
        ),
        ring_request(
            3, 2_100, None, path=POLL, issue_time_ns=2_150, poll_arm_time_ns=2_200, wake_time_ns=2_300, nr_polls=1,
        ),
        ring_request(4, 3_100, 3_900, path=INLINE, issue_time_ns=3_100, executing_ns=800),
    ]  # fmt: skip
    ring_load(processor, tmp_path, rows)
    assert times(processor.drawn("phase"), "name", "depth") == [
        (100, 50, "queued", 1),
        (150, 50, "executing", 1),
        (200, 700, "waiting", 1),
        (1_100, 50, "queued", 1),
        (1_150, 50, "issued", 1),
        (1_200, 100, "punted", 1),
        (1_300, 500, "working", 1),
        (1_800, 100, "worked", 1),
        (2_100, 50, "queued", 1),
        (2_150, 50, "issued", 1),
        (2_200, 100, "polling", 1),
        (2_300, -1, "woken", 1),
        (3_100, 800, "executing", 1),
    ]


def test_the_way_of_a_request(processor: TraceProcessor, tmp_path: Path) -> None:
    """Arrows lead from the submitting thread to the request, its worker, its block request, and its completion."""
    rows = [ring_request(1, 100, 900, path=WORKER, punt_time_ns=150, nr_punts=1, work_begin_time_ns=200)]
    works = [
        {"id": 1, "task": 1, "opcode": READV, "queue_time_ns": 150, "begin_time_ns": 200, "end_time_ns": 800},
        {"id": 9, "task": 1, "opcode": WRITEV, "begin_time_ns": 800},
        {"id": 8, "task": 1, "opcode": WRITEV, "begin_time_ns": UNKNOWN_I64},
    ]  # fmt: skip
    blocks = [block(21, 300, 400, 700, ring_request=1, task=1)]
    calls = [{"id": 2, "begin_time_ns": 50, "end_time_ns": 950, "task": 0}]
    ring_load(processor, tmp_path, rows, ring_works=works, requests=blocks, operations=calls)
    assert processor.flows() == [
        ("block request", 21, "completion", 1),
        ("ring request", 1, "worker", 1),
        ("submit", 1, "ring request", 1),
        ("submit", 21, "block request", 21),
        ("worker", 1, "block request", 21),
    ]
    workers = processor.drawn("worker")
    assert times(workers, "id", "name", "queued_ns") == [(200, 600, 1, "READV", 50), (800, -1, 9, "WRITEV", None)]
    sql = """
        select s.category, t.tid, s.depth from slice s join thread_track on s.track_id = thread_track.id
        join thread t using (utid) where s.category in ('submit', 'worker') and s.ts <= 200 order by s.ts
    """
    assert processor.query(sql) == [("submit", 100, 1), ("worker", 101, 0)]


def test_links_and_what_ended_them(processor: TraceProcessor, tmp_path: Path) -> None:
    """Arrows lead along a chain, from a failed request's completion to its victims, and from a waker."""
    link = 4
    rows = [
        ring_request(1, 100, 500, sqe_flags=link, error=5, result=-5),
        ring_request(2, 110, 510, sqe_flags=link, previous=1, culprit=1, error=125, status=CANCELLED),
        ring_request(3, 120, 520, previous=2, culprit=1, error=125, status=CANCELLED),
        ring_request(4, 600, 900, path=POLL, poll_arm_time_ns=650, wake_time_ns=700, waker=2, waker_tid=200),
    ]
    ring_load(processor, tmp_path, rows)
    own = {(a, x, b, x) for x in (1, 2, 3, 4) for a, b in (("submit", "ring request"), ("ring request", "completion"))}
    assert set(processor.flows()) - own == {
        ("ring request", 1, "ring request", 2),
        ("ring request", 2, "ring request", 3),
        ("completion", 1, "completion", 2),
        ("completion", 2, "completion", 3),
        ("wake", 4, "phase", None),
    }
    assert len(processor.flows()) == len(own) + 5
    assert times(processor.drawn("completion"), "id", "result", "error")[0] == (500, 0, 1, -5, 5)
    assert times(processor.drawn("wake"), "id", "name") == [(700, 0, 4, "READV")]


def test_what_rings_count(processor: TraceProcessor, tmp_path: Path) -> None:
    """A ring's states are its counters; unknown values are left out."""
    states = [
        {"time_ns": 100, "ring": 0, "in_flight": 3, "punted": 1, "workers": 2, "cq_least": 0, "cq_most": 2},
        {"time_ns": 200, "ring": 1, "in_flight": 9},
        {"time_ns": 300, "ring": 0, "in_flight": 1, "cq_least": 2**32 - 1, "cq_most": 2**32 - 1},
    ]
    ring_load(processor, tmp_path, [], ring_states=states)
    assert processor.counter("in flight", "io_uring 0 (fd 5)") == [(100, 3), (300, 1)]
    assert processor.counter("with workers", "io_uring 0 (fd 5)") == [(100, 1), (300, 0)]
    assert processor.counter("completions to collect, at most", "io_uring 0 (fd 5)") == [(100, 2)]
    assert processor.counter("in flight", "io_uring 1") == [(200, 9)]


def test_rows_without_a_time(tmp_path: Path) -> None:
    """They cannot be drawn, and the summary has their number."""
    rows = [{"id": 1, "ring": 0, "task": 0}, ring_request(2, 100, 200)]
    trace = ring_trace(tmp_path / "T", ring_requests=rows)
    summary = formats.export(trace, "perfetto", tmp_path / "T.pftrace", lambda _: None)
    assert (summary.rows, summary.notes) == (1, ("1 rows have no time and are not drawn",))
    assert summary.size_bytes == (tmp_path / "T.pftrace").stat().st_size


def test_a_trace_of_nothing(processor: TraceProcessor, tmp_path: Path) -> None:
    """Is a valid one that shows the recording alone."""
    load(processor, write_trace(tmp_path / "T", [make_batch()]))
    assert processor.query("select count(*) from slice") == [(1,)]
    assert META.stop_ns == processor.drawn("recording")[0]["dur"]


def test_the_questions_of_the_page(processor: TraceProcessor, tmp_path: Path) -> None:
    """The documentation's queries give its answers."""
    calls = [
        {"id": 1, "begin_time_ns": 0, "end_time_ns": 2_000_000, "handle": 0},
        {"id": 2, "begin_time_ns": 3_000_000, "end_time_ns": 4_000_000, "handle": 0},
        {"id": 3, "begin_time_ns": 5_000_000, "end_time_ns": 9_000_000, "handle": 1},
        {"id": 4, "begin_time_ns": 9_500_000, "end_time_ns": 9_900_000},
    ]
    blocks = [
        block(21, 1_000, 3_000, 7_000, ring_request=31),
        block(22, 8_000, 9_000, 10_000, ring_request=31),
        block(23, None, 8_000, 10_000, device=SDA, operation=WRITE),
        block(24, 20_000, None, None, status=IN_FLIGHT),
    ]
    ring_load(processor, tmp_path, [ring_request(31, 500, 11_000)], operations=calls, requests=blocks)
    page = (Path(__file__).parents[3] / "docs/how-to/perfetto.md").read_text(encoding="utf-8")
    answers = [processor.query(sql) for sql in re.findall(r"^```sql\n(.*?)^```$", page, flags=re.DOTALL | re.MULTILINE)]
    assert answers == [
        [("/data/out", 1, 4.0), ("/data/in", 2, 3.0)],
        [("sda (8:0)", "write", 1, 2.0, 2.0), ("vda (254:0)", "read", 2, 4.0, 6.0)],
        [("READV", 2, 0.005)],
    ]
