"""Command lines of recorded programs: each program reads its own /proc/self/cmdline, which is the truth."""

from __future__ import annotations

import os
import signal
import sys
from typing import TYPE_CHECKING

import pytest
from workloads.record import Recorded, record

from lo2io.model.command_lines import command_line
from lo2io.reports.summary.summary import summarize

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.requires("root", "tracefs", "events")

WRITE = (
    "import os, pathlib, sys; "
    "pathlib.Path(sys.argv[1], str(os.getpid())).write_bytes(pathlib.Path('/proc/self/cmdline').read_bytes())"
)
SCRIPT = """
import os, pathlib, sys
out, code, long = pathlib.Path(sys.argv[1]), sys.argv[2], sys.argv[3]
(out / str(os.getpid())).write_bytes(pathlib.Path("/proc/self/cmdline").read_bytes())
program = [sys.executable, "-I", "-S", "-c", code, str(out)]
for more in (["short"], [long], ["", "two words", "$HOME"]):
    os.waitpid(os.spawnv(os.P_NOWAIT, sys.executable, program + more), 0)
again = ["sh", "-c", 'exec "$@"', "sh"]
chain = [*again, *again, *program, "chain"]  # each exec replaces the one before
os.waitpid(os.spawnv(os.P_NOWAIT, "/bin/sh", chain), 0)
"""


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Recorded]:
    """The script, recorded once; and where its processes wrote their own command lines, each under its pid."""
    folder = tmp_path_factory.mktemp("own")
    script = tmp_path_factory.mktemp("script") / "app.py"
    script.write_text(SCRIPT)
    command = [sys.executable, "-I", "-S", script, folder, WRITE, "x" * 2000]
    return folder, record(tmp_path_factory.mktemp("trace") / "T", command, "-e", "-block", "--backend", "bpf")


def test_every_command_line(recorded: tuple[Path, Recorded]) -> None:
    """Long and short ones, odd arguments, and the end of a chain are as the programs themselves saw them."""
    folder, run = recorded
    own = {int(path.name): command_line(path.read_text()) for path in folder.iterdir()}
    rows = {row["pid"]: row for row in run.trace.threads.to_pylist()}
    assert len(own) == 5
    assert {pid: rows[pid]["cmdline"] for pid in own} == own
    assert any(len(line) > 2000 for line in own.values())
    assert not any(row["cmdline_cut"] for row in rows.values())


def test_names(recorded: tuple[Path, Recorded]) -> None:
    """A script names its process in the report, -c those of the others."""
    _, run = recorded
    names = {row.name for row in summarize(run.trace).processes}
    assert names == {"python app.py", "python -c"}


ORPHAN = """
import ctypes, os, pathlib, sys, time
told, tell = os.pipe()
if os.fork():
    os.read(told, 1)
    sys.exit()
if os.fork():
    os._exit(0)
for fd in range(3):
    os.close(fd)
begin, end = map(int, pathlib.Path("/proc/self/stat").read_text().rpartition(")")[2].split()[45:47])
title = b"worker: idle"
ctypes.memmove(begin, title + bytes(end - begin - len(title)), end - begin)
pathlib.Path(sys.argv[1], str(os.getpid())).write_bytes(pathlib.Path("/proc/self/cmdline").read_bytes())
os.write(tell, b".")
time.sleep(60)
"""


def test_the_title_of_one_that_outlives_the_command(tmp_path: Path) -> None:
    """Its parents have ended before any look; the last look still finds it."""
    own = tmp_path / "own"
    own.mkdir()
    try:
        run = record(
            tmp_path / "T", [sys.executable, "-I", "-S", "-c", ORPHAN, own], "-e", "syscalls", "--backend", "bpf"
        )
    finally:
        for path in own.iterdir():
            os.kill(int(path.name), signal.SIGKILL)
    rows = {row["pid"]: row["cmdline"] for row in run.trace.threads.to_pylist()}
    (path,) = own.iterdir()
    assert rows[int(path.name)] == command_line(path.read_text()) == "worker: idle"
    assert "worker: idle" in {row.name for row in summarize(run.trace).processes}
