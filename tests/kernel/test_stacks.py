"""Where slow calls came from, against a program whose functions are known."""

from __future__ import annotations

import subprocess
import tempfile
from collections import defaultdict
from pathlib import Path

import pytest
from workloads.record import record, verified

pytestmark = [pytest.mark.requires("root", "tracefs", "events"), pytest.mark.usefixtures("busy_cpus")]

PROGRAM = Path(__file__).parent.parent / "workloads" / "stacks.c"
READS = 3


def test_slow_calls_name_the_functions_that_led_to_them() -> None:
    """Each slow read comes from these functions, as does each other slow call; quick calls have no stack."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as name:
        folder = Path(name)
        build = ["gcc", "-O0", "-fno-omit-frame-pointer", "-Wl,--build-id", "-o", folder / "stacks", PROGRAM]
        subprocess.run(build, check=True)
        run = record(folder / "T", [folder / "stacks", folder / "out"], "--layers", "stacks")
        frames: defaultdict[int, list[str]] = defaultdict(list)
        for row in run.trace.table("stacks").to_pylist():
            if row["file"] == str(folder / "stacks"):
                frames[row["stack"]].append(row["function"])
        of_call = {row["operation"]: row["stack"] for row in run.trace.table("call_stacks").to_pylist()}
        wanted = {
            "read": ["read_answer", "ask", "run", "main"],
            "write": ["commit", "run", "main"],
            "fsync": ["flush_log", "commit", "run", "main"],
        }
        seen: defaultdict[str, int] = defaultdict(int)
        for call in run.operations():
            slow = call["end_time_ns"] - call["begin_time_ns"] >= 1_000_000
            assert slow == (call["id"] in of_call)
            functions = frames[of_call[call["id"]]] if slow else []
            if functions:
                assert functions[: len(wanted[call["call"]])] == wanted[call["call"]]
                seen[call["call"]] += 1
        assert seen["read"] == READS
        verified(folder / "T")
