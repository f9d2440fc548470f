"""Curves of rings: their states at turning points, and how much each call submits or collects."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from build.otf2_batches import META, OPCODE, SYSTEM, BatchMaker
from build.otf2_written import Written, verified
from otf2.enums import LocationGroupType, LocationType, MetricMode, MetricOccurrence, RecorderKind, Type

from lo2io.model import UNKNOWN_U32

Write = Any
T = 2_000_000
STATES, BATCHES = (f"{what} of ring 0: io_uring fd 5 of process 100" for what in ("states", "batches"))
MS = 1_000_000


def points(written: Written, location: str) -> list[tuple[int, dict[str, int]]]:
    """Time since T and values by name of each metric event."""
    found = []
    for event in written.find("Metric", location):
        names = [member.name for member in event.metric.metric_class.members]
        found.append((event.time - T, dict(zip(names, event.values, strict=True))))
    return found


@pytest.fixture
def ring(before: BatchMaker) -> BatchMaker:
    """A thread with ring 0 on fd 5."""
    before.row("rings", ring=0, sq_entries=8, cq_entries=16, flags=2)
    return before


@pytest.mark.parametrize("meta", [META, SYSTEM], ids=["process", "system"])
def test_states(ring: BatchMaker, write: Write, meta: Any) -> None:
    """In either mode: load and the bounds of the completion queue from each turning point on."""
    ring.call("io_uring_enter", T, T + 9)
    state = {"in_flight": 5, "punted": 2, "workers": 1, "cq_least": 3, "cq_most": 4}
    ring.row("ring_states", time_ns=T + 1, ring=0, **state)
    ring.row("ring_states", time_ns=T + 7, ring=0, **{**dict.fromkeys(state, 0), "workers": 1})
    written = verified(write(ring.make(), meta=meta), "trace.no-io")
    load = {"requests in flight": 5, "requests handed to workers": 2, "worker threads": 1}
    fill = {"completion queue, at least": 3, "completion queue, at most": 4}
    none = {"requests in flight": 0, "requests handed to workers": 0, "worker threads": 1}
    assert points(written, STATES) == [(1, load), (1, fill), (7, none), (7, dict.fromkeys(fill, 0))]


def test_fill_nobody_knows_is_not_written(ring: BatchMaker, write: Write) -> None:
    """The rest is."""
    ring.row("ring_states", time_ns=T, ring=0, in_flight=1, cq_least=UNKNOWN_U32, cq_most=UNKNOWN_U32)
    written = verified(write(ring.make()), "trace.no-io")
    assert [list(values) for _, values in points(written, STATES)] == [
        ["requests in flight", "requests handed to workers", "worker threads"]
    ]


def test_definitions_of_the_curves(ring: BatchMaker, write: Write) -> None:
    """Asynchronous, on locations of metrics in the group of the ring's process, which they are about."""
    ring.row("ring_states", time_ns=T, ring=0, in_flight=1)
    number = ring.call("io_uring_enter", T, T + 9)
    ring.row("batches", id=number, ring=0, asked=8, submitted=8)
    written = verified(write(ring.make()), "trace.no-io")
    (load, fill), (size,) = (
        [event.metric for event in written.find("Metric", location)] for location in (STATES, BATCHES)
    )
    following, point = MetricMode.ABSOLUTE_NEXT, MetricMode.ABSOLUTE_POINT
    for metric, mode in ((load, following), (fill, following), (size, point)):
        kinds = metric.metric_class
        assert (kinds.occurrence, kinds.recorder_kind) == (MetricOccurrence.ASYNCHRONOUS, RecorderKind.ABSTRACT)
        assert {member.metric_mode for member in kinds.members} == {mode}
        assert {(member.value_type, member.unit) for member in kinds.members} == {(Type.UINT64, "#")}
        assert metric.scope.name == "fio [100]"
        assert (metric.recorder.type, metric.recorder.group.name) == (LocationType.METRIC, "fio [100]")
    named = {
        item.name: item.value for item in written.definitions.location_properties if item.location is load.recorder
    }
    assert named == {
        "lo2io ring": 0,
        "Submission queue entries": 8,
        "Completion queue entries": 16,
        "Setup flags": 2,
    }


def test_ring_of_a_process_without_calls(ring: BatchMaker, write: Write) -> None:
    """No group of a process is there for it: those of all such rings lie together."""
    ring.call("newfstat", T, T + 1)
    for number in (1, 2):
        ring.row("rings", ring=number, process=77, pid=700, fd=-1)
        ring.row("ring_states", time_ns=T, ring=number, in_flight=1)
    ring.row("ring_states", time_ns=T, ring=3, in_flight=1)
    written = verified(write(ring.make()), "trace.no-io")
    (group,) = (group for group in written.definitions.location_groups if group.name == "other rings")
    assert group.location_group_type == LocationGroupType.UNKNOWN
    assert {location.name for location in written.definitions.locations if location.group is group} == {
        "states of ring 1: io_uring of process 700",
        "states of ring 2: io_uring of process 700",
        "states of ring 3",
    }


def test_batch_sizes(ring: BatchMaker, write: Write) -> None:
    """A point where each call that submits ends; one that only waits, failed or has not returned is none."""
    for number, (asked, submitted) in enumerate(((8, 8), (0, 0), (4, 1), (3, -1), (2, 0))):
        begin = T + 10 * number
        ring.row("batches", id=ring.call("io_uring_enter", begin, begin + 5), ring=0, asked=asked, submitted=submitted)
    ring.row("batches", id=ring.call("io_uring_enter", T + 60, None), ring=0, asked=7)
    written = verified(write(ring.make()), "trace.no-io")
    assert points(written, BATCHES) == [(time, {"batch size": size}) for time, size in ((5, 8), (25, 1), (45, 0))]


def test_batches_of_libaio(ring: BatchMaker, write: Write) -> None:
    """io_submit's submissions and io_getevents' results are two curves of one location."""
    ring.row("rings", ring=1, kind=1, context=0x7F00, fd=-1)
    ring.row("batches", id=ring.call("io_submit", T, T + 5), ring=1, asked=4, submitted=3)
    ring.row("batches", id=ring.call("io_getevents", T + 6, T + 8), ring=1, asked=64, collected=2)
    ring.row("batches", id=ring.call("io_getevents", T + 9, T + 10, error=4), ring=1, asked=64)
    written = verified(write(ring.make()), "trace.no-io")
    place = "batches of ring 1: libaio context 0x7f00 of process 100"
    assert points(written, place) == [(5, {"batch size": 3}), (8, {"events collected": 2})]


@pytest.mark.parametrize("rate", [1, 10])
def test_what_requests_move_counts_for_their_process(ring: BatchMaker, write: Write, rate: int) -> None:
    """Like calls' bytes, also before a failure. For a sample of requests, no sum is true, so only calls count."""
    moved = {"WRITE": (1000, 0), "SPLICE": (100, 0), "READ": (20, 0), "NOP": (5, 0), "FSYNC": (5, 0)}
    for number, (opcode, (size, error)) in enumerate((*moved.items(), ("READ", (7, 5)))):
        for kind in range(3):
            columns = {"opcode": OPCODE[opcode], "bytes": size, "error": error}
            ring.ring_event(501 + 2 * number, kind, T + number, **columns)
    ring.call("read", T + 50, T + 60, handle=0, bytes_request=3, bytes_result=3)
    written = verified(write(ring.make(), meta=replace(SYSTEM, start_ns=MS, sample_rate=rate)))
    rates = [values for _, values in points(written, "metrics of process 100")]
    read, wrote = (127 + 3, 1100) if rate == 1 else (3, 0)
    per_second = 1e9 / (9 * MS - MS)  # the trace is shorter than an interval
    assert rates[-1] == pytest.approx(
        {"bytes read per second": read * per_second, "bytes written per second": wrote * per_second}
    )
