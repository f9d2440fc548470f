"""Why a call was slow, and what a change of the program brought, on recordings of a program that syncs each write."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

import pytest
from workloads.record import Recorded, record
from workloads.served import lo2io

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.requires("root", "tracefs", "events", "block:block_rq_issue")

PROGRAM = """
import os, sys
fd = os.open(sys.argv[1] + "/log", os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
for index in range(100):
    os.pwrite(fd, bytes(4096), 4096 * index)
    if (index + 1) % int(sys.argv[2]) == 0:
        os.fsync(fd)
"""


def recorded(trace: Path, writes_per_sync: int, *options: str) -> Recorded:
    """A hundred writes of 4 KiB, and a sync after each so many."""
    command = [sys.executable, "-S", "-c", PROGRAM, trace.parent, str(writes_per_sync)]
    return record(trace, command, "-e", "syscalls,block", *options)


def answer(*words: str | Path) -> Any:
    """The JSON of a command."""
    return json.loads(lo2io(*words, "--json", check=True).stdout)


@pytest.mark.usefixtures("busy_cpus")
def test_the_slowest_call_is_explained(tmp_path: Path) -> None:
    """The slowest call on the file: its time adds up, its write to the disk lies within it."""
    done = recorded(tmp_path / "T", 1, "--sched")
    slowest = max(
        (row for row in done.calls("fsync", "pwrite64") if row["path"] == f"{tmp_path}/log"),
        key=lambda row: row["end_time_ns"] - row["begin_time_ns"],
    )
    (chain,) = answer("why", tmp_path / "T", "--file", f"{tmp_path}/log", "--slowest", "1")
    assert (chain["id"], chain["file"], chain["pid"]) == (slowest["id"], f"{tmp_path}/log", slowest["pid"])
    assert chain["duration_ns"] == slowest["end_time_ns"] - slowest["begin_time_ns"]
    assert sum(share["time_ns"] for share in chain["shares"]) == chain["duration_ns"]
    assert chain["unknown"] == []
    assert [step["at_ns"] for step in chain["steps"]] == sorted(step["at_ns"] for step in chain["steps"])
    syncs = answer("why", tmp_path / "T", *(f"--call={row['id']}" for row in done.calls("fsync")))
    assert len(syncs) == 100
    assert all(any(": write of " in step["text"] for step in sync["steps"]) for sync in syncs)


@pytest.mark.usefixtures("busy_cpus")
def test_what_fewer_syncs_bring(tmp_path: Path) -> None:
    """The calls that both programs made, and the finding that the second one no longer has."""
    recorded(tmp_path / "A", 1)
    recorded(tmp_path / "B", 25)
    found = answer("diff", tmp_path / "A", tmp_path / "B")
    calls = {row["name"]: (row["before"]["count"], row["after"]["count"]) for row in found["calls"]}
    assert (calls["fsync"], calls["pwrite64"]) == ((100, 4), (100, 100))
    file = next(row for row in found["files"] if row["name"] == f"{tmp_path}/log")
    assert file["before"]["bytes_written"] == file["after"]["bytes_written"] == 100 * 4096
    gone = [(each["rule"], each["subject"]) for each in found["findings"] if each["before"] and not each["after"]]
    assert ("sync-per-write", f"{tmp_path}/log") in gone
