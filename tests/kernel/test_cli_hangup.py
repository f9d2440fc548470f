"""A terminal that goes away: SIGHUP, and no place for messages."""

from __future__ import annotations

import os
import pty
from typing import TYPE_CHECKING

import pytest
from workloads.record import LO2IO, finished

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.requires("root", "tracefs", "events")


def hang_up(command: list[str], until: bytes) -> int:
    """The exit code of the session leader on a terminal that goes away after some text."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.execvp(command[0], command)  # noqa: S606 - the program itself is wanted
    shown = b""
    while until not in shown:
        shown += os.read(terminal, 1 << 16)
    os.close(terminal)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def test_a_terminal_that_goes_away_costs_no_trace(tmp_path: Path) -> None:
    """The recording ends as with Ctrl-C, whole; messages that cannot be shown are no error."""
    command = [str(LO2IO), "system-wide", "-e", "fsync", "-o", str(tmp_path / "T")]
    assert hang_up(command, b"events/s") == 0
    assert finished(tmp_path / "T")


def test_the_command_hears_of_it(tmp_path: Path) -> None:
    """The kernel tells only the session leader, which is lo2io here."""
    script = "trap 'exit 7' HUP; echo ready; while :; do sleep 0.1; done"
    command = [str(LO2IO), "record", "-q", "-e", "fsync", "-o", str(tmp_path / "T"), "--", "sh", "-c", script]
    assert hang_up(command, b"ready") == 7
    assert finished(tmp_path / "T")
