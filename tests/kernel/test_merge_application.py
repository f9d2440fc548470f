"""`lo2io merge --with`: a program's own archive, written while lo2io recorded it. The clocks are real."""

from __future__ import annotations

import json
import platform
import subprocess
import sys
from typing import TYPE_CHECKING

import numpy as np
import otf2
import pytest
from workloads import own_archive
from workloads.served import lo2io

from lo2io.cluster.alignment import trace_clock
from lo2io.cluster.clocks import load_clock
from lo2io.trace.reader import open_trace

if TYPE_CHECKING:
    from pathlib import Path

NR_WRITES = 40
CLOCKS = ["raw", "realtime", "strange", *(["tsc"] if platform.machine() == "x86_64" else [])]

pytestmark = pytest.mark.requires("root", "tracefs", "events")


@pytest.mark.parametrize("clock", CLOCKS)
def test_each_write_lies_in_its_region(tmp_path: Path, clock: str) -> None:
    """Each write that lo2io saw lies in the region in which the program made it, within the error that is told.

    If nobody knows the clock, the writes tell it. If the archive tells no pid, they tell the process, too.
    """
    trace, own = tmp_path / "T", tmp_path / "own"
    lo2io("record", "-o", trace, "--", sys.executable, own_archive.__file__, own, clock, str(NR_WRITES))
    named = ["--clock", clock] if clock == "raw" else []
    merged = tmp_path / "new" / "merged"
    done = lo2io("merge", trace, "--with", own / "traces.otf2", "-o", merged, *named)
    assert "1 of 1 processes joined, 1 of 1 threads" in done.stderr
    assert (f"its clock: {NR_WRITES} calls that both recorded" in done.stderr) == (clock == "strange")
    error_ns = json.loads((merged / "cluster.json").read_text(encoding="utf-8"))["application"]["error_ns"]
    regions, writes, moments = told(merged)
    assert len(regions) == len(writes) == NR_WRITES
    for (enter, leave), (begin, end) in zip(regions, writes, strict=True):
        assert enter - error_ns <= begin <= end <= leave + error_ns
    for moment, (before, behind) in zip(monotonic(trace, moments), truth_of(own), strict=True):
        assert before - error_ns <= moment <= behind + error_ns
    subprocess.run(["otf2-print", "-Werror", merged / "traces.otf2"], stdout=subprocess.DEVNULL, check=True)
    lo2io("verify", merged)


def told(merged: Path) -> tuple[list[tuple[int, int]], list[tuple[int, int]], list[int]]:
    """Begin and end of each region of the program, and of each of its writes, all of one process; its other moments."""
    regions: list[tuple[int, int]] = []
    writes: list[tuple[int, int]] = []
    moments: list[int] = []
    entered = begun = 0
    with otf2.reader.open(str(merged / "traces.otf2")) as archive:
        for location, event in archive.events:
            if location.group.name != "Process":  # a disk
                continue
            kind = type(event).__name__
            if location.name == "Master thread":
                region = event.region.name if kind in {"Enter", "Leave"} else ""
                if (kind, region) == ("Enter", "write"):
                    entered = event.time
                elif (kind, region) == ("Leave", "write"):
                    regions.append((entered, event.time))
                elif (kind, region) == ("Enter", "clock"):
                    moments.append(event.time)
            elif kind == "IoOperationBegin":
                begun = event.time
            elif kind == "IoOperationComplete" and event.bytes_result == own_archive.FIRST_BYTES + len(writes):
                writes.append((begun, event.time))
    return regions, writes, moments


def monotonic(trace: Path, moments: list[int]) -> list[int]:
    """CLOCK_MONOTONIC at times of a trace."""
    times = np.array(moments)
    for step in trace_clock(load_clock("", open_trace(trace)))[0]:
        times = step.at(times)
    return [int(time) for time in times]


def truth_of(own: Path) -> list[tuple[int, int]]:
    """CLOCK_MONOTONIC before and after each of the program's moments."""
    return [(before, behind) for before, behind in json.loads(own.with_suffix(".truth").read_text(encoding="utf-8"))]
