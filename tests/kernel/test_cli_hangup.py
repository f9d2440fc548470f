"""A terminal that goes away: SIGHUP, and nobody to write messages to."""

from __future__ import annotations

import os
import pty
import subprocess
from typing import TYPE_CHECKING

import pytest
from workloads.record import LO2IO

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.requires("root", "tracefs", "events")


def test_a_terminal_that_goes_away_costs_no_trace(tmp_path: Path) -> None:
    """The recording ends as by Ctrl-C, whole; what can no longer be shown is no error."""
    command = [str(LO2IO), "system-wide", "-e", "fsync", "-o", str(tmp_path / "T")]
    pid, terminal = pty.fork()
    if pid == 0:
        os.execvp(command[0], command)  # noqa: S606 - the program itself is wanted
    shown = b""
    while b"events/s" not in shown:
        shown += os.read(terminal, 1 << 16)
    os.close(terminal)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert subprocess.run([LO2IO, "verify", tmp_path / "T"], capture_output=True, check=False).returncode == 0
    assert not (tmp_path / "T/spool").exists()
