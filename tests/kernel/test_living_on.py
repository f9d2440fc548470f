"""Processes that outlive a command are reported, and ``--until-last`` waits for them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from workloads.record import LO2IO
from workloads.served import lo2io

from lo2io.trace.reader import open_trace

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.requires("root", "tracefs", "events")

EVENTS = ("-e", "syscalls")
DAEMON = "(setsid sh -c 'echo $$ > {name}.new; mv {name}.new {name}; {work}' >/dev/null 2>&1 </dev/null &)"
"""It is an orphan from the beginning, for its parent ends at once."""
STANDS = "read line < gate"
WRITES = "read line < gate; dd if=/dev/zero of=/dev/null bs=512 count=37 status=none & exit"
"""Its own child writes, even after the daemon has ended."""


@pytest.fixture
def gate(tmp_path: Path) -> Path:
    """A file for which daemons wait; after the test, none waits any more."""
    path = tmp_path / "gate"
    os.mkfifo(path)
    return path


def script(folder: Path, **daemons: str) -> Path:
    """Starts daemons, waits until they run, and ends with code 5."""
    lines = [DAEMON.format(name=name, work=work) for name, work in daemons.items()]
    path = folder / "script"
    there = " -a ".join(f"-e {name}" for name in daemons)
    path.write_text("\n".join([*lines, f"until [ {there} ]; do :; done", "exit 5"]))
    return path


def pid_of(folder: Path, name: str) -> int:
    """A daemon's number, which the daemon writes."""
    return int((folder / name).read_text())


@pytest.mark.usefixtures("gate")
def test_what_lives_on_is_counted(tmp_path: Path) -> None:
    """By name, in the report and its JSON; the recording ends, and the daemons live."""
    words = ["record", *EVENTS, "-o", "T", "--json", "--", "sh", script(tmp_path, one=STANDS, two=STANDS)]
    done = lo2io(*words, cwd=tmp_path)
    page = lo2io("report", "T", cwd=tmp_path, check=True).stdout
    for name in ("one", "two"):
        os.kill(pid_of(tmp_path, name), signal.SIGKILL)
    assert done.returncode == 5, done.stderr
    assert json.loads(done.stdout)["living_on"] == {"sh -c": 2}
    assert "not ended: 2 processes of the command (2 sh -c)" in page
    assert "--until-last" in page


@pytest.mark.usefixtures("busy_cpus")
@pytest.mark.parametrize("backend", [("--backend", "bpf"), ("--scope", "inherit")])
def test_until_the_last_has_ended(
    tmp_path: Path, gate: Path, backend: tuple[str, ...], until: Callable[[Callable[[], object]], object]
) -> None:
    """All their writes are recorded, and agree with their own accounts; the exit code is the command's."""
    words = [LO2IO, "record", *EVENTS, *backend, "--until-last", "-o", "T", "--", "sh", script(tmp_path, one=WRITES)]
    with subprocess.Popen(words, cwd=tmp_path, stderr=subprocess.PIPE, text=True) as running:
        until((tmp_path / "one").exists)
        until(lambda: not commands(running.pid) - {pid_of(tmp_path, "one")})
        gate.write_text("go\n")
        _, shown = running.communicate(timeout=60)
    assert running.returncode == 5, shown
    trace = open_trace(tmp_path / "T")
    assert sum(row["bytes_result"] == 512 for row in trace.operations.to_pylist() if row["call"] == "write") == 37
    written = next(row for row in trace.metadata["reconciliation"] if row["name"] == "wchar")
    assert written["counted"] == written["captured"] >= 37 * 512
    assert "not ended" not in shown


@pytest.mark.usefixtures("gate")
def test_ctrl_c_ends_the_waiting(tmp_path: Path, until: Callable[[Callable[[], object]], object]) -> None:
    """The daemon goes on; the exit code is the command's."""
    words = [LO2IO, "record", *EVENTS, "--until-last", "-o", "T", "--", "sh", script(tmp_path, one=STANDS)]
    with subprocess.Popen(words, cwd=tmp_path, stderr=subprocess.PIPE, text=True) as running:
        until((tmp_path / "one").exists)
        daemon = pid_of(tmp_path, "one")
        until(lambda: not commands(running.pid) - {daemon})
        running.send_signal(signal.SIGINT)
        _, shown = running.communicate(timeout=60)
    assert Path(f"/proc/{daemon}").exists()
    os.kill(daemon, signal.SIGKILL)
    assert running.returncode == 5, shown
    assert "not ended: 1 process of the command (sh -c)" in shown


def commands(recorder: int) -> set[int]:
    """The recorder's living children, and those that were not waited for."""
    return set(map(int, Path(f"/proc/{recorder}/task/{recorder}/children").read_text().split()))
