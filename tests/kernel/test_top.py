"""``lo2io top`` on the running kernel: a window's numbers, a terminal with keys, and what is left behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import termios
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from workloads.machine import Work, do_all, expected, recording, workers
from workloads.record import LO2IO
from workloads.terminal import on_terminal

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = [pytest.mark.alone, pytest.mark.requires("root", "tracefs", "events")]
EVENTS = "pread64,pwrite64,+close,+descriptor"
"""What descriptors need to have names, and no more."""
NOBODY = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")


def top(*arguments: str, prefix: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    """``lo2io top`` to its end; never a traceback."""
    command = [*prefix, str(LO2IO), "top", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert "Traceback" not in done.stderr
    return done


@pytest.fixture
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where temporary files go; empty."""
    folder = tmp_path / "tmp"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    return folder


def is_running(scratch: Path) -> bool:
    """Whether some process names this folder among its arguments: the recorder does."""
    text = subprocess.run(["ps", "-eww", "-o", "args"], capture_output=True, text=True, check=True).stdout
    return str(scratch) in text


@pytest.mark.usefixtures("busy_cpus")
def test_a_window_of_a_running_recording(tmp_path: Path) -> None:
    """Exact counts and bytes of a process and of its file, as the work knows them; the recording goes on."""
    work = Work(tmp_path / "file", writes=(4096, 300), reads=(4096, 200), thread_reads=50)
    trace = tmp_path / "T"
    with workers(work) as ready, recording(trace, "--last", "60s", "-e", EVENTS) as process:
        do_all(ready)
        done = top(str(trace), "-n", "1", "-d", "1s", "--json")
        assert done.returncode == 0, done.stderr
        window = json.loads(done.stdout)
        assert process.poll() is None
        assert not list(trace.glob("dump-*"))
    assert (window["schema"], window["schema_version"]) == ("lo2io-top", 3)
    # Ends of requests on other disks may vanish; then, and only then, the window is not proven.
    assert (window["lost"], window["proven"]) == (0, window["vanished"] == 0)
    calls = expected(work)
    of_file = next(row["activity"] for row in window["files"] if row["path"] == str(work.file))
    assert of_file["bytes_read"] == calls["pread64"][1]
    assert of_file["bytes_written"] == calls["pwrite64"][1]
    assert of_file["latency"]["nr"] == calls["pread64"][0] + calls["pwrite64"][0]
    mine = next(row["activity"] for row in window["processes"] if row["pid"] == ready[0].pid)
    assert mine["bytes_written"] >= calls["pwrite64"][1]
    assert not [row for row in window["files"] if row["kind"] == "unnamed" and row["pid"] == ready[0].pid]


def test_keys_on_a_terminal(scratch: Path) -> None:
    """Each view in turn; q gives the terminal back as it was, ends the recorder, and leaves nothing behind."""
    seen: list[bool] = []
    code, shown = on_terminal(
        [str(LO2IO), "top", "-d", "1s", "-e", "pread64,pwrite64"],
        ("by process, most bytes first", b"f"),
        ("by file, most bytes first", b"d"),
        ("by device, most bytes first", b"p"),
        ("by process", b"s"),
        ("most operations first", lambda _: seen.append(is_running(scratch))),
        ("most operations first", b"q"),
    )
    assert code == 0, shown
    assert seen == [True]
    assert shown.index("\x1b[?1049h") < shown.index("by process") < shown.index("\x1b[?1049l")
    assert not list(scratch.iterdir())
    assert not is_running(scratch)


def test_another_size_is_drawn_at_once(scratch: Path) -> None:
    """Even where the view stands still: half a line would be a wrong number."""

    def resize(pid: int) -> None:
        with Path(f"/proc/{pid}/fd/0").open("rb", buffering=0) as terminal:
            termios.tcsetwinsize(terminal.fileno(), (20, 70))

    # What these say goes before the terminal's size; readline sets them, which pytest loads.
    plain = ["env", "-u", "COLUMNS", "-u", "LINES"]
    code, shown = on_terminal(
        [*plain, str(LO2IO), "top", "-d", "1s", "-e", "pread64,pwrite64"],
        ("by process, most bytes first", b" "),
        ("paused · ", resize),
        ("paused · ", b"q"),
    )
    assert code == 0, shown
    assert not list(scratch.iterdir())


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGKILL, -signal.SIGKILL)])
def test_a_signal_ends_the_recorder_too(
    scratch: Path, until: Callable[[Callable[[], object]], object], number: signal.Signals, code: int
) -> None:
    """Whatever ends the view: nobody would end the recorder else."""

    def end(pid: int) -> None:
        until(lambda: is_running(scratch))
        os.kill(pid, number)

    ended, shown = on_terminal([str(LO2IO), "top"], ("the first view comes", end))
    assert ended == code, shown
    assert "Traceback" not in shown
    until(lambda: not is_running(scratch))
    assert number == signal.SIGKILL or not list(scratch.iterdir())


def test_what_the_recorder_refuses_is_told(scratch: Path) -> None:
    """With its exit code, and nothing is left behind."""
    done = top("-n", "1", "--cpus", "9999")
    assert done.returncode == 2, done.stderr
    assert "CPU 9999 not online" in done.stderr
    assert not done.stdout
    assert not list(scratch.iterdir())


def test_a_reader_that_has_enough(scratch: Path, until: Callable[[Callable[[], object]], object]) -> None:
    """``| head`` ends it as other commands, and its recorder, and leaves nothing behind."""
    command = [str(LO2IO), "top", "-d", "1s", "-e", "block"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline().startswith("lo2io top")
        process.stdout.close()
        assert process.wait(60) == -signal.SIGPIPE
        assert not process.stderr.read()
    assert not list(scratch.iterdir())
    until(lambda: not is_running(scratch))


def test_without_rights(scratch: Path) -> None:
    """As recording itself says it."""
    scratch.chmod(0o777)
    done = top("-n", "1", prefix=NOBODY)
    assert done.returncode == 3, done.stderr
    assert "lo2io: " in done.stderr
