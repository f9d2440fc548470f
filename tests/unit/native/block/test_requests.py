"""docs/explanation/rules/block.md: block requests: one test each, both engines, two kernels' layouts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from build.perfwriter import SpoolBuilder
from reference.engines import each_engine  # noqa: F401 - the fixture `run`
from reference.specs import SPECS

from lo2io.convert.engine import Engine
from lo2io.model import BlockDevice
from lo2io.spool.reader import SpoolReader

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from reference.compare import Tables

    Run = Callable[[SpoolBuilder], Tables]

VDA = 254 << 20
INFERRED, END_UNKNOWN = 3, 4
BY_CALL, BY_LATER_REQUEST = 1, 3


@pytest.fixture
def spool(tmp_path: Path) -> SpoolBuilder:
    """A spool of block events; thread 10 is known."""
    return SpoolBuilder(tmp_path / "spool", calls=()).fact_task(1_000, 10, 10)


def add(spool: SpoolBuilder, *events: tuple[Any, ...]) -> SpoolBuilder:
    """Events 10 ns apart from 60 µs on: name, sector, number of sectors, rwbs, then fields that differ."""
    for index, (name, sector, size, rwbs, *more) in enumerate(events):
        fields = {"dev": VDA, "sector": sector, "nr_sector": size, "rwbs": rwbs} | (more[0] if more else {})
        tid = fields.pop("tid", 0 if name == "rq_complete" else 10)
        spool.block(60_000 + 10 * index, index % 2, tid, name, **fields)
    return spool


def request(tables: Tables, *columns: str) -> list[tuple[Any, ...]]:
    """Some columns of the requests."""
    return [tuple(row[column] for column in columns) for row in tables["requests"]]


@pytest.mark.parametrize("era", ["6.18", "5.10"])
def test_a_request_from_insert_to_completion(run: Run, tmp_path: Path, era: str) -> None:
    """Whatever the kernel's layout."""
    spool = SpoolBuilder(tmp_path / "spool", calls=(), era=era).fact_task(1_000, 10, 10)
    add(spool, ("rq_insert", 100, 8, b"WSM"), ("rq_issue", 100, 8, b"WSM"), ("rq_complete", 100, 8, b"WSM"))
    tables = run(spool)
    (row,) = tables["requests"]
    assert (row["insert_time_ns"], row["issue_time_ns"], row["complete_time_ns"]) == (60_000, 60_010, 60_020)
    assert (row["device"], row["sector"], row["operation"], row["flags"]) == (VDA, 100, 1, 8 | 16)
    assert (row["bytes_request"], row["bytes_issued"], row["bytes_result"]) == (4096, 4096, 4096)
    assert (row["tid"], row["status"], row["error"], row["nr_completions"]) == (10, 0, 0, 1)
    assert [event["kind"] for event in tables["request_events"]] == [0, 1, 2]


def test_an_issue_without_insert_bypassed_the_scheduler(run: Run, spool: SpoolBuilder) -> None:
    """The request begins at its issue."""
    tables = run(add(spool, ("rq_issue", 100, 8, b"R"), ("rq_complete", 100, 8, b"R")))
    assert request(tables, "insert_time_ns", "issue_time_ns", "status") == [(None, 60_000, 0)]
    assert [(event["kind"], event["time_ns"]) for event in tables["request_events"]] == [
        (0, 60_000),
        (1, 60_000),
        (2, 60_010),
    ]


def test_size_is_that_of_the_issue(run: Run, spool: SpoolBuilder) -> None:
    """Bios merged into its back show there."""
    events = [("rq_insert", 100, 8, b"W"), ("rq_issue", 100, 24, b"W"), ("rq_complete", 100, 24, b"W")]
    assert request(run(add(spool, *events)), "bytes_request", "bytes_issued", "bytes_result") == [(4096, 12288, 12288)]


def test_a_front_merge_moves_the_key(run: Run, spool: SpoolBuilder) -> None:
    """The request begins where the bio does."""
    events = [("rq_insert", 108, 8, b"W"), ("bio_frontmerge", 100, 8, b"W"), ("rq_issue", 100, 16, b"W")]
    tables = run(add(spool, *events, ("rq_complete", 100, 16, b"W")))
    assert request(tables, "insert_time_ns", "sector", "status", "bytes_result") == [(60_000, 100, 0, 8192)]


def test_a_bio_in_front_names_its_partition(spool: SpoolBuilder) -> None:
    """The request names the disk; the sectors of both are the disk's."""
    part = {"dev": VDA + 1}
    events = [("rq_insert", 108, 8, b"W"), ("bio_frontmerge", 100, 8, b"W", part), ("rq_issue", 100, 16, b"W")]
    add(spool, *events, ("rq_complete", 100, 16, b"W"))
    disks = [BlockDevice(VDA, "vda", None, None, None), BlockDevice(VDA + 1, "vda1", None, None, None, disk=VDA)]
    engine = Engine(SpoolReader(spool.write(devices=disks)), SPECS)  # type: ignore[arg-type]
    (rows,) = (batch.requests for batch in engine.batches())
    found = [rows[name].tolist() for name in ("insert_time_ns", "sector", "status", "bytes_result")]
    assert found == [[60_000], [100], [0], [8192]]


def test_a_merged_request_ends_and_its_absorber_counts_it(run: Run, spool: SpoolBuilder) -> None:
    """The one that ends where it starts."""
    events = [("rq_insert", 100, 8, b"W"), ("rq_insert", 108, 8, b"W"), ("rq_merge", 108, 8, b"W")]
    tables = run(add(spool, *events, ("rq_issue", 100, 16, b"W"), ("rq_complete", 100, 16, b"W")))
    assert request(tables, "sector", "status", "nr_merges", "complete_time_ns") == [
        (108, 2, 0, None),
        (100, 0, 1, 60_040),
    ]
    assert [event["kind"] for event in tables["request_events"]] == [0, 0, 1, 3, 1, 2]


def test_a_requeued_request_is_the_same_one(run: Run, spool: SpoolBuilder) -> None:
    """Its second insert begins nothing."""
    step = [("rq_insert", 100, 8, b"W"), ("rq_issue", 100, 8, b"W")]
    tables = run(add(spool, *step, ("rq_requeue", 100, 8, b"W"), *step, ("rq_complete", 100, 8, b"W")))
    assert request(tables, "insert_time_ns", "issue_time_ns", "nr_requeues") == [(60_000, 60_040, 1)]
    # OTF2 knows one issue of an operation: the first; the table has the last.
    assert [(event["kind"], event["time_ns"]) for event in tables["request_events"]] == [
        (0, 60_000),
        (1, 60_010),
        (2, 60_050),
    ]


def test_every_requeued_twin_meets_its_own_insert(run: Run, spool: SpoolBuilder) -> None:
    """Two requests of one key go back and come again: still two."""
    issue, requeue, insert = ("rq_issue", 100, 8, b"R"), ("rq_requeue", 100, 8, b"R"), ("rq_insert", 100, 8, b"R")
    tables = run(add(spool, issue, issue, requeue, requeue, insert, insert))
    assert request(tables, "nr_requeues", "status") == [(1, 1), (1, 1)]


def test_a_partial_completion_leaves_the_rest(run: Run, spool: SpoolBuilder) -> None:
    """Under its new key."""
    events = [("rq_issue", 100, 24, b"R"), ("rq_complete", 100, 8, b"R"), ("rq_complete", 108, 16, b"R")]
    columns = ("sector", "bytes_result", "nr_completions", "complete_time_ns")
    assert request(run(add(spool, *events)), *columns) == [(100, 12288, 2, 60_020)]


def test_an_error_ends_the_whole_rest(run: Run, spool: SpoolBuilder) -> None:
    """The failed bytes were not moved."""
    events = [("rq_issue", 100, 24, b"R"), ("rq_complete", 100, 8, b"R"), ("rq_complete", 108, 8, b"R", {"error": -5})]
    columns = ("error", "status", "bytes_result", "nr_completions")
    assert request(run(add(spool, *events)), *columns) == [(5, 0, 4096, 2)]


def test_twins_complete_oldest_first(run: Run, spool: SpoolBuilder) -> None:
    """Two requests of one key in flight."""
    issue, complete = ("rq_issue", 100, 8, b"R"), ("rq_complete", 100, 8, b"R")
    assert request(run(add(spool, issue, issue, complete)), "issue_time_ns", "status") == [(60_000, 0), (60_010, 1)]


def test_twins_complete_newest_first_when_completions_vanished(run: Run, spool: SpoolBuilder) -> None:
    """The old one's completion is likelier to be the missing one."""
    issue, complete = ("rq_issue", 100, 8, b"R"), ("rq_complete", 100, 8, b"R")
    spool.count_vanished("block:block_rq_complete", [1, 0])
    assert request(run(add(spool, issue, issue, complete)), "issue_time_ns", "status") == [
        (60_010, 0),
        (60_000, END_UNKNOWN),
    ]


def test_of_twins_the_one_of_equal_size_comes_first(run: Run, spool: SpoolBuilder) -> None:
    """At the issue and at the completion."""
    events = [("rq_insert", 100, 8, b"R"), ("rq_insert", 100, 16, b"R"), ("rq_issue", 100, 16, b"R")]
    tables = run(add(spool, *events, ("rq_issue", 100, 8, b"R"), ("rq_complete", 100, 8, b"R")))
    assert request(tables, "insert_time_ns", "bytes_issued", "status") == [(60_000, 4096, 0), (60_010, 8192, 1)]


def test_other_operations_of_one_sector_are_other_requests(run: Run, spool: SpoolBuilder) -> None:
    """A discard is no write."""
    events = [("rq_issue", 100, 8, b"W"), ("rq_complete", 100, 8, b"D"), ("rq_complete", 100, 8, b"WS")]
    tables = run(add(spool, *events))
    assert request(tables, "operation", "status") == [(1, 0)]
    assert tables["totals"]["nr_orphan_completions"] == 1


def test_flags_are_those_of_the_issue(run: Run, spool: SpoolBuilder) -> None:
    """The kernel may change them while the request waits in the scheduler."""
    tables = run(add(spool, ("rq_insert", 100, 8, b"W"), ("rq_issue", 100, 8, b"WFS")))
    assert request(tables, "operation", "flags") == [(1, 2 | 8)]


@pytest.mark.parametrize(
    ("rwbs", "operation", "flags"),
    [
        (b"R", 0, 0),
        (b"RAM", 0, 4 | 16),
        (b"W", 1, 0),
        (b"FWFS", 1, 1 | 2 | 8),
        (b"WFS", 1, 2 | 8),
        (b"D", 3, 0),
        (b"DS", 3, 8),
        (b"DE", 4, 0),
        (b"WZ", 5, 0),
        (b"ZA", 6, 0),
        (b"ZR", 6, 0),
        (b"N", 7, 0),
    ],
)
def test_rwbs_says_operation_and_flags(run: Run, spool: SpoolBuilder, rwbs: bytes, operation: int, flags: int) -> None:
    """blk_fill_rwbs in kernel/trace/blktrace.c."""
    assert request(run(add(spool, ("rq_issue", 100, 8, rwbs))), "operation", "flags") == [(operation, flags)]


@pytest.mark.parametrize("rwbs", [b"F", b"FF", b"FWS"])
def test_a_flush_has_no_sectors(run: Run, spool: SpoolBuilder, rwbs: bytes) -> None:
    """Nor a sector, whatever the sample has (Linux 6.18: 2⁶⁴ - 1 at the completion)."""
    events = [("rq_issue", 0, 0, rwbs), ("rq_complete", 2**64 - 1, 0, rwbs)]
    columns = ("operation", "sector", "bytes_request", "bytes_issued", "bytes_result", "status")
    assert request(run(add(spool, *events)), *columns) == [(2, 0, None, None, None, 0)]


def test_a_flush_belongs_to_who_asked_for_it(run: Run, spool: SpoolBuilder) -> None:
    """A kernel thread issues it; the end of the bio that asked is no completion of its own."""
    events = [("bio_queue", 0, 0, b"FW"), ("rq_issue", 0, 0, b"FF", {"tid": 55}), ("rq_complete", 0, 0, b"FF")]
    tables = run(add(spool, *events, ("rq_complete", 0, 0, b"FW")))
    assert request(tables, "tid", "operation", "status") == [(10, 2, 0)]
    assert tables["totals"]["nr_orphan_completions"] == 0


@pytest.mark.parametrize("again", [False, True])
def test_a_flush_belongs_to_who_asked_though_it_has_ended(run: Run, spool: SpoolBuilder, again: bool) -> None:
    """It belongs neither to nobody, nor to the thread that has the tid by then."""
    flush = {"dev": VDA, "sector": 0, "nr_sector": 0}
    spool.block(60_000, 0, 10, "bio_queue", rwbs=b"FW", **flush).task_exit(60_010, 0, 10, 10)
    if again:
        spool.fork(60_020, 0, 10, 10, 1, 1)
    spool.block(60_030, 0, 55, "rq_issue", rwbs=b"FF", **flush).block(60_040, 0, 55, "rq_complete", rwbs=b"FF", **flush)
    tables = run(spool)
    assert request(tables, "task", "tid", "complete_time_ns") == [("tid 10 from None", 10, 60_040)]
    assert {event["pid"] for event in tables["request_events"]} == {10}


def test_a_completion_of_nothing_is_an_orphan(run: Run, spool: SpoolBuilder) -> None:
    """Another sector, another device, or not issued."""
    events = [("rq_insert", 100, 8, b"R"), ("rq_complete", 100, 8, b"R"), ("rq_complete", 9, 8, b"R")]
    tables = run(add(spool, *events, ("rq_issue", 7, 8, b"R"), ("rq_complete", 7, 8, b"R", {"dev": VDA + 1})))
    totals = tables["totals"]
    assert (totals["nr_orphan_completions"], totals["nr_in_flight_requests"]) == (3, 2)
    assert request(tables, "status", "complete_time_ns", "bytes_result") == [(1, None, None)] * 2


def test_process_mode_follows_the_requests_of_others_silently(run: Run, tmp_path: Path) -> None:
    """So others' completions are not taken for the command's, and are no orphans."""
    spool = SpoolBuilder(tmp_path / "spool", calls=(), mode="process").fact_task(1_000, 10, 10, flags=1)
    ours, theirs = ("rq_issue", 100, 8, b"R"), ("rq_issue", 200, 8, b"R", {"tid": 55})
    tables = run(add(spool, theirs, ours, ("rq_complete", 200, 8, b"R"), ("rq_complete", 100, 8, b"R")))
    assert request(tables, "tid", "sector") == [(10, 100)]
    assert {event["tid"] for event in tables["request_events"]} == {10}
    assert tables["totals"]["nr_orphan_completions"] == 0


def test_requests_that_never_complete_do_not_fill_the_memory(tmp_path: Path) -> None:
    """Beyond 131,072 the oldest is written as in flight; a completion that comes after all is an orphan.

    lo2io's own request is the oldest of all. It makes way, too, but is neither written nor counted.
    """
    own = 77
    spool = SpoolBuilder(tmp_path / "spool", calls=(), recorder_pid=own).fact_task(1_000, own, own)
    spool.block(59_999, 0, own, "rq_issue", dev=1 << 20, sector=4, nr_sector=8, bytes=4096, rwbs=b"R")
    for index in range((1 << 17) + 3):
        spool.block(
            60_000 + index, 0, 10, "rq_issue", dev=1 << 20, sector=8 * index, nr_sector=8, bytes=4096, rwbs=b"R"
        )
    spool.block(900_000, 0, 10, "rq_complete", dev=1 << 20, sector=0, nr_sector=8, error=0, rwbs=b"R")
    spool.block(900_001, 0, 10, "rq_complete", dev=1 << 20, sector=24, nr_sector=8, error=0, rwbs=b"R")
    engine = Engine(SpoolReader(spool.write()), SPECS)  # type: ignore[arg-type]
    batches = ((batch.requests["sector"].tolist(), batch.requests["status"].tolist()) for batch in engine.batches())
    rows = [pair for columns in batches for pair in zip(*columns, strict=True)]
    assert rows[:4] == [(0, 1), (8, 1), (16, 1), (24, 0)]
    assert len(rows) == (1 << 17) + 3
    assert engine.totals.nr_orphan_completions == 1
    assert engine.totals.nr_in_flight_requests == (1 << 17) + 2


# ---- ends that nobody saw


def in_a_call(tmp_path: Path, *rwbs: bytes, call: str = "fsync", vanished: int = 1) -> SpoolBuilder:
    """A call of thread 10 from 60 to 61 µs that sends requests to sectors 100, 200 …; no completion arrives."""
    spool = SpoolBuilder(tmp_path / "spool", calls=(call,)).fact_task(1_000, 10, 10, flags=1)
    spool.enter(60_000, 0, 10, call)
    for number, letters in enumerate(rwbs, 1):
        size = 0 if letters.startswith(b"FF") else 8
        fields: dict[str, int | bytes] = {"dev": VDA, "sector": 100 * number, "nr_sector": size, "rwbs": letters}
        spool.block(60_000 + 2 * number, 0, 10, "rq_issue", **fields)
    spool.exit(61_000, 0, 10, call)
    return spool.count_vanished("block:block_rq_complete", [vanished, 0])


ENDS = ("status", "end_earliest_ns", "end_latest_ns", "end_proof", "complete_time_ns", "bytes_result")


@pytest.mark.parametrize("rwbs", [b"R", b"RM", b"WS", b"FWS", b"DS", b"FF"])
def test_a_request_has_ended_when_the_call_that_waited_for_it_has(run: Run, tmp_path: Path, rwbs: bytes) -> None:
    """Its end lies between its issue and the call's exit. Its latency and its bytes are unknown."""
    tables = run(in_a_call(tmp_path, rwbs))
    assert request(tables, *ENDS) == [(INFERRED, 60_002, 61_000, BY_CALL, None, None)]
    assert [(row["kind"], row["time_ns"], row["bytes"]) for row in tables["request_events"]][2:] == [(4, 61_000, None)]
    totals = tables["totals"]
    assert (totals["nr_inferred_ends"], totals["nr_unknown_ends"], totals["nr_in_flight_requests"]) == (1, 0, 0)


@pytest.mark.parametrize("rwbs", [b"RA", b"RAM", b"W", b"D"])
def test_what_nobody_waits_for_proves_nothing(run: Run, tmp_path: Path, rwbs: bytes) -> None:
    """Readahead and writing back go on when the call has ended."""
    tables = run(in_a_call(tmp_path, rwbs))
    assert request(tables, "status", "end_latest_ns", "end_proof") == [(END_UNKNOWN, None, 0)]
    assert tables["totals"]["nr_unknown_ends"] == 1


@pytest.mark.parametrize("call", ["io_submit", "io_uring_enter"])
def test_calls_that_leave_requests_behind_prove_nothing(run: Run, tmp_path: Path, call: str) -> None:
    """io_submit returns when the requests are on their way."""
    assert request(run(in_a_call(tmp_path, b"R", call=call)), "status", "end_latest_ns") == [(END_UNKNOWN, None)]


def test_nothing_is_inferred_where_no_completion_is_missing(run: Run, tmp_path: Path) -> None:
    """The counts agree: whatever is out is in flight."""
    tables = run(in_a_call(tmp_path, b"R", vanished=0))
    assert request(tables, "status", "end_latest_ns", "end_proof") == [(1, None, 0)]
    assert tables["totals"]["nr_in_flight_requests"] == 1


def test_a_request_begun_before_the_call_is_not_the_calls(run: Run, tmp_path: Path) -> None:
    """Nor is one of another thread."""
    spool = SpoolBuilder(tmp_path / "spool", calls=("fsync",)).fact_task(1_000, 10, 10, flags=1)
    spool.fact_task(1_000, 10, 11)
    add(spool, ("rq_issue", 100, 8, b"R"))
    spool.enter(61_000, 0, 10, "fsync")
    spool.block(61_500, 0, 11, "rq_issue", dev=VDA, sector=200, nr_sector=8, rwbs=b"R")
    spool.exit(62_000, 0, 10, "fsync").count_vanished("block:block_rq_complete", [2, 0])
    assert request(run(spool), "status") == [(END_UNKNOWN,)] * 2


@pytest.mark.parametrize(
    ("first", "second", "status"),
    [
        (b"W", b"W", INFERRED),
        (b"R", b"W", INFERRED),
        (b"RA", b"D", INFERRED),
        (b"R", b"R", END_UNKNOWN),
        (b"ZA", b"ZA", END_UNKNOWN),
    ],
)
def test_a_later_request_for_the_same_place_is_a_proof(
    run: Run, spool: SpoolBuilder, first: bytes, second: bytes, status: int
) -> None:
    """Unless both read, as two may at once, or append to a zone, which is all that they name."""
    events = [("rq_issue", 100, 8, first), ("rq_insert", 100, 8, second), ("rq_issue", 100, 8, second)]
    tables = run(add(spool, *events, ("rq_complete", 100, 8, second)).count_vanished("block:block_rq_complete", [1, 0]))
    found = {row["issue_time_ns"]: row for row in tables["requests"]}
    assert (found[60_000]["status"], found[60_020]["status"]) == (status, 0)
    if status == INFERRED:
        assert request(tables, *ENDS)[0] == (INFERRED, 60_000, 60_010, BY_LATER_REQUEST, None, None)


def test_a_call_may_end_more_requests_than_a_batch_has_rows(tmp_path: Path) -> None:
    """Their rows wait for the next batches, in order."""
    path = in_a_call(tmp_path, *[b"WS"] * 100, vanished=100).write()
    engine = Engine(SpoolReader(path), SPECS, batch_rows=8)  # type: ignore[arg-type]
    statuses = [status for batch in engine.batches() for status in batch.requests["status"].tolist()]
    assert statuses == [INFERRED] * 100
    assert engine.totals.nr_inferred_ends == 100
