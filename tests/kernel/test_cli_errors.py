"""Bad input and refusals: each error has what was tried, the answer and a remedy; the exit code fits; no traceback."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

import pytest
from workloads import served
from workloads.record import LO2IO, verified

from lo2io.trace.reader import open_trace

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.requires("root", "tracefs", "events")

NOBODY = ("setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups")
READER = (
    *("setpriv", "--reuid=65533", "--regid=nogroup", "--clear-groups"),
    *("--inh-caps=+dac_read_search", "--ambient-caps=+dac_read_search"),
)
"""A user who may only read tracefs. No other test records as this user, for the kernel counts locked memory by user."""


def lo2io(cwd: Path, *arguments: str, prefix: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    """Run a command to its end, without a traceback."""
    if prefix:
        done = subprocess.run([*prefix, str(LO2IO), *arguments], capture_output=True, text=True, cwd=cwd, check=False)
    else:
        done = served.lo2io(*arguments, cwd=cwd)
    assert "Traceback" not in done.stderr
    return done


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 9 MB."""
    disk = tmp_path / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=9m", "tmpfs", str(disk)], check=True)
    yield disk
    subprocess.run(["umount", "--lazy", str(disk)], check=True)  # the process that closes events may still be there


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["--", "no-such-command"], 127, ["start 'no-such-command'", "not found in PATH"]),
        (["--", "/etc/passwd"], 126, ["start '/etc/passwd'", "not executable"]),
        (["--", "/no/such/file"], 127, ["no such file"]),
        (["--", ""], 127, ["not found"]),
        ([], 2, ["choose what to record", "lo2io record -- CMD"]),
        (["-p", "1", "--", "true"], 2, ["either a command or processes"]),
        (["-p", "99999999"], 2, ["record process 99999999", "no such process"]),
        (["-p", "0"], 2, ["no such process"]),
        (["-e", "syscalls:sys_enter_nosuch", "--", "true"], 2, ["sys_enter_nosuch"]),
        (["--ring", "0", "--", "true"], 2, ["a buffer's size is a power of two", "--ring 4MiB"]),
        (["--ring", "5000", "--", "true"], 2, ["a buffer's size is a power of two"]),
        (["--scope", "x", "--", "true"], 2, ["'x' is not one of 'system', 'inherit'"]),
        (["--opener", "x", "--", "true"], 2, ["'x' is not one of 'python-perf', 'native'"]),
        (["--user", "no-such-user", "--", "true"], 2, ["no such user", "--user NAME"]),
    ],
)
def test_mistakes_cost_nothing(tmp_path: Path, arguments: list[str], code: int, words: list[str]) -> None:
    """No directory stays, and no former trace is lost."""
    done = lo2io(tmp_path, "record", "-q", *arguments)
    assert (done.returncode, done.stdout) == (code, "")
    for word in words:
        assert word in done.stderr
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("kind", ["file", "folder", "file/below", "/proc/nowhere"])
def test_outputs_that_cannot_be(tmp_path: Path, kind: str) -> None:
    """Something that is no trace is never overwritten, not even with --force."""
    (tmp_path / "file").write_text("precious")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder/letter").write_text("precious")
    for force in ((), ("--force",)):
        done = lo2io(tmp_path, "record", *force, "-o", kind, "--", "true")
        assert (done.returncode, done.stdout) == (2, "")
        assert f"write {kind}: " in done.stderr
        assert "-o" in done.stderr
    assert (tmp_path / "file").read_text() == (tmp_path / "folder/letter").read_text() == "precious"


def test_a_trace_is_replaced_only_by_a_recording(tmp_path: Path) -> None:
    """A trace stays without --force, and if the command cannot be started."""
    assert lo2io(tmp_path, "record", "-q", "-o", "T", "--", "true").returncode == 0
    done = lo2io(tmp_path, "record", "-o", "T", "--", "true")
    assert done.returncode == 2
    assert "--force" in done.stderr
    assert lo2io(tmp_path, "record", "--force", "-o", "T", "--", "no-such-command").returncode == 127
    verified(tmp_path / "T")
    assert lo2io(tmp_path, "record", "-q", "--force", "-o", "T", "--", "sh", "-c", "exit 3").returncode == 3


@pytest.mark.requires("setpriv")
def test_without_rights(public: Path) -> None:
    """Without tracefs, nothing is possible.

    With it, the whole system is refused, and the command's calls are recorded.
    """
    done = lo2io(public, "record", "--", "true", prefix=NOBODY)
    assert done.returncode == 3
    assert "Permission denied" in done.stderr
    assert "run as root, or let your group read tracefs" in done.stderr
    done = lo2io(public, "record", "--scope", "system", "--", "true", prefix=READER)
    assert done.returncode == 3
    assert "perf_event_paranoid" in done.stderr
    assert "run lo2io with sudo" in done.stderr
    assert not list(public.iterdir())
    done = lo2io(public, "record", "-o", "T", "--", "cat", "/etc/hostname", prefix=READER)
    assert done.returncode == 0
    assert "events are recorded per task, not per CPU" in done.stderr
    assert "read" in open_trace(public / "T").operations["call"].to_pylist()


@pytest.mark.requires("setpriv", "prlimit")
def test_smaller_rings_are_said(public: Path) -> None:
    """Without CAP_IPC_LOCK, 1 GiB a CPU is refused: buffers are halved until the kernel grants them.

    The kernel counts locked memory by user, and releases it a while after a recording: this user has none in use.
    """
    prefix = ["--reuid=65532" if word.startswith("--reuid") else word for word in READER]
    done = lo2io(
        public, "record", "--ring", "1GiB", "-o", "T", "--", "true", prefix=(*prefix, "prlimit", "--memlock=70000")
    )
    assert done.returncode == 0, done.stderr
    assert "KiB per CPU instead of 1048576" in done.stderr
    assert "ulimit -l" in done.stderr


@pytest.mark.requires("unshare", "setpriv")
def test_without_tracefs(tmp_path: Path) -> None:
    """In a mount namespace without tracefs, and without the right to mount it."""
    script = 'umount /sys/kernel/tracing && exec setpriv --bounding-set=-sys_admin --inh-caps=-sys_admin "$@"'
    prefix = ("unshare", "-m", "--propagation", "private", "sh", "-c", script, "sh")
    done = lo2io(tmp_path, "record", "--", "true", prefix=prefix)
    assert done.returncode == 3
    assert "mount tracefs at /sys/kernel/tracing: Operation not permitted" in done.stderr
    assert "sudo mount -t tracefs nodev /sys/kernel/tracing" in done.stderr
    assert not list(tmp_path.iterdir())


def test_disk_full_while_recording(small_disk: Path) -> None:
    """The command goes on to its end; the recorded part is kept, marked as cut, and can be converted."""
    script = "dd if=/dev/zero of=/dev/null bs=1 count=200000 status=none; exit 3"
    done = lo2io(small_disk, "record", "-q", "--keep-spool", "-o", "T", "--", "sh", "-c", script)
    assert done.returncode == 3
    assert "recording ended early" in done.stderr
    assert "no program is stopped" in done.stderr
    converted = lo2io(small_disk, "convert", "T/spool", "-o", str(small_disk.parent / "T"))
    assert converted.returncode == 0
    assert converted.stderr.startswith("incomplete: ")
    assert "the recording ended early" in converted.stderr
    verified(small_disk.parent / "T")


@pytest.mark.alone  # perf's buffers hold the events of all processes, and those of another test fill the disk
def test_disk_full_while_converting(small_disk: Path) -> None:
    """The spool stays, nothing half-written does, and the printed command works when there is room.

    Either the archive or the tables find the disk full first, and each has its own remedy.
    """
    script = "dd if=/dev/zero of=/dev/null bs=1 count=30000 status=none"
    done = lo2io(small_disk, "record", "-q", "--backend", "perf", "-o", "T", "--", "sh", "-c", script)
    assert done.returncode == 5, done.stderr
    assert "make room in T" in done.stderr or "free space or choose another place" in done.stderr
    assert "lo2io convert T/spool -o T" in done.stderr
    assert [path.name for path in (small_disk / "T").iterdir()] == ["spool"]
    subprocess.run(["mount", "-o", "remount,size=99m", str(small_disk)], check=True)
    again = lo2io(small_disk, "convert", "T/spool", "-o", "T")
    assert again.returncode == 0, again.stderr
    assert open_trace(small_disk / "T").operations.num_rows > 10_000


@pytest.mark.parametrize(("backend", "files"), [("perf", "*.ring"), ("bpf", "*.calls")])
def test_damaged_spools(tmp_path: Path, backend: str, files: str) -> None:
    """Of a cut or damaged buffer the rest is read, and missing bytes are counted; a missing file is an error."""
    recorded = lo2io(tmp_path, "record", "-q", "--backend", backend, "--no-convert", "-o", "S", "--", "true")
    if backend == "bpf" and recorded.returncode == 3:
        pytest.skip(recorded.stderr)
    assert recorded.returncode == 0
    rings = sorted((tmp_path / "S/spool").glob(files), key=lambda path: path.stat().st_size)
    whole = rings[-1].read_bytes()
    for content in (whole[: len(whole) // 2 - 3], whole[:100] + b"\xff" * 5000, b""):
        rings[-1].write_bytes(content)
        done = lo2io(tmp_path, "convert", "--force", "S/spool", "-o", "T")
        assert done.returncode == 0
        assert done.stderr.startswith("incomplete: ")
        verified(tmp_path / "T")
    rings[-1].write_bytes(whole)
    facts = tmp_path / "S/spool/facts.ring"
    size = facts.stat().st_size
    facts.write_bytes(b"")  # nothing is cut amid a record, and no event is missing
    done = lo2io(tmp_path, "convert", "--force", "S/spool", "-o", "T")
    assert f"bytes missing from the spool: {size:,} ·" in done.stderr
    rings[-1].unlink()
    done = lo2io(tmp_path, "convert", "S/spool", "-o", "U")
    assert done.returncode == 4
    assert "copy the whole spool" in done.stderr


def test_damaged_traces(tmp_path: Path) -> None:
    """Readers report cut files as damaged."""
    assert lo2io(tmp_path, "record", "-q", "-o", "T", "--", "true").returncode == 0
    anchor = tmp_path / "T/traces.otf2"
    anchor.write_bytes(anchor.read_bytes()[:100])
    done = lo2io(tmp_path, "verify", "T")
    assert done.returncode == 5
    assert "T/traces.otf2" in done.stderr
    table = tmp_path / "T/lo2io/operations.arrow"
    table.write_bytes(table.read_bytes()[:60])
    done = lo2io(tmp_path, "report", "T")
    assert done.returncode == 5
    assert "convert the spool again" in done.stderr


@pytest.mark.parametrize("kept", [(), ("--last", "2s")], ids=["everything", "the newest"])
def test_disk_full_without_a_command(small_disk: Path, kept: tuple[str, ...]) -> None:
    """There is no command to wait for: the recording ends by itself, with exit code 6 for whoever restarts it."""
    command = [str(LO2IO), "system-wide", "-q", "--no-convert", "--ring", "256KiB", *kept, "-o", "T"]
    load = ["dd", "if=/dev/zero", "of=/dev/null", "bs=1"]
    with subprocess.Popen(load, stderr=subprocess.DEVNULL) as busy:
        try:
            (small_disk / "full").write_bytes(bytes(6 << 20))
            done = subprocess.run(command, capture_output=True, text=True, cwd=small_disk, check=False, timeout=60)
        finally:
            busy.kill()
    assert (done.returncode, "recording ended early" in done.stderr) == (6, True), done.stderr
    assert (small_disk / "T/spool").exists()
