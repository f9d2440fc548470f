"""Curves of a trace: queue depth at each change, rates of each interval in which something happened."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from build.otf2_batches import SYSTEM, BatchMaker, complete
from otf2.enums import (
    Base,
    LocationGroupType,
    LocationType,
    MetricMode,
    MetricOccurrence,
    RecorderKind,
    Type,
)

from lo2io.model import UNKNOWN_I64, RequestOp, Totals, TraceEnd

if TYPE_CHECKING:
    from build.otf2_written import Written

Write = Any
MS = 1_000_000
START = 5 * MS
"""Intervals begin here, not at a round number."""
STEP = 100 * MS
META = replace(SYSTEM, start_ns=START)
VDA = "vda metrics"
PROCESS = "metrics of process 100"


def at(interval: float) -> int:
    """A time, in intervals from the start."""
    return START + round(interval * STEP)


def finish(interval: float) -> TraceEnd:
    """The trace's end."""
    return TraceEnd(START, at(interval), complete(), Totals())


def curve(written: Written, location: str, name: str) -> list[tuple[float, float]]:
    """Time in intervals and value of each point."""
    points = []
    for event in written.find("Metric", location):
        members = [member.name for member in event.metric.metric_class.members]
        if name in members:
            points.append(((event.time - START) / STEP, event.values[members.index(name)]))
    return points


def test_queue_depth_at_each_change(maker: BatchMaker, write: Write) -> None:
    """Issued and not completed; what waits in the scheduler is not at the device."""
    maker.request(1001, at(0.1), at(0.3), at(0.6))
    maker.request(1003, at(0.2), at(0.4), at(0.5))
    maker.request(1005, None, at(0.45), None)
    maker.sort_requests()
    written = write(maker.make(), meta=META, end=finish(1))
    assert curve(written, VDA, "queue depth") == [(0.3, 1), (0.4, 2), (0.45, 3), (0.5, 2), (0.6, 1)]


def test_an_end_that_nobody_saw_takes_its_request_out_of_the_queue(maker: BatchMaker, write: Write) -> None:
    """At its latest moment; it has no latency and no CPU, so there is neither a rate nor a sample of it."""
    maker.request(1001, None, at(0.1), None)
    maker.row(
        "request_events", kind=4, id=1001, time_ns=at(0.6), device=254 << 20, issue_time_ns=at(0.1), cpu=2**16 - 1
    )
    written = write(maker.make(), meta=META, end=finish(1))
    assert curve(written, VDA, "queue depth") == [(0.1, 1), (0.6, 0)]
    assert {value for _, value in curve(written, VDA, "latency")} <= {0}
    assert not [location for location in written.definitions.locations if "65535" in location.name]


def test_merged_request_never_reached_the_device(maker: BatchMaker, write: Write) -> None:
    """Its issue and cancellation exist for OTF2 only; one that was requeued before did, and is gone now."""
    row = {"device": 254 << 20, "operation": 1, "pid": 100, "tid": 100, "insert_time_ns": at(0.1)}
    maker.request(1001, at(0.1), None, None)
    for kind in (1, 3):
        maker.row("request_events", id=1001, kind=kind, time_ns=at(0.2), **row)
    maker.request(1003, at(0.3), at(0.4), None)
    maker.row("request_events", id=1003, kind=3, time_ns=at(0.5), issue_time_ns=at(0.4), **row)
    written = write(maker.make(), meta=META, end=finish(1))
    assert curve(written, VDA, "queue depth") == [(0.4, 1), (0.5, 0)]


def test_rates_of_one_interval(maker: BatchMaker, write: Write) -> None:
    """Counts and bytes of what completed, times ten; the mean latency in ns; 0 at the beginning and after."""
    maker.request(1001, None, at(0.1), at(0.1) + 300, operation=RequestOp.READ)
    maker.request(1003, None, at(0.2), at(0.2) + 500, operation=RequestOp.READ, bytes=512)
    maker.request(1005, None, at(0.3), at(0.3) + 700)
    maker.request(1007, None, at(0.4), at(0.4) + 900, operation=RequestOp.FLUSH, bytes=0)
    written = write(maker.make(), meta=META, end=finish(5))
    assert curve(written, VDA, "reads per second") == [(0, 0), (1, 20), (2, 0)]
    assert curve(written, VDA, "writes per second") == [(0, 0), (1, 10), (2, 0)]
    assert curve(written, VDA, "bytes read per second") == [(0, 0), (1, 46080), (2, 0)]
    assert curve(written, VDA, "bytes written per second") == [(0, 0), (1, 40960), (2, 0)]
    assert curve(written, VDA, "device latency") == [(0, 0), (1, 600), (2, 0)]


def test_idle_intervals_are_not_written(maker: BatchMaker, write: Write) -> None:
    """A gap has a 0 where it begins and one where it ends, however long it is; neighbours have none between."""
    for number, when in enumerate((2.5, 3.5, 5.5, 1000.5)):
        maker.request(1001 + 2 * number, None, at(when), at(when) + 5)
    written = write(maker.make(), meta=META, end=finish(5000))
    assert curve(written, VDA, "writes per second") == [
        (2, 0),
        (3, 10),
        (4, 10),
        (5, 0),
        (6, 10),
        (7, 0),
        (1000, 0),
        (1001, 10),
        (1002, 0),
    ]


def test_intervals_begin_with_the_trace(maker: BatchMaker, write: Write) -> None:
    """Not at multiples of their length; earlier events count for the first one."""
    for number, when in enumerate((-0.02, 0.97, 1.02)):
        maker.request(1001 + 2 * number, None, at(when), at(when) + 5)
    written = write(maker.make(), meta=META, end=finish(3))
    assert curve(written, VDA, "writes per second") == [(-0.02, 0), (1, 20), (2, 10), (3, 0)]
    assert "LO2IO::MOVED_EVENTS\nProperty value                 0" in written.printed("-I")


def test_last_interval_is_as_long_as_it_is(maker: BatchMaker, write: Write) -> None:
    """The trace ends in its midst: the rate is over what there was of it, and no point lies after the end."""
    maker.request(1001, None, at(0.1), at(0.1) + 5)
    written = write(maker.make(), meta=META, end=finish(0.5))
    assert curve(written, VDA, "writes per second") == [(0, 0), (0.5, 20)]
    assert written.definitions.clock_properties.trace_length == STEP // 2


def test_trace_that_ends_at_its_only_event(maker: BatchMaker, write: Write) -> None:
    """No time to divide by: as if the interval had been whole."""
    maker.request(1001, None, START, START)
    written = write(maker.make(), meta=META, end=finish(0))
    assert curve(written, VDA, "writes per second") == [(0, 0), (0, 10)]


def test_short_rest_after_the_last_interval(maker: BatchMaker, write: Write) -> None:
    """The 0 after comes at the trace's end if that is sooner than an interval."""
    maker.request(1001, None, at(0.1), at(0.1) + 5)
    written = write(maker.make(), meta=META, end=finish(1.25))
    assert curve(written, VDA, "writes per second") == [(0, 0), (1, 10), (1.25, 0)]


def test_interval_that_the_clock_cuts_off(maker: BatchMaker, write: Write) -> None:
    """Damaged times lie anywhere: no interval ends after the last that there is, and none of its points moves."""
    highest = 2**63 - 1
    maker.request(1001, None, at(0.1), highest)
    written = write(maker.make(), meta=META, end=TraceEnd(START, highest, complete(), Totals()))
    begin = highest - (highest - START) % STEP
    times = [event.time for event in written.find("Metric", VDA)]
    assert times[-2:] == [highest, highest]
    assert curve(written, VDA, "writes per second")[-1][1] == pytest.approx(1e9 / (highest - begin))
    assert "LO2IO::MOVED_EVENTS\nProperty value                 0" in written.printed("-I")


def test_request_issued_before_it_completes(maker: BatchMaker, write: Write) -> None:
    """The issue alone makes an interval one in which something happened: of rates of 0."""
    maker.request(1001, None, at(0.5), at(1.5))
    written = write(maker.make(), meta=META, end=finish(4))
    assert curve(written, VDA, "writes per second") == [(0, 0), (1, 0), (2, 10), (3, 0)]
    assert curve(written, VDA, "device latency")[2] == (2, STEP)


def test_devices_have_curves_of_their_own(maker: BatchMaker, write: Write) -> None:
    """Under "block devices", next to the requests where these are operations."""
    maker.request(1001, None, at(0.1), at(0.2))
    maker.request(1003, None, at(0.3), at(0.4), device=8 << 20)
    written = write(maker.make(), meta=META, end=finish(1), block_records="both")
    assert curve(written, VDA, "queue depth") == [(0.1, 1), (0.2, 0)]
    assert curve(written, "dev 8:0 metrics", "queue depth") == [(0.3, 1), (0.4, 0)]
    where = {location.name: location for location in written.definitions.locations}
    assert where[VDA].group == where["vda requests"].group
    assert where[VDA].group.system_tree_parent.parent.name == "block devices"
    assert where[VDA].type == LocationType.METRIC
    assert where[VDA].group.location_group_type == LocationGroupType.PROCESS


def test_group_of_metrics_alone_is_no_process(maker: BatchMaker, write: Write) -> None:
    """A PROCESS group must hold a CPU_THREAD location."""
    maker.request(1001, None, at(0.1), at(0.2))
    written = write(maker.make(), meta=META, end=finish(1), block_records="samples")
    (group,) = (location.group for location in written.definitions.locations if location.name == VDA)
    assert group.location_group_type == LocationGroupType.UNKNOWN


def test_bytes_of_a_process(maker: BatchMaker, write: Write) -> None:
    """All its threads together; copies read and write; what failed or is unknown moved nothing."""
    for task in range(2):
        maker.task(task)
        maker.call("read", at(0.1) + task, at(0.2) + task, task=task, handle=0, bytes_result=100)
    maker.call("write", at(0.3), at(0.4), handle=0, bytes_result=70)
    maker.call("copy_file_range", at(0.5), at(0.6), handle=0, handle2=1, bytes_result=1000)
    maker.call("read", at(0.7), at(0.8), handle=0, error=5, bytes_result=UNKNOWN_I64)
    maker.call("read", at(0.85), None, handle=0, bytes_result=UNKNOWN_I64)
    maker.row("handles", handle=0, fd=3, origin=3)
    maker.row("handles", handle=1, fd=4, origin=3)
    written = write(maker.make(), meta=META, end=finish(3))
    assert curve(written, PROCESS, "bytes read per second") == [(0, 0), (1, 12_000), (2, 0)]
    assert curve(written, PROCESS, "bytes written per second") == [(0, 0), (1, 10_700), (2, 0)]
    (group,) = (location.group for location in written.definitions.locations if location.name == PROCESS)
    assert group.name == "fio [100]"


def test_call_counts_where_it_ends(maker: BatchMaker, write: Write) -> None:
    """How its bytes were spread over the intervals is unknown."""
    maker.task(0)
    maker.call("read", at(0.5), at(4.5), handle=0, bytes_result=10)
    written = write(maker.make(), meta=META, end=finish(10))
    assert curve(written, PROCESS, "bytes read per second") == [(4, 0), (5, 100), (6, 0)]


@pytest.mark.parametrize("end", [at(0.3), UNKNOWN_I64])
def test_pid_used_again(write: Write, end: int) -> None:
    """The process that ended has its curve, the new one another; also if only the new one shows that the old ended."""
    first, second = BatchMaker(), BatchMaker(first_id=50)
    first.call("read", at(0.1), at(0.2), task=0, handle=0, bytes_result=10)
    first.task(0, b"old", exit_time_ns=end)
    second.first_operation = 1
    second.call("read", at(0.4), at(0.5), task=1, process=1, tid=100, handle=0, bytes_result=20)
    second.task(1, b"new", process=1, tid=100)
    written = write(first.make(), second.make(), meta=META, end=finish(1))
    found = {
        location.group.name: location.name
        for location in written.definitions.locations
        if location.type == LocationType.METRIC
    }
    assert found == {"old [100]": PROCESS, "new [100]": f"{PROCESS} (2)"}
    assert curve(written, PROCESS, "bytes read per second") == [(0, 0), (1, 100)]
    assert curve(written, f"{PROCESS} (2)", "bytes read per second") == [(0, 0), (1, 200)]


@pytest.mark.parametrize("end", [at(0.3), UNKNOWN_I64])
def test_pid_used_again_within_a_batch(write: Write, maker: BatchMaker, end: int) -> None:
    """Batches are large enough for a pid to come again; each process still has its own numbers."""
    maker.call("read", at(0.1), at(0.2), task=0, handle=0, bytes_result=10)
    maker.task(0, b"old", exit_time_ns=end)
    maker.call("read", at(0.4), at(0.5), task=1, process=1, tid=100, handle=0, bytes_result=20)
    maker.task(1, b"new", process=1, tid=100)
    written = write(maker.make(), meta=META, end=finish(1))
    assert curve(written, PROCESS, "bytes read per second") == [(0, 0), (1, 100)]
    assert curve(written, f"{PROCESS} (2)", "bytes read per second") == [(0, 0), (1, 200)]


def test_interval_goes_on_in_the_next_batch(write: Write) -> None:
    """Batches end anywhere."""
    first, second = BatchMaker(), BatchMaker()
    first.request(1001, None, at(0.1), at(0.2))
    second.request(1003, None, at(0.3), at(0.4))
    written = write(first.make(), second.make(), meta=META, end=finish(3))
    assert curve(written, VDA, "writes per second") == [(0, 0), (1, 20), (2, 0)]


@pytest.mark.parametrize("mode", ["samples", "begin-end"])
def test_definitions_say_how_to_read_the_curves(maker: BatchMaker, write: Write, mode: str) -> None:
    """Units free of scale, modes as OTF2 means them, asynchronous, recorded by instances about their subject."""
    maker.task(0)
    maker.call("read", at(0.1), at(0.2), handle=0, bytes_result=10)
    maker.request(1001, None, at(0.1), at(0.2))
    written = write(maker.make(), meta=META, end=finish(1), block_records=mode)
    members = {member.name: member for member in written.definitions.metric_members}
    last, following = MetricMode.ABSOLUTE_LAST, MetricMode.ABSOLUTE_NEXT
    double = Type.DOUBLE
    assert {
        name: (member.unit, member.metric_mode, member.value_type, member.base, member.exponent)
        for name, member in members.items()
    } == {
        "queue depth": ("#", following, Type.UINT64, Base.DECIMAL, 0),
        "reads per second": ("1/s", last, double, Base.DECIMAL, 0),
        "writes per second": ("1/s", last, double, Base.DECIMAL, 0),
        "bytes read per second": ("B/s", last, double, Base.BINARY, 0),
        "bytes written per second": ("B/s", last, double, Base.BINARY, 0),
        "device latency": ("s", last, double, Base.DECIMAL, -9),
    }
    instances = {metric for _, event in written.events if hasattr(event, "metric") for metric in [event.metric]}
    scopes = {instance.recorder.name: instance.scope.name for instance in instances}
    assert scopes == {VDA: "vda", PROCESS: "fio [100]"}
    for instance in instances:
        assert instance.metric_class.occurrence == MetricOccurrence.ASYNCHRONOUS
        assert instance.metric_class.recorder_kind == RecorderKind.ABSTRACT


def test_no_curves_of_chosen_processes(maker: BatchMaker, write: Write) -> None:
    """Process mode has the device's other users not: its depth would be wrong."""
    maker.task(0)
    maker.call("read", at(0.1), at(0.2), handle=0, bytes_result=10)
    maker.request(1001, None, at(0.1), at(0.2))
    written = write(maker.make(), meta=replace(META, mode="process"), end=finish(1))
    assert not list(written.definitions.metric_members)
    assert {location.type for location in written.definitions.locations} == {LocationType.CPU_THREAD}
