"""OTF2's modes of a handle become the flags of open(2)."""

from __future__ import annotations

import os

import _otf2
import pytest

from lo2io.otf2.foreign.definitions import open_flags

CREATION = {"CREATE": "CREAT", "TRUNCATE": "TRUNC", "DIRECTORY": "DIRECTORY", "EXCLUSIVE": "EXCL"} | {
    "NO_CONTROLLING_TERMINAL": "NOCTTY",
    "NO_FOLLOW": "NOFOLLOW",
    "PATH": "PATH",
}
STATUS = {"CLOSE_ON_EXEC": "CLOEXEC", "APPEND": "APPEND", "NON_BLOCKING": "NONBLOCK", "ASYNC": "ASYNC"} | {
    "SYNC": "SYNC",
    "DATA_SYNC": "DSYNC",
    "AVOID_CACHING": "DIRECT",
    "NO_ACCESS_TIME": "NOATIME",
}
ACCESS = {"READ_ONLY": os.O_RDONLY, "WRITE_ONLY": os.O_WRONLY, "READ_WRITE": os.O_RDWR, "EXECUTE_ONLY": os.O_RDONLY}


@pytest.mark.parametrize(("mode", "flag"), CREATION.items())
def test_creation_flags(mode: str, flag: str) -> None:
    """Each alone."""
    assert open_flags(0, getattr(_otf2, f"IO_CREATION_FLAG_{mode}").value, 0) == getattr(os, f"O_{flag}")


@pytest.mark.parametrize(("mode", "flag"), STATUS.items())
def test_status_flags(mode: str, flag: str) -> None:
    """Each alone."""
    assert open_flags(0, 0, getattr(_otf2, f"IO_STATUS_FLAG_{mode}").value) == getattr(os, f"O_{flag}")


@pytest.mark.parametrize(("mode", "flag"), ACCESS.items())
def test_access_modes(mode: str, flag: int) -> None:
    """Linux has three of them. Flags of both kinds come together."""
    both = _otf2.IO_CREATION_FLAG_CREATE.value, _otf2.IO_STATUS_FLAG_APPEND.value
    assert open_flags(getattr(_otf2, f"IO_ACCESS_MODE_{mode}").value, *both) == flag | os.O_CREAT | os.O_APPEND
