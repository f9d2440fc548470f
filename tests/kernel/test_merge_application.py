"""`lo2io merge --with`: a program's own archive, written while lo2io recorded it. The clocks are real."""

from __future__ import annotations

import json
import platform
import subprocess
import sys
from typing import TYPE_CHECKING

import otf2
import pytest
from workloads import own_archive
from workloads.served import lo2io

if TYPE_CHECKING:
    from pathlib import Path

NR_WRITES = 40
CLOCKS = ["raw", "realtime", *(["tsc"] if platform.machine() == "x86_64" else [])]

pytestmark = pytest.mark.requires("root", "tracefs", "events")


@pytest.mark.parametrize("clock", CLOCKS)
def test_each_write_lies_in_its_region(tmp_path: Path, clock: str) -> None:
    """Each write that lo2io saw lies in the region in which the program made it, within the error that is told."""
    trace, own = tmp_path / "T", tmp_path / "own"
    lo2io("record", "-o", trace, "--", sys.executable, own_archive.__file__, own, clock, str(NR_WRITES))
    named = ["--clock", clock] if clock == "raw" else []
    done = lo2io("merge", trace, "--with", own / "traces.otf2", *named)
    assert "1 of 1 processes joined" in done.stderr
    merged = trace / "merged"
    error_ns = json.loads((merged / "cluster.json").read_text(encoding="utf-8"))["application"]["error_ns"]
    assert error_ns < 1_000_000
    regions, writes = told(merged)
    assert len(regions) == len(writes) == NR_WRITES
    for (enter, leave), (begin, end) in zip(regions, writes, strict=True):
        assert enter - error_ns <= begin <= end <= leave + error_ns
    subprocess.run(["otf2-print", "-Werror", merged / "traces.otf2"], stdout=subprocess.DEVNULL, check=True)
    lo2io("verify", merged)


def told(merged: Path) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    """Begin and end of each region of the program, and of each of its writes, both of the same process."""
    regions: list[tuple[int, int]] = []
    writes: list[tuple[int, int]] = []
    entered = begun = 0
    with otf2.reader.open(str(merged / "traces.otf2")) as archive:
        for location, event in archive.events:
            if location.group.name != "MPI Rank 0":  # a disk
                continue
            kind = type(event).__name__
            if location.name == "Master thread":
                if kind == "Enter":
                    entered = event.time
                else:
                    regions.append((entered, event.time))
            elif kind == "IoOperationBegin":
                begun = event.time
            elif kind == "IoOperationComplete" and event.bytes_result == own_archive.FIRST_BYTES + len(writes):
                writes.append((begun, event.time))
    return regions, writes
