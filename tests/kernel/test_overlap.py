"""I/O beside computing, against a workload that times its phases by its own clocks."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from workloads import overlapped
from workloads.record import record

from lo2io.reports.summary.summary import summarize

if TYPE_CHECKING:
    from lo2io.reports.summary.overlap import Overlap
    from lo2io.reports.summary.summary import Summary

pytestmark = [
    pytest.mark.requires("root", "tracefs", "events", "sched:sched_switch", "sched:sched_waking"),
    pytest.mark.usefixtures("busy_cpus"),
]


def overlap_of(summary: Summary, who: str | int) -> Overlap:
    """That of the process with this name or pid."""
    (found,) = [row.overlap for row in summary.processes if who in {row.comm, row.pid}]
    assert found is not None, summary.overlap_unknown
    assert found.io_ns == found.overlapped_ns + found.unoverlapped_ns + found.unknown_ns
    return found


def test_computing_is_told_from_waiting(tmp_path: Path) -> None:
    """A process with one thread overlaps nothing. What overlaps with a second thread lies within its own times."""
    told, program = tmp_path / "told.json", Path(overlapped.__file__)
    script = (
        f"dd if=/dev/zero of={tmp_path}/dd bs=64k count=20 oflag=dsync status=none;"
        f" {sys.executable} -S {program} {tmp_path}/file >{told}"
    )
    run = record(tmp_path / "T", ["sh", "-c", script], attempts=3)
    summary, facts = summarize(run.trace), json.loads(told.read_text())
    alone = overlap_of(summary, "dd")
    assert 0 < alone.io_ns == alone.unoverlapped_ns

    begin, end = facts["beside"]
    calls = [call for call in run.calls("pwrite64", "fsync") if call["tid"] == facts["pid"]]
    spans = [(call["begin_time_ns"], call["end_time_ns"]) for call in calls]
    before, after = (s for s in spans if s[1] <= begin), (s for s in spans if s[0] >= end)
    alone_ns = sum(last - first for first, last in (*before, *after))
    beside_ns = sum(last - first for first, last in spans if first >= begin and last <= end)
    found = overlap_of(summary, facts["pid"])
    assert found.unoverlapped_ns >= alone_ns > 0
    # The least may be too small by the interrupts in the threads' calls (docs/explanation/rules/overlap.md). A busy
    # machine has many, so the least is held to a half. The truth must lie between the least and the most.
    least_ns = facts["computed_ns"] - (end - begin - beside_ns)
    assert least_ns / 2 <= found.overlapped_ns <= beside_ns
    assert least_ns <= found.overlapped_ns + found.unknown_ns
