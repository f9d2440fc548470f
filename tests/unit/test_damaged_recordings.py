"""Damaged recordings are refused in one line, or become traces that keep every rule: no crash, no endless work.

Damaged traces, and damaged archives of other tools, are read or refused in one line. The originals are in
``tests/data/corpus``. ``LO2IO_FUZZ=N`` damages N copies of each kind (``make fuzz``). Each number makes other damage;
LO2IO_FUZZ_FIRST is the first. With ``LO2IO_FUZZ_UNDER=scripts/sanitized.sh`` they are read under that command.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
from workloads import mutate

CORPUS = Path(__file__).parent.parent / "data/corpus"
COUNT = int(os.environ.get("LO2IO_FUZZ", "1"))
FIRST = int(os.environ.get("LO2IO_FUZZ_FIRST", "1"))
UNDER = os.environ.get("LO2IO_FUZZ_UNDER", "").split()


@pytest.mark.timeout(300 + 180 * COUNT)
def test_damaged_recordings(tmp_path: Path) -> None:
    """Each copy of a spool, of a trace, and of another tool's archive is damaged in a few places."""
    for kind in mutate.KINDS:
        with tarfile.open(CORPUS / f"{kind}.tar.xz") as packed:
            packed.extraction_filter = getattr(tarfile, "data_filter", None)  # early Pythons 3.11 have none
            packed.extractall(tmp_path / "originals" / kind)  # noqa: S202
    command = [*UNDER, sys.executable, Path(mutate.__file__), tmp_path / "originals", tmp_path, FIRST, COUNT]
    done = subprocess.run(list(map(str, command)), stdout=subprocess.PIPE, text=True, check=True)
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(found) == COUNT * len(mutate.KINDS)
    assert [each for each in found if each["wrong"]] == []
    assert any(each["kind"] == "spool" and not each["code"] for each in found), "all were refused: nothing was tried"
