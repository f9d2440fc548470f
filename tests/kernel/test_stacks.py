"""Where slow calls came from, against a program whose functions are known, and against gdb."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
from collections import Counter, defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import otf2
import pytest
from workloads.record import LO2IO, Recorded, has_begun, record, verified
from workloads.sidebyside import gate, overflow, read_all, recorders

from lo2io.trace.reader import open_trace

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = [pytest.mark.requires("root", "tracefs", "events"), pytest.mark.usefixtures("busy_cpus")]

PROGRAM = Path(__file__).parent.parent / "workloads" / "stacks.c"
READ = "read_answer"
BUILDS = {
    "without frame pointers": ("-O2", "-fomit-frame-pointer"),
    "with frame pointers": ("-O2", "-fno-omit-frame-pointer"),
}
GDB = (
    "handle SIGUSR1 nostop noprint",
    "set backtrace past-main on",
    "set backtrace past-entry on",
    "catch syscall fsync",
    "run",
    "bt",
)
OF_READS = {
    (READ, "ask", "run", "main", "_start"): 3,
    (READ, "on_signal", "be_interrupted", "run", "main", "_start"): 1,
    (READ, "ask_in_thread"): 1,
    (READ, "made_code", "call_from_made", "run", "main", "_start"): 1,
}
"""The program's functions in each read of an answer, and how often, but for the read below a large frame."""
FRAME_POINTERS, TABLES = "frame pointers", "unwind tables"


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder on a disk."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as name:
        yield Path(name)


def build(folder: Path, how: str) -> Path:
    """The program, built in one way."""
    command = ["gcc", *BUILDS[how], "-pthread", "-Wl,--build-id", "-o", folder / "stacks", PROGRAM]
    subprocess.run(command, check=True)
    return folder / "stacks"


def stacks_of(run: Recorded) -> dict[int, list[dict[str, Any]]]:
    """Stack → its frames, the innermost first."""
    found: defaultdict[int, list[dict[str, Any]]] = defaultdict(list)
    for row in run.trace.table("stacks").to_pylist():
        assert row["frame"] == len(found[row["stack"]])
        found[row["stack"]].append(row)
    return found


def calls_with_stacks(run: Recorded) -> Iterator[tuple[dict[str, Any], list[dict[str, Any]] | None]]:
    """Each call, and the frames of its stack; None: it has none."""
    of_call = {row["operation"]: row["stack"] for row in run.trace.table("call_stacks").to_pylist()}
    frames = stacks_of(run)
    for call in run.operations():
        yield call, frames[of_call[call["id"]]] if call["id"] in of_call else None


def own(frames: list[dict[str, Any]], program: Path) -> tuple[str, ...]:
    """The functions of the program itself, also those that it made."""
    return tuple(frame["function"] for frame in frames if frame["file"] in {str(program), None, ""})


def reads(run: Recorded, program: Path) -> Iterator[tuple[tuple[str, ...], list[dict[str, Any]]]]:
    """The functions and the frames of each read of an answer. Removes the map of the program's made code."""
    for call, frames in calls_with_stacks(run):
        functions = own(frames or [], program)
        if frames and call["call"] == "read" and functions[:1] == (READ,):
            Path(f"/tmp/perf-{call['pid']}.map").unlink(missing_ok=True)
            yield functions, frames


@pytest.mark.parametrize("how", BUILDS)
def test_calls_name_the_functions_that_led_to_them(folder: Path, how: str) -> None:
    """However the program is built, each read of an answer has exactly these functions, whether it waited or not."""
    program = build(folder, how)
    run = record(folder / "T", [program, folder / "out"], "--stacks", "0s")
    found = dict(reads(run, program))
    counts = Counter(functions for functions, _ in reads(run, program))
    (below_much,) = [functions for functions in found if functions[1] == "ask_below_much"]
    assert {functions: counts[functions] for functions in found if functions != below_much} == OF_READS
    for functions in OF_READS:
        assert {frame["end"] for frame in found[functions]} == {"whole"}
        pointed = [frame["function"] for frame in found[functions] if frame["way"] == FRAME_POINTERS]
        assert pointed == (["call_from_made"] if "made_code" in functions else [])
    if how == "without frame pointers":
        assert below_much == (READ, "ask_below_much")
        assert {frame["end"] for frame in found[below_much]} == {"cut"}
    else:  # frame pointers tell the rest
        assert below_much[:4] == (READ, "ask_below_much", "run", "main")
        assert [frame["way"] for frame in found[below_much] if frame["function"] == "main"] == [FRAME_POINTERS]
    verified(folder / "T")
    of_call = {row["operation"]: row["stack"] for row in run.trace.table("call_stacks").to_pylist()}
    words = {
        number: ";".join((*(("[cut]",) if frames[0]["end"] == "cut" else ()), *map(in_words, reversed(frames))))
        for number, frames in stacks_of(run).items()
    }
    assert stacks_in_archive(folder / "T") == {
        number: words[stack] for number, stack in of_call.items() if stack is not None
    }


def in_words(frame: dict[str, Any]) -> str:
    """A frame's function, or its place."""
    return frame["function"] or f"{Path(frame['file'] or '?').name}+{frame['offset']:#x}"


def stacks_in_archive(trace: Path) -> dict[int, str]:
    """Call → the stack that its leave tells."""
    found = {}
    with otf2.reader.open(str(trace / "traces.otf2")) as reader:
        for _, event in reader.events:
            told = {attribute.name: value for attribute, value in (event.attributes or {}).items()}
            if "Call stack" in told:
                found[told["Call id"]] = told["Call stack"]
    return found


def test_the_code_of_processes_that_ran_before_is_known(
    folder: Path, until: Callable[[Callable[[], object]], object]
) -> None:
    """What they had mapped when the recording began, ``/proc`` tells."""
    program = build(folder, "without frame pointers")
    with subprocess.Popen([program, folder / "out", "stop"]) as process:
        try:
            os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOWAIT)
            command = [LO2IO, "record", "--pid", str(process.pid), "-o", folder / "T", "--stacks", "0s", "-q"]
            with subprocess.Popen(command) as recorder:
                until(lambda: has_begun(folder / "T/spool") or recorder.poll() is not None)
                process.send_signal(signal.SIGCONT)
                assert recorder.wait(60) == 0
        finally:
            process.kill()
    run = Recorded(open_trace(folder / "T"), 0, "", "")
    assert set(OF_READS) <= {functions for functions, _ in reads(run, program)}


@pytest.mark.requires("gdb")
def test_a_stack_is_that_of_gdb(folder: Path) -> None:
    """gdb, stopped in the same call, tells as many frames, and the same functions of the program.

    Calls that last as long as the option says have a stack, and no others. gdb may have debugging information, by
    which the C library's functions have other names.
    """
    program = build(folder, "without frame pointers")
    run = record(folder / "T", [program, folder / "out"], "--stacks", "2us")
    for call, frames in calls_with_stacks(run):
        assert (call["end_time_ns"] - call["begin_time_ns"] >= 2_000) == (frames is not None)
    found = [frames for call, frames in calls_with_stacks(run) if frames and call["call"] == "fsync"]
    words = [word for command in GDB for word in ("-ex", command)]
    gdb = ["gdb", "-batch", "-nx", *words, "--args", program, folder / "out"]
    told = subprocess.run(gdb, capture_output=True, text=True, check=True).stdout
    functions = re.findall(r"^#\d+ +(?:0x[0-9a-f]+ in )?(\S+) \(", told, re.MULTILINE)
    assert functions[1:4] == ["flush_log", "commit", "run"]
    assert functions[-1] == "_start"
    assert list(reads(run, program))
    (frames,) = found
    assert [frame["function"] for frame in frames[1:5] + frames[-1:]] == functions[1:5] + functions[-1:]
    assert len(frames) == len(functions)


def test_one_in_so_many_calls_has_a_stack(folder: Path) -> None:
    """Each fourth call on each CPU has a stack, beginning with the first one."""
    command = ["dd", "if=/dev/zero", f"of={folder / 'out'}", "bs=4096", "count=400"]
    run = record(folder / "T", command, "--stacks", "1/4")
    calls = list(calls_with_stacks(run))
    with_stack = sum(frames is not None for _, frames in calls)
    assert len(calls) > 800
    assert 0 <= 4 * with_stack - len(calls) <= 3 * len(run.trace.metadata["cpus"])
    verified(folder / "T")


SLOW_READS = """
import os, time
zero = os.open("/dev/zero", os.O_RDONLY)
for _ in range(200):
    os.read(zero, 77)
    time.sleep(0.002)
"""


def test_copies_go_on_after_the_buffer_has_been_read(folder: Path) -> None:
    """The buffer has room for some 30 of them at a time. So most of 200 reads find it less than half full."""
    run = record(folder / "T", [sys.executable, "-c", SLOW_READS], "--stacks", "0s", "--ring", "256KiB")
    unwound = [
        any(frame["way"] == TABLES for frame in frames or ())
        for call, frames in calls_with_stacks(run)
        if call["call"] == "read" and call["bytes_request"] == 77
    ]
    assert len(unwound) == 200
    assert sum(unwound) > 150, run.trace.metadata["notices"]


MANY_READS = """
import os
zero = os.open("/dev/zero", os.O_RDONLY)
for _ in range(3000):
    os.read(zero, 77)
"""


def test_a_copy_takes_no_room_of_records_that_were_not_read(folder: Path) -> None:
    """A recorder stands still while its buffers overflow: each call is counted, and either written or lost."""
    options = ("-e", "syscalls", "--stacks", "0s", "--ring", "128KiB")
    with (
        gate([sys.executable, "-S", "-c", MANY_READS]) as pid,
        recorders(folder, {"T": options}, "record", "-p", str(pid)) as running,
    ):
        overflow(running["T"], pid)
        run = read_all(folder, running)["T"]
    proof = run.trace.completeness
    assert proof.proven, run.stderr
    assert (proof.vanished, proof.late, run.trace.metadata["totals"]["nr_undecoded"]) == (0, 0, 0)
    assert proof.lost > 3000
    assert all(event.count == event.samples + event.lost for event in proof.events)
    reads = [row for row in run.calls("read") if row["bytes_request"] == 77]
    assert {row["bytes_result"] for row in reads if row["status"] == "completed"} == {77}
    assert "stacks of slow calls were not copied" in run.stderr
    verified(folder / "T")
