"""docs/explanation/rules/dirty.md: who is charged with the pages that requests write, one test each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from build.kernelwriter import KernelSpool
from lo2io.native._lib import lib
from reference.compare import native_rows

from lo2io.native.records import framed, pack

from .test_parts import DEVICE, METADATA, block, part, parts

if TYPE_CHECKING:
    from pathlib import Path

PAGE, NOBODY = 4096, 0xFFFFFFFF
UNKNOWN, DIRTIED, DIRECT = lib.LO2_CHARGED_UNKNOWN, lib.LO2_CHARGED_DIRTIED, lib.LO2_CHARGED_DIRECT
LAYERS = ("parts", "dirty")


@pytest.fixture
def spool(tmp_path: Path) -> KernelSpool:
    """Threads 10 and 20 are recorded. Thread 10 has opened /f, the inode 7."""
    made = KernelSpool(tmp_path / "spool", sampled=("block",))
    made.fact_task(1_000, 10, 10)
    made.fact_task(1_001, 20, 20)
    made.kernel_call(55_000, 0, 10, "openat", 3, dfd=-100, flags=0)
    made.kernel_file(55_001, 0, 10, 3, [b"f"], inode=7, device=DEVICE, generation=5)
    return made


def dirty(spool: KernelSpool, t: int, tid: int, first: int, pages: int, **more: int) -> None:
    """A record ``DIRTY`` of /f on CPU 0, of pages that became dirty at that moment."""
    told = {"begin_ns": t, "device": DEVICE, "inode": 7, "generation": 5, "mode": 0o100644, "page_bytes": PAGE, **more}
    spool.events[0].append(framed(pack("dirty", t, tid, first_page=first, pages=pages, **told)))


def worker(spool: KernelSpool, t: int, tid: int, reason: int) -> None:
    """A record ``WRITEBACK`` on CPU 0."""
    spool.events[0].append(framed(pack("writeback", t, tid, reason=reason)))


def written(spool: KernelSpool, t: int, *each: dict[str, int], sector: int = 100, rwbs: bytes = b"W") -> None:
    """A request of these parts, issued at ``t`` by thread 10 and completed 50 ns later."""
    sectors = sum(one["bytes"] for one in each) // 512
    block(spool, t, "rq_issue", sector, sectors, rwbs=rwbs)
    parts(spool, t + 1, sector, *each)
    block(spool, t + 50, "rq_complete", sector, sectors, rwbs=rwbs)


def rows(spool: KernelSpool, layers: tuple[str, ...] = LAYERS) -> list[dict[str, Any]]:
    """The rows of write_backs."""
    found: list[dict[str, Any]] = native_rows(spool.write(layers=layers), 1 << 10)["write_backs"]
    return found


def charges(spool: KernelSpool, **more: Any) -> list[tuple[Any, ...]]:
    """Of each row: page, pages, thread, how that is known."""
    return [
        (row["offset_bytes"] // PAGE, row["bytes"] // PAGE, row["tid"], row["charged"]) for row in rows(spool, **more)
    ]


def test_each_page_goes_to_the_one_who_dirtied_it(spool: KernelSpool) -> None:
    """A part is cut where the dirtier changes; pages of nobody are unknown."""
    dirty(spool, 60_000, 10, 0, 20)
    dirty(spool, 60_010, 20, 20, 4)
    written(spool, 60_100, part(26 * PAGE))
    found = rows(spool)
    assert [(row["offset_bytes"] // PAGE, row["bytes"] // PAGE, row["tid"], row["charged"]) for row in found] == [
        (0, 20, 10, DIRTIED), (20, 4, 20, DIRTIED), (24, 2, NOBODY, UNKNOWN),
    ]  # fmt: skip
    times = ("first_dirtied_ns", "last_dirtied_ns", "issue_time_ns", "complete_time_ns")
    assert [found[0][name] - found[0]["issue_time_ns"] for name in times] == [-100, -100, 0, 50]
    assert found[0]["task"] is not None
    assert found[0]["file"] is not None


def test_the_last_one_before_the_issue_counts(spool: KernelSpool) -> None:
    """A page that is dirtied again while the request is under way belongs to that thread the next time."""
    dirty(spool, 60_000, 20, 0, 1)
    dirty(spool, 60_010, 10, 0, 1)
    block(spool, 60_020, "rq_issue", 100, 8)
    parts(spool, 60_021, 100, part(PAGE))
    dirty(spool, 60_030, 20, 0, 1)
    block(spool, 60_040, "rq_complete", 100, 8)
    written(spool, 60_050, part(PAGE), sector=200)
    assert charges(spool) == [(0, 1, 10, DIRTIED), (0, 1, 20, DIRTIED)]


def test_a_page_dirtied_between_its_cleaning_and_its_issue_is_written_twice(spool: KernelSpool) -> None:
    """The kernel tells no cleaning. Without a further dirtying, both writes are the newest one's."""
    dirty(spool, 60_000, 10, 0, 1)
    dirty(spool, 60_010, 10, 0, 1)
    written(spool, 60_100, part(PAGE))
    written(spool, 60_200, part(PAGE), sector=200)
    assert charges(spool) == [(0, 1, 10, DIRTIED)] * 2


def test_runs_that_are_told_late_keep_their_times(spool: KernelSpool) -> None:
    """A run is told when it ends: after a later dirtying on another CPU, and after the request's issue."""
    dirty(spool, 60_050, 20, 0, 1, begin_ns=60_020)
    dirty(spool, 60_060, 10, 0, 1, begin_ns=60_010)
    written(spool, 60_100, part(PAGE))
    block(spool, 60_200, "rq_issue", 300, 8)
    parts(spool, 60_201, 300, part(PAGE, 8 * PAGE))
    dirty(spool, 60_210, 10, 8, 1, begin_ns=60_190)
    block(spool, 60_250, "rq_complete", 300, 8)
    assert charges(spool) == [(0, 1, 20, DIRTIED), (8, 1, 10, DIRTIED)]


def test_pages_that_nobody_wrote_come_last(spool: KernelSpool) -> None:
    """They have no request."""
    dirty(spool, 60_000, 10, 0, 3)
    dirty(spool, 60_010, 20, 40, 2)
    written(spool, 60_100, part(PAGE, PAGE))
    found = rows(spool)
    assert [(not row["request"], row["offset_bytes"] // PAGE, row["bytes"] // PAGE) for row in found] == [
        (False, 1, 1), (True, 0, 1), (True, 2, 1), (True, 40, 2),
    ]  # fmt: skip


def test_another_file_is_another_s(spool: KernelSpool) -> None:
    """Device, inode and generation tell files apart."""
    for key in ({"device": DEVICE + 1}, {"inode": 8}, {"generation": 6}):
        dirty(spool, 60_000, 20, 0, 1, **key)
    written(spool, 60_100, part(PAGE))
    assert charges(spool)[0] == (0, 1, NOBODY, UNKNOWN)


def test_direct_writes_are_their_sender_s(spool: KernelSpool) -> None:
    """They dirty no page; reads and metadata are nobody's."""
    dirty(spool, 60_000, 20, 0, 1)
    written(spool, 60_100, part(PAGE, -(1 << 63), flags=lib.LO2_PART_DIRECT), part(PAGE, kind=METADATA))
    written(spool, 60_200, part(PAGE), sector=200, rwbs=b"R")
    found = [row for row in rows(spool) if row["request"]]
    assert [(row["tid"], row["charged"], row["bytes"], row["offset_bytes"]) for row in found] == [
        (10, DIRECT, PAGE, None)
    ]


def test_without_the_layer_there_are_no_charges(spool: KernelSpool) -> None:
    """Parts alone charge nobody. A damaged record is counted."""
    spool.events[0].append(framed(pack("dirty", 60_000, 10, pages=1)))
    spool.events[0].append(framed(pack("dirty", 60_001, 10, pages=1, page_bytes=PAGE)[:40]))
    written(spool, 60_100, part(PAGE))
    tables = native_rows(spool.write(layers=("parts",)), 1 << 10)
    assert (tables["write_backs"], tables["totals"]["nr_undecoded"]) == ([], 2)


def test_pages_that_are_no_file_s_are_left_out(spool: KernelSpool) -> None:
    """A file system's own have no mode. A disk's own are charged, and not told as unwritten: they may be metadata."""
    dirty(spool, 60_000, 10, 0, 1, mode=0)
    dirty(spool, 60_010, 20, 0, 2, inode=0, mode=0o060600, generation=0)
    written(spool, 60_100, {**part(PAGE, inode=0), "device": DEVICE})
    assert charges(spool) == [(0, 1, 20, DIRTIED)]


def test_pages_that_cannot_be_are_left_out(spool: KernelSpool) -> None:
    """As in a damaged spool: places beyond 63 bits, billions of pages, pages of a few bytes."""
    dirty(spool, 56_000, 10, (1 << 63) // PAGE - 2, 2)
    dirty(spool, 56_100, 10, 1 << 62, 1)
    dirty(spool, 56_200, 10, 5, 1)
    dirty(spool, 56_300, 10, 0, (1 << 32) - 1)
    dirty(spool, 56_400, 10, 0, 1, page_bytes=1)
    dirty(spool, 56_500, 10, 0, 0)
    tables = native_rows(spool.write(layers=("parts", "dirty")), 1 << 10)
    assert [row["offset_bytes"] for row in tables["write_backs"]] == [5 * PAGE]
    assert tables["totals"]["nr_undecoded"] == 5


def test_a_request_has_the_reason_of_the_worker_that_sends_it(spool: KernelSpool) -> None:
    """The newest one, until the worker has done its work. Other threads and reads have none."""
    sync, periodic = lib.LO2_WRITE_BACK_SYNC, lib.LO2_WRITE_BACK_PERIODIC
    worker(spool, 60_000, 20, periodic)
    written(spool, 60_100, part(PAGE))
    worker(spool, 60_200, 10, periodic)
    worker(spool, 60_210, 10, sync)
    written(spool, 60_300, part(PAGE))
    written(spool, 60_400, part(PAGE), rwbs=b"R")
    worker(spool, 60_500, 20, 0)
    written(spool, 60_600, part(PAGE))
    worker(spool, 60_700, 10, 0)
    written(spool, 60_800, part(PAGE))
    tables = native_rows(spool.write(layers=LAYERS), 1 << 10)
    assert [row["reason"] for row in tables["requests"]] == [0, sync, 0, sync, 0]
    begun = [row["reason"] for row in tables["request_events"] if not row["kind"]]
    assert begun == [0, sync, 0, sync, 0]


def test_a_reason_from_before_a_gap_is_not_known(spool: KernelSpool) -> None:
    """The worker may have begun something else since. A damaged record is counted."""
    worker(spool, 60_000, 10, lib.LO2_WRITE_BACK_SYNC)
    spool.events[0].append(framed(pack("lost", 60_020, 0, begin_ns=60_010)))
    written(spool, 60_100, part(PAGE))
    worker(spool, 60_200, 10, lib.LO2_WRITE_BACK_FOREIGN_FLUSH + 1)
    worker(spool, 60_210, 10, lib.LO2_WRITE_BACK_BACKGROUND)
    written(spool, 60_300, part(PAGE))
    tables = native_rows(spool.write(layers=LAYERS), 1 << 10)
    assert [row["reason"] for row in tables["requests"]] == [0, lib.LO2_WRITE_BACK_BACKGROUND]
    assert tables["totals"]["nr_undecoded"] == 1


def test_a_completion_names_the_one_thread_that_is_charged(spool: KernelSpool) -> None:
    """Not two threads, nor one beside an unknown one; metadata is nobody's."""
    dirty(spool, 60_000, 20, 0, 2)
    dirty(spool, 60_010, 10, 2, 1)
    written(spool, 60_100, part(2 * PAGE), part(PAGE, kind=METADATA))
    written(spool, 60_200, part(3 * PAGE), sector=200)
    written(spool, 60_300, part(PAGE, 2 * PAGE), part(PAGE, 8 * PAGE), sector=300)
    written(spool, 60_400, part(PAGE, -(1 << 63), flags=lib.LO2_PART_DIRECT), sector=400)
    events = native_rows(spool.write(layers=LAYERS), 1 << 10)["request_events"]
    complete = lib.LO2_RQ_COMPLETE
    assert [row["charged"] for row in events if row["kind"] == complete] == [20, 0, 0, 10]
    assert {row["charged"] for row in events if row["kind"] != complete} == {0}


def test_charges_name_the_call(spool: KernelSpool) -> None:
    """By its start. Neighbours of two calls are two rows; a store outside of calls has none."""
    for t in (60_000, 60_100):
        spool.kernel_call(t, 0, 10, "write", PAGE, duration=50, fd=3, buf=0, count=PAGE)
    dirty(spool, 60_040, 10, 0, 2, begin_ns=60_010)
    dirty(spool, 60_140, 10, 2, 2, begin_ns=60_110)
    dirty(spool, 60_160, 10, 4, 1)
    dirty(spool, 60_161, 10, 5, 1)
    written(spool, 60_200, part(6 * PAGE))
    found = rows(spool)
    assert [row["bytes"] // PAGE for row in found] == [2, 2, 2]
    first, second, outside = (row["call_begin_ns"] for row in found)
    assert (second - first, outside) == (100, None)


def test_direct_writes_name_their_call(spool: KernelSpool) -> None:
    """It is the one that the sender is in."""
    spool.kernel_call(60_000, 0, 10, "write", PAGE, duration=200, fd=3, buf=0, count=PAGE)
    for t in (60_050, 60_300):
        written(spool, t, part(PAGE, -(1 << 63), flags=lib.LO2_PART_DIRECT))
    tables = native_rows(spool.write(layers=LAYERS), 1 << 10)
    begin = next(row["begin_time_ns"] for row in tables["operations"] if row["bytes_request"] == PAGE)
    assert [row["call_begin_ns"] for row in tables["write_backs"]] == [begin, None]


@pytest.mark.timeout(20)
@pytest.mark.parametrize("offset", [(1 << 63) - 1 - PAGE, (1 << 63) - (1 << 32), -5])
def test_a_part_that_ends_beyond_all_files_has_no_offset(spool: KernelSpool, offset: int) -> None:
    """Damage: page by page from there on, the engine would go on for years."""
    dirty(spool, 60_000, 10, 0, 4)
    written(spool, 60_100, part(PAGE, offset), part(PAGE, 0))
    assert [(row["offset_bytes"], row["charged"]) for row in rows(spool) if row["request"]] == [
        (None, UNKNOWN),
        (0, DIRTIED),
    ]
