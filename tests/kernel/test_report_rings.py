"""The report about rings agrees with the program: counts by ring, opcode and path, batches, broken chains."""

from __future__ import annotations

import dataclasses
import json
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
from workloads.rings import GROUP, GROUPS, choice
from workloads.served import lo2io

from lo2io.convert.convert import convert
from lo2io.reports.summary.summary import summarize
from lo2io.trace.reader import open_trace

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from workloads.rings import Row, Run

    from lo2io.reports.rings.summary import RingRow, RingsSummary

pytestmark = pytest.mark.requires("root", "tracefs", "events", "gcc", "losetup", "io_uring:io_uring_complete")
EXACT = [group for group in GROUPS if group != GROUP["teardown-exit"]]
"""Of requests torn down with a process, nobody knows which ones the kernel still completes."""


def summary_of(run: Run) -> RingsSummary:
    """The part about rings."""
    found = summarize(run.recorded.trace).rings
    assert found is not None
    return found


def told(run: Run, row: RingRow) -> tuple[Row, list[Row]]:
    """The program's account of a ring and of its requests."""
    (instance,) = (instance for instance, ring in run.ring_rows.items() if ring["ring"] == row.ring)
    (ring,) = (ring for ring in run.told("ring") if ring["instance"] == instance)
    requests = [truth for truth in run.told("request") if truth["instance"] == instance]
    return ring, [truth for truth in requests if truth["status"] != "before"]


def named(truth: Row) -> str:
    """Its opcode in the tables' words."""
    return f"opcode {truth['opcode_number']}" if truth["opcode"] == "INVALID" else str(truth["opcode"])


@pytest.mark.parametrize("group", EXACT)
def test_requests_by_ring_and_opcode(group: str, rings: Callable[[str], Run]) -> None:
    """Every request of every ring is in one row, with its errors, and the ring's own totals agree."""
    run = rings(group)
    summary = summary_of(run)
    listed = [row for row in summary.rings if row.kind == "io_uring"]
    assert listed
    for row in listed:
        ring, requests = told(run, row)
        assert (row.fd, row.sq_entries, row.cq_entries) == (ring["ring"], ring["sq_entries"], ring["cq_entries"])
        counts: Counter[str] = Counter()
        for opcode in row.opcodes:
            counts[opcode.opcode] += opcode.requests
        assert counts == Counter(named(truth) for truth in requests)
        assert (row.requests, row.written, row.overflows) == (len(requests), len(requests), ring["overflows"])
        seen = [truth for truth in requests if "result" in truth]
        if len(seen) == len(requests):
            assert row.errors == sum(truth["result"] < 0 for truth in seen)
    everything = [truth for truth in run.told("request") if truth["status"] != "before"]
    assert summary.written == len(everything)


@pytest.mark.parametrize("group", EXACT)
def test_ways(group: str, rings: Callable[[str], Run]) -> None:
    """If the program knows the only possible path of a request, the report has it."""
    run = rings(group)
    for row in summary_of(run).rings:
        if row.kind != "io_uring":
            continue
        _, requests = told(run, row)
        least = Counter(truth["path"] for truth in requests if isinstance(truth.get("path"), str))
        allowed: Counter[str] = Counter()
        for truth in requests:
            allowed.update(choice(truth["path"]) if "path" in truth else {path.path for path in row.paths})
        for path in row.paths:
            if path.path != "unknown":  # the path of a request whose end is not seen
                assert least[path.path] <= path.requests + sum(p.requests for p in row.paths if p.path == "unknown")
                assert path.requests <= allowed[path.path]
        assert sum(path.requests for path in row.paths) == len(requests)


@pytest.mark.parametrize("group", EXACT)
def test_batches(group: str, rings: Callable[[str], Run]) -> None:
    """Calls on each ring, and how many requests the submitting ones have submitted."""
    run = rings(group)
    for row in summary_of(run).rings:
        if row.kind is None:
            continue
        (instance,) = (instance for instance, ring in run.ring_rows.items() if ring["ring"] == row.ring)
        calls = [batch for batch in run.told("batch") if batch["instance"] == instance]
        submitting = [
            c for c in calls if c["call"] in {"io_uring_enter", "io_submit"} and c["asked"] and c["result"] >= 0
        ]
        assert row.batches.calls == len(calls)
        assert (row.batches.submitting, row.batches.submitted) == (
            len(submitting),
            sum(call["result"] for call in submitting),
        )
        assert sum(size.calls for size in row.batches.sizes) == len(submitting)


def test_broken_chains_and_refusals(rings: Callable[[str], Run]) -> None:
    """Victims are counted by their culprit's opcode and error, refused requests by their own."""
    run = rings(GROUP["broken-chain"])
    victims = [truth for truth in run.told("request", "broken-chain") if truth["culprit"] is not None]
    by_user_data = {truth["user_data"]: truth for truth in run.told("request", "broken-chain")}
    culprits = {truth["culprit"] for truth in victims}
    assert victims
    rows = [row for row in summary_of(run).rings if told(run, row)[0]["scenario"] == "broken-chain"]
    broken = [link for row in rows for link in row.broken_links]
    assert (sum(link.ended for link in broken), sum(link.culprits for link in broken)) == (len(victims), len(culprits))
    assert {link.opcode for link in broken} == {by_user_data[culprit]["opcode"] for culprit in culprits}
    run = rings(GROUP["refused"])
    refused = [truth for truth in run.told("request", "refused") if truth["status"] == "refused"]
    rows = [row for row in summary_of(run).rings if told(run, row)[0]["scenario"] == "refused"]
    ends: Counter[str] = Counter()
    for end in (end for row in rows for end in row.ends if end.status == "refused"):
        ends[end.opcode] += end.requests
    assert ends == Counter(named(truth) for truth in refused)


def test_report_of_the_command_line(rings: Callable[[str], Run]) -> None:
    """Text and JSON say the same of the workers."""
    run = rings(GROUP["hashed"])
    trace = str(run.recorded.trace.path)
    document = json.loads(lo2io("report", trace, "--json", check=True).stdout)
    text = lo2io("report", trace, "--full", check=True).stdout
    summary = summary_of(run)
    assert document["rings"] == json.loads(json.dumps(dataclasses.asdict(summary)))
    assert f"{summary.requests:,} requests on {summary.nr_rings} rings" in text
    assert "why on workers: " in text
    on_workers = sum(row.requests for ring in summary.rings for row in ring.punted)
    assert on_workers == sum(row["path"] == "worker" or row["nr_punts"] > 0 for row in rows_of(run))


def rows_of(run: Run) -> list[dict[str, Any]]:
    """All requests of the trace."""
    return [row for rows in run.request_rows.values() for row in rows]


@pytest.mark.requires("events")
def test_a_sample_is_whole_and_its_totals_exact(tmp_path: Path) -> None:
    """Each rate selects other requests of a recording, each with all its rows; rings count all of them."""
    from workloads.build import build  # noqa: PLC0415
    from workloads.record import record  # noqa: PLC0415

    command = [build("rings"), "--dir", tmp_path, "--truth", tmp_path / "truth", "nop", "cached", "hashed"]
    recorded = record(tmp_path / "T", command, "-e", "syscalls,io_uring", "--keep-spool", attempts=5)
    everything = {row["id"]: row for row in recorded.trace.ring_requests.to_pylist()}
    works = recorded.trace.table("ring_works").to_pylist()
    rings = recorded.trace.rings.to_pylist()
    for rate in (2, 3, 7):
        converted = convert(tmp_path / "T/spool", tmp_path / f"S{rate}", sample_rate=rate)
        trace = open_trace(tmp_path / f"S{rate}")
        rows = {row["id"]: row for row in trace.ring_requests.to_pylist()}
        assert 0 < len(rows) < len(everything)
        assert rows == {key: everything[key] for key in rows}
        assert trace.rings.to_pylist() == rings
        assert trace.table("ring_works").to_pylist() == [work for work in works if work["id"] in rows]
        assert trace.table("batches") == recorded.trace.table("batches")
        assert trace.table("ring_states") == recorded.trace.table("ring_states")
        words = f"sampled: 1 in {rate} of {len(everything)} requests of rings written"
        assert converted.sampled == words
        assert words in lo2io("report", trace.path, check=True).stdout
