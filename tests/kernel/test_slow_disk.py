"""A disk that takes nothing for a while: the recording waits in memory, and nothing is lost."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from workloads.disks import loop_device

from lo2io.trace.reader import open_trace

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.requires("root", "tracefs", "events", "losetup", "mkfs.ext4", "fsfreeze", "dd")

LO2IO = Path(sys.executable).parent / "lo2io"
NR_BLOCKS = 200_000
FROZEN = f"""
trap 'fsfreeze --unfreeze "$1"' EXIT
fsfreeze --freeze "$1"
dd if=/dev/zero of=/dev/null bs=1 count={NR_BLOCKS} status=none
"""
"""Each block is a read and a write: 40 MB of records, ten times a buffer."""


@pytest.fixture
def disk(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Path]:
    """An ext4 of the test's own."""
    with loop_device(tmp_path / "image", request.param) as device:
        subprocess.run(["mkfs.ext4", "-q", str(device)], check=True)
        place = tmp_path / "disk"
        place.mkdir()
        subprocess.run(["mount", device, place], check=True)
        try:
            yield place
        finally:
            subprocess.run(["umount", "--lazy", place], check=True)


@pytest.mark.parametrize("disk", [256 << 20], indirect=True)
def test_a_frozen_file_system_costs_no_record(tmp_path: Path, disk: Path) -> None:
    """The spool's file system takes no write while the command makes its calls, and thaws afterwards."""
    command = [LO2IO, "record", "--no-convert", "-o", disk / "trace", "--", "sh", "-c", FROZEN, "sh", disk]
    subprocess.run(command, check=True, capture_output=True)
    subprocess.run([LO2IO, "convert", disk / "trace/spool", "-o", tmp_path / "trace"], check=True, capture_output=True)
    trace = open_trace(tmp_path / "trace")
    lost = {row.event: row.lost for row in trace.completeness.events if row.lost}
    assert lost == {}
    calls = trace.operations.column("call").to_pylist()
    assert min(calls.count("read"), calls.count("write")) >= NR_BLOCKS


@pytest.mark.parametrize("disk", [24 << 20], indirect=True)
def test_a_disk_that_turns_out_to_be_full_is_told(disk: Path) -> None:
    """The command has ended when the disk, once thawed, has too little room for what waits."""
    command = [LO2IO, "record", "--no-convert", "-o", disk / "trace", "--", "sh", "-c", FROZEN, "sh", disk]
    ended = subprocess.run(command, check=False, capture_output=True, text=True)
    assert "No space left on device" in ended.stderr
    assert "recording ended early" in ended.stderr
