"""Rings, the calls that enter them and the threads that work for them: the tables agree with the program."""

from __future__ import annotations

import errno
from collections import Counter, defaultdict
from typing import TYPE_CHECKING

import pytest
from workloads.rings import GROUP, GROUPS, IDENTITY, REGISTERED_RING

if TYPE_CHECKING:
    from collections.abc import Callable

    from workloads.rings import Row, Run

pytestmark = pytest.mark.requires("root", "tracefs", "events", "gcc", "losetup", "io_uring:io_uring_complete")
SCENARIOS = [name for names in GROUPS.values() for name in names]
TORN_DOWN = {"teardown-close", "teardown-exit"}
"""The tracer may or may not see requests that complete while a ring goes; nobody else does."""


def instances(run: Run, scenario: str) -> list[Row]:
    """The program's account of its rings."""
    return [row for row in run.told("ring", scenario) if row["type"] == "io_uring"]


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_rings_are_as_made(scenario: str, rings: Callable[[str], Run]) -> None:
    """Descriptor, sizes, setup flags and maker of each ring, and when it came and went."""
    run = rings(GROUP[scenario])
    for truth in instances(run, scenario):
        row = run.ring_rows[truth["instance"]]
        assert row["kind"] == "io_uring"
        found = {name: row[name] for name in ("fd", "sq_entries", "cq_entries", "flags")}
        assert found == {
            "fd": truth["ring"],
            **{name: truth[name] for name in ("sq_entries", "cq_entries", "flags")},
        }
        assert run.threads[row["task"]]["tid"] == truth["tid"]
        assert row["pid"] == truth["tid"]
        assert row["create_time_ns"] <= row["end_time_ns"]
        handles = {handle["handle"]: handle for handle in run.recorded.trace.handles.to_pylist()}
        assert handles[row["handle"]]["fd"] == truth["ring"]
        assert run.paths[row["handle"]] in {None, "anon_inode:[io_uring]"}


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_ring_totals(scenario: str, rings: Callable[[str], Run]) -> None:
    """Requests, completions, overflows, messages and batches of each ring add up to what the program counted."""
    run = rings(GROUP[scenario])
    for truth in instances(run, scenario):
        row = run.ring_rows[truth["instance"]]
        mine = [item for item in run.truth if item.get("instance") == truth["instance"]]
        requests = [item for item in mine if item["kind"] == "request"]
        messages = sum(item["kind"] == "message" for item in mine)
        assert row["nr_requests"] == len(requests)
        assert row["nr_overflows"] == truth["overflows"]
        assert row["nr_messages"] == messages
        assert row["nr_orphans"] == 0
        assert row["nr_batches"] == sum(item["kind"] == "batch" for item in mine)
        completions = sum(item["cqes"] for item in requests) + messages
        if scenario in TORN_DOWN:
            assert completions <= row["nr_completions"] <= completions + 4
        else:
            assert row["nr_completions"] == completions
        rows = run.request_rows.get(row["ring"], [])
        assert row["nr_punts"] == sum(request["nr_punts"] for request in rows)


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_batches_are_as_called(scenario: str, rings: Callable[[str], Run]) -> None:
    """Each call: its arguments, its result, and how many requests began during it."""
    run = rings(GROUP[scenario])
    for truth in instances(run, scenario):
        sqpoll = bool(truth["flags"] & 2)
        for told, row, operation in run.batches(truth["instance"]):
            assert operation["call"] == told["call"]
            assert operation["result"] == told["result"]
            if not told["flags"] & REGISTERED_RING:
                assert operation["fd"] == told["ring"]
            assert (row["asked"], row["wanted"]) == (told["asked"], told["wanted"])
            assert row["submitted"] == (told["result"] if told["result"] >= 0 else None)
            assert row["collected"] is None
            assert row["nr_requests"] == (0 if sqpoll else told["submitted"])
            slept = row["sleep_time_ns"]
            assert slept is None or operation["begin_time_ns"] <= slept <= operation["end_time_ns"]


def test_sleeping_is_seen(rings: Callable[[str], Run]) -> None:
    """A call that waits for a missing completion sleeps; one whose completions are there does not."""
    run = rings("waits")
    (ring,) = instances(run, "partial-wait")
    slept = [row["sleep_time_ns"] is not None for _, row, _ in run.batches(ring["instance"])]
    assert slept == [True, False]


@pytest.mark.parametrize("group", GROUPS)
def test_works_belong_to_workers(group: str, rings: Callable[[str], Run]) -> None:
    """Each execution by a worker: of a request that went that way, by a thread named after the submitter, in order."""
    run = rings(group)
    requests = {row["id"]: row for rows in run.request_rows.values() for row in rows}
    last: dict[int, int] = defaultdict(int)
    works = run.recorded.trace.table("ring_works").to_pylist()
    for work in works:
        request, worker = requests[work["id"]], run.threads[work["task"]]
        assert (work["ring"], work["opcode"]) == (request["ring"], request["opcode"])
        assert request["path"] in {"worker", "poll"}, request
        assert worker["kind"] == "ring worker"
        assert worker["comm"] == f"iou-wrk-{request['tid']}"
        if work["queue_time_ns"] is not None:
            assert request["submit_time_ns"] <= work["queue_time_ns"] <= work["begin_time_ns"]
        assert last[work["task"]] <= work["begin_time_ns"]
        if work["end_time_ns"] is not None:
            assert work["begin_time_ns"] <= work["end_time_ns"]
            last[work["task"]] = work["end_time_ns"]
    executed = Counter(work["id"] for work in works)
    for row in requests.values():
        assert executed[row["id"]] <= row["nr_punts"] + bool(row["traits"] & 64)
        if row["worker"] is not None:
            assert executed[row["id"]], row


@pytest.mark.parametrize("scenario", ["async", "hashed", "limited", "worker-links"])
def test_every_work_is_known(scenario: str, rings: Callable[[str], Run]) -> None:
    """A request that a worker completes itself has an execution of its own, by that worker."""
    run = rings(GROUP[scenario])
    works = Counter(row["id"] for row in run.recorded.trace.table("ring_works").to_pylist())
    for truth, row in run.requests(scenario):
        if row["path"] == "worker" and truth["result"] >= 0:
            assert works[row["id"]] == 1
            assert run.threads[row["worker"]]["kind"] == "ring worker"


def test_limited_workers(rings: Callable[[str], Run]) -> None:
    """With one worker of each kind allowed, one thread does everything."""
    run = rings(GROUP["limited"])
    pairs = run.requests("limited")
    assert len({row["worker"] for _, row in pairs}) == 1
    (ring,) = instances(run, "limited")
    assert run.ring_rows[ring["instance"]]["nr_punts"] == 6


def test_poller_of_a_ring(rings: Callable[[str], Run]) -> None:
    """The thread of an SQPOLL ring is known as such, with its name, its birth and its death."""
    run = rings(GROUP["sqpoll"])
    (ring,) = instances(run, "sqpoll")
    row = run.ring_rows[ring["instance"]]
    poller = run.threads[row["poller"]]
    assert (poller["kind"], poller["comm"]) == ("ring poller", f"iou-sqp-{ring['tid']}")
    assert poller["start_time_ns"] <= row["create_time_ns"]
    assert poller["exit_time_ns"] is not None


@pytest.mark.parametrize("group", GROUPS)
def test_states_of_rings(group: str, rings: Callable[[str], Run]) -> None:
    """In flight never below zero, and nothing at the end; the peak is the ring's; the bounds are bounds."""
    run = rings(group)
    rows = sorted(run.recorded.trace.table("ring_states").to_pylist(), key=lambda row: row["time_ns"])
    last: dict[int, Row] = {}
    most: Counter[int] = Counter()
    entries = {row["ring"]: row["cq_entries"] for row in run.ring_rows.values()}
    for row in rows:
        assert row["punted"] <= row["in_flight"] < 1 << 31
        if row["cq_least"] is not None:
            assert row["cq_least"] <= row["cq_most"] <= entries[row["ring"]]
        most[row["ring"]] = max(most[row["ring"]], row["in_flight"])
        last[row["ring"]] = row
    for row in run.ring_rows.values():
        if row["kind"] != "io_uring" or not row["nr_requests"]:
            continue
        assert most[row["ring"]] == row["most_in_flight"]
        end = last[row["ring"]]
        if group != "exit":
            assert (end["in_flight"], end["workers"], end["cq_least"]) == (0, 0, 0), row
        torn_down = any(request["error"] == errno.ECANCELED for request in run.request_rows[row["ring"]])
        assert end["time_ns"] <= row["end_time_ns"] or torn_down, row


def test_full_queue_is_exact(rings: Callable[[str], Run]) -> None:
    """At an overflow both bounds of the queue's filling are its size."""
    run = rings(GROUP["overflow"])
    (truth,) = instances(run, "overflow")
    ring = run.ring_rows[truth["instance"]]["ring"]
    states = [row for row in run.recorded.trace.table("ring_states").to_pylist() if row["ring"] == ring]
    assert any((row["cq_least"], row["cq_most"]) == (4, 4) for row in states)


def test_identity_is_certain(rings: Callable[[str], Run]) -> None:
    """If the kernel names requests by address, no completion was matched by order."""
    rows = rings("files").recorded.trace.ring_requests.to_pylist()
    assert not any(row["inferred"] & IDENTITY for row in rows)
