"""Commands whose output cannot be written, and one that is interrupted before it has begun."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

LIST = (sys.executable, "-m", "lo2io", "tracepoints", "list")
MISSING = (sys.executable, "-m", "lo2io", "report", "no such trace")


def test_data_that_does_not_fit_is_an_error() -> None:
    """One message instead of a traceback, and exit code 1."""
    with open("/dev/full", "wb") as full:  # noqa: PTH123 - no file
        done = subprocess.run(LIST, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert (done.returncode, done.stderr.splitlines()[0]) == (1, "lo2io: write to stdout: No space left on device")
    assert "Traceback" not in done.stderr
    assert "Exception ignored" not in done.stderr


def test_a_reader_who_has_enough_ends_the_command() -> None:
    """Like any other command: by SIGPIPE, without a message."""
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "wb") as pipe:
        done = subprocess.run(LIST, stdout=pipe, stderr=subprocess.PIPE, text=True, check=False)
    assert (done.returncode, done.stderr) == (-signal.SIGPIPE, "")


def test_messages_nobody_can_read_change_nothing() -> None:
    """Full or closed at the other end: the exit code is the command's own."""
    reading, writing = os.pipe()
    os.close(reading)
    with open("/dev/full", "wb") as full, os.fdopen(writing, "wb") as pipe:  # noqa: PTH123 - no file
        for stderr in (full, pipe):
            assert subprocess.run(MISSING, stderr=stderr, check=False).returncode == 5


def test_closed_streams_change_nothing() -> None:
    """Without stdout or stderr, a command has the same exit codes."""
    for command, code in ((LIST, 0), (MISSING, 5)):
        done = subprocess.run(["sh", "-c", 'exec "$@" >&- 2>&-', "sh", *command], check=False)
        assert done.returncode == code


def test_ctrl_c_while_it_is_loaded(tmp_path: Path) -> None:
    """The signal ends it, without a traceback; an ignored Ctrl-C stays ignored."""
    (tmp_path / "typer.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGINT)\nraise SystemExit(9)\n")
    environment = os.environ | {"PYTHONPATH": str(tmp_path)}
    for prefix, code in (((), -signal.SIGINT), (("env", "--ignore-signal=INT"), 9)):
        done = subprocess.run([*prefix, *LIST], env=environment, stderr=subprocess.PIPE, text=True, check=False)
        assert (done.returncode, done.stderr) == (code, "")


def test_an_error_cannot_move_the_cursor() -> None:
    """It may name a file of somebody else. Its lines stay lines."""
    done = subprocess.run([*MISSING[:-1], "\x1b[2Jno\nsuch"], stderr=subprocess.PIPE, text=True, check=False)
    assert r"\x1b[2Jno" in done.stderr
    assert "\x1b" not in done.stderr
    assert done.stderr.count("\n") >= 2
