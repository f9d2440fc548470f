"""Traces of rings in either style, whole, as otf2-print has them: rows by hand, each kind of them at least once."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from build.otf2_batches import META, OPCODE, SYSTEM, BatchMaker, complete
from build.otf2_written import verified, whole_text

from lo2io.model import RingPath, RingStatus, Totals, TraceEnd

if TYPE_CHECKING:
    from collections.abc import Callable

    from lo2io.model import Batch, SpoolMeta

Write = Any
T = 2_000_000
BEGIN, ISSUED, COMPLETE, CANCELLED = range(4)
POLLER, WORKER, AIO = 1, 2, 3
"""Tasks beside the program's thread."""


def rings() -> Batch:
    """A program with a ring of its own, one with an SQ thread, and one of libaio."""
    maker = BatchMaker()
    maker.task(0)
    maker.task(POLLER, b"iou-sqp-100", kind=2)
    maker.task(WORKER, b"iou-wrk-100", kind=1)
    maker.task(AIO, b"old", process=3, pid=300, tid=300)
    maker.file(0, b"/data/in", mode=0o100644, device=0x800, inode=12, mount=31)
    maker.row("handles", handle=0, fd=3, file=0, open_flags=os.O_RDWR)
    maker.row("handles", handle=1, fd=5, open_flags=os.O_RDWR | os.O_CLOEXEC)
    maker.row("rings", ring=0, handle=1, sq_entries=8, cq_entries=16, flags=0)
    maker.row("rings", ring=1, fd=6, sq_entries=64, cq_entries=128, flags=2)
    maker.row("rings", ring=2, kind=1, process=3, pid=300, fd=-1, context=0x7F0000000000, sq_entries=32)
    maker.call("openat", T, T + 10, handle=0, fd=3, flags=os.O_RDWR, result=3)
    maker.call("io_uring_setup", T + 20, T + 30, handle=1, fd=5, result=5)
    submit(maker, T + 100)
    poll(maker, T + 400)
    libaio(maker, T + 600)
    maker.request(901, T + 125, T + 126, T + 210, ring_request=505)
    return maker.make()


def submit(maker: BatchMaker, at: int) -> None:
    """An inline read, one that a worker executes, a chain that a bad descriptor breaks, one refused: in one call."""
    inline = {"path": RingPath.INLINE, "waiting_ns": 2, "queued_ns": 1, "executing_ns": 1}
    worker = {"path": RingPath.WORKER, "worker_tid": 102, "queued_ns": 30, "executing_ns": 60, "waiting_ns": 5}
    worker |= {"waker_tid": 300, "run_queue_ns": 3, "blocked_ns": 50}
    refused = {"path": RingPath.REFUSED, "status": RingStatus.REFUSED, "error": 22, "result": -22}
    cancelled = {"path": RingPath.CANCELLED, "status": RingStatus.CANCELLED, "error": 125, "result": -125}
    bad = {"path": RingPath.INLINE, "error": 9, "result": -9, "opcode": OPCODE["WRITE"]}
    for number, time, kind, columns in (
        (501, 5, BEGIN, {"handle": 0, "user_data": 1}),
        (501, 5, ISSUED, {"handle": 0}),
        (505, 6, BEGIN, {"opcode": OPCODE["WRITE"], "user_data": 2, "sqe_flags": 16}),
        (505, 7, ISSUED, {"opcode": OPCODE["WRITE"]}),
        (507, 8, BEGIN, {"opcode": OPCODE["WRITE"], "user_data": 3, "sqe_flags": 4}),
        (509, 9, BEGIN, {"opcode": OPCODE["FSYNC"], "user_data": 4, "previous": 507}),
        (511, 10, BEGIN, {"opcode": 255, "user_data": 5}),
        (507, 11, ISSUED, {"opcode": OPCODE["WRITE"]}),
        (501, 12, COMPLETE, {"handle": 0, "bytes": 512, "result": 512, **inline}),
        (507, 12, COMPLETE, bad),
        (509, 12, ISSUED, {"opcode": OPCODE["FSYNC"]}),
        (509, 12, CANCELLED, {"opcode": OPCODE["FSYNC"], "culprit": 507, **cancelled}),
        (511, 13, ISSUED, {"opcode": 255}),
        (511, 13, COMPLETE, {"opcode": 255, **refused}),
    ):
        maker.ring_event(number, kind, at + time, at, **columns)
    maker.row("off_cpu", before=2, begin_time_ns=at + 20, end_time_ns=at + 90, state=3)
    maker.row("ring_works", id=505, task=WORKER, opcode=23, queue_time_ns=at + 7, begin_time_ns=at + 37, inferred=4)
    maker.row("ring_states", time_ns=at + 11, in_flight=5, punted=1, workers=1, cq_most=0)
    maker.row("ring_states", time_ns=at + 13, in_flight=1, punted=1, workers=1, cq_least=4, cq_most=4)
    write = {"opcode": OPCODE["WRITE"], "handle": 0}
    maker.ring_event(505, COMPLETE, at + 97, at, bytes=4096, result=4096, traits=4 | 256, inferred=4, **worker, **write)
    number = maker.call("io_uring_enter", at, at + 100, fd=5, result=5)
    counts = {"asked": 5, "wanted": 1, "submitted": 5, "nr_requests": 5, "nr_completions": 5}
    maker.row("batches", id=number, sleep_time_ns=at + 20, **counts)


def poll(maker: BatchMaker, at: int) -> None:
    """An SQ thread that never calls; the last request is under way when the trace ends."""
    of_ring = {"ring": 1, "task": POLLER, "tid": 101, "traits": 1}
    maker.ring_event(701, BEGIN, at, **of_ring)
    maker.ring_event(701, ISSUED, at + 1, handle=0, **of_ring)
    maker.ring_event(703, BEGIN, at + 2, opcode=OPCODE["READ"], **of_ring)
    maker.ring_event(703, ISSUED, at + 3, opcode=OPCODE["READ"], **of_ring)
    maker.ring_event(701, COMPLETE, at + 50, handle=0, bytes=64, result=64, path=RingPath.DEVICE, **of_ring)
    maker.row("ring_states", time_ns=at + 50, ring=1, in_flight=1, cq_least=2**32 - 1, cq_most=2**32 - 1)


def libaio(maker: BatchMaker, at: int) -> None:
    """Two calls, whose iocbs are in the program's memory."""
    ids = {"task": AIO, "pid": 300, "tid": 300}
    number = maker.call("io_submit", at, at + 5, result=4, **ids)
    maker.row("batches", id=number, ring=2, asked=4, submitted=4)
    number = maker.call("io_getevents", at + 6, at + 9, result=4, **ids)
    maker.row("batches", id=number, ring=2, asked=32, wanted=1, collected=4)


@pytest.mark.parametrize(
    ("name", "meta", "records"),
    [
        ("process", META, None),
        ("system", replace(SYSTEM, events=("sched:sched_switch",)), "both"),
    ],
)
def test_rings(write: Write, golden: Callable[[str, str], None], name: str, meta: SpoolMeta, records: str) -> None:
    """Every record of the trace; `lo2io verify` reports only what the trace's end cut."""
    end = TraceEnd(T - 1_000_000, T + 1_000, complete(in_flight=1), Totals(nr_ring_requests=70))
    written = write(rings(), meta=replace(meta, sample_rate=10), block_records=records, end=end)
    golden(f"otf2-rings-{name}.txt", whole_text(verified(written, "operation.in-flight").path))
