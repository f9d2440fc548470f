"""docs/explanation/rules/faults.md: page faults that needed I/O, one test each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from build.kernelwriter import KernelSpool
from reference.compare import native_rows

from lo2io.native.records import framed, pack

if TYPE_CHECKING:
    from pathlib import Path

DEVICE, PAGE, REGULAR = 8 << 20 | 1, 4096, 0o100644


@pytest.fixture
def spool(tmp_path: Path) -> KernelSpool:
    """Thread 10 has opened /f, the inode 7, as descriptor 3."""
    made = KernelSpool(tmp_path / "spool", sampled=("block",))
    made.fact_task(1_000, 10, 10)
    made.kernel_call(55_000, 0, 10, "openat", 3, dfd=-100, flags=0)
    made.kernel_file(55_001, 0, 10, 3, [b"f"], inode=7, device=DEVICE, generation=5)
    return made


def fault(spool: KernelSpool, begin: int, end: int, *, cpu: int = 0, tid: int = 10, **members: int) -> None:
    """A fault on page 2 of /f, unless told otherwise."""
    told = {"page": 2, "device": DEVICE, "inode": 7, "generation": 5, "mode": REGULAR, **members}
    record = pack("fault", end, tid, begin_ns=begin, page_bytes=PAGE, address=0x7000, **told)
    spool.events[cpu].append(framed(record))


def read(spool: KernelSpool) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The page faults among the operations, and the rows of faults."""
    rows = native_rows(spool.write(layers=("faults",)), 1 << 10)
    return [row for row in rows["operations"] if row["call"] == "page_fault"], rows["faults"]


def test_a_fault_is_a_read_of_its_page(spool: KernelSpool) -> None:
    """On the descriptor that is open on the file, with its time and place."""
    fault(spool, 60_000, 90_000)
    (operation,), (row,) = read(spool)
    assert (operation["begin_time_ns"], operation["end_time_ns"]) == (60_000, 90_000)
    assert (operation["offset_bytes"], operation["bytes_result"], operation["error"]) == (2 * PAGE, PAGE, 0)
    assert operation["handle"] is not None
    assert operation["run_queue_ns"] is None
    assert (row["operation"], row["inside"], row["offset_bytes"]) == (operation["id"], 0, 2 * PAGE)
    assert row["file"] is not None


def test_a_file_that_was_closed_after_it_was_mapped(spool: KernelSpool) -> None:
    """The fault has no handle, and its file all the same."""
    spool.kernel_call(57_000, 0, 10, "close", 0, fd=3)
    fault(spool, 60_000, 90_000)
    (operation,), (row,) = read(spool)
    assert operation["handle"] is None
    assert row["file"] is not None


def test_an_inode_that_was_used_again_is_another_file(spool: KernelSpool) -> None:
    """The generation tells them apart."""
    fault(spool, 60_000, 90_000, generation=6)
    (operation,), (row,) = read(spool)
    assert operation["handle"] is None
    assert (row["file"], row["inode"], row["generation"]) == (None, 7, 6)


def test_a_fault_inside_of_a_call_is_no_operation(spool: KernelSpool) -> None:
    """Its time is the call's: a thread's operations never overlap."""
    spool.kernel_enter(60_000, 0, 10, "write", fd=3, count=8)
    fault(spool, 61_000, 80_000)
    spool.kernel_exit(90_000, 0, 10, "write", 8)
    operations, (row,) = read(spool)
    assert operations == []
    assert (row["operation"], row["inside"]) == (0, 1)
    assert (row["begin_time_ns"], row["end_time_ns"]) == (61_000, 80_000)


def test_a_fault_of_no_known_file(spool: KernelSpool) -> None:
    """A page of swapped memory: nothing but thread, end and address is known."""
    fault(spool, 0, 90_000, page=0, device=0, inode=0, generation=0, mode=0)
    operations, (row,) = read(spool)
    assert operations == []
    assert (row["operation"], row["begin_time_ns"], row["offset_bytes"], row["address"]) == (0, None, None, 0x7000)


def test_calls_go_on_after_a_fault(spool: KernelSpool) -> None:
    """The next call of the thread has its own row, with its own times."""
    fault(spool, 60_000, 90_000)
    spool.kernel_call(95_000, 0, 10, "read", 8, fd=3, count=8)
    rows = native_rows(spool.write(layers=("faults",)), 1 << 10)
    assert [row["begin_time_ns"] for row in rows["operations"]] == [55_000, 60_000, 95_000]
    assert len({row["handle"] for row in rows["operations"]}) == 1


def test_a_short_record_is_damage(spool: KernelSpool) -> None:
    """It is counted, and gives no row."""
    spool.events[0].append(framed(pack("fault", 90_000, 10)[:32]))
    rows = native_rows(spool.write(layers=("faults",)), 1 << 10)
    assert rows["faults"] == []
