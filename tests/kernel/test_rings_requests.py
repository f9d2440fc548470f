"""Requests of io_uring: the table agrees with the program's account of each, scenario by scenario."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from workloads.rings import GROUP, GROUPS, differences

if TYPE_CHECKING:
    from collections.abc import Callable

    from workloads.rings import Row, Run

pytestmark = pytest.mark.requires("root", "tracefs", "events", "gcc", "losetup", "io_uring:io_uring_complete")


@pytest.mark.parametrize("scenario", [name for names in GROUPS.values() for name in names])
def test_requests_are_as_the_program_says(scenario: str, rings: Callable[[str], Run]) -> None:
    """Every request has one row, which agrees with the program field by field."""
    run = rings(GROUP[scenario])
    pairs = run.requests(scenario)
    assert pairs
    assert [line for truth, row in pairs for line in differences(run, truth, row)] == []


@pytest.mark.parametrize("group", GROUPS)
def test_ids_are_unique(group: str, rings: Callable[[str], Run]) -> None:
    """No two requests share an id, nor does one with a call or a block request."""
    trace = rings(group).recorded.trace
    ids = [row["id"] for table in ("operations", "requests", "ring_requests") for row in trace.table(table).to_pylist()]
    assert len(set(ids)) == len(ids)


def in_order(row: Row) -> bool:
    """True if the known times of a request are possible."""
    submitted, done = row["submit_time_ns"], row["complete_time_ns"]
    between = [row[f"{name}_time_ns"] for name in ("issue", "punt", "poll_arm", "wake", "work_begin")]
    known = [time for time in between if time is not None]
    inside = all(submitted <= time and (done is None or time <= done) for time in known)
    first = row["issue_time_ns"] is None or all(
        row["issue_time_ns"] <= row[f"{name}_time_ns"]
        for name in ("poll_arm", "wake", "work_begin")
        if row[f"{name}_time_ns"] is not None
    )
    works = (row["work_begin_time_ns"], row["work_end_time_ns"])
    return inside and first and (None in works or works[0] <= works[1])


@pytest.mark.parametrize("group", GROUPS)
def test_times_are_in_order(group: str, rings: Callable[[str], Run]) -> None:
    """Submission, execution, punts, waits and completion of each request follow each other."""
    rows = rings(group).recorded.trace.ring_requests.to_pylist()
    assert [row for row in rows if not in_order(row)] == []


@pytest.mark.parametrize("group", GROUPS)
def test_phases_fill_the_time(group: str, rings: Callable[[str], Run]) -> None:
    """Queued, executing and waiting make up the time from submission to completion, if all are known."""
    known = 0
    for row in rings(group).recorded.trace.ring_requests.to_pylist():
        phases = [row["queued_ns"], row["executing_ns"], row["waiting_ns"]]
        if None in phases or row["complete_time_ns"] is None:
            continue
        known += 1
        assert min(phases) >= 0, row
        assert sum(phases) == row["complete_time_ns"] - row["submit_time_ns"], row
    assert known


def test_paths_wait_where_they_say(rings: Callable[[str], Run]) -> None:
    """A request that waits for a pipe or a timer does so in the phase waiting, for as long as the program made it."""
    for scenario, opcode, least_ns in (("blocked", "READ", 29_000_000), ("timeouts", "TIMEOUT", 9_000_000)):
        run = rings(GROUP[scenario])
        _, row = next(pair for pair in run.requests(scenario) if pair[0]["opcode"] == opcode)
        assert row["complete_time_ns"] - row["submit_time_ns"] >= least_ns
        assert row["waiting_ns"] + row["executing_ns"] >= least_ns * 9 // 10


def test_hashed_writes_are_told(rings: Callable[[str], Run]) -> None:
    """Writes that the kernel gave to a worker itself are hashed by file; those that the program sent are not."""
    for truth, row in rings(GROUP["hashed"]).requests("hashed"):
        sent_by_program = bool(truth["sqe_flags"] & 16)
        assert bool(row["traits"] & 4) == (row["path"] == "worker" and not sent_by_program)


def test_links_that_a_worker_goes_on_with(rings: Callable[[str], Run]) -> None:
    """The first of a chain was handed to a worker, which continued with the others."""
    chain = rings(GROUP["worker-links"]).requests("worker-links")[:4]
    assert [bool(row["traits"] & 64) for _, row in chain] == [False, True, True, True]
    assert [row["nr_punts"] for _, row in chain] == [1, 0, 0, 0]
    assert len({row["worker"] for _, row in chain}) == 1


@pytest.mark.requires("sched:sched_switch", "sched:sched_waking")
def test_workers_wait_as_long_as_the_program_says(rings: Callable[[str], Run]) -> None:
    """A worker that opens a FIFO is blocked until the program opens the other end, which wakes it.

    Then the program keeps the CPU of both for a while, and the worker is ready.
    """
    run = rings("ends")
    least = {}
    for note in run.told("note", "fifo"):
        _, user_data, asleep_ns, ready_ns = note["text"].split()
        least[int(user_data)] = int(asleep_ns), int(ready_ns)
    stretches = run.recorded.trace.table("off_cpu").to_pylist()
    assert len(least) == 3
    for truth, row in run.requests("fifo"):
        mine = [each for each in stretches if each["request"] == row["id"]]
        asleep_ns, ready_ns = least[truth["user_data"]]
        assert row["blocked_ns"] >= asleep_ns
        assert row["run_queue_ns"] >= ready_ns
        assert (
            row["blocked_ns"] + row["run_queue_ns"]
            <= row["executing_ns"]
            <= row["complete_time_ns"] - row["submit_time_ns"]
        )
        longest = max(mine, key=lambda each: each["wake_time_ns"] - each["begin_time_ns"])
        assert (longest["reason"], longest["waker_tid"], longest["operation"]) == ("pipe", truth["tid"], None)


@pytest.mark.requires("sched:sched_switch", "sched:sched_waking")
@pytest.mark.parametrize("group", GROUPS)
def test_only_executions_by_workers_have_parts(group: str, rings: Callable[[str], Run]) -> None:
    """They are known of most where many have been, and of no other request."""
    trace = rings(group).recorded.trace
    worked = {row["id"] for row in trace.table("ring_works").to_pylist() if row["end_time_ns"] is not None}
    known = {row["id"] for row in trace.ring_requests.to_pylist() if row["blocked_ns"] is not None}
    assert known <= worked
    assert len(known) > 0.5 * len(worked) or len(worked) < 10
