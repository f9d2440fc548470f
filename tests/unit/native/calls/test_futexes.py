"""docs/explanation/rules/waits.md: calls on futexes, and the addresses of these futexes."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING, Any

from build.kernelwriter import KernelSpool
from reference.compare import native_rows

if TYPE_CHECKING:
    from pathlib import Path

LOCK = 0x7F00_0000_1000


def addresses(path: Path, batch_rows: int = 1 << 10) -> list[tuple[str, int]]:
    """Name of each call on a futex, and the address, in the order of the rows."""
    rows: dict[str, list[dict[str, Any]]] = native_rows(path, batch_rows)
    calls = {row["id"]: row["call"] for row in rows["operations"]}
    return [(calls[row["operation"]], row["address"]) for row in rows["futexes"]]


def made(folder: Path) -> KernelSpool:
    """Thread 10 is recorded. Process 77 is the recorder."""
    calls = ("futex", "futex_wait", "futex_waitv", "sync")
    spool = KernelSpool(folder / "spool", calls=calls, recorder_pid=77)
    spool.fact_task(1_000, 10, 10)
    return spool


def test_a_call_has_the_address_of_its_futex(tmp_path: Path) -> None:
    """A call has a row if it kept its CPU, lost it, or failed. A futex_waitv has none: its futexes lie in memory."""
    spool = made(tmp_path)
    spool.kernel_call(10_000, 0, 10, "futex", 1, uaddr=LOCK, op=1, val=1)
    spool.kernel_enter(20_000, 0, 10, "futex", uaddr=LOCK + 4, op=0, val=2)
    spool.kernel_exit(30_000, 0, 10, "futex", -errno.ETIMEDOUT)
    spool.kernel_call(40_000, 0, 10, "futex_wait", 0, uaddr=(1 << 64) - 8)
    spool.kernel_call(50_000, 0, 10, "futex_waitv", 0, nr_futexes=2)
    spool.kernel_call(60_000, 0, 10, "futex", 0, uaddr=LOCK, op=1)
    expected = [("futex", LOCK), ("futex", LOCK + 4), ("futex_wait", (1 << 64) - 8), ("futex", LOCK)]
    path = spool.write()
    assert addresses(path) == expected
    assert addresses(path, 8) == expected


def test_a_wait_that_the_recording_s_end_cuts(tmp_path: Path) -> None:
    """The wait is an operation without an end, and has its futex."""
    spool = made(tmp_path)
    spool.kernel_enter(20_000, 0, 10, "futex", uaddr=LOCK, op=0, val=2)
    spool.kernel_call(30_000, 1, 11, "sync")
    assert addresses(spool.write()) == [("futex", LOCK)]


def test_a_wait_of_the_recorder(tmp_path: Path) -> None:
    """The recorder's wait is no operation, and so has no address."""
    spool = made(tmp_path)
    spool.fact_task(1_500, 77, 77)
    spool.kernel_enter(20_000, 0, 77, "futex", uaddr=LOCK, op=0, val=2)
    spool.kernel_exit(30_000, 0, 77, "futex", 0)
    assert native_rows(spool.write(), 1 << 10)["futexes"] == []
