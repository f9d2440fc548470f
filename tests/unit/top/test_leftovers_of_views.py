"""Folders of views that were killed."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

from lo2io.folder import Folder
from lo2io.top import session

if TYPE_CHECKING:
    from pathlib import Path


def test_only_folders_that_nobody_holds_go(tmp_path: Path) -> None:
    """Not those of a running view, nor young ones, nor links."""
    old = time.time() - 3600
    for name in ("lo2io-top-held", "lo2io-top-stale", "lo2io-top-young", "other"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "messages").touch()
        if name != "lo2io-top-young":
            os.utime(tmp_path / name, (old, old))
    (tmp_path / "lo2io-top-link").symlink_to(tmp_path / "other")
    with Folder.open(tmp_path / "lo2io-top-held") as held:
        held.lock()
        session._remove_stale(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {
        "lo2io-top-held",
        "lo2io-top-young",
        "lo2io-top-link",
        "other",
    }
    assert (tmp_path / "other/messages").exists()
