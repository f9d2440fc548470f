"""docs/explanation/rules/rings.md: what rings share with the rest: block requests, and the sampling rate."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from build.ringrig import FD, PID, A, Rig

if TYPE_CHECKING:
    from pathlib import Path

VDA = 254 << 20
READ, WRITE = 22, 23
WORKER, OTHER, KWORKER = 11, 20, 44


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    """Process 10, born in the trace, with a ring."""
    rig = Rig(tmp_path)
    rig.setup()
    return rig


def block(rig: Rig, tid: int, event: str = "rq_insert", sector: int = 8, rwbs: bytes = b"R") -> None:
    """An event of a block request."""
    rig.spool.block(rig.tick(), 0, tid, event, dev=VDA, sector=sector, nr_sector=8 if rwbs != b"FF" else 0, rwbs=rwbs)


def causes(rig: Rig) -> list[int]:
    """The ring's request of each block request, by its place among them; -1: none."""
    ids = [row["id"] for row in rig.rows["ring_requests"]]
    return [ids.index(cause) if cause else -1 for cause in rig.of("requests", "ring_request")]


def execute(rig: Rig, req: int, *events: str) -> None:
    """A request by a worker, which sends block requests meanwhile."""
    rig.submit(req, opcode=READ)
    rig.event("queue_async_work", ctx=A, req=req, opcode=READ)
    rig.event("file_get", WORKER, ctx=A, req=req, fd=3)
    for index, event in enumerate(events):
        block(rig, WORKER, event, 8 * (10 * req + index))
    rig.complete(req, 4096, tid=WORKER)


def test_what_a_worker_sends_is_its_requests(rig: Rig) -> None:
    """Inserted, or issued at once; block requests that it sends afterwards are not."""
    rig.worker(WORKER)
    execute(rig, 1, "rq_insert", "rq_issue")
    execute(rig, 2, "rq_insert")
    block(rig, WORKER, sector=8000)
    rig.run()
    assert sorted(causes(rig)) == [-1, 0, 0, 1]
    assert rig.of("request_events", "ring_request").count(0) == 1


def test_what_the_submitter_sends_while_it_executes_one(rig: Rig) -> None:
    """A call that submits few holds nothing back until its end."""
    rig.enter("io_uring_enter", fd=FD, to_submit=1)
    rig.submit(1, opcode=READ)
    rig.event("file_get", ctx=A, req=1, fd=3)
    block(rig, PID)
    rig.leave("io_uring_enter", 1)
    block(rig, PID, sector=800)
    rig.run()
    assert min(rig.of("requests", "ring_request")) == 0
    assert causes(rig).count(0) == 1


def test_of_many_in_one_call_nothing_is_proven(rig: Rig) -> None:
    """The kernel holds their block requests back, and sends them together."""
    rig.enter("io_uring_enter", fd=FD, to_submit=3)
    for req in (1, 2, 3):
        rig.submit(req, opcode=READ)
        rig.event("file_get", ctx=A, req=req, fd=3)
    block(rig, PID)
    rig.leave("io_uring_enter", 3)
    rig.run()
    assert causes(rig) == [-1]


def test_others_block_requests_are_their_own(rig: Rig) -> None:
    """A worker of the same time is another thread."""
    rig.worker(WORKER)
    rig.fork(OTHER, OTHER, 1)
    rig.submit(1, opcode=READ)
    rig.event("queue_async_work", ctx=A, req=1, opcode=READ)
    rig.event("file_get", WORKER, ctx=A, req=1, fd=3)
    block(rig, OTHER)
    rig.run()
    assert causes(rig) == [-1]


def test_a_flush_that_somebody_else_asked_for(rig: Rig) -> None:
    """The worker issues it, but not for its request; the worker's own flush is."""
    rig.worker(WORKER)
    rig.spool.block(rig.tick(), 0, PID, "bio_queue", dev=VDA, sector=0, nr_sector=0, rwbs=b"FWS")
    rig.submit(1, opcode=READ)
    rig.event("queue_async_work", ctx=A, req=1, opcode=READ)
    rig.event("file_get", WORKER, ctx=A, req=1, fd=3)
    block(rig, WORKER, sector=0, rwbs=b"FF")
    rig.spool.block(rig.tick(), 0, WORKER, "bio_queue", dev=VDA, sector=0, nr_sector=0, rwbs=b"FWS")
    block(rig, WORKER, sector=0, rwbs=b"FF")
    rig.run()
    assert causes(rig) == [-1, 0]


def test_a_flush_that_somebody_else_issues(rig: Rig) -> None:
    """Its owner asked for it, and executes a request; when it asked is unknown."""
    rig.enter("io_uring_enter", fd=FD, to_submit=1)
    rig.submit(1, opcode=READ)
    rig.event("file_get", ctx=A, req=1, fd=3)
    rig.spool.block(rig.tick(), 0, PID, "bio_queue", dev=VDA, sector=0, nr_sector=0, rwbs=b"FWS")
    block(rig, KWORKER, sector=0, rwbs=b"FF")
    rig.run()
    assert rig.of("requests", "tid", "ring_request") == [(PID, 0)]


def test_a_requeued_request_keeps_its_cause(rig: Rig) -> None:
    """It is the same request, whichever thread inserts it again."""
    rig.worker(WORKER)
    execute(rig, 1, "rq_insert", "rq_issue")
    rig.run()
    once = causes(rig)
    assert once.count(0) == len(once)


# ---- sampling


@pytest.mark.parametrize("rate", [0, 1])
def test_all_requests_are_chosen_by_default(tmp_path: Path, rate: int) -> None:
    """Any rate below 2 is no sampling."""
    rig = Rig(tmp_path, sample_rate=max(rate, 1))
    rig.setup()
    rig.requests(10)
    rig.run()
    assert len(rig.rows["ring_requests"]) == 10


def splitmix(number: int) -> int:
    """Sebastiano Vigna's generator: the value that follows this state."""
    mask = 2**64 - 1
    z = (number + 0x9E3779B97F4A7C15) & mask
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & mask
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & mask
    return z ^ (z >> 31)


def test_whole_requests_are_chosen_by_their_ids(tmp_path: Path) -> None:
    """Whatever their address: of each that is chosen all rows, of the others none; totals count all."""
    found = {}
    for rate in (1, 7):
        rig = Rig(tmp_path / str(rate), sample_rate=rate)
        rig.setup()
        for _ in range(60):
            rig.requests(50)
        rig.run()
        found[rate] = rig
    every, chosen = found[1], found[7]
    ids = {row["id"] for row in every.rows["ring_requests"]}
    expected = sorted(number for number in ids if splitmix(number) % 7 == 0)
    assert sorted(chosen.of("ring_requests", "id")) == expected
    assert sorted(chosen.of("ring_events", "id")) == sorted(3 * expected)
    assert chosen.totals.nr_ring_requests == every.totals.nr_ring_requests == 3_000
    assert chosen.ring() == every.ring()
    assert chosen.rows["ring_states"] == every.rows["ring_states"]
    assert abs(len(expected) / 3_000 - 1 / 7) < 0.02
