"""docs/explanation/rules/faults.md: page faults that needed I/O, one test each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from build.kernelwriter import KernelSpool
from lo2io.native._lib import lib
from reference.compare import native_rows

from lo2io.native.records import framed, pack
from lo2io.trace.columns import CACHE_VERDICT as VERDICT
from lo2io.trace.columns import FILL_REASON as REASON

if TYPE_CHECKING:
    from pathlib import Path

VDA = 254 << 20
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


ALL = ("faults", "waits", "cache", "parts")


def sleep(spool: KernelSpool, out: int, wake: int, end: int, flags: int = 0) -> None:
    """A stretch of thread 10 without a CPU."""
    spool.record("sleep", end, 0, 10, out_ns=out, wake_ns=wake, state=lib.LO2_SLEEP_BLOCKED, flags=flags)


def fill(spool: KernelSpool, t: int, first: int, pages: int, **more: int) -> None:
    """A record ``FILL`` of /f, begun and ended at one time."""
    told = {"device": DEVICE, "inode": 7, "generation": 5, "mode": REGULAR, "page_bytes": PAGE, "begin_ns": t, **more}
    spool.events[0].append(framed(pack("fill", t, 10, first_page=first, pages=pages, **told)))


def everything(spool: KernelSpool, layers: tuple[str, ...] = ALL) -> dict[str, Any]:
    """All tables, with the fault's operation alone among the operations."""
    rows = native_rows(spool.write(layers=layers), 1 << 10)
    rows["operations"] = [row for row in rows["operations"] if row["call"] == "page_fault"]
    return rows


def test_stretches_of_a_fault_are_parts_of_its_time(spool: KernelSpool) -> None:
    """They are rows before its own; those of before are not its."""
    sleep(spool, 56_000, 57_000, 58_000)
    sleep(spool, 61_000, 71_000, 72_000, lib.LO2_SLEEP_IOWAIT)
    sleep(spool, 73_000, 74_000, 74_500)
    fault(spool, 60_000, 90_000, nr_sleeps=2, run_queue_ns=1_500, blocked_ns=11_000)
    rows = everything(spool)
    (operation,), (row,) = rows["operations"], rows["faults"]
    assert (operation["run_queue_ns"], operation["blocked_ns"]) == (1_500, 11_000)
    assert (row["run_queue_ns"], row["blocked_ns"]) == (1_500, 11_000)
    stretches = [(each["before"], each["begin_time_ns"], each["end_time_ns"]) for each in rows["off_cpu"]]
    assert stretches == [(1, 61_000, 72_000), (1, 73_000, 74_500)]
    assert (VERDICT[operation["cache"]], operation["cache_wait_ns"]) == ("wait", 11_000)


@pytest.mark.parametrize(
    "told",
    [
        {"nr_sleeps": 2, "run_queue_ns": 1_000, "blocked_ns": 10_000},
        {"nr_sleeps": 1, "run_queue_ns": 1_000, "blocked_ns": 10_001},
        {"nr_sleeps": 1, "run_queue_ns": 1_000, "blocked_ns": 10_000, "unseen": 1},
    ],
    ids=["a stretch is missing", "other sums", "not seen"],
)
def test_parts_that_are_not_known(spool: KernelSpool, told: dict[str, int]) -> None:
    """The operation has none, and no verdict. The row of faults has the sums that the kernel told."""
    sleep(spool, 61_000, 71_000, 72_000)
    fault(spool, 60_000, 90_000, **told)
    rows = everything(spool)
    (operation,), (row,) = rows["operations"], rows["faults"]
    assert (operation["run_queue_ns"], operation["blocked_ns"]) == (None, None)
    assert VERDICT[operation["cache"]] == "unknown"
    assert row["blocked_ns"] == (None if "unseen" in told else told["blocked_ns"])


def test_the_last_four_stretches_are_kept(spool: KernelSpool) -> None:
    """Of a fault with five, one is missing. The next fault has its own."""
    for at in range(61_000, 66_000, 1_000):
        sleep(spool, at, at + 10, at + 20)
    fault(spool, 60_000, 70_000, nr_sleeps=5, run_queue_ns=50, blocked_ns=50)
    sleep(spool, 71_000, 71_010, 71_020)
    fault(spool, 70_500, 72_000, nr_sleeps=1, run_queue_ns=10, blocked_ns=10)
    rows = everything(spool)
    assert [row["blocked_ns"] for row in rows["operations"]] == [None, 10]
    assert [row["blocked_ns"] for row in rows["faults"]] == [50, 10]
    assert len(rows["off_cpu"]) == 5


def test_fills_are_the_faults(spool: KernelSpool) -> None:
    """Its page by demand, the others of its file read ahead; what was filled before is nobody's."""
    fill(spool, 58_000, 0, 2)
    fill(spool, 61_000, 2, 1)
    fill(spool, 62_000, 3, 4)
    fill(spool, 63_000, 0, 9, inode=8)
    fault(spool, 60_000, 90_000)
    fill(spool, 91_000, 30, 1)
    rows = everything(spool)
    (operation,), (row,) = rows["operations"], rows["faults"]
    fills = [(each["cause"], REASON[each["why"]], each["first_page"], each["pages"]) for each in rows["fills"]]
    mine = operation["id"]
    assert sorted(fills) == [
        *((0, "no call", 0, 2), (0, "no call", 30, 1)),
        *((mine, "ahead", 3, 4), (mine, "demand", 2, 1), (mine, "other", 0, 9)),
    ]
    assert {row["used_pages"] for row in rows["fills"] if row["why"] == REASON.index("ahead")} == {None}  # by mappings
    assert row["filled_pages"] == 5
    found = VERDICT[operation["cache"]], operation["cache_missed_pages"], operation["cache_ahead_pages"]
    assert found == ("miss", 1, 4)


def test_fills_without_a_fault(spool: KernelSpool) -> None:
    """They are nobody's, also if there are many, or the thread ends."""
    for number in range(1_030):
        fill(spool, 61_000 + number, 2 * number, 1)
    fault(spool, 60_000, 90_000)
    fill(spool, 91_000, 5_000, 1)
    spool.task_exit(92_000, 0, 10, 10)
    rows = everything(spool)
    assert sum(each["pages"] for each in rows["fills"]) == 1_031
    assert sum(each["cause"] == 0 for each in rows["fills"]) == 1_025
    assert rows["faults"][0]["filled_pages"] is None


def test_its_request(spool: KernelSpool) -> None:
    """It was issued by the thread since the first look, and carries the page."""
    for t, sector, page in ((58_000, 100, 2), (61_000, 200, 2), (62_000, 300, 40)):
        told = {"dev": VDA, "sector": sector, "nr_sector": 16, "rwbs": b"R"}
        spool.block(t, 0, 10, "rq_issue", **told)
        part = {
            "bytes": 2 * PAGE,
            "offset": page * PAGE,
            "kind": lib.LO2_PART_FILE,
            "inode": 7,
            "device": DEVICE,
            "generation": 5,
        }
        record = {"disk": VDA, "sector": sector, "count": 1, "flags": lib.LO2_PARTS_LAST, "parts": [part]}
        spool.events[0].append(framed(pack("parts", t + 1, 10, **record)))
        spool.block(t + 50, 0, 0, "rq_complete", **told)
    fault(spool, 60_000, 90_000, page=3)
    fault(spool, 91_000, 92_000, page=41)
    rows = everything(spool)
    requests = {row["sector"]: row["id"] for row in rows["requests"]}
    assert [row["request"] for row in rows["faults"]] == [requests[200], 0]


def test_a_fault_inside_of_a_call_has_its_parts(spool: KernelSpool) -> None:
    """Its stretches and fills are the call's."""
    spool.kernel_enter(60_000, 0, 10, "write", fd=3, count=8)
    sleep(spool, 61_500, 71_000, 72_000)
    fill(spool, 61_200, 2, 1)
    fault(spool, 61_000, 80_000, nr_sleeps=1, run_queue_ns=1_000, blocked_ns=9_500)
    spool.kernel_exit(90_000, 0, 10, "write", 8)
    rows = native_rows(spool.write(layers=ALL), 1 << 10)
    (write,) = (row for row in rows["operations"] if row["call"] == "write")
    assert (write["run_queue_ns"], write["blocked_ns"]) == (1_000, 9_500)
    assert [row["cause"] for row in rows["fills"]] == [write["id"]]
    (row,) = rows["faults"]
    assert (row["blocked_ns"], row["filled_pages"]) == (9_500, None)


def test_parts_longer_than_the_fault_are_damage(spool: KernelSpool) -> None:
    """It is counted, and gives no row."""
    fault(spool, 60_000, 90_000, run_queue_ns=20_000, blocked_ns=10_001)
    rows = everything(spool)
    assert (rows["faults"], rows["totals"]["nr_undecoded"]) == ([], 1)
