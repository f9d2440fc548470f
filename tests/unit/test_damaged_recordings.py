"""Damaged recordings are refused in one line, or become traces that keep every rule: no crash, no endless work.

Damaged traces, and damaged archives of other tools, are read or refused in one line. ``LO2IO_FUZZ=N`` damages N copies
of each kind (``make fuzz``). Each number makes other damage; LO2IO_FUZZ_FIRST is the first. With
``LO2IO_FUZZ_UNDER=scripts/sanitized.sh`` they are read under that command.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from build.foreign_archives import score_p
from workloads import mutate
from workloads.record import record

pytestmark = pytest.mark.requires("root", "tracefs", "events", "fio")

COUNT = int(os.environ.get("LO2IO_FUZZ", "5"))
FIRST = int(os.environ.get("LO2IO_FUZZ_FIRST", "45"))
UNDER = os.environ.get("LO2IO_FUZZ_UNDER", "").split()
WORK = """
dd if=/dev/zero of=written bs=4k count=20 conv=fsync 2>&-; cat written >&-
fio --name=a --filename=random --size=64k --bs=4k --rw=randrw --ioengine=io_uring --iodepth=4 --output=/dev/null
"""
"""Calls, names, block requests, requests of rings, and all layers."""


@pytest.mark.timeout(300 + 180 * COUNT)
def test_damaged_recordings(tmp_path: Path) -> None:
    """Each copy of a recording, of its trace, and of another tool's archive is damaged in a few places."""
    record(tmp_path / "T", ["sh", "-c", WORK], "--keep-spool", cwd=tmp_path)
    score_p().trace.write(tmp_path / "F")
    originals = {"spool": tmp_path / "T/spool", "trace": tmp_path / "T", "foreign": tmp_path / "F"}
    found = {kind: damaged(kind, original, tmp_path) for kind, original in originals.items()}
    assert [each for kind in found.values() for each in kind if each["wrong"]] == []
    assert any(not each["code"] for each in found["spool"]), "all were refused: nothing was tried"


def damaged(kind: str, original: Path, folder: Path) -> list[dict[str, Any]]:
    """What lo2io makes of damaged copies of a kind."""
    (folder / kind).mkdir()
    command = [*UNDER, sys.executable, Path(mutate.__file__), kind, original, folder / kind, FIRST, COUNT]
    done = subprocess.run(list(map(str, command)), stdout=subprocess.PIPE, text=True, check=True)
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(found) == COUNT
    return found
