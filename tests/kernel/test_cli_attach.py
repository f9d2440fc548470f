"""``lo2io record -p``: running processes are watched, and left as they were."""

from __future__ import annotations

import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from workloads.record import LO2IO, has_begun, verified

from lo2io.trace.reader import open_trace

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = pytest.mark.requires("root", "tracefs", "events")

WRITER = """
import os, sys, threading, time
out = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT)
def write():
    while True:
        os.pwrite(out, b"x" * 11, 22)
        time.sleep(0.01)
threading.Thread(target=write, daemon=True).start()
print("ready", flush=True)
sys.stdin.read()
print("unharmed", flush=True)
"""


def writer(path: Path) -> subprocess.Popen[str]:
    """A process whose second thread writes to a file it has opened before."""
    command = [sys.executable, "-S", "-c", WRITER, str(path)]
    running = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert running.stdout is not None
    assert running.stdout.readline() == "ready\n"
    return running


@pytest.mark.usefixtures("busy_cpus")
def test_two_processes_until_ctrl_c(tmp_path: Path, until: Callable[[Callable[[], object]], object]) -> None:
    """The writes of both processes to named files, and of no third one; all processes go on."""
    running = [writer(tmp_path / name) for name in ("one", "two", "neighbour")]
    try:
        pids = [option for each in running[:2] for option in ("-p", str(each.pid))]
        command = [str(LO2IO), "record", "-o", str(tmp_path / "T"), *pids]
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as recorder:
            until(lambda: has_begun(tmp_path / "T/spool"))
            for path in (tmp_path / "one", tmp_path / "two"):
                for _ in range(5):  # several writes, each with a newer time
                    before = path.stat().st_mtime_ns
                    until(lambda path=path, before=before: path.stat().st_mtime_ns > before)
            recorder.send_signal(signal.SIGINT)
            assert recorder.stderr is not None
            shown = recorder.stderr.read()
        code = recorder.returncode
        assert code == 0, shown
        assert all(each.poll() is None for each in running)
        for each in running:
            assert each.communicate("")[0] == "unharmed\n"
            assert each.returncode == 0
    finally:
        for each in running:
            each.kill()
            each.wait()
    trace = open_trace(tmp_path / "T")
    files = {row["file"]: row["path"] for row in trace.files.to_pylist()}
    handles = {row["handle"]: row["file"] for row in trace.handles.to_pylist()}
    rows = [row for row in trace.operations.to_pylist() if row["call"] == "pwrite64"]
    assert {files.get(handles.get(row["handle"])) for row in rows} == {str(tmp_path / "one"), str(tmp_path / "two")}
    assert {(row["bytes_result"], row["offset_bytes"]) for row in rows if row["result"] > 0} == {(11, 22)}
    verified(tmp_path / "T")


def test_it_ends_with_the_last_of_them(tmp_path: Path) -> None:
    """Without a signal, the exit code is 0: the kernel's counts were read, of each event on each CPU."""
    running = writer(tmp_path / "one")
    recorder = subprocess.Popen([LO2IO, "record", "-q", "-o", tmp_path / "T", "-p", str(running.pid)])
    try:
        while not has_begun(tmp_path / "T/spool"):
            assert recorder.poll() is None
        assert running.communicate("")[0] == "unharmed\n"
        assert recorder.wait() == 0
    finally:
        running.kill()
        recorder.kill()
    trace = open_trace(tmp_path / "T")
    assert set(trace.threads["pid"].to_pylist()) == {running.pid}
    events, cpus = trace.metadata["events"], trace.metadata["cpus"]
    assert [event.event for event in trace.completeness.events] == [name for name in events for _ in cpus]
    assert all(event.count is not None for event in trace.completeness.events)
