"""No process of the tests outlives them, even if pytest is killed; and ignored signals are not inherited."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

TESTS = Path(__file__).parents[1]
IGNORED = ("env", "--ignore-signal=HUP,INT,QUIT,TERM")
"""How nohup, and a shell in the background, start programs; and more."""
SIGNALS = """
import os, signal, subprocess
import pytest
def test_of_children():
    shown = subprocess.run(["cat", "/proc/self/status"], capture_output=True, text=True).stdout
    ignored = int(next(line for line in shown.splitlines() if line.startswith("SigIgn")).split()[1], 16)
    assert [number for number in (1, 2, 3, 15) if ignored >> number - 1 & 1] == []
def test_of_this_process():
    os.kill(os.getpid(), signal.SIGHUP)
    with pytest.raises(KeyboardInterrupt):
        os.kill(os.getpid(), signal.SIGINT)
"""
LEAVES = """
import os, subprocess, sys, time
def test_leaves_behind():
    orphan = "(exec setsid sleep 600 > /dev/null 2>&1 &)"
    subprocess.run(["sh", "-c", orphan], check=True)
    child = subprocess.Popen(["sleep", "601"])
    fork = os.fork()
    if fork == 0:
        time.sleep(602)
        os._exit(0)
    print("standing", flush=True)
    sys.stdin.read()
"""


def pytest_on(folder: Path, text: str, *prefix: str) -> subprocess.Popen[str]:
    """A pytest over one file, under this directory's conftest.py; the output of its tests is shown."""
    (folder / "test_inner.py").write_text(text)
    words = [*prefix, sys.executable, "-m", "pytest", "-q", "-s", "-p", "no:cacheprovider", "-p", "conftest"]
    words += ["--rootdir", str(folder), "-c", os.devnull, str(folder)]
    environment = {**os.environ, "PYTHONPATH": str(TESTS)}
    return subprocess.Popen(
        words, env=environment, cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


def sleepers(folder: Path) -> set[str]:
    """Processes that sleep for some ten minutes in this directory, by command line; a fork has pytest's."""
    found = set()
    for process in Path("/proc").iterdir():
        try:
            if process.name.isdecimal() and (process / "cwd").readlink() == folder:
                found.add((process / "cmdline").read_bytes().replace(b"\0", b" ").decode().strip()[:9])
        except OSError:
            continue
    return found - {""}


def stands(process: subprocess.Popen[str]) -> None:
    """Wait until the test has started all processes."""
    assert process.stdout
    assert any("standing" in line for line in process.stdout)


def test_what_is_left_behind_is_ended_and_told(tmp_path: Path) -> None:
    """Orphans, children and forks are ended; the run fails, and names the test.

    pytest was started to ignore signals: its children get the defaults. It survives the signals itself, but for Ctrl-C.
    """
    with pytest_on(tmp_path, SIGNALS + LEAVES, *IGNORED) as process:
        stands(process)
        end = time.monotonic() + 60
        while not sleepers(tmp_path) >= {"sleep 600", "sleep 601"}:  # a shell starts one of them after its own end
            assert time.monotonic() < end
            time.sleep(0.01)
        shown, _ = process.communicate("")
    assert process.returncode == 1, shown
    assert shown.count("test_inner.py::test_leaves_behind (call)") >= 2
    assert "3 passed, 1 error" in shown
    assert sleepers(tmp_path) == set()


def test_nothing_is_left_of_a_killed_pytest(tmp_path: Path) -> None:
    """The keeper outlives pytest for a moment only."""
    with pytest_on(tmp_path, LEAVES.replace("os.fork()", "1")) as process:
        stands(process)
        process.kill()
    end = time.monotonic() + 60
    while sleepers(tmp_path):
        assert time.monotonic() < end
        time.sleep(0.01)
