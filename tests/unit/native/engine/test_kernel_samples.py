"""Events of tracepoints, recorded by BPF programs: the tables are those of perf's samples."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from build.kernelwriter import KernelSpool
from build.perfwriter import SpoolBuilder, replay
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from reference.block_histories import block_histories
from reference.compare import Tables, run_native, run_reference
from reference.engines import each_engine
from reference.histories import SPREAD, spread
from reference.ring_histories import ring_histories

from lo2io.convert.completeness import completeness
from lo2io.native.records import UNFINISHED, framed, pack

if TYPE_CHECKING:
    from reference.engines import Run
    from reference.histories import History

__all__ = ["each_engine"]
SUBSYSTEMS = ("block", "io_uring", "sched")
CTX, REQ = 0xFFFF_8880_0000_1000, 0xFFFF_8880_0000_2000
DISK = 8 << 20
SETTINGS = settings(
    max_examples=int(os.environ.get("LO2IO_EXAMPLES", "30")), deadline=None, suppress_health_check=list(HealthCheck)
)
MANY = 5_000
"""More events than the native engine holds back, and fewer than it reads at once."""


@pytest.fixture(name="spool")
def spool_of_events(tmp_path: Path) -> KernelSpool:
    """A spool in system mode with the process 10, whose events of all subsystems are the programs' records."""
    builder = KernelSpool(tmp_path / "spool", rings="6.18", sampled=SUBSYSTEMS, start_ns=50_000)
    builder.fact_task(1_000, 10, 10, ppid=1, comm=b"ten")
    return builder


def same(found: Tables, expected: Tables) -> None:
    """Every table, the first difference first."""
    for name, rows in expected.items():
        assert found[name] == rows, name


# ---- one record, one sample ----


def test_a_request_of_a_ring_is_told_by_records(run: Run, spool: KernelSpool) -> None:
    """All its fields lie where a sample has them; the thread is the record's."""
    spool.ring(60_000, 0, 10, "submit_req", ctx=CTX, req=REQ, user_data=7, opcode=22, flags=0)
    spool.ring(60_400, 1, 10, "complete", ctx=CTX, req=REQ, user_data=7, res=512)
    tables = run(spool)
    (request,) = tables["ring_requests"]
    assert (request["submit_time_ns"], request["complete_time_ns"], request["user_data"]) == (60_000, 60_400, 7)
    assert [sum(row) for row in tables["seen"]] == [1, 1]
    assert tables["totals"]["nr_samples"] == 2


def test_a_block_request_is_told_by_records_and_by_samples(run: Run, spool: KernelSpool, tmp_path: Path) -> None:
    """Its end may be a perf sample though its start is a record."""
    request = {"dev": DISK, "sector": 64, "nr_sector": 8, "rwbs": b"R"}
    spool.block(60_000, 0, 10, "rq_issue", **request).block(61_000, 0, 0, "rq_complete", **request)
    mixed = KernelSpool(tmp_path / "mixed", rings="6.18", sampled=("io_uring",), start_ns=50_000)
    mixed.fact_task(1_000, 10, 10, ppid=1, comm=b"ten")
    mixed.block(60_000, 0, 10, "rq_issue", **request).block(61_000, 0, 0, "rq_complete", **request)
    assert run(spool)["requests"] == run(mixed)["requests"] != []


def test_a_record_that_is_too_short_is_no_event(spool: KernelSpool) -> None:
    """A record without a field, or of a type that no event has, is counted and has no effect."""
    number = spool.ids["io_uring:io_uring_complete"]
    for record in (pack("sample", 60_000, 10, event=number, tail=bytes(24)), pack("sample", 60_001, 10, event=9)):
        spool.events[0].append(framed(record))
    tables = run_native(spool.write())
    assert tables["totals"]["nr_undecoded"] == tables["totals"]["nr_samples"] == 2
    assert tables["ring_requests"] == []


def test_a_record_that_was_not_finished_ends_the_file(run: Run, spool: KernelSpool) -> None:
    """The bytes after it are counted."""
    spool.switch(60_000, 0, 10, 0)
    spool.events[0].append(framed(pack("sample", 60_001, 10, tail=bytes(56)), UNFINISHED))
    tables = run(spool)
    assert len(tables["switches"]) == 1
    assert tables["totals"]["truncated_bytes"] == 80


def test_what_was_lost_of_events_is_a_gap(run: Run, spool: KernelSpool) -> None:
    """From the first that found the ring full to the last, on that CPU."""
    spool.switch(60_000, 1, 10, 0).events_lost(70_000, 1, 4, begin=61_000)
    losses = run(spool)["losses"]
    assert losses == [{"cpu": 1, "begin_time_ns": 61_000, "end_time_ns": 70_000, "lost": 4}]


def test_more_losses_than_tables_can_hold_are_as_many_as_they_can(spool: KernelSpool) -> None:
    """Damage. The table's reader refuses larger numbers, so nobody could open the trace."""
    for time in (60_000, 70_000):
        spool.events_lost(time, 1, (1 << 64) - 7, begin=59_000)
    assert run_native(spool.write())["totals"]["nr_lost"] == (1 << 63) - 1


def test_what_was_lost_of_layers_is_counted_apart(run: Run, spool: KernelSpool) -> None:
    """No event counts it. Spools of older programs tell only that some records are lost."""
    spool.events_lost(60_000, 1, 4, begin=59_000).events_lost(70_000, 1, 5, begin=61_000, rows=True)
    spool.events_lost(80_000, 1, 0, begin=71_000)
    tables = run(spool)
    assert [row["lost"] for row in tables["losses"]] == [4, 0, 0]
    totals = tables["totals"]
    assert (totals["nr_lost_records"], totals["nr_lost"], totals["nr_lost_rows"]) == (3, 4, 6)


def test_counts_prove_records_as_they_prove_samples(spool: KernelSpool) -> None:
    """Counted and not there: vanished."""
    from lo2io.catalog.catalog import load_catalog  # noqa: PLC0415 - of this test alone
    from lo2io.convert.engine import Engine  # noqa: PLC0415
    from lo2io.spool.reader import SpoolReader  # noqa: PLC0415

    spool.switch(60_000, 0, 10, 0).switch(60_001, 0, 0, 10).count_vanished("sched:sched_switch", (1, 0))
    engine = Engine(SpoolReader(spool.write()), load_catalog())
    for _ in engine.batches():
        pass
    meta = engine.spool.meta
    proof = completeness(meta, [engine.seen(cpu) for cpu in range(2)], engine.totals)
    switch = next(each for each in proof.events if each.event == "sched:sched_switch" and each.cpu == 0)
    assert (switch.count, switch.samples, proof.vanished, proof.proven) == (3, 2, 1, False)


# ---- order ----


@pytest.mark.parametrize("by", [1, 63, 64, 500, 1_000])
def test_events_of_an_interrupt_come_behind_the_one_that_it_came_amid(run: Run, spool: KernelSpool, by: int) -> None:
    """In the ring they lie before it: put right, and nothing is late, wherever the file is read in parts."""
    threads = (10, 0)
    for index in range(MANY):
        spool.switch(60_000 + index, 0, threads[index % 2], threads[1 - index % 2])
        if index > by and index % (2 * by + 7) == by:
            spool.interrupted(0, by)
    tables = run(spool)
    assert [row["time_ns"] for row in tables["switches"]] == list(range(60_000, 60_000 + MANY))
    assert tables["totals"]["nr_late"] == 0 < tables["totals"]["nr_reordered"]


# ---- every history ----


def check(history: History, interrupts: list[tuple[int, int]], **options: Any) -> None:
    """Samples and records of one history give the same tables, in the native engine and in the slow one."""
    options = {"rings": "6.18", "start_ns": 100_500 * SPREAD, **options}
    with tempfile.TemporaryDirectory() as folder:
        samples = SpoolBuilder(Path(folder, "samples"), **options)
        replay(samples, history)
        records = KernelSpool(Path(folder, "records"), sampled=SUBSYSTEMS, **options)
        steps = dict(interrupts)
        for place, step in enumerate(history):
            replay(records, [step])
            for cpu in range(2 if place in steps else 0):
                records.interrupted(cpu, steps[place])
        path = records.write()
        expected = run_native(samples.write(clock="monotonic"))
        found = run_native(path)
        same(found, run_reference(path))
        expected["totals"]["nr_reordered"] = found["totals"]["nr_reordered"]
        same(found, expected)


INTERRUPTS = st.lists(st.tuples(st.integers(0, 60), st.integers(1, 8)), max_size=8)


@SETTINGS
@given(ring_histories(damage=False), INTERRUPTS)
def test_records_of_rings_give_the_tables_of_samples(history: History, interrupts: list[tuple[int, int]]) -> None:
    """Rings, their requests, the disks' beside them, switches; whatever interrupts whatever."""
    check(spread(history), interrupts)


@SETTINGS
@given(block_histories(), INTERRUPTS)
def test_records_of_disks_give_the_tables_of_samples(history: History, interrupts: list[tuple[int, int]]) -> None:
    """Requests, merges, flushes."""
    check(spread(history), interrupts)


@SETTINGS
@given(ring_histories(), INTERRUPTS)
def test_damaged_records_agree(history: History, interrupts: list[tuple[int, int]]) -> None:
    """The native engine and the slow one, where records are dropped, LOST or turned around."""
    with tempfile.TemporaryDirectory() as folder:
        records = KernelSpool(Path(folder), sampled=SUBSYSTEMS, rings="6.18", start_ns=100_500)
        steps = dict(interrupts)
        for place, step in enumerate(history):
            replay(records, [step])
            for cpu in range(2 if place in steps else 0):
                records.interrupted(cpu, steps[place])
        path = records.write()
        same(run_native(path), run_reference(path))
