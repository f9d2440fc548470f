"""docs/explanation/rules/ring-requests.md: block requests that a ring request caused."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from build.requestrig import ASYNC, BY_PATH, DEVICE, INLINE, LINK, NOP, READ, WORKER, WRITE, RequestRig
from build.ringrig import PID

if TYPE_CHECKING:
    from pathlib import Path

VDA = 254 << 20
W = 30


@pytest.fixture
def rig(tmp_path: Path) -> RequestRig:
    """Process 10, born in the trace, with a worker."""
    rig = RequestRig(tmp_path)
    rig.worker(W)
    return rig


def insert(rig: RequestRig, tid: int = PID, rwbs: bytes = b"R") -> None:
    """A block request begins."""
    rig.spool.block(rig.tick(), 0, tid, "rq_insert", dev=VDA, sector=8, nr_sector=8, rwbs=rwbs)


def causes(rig: RequestRig) -> list[int | None]:
    """Position among the ring's requests of each block request's cause."""
    place = {row["id"]: at for at, row in enumerate(rig.all())} | {0: None}
    return [place[cause] for cause in rig.of("requests", "ring_request")]


@pytest.mark.parametrize(("asked", "expected"), [(1, [0, 1, None]), (2, [0, 1, None]), (3, [None, None, None])])
def test_while_a_thread_executes_a_request(rig: RequestRig, asked: int, expected: list[int | None]) -> None:
    """In a larger batch the I/O of all is gathered."""
    rig.enter("io_uring_enter", fd=5, to_submit=asked)
    rig.submit(1, opcode=READ)
    rig.gets(1, 3)
    insert(rig)
    rig.submit(2, opcode=READ, flags=1)
    insert(rig)
    rig.event("cqring_wait", ctx=0xFFFF888000001000, min_events=1)
    insert(rig)
    rig.leave("io_uring_enter", 2)
    assert causes(rig) == expected


def test_outside_of_calls_nothing_is_proven(rig: RequestRig) -> None:
    """How many requests the thread submits is unknown, and so is what the SQ thread does."""
    rig.fork(PID, 40, PID)
    rig.name(PID, 40, b"iou-sqp-10")
    for req, tid in ((1, PID), (2, 40)):
        rig.submit(req, opcode=READ, tid=tid)
        insert(rig, tid)
    assert causes(rig) == [None, None]


def test_a_worker_from_file_get_to_the_end(rig: RequestRig) -> None:
    """Before and after, it may be doing anything."""
    rig.submit(1, opcode=READ, flags=ASYNC)
    rig.punt(1)
    insert(rig, W)
    rig.gets(1, 3, tid=W)
    insert(rig, W)
    rig.cqe(1, 5, tid=W)
    insert(rig, W)
    assert causes(rig) == [None, 0, None]


@pytest.mark.parametrize("why", ["looked up", "registered", "no descriptor", "older"])
def test_a_worker_that_may_have_gone_on_unheard(rig: RequestRig, why: str) -> None:
    """As long as such a request is punted and not executed yet."""
    rig.submit(1, opcode=READ, flags=ASYNC)
    rig.punt(1)
    if why != "older":
        rig.submit(2, opcode=NOP if why == "no descriptor" else WRITE, flags=1 if why == "registered" else 0)
    if why == "looked up":
        rig.gets(2, 3)
    rig.gets(1, 3, tid=W)
    rig.punt(2, user_data=5, opcode=READ)
    insert(rig, W)
    rig.cqe(2, 5)
    insert(rig, W)
    assert causes(rig) == [None, 0]


def test_a_request_that_waits_causes_nothing(rig: RequestRig) -> None:
    """The head of a chain that is not complete."""
    rig.enter("io_uring_enter", fd=5, to_submit=2)
    rig.submit(1, opcode=READ, flags=LINK)
    insert(rig)
    assert causes(rig) == [None]


def test_what_another_thread_has_ended_causes_nothing(rig: RequestRig) -> None:
    """Whichever thread seemed to execute it."""
    rig.fork(PID, 11, PID)
    rig.enter("read", fd=0)
    rig.submit(1, opcode=READ)
    rig.gets(1, 3)
    rig.cqe(1, 5, tid=11)
    insert(rig)
    rig.submit(2, opcode=READ, tid=11)
    rig.gets(2, 3)
    rig.cqe(2, 5, tid=11)
    insert(rig)
    assert causes(rig) == [None, None]


# -- what a block request proves about the path


def path(rig: RequestRig) -> tuple[int, int]:
    """The path of the only request, and whether it is inferred."""
    ((path, inferred),) = rig.column("path", "inferred")
    return path, inferred & BY_PATH


@pytest.mark.parametrize("claimed", [0, 1])
@pytest.mark.parametrize(("opcode", "rwbs"), [(READ, b"R"), (READ, b"RS"), (WRITE, b"WS"), (NOP, b"RM")])
def test_a_device_that_answers_at_once_is_no_cache(rig: RequestRig, opcode: int, rwbs: bytes, claimed: int) -> None:
    """The completion comes before the submission has ended, as from memory; a block request proves the device."""
    rig.enter("io_uring_enter", fd=5, to_submit=1)
    rig.submit(1, opcode=opcode)
    rig.gets(1, 3)
    insert(rig, rwbs=rwbs)
    rig.cqe(1, 5)
    if claimed:
        rig.ran(1)
    rig.leave("io_uring_enter", 1)
    assert (causes(rig), path(rig)) == ([0], (DEVICE, 0))


def test_reading_ahead_serves_nobody(rig: RequestRig) -> None:
    """A read from memory may send it."""
    rig.enter("io_uring_enter", fd=5, to_submit=1)
    rig.submit(1, opcode=READ)
    rig.gets(1, 3)
    insert(rig, rwbs=b"RA")
    rig.cqe(1, 5)
    rig.leave("io_uring_enter", 1)
    assert (causes(rig), path(rig)) == ([0], (INLINE, 0))


def test_a_block_request_tells_of_what_never_completed(rig: RequestRig) -> None:
    """Then its path is not inferred."""
    rig.enter("io_uring_enter", fd=5, to_submit=1)
    rig.submit(1, opcode=READ)
    rig.gets(1, 3)
    insert(rig)
    rig.leave("io_uring_enter", 1)
    assert (causes(rig), path(rig)) == ([0], (DEVICE, 0))


def test_a_worker_s_block_request_leaves_the_path(rig: RequestRig) -> None:
    """The request went to a worker, and from there to the device."""
    rig.submit(1, opcode=READ, flags=ASYNC)
    rig.punt(1)
    rig.gets(1, 3, tid=W)
    insert(rig, W)
    rig.cqe(1, 5, tid=W)
    assert (causes(rig), path(rig)) == ([0], (WORKER, 0))


@pytest.mark.parametrize("rwbs", [b"R", b"RA", b"WS", b"W"])
def test_a_block_request_has_ended_when_the_ring_request_that_waited_for_it_has(tmp_path: Path, rwbs: bytes) -> None:
    """Its completion vanished; the worker's request posts its CQE when the data is there."""
    rig = RequestRig(tmp_path)
    rig.worker(W)
    rig.submit(1, opcode=READ, flags=ASYNC)
    rig.punt(1)
    rig.gets(1, 3, tid=W)
    issued = rig.tick()
    rig.spool.block(issued, 0, W, "rq_issue", dev=VDA, sector=8, nr_sector=8, rwbs=rwbs)
    done = rig.cqe(1, 5, tid=W)
    rig.spool.count_vanished("block:block_rq_complete", [1] + [0] * (len(rig.spool.meta().cpus) - 1))
    rig.all()
    found = rig.of("requests", "status", "end_earliest_ns", "end_latest_ns", "end_proof")
    waited = rwbs in {b"R", b"WS"}
    assert found == [(3, issued, done, 2) if waited else (4, None, None, 0)]
