"""Requests of io_uring as operations on their submitters' locations: when, on which handle, with which attributes."""

from __future__ import annotations

import os
import random
from dataclasses import replace
from typing import Any

import pytest
from build.otf2_batches import META, OPCODE, BatchMaker, complete
from build.otf2_written import attributes, verified
from otf2.enums import IoAccessMode, IoHandleFlag, IoOperationFlag, IoOperationMode, IoParadigmClass, IoParadigmFlag

from lo2io.model import RingPath, RingStatus, Totals, TraceEnd

Write = Any
T = 2_000_000
BEGIN, ISSUED, COMPLETE, CANCELLED = range(4)
THREAD = "thread fio 100"
RING = "ring 0: io_uring fd 5 of process 100"


def on_ring(maker: BatchMaker, number: int, *times: int, **columns: int) -> None:
    """Begin, issued and complete of a request of ring 0, at these times."""
    for kind, time in enumerate(times):
        maker.ring_event(number, kind, time, **columns)


@pytest.fixture
def ring(before: BatchMaker) -> BatchMaker:
    """A thread with the known file of fd 3 and ring 0 on fd 5."""
    before.file(0, b"/data/in", mode=0o100644)
    before.row("handles", handle=9, fd=4, origin=3, open_flags=os.O_RDONLY, file=0)
    before.row("rings", ring=0)
    return before


def test_request_within_a_call(ring: BatchMaker, write: Write) -> None:
    """Its three records lie between the call's Enter and Leave, though they are known before it; bytes and mode."""
    on_ring(ring, 501, T + 1, T + 2, T + 5, call=T, handle=9, bytes=4096, user_data=7)
    ring.call("io_uring_enter", T, T + 9, result=1)
    written = verified(write(ring.make()))
    assert written.shape() == [
        ("+io_uring_enter", T),
        ("OperationBegin", T + 1),
        ("OperationIssued", T + 2),
        ("OperationComplete", T + 5),
        ("-io_uring_enter", T + 9),
    ]
    begin, issued, done = (written.find(f"IoOperation{kind}")[0] for kind in ("Begin", "Issued", "Complete"))
    assert (begin.mode, begin.operation_flags) == (IoOperationMode.READ, IoOperationFlag.NON_BLOCKING)
    assert (begin.bytes_request, done.bytes_result) == (4096, 4096)
    assert {begin.matching_id, issued.matching_id, done.matching_id} == {501}
    assert {begin.handle, issued.handle, done.handle} == {begin.handle}


def test_handle_is_the_rings_view_of_the_file(ring: BatchMaker, write: Write) -> None:
    """A handle of the paradigm io_uring, of the file's name, with the state of the descriptor, there all the time."""
    on_ring(ring, 501, T, T, T + 5, handle=9)
    on_ring(ring, 503, T + 6, T + 6, T + 7, handle=9)
    on_ring(ring, 505, T + 8, T + 8, T + 9, handle=9, ring=1)
    ring.call("read", T + 20, T + 21, handle=9, bytes_request=8)
    ring.row("rings", ring=1, fd=6)
    written = verified(write(ring.make()))
    first, second, other, plain = (event.handle for event in written.find("IoOperationBegin"))
    assert first is second
    assert len({handle._ref for handle in (first, other, plain)}) == 3
    assert {handle.file.name for handle in (first, other, plain)} == {"/data/in"}
    assert {handle.name for handle in (first, other, plain)} == {"/data/in"}
    assert first.io_handle_flags == IoHandleFlag.PRE_CREATED
    states = {state.io_handle._ref: state for state in written.definitions.io_pre_created_handle_states}
    assert states[first._ref].io_access_mode == states[plain._ref].io_access_mode == IoAccessMode.READ_ONLY
    paradigm = first.io_paradigm
    assert (paradigm.identification, paradigm.io_paradigm_class) == ("io_uring", IoParadigmClass.SERIAL)
    assert paradigm.io_paradigm_flags == IoParadigmFlag.OS
    assert plain.io_paradigm.identification == "POSIX"


def test_requests_of_libaio(ring: BatchMaker, write: Write) -> None:
    """In a paradigm of their own, on the file or on the context; one that ended unseen has no end."""
    ring.row("rings", ring=1, kind=1, context=0x7F00, fd=-1)
    on_ring(ring, 501, T, T, T + 5, ring=1, handle=9, user_data=3, bytes=8, inferred=1 | 512)
    on_ring(ring, 503, T + 6, T + 6, T + 7, ring=1)
    on_ring(ring, 505, T + 8, T + 8, ring=1, handle=9)
    ring.row("ring_requests", id=505, ring=1, status=RingStatus.UNSEEN)
    written = verified(write(ring.make()), "operation.in-flight")
    first, second, _ = written.find("IoOperationBegin")
    assert {each.handle.io_paradigm.identification for each in (first, second)} == {"libaio"}
    assert [each.identification for each in written.definitions.io_paradigms] == ["POSIX", "block_io", "libaio"]
    assert (first.handle.name, second.handle.name) == ("/data/in", "libaio context 0x7f00")
    assert attributes(first)["io_uring user_data"] == 3
    ends = written.find("IoOperationComplete")
    assert [each.matching_id for each in ends] == [501, 503]
    assert attributes(ends[0])["io_uring inferred"] == "issue time, end"


def test_handle_of_a_file_nobody_knows_is_called_after_its_descriptor(ring: BatchMaker, write: Write) -> None:
    """Like those of calls; a handle without a row has no number either."""
    on_ring(ring, 501, T, T, T + 5, handle=0)
    on_ring(ring, 503, T, T, T + 5, handle=77)
    names = [event.handle.name for event in verified(write(ring.make())).find("IoOperationBegin")]
    assert names == ["fd 3", "fd -1"]


def test_request_without_a_file_is_on_its_ring(ring: BatchMaker, write: Write) -> None:
    """A handle that is no file, named after the ring's descriptor; one for all such requests of a process."""
    ring.task(1)
    on_ring(ring, 501, T, T, T + 5, opcode=OPCODE["FSYNC"])
    on_ring(ring, 503, T + 6, T + 6, T + 7, opcode=OPCODE["FSYNC"], task=1, tid=101)
    written = verified(write(ring.make()))
    (begin,) = written.find("IoOperationBegin")
    (other,) = written.find("IoOperationBegin", "thread fio 101")
    assert (begin.handle.name, begin.handle.file, begin.handle.io_handle_flags) == (
        "io_uring fd 5",
        None,
        IoHandleFlag.PRE_CREATED,
    )
    assert other.handle is begin.handle


def test_processes_that_share_a_ring_do_not_share_its_handle(ring: BatchMaker, write: Write) -> None:
    """A handle belongs to a location group: a child that submits on its parent's ring has one of its own."""
    on_ring(ring, 501, T, T, T + 5)
    on_ring(ring, 503, T, T, T + 5, task=1, pid=200, tid=200)
    ring.task(1, process=1, pid=200, tid=200)
    verified(write(ring.make()))


def test_pid_that_is_used_again_is_another_process(write: Write) -> None:
    """On the same ring, one batch later."""
    first, second = BatchMaker(), BatchMaker()
    on_ring(first, 501, T, T, T + 5)
    first.task(0)
    on_ring(second, 503, T + 10, T + 11, T + 12, task=1, process=1)
    second.task(1, process=1, tid=100, comm=b"again")
    verified(write(first.make(), second.make()))


@pytest.mark.parametrize("inside", [True, False])
def test_file_that_becomes_known_later(ring: BatchMaker, write: Write, *, inside: bool) -> None:
    """A request that waits for its call gets the file for all three records.

    Written without it, they keep the ring, and name the file.
    """
    at = {"call": T} if inside else {}
    ring.ring_event(501, BEGIN, T + 1, **at)
    ring.ring_event(503, BEGIN, T + 2, **at)
    ring.ring_event(501, ISSUED, T + 3, handle=9, **at)
    ring.ring_event(501, COMPLETE, T + 5, handle=9, **at)
    if inside:
        ring.call("io_uring_enter", T, T + 9)
    written = verified(write(ring.make()), "operation.in-flight")
    begin, (done,) = written.find("IoOperationBegin")[0], written.find("IoOperationComplete")
    assert begin.handle is done.handle
    assert begin.handle.name == ("/data/in" if inside else "io_uring fd 5")
    file = attributes(done).get("io_uring file")
    assert file is None if inside else (file.name, file.io_paradigm.identification) == ("/data/in", "io_uring")


@pytest.mark.parametrize("inside", [True, False])
def test_predecessor_that_becomes_known_later(ring: BatchMaker, write: Write, *, inside: bool) -> None:
    """It is written once, on the begin event if that is still possible."""
    at = {"call": T} if inside else {}
    on_ring(ring, 501, T - 9, T - 9, T - 8, handle=9)
    ring.ring_event(503, BEGIN, T + 2, handle=9, **at)
    ring.ring_event(503, ISSUED, T + 3, handle=9, previous=501, **at)
    ring.ring_event(503, COMPLETE, T + 5, handle=9, previous=501, **at)
    if inside:
        ring.call("io_uring_enter", T, T + 9)
    written = verified(write(ring.make()))
    (_, begin), (_, done) = written.find("IoOperationBegin"), written.find("IoOperationComplete")
    told = [attributes(event).get("io_uring previous request") for event in (begin, done)]
    assert told == ([501, None] if inside else [None, 501])


def test_begin_outside_of_a_call_waits_for_the_next_event(ring: BatchMaker, write: Write) -> None:
    """An SQ thread's request has its file with its second record: the first is held back until then, no longer."""
    for number in range(3):
        at = T + 10 * number
        ring.ring_event(501 + 2 * number, BEGIN, at)
        ring.ring_event(501 + 2 * number, ISSUED, at + 1, handle=9)
        ring.ring_event(501 + 2 * number, COMPLETE, at + 2, handle=9, bytes=3)
    ring.ring_event(601, BEGIN, T + 50)
    written = verified(write(ring.make()), "operation.in-flight")
    handles = [event.handle.name for event in written.find("IoOperationBegin")]
    assert handles == ["/data/in"] * 3 + ["io_uring fd 5"]
    assert [time for _, time in written.shape()] == [T + 10 * n + step for n in range(3) for step in range(3)] + [
        T + 50
    ]


@pytest.mark.parametrize(
    ("opcode", "mode"),
    [
        ("WRITE", IoOperationMode.WRITE),
        ("SPLICE", IoOperationMode.READ),
        ("FSYNC", IoOperationMode.FLUSH),
        ("opcode 200", IoOperationMode.FLUSH),
        ("unknown opcode", IoOperationMode.FLUSH),
    ],
)
def test_mode_of_an_opcode(ring: BatchMaker, write: Write, opcode: str, mode: Any) -> None:
    """What is not known to read or write becomes a flush without a size; an attribute has the opcode."""
    number = OPCODE.get(opcode, 200 if opcode == "opcode 200" else 255)
    on_ring(ring, 501, T, T, T + 5, opcode=number, bytes=64, result=64)
    written = verified(write(ring.make()))
    (begin,), (done,) = written.find("IoOperationBegin"), written.find("IoOperationComplete")
    size = 2**64 - 1 if mode is IoOperationMode.FLUSH else 64
    assert (begin.mode, begin.bytes_request, done.bytes_result) == (mode, size, size)
    assert attributes(begin)["Operation"] == opcode
    assert attributes(done)["io_uring result"] == 64


@pytest.mark.parametrize("opcode", ["NOP", "POLL_ADD", "OPENAT"])
def test_what_carries_no_data_is_no_operation(ring: BatchMaker, write: Write, opcode: str) -> None:
    """Only its row shows it, and others may name it; a worker that executes one is shown."""
    ring.task(1, tid=105, comm=b"iou-wrk-100", kind=1)
    on_ring(ring, 501, T, T, T + 5, opcode=OPCODE[opcode], sqe_flags=4 | 16)
    on_ring(ring, 503, T + 6, T + 6, T + 7, handle=9, previous=501)
    for number, code in ((501, OPCODE[opcode]), (503, OPCODE["READ"])):
        ring.row("ring_requests", id=number, opcode=code)
    ring.row("ring_works", id=501, task=1, tid=105, opcode=OPCODE[opcode], begin_time_ns=T + 1, end_time_ns=T + 2)
    written = verified(write(ring.make()))
    assert [event.matching_id for event in written.find("IoOperationBegin")] == [503]
    assert attributes(written.find("IoOperationBegin")[0])["io_uring previous request"] == 501
    assert [name for name, _ in written.shape("thread iou-wrk-100 105")] == [
        f"+io_uring worker: {opcode}",
        f"-io_uring worker: {opcode}",
    ]
    assert written.properties()["LO2IO::IO_URING_NO_DATA"] == "1"


@pytest.mark.parametrize("issued", [True, False])
def test_end_of_a_silent_request(ring: BatchMaker, write: Write, issued: bool) -> None:
    """Complete stands at the latest possible end; the earliest moment is that of the last record before."""
    ring.ring_event(501, BEGIN, T, handle=9, sqe_flags=64)
    if issued:
        ring.ring_event(501, ISSUED, T + 2, handle=9)
    ring.ring_event(501, COMPLETE, T + 7, handle=9, status=RingStatus.SILENT, path=RingPath.INLINE, inferred=512)
    ring.row("ring_requests", id=501, status=RingStatus.SILENT)
    written = verified(write(ring.make()))
    (done,) = written.find("IoOperationComplete")
    assert (done.time, done.bytes_result) == (T + 7, 2**64 - 1)
    assert attributes(done) == {
        "io_uring path": "inline",
        "io_uring status": "silent",
        "io_uring inferred": "end",
        "EndInferred": 1,
        "EndEarliest": T + 2 if issued else T,
    }
    assert attributes(written.find("IoOperationBegin")[0])["io_uring SQE flags"] == "CQE_SKIP_SUCCESS"


def test_attributes_of_a_begin(ring: BatchMaker, write: Write) -> None:
    """Flags and predecessor only if there are any; unknown bytes are undefined."""
    ring.ring_event(501, BEGIN, T, handle=9, user_data=2**64 - 1)
    ring.ring_event(503, BEGIN, T, handle=9, sqe_flags=1 | 4 | 16, previous=501)
    first, second = verified(write(ring.make()), "operation.in-flight").find("IoOperationBegin")
    assert first.bytes_request == 2**64 - 1
    assert attributes(first) == {"Operation": "READ", "io_uring ring": RING, "io_uring user_data": 2**64 - 1}
    assert attributes(second) == {
        "Operation": "READ",
        "io_uring ring": RING,
        "io_uring user_data": 0,
        "io_uring SQE flags": "FIXED_FILE|IO_LINK|ASYNC",
        "io_uring previous request": 501,
    }


def test_attributes_of_a_completion(ring: BatchMaker, write: Write) -> None:
    """Its path, its phases, its worker, and which of them are inferred; unknown phases are left out."""
    ring.ring_event(501, BEGIN, T, handle=9)
    ring.ring_event(501, ISSUED, T, handle=9)
    known = {"path": RingPath.WORKER, "worker_tid": 105, "waker_tid": 0}
    known |= {"queued_ns": 2, "executing_ns": 9, "waiting_ns": 1, "run_queue_ns": 0, "blocked_ns": 7}
    bits = {"traits": 1 | 64 | 1024, "inferred": 2 | 256}
    ring.ring_event(501, COMPLETE, T + 3, handle=9, bytes=10, result=10, **known, **bits)
    on_ring(ring, 503, T + 4, T + 4, T + 5, path=RingPath.INLINE)
    first, second = verified(write(ring.make())).find("IoOperationComplete")
    assert attributes(first) == {
        "io_uring path": "worker",
        "io_uring traits": "SQPOLL, continued by a worker, older than the trace",
        "io_uring inferred": "worker, size",
        "io_uring worker": 105,
        "io_uring waker": 0,
        "io_uring queued": 2,
        "io_uring executing": 9,
        "io_uring waiting": 1,
        "io_uring run queue": 0,
        "io_uring blocked": 7,
        "io_uring result": 10,
    }
    assert attributes(second) == {"io_uring path": "inline", "io_uring result": 0}


def test_an_event_with_very_many_attributes(ring: BatchMaker, write: Write) -> None:
    """From 17 on, OTF2 has a longer form of the list's length."""
    ring.ring_event(501, BEGIN, T)
    ring.ring_event(501, ISSUED, T, handle=9, previous=499)
    known = {"path": RingPath.WORKER, "worker_tid": 105, "waker_tid": 1, "traits": 4, "inferred": 2}
    known |= {"queued_ns": 2, "executing_ns": 9, "waiting_ns": 1, "run_queue_ns": 3, "blocked_ns": 7}
    failed = {"status": RingStatus.REFUSED, "error": 22, "result": -22, "culprit": 497}
    pages = {"cache": 2, "cache_missed_pages": 5, "cache_ahead_pages": 6}
    ring.ring_event(501, COMPLETE, T + 3, handle=9, previous=499, **known, **failed, **pages)
    found = write(ring.make()).find("IoOperationComplete")[0]
    assert len(attributes(found)) >= 17


def test_request_that_failed(ring: BatchMaker, write: Write) -> None:
    """Undefined bytes, errno and the result; a refused one is marked."""
    on_ring(ring, 501, T, T, T + 3, handle=9, error=9, result=-9, path=RingPath.INLINE)
    refused = {"status": RingStatus.REFUSED, "path": RingPath.REFUSED, "error": 22, "result": -22}
    on_ring(ring, 503, T + 4, T + 4, T + 5, **refused)
    bad, refusal = verified(write(ring.make())).find("IoOperationComplete")
    assert bad.bytes_result == refusal.bytes_result == 2**64 - 1
    assert attributes(bad) == {"io_uring path": "inline", "io_uring result": -9, "errno": 9}
    assert attributes(refusal) == {
        "io_uring path": "refused",
        "io_uring status": "refused",
        "io_uring result": -22,
        "errno": 22,
    }


def test_cancelled_request(ring: BatchMaker, write: Write) -> None:
    """IoOperationCancelled; the request whose failure ended it, where one did."""
    gone = {"status": RingStatus.CANCELLED, "path": RingPath.CANCELLED, "error": 125, "result": -125}
    ring.ring_event(503, BEGIN, T)
    ring.ring_event(503, ISSUED, T + 4)
    ring.ring_event(503, CANCELLED, T + 4, culprit=501, **gone)
    written = verified(write(ring.make()), "ring.reference")
    assert [name for name, _ in written.shape()] == ["OperationBegin", "OperationIssued", "OperationCancelled"]
    assert attributes(written.find("IoOperationCancelled")[0]) == {
        "io_uring path": "cancelled",
        "io_uring status": "cancelled",
        "io_uring result": -125,
        "io_uring culprit": 501,
        "errno": 125,
    }


def test_what_ends_is_issued_before(ring: BatchMaker, write: Write) -> None:
    """OTF2 demands the record; given twice it is written once."""
    ring.ring_event(501, BEGIN, T)
    ring.ring_event(501, COMPLETE, T + 4)
    on_ring(ring, 503, T + 5, T + 6)
    ring.ring_event(503, ISSUED, T + 7)
    written = verified(write(ring.make()), "operation.in-flight")
    names = [name.removeprefix("Operation") for name, _ in written.shape()]
    assert names == ["Begin", "Issued", "Complete", "Begin", "Issued"]


@pytest.mark.parametrize("status", [RingStatus.IN_FLIGHT, RingStatus.SILENT, RingStatus.TORN_DOWN])
def test_request_whose_end_nobody_saw(ring: BatchMaker, write: Write, status: RingStatus) -> None:
    """It has no Complete, like disks' requests. Its row, which comes first here, changes nothing."""
    for number in (501, 503):
        ring.ring_event(number, BEGIN, T + number, T)
        ring.row("ring_requests", id=number, status=status)
    second, third = BatchMaker(), BatchMaker()
    second.ring_event(501, ISSUED, T + 600, T, handle=9)
    third.call("io_uring_enter", T, T + 999)
    written = verified(write(ring.make(), second.make(), third.make()), "operation.in-flight")
    assert [name for name, _ in written.shape()] == [
        "+io_uring_enter",
        "OperationBegin",
        "OperationBegin",
        "OperationIssued",
        "-io_uring_enter",
    ]
    assert len({event.handle._ref for event in written.find("IoOperationBegin")}) == 2


def test_end_that_was_not_seen_is_marked(ring: BatchMaker, write: Write) -> None:
    """If the engine gives one all the same, its time is not the end's."""
    on_ring(ring, 501, T, T, T + 5, status=RingStatus.TORN_DOWN)
    on_ring(ring, 503, T, T, T + 5, status=RingStatus.IN_FLIGHT)
    (done,) = verified(write(ring.make()), "operation.in-flight").find("IoOperationComplete")
    assert attributes(done) == {"io_uring path": "unknown", "io_uring status": "torn down", "InFlight": 1}


def test_requests_that_end_in_any_order(ring: BatchMaker, write: Write) -> None:
    """A thousand under way at a time, of ids as they may be: none is lost, whatever goes first."""
    chance = random.Random(1)  # noqa: S311 - the same in each run
    numbers = chance.sample(range(1, 2**62), 1_000)
    for time, kind in ((T, BEGIN), (T + 1, ISSUED), (T + 2, COMPLETE)):
        chance.shuffle(numbers)
        for number in numbers:
            ring.ring_event(number, kind, time, handle=9)
    written = verified(write(ring.make()))
    assert {event.matching_id for event in written.find("IoOperationComplete")} == set(numbers)
    assert len(written.shape()) == 3_000


def test_records_without_a_begin_are_left_out(ring: BatchMaker, write: Write) -> None:
    """OTF2 has no operation they could belong to."""
    ring.ring_event(501, ISSUED, T)
    ring.ring_event(501, COMPLETE, T + 1)
    on_ring(ring, 503, T + 2, T + 2, T + 3)
    assert len(verified(write(ring.make())).shape()) == 3


def test_rate_of_a_sample_is_said(ring: BatchMaker, write: Write) -> None:
    """Only where it is not 1; the number of all requests stands beside it."""
    on_ring(ring, 501, T, T, T + 5)
    end = TraceEnd(T - 1, T + 10, complete(), Totals(nr_ring_requests=100))
    named = {
        name: text
        for name, text in write(ring.make(), meta=replace(META, sample_rate=64), end=end).properties().items()
        if "IO_URING" in name
    }
    assert named == {"LO2IO::IO_URING_REQUESTS": "100", "LO2IO::IO_URING_SAMPLE_RATE": "64"}


def test_trace_without_rings_defines_nothing_of_them(before: BatchMaker, write: Write) -> None:
    """No attribute, no paradigm, no property."""
    before.call("read", T, T + 1, handle=0)
    written = write(before.make())
    assert "uring" not in written.printed("-G")
    assert not [name for name in written.properties() if "URING" in name]


def test_ring_without_a_row_goes_by_its_number(before: BatchMaker, write: Write) -> None:
    """The engine tells all of them; should it not, the trace is readable all the same."""
    on_ring(before, 501, T, T, T + 5)
    (begin,) = verified(write(before.make())).find("IoOperationBegin")
    assert (attributes(begin)["io_uring ring"], begin.handle.name) == ("ring 0", "io_uring")


def test_threads_of_the_kernel_are_named(ring: BatchMaker, write: Write) -> None:
    """By their names, and by a property with their purpose."""
    ring.task(1, b"iou-sqp-100", kind=2)
    on_ring(ring, 501, T, T, T + 5, task=1, tid=101)
    written = verified(write(ring.make()))
    (location,) = (where for where in written.definitions.locations if where.name == "thread iou-sqp-100 101")
    assert {
        (item.name, item.value) for item in written.definitions.location_properties if item.location is location
    } > {("io_uring", "SQ thread")}
