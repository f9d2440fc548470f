"""docs/explanation/rules/waits.md: where the time of calls went: one test each, both engines."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from build.kernelwriter import KernelSpool
from lo2io.native._lib import lib
from reference.engines import each_engine  # noqa: F401 - the fixture `run`

from lo2io.catalog.wait_reasons import load_reasons
from lo2io.model import KernelStack

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from build.perfwriter import SpoolBuilder
    from reference.compare import Tables

    Run = Callable[[SpoolBuilder], Tables]

PREEMPTED, BLOCKED, SLEEPING = lib.LO2_SLEEP_PREEMPTED, lib.LO2_SLEEP_BLOCKED, lib.LO2_SLEEP_SLEEPING
IOWAIT, ENDLESS, LOST, LOCK = (
    lib.LO2_SLEEP_IOWAIT,
    lib.LO2_SLEEP_ENDLESS,
    lib.LO2_SLEEP_LOST,
    lib.LO2_SLEEP_LOCK,
)
STACKS = (
    KernelStack(0, ("folio_wait_bit_common", "folio_wait_writeback", "do_fsync")),
    KernelStack(7, ("jbd2_log_wait_commit.isra.0", "ext4_sync_file")),
    KernelStack(8, ("xfs_ilock", "vfs_write")),
    KernelStack(9, ("", "")),
)
NAMES = load_reasons().names
LONG = 100_000


@pytest.fixture
def spool(tmp_path: Path) -> KernelSpool:
    """The whole machine; processes 10 and 20 are known."""
    spool = KernelSpool(tmp_path / "spool", layers=("waits",), kernel_stacks=STACKS)
    spool.fact_task(1_000, 10, 10).fact_task(1_000, 20, 20)
    return spool


def sleep(spool: KernelSpool, out: int, wake: int, end: int, **told: Any) -> KernelSpool:
    """A stretch of thread 10 without a CPU."""
    members = {"state": BLOCKED, **told}
    return spool.record("sleep", end, 0, 10, out_ns=out, wake_ns=wake, **members)


def call(spool: KernelSpool, *sleeps: tuple[int, ...], **told: Any) -> KernelSpool:
    """A call of thread 10 from 60 to 900 µs, with these stretches."""
    spool.kernel_enter(60_000, 0, 10, "fsync", fd=3)
    for out, wake, end in sleeps:
        sleep(spool, out, wake, end, **told)
    spool.kernel_exit(900_000, 1, 10, "fsync")
    return spool


def shares(tables: Tables) -> list[tuple[int | None, int | None]]:
    """Time in the run queue and blocked time of each call."""
    return [(row["run_queue_ns"], row["blocked_ns"]) for row in tables["operations"]]


def reasons(tables: Tables) -> list[str]:
    """The reason of each stretch."""
    return [NAMES[row["reason"]] for row in tables["off_cpu"]]


def test_stretches_are_parts_of_the_call(run: Run, spool: KernelSpool) -> None:
    """Up to the wakeup the thread was blocked, then it waited for a CPU; it had a CPU in the rest."""
    tables = run(call(spool, (60_100, 160_100, 160_150), (200_000, 300_000, 300_007)))
    assert shares(tables) == [(57, 200_000)]
    rows = [(row["begin_time_ns"], row["wake_time_ns"], row["end_time_ns"]) for row in tables["off_cpu"]]
    assert rows == [(60_100, 160_100, 160_150), (200_000, 300_000, 300_007)]


def test_a_call_that_keeps_its_cpu_has_it_all_the_time(run: Run, spool: KernelSpool) -> None:
    """Both parts are 0, and known."""
    assert shares(run(spool.kernel_call(60_000, 0, 10, "fsync", duration=500, fd=3))) == [(0, 0)]


def test_without_the_layer_nothing_is_known(run: Run, tmp_path: Path) -> None:
    """Nor is it guessed from switches."""
    spool = KernelSpool(tmp_path / "spool").fact_task(1_000, 10, 10)
    assert shares(run(spool.kernel_call(60_000, 0, 10, "fsync", duration=500, fd=3))) == [(None, None)]


def test_a_preempted_thread_waits_for_a_cpu_alone(run: Run, spool: KernelSpool) -> None:
    """It could run all the time."""
    tables = run(call(spool, (60_100, 60_100, 160_100), state=PREEMPTED))
    assert shares(tables) == [(100_000, 0)]
    assert reasons(tables) == ["none"]
    assert [row["state"] for row in tables["off_cpu"]] == [0]


@pytest.mark.parametrize(
    ("told", "reason"),
    [
        ({"stack": 1}, "write-back"),
        ({"stack": 8}, "journal"),
        ({"stack": 9}, "other"),
        ({"stack": 10}, "unknown"),
        ({"stack": 3}, "unknown"),
        ({"stack": 5_000}, "unknown"),
        ({}, "unknown"),
        ({"stack": 9, "flags": LOCK}, "lock"),
        ({"flags": LOCK}, "lock"),
        ({"stack": 8, "flags": LOCK}, "journal"),
        ({"stack": 1, "flags": LOCK}, "lock"),
    ],
)
def test_the_stack_names_the_reason(run: Run, spool: KernelSpool, told: dict[str, int], reason: str) -> None:
    """By the first rule that has one of its functions. A lock is one unless an earlier rule includes it."""
    assert reasons(run(call(spool, (60_100, 60_100 + LONG, 200_000), **told))) == [reason]


def test_only_locks_have_holders(run: Run, spool: KernelSpool) -> None:
    """What else stands in a record's place for the holder says nothing."""
    tables = run(call(spool, (60_100, 160_100, 160_150), holder=20, lock_inode=7))
    (row,) = tables["off_cpu"]
    assert (row["holder"], row["holder_tid"], row["lock_inode"]) == (None, None, 0)


@pytest.mark.parametrize(("flags", "reason"), [(0, "short"), (IOWAIT, "short I/O"), (LOCK, "lock")])
def test_short_sleeps_have_no_stack(run: Run, spool: KernelSpool, flags: int, reason: str) -> None:
    """The kernel's own account tells a wait for I/O."""
    assert reasons(run(call(spool, (60_100, 60_200, 60_210), flags=flags))) == [reason]


@pytest.mark.parametrize(
    "broken", [(160_000, 150_000, 170_000), (160_000, 180_000, 170_000), (100_000, 150_000, 170_000)]
)
def test_records_that_contradict_themselves_are_not_decoded(
    run: Run, spool: KernelSpool, broken: tuple[int, int, int]
) -> None:
    """A wakeup before the sleep or after its end, and a sleep that begins within the one before."""
    tables = run(call(spool, (60_100, 110_000, 120_000), broken, (200_000, 200_000, 200_010)))
    assert shares(tables) == [(None, None)]
    assert [row["begin_time_ns"] for row in tables["off_cpu"]] == [60_100, 200_000]
    assert tables["totals"]["nr_undecoded"] == 1


@pytest.mark.parametrize(("flags", "wake"), [(ENDLESS, 60_200), (LOST, 60_200), (0, 0)])
def test_what_was_not_seen_is_unknown(run: Run, spool: KernelSpool, flags: int, wake: int) -> None:
    """A lost end, a lost stretch or a lost wakeup leaves the parts of the whole call unknown."""
    tables = run(call(spool, (60_100, wake, 60_300), (70_000, 70_010, 70_020), flags=flags))
    assert shares(tables) == [(None, None)]
    assert [row["end_time_ns"] is None for row in tables["off_cpu"]] == [flags == ENDLESS] * 2


def test_a_call_without_a_place_is_unknown(run: Run, spool: KernelSpool) -> None:
    """Its ENTER says that no stretches follow."""
    packed = spool.arguments("fsync", {"fd": 3})
    event = spool._counted(0, "syscalls:sys_enter_fsync")
    spool.record("enter", 60_000, 0, 10, event=event, nr_args=len(packed) // 8, unfollowed=1, tail=packed)
    assert shares(run(spool.kernel_exit(900_000, 1, 10, "fsync"))) == [(None, None)]


def test_stretches_of_other_calls_do_not_count(run: Run, spool: KernelSpool) -> None:
    """Of a call whose exit was lost, one may come during the next call."""
    spool.kernel_enter(60_000, 0, 10, "fsync", fd=3)
    sleep(spool, 50_500, 60_010, 60_020)
    assert shares(run(spool.kernel_exit(70_000, 0, 10, "fsync"))) == [(0, 0)]


def test_the_waker_and_the_holder_of_a_lock(run: Run, spool: KernelSpool) -> None:
    """Recorded threads have a row; any have a number; 0 is the idle thread."""
    spool.kernel_enter(60_000, 0, 10, "fsync", fd=3)
    sleep(spool, 60_100, 60_200, 60_210, waker=20, flags=LOCK, holder=20, lock_inode=5, lock_device=8 << 20)
    sleep(spool, 60_300, 60_400, 60_410, waker=99)
    sleep(spool, 60_500, 60_600, 60_610, waker=0)
    rows = run(spool.kernel_exit(70_000, 0, 10, "fsync"))["off_cpu"]
    assert [(row["waker"], row["waker_tid"]) for row in rows] == [("tid 20 from None", 20), (None, 99), (None, 0)]
    locks = [(row["holder"], row["holder_tid"], row["lock_inode"], row["lock_device"]) for row in rows]
    assert locks == [("tid 20 from None", 20, 5, 8 << 20), (None, None, 0, 0), (None, None, 0, 0)]


def test_a_request_under_way_gives_the_state(run: Run, spool: KernelSpool) -> None:
    """As with switches: the thread waits for a device if its own request was under way when it left the CPU."""
    issue = {"dev": 254 << 20, "sector": 100, "nr_sector": 8, "rwbs": b"R"}
    spool.kernel_enter(60_000, 0, 10, "fsync", fd=3)
    spool.block(60_050, 0, 10, "rq_issue", **issue).block(60_150, 0, 0, "rq_complete", **issue, error=0)
    sleep(spool, 60_100, 60_200, 60_210)
    sleep(spool, 60_300, 60_400, 60_410)
    rows = run(spool.kernel_exit(70_000, 0, 10, "fsync"))["off_cpu"]
    assert [row["state"] for row in rows] == [1, 2]
