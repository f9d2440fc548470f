"""The process that closes events keeps nothing else of lo2io."""

from __future__ import annotations

import fcntl
import os
import time
from typing import TYPE_CHECKING, cast

from lo2io.capture import background_close

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import pytest

    from lo2io.capture.events.opened import OpenEvents

LATE_S = 0.3


class NoEvents:
    """Nothing to close."""

    kernel = None
    keep = None

    def iter_fds(self) -> Iterator[int]:
        """None."""
        return iter(())

    def unmap(self) -> None:
        """Nothing is mapped."""


def test_the_lock_of_the_spool_is_given_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The process inherits the locked folder. When lo2io goes on, no process but lo2io itself holds the lock.

    The process takes its time to look through its descriptors, as on a busy machine.
    """
    list_folder = os.listdir

    def list_late(path: str) -> list[str]:
        time.sleep(LATE_S)
        return list_folder(path)

    monkeypatch.setattr(os, "listdir", list_late)
    own = os.open(tmp_path, os.O_RDONLY)
    fcntl.flock(own, fcntl.LOCK_EX)
    background_close.close_in_background(cast("OpenEvents", NoEvents()))
    os.close(own)
    again = os.open(tmp_path, os.O_RDONLY)
    try:
        fcntl.flock(again, fcntl.LOCK_EX | fcntl.LOCK_NB)
    finally:
        os.close(again)
