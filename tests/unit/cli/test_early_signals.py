"""Signals before the command line is loaded."""

from __future__ import annotations

import subprocess
import sys

import pytest

SCRIPT = """
import os, signal, sys, types
stub = types.ModuleType("lo2io.cli.main")
stub.load = lambda words: os.kill(os.getpid(), signal.SIGUSR1)
stub.main = lambda command: sys.exit(5)
import lo2io.cli
sys.modules["lo2io.cli.main"] = lo2io.cli.main = stub
import lo2io.__main__ as start
start.main()
"""


@pytest.mark.parametrize(("command", "code"), [("record", 5), ("system-wide", 5), ("report", -10)])
def test_a_request_for_a_window_that_comes_too_early_kills_no_recorder(command: str, code: int) -> None:
    """SIGUSR1 while imports go on: there is no window yet. Other commands have no use for the signal."""
    ended = subprocess.run([sys.executable, "-c", SCRIPT, command], check=False)
    assert ended.returncode == code
