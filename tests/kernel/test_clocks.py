"""Clocks compared over MPI, against offsets and drifts that are known to the nanosecond."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from workloads.record import LO2IO

from lo2io.cluster.comparison import load_comparisons
from lo2io.cluster.lines import Line

pytestmark = pytest.mark.requires("root", "mpirun", "unshare")

S = 10**9
AHEAD_S = 1_000
WRONG_RANK = Path(__file__).parents[1] / "workloads/clocks.py"


def mpirun(*words: str | Path) -> str:
    """Run ranks on this machine. What rank 0 prints."""
    words = ("mpirun", "--allow-run-as-root", "--oversubscribe", *words)
    return subprocess.run(words, capture_output=True, text=True, timeout=120, check=True).stdout


def test_a_time_namespace_comes_back_within_half_of_a_round_trip(tmp_path: Path) -> None:
    """The kernel moves the clocks of rank 1 by a number of seconds: that is the truth."""
    moved = ("unshare", "--time", "--monotonic", str(AHEAD_S), "--fork")
    command = (LO2IO, "clocks", "-o", tmp_path / "T")
    printed = mpirun("-n", "1", *command, ":", "-n", "1", *moved, *command)
    assert Path(printed.strip()).parent == tmp_path / "T/clocks"
    (comparison,) = load_comparisons(tmp_path / "T")
    here, there = comparison.pings
    assert (here.clock, here.rtt_ns) == (comparison.reference, 0)
    assert there.clock == f"{comparison.reference}+{AHEAD_S}.0"
    assert abs(there.raw_ns - there.reference_raw_ns - AHEAD_S * S) <= (there.rtt_ns + 1) // 2


def test_an_offset_and_a_drift_come_back() -> None:
    """A kernel has no two clocks that drift apart, so rank 1 reads a wrong one. Its line holds amid two comparisons."""
    offset_s, ppm = -1_000, 50
    printed = mpirun("-n", "2", sys.executable, WRONG_RANK, str(offset_s * S), str(ppm))
    pings: list[dict[str, Any]] = [json.loads(line)["pings"][1] for line in printed.splitlines()]
    line = Line.through([ping["reference_raw_ns"] for ping in pings], [ping["raw_ns"] for ping in pings])
    doubt = max(ping["rtt_ns"] for ping in pings) / 2 + 2
    for now in range(pings[0]["reference_raw_ns"], pings[1]["reference_raw_ns"], S // 10):
        truth = now + now * ppm // 1_000_000 + offset_s * S
        assert abs(int(line.at([now])[0]) - truth) <= doubt
