"""`lo2io replay` without root: its refusals, and that a replay in a folder does not touch the originals."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from build.tablemaker import READ, WRITE, make_batch, write_trace

from lo2io.errors import CommandError, Lo2ioError, UsageError
from lo2io.exports.fio import disks
from lo2io.exports.fio.replay import ReplayOptions, replay

if TYPE_CHECKING:
    from lo2io.trace.reader import Trace

needs_fio = pytest.mark.skipif(shutil.which("fio") is None, reason="fio is not installed")


def make_trace(
    folder: Path, path: Path, size: int = 1000, *, reads_at: int = 0, inode: int = 0, pause_ns: int = 0
) -> Trace:
    """One process that read from a file and wrote to it."""
    begin = 3000 + pause_ns
    row = {"begin_time_ns": 1000, "end_time_ns": 2000, "bytes_result": size, "result": size, "handle": 0}
    operations = [
        {**row, "id": 1, "call": READ, "offset_bytes": reads_at},
        {**row, "id": 2, "call": WRITE, "begin_time_ns": begin, "end_time_ns": begin + 1000, "offset_bytes": size},
    ]
    files = [{"file": 0, "mode": 0o100644, "device": 1, "inode": inode, "path": str(path).encode()}]
    tasks = [{"pid": 5, "tid": 5, "comm": b"work"}]
    batch = make_batch(operations=operations, handles=[{"handle": 0, "file": 0}], files=files, tasks=tasks)
    return write_trace(folder, [batch])


def run(trace: Trace, **options: Any) -> list[str]:
    """Run a replay to its end; its messages."""
    said: list[str] = []
    replay(trace, ReplayOptions(**options), said.append)
    return said


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, "no place for the replay is given"),
        ({"on": "folder", "in_place": True}, "exclude each other"),
        ({"in_place": True, "copy": True}, "can begin as copies"),
        ({"on": "folder", "copy": True, "by": "device"}, "can begin as copies"),
        ({"on": "no/such/place"}, "No such file"),
        ({"on": "file"}, "neither a folder nor a block device"),
        ({"on": "T"}, "in the trace"),
    ],
)
def test_refused(tmp_path: Path, options: dict[str, Any], words: str) -> None:
    """Each with its reason, before anything is made."""
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").touch()
    trace = make_trace(tmp_path / "T", tmp_path / "data")
    if "on" in options:
        options = {**options, "on": tmp_path / options["on"]}
    with pytest.raises(UsageError, match=words):
        run(trace, **options)
    assert list((tmp_path / "folder").iterdir()) == []


def test_without_fio(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The message says what to install, and the exit code is a shell's."""
    monkeypatch.setenv("PATH", str(tmp_path))
    trace = make_trace(tmp_path / "T", tmp_path / "data")
    with pytest.raises(CommandError, match="fio is not installed") as caught:
        run(trace, on=tmp_path)
    assert caught.value.exit_code == 127


def test_disk_in_use(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk that the kernel refuses to open exclusively is mounted, and stays untouched."""

    def refuse(_: Path, flags: int) -> int:
        assert flags & os.O_EXCL, "without it, the kernel opens a disk that is in use"
        raise OSError(16, "Device or resource busy")

    trace = make_trace(tmp_path / "T", tmp_path / "data")
    disk = tmp_path / "disk"
    disk.touch()
    monkeypatch.setattr(disks.stat, "S_ISBLK", lambda _: True)
    monkeypatch.setattr(disks.os, "open", refuse)
    with pytest.raises(UsageError, match="busy") as caught:
        disks.check_disk(trace, disk)
    assert caught.value.remedy == "unmount it, or name another"


@needs_fio
def test_disk_that_is_too_small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """For a trace of several disks, the message says how to take one, for another may be the larger."""
    requests = [
        {"id": 1, "device": 8 << 20, "issue_time_ns": 5, "sector": 0, "bytes_issued": 512},
        {"id": 2, "device": 254 << 20, "issue_time_ns": 6, "sector": 999, "bytes_issued": 512},
    ]
    monkeypatch.setattr("lo2io.exports.fio.replay.check_disk", lambda *_: None)
    monkeypatch.setattr("lo2io.exports.fio.replay.disk_size", lambda _: 512 * 999)
    trace = write_trace(tmp_path / "T", [make_batch(requests=requests)])
    with pytest.raises(UsageError, match="but the trace uses 500 KiB") as caught:
        run(trace, on=tmp_path / "disk", by="device")
    assert "--filter 'device == sda'" in caught.value.remedy


@needs_fio
def test_too_little_space(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files that would fill the disk are not begun; small ones are counted as small as they are."""
    trace = make_trace(tmp_path / "T", tmp_path / "data", 100_000)
    full = os.statvfs_result((4096, 4096, 100, 10, 10, 0, 0, 0, 0, 255))
    monkeypatch.setattr(os, "statvfs", lambda _: full)
    with pytest.raises(UsageError, match=r"need 97.7 KiB, but only 40 KiB are free"):
        run(trace, on=tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["T"]
    run(make_trace(tmp_path / "small", tmp_path / "data"), on=tmp_path)


@needs_fio
def test_holes(tmp_path: Path) -> None:
    """For a file that is read only at its far end, that end is made."""
    place = 1 << 40
    run(make_trace(tmp_path / "T", tmp_path / "data", reads_at=place), on=tmp_path, keep=True)
    (made,) = tmp_path.glob("lo2io-replay-*/f000000")
    assert made.stat().st_size == place + 1000
    assert made.stat().st_blocks * 512 < 1 << 20


@needs_fio
def test_original_too_short(tmp_path: Path) -> None:
    """In place, the range that the trace reads must exist; nothing is written before that is checked."""
    data = tmp_path / "data"
    data.write_bytes(b"a" * 999)
    with pytest.raises(UsageError, match="reads 1,000 bytes of the file, but the file has 999"):
        run(make_trace(tmp_path / "T", data), in_place=True)
    assert data.read_bytes() == b"a" * 999


@needs_fio
def test_another_file_of_that_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A later file of that name, or one outside of a container, is not written to; the recorded one is."""
    data, ran = tmp_path / "data", []
    data.write_bytes(b"a" * 5000)
    inode = data.stat().st_ino
    monkeypatch.setattr("lo2io.exports.fio.replay._run", lambda *_, **__: ran.append(True))
    with pytest.raises(UsageError, match=f"this is not the recorded file: inode {inode} instead of {inode + 1}"):
        run(make_trace(tmp_path / "T", data, inode=inode + 1), in_place=True)
    assert not ran
    run(make_trace(tmp_path / "U", data, inode=inode), in_place=True)
    run(make_trace(tmp_path / "V", data), in_place=True)  # which of both it was is unknown
    assert len(ran) == 2


@needs_fio
@pytest.mark.parametrize("copy", [True, False])
def test_folder(tmp_path: Path, capfd: pytest.CaptureFixture[str], *, copy: bool) -> None:
    """The file is as long as its reads, or a copy; the original stays; only requested files are left."""
    data = tmp_path / "data"
    data.write_bytes(b"a" * 3000)
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    trace = make_trace(tmp_path / "T", data)
    if copy:
        assert run(trace, on=scratch, copy=copy) == ["replaying 2 actions in 1 jobs on 1 files"]
        assert list(scratch.iterdir()) == []
    folder = replay(trace, ReplayOptions(on=scratch, copy=copy, keep=True), [].append)
    assert folder is not None
    assert list(scratch.iterdir()) == [folder]
    assert sorted(path.name for path in folder.iterdir()) == ["f000000", "job.fio", "thread-5-work.iolog"]
    content = (folder / "f000000").read_bytes()
    assert len(content) == (3000 if copy else 2000)
    assert (content[:1000] + content[2000:] == b"a" * 2000) == copy
    assert data.read_bytes() == b"a" * 3000
    assert "Run status" in capfd.readouterr().out


@needs_fio
def test_fio_fails(tmp_path: Path) -> None:
    """Its failure is the command's, and the folder goes all the same."""
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    with pytest.raises(Lo2ioError, match="ended with code 1"):
        run(make_trace(tmp_path / "T", tmp_path / "data"), on=scratch, engine="nothing_like_it")
    assert list(scratch.iterdir()) == []


def processes_in(folder: Path) -> list[Path]:
    """Processes whose working directory lies there, even deleted."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if str((process / "cwd").readlink()).startswith(f"{folder}/"):
                found.append(process)
    return found


@needs_fio
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_ended_amid_the_work(tmp_path: Path, number: int, code: int) -> None:
    """No job of fio goes on, and no file is left."""
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    make_trace(tmp_path / "T", tmp_path / "data", pause_ns=300 * 10**9)
    command = [sys.executable, "-m", "lo2io", "replay", str(tmp_path / "T")]
    command += ["--on", str(scratch)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as replaying:
        while len(processes_in(scratch)) < 2:  # fio and its job
            assert replaying.poll() is None
            time.sleep(0.05)
        replaying.send_signal(number)
        replaying.communicate()
    assert replaying.returncode == code
    assert processes_in(scratch) == []
    assert list(scratch.iterdir()) == []


@needs_fio
def test_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the logs find no room, the message says where, and nothing is left."""

    def refuse(*_: object, **__: object) -> int:
        raise OSError(28, "No space left on device")

    trace = make_trace(tmp_path / "T", tmp_path / "data")
    monkeypatch.setattr("lo2io.exports.fio.replay.write_logs", refuse)
    with pytest.raises(Lo2ioError, match="No space left"):
        run(trace, on=tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["T"]


@needs_fio
def test_nothing_to_find_again(tmp_path: Path) -> None:
    """A deleted file cannot be replayed in place; if nothing remains, that is an error with a message."""
    trace = make_trace(tmp_path / "T", tmp_path / "data (deleted)")
    with pytest.raises(UsageError, match="cannot be found again"):
        run(trace, in_place=True)


def test_a_disk_of_files_is_recorded_without_any_request(tmp_path: Path) -> None:
    """The files of a trace lie on it, though the page cache answered all calls."""
    files = [{"file": 0, "device": os.makedev(8, 1), "path": b"/data/a"}]
    requests = [{"id": 1, "device": 254 << 20}]
    assert disks._recorded(write_trace(tmp_path, [make_batch(files=files, requests=requests)])) == {
        8 << 20 | 1,
        254 << 20,
    }


@pytest.mark.parametrize(
    ("minor", "relatives"), [(0, {0, 1, 2}), (1, {0, 1}), (2, {0, 2}), (16, {16})], ids=["disk", "1", "2", "another"]
)
def test_a_disk_and_its_partitions_are_relatives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, minor: int, relatives: set[int]
) -> None:
    """Overwriting a partition destroys part of its disk, and overwriting the disk destroys all of them."""
    links = tmp_path / "sys/dev/block"
    links.mkdir(parents=True)
    for number, name in enumerate(("sda", "sda/sda1", "sda/sda2")):
        folder = tmp_path / "sys/devices" / name
        folder.mkdir(parents=True)
        (folder / "dev").write_text(f"8:{number}\n", encoding="ascii")
        (links / f"8:{number}").symlink_to(folder)
    monkeypatch.setattr(disks, "Path", lambda text: tmp_path / text.lstrip("/"))
    assert disks._relatives(os.makedev(8, minor)) == {8 << 20 | number for number in relatives}
