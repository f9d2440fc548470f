"""Damaged recordings are refused in one line, or become traces that all commands read: no crash, no endless work.

``LO2IO_FUZZ=N`` damages N copies (``make fuzz``). Each number makes other damage; LO2IO_FUZZ_FIRST is the first.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from workloads import mutate
from workloads.record import record

pytestmark = pytest.mark.requires("root", "tracefs", "events", "fio")

COUNT = int(os.environ.get("LO2IO_FUZZ", "10"))
FIRST = int(os.environ.get("LO2IO_FUZZ_FIRST", "45"))
WORK = """
dd if=/dev/zero of=written bs=4k count=20 conv=fsync 2>&-; cat written >&-
fio --name=a --filename=random --size=64k --bs=4k --rw=randrw --ioengine=io_uring --iodepth=4 --output=/dev/null
"""
"""Calls, names, block requests, requests of rings, and all layers."""


@pytest.mark.timeout(300 + 60 * COUNT)
def test_damaged_recordings(tmp_path: Path) -> None:
    """Each copy of a recording is damaged in a few places."""
    record(tmp_path / "T", ["sh", "-c", WORK], "--keep-spool", cwd=tmp_path)
    (tmp_path / "copies").mkdir()
    command = [sys.executable, Path(mutate.__file__), tmp_path / "T/spool", tmp_path / "copies", FIRST, COUNT]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=True)
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(found) == COUNT
    assert [each for each in found if each["wrong"]] == []
    assert any(not each["code"] for each in found), "all were refused: nothing was tried"
