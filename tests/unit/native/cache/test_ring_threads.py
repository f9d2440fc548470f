"""What threads that use rings do in the page cache, with and without a known request."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from build.kernelwriter import OF_REQUEST, SLOT, WHOLE
from build.ringrig import PID
from build.sqerig import SqeRig
from lo2io.native._lib import lib
from reference.compare import run_native

from lo2io.native.records import framed, pack

if TYPE_CHECKING:
    from pathlib import Path


CACHED = lib.LO2_FILE_CACHED
READ = 22
FIXED_FILE = 1


def fills(rig: SqeRig, first_page: int, pages: int) -> None:
    """The thread puts pages of the file into the page cache."""
    time = rig.tick()
    place = {"device": 8 << 20 | 1, "inode": 7, "first_page": first_page, "pages": pages, "page_bytes": 4096}
    fill = pack("fill", time, PID, begin_ns=time, generation=0, mode=0o100644, **place)
    rig.kernel.events[0].append(framed(fill))


@pytest.mark.parametrize(
    ("result", "verdict", "missed", "ahead"),
    [(8192, 6, 2, 1), (4096, 6, 1, 2), (0, 0, None, None), (-5, 0, None, None)],
)
def test_a_read_has_missed_the_pages_that_it_moved(
    tmp_path: Path, result: int, verdict: int, missed: int | None, ahead: int | None
) -> None:
    """Of three pages that the thread put into the cache; those that the request did not move were read ahead."""
    rig = SqeRig(tmp_path, "within")
    rig.setup()
    told = {"file": 0x1000, "device": 8 << 20 | 1, "inode": 7, "mode": 0o100644}
    rig.kernel.kernel_file(rig.tick(), 0, PID, 2, (b"f", b""), of=OF_REQUEST, flags=WHOLE | SLOT | CACHED, **told)
    rig.ask(1, opcode=READ, fd=2, flags=FIXED_FILE, off=8192, length=8192, file=0x1000)
    fills(rig, 2, 3)
    rig.complete(1, result)
    rig.call("sync")
    rig.run(layers=("cache",))
    (row,) = rig.rows["ring_requests"]
    assert (row["cache"], row["cache_missed_pages"], row["cache_ahead_pages"]) == (verdict, missed, ahead)


def test_pages_before_the_first_request(tmp_path: Path) -> None:
    """The thread is known by a registered file, and its submission was not recorded: the pages have no cause."""
    rig = SqeRig(tmp_path, "within")
    rig.setup()
    rig.told(3, b"f", b"", inode=7, slot=True)
    fills(rig, 2, 3)
    found = run_native(rig.spool.write(layers=("cache",)))
    assert found["ring_requests"] == []
    assert [(row["inode"], row["first_page"], row["pages"]) for row in found["fills"]] == [(7, 2, 3)]


def test_runs_of_pages_that_cannot_be_are_left_out(tmp_path: Path) -> None:
    """As in a damaged spool: places beyond 63 bits, billions of pages, no page."""
    rig = SqeRig(tmp_path, "within")
    rig.setup()
    rig.told(3, b"f", b"", inode=7, slot=True)
    for first_page, pages in ((1 << 62, 1), (0, (1 << 32) - 1), (0, 0)):
        fills(rig, first_page, pages)
    assert run_native(rig.spool.write(layers=("cache",)))["totals"]["nr_undecoded"] == 3
