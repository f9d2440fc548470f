"""No file of a recording or trace is read before the process has given up its rights."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from workloads.machine import recording
from workloads.record import record

pytestmark = pytest.mark.requires("root", "tracefs", "events", "strace")

PROGRAM = Path(sys.executable).parent / "lo2io"
CALLS = "trace=capset,landlock_restrict_self,openat"
COMMANDS = {
    "record": ("record", "-q", "-o", "{new}", "--keep-spool", "--", "true"),
    "convert": ("convert", "{trace}/spool", "-o", "{new}"),
    "report": ("report", "{trace}"),
    "html": ("report", "{trace}", "--html", "{new}"),
    "verify": ("verify", "{trace}"),
    "why": ("why", "{trace}"),
    "diff": ("diff", "{trace}", "{trace}"),
    "merge": ("merge", "{nodes}"),
    "export": ("export", "{trace}", "--to", "parquet", "-o", "{new}"),
}
OPENED = re.compile(r'"[^"]*(?:spool\.json|\.calls|\.arrow|metadata\.json|traces\.\w+|\.evt)", O_RDONLY')


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A recorded trace with its spool."""
    folder = tmp_path_factory.mktemp("rights") / "T"
    record(folder, ["cat", __file__], "--keep-spool")
    return folder


@pytest.mark.parametrize("name", COMMANDS)
def test_rights_are_given_up_before_anything_is_read(tmp_path: Path, trace: Path, name: str) -> None:
    """That is: capabilities, and writing elsewhere."""
    nodes = tmp_path / "nodes"
    shutil.copytree(trace, nodes / "host=n1", ignore=shutil.ignore_patterns("spool"))
    words = [word.format(trace=trace, nodes=nodes, new=tmp_path / "new") for word in COMMANDS[name]]
    _check_order(tmp_path / "strace", *words)


def test_top_gives_its_rights_up_for_a_recording_that_runs(tmp_path: Path) -> None:
    """It may be another user's. The window is read and removed all the same."""
    with recording(tmp_path / "T", "--last", "5s", "-e", "openat"):
        _check_order(tmp_path / "strace", "top", str(tmp_path / "T"), "-n", "1", "-d", "1s", "--json")
        assert not list((tmp_path / "T").glob("dump-*"))


def _check_order(log: Path, *words: str) -> None:
    """Run lo2io, and compare when it gave its rights up with when it read."""
    command = ["strace", "-f", "--seccomp-bpf", "-qq", "-o", log, "-e", CALLS, PROGRAM, *words]
    subprocess.run(command, check=True, capture_output=True)
    lines = log.read_text().splitlines()
    given_up = max(number for number, line in enumerate(lines) if "capset(" in line or "landlock_restrict" in line)
    read = [number for number, line in enumerate(lines) if OPENED.search(line)]
    assert "landlock_restrict_self" not in log.read_text() or "landlock_restrict_self" in lines[given_up]
    assert read
    assert min(read) > given_up
