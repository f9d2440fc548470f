"""Rules about locks, the journal, dirty pages, read-ahead: traces that provoke them, and the nearest that must not."""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING, Any

import pytest
from build import tablemaker
from build.tablemaker import READ, WRITE, Row, make_batch, meta, write_trace

from lo2io.catalog.wait_reasons import load_reasons
from lo2io.model import UNKNOWN_I64, UNKNOWN_U32
from lo2io.reports.summary.summary import summarize
from lo2io.trace.columns import CACHE_VERDICT, FILL_REASON

if TYPE_CHECKING:
    from pathlib import Path

    from lo2io.reports.findings.finding import Finding

MS, PAGE, KIB = 1_000_000, 4096, 1 << 10
SPAN = 1000 * MS
HIT, MISS = (CACHE_VERDICT.index(name) for name in ("hit", "miss"))
REASONS = load_reasons().names
SYNCED = 1
"""A handle each of whose writes syncs."""


@pytest.fixture
def found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Writes operations and other tables as a trace with the layers, and gives what stands out by rule."""
    monkeypatch.setattr(tablemaker, "CALLS", (*tablemaker.CALLS, *map(tablemaker.known_call, ("fsync", "flock"))))
    numbers = iter(range(100))

    def find(operations: list[Row], **tables: list[Row]) -> dict[str, Finding]:
        folder = tmp_path / str(next(numbers))
        folder.mkdir()
        rows = [{"id": index + 1, "task": 0, "handle": 0, **row} for index, row in enumerate(operations)]
        batch = make_batch(
            tasks=[{"task": 0, "process": 7, "pid": 100, "tid": 100, "comm": b"app"}],
            handles=[
                {"handle": 0, "process": 7, "file": 0, "fd": 3},
                {"handle": SYNCED, "process": 7, "file": 0, "fd": 4, "open_flags": os.O_WRONLY | os.O_DSYNC},
            ],
            files=[{"file": 0, "path": b"/data/f", "mode": 0o100644}],
            operations=rows,
            **tables,
        )
        trace = write_trace(folder, [batch], spool=meta(layers=("cache", "waits")), span=(0, SPAN))
        return {finding.rule: finding for finding in summarize(trace).findings}

    return find


def waiting(number: int, reason: str, each_ns: int, call: int = WRITE) -> tuple[list[Row], list[Row]]:
    """Calls one after the other that wait as long as they last, and what they wait for."""
    calls, waits = [], []
    for index in range(number):
        begin, end = index * 2 * each_ns, (index * 2 + 1) * each_ns
        calls.append(
            {"call": call, "begin_time_ns": begin, "end_time_ns": end, "run_queue_ns": 0, "blocked_ns": each_ns}
            | {"bytes_result": 100 * KIB, "bytes_request": 100 * KIB, "offset_bytes": index * 100 * KIB}
        )
        waits.append(
            {"before": index, "task": 0, "begin_time_ns": begin, "end_time_ns": end, "wake_time_ns": end}
            | {"state": 2, "reason": REASONS.index(reason)}
        )
    return calls, waits


@pytest.mark.parametrize(
    ("rule", "reason", "subject"),
    [
        ("lock-contention", "lock", "/data/f"),
        ("journal-bound", "journal", "app (100)"),
        ("throttled-writer", "throttled", "app (100)"),
    ],
)
def test_waits(found: Any, rule: str, reason: str, subject: str) -> None:
    """A tenth of the recording, 100 ms, and 20 times at least."""
    calls, waits = waiting(20, reason, 5 * MS)
    finding = found(calls, off_cpu=waits)[rule]
    assert (finding.subject, finding.rows, finding.cost_ns, finding.share) == (subject, 20, 100 * MS, 0.1)
    assert finding.ids == tuple(range(1, 11))
    assert finding.evidence == {"waits": 20, "wait_ns": 100 * MS}
    for number, each_ns in ((20, 5 * MS - 1), (19, 10 * MS)):
        calls, waits = waiting(number, reason, each_ns)
        assert rule not in found(calls, off_cpu=waits)
    calls, waits = waiting(20, "page", 5 * MS)
    assert rule not in found(calls, off_cpu=waits)


def test_syncs_are_meant_to_wait_for_the_journal(found: Any) -> None:
    """Rules about syncs tell of them."""
    calls, waits = waiting(20, "journal", 5 * MS, call=len(tablemaker.CALLS) - 2)
    assert not found(calls, off_cpu=waits).keys() & {"journal-bound", "lock-contention"}
    calls, waits = waiting(20, "journal", 5 * MS)
    synced = [{**call, "handle": SYNCED} for call in calls]
    assert "journal-bound" not in found(synced, off_cpu=waits)
    assert "journal-bound" in found(calls, off_cpu=waits)


@pytest.mark.parametrize("seen", [True, False])
@pytest.mark.parametrize(("rule", "reason"), [("lock-contention", "lock"), ("journal-bound", "journal")])
def test_a_stretch_without_a_sleep_is_no_wait(found: Any, rule: str, reason: str, seen: bool) -> None:
    """One of 20 stretches: its thread could run from the start on, or nobody saw when its thread could."""
    calls, waits = waiting(20, reason, 10 * MS)
    assert rule in found(calls, off_cpu=waits)
    waits[7]["wake_time_ns"] = waits[7]["begin_time_ns"] if seen else UNKNOWN_I64
    assert rule not in found(calls, off_cpu=waits)


def fill(pages: int, used: int, why: str = "ahead") -> Row:
    """A run of pages."""
    return {"task": 0, "file": 0, "pages": pages, "page_bytes": PAGE, "why": FILL_REASON.index(why), "used_pages": used}


def reads(number: int, cache: int, *, missed: int = 0, step: int = 1, size: int = PAGE, wait_ns: int = 0) -> list[Row]:
    """Reads of one size, in the file's order with ``step`` 1."""
    told = {"cache": cache, "cache_missed_pages": missed, "cache_ahead_pages": 0, "cache_wait_ns": wait_ns}
    return [
        {"call": READ, "begin_time_ns": index * MS, "end_time_ns": index * MS + max(wait_ns, 500), **told}
        | {"bytes_result": size, "bytes_request": size, "offset_bytes": index * step * size}
        for index in range(number)
    ]


def test_wasted_read_ahead(found: Any) -> None:
    """4 MiB, and half of what was read from the disk."""
    finding = found(reads(10, HIT), fills=[fill(1024, 0)])["wasted-read-ahead"]
    assert (finding.subject, finding.rows, finding.cost_ns) == ("/data/f", 10, None)
    assert finding.evidence == {"unused_bytes": 1024 * PAGE, "ahead_bytes": 1024 * PAGE, "reads": 10}
    assert "wasted-read-ahead" not in found(reads(10, HIT), fills=[fill(1024, 1)])
    assert "wasted-read-ahead" not in found(reads(1, MISS, missed=1025), fills=[fill(1024, 0)])
    assert "wasted-read-ahead" not in found(reads(10, HIT), fills=[fill(1024, 0, "write")])


def test_rereads_that_read_ahead_are_fetched(found: Any) -> None:
    """32 MiB were read ahead for reads of 16 MiB, which had no request of their own; not 1 page less."""
    of_file = reads(4096, HIT)
    finding = found(of_file, fills=[fill(8192, 0)])["uncached-rereads"]
    assert finding.evidence == {"device_bytes": 32 << 20, "extent_bytes": 16 << 20, "again_bytes": 16 << 20}
    assert "uncached-rereads" not in found(of_file, fills=[fill(8191, 0)])


def late(number: int, call: int, each_ns: int, **more: Any) -> tuple[list[Row], list[Row]]:
    """Calls one after the other that are woken after this time, and then wait as long for a CPU."""
    calls, stretches = [], []
    for index in range(number):
        begin = index * 3 * each_ns
        times = {"begin_time_ns": begin, "end_time_ns": begin + 2 * each_ns}
        calls.append({"call": call, **times, "bytes_request": PAGE, "bytes_result": PAGE, **more})
        stretches.append({"task": 0, **times, "wake_time_ns": begin + each_ns, "state": 2})
    return calls, stretches


@pytest.mark.parametrize(
    ("rule", "call", "handle"),
    [("sync-per-write", WRITE, SYNCED), ("sync-bound", len(tablemaker.CALLS), UNKNOWN_U32)],
)
def test_waits_for_a_cpu_are_no_fault_of_syncs(found: Any, rule: str, call: int, handle: int) -> None:
    """20 syncs that took 200 ms, of which threads waited for the disk for 100 ms; 1 ns less is too little."""
    calls, stretches = late(20, call, 5 * MS, handle=handle)
    assert found(calls, off_cpu=stretches)[rule].cost_ns == 100 * MS
    calls, stretches = late(20, call, 5 * MS - 1, handle=handle)
    assert rule not in found(calls, off_cpu=stretches)


@pytest.mark.parametrize(
    ("rule", "number", "each_ns", "more"),
    [
        ("file-lock-wait", 1, 100 * MS, {"call": len(tablemaker.CALLS) + 1}),
        ("missing-files", 1000, 10_000, {"call": tablemaker.OPENAT, "handle": UNKNOWN_U32, "error": errno.ENOENT}),
        ("many-small-writes", 1000, 10_000, {"call": WRITE, "bytes_request": 100, "bytes_result": 100}),
    ],
)
def test_waits_for_a_cpu_cost_no_file(found: Any, rule: str, number: int, each_ns: int, more: Row) -> None:
    """Only the time until the wakeup counts; 1 ns less each is too little."""
    for least, rules in ((each_ns, {rule}), (each_ns - 1, set())):
        calls, stretches = late(number, WRITE, least)
        calls = [{**call, "offset_bytes": 100 * index, **more} for index, call in enumerate(calls)]
        findings = found(calls, off_cpu=stretches)
        assert findings.keys() == rules
        assert all(finding.cost_ns == number * least for finding in findings.values())


def test_accesses_one_at_a_time_that_wait_for_a_cpu(found: Any) -> None:
    """Their requests explain the wait until the wakeup alone."""
    calls, stretches = late(101, READ, MS)
    calls = [{**call, "offset_bytes": (index * 7919 % 101) << 20} for index, call in enumerate(calls)]
    requests = [
        {"id": 10**6 + index, "task": 0, "device": 8 << 20, "issue_time_ns": row["begin_time_ns"]}
        | {"complete_time_ns": row["wake_time_ns"]}
        for index, row in enumerate(stretches)
    ]
    finding = found(calls, off_cpu=stretches, requests=requests)["one-at-a-time"]
    assert (finding.evidence["accesses"], finding.cost_ns) == (100, 100 * MS)  # it is unknown whether the first jumps


def test_faults_one_by_one(found: Any) -> None:
    """100 faults that needed I/O, and a tenth of the recording; those inside of other calls do not count."""

    def faults(number: int, each_ns: int, **more: Any) -> list[Row]:
        times = [(index * 2 * MS, index * 2 * MS + each_ns) for index in range(number)]
        return [
            {"task": 0, "file": 0, "inside": 0, "begin_time_ns": begin, "end_time_ns": end, "operation": index + 1}
            | {"address": index << 12, "offset_bytes": index << 12}
            | more
            for index, (begin, end) in enumerate(times)
        ]

    finding = found([], faults=faults(100, MS))["faults-one-by-one"]
    assert (finding.subject, finding.rows, finding.cost_ns, finding.share) == ("/data/f", 100, 100 * MS, 0.1)
    assert finding.evidence == {"faults": 100, "fault_ns": 100 * MS}
    for others in (faults(99, 2 * MS), faults(100, MS - 1), faults(100, MS, inside=1), faults(100, MS, file=2**32 - 1)):
        assert "faults-one-by-one" not in found([], faults=others)


def test_no_read_ahead(found: Any) -> None:
    """100 reads that missed, nine of ten in the file's order, small, and little read ahead."""
    fills = [fill(100, 100, "demand")]
    finding = found(reads(100, MISS, missed=1, wait_ns=MS), fills=fills)["no-read-ahead"]
    assert (finding.subject, finding.rows, finding.cost_ns) == ("/data/f", 100, 100 * MS)
    sizes = {"missed_bytes": 100 * PAGE, "ahead_bytes": 0}
    assert finding.evidence == {"misses": 100, "reads": 100, "consecutive": 99, **sizes}
    assert "gaps" not in finding.text
    strided = found(reads(100, MISS, missed=1, wait_ns=MS, step=2), fills=fills)["no-read-ahead"]
    assert (strided.evidence["consecutive"], strided.text.rpartition(": ")[2]) == (0, "these reads leave gaps")
    for others in (
        reads(99, MISS, missed=1, wait_ns=MS + MS // 10),
        reads(100, MISS, missed=1, wait_ns=MS - 1),
        reads(100, MISS, missed=1, wait_ns=MS, step=99),
        reads(100, MISS, missed=17, wait_ns=MS, size=17 * PAGE),
        reads(100, HIT, wait_ns=MS),
    ):
        assert "no-read-ahead" not in found(others, fills=fills)
    assert "no-read-ahead" not in found(reads(100, MISS, missed=1, wait_ns=MS), fills=[fill(100, 100)])
