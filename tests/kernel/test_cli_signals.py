"""Ctrl-C and SIGTERM: the command gets them, the trace is whole, and an interrupted conversion can be done later."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from functools import partial
from typing import TYPE_CHECKING

import pytest
from workloads.record import LO2IO, finished
from workloads.served import lo2io
from workloads.terminal import on_terminal

from lo2io.capture import waiting
from lo2io.trace.reader import open_trace

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = pytest.mark.requires("root", "tracefs", "events")

TRAP = "trap 'echo caught; exit 7' INT TERM; echo ready; while :; do read -t 1 x < /dev/zero; sleep 0.1; done"


@pytest.mark.parametrize(("script", "code"), [(TRAP, 7), ("echo ready; exec sleep 60", 130)])
def test_ctrl_c_reaches_the_command(tmp_path: Path, script: str, code: int) -> None:
    """The command decides what to do, and the trace is finished."""
    command = [str(LO2IO), "record", "-q", "-o", str(tmp_path / "T"), "--", "sh", "-c", script]
    found, shown = on_terminal(command, ("ready", b"\x03"))
    assert found == code, shown
    assert "complete" in shown
    assert finished(tmp_path / "T")


def test_sigterm_reaches_the_command(tmp_path: Path) -> None:
    """The signal is passed on once, and the trace is finished."""
    command = [str(LO2IO), "record", "-q", "-o", str(tmp_path / "T"), "--", "sh", "-c", TRAP]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        assert running.stdout.readline() == "ready\n"
        running.terminate()
        assert running.stdout.read() == "caught\n"
    assert running.returncode == 7
    assert finished(tmp_path / "T")


def _interrupt_converting(pid: int, trace: Path, number: int, begun: str = ".part") -> None:
    """Interrupt converting when a file or folder of the trace exists."""
    end = time.monotonic() + 60
    while not any(trace.glob(begun)):
        assert time.monotonic() < end
        time.sleep(0.002)
    os.kill(pid, number)


def test_a_launcher_that_says_sigterm_again(tmp_path: Path) -> None:
    """Slurm does so at a time limit: a rank's trace is whole all the same, whenever it says so."""
    trace = tmp_path / f"T/host={os.uname().nodename}"
    script = "dd if=/dev/zero of=/dev/null bs=1 count=20000 status=none; echo ended; exec sleep 60"
    job = {"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "1", "OMPI_COMM_WORLD_LOCAL_SIZE": "1"}
    command = [str(LO2IO), "record", "-q", "-o", str(tmp_path / "T"), "--", "sh", "-c", script]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=os.environ | job) as running:
        assert running.stdout is not None
        assert running.stdout.readline() == "ended\n"
        while running.poll() is None:
            running.terminate()
            time.sleep(0.005)
    assert running.returncode in {128 + signal.SIGTERM, -signal.SIGTERM}  # the latter: it was just leaving
    assert finished(trace)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_giving_up_on_converting(tmp_path: Path, number: int, code: int) -> None:
    """The spool is kept, half a trace is not, and the printed command makes the trace, also after a kill amid that."""
    trace = tmp_path / "T"
    script = "dd if=/dev/zero of=/dev/null bs=1 count=600000 status=none; echo ended"
    command = [str(LO2IO), "record", "-q", "-o", str(trace), "--", "sh", "-c", script]
    interrupt: Callable[[int], object] = partial(_interrupt_converting, trace=trace, number=number)
    found, shown = on_terminal(command, ("ended", interrupt))
    assert found == code, shown
    assert "Traceback" not in shown
    assert f"`lo2io convert {trace}/spool -o {trace}`" in shown
    assert [path.name for path in trace.iterdir()] == ["spool"]
    with subprocess.Popen([LO2IO, "convert", trace / "spool", "-o", trace], stderr=subprocess.DEVNULL) as converting:
        _interrupt_converting(converting.pid, trace, number)
    assert converting.returncode in {code, -number}
    assert [path.name for path in trace.iterdir()] == ["spool"]
    with subprocess.Popen([LO2IO, "convert", trace / "spool", "-o", trace], stderr=subprocess.DEVNULL) as converting:
        _interrupt_converting(converting.pid, trace, signal.SIGKILL, ".part/traces/*.evt")
    assert sorted(path.name for path in trace.iterdir()) == [".part", "spool"]
    again = lo2io("convert", trace / "spool", "-o", trace)
    assert again.returncode == 0
    assert open_trace(trace).operations.num_rows >= 1_000_000


def test_what_came_while_the_command_lived_was_meant_for_it() -> None:
    """A signal that was not handled before the command's end does not give up the trace."""
    with waiting.BlockedSignals() as signals:
        pid = os.fork()
        if pid == 0:
            os._exit(7)
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        # To this thread, for a thread of pytest that blocks nothing would take it at an unknown time.
        signal.pthread_kill(threading.get_ident(), signal.SIGINT)
        signals._caught.append(signal.SIGTERM)
        assert waiting.wait_for_command(pid, signals) == 7
