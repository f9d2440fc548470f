"""Processes with other numbers inside of a PID namespace: recorded from outside, refused from inside."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

import pytest
from build.rawspool import work
from workloads.record import LO2IO, record

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.requires("root", "tracefs", "events", "unshare")

INSIDE = ("unshare", "--pid", "--fork", "--mount-proc")
FAMILY = """
import os
source = os.open({path!r}, os.O_RDONLY)
for _ in range(3):
    if not os.fork():
        for index in range(20):
            os.pread(source, 1, index)
        os._exit(0)
    os.wait()
"""


@pytest.mark.parametrize("options", [("-a", "--duration", "1"), ("--backend", "perf", "--", "true"), ("--", "true")])
def test_inside_it_is_refused(tmp_path: Path, options: tuple[str, ...]) -> None:
    """One line and a remedy, and no trace: the kernel's numbers mean nothing there, so the trace would be empty."""
    command = "system-wide" if options[0] == "-a" else "record"
    line = [*INSIDE, LO2IO, command, "-o", tmp_path / "T", *options]
    done = subprocess.run(line, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (3, "")
    first, second = done.stderr.splitlines()
    assert "outside of this PID namespace" in first
    assert "--pid host" in second
    assert list(tmp_path.iterdir()) == []


def test_a_clock_of_its_own_is_refused(tmp_path: Path) -> None:
    """A container that came from another machine may have one."""
    line = ["unshare", "--time", "--monotonic", "100000", "--fork", LO2IO, "record", "-o", tmp_path / "T", "--", "true"]
    done = subprocess.run(line, capture_output=True, text=True, check=False)
    assert done.returncode == 3
    assert "time namespace" in done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("busy_cpus")
@pytest.mark.parametrize("backend", ["bpf", "perf"])
def test_from_outside_all_is_told_with_the_host_s_numbers(tmp_path: Path, backend: str) -> None:
    """The first process of a new namespace has number 1 inside, but not in the trace; all processes have names."""
    path = tmp_path / "file"
    path.write_bytes(bytes(4096))
    command = [*INSIDE, *work(FAMILY.format(path=str(path)))]
    recorded = record(tmp_path / "T", command, "--backend", backend)
    rows = [row for row in recorded.trace.operations.to_pylist() if row["call"] == "pread64"]
    files = {row["file"]: row["path"] for row in recorded.trace.files.to_pylist()}
    handles = {row["handle"]: files.get(row["file"]) for row in recorded.trace.handles.to_pylist()}
    on_it = [row for row in rows if handles[row["handle"]] == str(path)]
    assert len(on_it) == 3 * 20
    assert len({row["pid"] for row in on_it}) == 3
    assert min(row["pid"] for row in rows) > 10
