"""docs/explanation/rules/parts.md: parts of block requests, one test each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from build.kernelwriter import KernelSpool
from lo2io.native._lib import ffi, lib
from reference.compare import native_rows

from lo2io.native.records import framed, pack

if TYPE_CHECKING:
    from pathlib import Path

    from build.perfwriter import SpoolBuilder

VDA, DEVICE = 254 << 20, 8 << 20 | 1
FILE, METADATA, FLUSH, DISCARD, ZEROES = (
    lib.LO2_PART_FILE, lib.LO2_PART_METADATA, lib.LO2_PART_FLUSH, lib.LO2_PART_DISCARD, lib.LO2_PART_ZEROES,
)  # fmt: skip
LAST, CUT = lib.LO2_PARTS_LAST, lib.LO2_PARTS_CUT


@pytest.fixture
def spool(tmp_path: Path) -> KernelSpool:
    """Thread 10 has opened /f, the inode 7."""
    made = KernelSpool(tmp_path / "spool", sampled=("block",))
    made.fact_task(1_000, 10, 10)
    made.kernel_call(55_000, 0, 10, "openat", 3, dfd=-100, flags=0)
    made.kernel_file(55_001, 0, 10, 3, [b"f"], inode=7, device=DEVICE, generation=5)
    return made


def part(size: int, offset: int = 0, *, kind: int = FILE, inode: int = 7, **more: int) -> dict[str, int]:
    """A part of /f, unless told otherwise."""
    told = {"device": DEVICE, "generation": 5} if inode == 7 else {}
    return {"bytes": size, "offset": offset, "kind": kind, "inode": inode, **told, **more}


def parts(spool: KernelSpool, t: int, sector: int, *each: dict[str, int], flags: int = LAST) -> None:
    """A record ``PARTS`` on CPU 0."""
    record = pack("parts", t, 10, disk=VDA, sector=sector, count=len(each), flags=flags, parts=list(each))
    spool.events[0].append(framed(record))


def block(spool: SpoolBuilder, t: int, name: str, *where: int, rwbs: bytes = b"W") -> None:
    """An event of a request, on CPU 0: its first sector, and their number."""
    sector, sectors = where
    tid = 0 if name == "rq_complete" else 10
    spool.block(t, 0, tid, name, dev=VDA, sector=sector, nr_sector=sectors, rwbs=rwbs)


def rows(spool: KernelSpool, layers: tuple[str, ...] = ("parts",)) -> list[dict[str, Any]]:
    """The rows of request_parts."""
    found: list[dict[str, Any]] = native_rows(spool.write(layers=layers), 1 << 10)["request_parts"]
    return found


@pytest.mark.parametrize("kind", [FLUSH, ZEROES + 1, 255])
def test_kinds_that_no_program_makes_are_counted(spool: KernelSpool, kind: int) -> None:
    """The record tells nothing, and the table has no such kind."""
    block(spool, 60_000, "rq_issue", 100, 8)
    parts(spool, 60_001, 100, part(4096, kind=kind))
    block(spool, 60_010, "rq_complete", 100, 8)
    found = native_rows(spool.write(layers=("parts",)), 1 << 10)
    assert (found["request_parts"], found["totals"]["nr_undecoded"]) == ([], 1)


@pytest.mark.parametrize(("lacking", "undecoded"), [(0, 0), (1, 1)])
def test_a_record_ends_behind_its_parts(spool: KernelSpool, lacking: int, undecoded: int) -> None:
    """The programs write no room for further parts. A record that ends earlier is damaged."""
    block(spool, 60_000, "rq_issue", 100, 8)
    record = pack("parts", 60_001, 10, disk=VDA, sector=100, count=1, flags=LAST, parts=[part(4096)])
    size = ffi.offsetof("lo2_kernel_parts", "parts") + ffi.sizeof("lo2_kernel_part")
    spool.events[0].append(framed(record[: size - lacking]))
    block(spool, 60_010, "rq_complete", 100, 8)
    found = native_rows(spool.write(layers=("parts",)), 1 << 10)
    assert (len(found["request_parts"]), found["totals"]["nr_undecoded"]) == (1 - undecoded, undecoded)


def test_parts_of_another_size_than_the_request_are_counted(spool: KernelSpool) -> None:
    """They tell nothing. If the last record of a request is missing, its other parts tell nothing either."""
    block(spool, 60_000, "rq_issue", 100, 8)
    parts(spool, 60_001, 100, part(4096 + 512))
    block(spool, 60_002, "rq_issue", 200, 16)
    parts(spool, 60_003, 200, part(4096), flags=0)
    for sector, sectors in ((100, 8), (200, 16)):
        block(spool, 60_010, "rq_complete", sector, sectors)
    found = native_rows(spool.write(layers=("parts",)), 1 << 10)
    assert (found["request_parts"], found["totals"]["nr_undecoded"]) == ([], 1)


def test_parts_stand_in_the_order_of_the_sectors(spool: KernelSpool) -> None:
    """Each has its first sector, and its file if that is known; several records are one request."""
    block(spool, 60_000, "rq_issue", 100, 24)
    parts(spool, 60_001, 100, part(4096, 8192), part(512, inode=9), flags=0)
    parts(spool, 60_002, 100, part(7680, kind=METADATA, inode=0))
    block(spool, 60_010, "rq_complete", 100, 24)
    found = rows(spool)
    assert [(row["number"], row["sector"], row["bytes"], row["kind"]) for row in found] == [
        (0, 100, 4096, FILE), (1, 108, 512, FILE), (2, 109, 7680, METADATA),
    ]  # fmt: skip
    assert [row["file"] is not None for row in found] == [True, False, False]
    assert (found[0]["offset_bytes"], found[0]["generation"]) == (8192, 5)
    assert len({row["request"] for row in found}) == 1


def test_an_inode_that_is_used_again_is_another_file(spool: KernelSpool) -> None:
    """The generation tells them apart."""
    block(spool, 60_000, "rq_issue", 100, 8)
    parts(spool, 60_001, 100, part(4096, generation=6))
    block(spool, 60_010, "rq_complete", 100, 8)
    assert [row["file"] for row in rows(spool)] == [None]


def test_a_request_that_is_issued_again_carries_the_same(spool: KernelSpool) -> None:
    """The parts of its second issue are no further parts."""
    for t in (60_000, 60_020):
        block(spool, t, "rq_issue", 100, 8)
        parts(spool, t + 1, 100, part(4096))
        if t == 60_000:
            block(spool, t + 10, "rq_requeue", 100, 8)
    block(spool, 60_040, "rq_complete", 100, 8)
    assert [row["bytes"] for row in rows(spool)] == [4096]


def test_further_bios_are_said(spool: KernelSpool) -> None:
    """The last known part of such a request is marked."""
    block(spool, 60_000, "rq_issue", 100, 80)
    parts(spool, 60_001, 100, part(4096), part(4096, inode=9), flags=LAST | CUT)
    block(spool, 60_010, "rq_complete", 100, 80)
    assert [row["cut"] for row in rows(spool)] == [0, 1]


@pytest.mark.parametrize(("rwbs", "kind"), [(b"FF", FLUSH), (b"D", DISCARD), (b"WZ", ZEROES)])
def test_requests_without_a_file_s_bytes(spool: KernelSpool, rwbs: bytes, kind: int) -> None:
    """Their operation tells what they are. Without the layer they have no part."""
    sectors = 0 if kind == FLUSH else 8
    block(spool, 60_000, "rq_issue", 100, sectors, rwbs=rwbs)
    block(spool, 60_010, "rq_complete", 100, sectors, rwbs=rwbs)
    assert [(row["kind"], row["bytes"], row["offset_bytes"]) for row in rows(spool)] == [(kind, 512 * sectors, None)]


def test_without_the_layer_there_are_no_parts(spool: KernelSpool) -> None:
    """A discard of a recording that knows no parts has none."""
    block(spool, 60_000, "rq_issue", 100, 8, rwbs=b"D")
    block(spool, 60_010, "rq_complete", 100, 8, rwbs=b"D")
    assert rows(spool, ()) == []


def test_parts_of_unknown_requests_are_left_out(spool: KernelSpool) -> None:
    """A record without its issue belongs to nothing, nor does one that is damaged."""
    parts(spool, 60_001, 300, part(4096))
    spool.events[0].append(framed(pack("parts", 60_002, 10, disk=VDA, sector=300, count=9)))
    spool.events[0].append(framed(pack("parts", 60_003, 10, disk=VDA, sector=300)[:40]))
    assert rows(spool) == []


def test_the_event_names_the_only_inode(spool: KernelSpool) -> None:
    """The end of a request of one file names it; that of several does not."""
    for sector, second in ((100, 7), (200, 9)):
        block(spool, 60_000 + sector, "rq_issue", sector, 16)
        parts(spool, 60_001 + sector, sector, part(4096), part(4096, 65536, inode=second))
        block(spool, 60_010 + sector, "rq_complete", sector, 16)
    events = native_rows(spool.write(layers=("parts",)), 1 << 10)["request_events"]
    assert [row["inode"] for row in events if row["kind"] == lib.LO2_RQ_COMPLETE] == [7, 0]
