"""Requests to a flight recorder: the kernel says who asks and who answers, never a file."""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING
from unittest.mock import Mock

import pytest
from build.flightrig import META

from lo2io.capture.flight.control import Control
from lo2io.capture.flight.request import ask_for_dump
from lo2io.errors import AccessError, CaptureError, UsageError
from lo2io.folder import Folder
from lo2io.spool.format import dump_meta

if TYPE_CHECKING:
    from collections.abc import Iterator

NOBODY = 65534
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="acts as another user")
_ASK = """
import socket, sys
asker = socket.socket(socket.AF_UNIX)
asker.connect(sys.argv[1])
asker.sendall(b"dump\\n")
print(asker.recv(100))
"""


@contextlib.contextmanager
def serving(trace: Path, asked: list[str], *answers: tuple[str, str, str]) -> Iterator[Control]:
    """A recorder that gives these answers."""
    spool = Folder.open_or_make(trace / "spool")
    control = Control(spool, print)

    def ask() -> None:
        asked.append("dump")
        for answer in answers:
            control.post(*answer)

    control.start(ask)
    try:
        yield control
    finally:
        control.close()


def test_no_process_is_signalled_that_a_file_names(tmp_path: Path) -> None:
    """A spool with everything that a recorder's has, but for the recorder: the pid in it is a victim's."""
    with subprocess.Popen(["sleep", "100"]) as victim:
        spool = tmp_path / "spool"
        spool.mkdir()
        (spool / "spool.json").write_bytes(dump_meta(dataclasses.replace(META, recorder_pid=victim.pid)))
        (spool / "dumps.jsonl").touch()
        with (spool / ".recorder").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            with pytest.raises(UsageError, match="over, or was cut off"):
                ask_for_dump(tmp_path)
        with pytest.raises(subprocess.TimeoutExpired):
            victim.wait(0.2)
        victim.kill()


def test_the_window_that_was_asked_for_is_named(tmp_path: Path) -> None:
    """By its name in the trace's directory, whatever other messages come."""
    asked: list[str] = []
    name = "dump-20261121-060000"
    events = (("failed", "dump-20200101-000000", "another's"), ("begun", name, ""), ("done", name, "complete"))
    with serving(tmp_path, asked, *events):
        assert ask_for_dump(tmp_path) == tmp_path / name
    assert asked == ["dump"]


def test_another_ones_refusal_is_not_told_to_whoever_waits(tmp_path: Path) -> None:
    """A second client comes before the first one's window begins, and is refused: the first one waits on."""
    name = "dump-20261121-060000"
    control = Control(Folder.open_or_make(tmp_path / "spool"), print)
    answers: list[tuple[str, str] | None] = [None, ("busy", "another window")]
    control.start(lambda: answers.pop(0))
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(ask_for_dump, tmp_path)
        while len(answers) > 1:
            time.sleep(0.01)
        with pytest.raises(CaptureError, match="another window"):
            ask_for_dump(tmp_path)
        control.post("begun", name, "")
        control.post("done", name, "complete")
        assert first.result(10) == tmp_path / name
    control.close()


def test_what_went_wrong_is_told_without_what_a_terminal_obeys(tmp_path: Path) -> None:
    """Two refusals, a failure, and a name that is no window's."""
    for event in (
        [("refused", "", "the recording is over \x1b[2J")],
        [("busy", "", "another window \x1b[2J")],
        [("begun", "dump-20261121-060000", ""), ("failed", "dump-20261121-060000", "no room \x1b[2J")],
        [("begun", "../../etc", ""), ("done", "../../etc", "\x1b[2J")],
    ):
        with serving(tmp_path, [], *event), pytest.raises(CaptureError) as caught:
            ask_for_dump(tmp_path)
        assert "?[2J" in str(caught.value)
        assert ("a little later" in caught.value.remedy) == (event[0][0] == "busy")


def test_a_refused_thread_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error of the start is the one that is told: the end, which follows, has none."""
    monkeypatch.setattr(threading.Thread, "start", Mock(side_effect=RuntimeError("can't start new thread")))
    control = Control(Folder.open_or_make(tmp_path / "spool"), print)
    with pytest.raises(RuntimeError, match="can't start"):
        control.start(print)
    control.close()
    assert not (tmp_path / "spool/.control").exists()


def test_a_recorder_that_was_killed_cannot_be_asked(tmp_path: Path) -> None:
    """Its socket is left, and nobody is behind it."""
    (tmp_path / "spool").mkdir()
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(tmp_path / "spool/.control"))
    with pytest.raises(UsageError, match="over, or was cut off"):
        ask_for_dump(tmp_path)


@pytest.mark.parametrize("answer", [b"[]\n", b"{\n", b'{"event": "done"}\n', b"[" * 60_000 + b"\n"])
def test_an_answer_that_is_none_is_an_error(tmp_path: Path, answer: bytes) -> None:
    """Whatever else listens there."""
    (tmp_path / "spool").mkdir()
    with socket.socket(socket.AF_UNIX) as other, ThreadPoolExecutor(1) as pool:
        other.bind(str(tmp_path / "spool/.control"))
        other.listen()

        def serve() -> None:
            with other.accept()[0] as asker:
                asker.recv(100)
                asker.sendall(answer)

        served = pool.submit(serve)
        with pytest.raises(CaptureError, match="no recorder of this version of lo2io"):
            ask_for_dump(tmp_path)
        served.result()


@as_root
def test_who_answers_must_be_the_owner_of_the_spool(tmp_path: Path) -> None:
    """Another user's process is not believed."""
    asked: list[str] = []
    with serving(tmp_path, asked):
        os.chown(tmp_path / "spool", NOBODY, NOBODY)
        with pytest.raises(AccessError, match=f"but the recording belongs to uid {NOBODY}"):
            ask_for_dump(tmp_path)
    assert asked == []


@as_root
def test_who_asks_must_be_root_or_the_recorders_user() -> None:
    """Even if the directory's mode lets another user in."""
    with tempfile.TemporaryDirectory() as folder:
        asked: list[str] = []
        with serving(Path(folder) / "T", asked):
            for path in (folder, f"{folder}/T", f"{folder}/T/spool", f"{folder}/T/spool/.control"):
                Path(path).chmod(0o777)
            command = [sys.executable, "-S", "-c", _ASK, f"{folder}/T/spool/.control"]
            done = subprocess.run(
                command,
                user=NOBODY,
                group=NOBODY,
                extra_groups=[],
                cwd="/",
                capture_output=True,
                text=True,
                check=False,
            )
        assert asked == []
        assert done.stdout in {"b''\n", ""}, done.stderr
