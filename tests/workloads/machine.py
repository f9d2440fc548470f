"""Several known workloads at once, inside of ``lo2io system-wide`` as a user runs it.

A worker opens its files before the recording begins, reports that, waits for a word, makes an exact number of calls and
requests, and ends.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lo2io.kernel.cgroups import find_cgroup
from lo2io.trace.reader import open_trace
from workloads.record import LO2IO, Recorded, has_begun, only_ends_missing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

_WORKER = r"""
import ctypes, json, mmap, os, sys, threading
spec = json.loads(sys.argv[1])
if spec["cgroup"]:
    with open(spec["cgroup"] + "/cgroup.procs", "w") as procs:
        procs.write(str(os.getpid()))
if spec["cpu"] is not None:
    os.sched_setaffinity(0, {spec["cpu"]})
file = os.open(spec["file"], os.O_RDWR | os.O_CREAT)
device = os.open(spec["device"], os.O_RDONLY | os.O_DIRECT) if spec["device"] else -1
aligned = mmap.mmap(-1, 1 << 20)
go, done = threading.Event(), threading.Event()

def read_in_thread():
    go.wait()
    for _ in range(spec["thread_reads"]):
        os.pread(file, 7, 0)
    done.set()

threading.Thread(target=read_in_thread, daemon=True).start()
print("ready", flush=True)
sys.stdin.readline()
if spec["name"]:
    ctypes.CDLL(None).prctl(15, spec["name"].encode())
size, count = spec["writes"]
for index in range(count):
    os.pwrite(file, b"x" * size, index * size)
size, count = spec["reads"]
for index in range(count):
    os.pread(file, size, 0)
go.set()
done.wait()
size, count = spec["direct"]
for index in range(count):
    os.preadv(device, [memoryview(aligned)[:size]], index * size)
print("done", flush=True)
sys.stdin.readline()
"""


@dataclass(frozen=True)
class Work:
    """The work of one process: (size, count) of writes and reads of its file, and of direct reads of a device."""

    file: Path
    writes: tuple[int, int] = (1, 0)
    reads: tuple[int, int] = (1, 0)
    thread_reads: int = 0
    """Reads of 7 bytes by another thread, born before the recording."""
    device: Path | None = None
    direct: tuple[int, int] = (512, 0)
    cgroup: Path | None = None
    cpu: int | None = None
    name: str = ""
    """Given to the process when the work begins."""


@dataclass
class Worker:
    """A process that is ready to work."""

    work: Work
    process: subprocess.Popen[str] = field(repr=False)

    @property
    def pid(self) -> int:
        """The worker's pid."""
        return self.process.pid

    def say(self, word: str) -> None:
        """Let the worker go on."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{word}\n")
        self.process.stdin.flush()

    def hear(self, word: str) -> None:
        """Wait for the worker."""
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == f"{word}\n"


@contextlib.contextmanager
def workers(*works: Work) -> Iterator[list[Worker]]:
    """Processes that have opened their files."""
    with contextlib.ExitStack() as stack:
        found = []
        for work in works:
            spec = {name: str(value) if isinstance(value, Path) else value for name, value in asdict(work).items()}
            command = [sys.executable, "-S", "-c", _WORKER, json.dumps(spec)]
            process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            found.append(Worker(work, stack.enter_context(process)))
            stack.callback(process.kill)
        for worker in found:
            worker.hear("ready")
        yield found


def do_all(ready: Sequence[Worker]) -> None:
    """Let all work at once; returns when all are done."""
    for worker in ready:
        worker.say("go")
    for worker in ready:
        worker.hear("done")


@contextlib.contextmanager
def cgroups(*names: str) -> Iterator[list[Path]]:
    """New cgroups of perf's hierarchy, below the one of this process."""
    root = find_cgroup("/").folder / f"lo2io-test-{os.getpid()}"
    folders = [root / name for name in names]
    try:
        for folder in folders:
            folder.mkdir(parents=True)
        yield folders
    finally:
        for folder, _, _ in os.walk(root, topdown=False):
            remove_cgroup(Path(folder))


def remove_cgroup(folder: Path) -> None:
    """Remove the cgroup; killed processes leave it a moment later."""
    end = time.monotonic() + 10
    while folder.exists():
        try:
            folder.rmdir()
        except OSError:
            assert time.monotonic() < end, folder
            time.sleep(0.01)


@contextlib.contextmanager
def recording(trace: Path, *options: str, command: Sequence[str] = ()) -> Iterator[subprocess.Popen[str]]:
    """``lo2io system-wide``, once it samples; the caller ends it."""
    arguments = [str(LO2IO), "system-wide", "-a", "--force", "-o", str(trace), *options]
    with subprocess.Popen(
        [*arguments, *(("--", *command) if command else ())],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            end = time.monotonic() + 60
            while not has_begun(trace / "spool") and process.poll() is None:
                assert time.monotonic() < end
                time.sleep(0.005)
            yield process
        finally:
            if process.poll() is None:
                process.kill()


def hear_notice(process: subprocess.Popen[str], text: str) -> None:
    """Wait for a message of lo2io with this text."""
    assert process.stderr is not None
    assert any(text in line for line in process.stderr), f"never said: {text}"


def finish(process: subprocess.Popen[str], trace: Path, *, code: int = 0) -> Recorded:
    """Its trace, after its end with this exit code."""
    stdout, stderr = process.communicate(timeout=120)
    assert process.returncode == code, stderr
    return Recorded(open_trace(trace), process.returncode, stdout, stderr)


def complete(attempt: Callable[[], Recorded], attempts: int = 4) -> Recorded:
    """A recording that lacks only ends of block requests, as the kernel's counts prove.

    It is repeated if other samples vanished: those of process 1, on some virtual machines.
    """
    while True:
        recorded = attempt()
        proof = recorded.trace.completeness
        attempts -= 1
        if proof.vanished and attempts and not only_ends_missing(proof):
            continue
        assert only_ends_missing(proof), recorded.stderr
        assert (proof.lost - proof.vanished, proof.late) == (0, 0), recorded.stderr
        return recorded


def done_by(recorded: Recorded, worker: Worker, *, named: bool = True) -> dict[str, tuple[int, int]]:
    """Reads and writes of a worker's file and device by call: number and bytes moved; or of files without a name."""
    wanted = {str(worker.work.file), str(worker.work.device)} if named else {None}
    found: dict[str, tuple[int, int]] = {}
    for row in recorded.calls("pread64", "pwrite64", "preadv2"):
        if row["pid"] == worker.pid and row["path"] in wanted:
            count, size = found.get(row["call"], (0, 0))
            found[row["call"]] = (count + 1, size + row["bytes_result"])
    return found


def expected(work: Work) -> dict[str, tuple[int, int]]:
    """The same numbers, from the known work."""
    size, count = work.reads
    rows = {
        "pwrite64": (work.writes[1], work.writes[0] * work.writes[1]),
        "pread64": (count + work.thread_reads, size * count + 7 * work.thread_reads),
        "preadv2": (work.direct[1], work.direct[0] * work.direct[1]),
    }
    return {call: row for call, row in rows.items() if row[0]}


def threads_of(recorded: Recorded, worker: Worker) -> list[dict[str, Any]]:
    """Rows of the worker's threads."""
    return [row for row in recorded.trace.threads.to_pylist() if row["pid"] == worker.pid]
