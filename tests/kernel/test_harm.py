"""lo2io runs as root and writes where users say: other users' files do not change, and no recording is lost."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from workloads import attacker
from workloads.machine import finish, recording
from workloads.record import LO2IO, verified
from workloads.served import lo2io

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

pytestmark = pytest.mark.requires("root", "tracefs", "events")
NOBODY = 65534
ROUNDS = int(os.environ.get("LO2IO_ATTACK_ROUNDS", "1"))
"""How often each of the eight commands runs under attack (``make attack``)."""
KINDS = ("record", "flight", "convert", "export", "html")


@pytest.fixture
def place() -> Iterator[Path]:
    """A folder that every user may enter; pytest's own are closed."""
    with tempfile.TemporaryDirectory(prefix="lo2io-harm-") as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


@pytest.fixture
def victim(place: Path) -> Path:
    """A folder of root's files with the names that lo2io writes. Some are missing, and must not be created."""
    folder = place / "victim"
    folder.mkdir()
    for name in attacker.NAMES[::2]:
        (folder / name).write_text("precious")
    return folder


@contextlib.contextmanager
def attacked(homes: Path, victim: Path, names: Sequence[str]) -> Iterator[list[int]]:
    """Folders of the user nobody, each with an empty ``T``, in which nobody exchanges lo2io's files; and how often."""
    for name in names:
        (homes / name / "T").mkdir(parents=True)
        for folder in (homes / name, homes / name / "T"):
            os.chown(folder, NOBODY, NOBODY)
    done: list[int] = []
    with subprocess.Popen(
        [sys.executable, "-S", attacker.__file__, str(homes), str(victim)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        user=NOBODY,
        group=NOBODY,
        extra_groups=[],
        cwd="/",
    ) as process:
        assert process.stdout
        assert process.stdout.readline() == b"ready\n"
        yield done
        done.append(int(process.communicate()[0]))


def everything(folder: Path) -> dict[str, tuple[object, ...]]:
    """Names, owners, modes, times and contents."""
    return {
        str(path.relative_to(folder)): (
            *(path.lstat().st_uid, path.lstat().st_mode, path.lstat().st_mtime_ns, path.lstat().st_nlink),
            path.read_bytes() if path.is_file() else b"",
        )
        for path in (folder, *folder.rglob("*"))
    }


def test_nobody_has_root_write_to_other_files(place: Path, victim: Path) -> None:
    """Nobody exchanges folders and files for links while lo2io records, converts, dumps, exports and replaces.

    The attacker may make a command fail, for it can take away the files. The victim's files stay.
    """
    trace, homes = place / "trace", place / "homes"
    work = ("sh", "-c", "for i in 1 2 3 4 5 6 7 8; do cat /etc/passwd > /dev/null; sleep 0.05; done")
    assert lo2io("record", "-q", "--keep-spool", "-o", trace, "--", "true").returncode == 0
    homes.mkdir()
    before = everything(victim)
    with attacked(homes, victim, [f"{kind}{turn}" for turn in range(ROUNDS) for kind in KINDS]) as exchanged:
        for turn in range(ROUNDS):
            places = {kind: homes / f"{kind}{turn}/T" for kind in KINDS}
            commands: list[tuple[str | Path, ...]] = [
                ("record", "-q", "-o", places["record"], "--", *work),
                ("system-wide", "-q", "--last", "1s", "-o", places["flight"], "--", *work),
                ("convert", trace / "spool", "-o", places["convert"]),
                ("export", trace, "--to", "parquet", "-o", places["export"] / "out"),
                ("report", trace, "--html", places["html"] / "page.html"),
            ]
            running = [
                subprocess.Popen([LO2IO, *map(str, each)], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
                for each in commands
            ]
            time.sleep(1)
            lo2io("dump", places["flight"])
            for process in running:
                assert "Traceback" not in process.communicate()[1]
            replaced = lo2io("record", "-q", "--force", "-o", places["record"], "--", "true")
            converted = lo2io("convert", "--force", trace / "spool", "-o", places["convert"])
            assert "Traceback" not in replaced.stderr + converted.stderr
    assert exchanged[0] >= len(KINDS)
    assert everything(victim) == before


def test_a_second_recorder_leaves_the_first_alone(tmp_path: Path) -> None:
    """Even with --force, no other recording, conversion or flight recorder takes a directory that is in use.

    Each error names its user. Afterwards, the first recorder's window and trace are whole.
    """
    trace = tmp_path / "T"
    with recording(trace, "-e", "pread64", "--last", "5s") as process:
        refused = [
            lo2io("record", "--force", "-o", trace, "--", "true"),
            lo2io("system-wide", "--force", "--last", "1s", "-o", trace, "--", "true"),
            lo2io("convert", "--force", trace / "spool", "-o", tmp_path / "other"),
        ]
        for done in refused:
            assert done.returncode == 2, done.stderr
            assert f"(pid {process.pid}) uses it" in done.stderr
            assert "system-wide" in done.stderr
        assert not (tmp_path / "other").exists()
        window = Path(lo2io("dump", trace).stdout.strip())
        process.terminate()
        finish(process, trace)
    verified(window)
    verified(trace)


@pytest.mark.requires("losetup", "mkfs.ext2", "fallocate")
def test_a_file_system_without_fallocate_is_recorded_to(place: Path) -> None:
    """ext2 refuses fallocate(2); the recording is whole, and so is its window."""
    image, disk = place / "image", place / "disk"
    with image.open("wb") as file:
        file.truncate(64 << 20)
    disk.mkdir()
    subprocess.run(["mkfs.ext2", "-q", str(image)], check=True)
    subprocess.run(["mount", "-o", "loop", str(image), str(disk)], check=True)
    try:
        probe = subprocess.run(["fallocate", "--length", "1", str(disk / "probe")], capture_output=True, check=False)
        assert b"not supported" in probe.stderr
        done = lo2io("record", "-q", "-o", disk / "T", "--", "true")
        assert done.returncode == 0, done.stderr
        verified(disk / "T")
    finally:
        subprocess.run(["umount", str(disk)], check=True)


@pytest.mark.parametrize("closed", [(2,), (0, 1, 2)])
def test_streams_may_be_closed(tmp_path: Path, closed: tuple[int, ...]) -> None:
    """The command finds the same streams closed, and its exit code is lo2io's; the trace is whole.

    The command has the user's umask, too, and only the owner may read the recording's directories and files.
    """
    look = """
import os, sys
seen = [fd for fd in (0, 1, 2) if os.path.exists(f"/proc/self/fd/{fd}")]
open(sys.argv[1], "w").write(f"{seen} {os.umask(0):o}")
sys.exit(3)
"""
    redirections = " ".join(f"{fd}>&-" for fd in closed)
    command = [str(LO2IO), "record", "--keep-spool", "-o", str(tmp_path / "T"), "--", sys.executable, "-S", "-c", look]
    done = subprocess.run(
        ["sh", "-c", f'exec "$@" {redirections}', "sh", *command, str(tmp_path / "seen")],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        umask=0o002,
        check=False,
    )
    assert done.returncode == 3, done.stderr
    assert (tmp_path / "seen").read_text() == f"{[fd for fd in (0, 1, 2) if fd not in closed]} 2"
    for path in (tmp_path / "T", *(tmp_path / "T").rglob("*")):
        assert path.stat().st_mode & 0o777 == (0o700 if path.is_dir() else 0o600), path
    assert done.stdout == "", "messages are for stderr, closed or not"
    assert ("complete" in done.stderr) == (2 not in closed)
    verified(tmp_path / "T")
