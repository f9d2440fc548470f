"""How a recording of the whole machine ends, its hint if nothing happened, and its refusals."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from workloads import served
from workloads.machine import Work, cgroups, complete, do_all, done_by, expected, finish, recording, workers
from workloads.record import LO2IO, Recorded, finished
from workloads.terminal import on_terminal

from lo2io.kernel import sysfs, tracefs
from lo2io.trace.reader import open_trace

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = [pytest.mark.requires("root", "tracefs", "events")]
CALLS = ("-e", "pread64,pwrite64")
NOBODY = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")


def run(*arguments: str, prefix: tuple[str, ...] = (), cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """``lo2io system-wide`` to its end; never a traceback."""
    if prefix:
        command = [*prefix, str(LO2IO), "system-wide", *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=cwd)
    else:
        done = served.lo2io("system-wide", *arguments, cwd=cwd)
    assert "Traceback" not in done.stderr
    return done


@pytest.mark.usefixtures("busy_cpus")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP], ids=lambda number: number.name)
def test_signals_end_it(tmp_path: Path, number: signal.Signals) -> None:
    """Each leaves a whole trace of all that happened before, and exit code 0."""

    def attempt() -> Recorded:
        with workers(Work(tmp_path / "a", (100, 23), (50, 7))) as ready, recording(tmp_path / "T", *CALLS) as process:
            do_all(ready)
            process.send_signal(number)
            recorded = finish(process, tmp_path / "T")
            assert done_by(recorded, ready[0], named=False) == expected(ready[0].work)
            return recorded

    assert "\r" not in complete(attempt).stderr, "no progress where nobody looks on"
    assert finished(tmp_path / "T")


def test_the_time_ends_it(tmp_path: Path) -> None:
    """After at least so long, and the trace has that duration."""
    done = run("-q", "-o", str(tmp_path / "T"), *CALLS, "--duration", "700ms")
    assert done.returncode == 0, done.stderr
    metadata = open_trace(tmp_path / "T").metadata
    assert metadata["stop_ns"] - metadata["start_ns"] >= 700_000_000
    assert finished(tmp_path / "T")


@pytest.mark.usefixtures("busy_cpus")
@pytest.mark.parametrize("code", [0, 7])
def test_the_command_ends_it(tmp_path: Path, code: int) -> None:
    """Its exit code is lo2io's. Other processes' calls in between are recorded, lo2io's before the exec are not."""
    script = (
        f"import os; f = os.open('{tmp_path}/f', os.O_RDWR | os.O_CREAT)\nfor i in range(13): os.pwrite(f, b'12345', 0)"
    )
    command = ["sh", "-c", f'exec {sys.executable} -S -c "$0"; exit {code}' if code == 0 else '"$1" -S -c "$0"; exit 7']
    command += [script, sys.executable]

    def attempt() -> Recorded:
        with recording(tmp_path / "T", "-e", "syscalls", command=command) as process:
            return finish(process, tmp_path / "T", code=code)

    recorded = complete(attempt)
    found = [row for row in recorded.calls("pwrite64") if row["fd"] >= 0 and row["bytes_result"] == 5]
    assert len(found) == 13
    (root,) = recorded.trace.metadata["roots"]
    assert recorded.trace.metadata["mode"] == "system"
    first = min((row for row in recorded.operations() if row["pid"] == root), key=lambda row: row["begin_time_ns"])
    threads = {row["tid"]: row for row in recorded.trace.threads.to_pylist()}
    assert first["begin_time_ns"] >= recorded.trace.metadata["start_ns"]
    assert threads[root]["comm"].startswith("python" if code == 0 else "sh"), "the name follows exec"
    assert finished(tmp_path / "T")


def test_a_command_may_outlive_the_time(tmp_path: Path) -> None:
    """It goes on, and lo2io says so."""
    script = f"exec > /dev/null 2>&1; echo $$ > {tmp_path}/pid; exec sleep 120"
    done = run("-o", str(tmp_path / "T"), *CALLS, "--duration", "1s", "--", "sh", "-c", script)
    assert done.returncode == 0
    assert "the command goes on" in done.stderr
    os.kill(int((tmp_path / "pid").read_text()), signal.SIGKILL)
    assert finished(tmp_path / "T")


def test_progress_on_a_terminal(tmp_path: Path) -> None:
    """A line that redraws itself; Ctrl-C ends the recording, and the line is gone before the report."""
    command = [str(LO2IO), "system-wide", "-a", "-o", str(tmp_path / "T"), *CALLS]
    code, shown = on_terminal(command, ("events/s", b"\x03"))
    assert code == 0, shown
    assert re.search(r"\rlo2io: \d+ s · [\d.]+ ?[kM]? ?events/s · .* lost · buffers \d+% full · spool ", shown)
    assert "\r\x1b[K" in shown
    assert finished(tmp_path / "T")


def test_no_progress_when_quiet(tmp_path: Path) -> None:
    """-q shows the completeness only."""
    command = [str(LO2IO), "system-wide", "-q", "-o", str(tmp_path / "T"), *CALLS, "--duration", "1500ms"]
    code, shown = on_terminal(command)
    assert code == 0, shown
    assert "events/s" not in shown
    assert "complete" in shown


@pytest.mark.alone  # other tests make that call
def test_nothing_recorded(tmp_path: Path) -> None:
    """A valid trace without events, and a hint why."""
    done = run("-o", str(tmp_path / "T"), "-e", "sys_vmsplice", "--duration", "200ms")
    assert done.returncode == 0, done.stderr
    assert "nothing was recorded" in done.stderr
    assert open_trace(tmp_path / "T").operations.num_rows == 0
    assert finished(tmp_path / "T")


def test_nobody_in_the_cgroup(tmp_path: Path) -> None:
    """A valid trace, and a hint that the cgroup is empty."""
    with cgroups("empty") as (group,):
        done = run("-o", str(tmp_path / "T"), *CALLS, "--cgroup", str(group), "--duration", "200ms")
        assert done.returncode == 0, done.stderr
        assert "no process is in the cgroup" in done.stderr
        assert str(group).endswith(open_trace(tmp_path / "T").metadata["cgroup"])
    assert finished(tmp_path / "T")


def test_an_unknown_cgroup(tmp_path: Path) -> None:
    """The error names similar ones."""
    with cgroups("someservice") as (group,):
        name = f"{group.parent.name}/somservice"
        done = run("--cgroup", name, "--duration", "200ms", cwd=tmp_path)
        assert (done.returncode, done.stdout) == (2, "")
        assert repr(name) in done.stderr
        assert f"did you mean /{group.parent.name}/someservice" in done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--cpus", "0,4000"), "CPU 4000 not online"),
        (("--cpus", "0-"), "this is not a list of CPUs"),
        (("--cpus", "1-0"), "the list has no CPU"),
        (("--user", "root"), "there is no command"),
        (("--cgroup", "/", "--opener", "python-perf"), "python-perf has no cgroups"),
        (("--", "no-such-program"), "not found in PATH"),
    ],
)
def test_refusals(tmp_path: Path, arguments: tuple[str, ...], words: str) -> None:
    """Nothing is left behind."""
    done = run("--duration", "200ms", *arguments, cwd=tmp_path)
    assert done.returncode in {2, 127}
    assert words in done.stderr
    if "--cpus" in arguments:
        assert f"online: {sysfs.format_cpu_list(sysfs.read_online_cpus())}" in done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def theirs() -> Path:
    """A directory in which the user nobody may write, with readable tracefs."""
    folder = Path("/tmp") / f"lo2io-nobody-{os.getpid()}"
    folder.mkdir()
    os.chown(folder, 65534, 65534)
    yield folder
    shutil.rmtree(folder)


@pytest.mark.requires("setpriv")
def test_no_rights(theirs: Path) -> None:
    """A user without rights is told the least that helps, and nothing is left."""
    done = run("--duration", "200ms", prefix=NOBODY, cwd=theirs)
    assert (done.returncode, done.stdout) == (3, "")
    assert "tracefs" in done.stderr or "/sys/kernel/tracing" in done.stderr
    assert list(theirs.iterdir()) == []


@pytest.mark.requires("setpriv")
def test_no_rights_to_open(theirs: Path, until: Callable[[Callable[[], object]], object]) -> None:
    """A user who may read tracefs, but not open others' events, is told the capability and the sysctl."""
    rights = ("--inh-caps=+dac_read_search", "--ambient-caps=+dac_read_search")
    done = run("--duration", "200ms", prefix=(*NOBODY, *rights), cwd=theirs)
    assert (done.returncode, done.stdout) == (3, "")
    assert "CAP_PERFMON" in done.stderr
    assert "kernel.perf_event_paranoid" in done.stderr
    assert list(theirs.iterdir()) == []


@pytest.mark.requires("setpriv")
def test_with_the_rights_it_names(theirs: Path) -> None:
    """The rights in the remedy suffice."""
    names = "+dac_read_search,+perfmon,+ipc_lock"
    rights = (f"--inh-caps={names}", f"--ambient-caps={names}")
    done = run("-q", "-o", "T", *CALLS, "--duration", "300ms", prefix=(*NOBODY, *rights), cwd=theirs)
    assert done.returncode == 0, done.stderr
    assert finished(theirs / "T")
    assert tracefs.find_tracefs()
