"""Recordings that a program makes, with lo2io as a library."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import lo2io
from lo2io.errors import CaptureError

pytestmark = pytest.mark.requires("root", "tracefs", "events")


def test_a_command(tmp_path: Path) -> None:
    """Its exit code, its calls, and the error of one that cannot be started."""
    file = tmp_path / "file"
    file.write_bytes(b"x" * 777)
    done = lo2io.record(["sh", "-c", f"cat {file} > /dev/null; exit 3"], output=tmp_path / "T")
    assert done.exit_code == 3
    query = "select sum(bytes_result)::int from calls where call = 'read' and path like '%/file'"
    assert done.trace.query(query).fetchall() == [(777,)]
    with pytest.raises(CaptureError):
        lo2io.record(["/nothing"], output=tmp_path / "none")


def test_the_program_itself(tmp_path: Path) -> None:
    """From inside of the block only."""
    file = tmp_path / "file"
    file.write_bytes(b"before")
    with lo2io.record(pid=os.getpid(), output=tmp_path / "T") as recording:
        file.read_bytes()
    file.read_bytes()
    assert recording.exit_code == 0
    query = "select bytes_result from calls where path like '%/file' and bytes_result > 0"
    assert recording.trace.query(query).fetchall() == [(6,)]
    assert Path(recording.trace.path) == tmp_path / "T"
