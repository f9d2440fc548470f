"""The flight recorder on the running kernel: what it keeps, its bound, and its windows."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner
from workloads.disks import device_number
from workloads.machine import Work, complete, do_all, done_by, expected, finish, recording, threads_of, workers
from workloads.record import LO2IO, Recorded, verified
from workloads.served import lo2io

from lo2io.cli.app import app
from lo2io.errors import UsageError
from lo2io.model.command_lines import command_line
from lo2io.spool.segments import PARTS
from lo2io.trace.reader import open_trace

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = [pytest.mark.alone, pytest.mark.requires("root", "tracefs", "events")]

SECONDS = float(os.environ.get("LO2IO_FLIGHT_SECONDS", "0"))
"""How long the recording under load lasts at least."""
TURNS = 3
"""How often the spool's segments are all replaced meanwhile, at least."""
WORK = ((100, 23), (50, 7))
"""A worker's writes and reads: size and how many."""
_LOAD = """
import os, sys, time
pause = float(sys.argv[1])
parent = os.getppid()
file = os.open("/dev/zero", os.O_RDONLY)
while os.getppid() == parent:
    for _ in range(1000):
        os.pread(file, 8, 0)
    if pause:
        time.sleep(pause)
"""


@contextlib.contextmanager
def load(count: int = 2, pause: float = 0) -> Iterator[list[int]]:
    """Processes that read as fast as they can, or with pauses; their numbers."""
    with contextlib.ExitStack() as stack:
        pids = []
        for _ in range(count):
            process = stack.enter_context(subprocess.Popen([sys.executable, "-S", "-c", _LOAD, str(pause)]))
            stack.callback(process.kill)
            pids.append(process.pid)
        yield pids


def oldest(trace: Path) -> int:
    """The number of the spool's oldest segment: so many were removed."""
    return min((int(path.name[4:]) for path in (trace / "spool").glob("seg-*")), default=0)


def size_of(folder: Path) -> int:
    """Bytes of every file below; files may come and go during the sum."""
    total = 0
    for path, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(FileNotFoundError):
                total += (Path(path) / name).stat().st_size
    return total


def dumps_of(trace: Path) -> list[Path]:
    """The windows written so far, finished or not."""
    return sorted(trace.glob("dump-*"))


def dump(trace: Path) -> Path:
    """Have the window written, like a user."""
    done = lo2io("dump", str(trace))
    assert done.returncode == 0, done.stderr
    path = Path(done.stdout.strip())
    assert path.parent == trace
    return path


def window(path: Path) -> Recorded:
    """A written window, which keeps every rule and has no spool left beside it."""
    said = verified(path)
    assert not (path / "spool").exists()
    return Recorded(open_trace(path), 0, said, "")


def seconds_of(recorded: Recorded) -> float:
    """The length of a window."""
    metadata = recorded.trace.metadata
    return float(metadata["stop_ns"] - metadata["start_ns"]) / 1e9


def await_dump(trace: Path, until: Callable[[Callable[[], object]], object], count: int = 1) -> Path:
    """The next window that this test did not request."""

    def is_there() -> bool:
        found = dumps_of(trace)
        return len(found) >= count and (found[count - 1] / "lo2io/metadata.json").exists()

    until(is_there)
    until(lambda: not (dumps_of(trace)[count - 1] / "spool").exists())
    return dumps_of(trace)[count - 1]


def test_the_spool_stays_within_its_bound_under_load(tmp_path: Path) -> None:
    """Checked all the time; the windows in between, and the rest at the end, are proven complete."""
    trace, bound, written = tmp_path / "T", 32 << 20, []
    options = ("--last", "5s", "--max-size", "32MiB", "--ring", "1MiB")
    with load(pause=0.002) as pids, recording(trace, *options) as process:
        begin, asking, largest = time.monotonic(), None, 0
        while len(written) < 2 or oldest(trace) < TURNS * PARTS or time.monotonic() - begin < SECONDS:
            assert process.poll() is None
            size = size_of(trace / "spool")
            assert size <= bound
            largest = max(largest, size)
            if asking is None and oldest(trace) >= (len(written) + 1) * PARTS:
                asking = subprocess.Popen([LO2IO, "dump", str(trace)], stdout=subprocess.PIPE, text=True)
            elif asking is not None and asking.poll() is not None:
                assert asking.returncode == 0
                written.append(Path(asking.communicate()[0].strip()))
                asking = None
            time.sleep(0.02)
            assert time.monotonic() - begin < SECONDS + 120, "the spool was not filled"
        assert process.poll() is None
        if asking is not None:
            written.append(Path(asking.communicate(timeout=100)[0].strip()))
        process.send_signal(signal.SIGTERM)
        last = finish(process, trace)
    assert largest >= bound // 2, "the bound was never put to the test"
    for found in (*(window(path) for path in written), last):
        proof = found.trace.completeness
        assert proof.late == 0
        assert proof.vanished * 10_000 <= proof.samples, "this machine loses some of an idle CPU's, never so many"
        # A busy machine may not drain its buffers in time; then it reports its losses.
        assert proof.lost * 10 <= proof.samples, found.stdout
        assert 0 < seconds_of(found) <= 6.5
        metadata = found.trace.metadata
        assert metadata["recording_start_ns"] < metadata["start_ns"]
        assert {row["pid"] for row in found.calls("pread64")} >= set(pids)
    assert not (trace / "spool").exists()


@pytest.mark.usefixtures("busy_cpus")
@pytest.mark.parametrize(("asked", "backend"), [("SIGUSR1", "bpf"), ("command", "perf")])
def test_a_window_holds_exactly_what_was_done_in_it(
    tmp_path: Path, asked: str, backend: str, until: Callable[[Callable[[], object]], object]
) -> None:
    """Files and processes from long before are known by name; a thread's calls belong to its process.

    The kernel names the files, although it named them in earlier segments, too.
    """
    options = ("--last", "3s", "--backend", backend)  # on a busy machine it takes a second to ask for the window

    def attempt() -> Recorded:
        trace = tmp_path / f"T{len(list(tmp_path.glob('T*')))}"
        work = Work(tmp_path / "a", *WORK, thread_reads=11)
        with workers(work) as ready, load(pause=0.05) as pids, recording(trace, *options) as process:
            until(lambda: oldest(trace))  # longer than what is kept
            tids = {int(task.name) for task in Path(f"/proc/{ready[0].pid}/task").iterdir()}
            assert len(tids) == 2
            do_all(ready)
            if asked == "command":
                path = dump(trace)
            else:
                process.send_signal(signal.SIGUSR1)
                path = await_dump(trace, until)
            found = window(path)
            assert done_by(found, ready[0]) == expected(work)
            comms = {row["comm"] for row in threads_of(found, ready[0])}
            assert comms == {Path(f"/proc/{ready[0].pid}/comm").read_text().strip()}
            assert {row["tid"] for row in threads_of(found, ready[0])} == tids
            own = command_line(Path(f"/proc/{ready[0].pid}/cmdline").read_text())
            assert {row["cmdline"] for row in threads_of(found, ready[0])} == {own}
            reads = [row for row in found.calls("pread64") if row["pid"] in pids]
            assert {row["path"] for row in reads} == {"/dev/zero"}
            used = {row["handle"] for row in reads}
            sources = {row["name_source"] for row in found.trace.handles.to_pylist() if row["handle"] in used}
            assert sources == {"kernel"}
            assert found.trace.metadata["backend"] == backend
            assert process.poll() is None, "the recording goes on"
            assert 3 <= seconds_of(found) <= 5
            process.send_signal(signal.SIGINT)
            last = finish(process, trace)
            assert str(path) in last.stderr
            assert {entry.name for entry in trace.iterdir()} >= {path.name, "traces.otf2"}
            return found

    complete(attempt)


@pytest.mark.usefixtures("busy_cpus")
@pytest.mark.parametrize("backend", ["bpf", "perf"])
def test_old_parts_leave_no_gap(tmp_path: Path, backend: str) -> None:
    """A process counts by its offsets: those in the window follow one another, up to the end."""
    options = ("-e", "pread64", "--last", "1s", "--duration", "3s", "--backend", backend)
    counters = []

    def attempt() -> Recorded:
        trace = tmp_path / f"T{len(list(tmp_path.glob('T*')))}"
        script = """
import os, time
file = os.open("/dev/zero", os.O_RDONLY)
for offset in range(1 << 62):
    os.pread(file, 1, offset)
    if offset % 50 == 0:
        time.sleep(0.001)
"""
        with subprocess.Popen([sys.executable, "-S", "-c", script]) as counter:
            try:
                counters.append(counter.pid)
                with recording(trace, *options) as process:
                    return finish(process, trace)
            finally:
                counter.kill()

    found = complete(attempt)  # before anything is compared: calls may vanish
    start_ns = found.trace.metadata["start_ns"]
    rows = [r for r in found.calls("pread64") if r["pid"] == counters[-1] and r["begin_time_ns"] >= start_ns]
    offsets = [row["offset_bytes"] for row in rows]
    assert offsets == list(range(offsets[0], offsets[0] + len(offsets)))
    assert offsets[0] > 0
    assert rows[-1]["begin_time_ns"] - start_ns >= 900_000_000


@pytest.fixture
def stubborn(tmp_path: Path) -> Iterator[tuple[Path, Callable[[float], None]]]:
    """A block device, and a function that writes a block to it within so many seconds.

    It is a loop device, whose file lies in a file system of its own: while that is frozen, its writes wait.
    """
    image, folder = tmp_path / "image", tmp_path / "folder"
    with image.open("wb") as file:
        file.truncate(32 << 20)
    folder.mkdir()
    with contextlib.ExitStack() as undo:
        run = subprocess.run
        run(["mkfs.ext4", "-q", str(image)], check=True)
        run(["mount", "-o", "loop", str(image), str(folder)], check=True)
        undo.callback(run, ["umount", str(folder)], check=True)
        (folder / "inner").write_bytes(bytes(1 << 20))
        os.sync()
        command = ["losetup", "--find", "--show", "--direct-io=off", str(folder / "inner")]
        device = run(command, capture_output=True, text=True, check=True).stdout.strip()
        undo.callback(run, ["losetup", "--detach", device], check=True)

        def write(seconds: float) -> None:
            run(["fsfreeze", "--freeze", str(folder)], check=True)
            arguments = ["dd", "if=/dev/zero", f"of={device}", "bs=4k", "count=1", "oflag=direct", "status=none"]
            with subprocess.Popen(arguments) as writer:
                time.sleep(seconds)
                run(["fsfreeze", "--unfreeze", str(folder)], check=True)
            assert writer.returncode == 0

        yield Path(device), write


@pytest.mark.usefixtures("busy_cpus")
@pytest.mark.requires("losetup", "mkfs.ext4", "fsfreeze", "dd")
@pytest.mark.parametrize("events", ["block", "block,fsync"])
def test_a_slow_request_triggers(
    tmp_path: Path,
    stubborn: tuple[Path, Callable[[float], None]],
    until: Callable[[Callable[[], object]], object],
    events: str,
) -> None:
    """Of the named device, and slower than the threshold.

    Then the trigger rests, so that no window is written twice. Beside calls, programs record the requests, too.
    """
    device, write = stubborn
    trace = tmp_path / "T"
    trigger = f"latency > 200ms and device == {device.name} and operation == write"
    with recording(trace, "-e", events, "--last", "2s", "--trigger", trigger) as process:
        write(0)
        time.sleep(0.5)  # twice as long as it takes to notice one
        assert dumps_of(trace) == []
        write(0.5)
        found = window(await_dump(trace, until))
        write(0.5)
        process.send_signal(signal.SIGTERM)
        last = finish(process, trace)
    slow = [
        row
        for row in found.trace.requests.to_pylist()
        if row["device"] == device_number(device)  # another disk may be slow, too
        and row["complete_time_ns"] is not None
        and row["complete_time_ns"] - row["issue_time_ns"] > 200_000_000
    ]
    assert len(slow) == 1
    assert re.search(rf"a write at sector 0 of {device.name} took \d+ ms", last.stderr)
    told = re.search(r"was met by (\d+) requests? and had (\d) windows? written", last.stderr)
    assert told
    assert told.group(1) == "2"
    assert len(dumps_of(trace)) == int(told.group(2)) <= 2


_SYNCS = """
import os, sys
file = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT)
sys.stdin.readline()
for _ in range(int(sys.argv[2])):
    os.pwrite(file, bytes(1 << 20), 0)
    os.fsync(file)
"""


def sync_often(target: Path, count: int) -> int:
    """A process that writes and syncs so often; its number."""
    arguments = [sys.executable, "-S", "-c", _SYNCS, str(target), str(count)]
    with subprocess.Popen(arguments, stdin=subprocess.PIPE, text=True) as process:
        process.communicate("\n")
    assert process.returncode == 0
    return process.pid


@pytest.mark.parametrize("backend", ["bpf", "perf"])
def test_a_slow_call_triggers(tmp_path: Path, until: Callable[[Callable[[], object]], object], backend: str) -> None:
    """Every sync of a dirty file exceeds the threshold: all are counted, and a window has some."""
    trace, count = tmp_path / "T", 20
    trigger = "latency > 1us and operation == fsync"
    options = ("-e", "syscalls", "--last", "2s", "--backend", backend)
    with recording(trace, *options, "--trigger", trigger) as process:
        pid = sync_often(tmp_path / "file", count)
        found = window(await_dump(trace, until))
        process.send_signal(signal.SIGTERM)
        last = finish(process, trace)
    assert pid in {row["pid"] for row in found.calls("fsync") + last.calls("fsync")}
    assert re.search(r"fsync of .*thread \d+.* took", last.stderr)
    told = re.search(r"was met by (\d+) calls? and had (\d) windows? written", last.stderr)
    assert told
    assert int(told.group(1)) >= count
    assert int(told.group(2)) == len(dumps_of(trace))


def test_a_call_that_is_not_slow_enough_triggers_nothing(tmp_path: Path) -> None:
    """Its syncs are recorded, and none takes an hour."""
    trace = tmp_path / "T"
    trigger = "latency > 1h and operation == sync"
    with recording(trace, "-e", "syscalls", "--last", "2s", "--trigger", trigger) as process:
        pid = sync_often(tmp_path / "file", 3)
        process.send_signal(signal.SIGTERM)
        last = finish(process, trace)
    assert len([row for row in last.calls("fsync") if row["pid"] == pid]) == 3
    assert "was met by 0 calls and had 0 windows written" in last.stderr
    assert dumps_of(trace) == []


def test_one_window_at_a_time(tmp_path: Path, until: Callable[[Callable[[], object]], object]) -> None:
    """A second request is refused, and both the requester and the recorder say so."""
    trace = tmp_path / "T"
    with load(pause=0.005), recording(trace, "--last", "2s") as process:
        until(lambda: size_of(trace / "spool") > 8 << 20)  # so much that converting takes a while
        process.send_signal(signal.SIGUSR1)
        until(lambda: dumps_of(trace))
        done = lo2io("dump", str(trace))
        first = await_dump(trace, until)
        process.send_signal(signal.SIGTERM)
        last = finish(process, trace)
    if done.returncode == 6:
        assert "another window is still being written" in done.stderr
        assert "another window is still being written" in last.stderr
    else:  # converting was quicker than the request
        assert done.returncode == 0, done.stderr
    proof = window(first).trace.completeness
    assert proof.lost == proof.vanished


def test_who_cannot_be_asked(tmp_path: Path) -> None:
    """Each has an error that says why, and exit code 2; nobody gets a signal."""

    def ask(trace: Path) -> str:
        done = lo2io("dump", str(trace))
        assert (done.returncode, done.stdout) == (2, "")
        assert "Traceback" not in done.stderr
        return done.stderr

    assert "nothing is being recorded there" in ask(tmp_path / "none")
    with recording(tmp_path / "all", "-e", "pread64") as process:
        assert "keeps everything" in ask(tmp_path / "all")
        assert process.poll() is None
        process.send_signal(signal.SIGTERM)
        finish(process, tmp_path / "all")
    with recording(tmp_path / "cut", "-e", "pread64", "--last", "1s") as process:
        process.kill()
        process.communicate()
    assert "is over, or was cut off" in ask(tmp_path / "cut")


def test_what_was_killed_can_be_converted(tmp_path: Path, until: Callable[[Callable[[], object]], object]) -> None:
    """The segments that were kept are a spool: not proven, but whole."""
    trace = tmp_path / "T"
    named = ("-e", "pread64,+close,+descriptor")  # few events: the kernel closes each before the recorder has ended
    with load(1, pause=0.05) as (pid,), recording(trace, *named, "--last", "1s") as process:
        until(lambda: oldest(trace))
        process.kill()
        process.communicate()
    arguments = ["convert", str(trace / "spool"), "-o", str(trace)]
    done = lo2io(*arguments)
    assert done.returncode == 0, done.stderr
    assert "not proven" in done.stderr
    found = Recorded(open_trace(trace), 0, "", "")
    assert {row["path"] for row in found.calls("pread64") if row["pid"] == pid} == {"/dev/zero"}
    assert found.trace.metadata["recording_start_ns"] < found.trace.metadata["start_ns"]
    verified(trace)


@pytest.mark.parametrize(
    ("options", "answer"),
    [
        (("--max-size", "4MiB"), "--max-size"),
        (("--trigger", "latency > 1ms"), "add --last"),
        (("--last", "1s", "--trigger", "latency > soon"), "a unit"),
        (("--last", "1s", "--trigger", "latency > 1s and device == nothing"), "no such disk"),
        (("--last", "1s", "-e", "pread64", "--trigger", "latency > 1s"), "not recorded"),
        (("--last", "1s", "-e", "block", "--trigger", "latency > 1s and operation == sync"), "none of the calls"),
        (("--last", "0s"), "would end at once"),
    ],
)
def test_options_that_do_not_fit_are_refused(tmp_path: Path, options: tuple[str, ...], answer: str) -> None:
    """Before anything is recorded; nothing is left."""
    done = CliRunner().invoke(app, ["system-wide", "-o", str(tmp_path / "T"), *options])
    assert isinstance(done.exception, UsageError), done.output
    assert answer in f"{done.exception}\n{done.exception.remedy}"
    assert not (tmp_path / "T").exists()


def test_windows_survive_the_next_recording(tmp_path: Path) -> None:
    """--force replaces the trace of the former recording, but not the windows that it wrote."""
    trace = tmp_path / "T"
    with recording(trace, "-e", "pread64", "--last", "1s") as process:
        path = dump(trace)
        process.send_signal(signal.SIGTERM)
        finish(process, trace)
    with recording(trace, "-e", "pread64", "--last", "1s", "--duration", "1s") as process:
        finish(process, trace)
    window(path)
    window(trace)
