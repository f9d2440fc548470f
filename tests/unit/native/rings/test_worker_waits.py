"""docs/explanation/rules/waits.md: where the time of requests that workers execute went: a test each, both engines."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from build.kernelwriter import KernelSpool
from build.ringrig import A
from lo2io.native._lib import lib
from reference.engines import ENGINES, each_engine  # noqa: F401 - the fixture `run`

from lo2io.catalog.catalog import load_catalog

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from build.perfwriter import SpoolBuilder
    from reference.compare import Tables

    Run = Callable[[SpoolBuilder], Tables]

WORKER, R, NEXT = 30, 0xFFFF888000003000, 0xFFFF888000004000
ASYNC = 16
FSYNC = next(number for number, each in enumerate(load_catalog().opcodes) if each.name == "FSYNC")


@pytest.fixture
def spool(tmp_path: Path) -> KernelSpool:
    """The whole machine; process 10 has a ring and a worker."""
    spool = KernelSpool(tmp_path / "spool", layers=("waits", "workers"), rings="6.18", start_ns=50_000)
    spool.fact_task(1_000, 10, 10).fork(50_100, 0, 10, WORKER, 10, 10).comm(50_200, 0, 10, WORKER, b"iou-wrk-10")
    spool.ring(55_000, 0, 10, "create", ctx=A, fd=5, sq_entries=4, cq_entries=8, flags=0)
    return spool


def event(spool: KernelSpool, t: int, tid: int, name: str, req: int = R, **fields: int) -> None:
    """An event of io_uring."""
    spool.ring(t, 0, tid, name, ctx=A, req=req, **fields)


def begin(spool: KernelSpool, *, seen: bool = True) -> None:
    """A request goes to the worker at 61 µs, which begins at 62 µs."""
    event(spool, 60_000, 10, "submit_req", opcode=FSYNC, flags=ASYNC)
    event(spool, 61_000, 10, "queue_async_work", rw=0)
    if seen:
        event(spool, 62_000, WORKER, "file_get", fd=3)


def sleep(spool: KernelSpool, out: int, wake: int, end: int, **told: Any) -> None:
    """A stretch of the worker without a CPU."""
    spool.record("sleep", end, 0, WORKER, **{"out_ns": out, "wake_ns": wake, "request": R, "state": 1, **told})


def end(spool: KernelSpool, t: int = 90_000, tid: int = WORKER, req: int = R) -> None:
    """The completion."""
    event(spool, t, tid, "complete", req=req)


def shares(tables: Tables) -> list[tuple[int | None, int | None]]:
    """Time in the run queue and blocked time of each request."""
    return [(row["run_queue_ns"], row["blocked_ns"]) for row in tables["ring_requests"]]


def test_the_worker_may_be_amid_the_next_request(run: Run, spool: KernelSpool) -> None:
    """The first one's completion comes in another thread, later than a stretch of the next one. Each has its own."""
    begin(spool)
    sleep(spool, 63_000, 70_000, 70_007)
    event(spool, 70_100, 10, "submit_req", NEXT, opcode=FSYNC, flags=ASYNC)
    event(spool, 70_200, 10, "queue_async_work", NEXT, rw=0)
    sleep(spool, 71_000, 73_000, 73_005, request=NEXT)
    end(spool, 80_000, 10)
    event(spool, 81_000, WORKER, "file_get", NEXT, fd=3)
    sleep(spool, 82_000, 83_000, 83_002, request=NEXT)
    end(spool, req=NEXT)
    assert shares(run(spool)) == [(7, 7_000), (2, 1_000)]


def test_stretches_are_parts_of_the_execution(run: Run, spool: KernelSpool) -> None:
    """Their rows name the request, and no call."""
    begin(spool)
    sleep(spool, 63_000, 70_000, 70_007)
    sleep(spool, 71_000, 71_000, 72_000, state=lib.LO2_SLEEP_PREEMPTED)
    end(spool)
    tables = run(spool)
    assert shares(tables) == [(1_007, 7_000)]
    rows = tables["off_cpu"]
    assert [(row["request"], row["begin_time_ns"], row["end_time_ns"]) for row in rows] == [
        (0, 63_000, 70_007),
        (0, 71_000, 72_000),
    ]


def test_a_worker_that_keeps_its_cpu_has_it_all_the_time(run: Run, spool: KernelSpool) -> None:
    """Both parts are 0, and known."""
    begin(spool)
    end(spool)
    assert shares(run(spool)) == [(0, 0)]


@pytest.mark.parametrize("changes", [{"layers": ("waits",)}, {"layers": ("workers",)}, {"facts_lost": 1}])
@pytest.mark.parametrize("engine", ENGINES.values(), ids=ENGINES)
def test_without_the_layers_or_with_lost_facts_nothing_is_known(engine: Any, spool: KernelSpool, changes: Any) -> None:
    """A stretch may be missing."""
    begin(spool)
    end(spool)
    assert shares(engine(spool.write(**changes))) == [(None, None)]


def test_a_request_that_no_worker_executes_has_no_parts(run: Run, spool: KernelSpool) -> None:
    """Its call has them."""
    event(spool, 60_000, 10, "submit_req", opcode=FSYNC, flags=0)
    end(spool, tid=10)
    assert shares(run(spool)) == [(None, None)]


@pytest.mark.parametrize(("out", "known"), [(62_500, True), (61_500, True), (60_500, False)])
def test_a_begin_that_nothing_tells(run: Run, spool: KernelSpool, out: int, known: bool) -> None:
    """Without an event of the worker, an execution begins with the hand-over at the earliest."""
    begin(spool, seen=False)
    sleep(spool, out, 70_000, 70_010)
    end(spool)
    assert shares(run(spool)) == [(10, 70_000 - out) if known else (None, None)]


def test_what_lies_outside_of_the_execution_does_not_count(run: Run, spool: KernelSpool) -> None:
    """A worker may lose its CPU on its way to the file, and again when the completion is posted."""
    event(spool, 60_000, 10, "submit_req", opcode=FSYNC, flags=ASYNC)
    event(spool, 61_000, 10, "queue_async_work", rw=0)
    sleep(spool, 61_500, 61_600, 61_700)
    event(spool, 62_000, WORKER, "file_get", fd=3)
    sleep(spool, 63_000, 63_500, 64_000)
    end(spool)
    sleep(spool, 90_100, 90_200, 90_300)
    tables = run(spool)
    assert shares(tables) == [(500, 500)]
    assert [row["begin_time_ns"] for row in tables["off_cpu"]] == [61_500, 63_000]


@pytest.mark.parametrize(
    ("told", "wake"),
    [({"flags": lib.LO2_SLEEP_ENDLESS}, 64_000), ({"flags": lib.LO2_SLEEP_LOST}, 64_000), ({}, 0)],
)
def test_what_was_not_seen_is_unknown(run: Run, spool: KernelSpool, told: dict[str, int], wake: int) -> None:
    """A lost end, a lost stretch or a lost wakeup leaves both parts unknown."""
    begin(spool)
    sleep(spool, 63_000, wake, 64_100, **told)
    sleep(spool, 65_000, 66_000, 67_000)
    end(spool)
    tables = run(spool)
    assert shares(tables) == [(None, None)]
    assert len(tables["off_cpu"]) == 2


def test_a_page_fault_of_the_worker_keeps_its_stretch(run: Run, spool: KernelSpool) -> None:
    """The fault has it; the parts of the request are unknown."""
    begin(spool)
    sleep(spool, 63_000, 64_000, 64_100, flags=lib.LO2_SLEEP_FAULT)
    end(spool)
    assert shares(run(spool)) == [(None, None)]


def test_damaged_records_are_counted(run: Run, spool: KernelSpool) -> None:
    """One that begins within the stretch before is not decoded."""
    begin(spool)
    sleep(spool, 63_000, 64_000, 65_000)
    sleep(spool, 64_500, 66_000, 67_000)
    end(spool)
    tables = run(spool)
    assert (shares(tables), tables["totals"]["nr_undecoded"]) == ([(1_000, 1_000)], 1)


def test_an_address_that_another_request_has_by_now(run: Run, spool: KernelSpool) -> None:
    """The stretch began before that request was there: it is the one's before."""
    begin(spool)
    end(spool, 70_000)
    event(spool, 75_000, 10, "submit_req", opcode=FSYNC, flags=ASYNC)
    event(spool, 75_500, 10, "queue_async_work", rw=0)
    sleep(spool, 70_100, 80_000, 80_010)
    event(spool, 81_000, WORKER, "file_get", fd=3)
    end(spool, 85_000)
    tables = run(spool)
    assert shares(tables) == [(0, 0), (0, 0)]
    assert tables["off_cpu"] == []


def test_an_execution_without_an_end_is_unknown(run: Run, spool: KernelSpool) -> None:
    """The recording ends first."""
    begin(spool)
    sleep(spool, 63_000, 64_000, 65_000)
    assert shares(run(spool)) == [(None, None)]
