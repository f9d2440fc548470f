"""The counts of the programs in the kernel, written and lost, are exact in every case."""

from __future__ import annotations

import contextlib
import platform
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from reference.kernel_records import iter_records
from workloads import refused
from workloads.record import Recorded, record
from workloads.served import lo2io
from workloads.sidebyside import ended, gate, go_on, overflow, read_all, recorders

from lo2io.kernel import sysfs
from lo2io.native.records import FRAME_BYTES, record_bytes, unpack
from lo2io.trace.reader import open_trace

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = [pytest.mark.alone, pytest.mark.requires("root", "tracefs", "events")]

FAST = ("--backend", "bpf")
NR_CALLS = 4999
"""Of pwrite64, which no program makes at its start."""
PYTHON = (sys.executable, "-S", "-c")
LOAD = f"""
import os, threading
fd = os.open("/dev/null", os.O_WRONLY)
def write():
    for index in range({NR_CALLS}):
        os.pwrite(fd, b"x", 0)
first = os.fork()
second = os.fork()
threads = [threading.Thread(target=write) for _ in range(3)]
for each in threads: each.start()
for each in threads: each.join()
if second:
    os.waitpid(second, 0)
    if first: os.waitpid(first, 0)
"""
"""Four processes, for the second fork is made by parent and child; three threads each."""
NR_LOAD = 4 * 3 * NR_CALLS
CALL_BYTES = FRAME_BYTES + record_bytes("call") + 4 * 8
"""A CALL of a pwrite64 in a ring: the kernel's header, the record, four arguments."""
PWRITE = ("syscalls:sys_enter_pwrite64", "syscalls:sys_exit_pwrite64")


def sums(recorded: Recorded, event: str) -> tuple[int, int, int]:
    """An event's count, loss and samples on all CPUs."""
    rows = [row for row in recorded.trace.completeness.events if row.event == event]
    assert all(row.count is not None for row in rows)
    return sum(row.count or 0 for row in rows), sum(row.lost for row in rows), sum(row.samples for row in rows)


def assert_every_entry_is_a_row(recorded: Recorded) -> None:
    """Each written entry of a call is a row; each exit completes a row, or is an orphan.

    Exceptions: calls from which children return without an entry, and execs, which end in another thread's name; and
    the recorder's own calls, of which a trace of the whole machine has only the number.
    """
    rows = recorded.trace.operations.to_pylist()
    found, completed = (
        Counter(row["call"] for row in rows),
        Counter(row["call"] for row in rows if row["status"] == "completed"),
    )
    orphans, own = 0, recorded.trace.metadata["totals"]["nr_own_calls"]
    for event in recorded.trace.metadata["events"]:
        call = event.removeprefix("syscalls:sys_enter_")
        if call == event or call in {"clone", "clone3", "fork", "vfork", "execve", "execveat"}:
            continue
        abi = {"newfstatat": "fstatat"}.get(call, call)
        own -= sums(recorded, event)[2] - found[abi]
        assert sums(recorded, event)[2] >= found[abi], call
        exits = sums(recorded, f"syscalls:sys_exit_{call}")[2]
        assert exits >= completed[abi], call
        orphans += exits - completed[abi]
    assert orphans <= recorded.trace.completeness.orphan + recorded.trace.metadata["totals"]["nr_own_calls"]
    assert own >= 0


@pytest.fixture(params=["raw", "single"])
def fast(request: pytest.FixtureRequest) -> tuple[str, ...]:
    """Programs that see calls where all calls pass, and each at its own tracepoints."""
    return (*FAST, "--hook", request.param)


def test_under_load(fast: tuple[str, ...], tmp_path: Path) -> None:
    """Twelve threads of four processes at full speed: as many entries and exits as calls, counted and written."""
    recorded = record(tmp_path / "T", [*PYTHON, LOAD], *fast, "-e", "syscalls", attempts=1)
    assert [sums(recorded, event) for event in PWRITE] == [(NR_LOAD, 0, NR_LOAD)] * 2
    assert len(recorded.calls("pwrite64")) == NR_LOAD


def test_entries_are_rows(fast: tuple[str, ...], tmp_path: Path) -> None:
    """Of the whole machine: every entry is a row, and so is every exit of a call that began in the recording."""
    with (
        gate([*PYTHON, LOAD]) as pid,
        recorders(tmp_path, {"T": fast}, "system-wide", "-a", "-e", "syscalls") as running,
    ):
        go_on(pid)
        ended(pid)
        running["T"].send_signal(signal.SIGTERM)
        recorded = read_all(tmp_path, running)["T"]
    assert recorded.trace.completeness.proven, recorded.stderr
    assert recorded.trace.completeness.lost == 0
    assert_every_entry_is_a_row(recorded)
    mine = {row["tid"] for row in recorded.trace.threads.to_pylist()}
    assert sum(row["tid"] in mine for row in recorded.calls("pwrite64")) >= NR_LOAD


def test_losses_are_counted(fast: tuple[str, ...], tmp_path: Path) -> None:
    """A recorder stands still while its buffers overflow: each call is counted, and either written or lost."""
    ring = 64 << 10
    with (
        gate([*PYTHON, LOAD]) as pid,
        recorders(tmp_path, {"T": fast}, "record", "-p", str(pid), "-e", "syscalls", "--ring", str(ring)) as running,
    ):
        overflow(running["T"], pid)
        recorded = read_all(tmp_path, running)["T"]
    proof = recorded.trace.completeness
    assert proof.proven, recorded.stderr
    assert (proof.vanished, proof.late) == (0, 0)
    for event in PWRITE:
        count, lost, samples = sums(recorded, event)
        assert count == NR_LOAD
        assert count - lost == samples
        assert samples <= ring // CALL_BYTES * len(sysfs.read_online_cpus()) + 3 * 12
    enters, exits = (sums(recorded, event)[2] for event in PWRITE)
    rows = recorded.calls("pwrite64")
    assert len(rows) == enters
    assert sum(row["status"] == "completed" for row in rows) <= exits
    assert "incomplete" in recorded.stderr
    assert_gaps_tell(recorded)
    for row in recorded.trace.losses.to_pylist():
        assert recorded.trace.metadata["start_ns"] <= row["begin_time_ns"] <= row["end_time_ns"]


NR_REQUESTS = 20_000


@pytest.mark.requires("fio")
def test_losses_of_events_are_counted(tmp_path: Path) -> None:
    """The same for the requests of a ring: each event is counted, and either written or lost, in the events' buffer."""
    ring = 64 << 10
    (tmp_path / "data").write_bytes(bytes(1 << 20))
    job = f"--filename={tmp_path}/data --size=1m --io_size=1g --number_ios={NR_REQUESTS} --iodepth=32 --time_based=0"
    fio = [
        "fio",
        "--name=job",
        "--ioengine=io_uring",
        "--rw=randread",
        "--bs=4k",
        *job.split(),
        f"--output={tmp_path}/out",
    ]
    with (
        gate(fio) as pid,
        recorders(tmp_path, {"T": FAST}, "record", "-p", str(pid), "-e", "io_uring", "--ring", str(ring)) as running,
    ):
        overflow(running["T"], pid)
        recorded = read_all(tmp_path, running)["T"]
    proof = recorded.trace.completeness
    # Whatever else forks on this machine can fill the small buffer of tasks, too. Then no choice of tasks is proven.
    assert proof.proven or "records of tasks" in recorded.stderr, recorded.stderr
    assert (proof.vanished, proof.late) == (0, 0)
    for event in ("submit_req", "complete"):
        count, lost, samples = sums(recorded, f"io_uring:io_uring_{event}")
        assert count >= NR_REQUESTS
        assert count - lost == samples
        assert lost > 0
    assert_gaps_tell(recorded)


def assert_gaps_tell(recorded: Recorded) -> None:
    """Each lost event lies in a gap. Other lost records may do, too: their numbers are in the metadata alone."""
    told = sum(row["lost"] for row in recorded.trace.losses.to_pylist())
    metadata = recorded.trace.metadata
    of_events = recorded.trace.completeness.lost - metadata["totals"]["nr_lost_rows"] - metadata["facts_lost"]
    assert told <= of_events <= told + metadata["tasks_lost"], recorded.stderr


BLOCKED = """
import os, threading, time
pipe, _ = os.pipe()
for _ in range(5):
    threading.Thread(target=os.read, args=(pipe, 1), daemon=True).start()
random = os.open("/dev/urandom", os.O_RDONLY)
threading.Thread(target=os.read, args=(random, 1 << 30), daemon=True).start()
time.sleep(60)
"""


def test_calls_under_way_at_the_end(tmp_path: Path, until: Callable[[Callable[[], object]], object]) -> None:
    """Five threads that sleep in a read, and one that works in it: six calls in flight, with their arguments."""
    with (
        gate([*PYTHON, BLOCKED], ends=False) as pid,
        recorders(tmp_path, {"T": FAST}, "record", "-p", str(pid), "-e", "syscalls") as running,
    ):
        go_on(pid)
        until(lambda: reading(pid) == 6)
        running["T"].send_signal(signal.SIGINT)
        recorded = read_all(tmp_path, running)["T"]
    assert recorded.trace.completeness.proven, recorded.stderr
    assert recorded.trace.completeness.in_flight == 6
    rows = [row for row in recorded.operations() if row["status"] == "in flight"]
    assert sorted((row["call"], row["bytes_request"]) for row in rows) == [("read", 1)] * 5 + [("read", 1 << 30)]
    assert len({row["tid"] for row in rows}) == 6
    enters, exits = (sums(recorded, f"syscalls:sys_{word}_read")[2] for word in ("enter", "exit"))
    assert enters == exits + 6
    assert_every_entry_is_a_row(recorded)


def test_neighbours_are_not_recorded(tmp_path: Path) -> None:
    """Process mode beside other busy processes: their calls are neither counted nor written nor lost."""
    with busy_neighbours():
        recorded = record(tmp_path / "T", [*PYTHON, LOAD], *FAST, "-e", "syscalls", "--keep-spool", attempts=1)
    assert [sums(recorded, event) for event in PWRITE] == [(NR_LOAD, 0, NR_LOAD)] * 2
    tids = {row["tid"] for row in recorded.trace.threads.to_pylist()}
    written = Counter(tid for path in sorted((tmp_path / "T/spool").glob("cpu-*.calls")) for tid in threads_in(path))
    assert sum(written.values()) >= NR_LOAD
    assert set(written) <= tids


NEIGHBOUR = """
import os
fd = os.open("/dev/null", os.O_WRONLY)
print("busy", flush=True)
while True: os.pwrite(fd, b"x", 0)
"""


@contextlib.contextmanager
def busy_neighbours() -> Iterator[None]:
    """Processes that write all the time, one for each CPU."""
    with contextlib.ExitStack() as stack:
        for _ in sysfs.read_online_cpus():
            process = subprocess.Popen([*PYTHON, NEIGHBOUR], stdout=subprocess.PIPE, text=True)
            stack.enter_context(process)
            stack.callback(process.kill)
            assert process.stdout is not None
            assert process.stdout.readline() == "busy\n"
        yield


def threads_in(path: Path) -> Iterator[int]:
    """The thread of each record in a file that the programs wrote."""
    return (unpack("head", record).tid for record in iter_records(path.read_bytes()))


def reading(pid: int) -> int:
    """How many threads of a process are inside of a read (proc(5): 0 is its number on x86-64)."""
    found = 0
    for task in Path(f"/proc/{pid}/task").iterdir():
        words = (task / "syscall").read_text(encoding="ascii").split()
        found += words[0] == "0" or (words[0] == "running" and busy_in_read(task))
    return found


def busy_in_read(task: Path) -> bool:
    """True if a running thread works in a read; /proc does not show the call of a running thread."""
    before = int((task / "stat").read_text(encoding="ascii").rpartition(")")[2].split()[12])
    time.sleep(0.05)
    return int((task / "stat").read_text(encoding="ascii").rpartition(")")[2].split()[12]) > before


TRUNCATES = """
import contextlib, os, sys
file = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)
with contextlib.suppress(PermissionError):
    os.ftruncate(file, 5)
"""


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the filter knows the numbers of x86-64 alone")
@pytest.mark.parametrize("options", [FAST, ("--backend", "perf")], ids=["programs", "perf"])
def test_a_call_that_seccomp_refuses_is_an_orphan(tmp_path: Path, options: tuple[str, ...]) -> None:
    """The kernel passes no entry of it, so nobody knows the call. completeness.md says so."""
    python = [sys.executable, "-S"]
    refusing = [*python, refused.__file__, "ftruncate", "EPERM", *python, "-c", TRUNCATES, tmp_path / "file"]
    done = lo2io("record", "-o", tmp_path / "T", *options, "-e", "ftruncate", "--", *refusing)
    assert done.returncode == 0, done.stderr
    recorded = Recorded(open_trace(tmp_path / "T"), 0, done.stdout, done.stderr)
    assert not recorded.calls("ftruncate")
    assert [sums(recorded, f"syscalls:sys_{end}_ftruncate") for end in ("enter", "exit")] == [(0, 0, 0), (1, 0, 1)]
    assert recorded.trace.completeness.orphan == 1
