"""The places of rings' events among a thread's others, executions by workers, and calls' attributes about rings."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from build.otf2_batches import META, OPCODE, STOP, SYSTEM, BatchMaker
from build.otf2_written import Written, attributes, label, verified
from otf2.enums import RegionRole

if TYPE_CHECKING:
    from lo2io.model import SpoolMeta

Write = Any
T = 2_000_000
BEGIN, ISSUED, COMPLETE, CANCELLED = range(4)
RING = "ring 0: io_uring fd 5 of process 100"
SCHED = replace(META, events=("sched:sched_switch",))
"""Regions are entered and left by calling context."""
WORKER = "thread iou-wrk-100 105"
SLEEPING = 3
META_OF = {"plain": META, "contexts": SCHED}


@pytest.fixture
def ring(before: BatchMaker) -> BatchMaker:
    """A thread with ring 0 on fd 5, and a worker of it."""
    before.row("rings", ring=0)
    before.task(5, b"iou-wrk-100", kind=1)
    return before


def request(maker: BatchMaker, number: int, *times: int, **columns: int) -> None:
    """Begin, issued and complete of a request on handle 0, at these times."""
    for kind, time in enumerate(times):
        maker.ring_event(number, kind, time, handle=0, **columns)


# ---- order ----


def test_completion_within_another_call(ring: BatchMaker, write: Write) -> None:
    """Task work runs at the end of any call; what lies between calls stays between them."""
    request(ring, 501, T + 1, T + 1, call=T)
    request(ring, 503, T + 2, T + 2, call=T)
    ring.call("io_uring_enter", T, T + 9)
    ring.ring_event(501, COMPLETE, T + 15, handle=0)
    ring.ring_event(503, COMPLETE, T + 22, T + 20, handle=0)
    ring.call("newfstat", T + 20, T + 25)
    shape = verified(write(ring.make())).shape()
    assert [(name, time - T) for name, time in shape] == [
        ("+io_uring_enter", 0),
        ("OperationBegin", 1),
        ("OperationIssued", 1),
        ("OperationBegin", 2),
        ("OperationIssued", 2),
        ("-io_uring_enter", 9),
        ("OperationComplete", 15),
        ("+fstat", 20),
        ("OperationComplete", 22),
        ("-fstat", 25),
    ]


def test_events_at_the_borders_of_a_call(ring: BatchMaker, write: Write) -> None:
    """At equal times, the engine decides which events lie in the call and which outside."""
    request(ring, 501, T, T)
    request(ring, 503, T, T, T + 9, call=T)
    ring.call("io_uring_enter", T, T + 9)
    ring.ring_event(501, COMPLETE, T + 9, handle=0)
    names = [name.removeprefix("Operation") for name, _ in verified(write(ring.make())).shape()]
    enter, leave = names.index("+io_uring_enter"), names.index("-io_uring_enter")
    assert (names[:enter], names[leave + 1 :]) == (["Begin", "Issued"], ["Complete"])


@pytest.mark.parametrize("batches", [1, 2])
def test_stretches_off_the_cpu_come_behind_what_fell_into_them(write: Write, batches: int) -> None:
    """A thread sleeps twice while twenty requests complete: each stretch gets its place between them."""
    first, second = BatchMaker(), BatchMaker()
    maker = first
    maker.task(0)
    maker.row("handles", handle=0, fd=3, origin=3, open_flags=os.O_RDWR)
    for number in range(20):
        request(maker, 501 + 2 * number, T + 1, T + 2, call=T)
    if batches == 2:
        maker = second
    for number in range(20):
        maker.ring_event(501 + 2 * number, COMPLETE, T + 10 * (number + 1), T, handle=0)
    for begin, end in ((15, 45), (75, 155)):
        maker.row("off_cpu", before=0, task=0, begin_time_ns=T + begin, end_time_ns=T + end, state=SLEEPING)
    maker.call("io_uring_enter", T, T + 300)
    made = [item.make() for item in ((first, second) if batches == 2 else (first,))]
    shape = verified(write(*made, meta=SCHED)).shape()
    assert [time for _, time in shape] == sorted(time for _, time in shape)
    names = [name for name, _ in shape if "Begin" not in name and "Issued" not in name]
    sleep = "io_uring_enter/sleeping"
    expected = ["+io_uring_enter", "c", f"+{sleep}", "c", "c", "c", f"-{sleep}", "c", "c", "c", f"+{sleep}"]
    expected += ["c"] * 8 + [f"-{sleep}"] + ["c"] * 5 + ["-io_uring_enter"]
    assert [name.replace("OperationComplete", "c") for name in names] == expected


def test_insertion_is_cheap_and_right_whatever_the_order(ring: BatchMaker, write: Write) -> None:
    """Stretches before, between and after, given late and not in order: all end up by their times."""
    for number in range(30):
        request(ring, 501 + 2 * number, T + 10 * number, T + 10 * number, call=T)
    for begin in (205, 5, 105, 55, 155):
        ring.row("off_cpu", before=0, task=0, begin_time_ns=T + begin, end_time_ns=T + begin + 2, state=SLEEPING)
    ring.call("io_uring_enter", T, T + 400)
    written = verified(write(ring.make(), meta=SCHED), "operation.in-flight")
    found = [time - T for name, time in written.shape() if name == "+io_uring_enter/sleeping"]
    assert found == [5, 55, 105, 155, 205]


def test_places_of_one_thread_are_not_those_of_another(ring: BatchMaker, write: Write) -> None:
    """The place found for a thread's stretch may belong to another thread when the next one comes."""
    ring.task(1)
    other = {"task": 1, "pid": 100, "tid": 101}
    for number in range(4):
        request(ring, 501 + 2 * number, *(T + 10 * number,) * 3, call=T)
    ring.row("off_cpu", before=0, task=0, begin_time_ns=T + 25, end_time_ns=T + 26, state=SLEEPING)
    ring.call("io_uring_enter", T, T + 100)
    for number in range(10):
        request(ring, 601 + 2 * number, *(T + 200 + number,) * 3, call=T + 200, **other)
    for number in range(4):
        request(ring, 701 + 2 * number, *(T + 300 + 10 * number,) * 3, call=T + 300)
    ring.row("off_cpu", before=1, task=0, begin_time_ns=T + 305, end_time_ns=T + 307, state=SLEEPING)
    ring.call("io_uring_enter", T + 300, T + 400)
    ring.call("io_uring_enter", T + 200, T + 500, **other)
    written = verified(write(ring.make(), meta=SCHED))
    stretches = [
        [time - T for name, time in written.shape(f"thread fio {tid}") if name.endswith("/sleeping")]
        for tid in (100, 101)
    ]
    assert stretches == [[25, 26, 305, 307], []]


def test_call_whose_row_never_comes(ring: BatchMaker, write: Write) -> None:
    """A filter took it: what fell into it is written when the next call's events come, or at the end."""
    request(ring, 501, T + 1, T + 1, T + 2, call=T)
    request(ring, 503, T + 11, T + 11, T + 12, call=T + 10)
    assert [time - T for _, time in verified(write(ring.make())).shape()] == [1, 1, 2, 11, 11, 12]


def test_event_outside_of_calls_ends_one_in_flight(ring: BatchMaker, write: Write) -> None:
    """The exit was lost; the thread is in no call any more."""
    ring.call("newfstat", T, None)
    request(ring, 501, T + 5, T + 5, T + 6)
    written = verified(write(ring.make()))
    assert written.shape()[:2] == [("+fstat", T), ("-fstat", T + 5)]
    assert attributes(written.find("Leave")[0]) == {"InFlight": 1}


def test_events_of_a_call_in_flight_at_the_end(ring: BatchMaker, write: Write) -> None:
    """Its row comes last, or before them: they lie inside, and the region is left when the trace ends."""
    request(ring, 501, T + 1, T + 1, T + 2, call=T)
    ring.call("io_uring_enter", T, None)
    ring.ring_event(503, BEGIN, T + 20, T, handle=0)
    shape = verified(write(ring.make()), "operation.in-flight").shape()
    assert [shape[0], shape[-2], shape[-1]] == [
        ("+io_uring_enter", T),
        ("OperationBegin", T + 20),
        ("-io_uring_enter", STOP),
    ]


# ---- workers ----


@pytest.mark.parametrize("style", ["plain", "contexts"])
def test_worker_executes_a_request(ring: BatchMaker, write: Write, style: str) -> None:
    """A region of its own on the worker's location, with the request's id and how long it had been queued."""
    common = {"ring": 0, "task": 5}
    ring.row("ring_works", id=501, queue_time_ns=T - 7, begin_time_ns=T, end_time_ns=T + 5, **common)
    more = {"inferred": 4, "opcode": OPCODE["FSYNC"]}
    ring.row("ring_works", id=503, begin_time_ns=T + 5, end_time_ns=T + 9, **more, **common)
    written = verified(write(ring.make(), meta=META_OF[style]), "trace.no-io", "ring.reference")
    assert written.shape(WORKER) == [
        ("+io_uring worker: READ", T),
        ("-io_uring worker: READ", T + 5),
        ("+io_uring worker: FSYNC", T + 5),
        ("-io_uring worker: FSYNC", T + 9),
    ]
    first, second = (event for event in written.of(WORKER) if label(event)[0] == "+")
    assert attributes(first) == {"io_uring ring": RING, "io_uring request": 501, "io_uring queue delay": 7}
    assert attributes(second) == {
        "io_uring ring": RING,
        "io_uring request": 503,
        "io_uring inferred": "begin of work",
    }
    regions = {region.name: region for region in written.definitions.regions}
    group = next(group for group in written.definitions.groups if group.name == "io_uring workers")
    assert {region.name for region in group.members} == {"io_uring worker: READ", "io_uring worker: FSYNC"}
    assert regions["io_uring worker: READ"].region_role == RegionRole.FILE_IO


def test_execution_whose_end_nobody_saw(ring: BatchMaker, write: Write) -> None:
    """It is left when the worker begins the next one, or ends, and is marked."""
    ring.task(6, b"iou-wrk-100", kind=1, exit_time_ns=T + 50)
    for task in (5, 6):
        ring.row("ring_works", id=501, ring=0, task=task, begin_time_ns=T)
    ring.row("ring_works", id=503, ring=0, task=5, begin_time_ns=T + 9)
    written = verified(write(ring.make()), "trace.no-io", "ring.reference")
    assert [time for _, time in written.shape(WORKER)] == [T, T + 9, T + 9, STOP]
    assert [time for _, time in written.shape("thread iou-wrk-100 106")] == [T, T + 50]
    leaves = written.find("Leave", WORKER) + written.find("Leave", "thread iou-wrk-100 106")
    assert [attributes(event) for event in leaves] == [{"InFlight": 1}] * 3


def test_execution_whose_begin_nobody_saw(ring: BatchMaker, write: Write) -> None:
    """It has no length; a wholly unknown one is left out. No delay is negative, whatever the clocks show."""
    unknown = -(2**63)
    ring.row("ring_works", id=501, ring=0, task=5, begin_time_ns=unknown, end_time_ns=T, queue_time_ns=T + 1)
    ring.row("ring_works", id=503, ring=0, task=5, begin_time_ns=unknown)
    written = verified(write(ring.make()), "trace.no-io", "ring.reference")
    assert written.shape(WORKER) == [("+io_uring worker: READ", T), ("-io_uring worker: READ", T)]
    assert "io_uring queue delay" not in attributes(written.find("Enter", WORKER)[0])


# ---- calls ----


def leave_of(written: Written) -> list[dict[str, Any]]:
    """Attributes of the Leave."""
    return [attributes(event) for event in written.of("thread fio 100") if label(event)[0] == "-"]


@pytest.mark.parametrize("meta", [META, SCHED, SYSTEM], ids=["plain", "contexts", "system"])
def test_what_an_enter_says(ring: BatchMaker, write: Write, meta: SpoolMeta) -> None:
    """Each on its own Leave; a call that failed has submitted nothing that is known, and calls between have nothing."""
    first = ring.call("io_uring_enter", T, T + 9, result=8)
    ring.call("newfstat", T + 10, T + 11)
    second = ring.call("io_uring_enter", T + 20, T + 29, error=9, result=-9)
    ring.row("batches", id=first, ring=0, asked=8, wanted=2, submitted=8, nr_requests=8, nr_completions=3)
    ring.row("batches", id=second, ring=2**32 - 1, asked=1, wanted=0)
    enter, other, failed = leave_of(verified(write(ring.make(), meta=meta), "trace.no-io"))
    assert enter == {"io_uring ring": RING, "asked": 8, "wanted": 2, "submitted": 8, "completed": 3}
    assert other == {}
    assert failed == {"errno": 9, "asked": 1, "wanted": 0, "completed": 0}


def test_what_calls_of_libaio_say(ring: BatchMaker, write: Write) -> None:
    """io_submit's completions are not seen; io_getevents returns how many it collected."""
    submit = ring.call("io_submit", T, T + 9, result=4)
    collect = ring.call("io_getevents", T + 10, T + 20, result=3)
    ring.row("batches", id=submit, ring=1, asked=4, submitted=4)
    ring.row("batches", id=collect, ring=1, asked=64, wanted=2, collected=3)
    ring.row("rings", ring=1, kind=1, context=0x7F00, fd=-1)
    submitted, collected = leave_of(verified(write(ring.make()), "trace.no-io"))
    name = "ring 1: libaio context 0x7f00 of process 100"
    assert submitted == {"io_uring ring": name, "asked": 4, "wanted": 0, "submitted": 4}
    assert collected == {"io_uring ring": name, "asked": 64, "wanted": 2, "completed": 3}


def test_enter_in_flight_says_nothing(ring: BatchMaker, write: Write) -> None:
    """It has not returned; the next call's counts are its own."""
    first = ring.call("io_uring_enter", T, None)
    second = ring.call("io_uring_enter", T + 20, T + 29, result=1)
    ring.row("batches", id=first, ring=0, asked=9, wanted=9)
    ring.row("batches", id=second, ring=0, asked=1, submitted=1)
    cut, whole = leave_of(verified(write(ring.make()), "trace.no-io"))
    assert cut == {"InFlight": 1}
    assert whole == {"io_uring ring": RING, "asked": 1, "wanted": 0, "submitted": 1, "completed": 0}


def test_ring_is_created_as_a_descriptor(ring: BatchMaker, write: Write) -> None:
    """io_uring_setup makes a handle; close ends it."""
    ring.row("handles", handle=7, fd=5)
    ring.call("io_uring_setup", T, T + 5, handle=7, fd=5, result=5)
    ring.call("close", T + 10, T + 12, handle=7, fd=5, closes=1)
    shape = verified(write(ring.make())).shape()
    assert shape[1] == ("CreateHandle", T + 5)
    assert shape[4] == ("DestroyHandle", T + 12)


# ---- block requests ----


@pytest.mark.parametrize("records", ["begin-end", "samples"])
def test_block_request_names_what_caused_it(ring: BatchMaker, write: Write, records: str) -> None:
    """On its start, or on each of its samples; one of unknown cause has no such attribute."""
    ring.request(1001, T, T + 5, T + 9, ring_request=501)
    ring.request(1003, T + 20, T + 25, T + 29, sector=64)
    written = verified(write(ring.make(), meta=SYSTEM, block_records=records), "ring.reference")
    if records == "begin-end":
        found = written.find("IoOperationBegin", "vda requests")
    else:
        found = written.find("CallingContextSample", "CPU 0")
    causes = [attributes(event).get("io_uring request") for event in found]
    each = 1 if records == "begin-end" else 3
    assert causes == [501] * each + [None] * each


def test_a_stretch_without_a_begin_is_left_out(write: Write) -> None:
    """Nobody knows where it would stand."""
    maker = BatchMaker()
    maker.task(0)
    maker.row("off_cpu", before=0, task=0, begin_time_ns=-(2**63), end_time_ns=T + 5, state=SLEEPING)
    maker.call("io_uring_enter", T, T + 300)
    assert [name for name, _ in verified(write(maker.make(), meta=SCHED), "trace.no-io").shape()] == [
        "+io_uring_enter",
        "-io_uring_enter",
    ]
