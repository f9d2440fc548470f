"""Every request that a program sends to a block device is in the trace once, with its values."""

from __future__ import annotations

import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from workloads.build import build
from workloads.disks import device_number
from workloads.record import Recorded, read_json_lines, record

pytestmark = [
    pytest.mark.requires("root", "tracefs", "events", "gcc", "losetup"),
    pytest.mark.usefixtures("busy_cpus"),
]


def requests_of(recorded: Recorded, device: Path) -> list[dict[str, Any]]:
    """The requests to this device, in the order of their issue."""
    wanted = device_number(device)
    rows = [row for row in recorded.trace.requests.to_pylist() if row["device"] == wanted]
    return sorted(rows, key=lambda row: row["issue_time_ns"])


def choose_scheduler(device: Path, name: str) -> None:
    """Give the device a scheduler, or skip if the kernel lacks it."""
    switch = Path(f"/sys/block/{device.name}/queue/scheduler")
    if name not in switch.read_text(encoding="ascii"):
        pytest.skip(f"this kernel has no I/O scheduler {name}")
    switch.write_text(name, encoding="ascii")


@pytest.mark.parametrize("scheduler", ["none", "mq-deadline"])
def test_every_request_once(loop: Path, tmp_path: Path, scheduler: str) -> None:
    """Writes, reads, flushes, a discard and a zeroing: operation, sector and size of each, in order, all completed."""
    choose_scheduler(loop, scheduler)
    recorded = record(tmp_path / "T", [build("direct"), loop], attempts=3)
    sent = read_json_lines(recorded.stdout)
    found = requests_of(recorded, loop)
    # Kernels up to 6.18 at least have no letter for write zeroes.
    spelled = [
        "write zeroes" if row["operation"] == "other" and row["sector"] == 6 << 11 else row["operation"]
        for row in found
    ]
    rows = [(name, row["sector"], row["bytes_issued"] or 0) for name, row in zip(spelled, found, strict=True)]
    assert rows == [(line["operation"], line["sector"], line["bytes"]) for line in sent]
    assert {(row["status"], row["error"], row["nr_completions"]) for row in found} == {("completed", 0, 1)}
    assert all(row["bytes_result"] == row["bytes_issued"] for row in found if row["operation"] != "flush")
    assert len({row["id"] for row in found}) == len(found)


@pytest.mark.parametrize("scheduler", ["none", "mq-deadline"])
def test_times_are_in_order(loop: Path, tmp_path: Path, scheduler: str) -> None:
    """Insert, issue and complete follow each other, inside of the call that waited for the request."""
    choose_scheduler(loop, scheduler)
    recorded = record(tmp_path / "T", [build("direct"), loop], attempts=3)
    found = requests_of(recorded, loop)
    queued = 0
    for row in found:
        times = [row["insert_time_ns"], row["issue_time_ns"], row["complete_time_ns"]]
        queued += times[0] is not None
        known = [time for time in times if time is not None]
        assert known == sorted(known)
    writes = [row for row in found if row["operation"] == "write"]
    assert all(row["insert_time_ns"] is not None for row in writes) == (scheduler == "mq-deadline")
    calls = recorded.calls("pwrite64")
    assert len(calls) == len(writes)
    for call, row in zip(calls, writes, strict=True):
        assert call["begin_time_ns"] <= row["issue_time_ns"] <= row["complete_time_ns"] <= call["end_time_ns"]
        assert (call["tid"], call["task"]) == (row["tid"], row["task"])


def test_requests_of_others_are_not_written(loop: Path, tmp_path: Path) -> None:
    """Another process' requests to the same device at the same time are not in the command's trace."""
    other = subprocess.Popen(
        ["dd", "if=/dev/zero", f"of={loop}", "bs=4k", "count=64", "seek=2048", "oflag=direct", "conv=notrunc"],
        stderr=subprocess.DEVNULL,
    )
    recorded = record(
        tmp_path / "T", ["dd", f"if={loop}", "of=/dev/null", "bs=8k", "count=13", "iflag=direct"], attempts=3
    )
    assert other.wait() == 0
    found = requests_of(recorded, loop)
    assert Counter((row["operation"], row["bytes_issued"]) for row in found) == {("read", 8192): 13}


@pytest.mark.requires("blkdiscard")
def test_tools_of_the_system(loop: Path, tmp_path: Path) -> None:
    """The blkdiscard command discards the whole device: in one request or several, all sectors once."""
    recorded = record(tmp_path / "T", ["blkdiscard", loop], attempts=3)
    discards = [row for row in requests_of(recorded, loop) if row["operation"] == "discard"]
    ranges = sorted((row["sector"] * 512, row["bytes_result"]) for row in discards)
    end = 0
    for begin, size in ranges:
        assert begin == end
        end = begin + size
    assert end == 16 << 20
