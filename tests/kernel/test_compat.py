"""32 bit programs, whose calls have numbers and arguments of their own, are recorded like 64 bit ones."""

from __future__ import annotations

import platform
import re
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from workloads.as_strace import OWN_NAMES
from workloads.build import build
from workloads.disks import loop_device
from workloads.record import Recorded, record
from workloads.served import lo2io

from lo2io.trace.reader import open_trace

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager
    from pathlib import Path

pytestmark = [
    pytest.mark.requires("root", "tracefs", "events", "gcc", "strace"),
    pytest.mark.skipif(platform.machine() != "x86_64", reason="programs of 32 bits are x86-64's here"),
]

COMPAT = ("gcc", "-m32", "-nostdlib", "-static", "-fno-stack-protector", "-fno-pie", "-no-pie", "-fcf-protection=none")
EVENTS = ("-e", "syscalls,block,io_uring,aio,mmap,advice,metadata-stat,socket,execve")
UNRECORDED = {"fork", "waitpid", "exit"}
GIB4 = 4 << 30
BLOCK = 4096
ARGUMENTS = [
    # call, descriptor, offset, requested bytes
    ("open", 3, None, None),
    ("write", 3, 0, 100),
    ("pwrite64", 3, GIB4 + 4096, 200),
    ("pread64", 3, GIB4 + 4096 - 50, 300),
    ("writev", 3, 100, 12),
    ("pwritev", 3, GIB4 + 8192, 12),
    ("lseek", 3, GIB4 + 5, None),
    ("write", 3, GIB4 + 5, 10),
    ("preadv2", 3, GIB4 + 15, 12),
    ("lseek", 3, 50, None),
    ("lseek", 3, -20, None),
    ("readv", 3, 30, 7),
    ("fallocate", 3, GIB4 + 12288, BLOCK),
    ("fadvise64", 3, GIB4 + 4096, 8192),
    ("readahead", 3, GIB4 + 4096, BLOCK),
    ("sync_file_range", 3, GIB4 + 4096, 16384),
    ("ftruncate", 3, None, GIB4 + 77),
    ("fsync", 3, None, None),
    ("close", 3, None, None),
    ("openat2", 3, None, None),
    ("mmap", 3, GIB4, BLOCK),
    ("mmap", 3, 8192, BLOCK),
    ("fcntl", 3, None, None),
    ("dup2", 3, None, None),
    ("stat", -1, None, None),
    ("socketpair", -1, None, None),
    ("sendto", 4, None, 33),
    ("recvfrom", 5, None, BLOCK),
    ("open", 6, None, None),
    ("pwrite64", 6, BLOCK, BLOCK),
    ("io_setup", -1, None, None),
    ("io_submit", -1, None, None),
    ("io_getevents", -1, None, None),
    ("io_destroy", -1, None, None),
    ("io_uring_setup", 7, None, None),
    ("mmap", 7, 0, BLOCK),
    ("mmap", 7, 0x10000000, BLOCK),
    ("io_uring_enter", 7, None, None),
]
_LINE = re.compile(
    r"(?P<tid>\d+) +(?:<\.\.\. (?P<resumed>\w+) resumed>|(?P<call>\w+)\()(?P<args>.*)\) += (?P<result>-?\w+)"
)


@pytest.fixture(scope="module")
def program() -> Path:
    """The workload; skips where the kernel runs no programs of 32 bits."""
    built = build("compat", COMPAT)
    try:
        subprocess.run([built, "/", "/"], check=False)
    except OSError as error:
        pytest.skip(f"this kernel runs no programs of 32 bits: {error}")
    return built


@pytest.fixture(scope="module")
def seen(
    program: Path, tmp_path_factory: pytest.TempPathFactory, awake: Callable[[], AbstractContextManager[None]]
) -> Iterator[tuple[Recorded, str]]:
    """One run, seen by lo2io and by strace; the program's second argument is a disk of its own."""
    folder = tmp_path_factory.mktemp("compat")
    with loop_device(folder / "image") as device, awake():
        strace = ["strace", "-f", "-qq", "-o", folder / "log", program, "file", device]
        recorded = record(folder / "T", strace, *EVENTS, cwd=folder)
        yield recorded, (folder / "log").read_text()


def rows_of(recorded: Recorded) -> list[dict[str, object]]:
    """The calls of the program and its child, which is the process that writes 44 bytes."""
    comms = {row["task"]: row["comm"] for row in recorded.trace.threads.to_pylist()}
    rows = [row for row in recorded.operations() if comms[row["task"]].startswith("compat-")]
    begin = next(index for index, row in enumerate(rows) if row["call"] == "open")
    return [row for row in rows[begin:] if row["call"] not in {"clone", "exit"}]


def test_same_calls_as_strace(seen: tuple[Recorded, str]) -> None:
    """Each has the name that a 64 bit program would use, and the same result."""
    expected = []
    for line in seen[1].splitlines():
        match = _LINE.match(line)
        name = match and (match["call"] or match["resumed"])
        if not match or not name or name in {*UNRECORDED, "execve"}:
            continue
        where = re.search(r"\[(\d+)\]", match["args"])  # the result of an _llseek
        result = int(where[1]) if where and name == "_llseek" else int(match["result"], 0)
        expected.append((int(match["tid"]), OWN_NAMES.get(name, name), result))
    assert len(expected) == len(ARGUMENTS) + 1  # the child's write
    assert sorted((row["tid"], row["call"], row["result"]) for row in rows_of(seen[0])) == sorted(expected)


def test_arguments_are_put_together(seen: tuple[Recorded, str]) -> None:
    """Offsets in two halves, in pages, or kept by the kernel; arguments in memory; vectors of 32 bits; signs."""
    rows = [row for row in rows_of(seen[0]) if row["bytes_request"] != 44]
    shown = [(row["call"], row["fd"], row["offset_bytes"], row["bytes_request"]) for row in rows]
    assert shown == ARGUMENTS


def test_files_and_children_are_known(seen: tuple[Recorded, str]) -> None:
    """Names from the kernel, also through a duplicate in a child; a path that is no descriptor's."""
    rows = rows_of(seen[0])
    (written,) = [row for row in rows if row["bytes_request"] == 44]
    assert str(written["path"]).endswith("/file")
    threads = {row["task"]: row for row in seen[0].trace.threads.to_pylist()}
    parents = {threads[row["task"]]["pid"] for row in rows if row["call"] == "pwrite64"}
    assert {threads[written["task"]]["ppid"]} == parents
    paths = seen[0].trace.table("paths").to_pylist()
    (stat,) = [row["id"] for row in rows if row["call"] == "stat"]
    assert [row["path"] for row in paths if row["operation"] == stat] == ["file"]


def test_what_they_send_to_a_disk_is_theirs(seen: tuple[Recorded, str]) -> None:
    """Block requests, an iocb, a request of a ring, each with its owner."""
    trace = seen[0].trace
    owner = {row["task"] for row in rows_of(seen[0]) if row["call"] == "io_uring_enter"}
    disks = {row["device"] for row in trace.table("devices").to_pylist() if row["name"].startswith("loop")}
    sent = [row for row in trace.requests.to_pylist() if row["device"] in disks and row["bytes_request"] == BLOCK]
    assert {row["task"] for row in sent} == owner
    assert sorted(row["sector"] * 512 for row in sent) == [4096, 8192, 12288]
    (iocb,) = trace.table("iocbs").to_pylist()
    assert (iocb["offset_bytes"], iocb["bytes_request"]) == (8192, BLOCK)
    requests = sorted(trace.table("ring_requests").to_pylist(), key=lambda row: row["offset_bytes"])
    found = [(request["opcode"], request["offset_bytes"], request["bytes_result"]) for request in requests]
    assert found == [("WRITE", 8192, BLOCK), ("WRITE", 12288, BLOCK)]  # one by libaio, one by io_uring
    assert {request["task"] for request in requests} == owner


UNSEEN = [("--backend", "perf"), ("--opener", "python-perf"), ("--scope", "inherit"), ("--hook", "single")]


@pytest.mark.parametrize("options", UNSEEN)
def test_the_proof_says_if_their_calls_are_not_seen(program: Path, tmp_path: Path, options: tuple[str, ...]) -> None:
    """The tracepoints of single calls leave theirs out: such a recording is not complete, and says why."""
    command = ["sh", "-c", f"{program} / /; true"]
    words = ["record", "-o", tmp_path / "T", "-e", "syscalls", *options, "--", *command]
    done = lo2io(*words)
    assert done.returncode == 0, done.stderr
    assert done.stderr.splitlines()[-1].startswith("incomplete: ")
    assert "32-bit programs without their calls: 1" in done.stderr
    assert "out of sight" not in done.stderr


@pytest.fixture
def running(program: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A program of 32 bits that has made a call."""
    with subprocess.Popen([build("pause32", COMPAT)], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.read(1) == b"."
        yield process
        process.kill()


@pytest.mark.parametrize("options", [("--backend", "perf"), ("--hook", "single"), ("--hook", "raw")], ids=" ".join)
@pytest.mark.parametrize("whole", [False, True], ids=["process", "machine"])
def test_the_proof_knows_programs_that_ran_before(
    running: subprocess.Popen[bytes], tmp_path: Path, options: tuple[str, ...], whole: bool
) -> None:
    """Their exec was before the recording. The kernel tells their word size, at the raw pair also their calls."""
    what = ["system-wide", "-a"] if whole else ["record", "--pid", running.pid]
    done = lo2io(*what, "--duration", "0.3", "-o", tmp_path / "T", "-e", "syscalls", *options)
    assert done.returncode == 0, done.stderr
    verdict = done.stderr.splitlines()[-1]
    trace = open_trace(tmp_path / "T")
    written = [row for row in trace.operations.to_pylist() if row["pid"] == running.pid and row["call"] == "write"]
    if "raw" in options:
        assert (len(written) > 5, trace.completeness.compat) == (True, 0), done.stderr
        assert whole or verdict.startswith(("the recorded processes: complete", "complete: "))
    else:
        assert (written, trace.completeness.compat) == ([], 1), done.stderr
        assert verdict.startswith("incomplete: ")
        assert "32-bit programs without their calls: 1" in verdict


X32 = """
import ctypes
for _ in range(3):
    ctypes.CDLL(None).syscall(ctypes.c_long(0x40000000 | 39))  # getpid(2)
"""


def test_the_proof_says_if_calls_cannot_be_named(tmp_path: Path) -> None:
    """An x32 call, which the kernel shows to the programs even if it refuses it."""
    done = lo2io("record", "-o", tmp_path / "T", "-e", "syscalls", "--hook", "raw", "--", sys.executable, "-c", X32)
    assert done.returncode == 0, done.stderr
    assert done.stderr.splitlines()[-1].startswith("incomplete: ")
    assert "calls of x32 or 32-bit programs not recorded: 3" in done.stderr
    assert open_trace(tmp_path / "T").completeness.foreign == 3
