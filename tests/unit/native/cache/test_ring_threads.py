"""What threads that use rings do in the page cache, when none of their requests is known."""

from __future__ import annotations

from typing import TYPE_CHECKING

from build.ringrig import PID
from build.sqerig import SqeRig
from reference.compare import run_native

from lo2io.native.records import framed, pack

if TYPE_CHECKING:
    from pathlib import Path


def test_pages_before_the_first_request(tmp_path: Path) -> None:
    """The thread is known by a registered file, and its submission was not recorded: the pages have no cause."""
    rig = SqeRig(tmp_path, "within")
    rig.setup()
    rig.told(3, b"f", b"", inode=7, slot=True)
    time = rig.tick()
    pages = {"device": 8 << 20 | 1, "inode": 7, "first_page": 2, "pages": 3, "page_bytes": 4096, "mode": 0o100644}
    rig.kernel.events[0].append(framed(pack("fill", time, PID, begin_ns=time, generation=0, **pages)))
    found = run_native(rig.spool.write(layers=("cache",)))
    assert found["ring_requests"] == []
    assert [(row["inode"], row["first_page"], row["pages"]) for row in found["fills"]] == [(7, 2, 3)]
