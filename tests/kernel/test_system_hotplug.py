"""A CPU that goes offline and comes back while the machine is recorded: no event on it is lost."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from workloads.machine import (
    Work,
    Worker,
    complete,
    do_all,
    done_by,
    expected,
    finish,
    hear_notice,
    recording,
    workers,
)
from workloads.record import only_ends_missing, record

from lo2io.kernel import sysfs
from lo2io.trace.reader import open_trace

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from workloads.record import Recorded

pytestmark = [pytest.mark.alone, pytest.mark.requires("root", "tracefs", "events")]


@pytest.fixture
def switch() -> Iterator[Path]:
    """Switches the last CPU, which is online again afterwards."""
    cpu = sysfs.read_online_cpus()[-1]
    found = Path(f"/sys/devices/system/cpu/cpu{cpu}/online")
    if cpu == 0 or not found.exists():
        pytest.skip("no CPU that can be switched off")
    try:
        found.write_text("1", encoding="ascii")
        yield found
    except PermissionError as error:
        pytest.skip(f"{found}: {error.strerror}")
    finally:
        with contextlib.suppress(OSError):
            found.write_text("1", encoding="ascii")


NETLINK_KOBJECT_UEVENT = 15
"""include/uapi/linux/netlink.h"""
WAYS = {
    "programs": ("--backend", "bpf"),
    "native": ("--backend", "perf", "--opener", "native"),
    "python-perf": ("--opener", "python-perf"),
    "flight": ("--last", "60s"),
    "flight of samples": ("--last", "60s", "--backend", "perf"),
}


@pytest.fixture(params=["programs", "native", pytest.param("python-perf", marks=pytest.mark.requires("perf"))])
def way(request: pytest.FixtureRequest) -> tuple[str, ...]:
    """Options for the source of calls."""
    return WAYS[request.param]


def rings_hold(recorded: Recorded, worker: Worker, cpu: int) -> bool:
    """True if all calls of a worker that stays on one CPU are there, by that CPU's buffer."""
    rows = [row for row in recorded.calls("pwrite64") if row["path"] == str(worker.work.file)]
    return done_by(recorded, worker) == expected(worker.work) and {row["cpu"] for row in rows} == {cpu}


def record_around(folder: Path, cpu: int, happens: Callable[[subprocess.Popen[str]], None], *options: str) -> Recorded:
    """A recording of work on one CPU, before and after something happens to it. All of the work is recorded."""
    before = Work(folder / "before", (100, 23), (50, 101), cpu=cpu)
    after = Work(folder / "after", (100, 31), (50, 13), cpu=cpu)
    found: list[Worker] = []

    def attempt() -> Recorded:
        with workers(before) as first, recording(folder / "T", *options) as process:
            do_all(first)
            happens(process)
            hear_notice(process, f"CPU {cpu} came online: it is recorded from now on")
            with workers(after) as second:
                do_all(second)
                process.terminate()
                recorded = finish(process, folder / "T")
                found[:] = [*first, *second]
        return recorded

    recorded = complete(attempt)
    assert [rings_hold(recorded, worker, cpu) for worker in found] == [True, True]
    assert recorded.trace.completeness.absent_cpus == 1, recorded.stderr  # until its events were opened
    return recorded


@pytest.mark.usefixtures("busy_cpus")
@pytest.mark.parametrize("way", [*WAYS.values()], ids=[*WAYS])
def test_a_cpu_goes_and_comes_back(tmp_path: Path, switch: Path, way: tuple[str, ...]) -> None:
    """Calls before and after are all there, the counts prove it, and both changes are reported."""
    cpu = int(switch.parent.name.removeprefix("cpu"))

    def goes_and_comes(process: subprocess.Popen[str]) -> None:
        switch.write_text("0", encoding="ascii")
        hear_notice(process, f"CPU {cpu} went offline")
        switch.write_text("1", encoding="ascii")

    recorded = record_around(tmp_path, cpu, goes_and_comes, "-e", "syscalls", *way)
    assert [event.cpu for event in recorded.trace.completeness.events].count(cpu) == len(
        {event.event for event in recorded.trace.completeness.events}
    )


@pytest.mark.usefixtures("busy_cpus")
def test_a_cpu_that_was_not_there(tmp_path: Path, switch: Path, way: tuple[str, ...]) -> None:
    """It gets a buffer of its own when it is seen; programs count as lost what they saw there before."""
    cpu = int(switch.parent.name.removeprefix("cpu"))
    found: list[Worker] = []

    def attempt() -> Recorded:
        switch.write_text("0", encoding="ascii")
        with recording(tmp_path / "T", "-e", "syscalls", *way) as process:
            switch.write_text("1", encoding="ascii")
            hear_notice(process, f"CPU {cpu} came online: it is recorded from now on")
            with workers(Work(tmp_path / "new", (100, 31), (50, 13), cpu=cpu)) as (worker,):
                do_all([worker])
                process.terminate()
                recorded = finish(process, tmp_path / "T")
                found[:] = [worker]
        return recorded

    for _ in range(4):  # samples may vanish, as in complete(), and other threads change their CPU amid a call
        recorded = attempt()
        proof = recorded.trace.completeness
        counted = {row.event: row.count or 0 for row in proof.events if row.cpu == cpu}
        enters, exits = (counted[f"syscalls:sys_{moment}_pwrite64"] for moment in ("enter", "exit"))
        if not proof.vanished and enters == exits:
            break
    assert (proof.vanished, proof.late, proof.absent_cpus) == (0, 0, 1), recorded.stderr
    assert enters == exits >= 31
    assert not any(event.vanished or event.surplus for event in proof.events)
    assert "CPUs not recorded for a time: 1" in recorded.stderr
    assert rings_hold(recorded, found[0], cpu)
    gaps = recorded.trace.losses.to_pylist()
    events = sum(event.lost for event in proof.events)
    assert sum(row["lost"] for row in gaps if row["cpu"] == cpu) == events
    rows, tasks = recorded.trace.metadata["totals"]["nr_lost_rows"], recorded.trace.metadata["tasks_lost"]
    assert bool(rows) == any(row["lost"] == 0 for row in gaps)
    assert proof.lost == events + rows + tasks + recorded.trace.metadata["facts_lost"]
    begun = min(row["begin_time_ns"] for row in recorded.calls("pwrite64") if row["pid"] == found[0].pid)
    assert all(row["end_time_ns"] < begun for row in gaps)


def test_a_cpu_that_is_back_before_anybody_looked(tmp_path: Path, switch: Path) -> None:
    """Its events are dead even then, and are replaced."""
    cpu = int(switch.parent.name.removeprefix("cpu"))
    with recording(tmp_path / "T", "-e", "syscalls") as process:
        switch.write_text("0", encoding="ascii")
        switch.write_text("1", encoding="ascii")
        hear_notice(process, f"CPU {cpu} came online: it is recorded from now on")
        with workers(Work(tmp_path / "a", (100, 31), cpu=cpu)) as (worker,):
            do_all([worker])
            process.terminate()
            recorded = finish(process, tmp_path / "T")
            assert done_by(recorded, worker) == expected(worker.work)


def hears_the_kernel(process: subprocess.Popen[str]) -> bool:
    """True if the process has opened its socket for the kernel's messages, some time after it began to record."""
    sockets = map(str.split, Path("/proc/net/netlink").read_text(encoding="ascii").splitlines())
    return any(words[1:3] == [str(NETLINK_KOBJECT_UEVENT), str(process.pid)] for words in sockets)


@pytest.mark.usefixtures("busy_cpus")
def test_a_cpu_whose_going_had_no_message(tmp_path: Path, way: tuple[str, ...]) -> None:
    """As after a sleep of the machine. The former events may be alive, so they are off before others replace them.

    Whoever writes to ``uevent`` makes the kernel send the message of a return. The CPU was there all the time.
    """
    cpu = sysfs.read_online_cpus()[-1]

    def returns(process: subprocess.Popen[str]) -> None:
        while not hears_the_kernel(process):
            time.sleep(0.01)
        Path(f"/sys/devices/system/cpu/cpu{cpu}/uevent").write_text("online", encoding="ascii")

    recorded = record_around(tmp_path, cpu, returns, "-e", "syscalls,block", *way)
    proof = recorded.trace.completeness
    assert not proof.whole, recorded.stderr
    assert only_ends_missing(proof), recorded.stderr


COMES_MEANWHILE = """
import sys
from lo2io.kernel import sysfs
from lo2io.__main__ import main

every = sysfs.read_online_cpus()
answers = [every[:1]]
sysfs.read_online_cpus = lambda *_: answers.pop() if answers else every
sys.argv[0] = "lo2io"
main()
"""


@pytest.mark.parametrize("way", [WAYS["programs"], WAYS["native"]], ids=["programs", "native"])
def test_a_cpu_that_comes_while_lo2io_starts(tmp_path: Path, way: tuple[str, ...]) -> None:
    """The spool, the events and the description have the CPUs of one look. The next look finds the others."""
    if len(sysfs.read_online_cpus()) == 1:
        pytest.skip("the machine has one CPU")
    recorder = [sys.executable, "-c", COMES_MEANWHILE, "record", "-o", tmp_path / "T", *way]
    done = subprocess.run([*recorder, "--", "taskset", "-c", "0", "true"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "CPU 1 came online: it is recorded from now on" in done.stderr
    assert {event.cpu for event in open_trace(tmp_path / "T").completeness.events} == {*sysfs.read_online_cpus()}


COMES_AT_THE_END = """
import sys
from lo2io.capture.session import Session
from lo2io.kernel import sysfs
from lo2io.__main__ import main

every, stop = sysfs.read_online_cpus(), Session.stop

def stop_and_come(self):
    sysfs.read_online_cpus = lambda *_: (*every, 99)
    return stop(self)

Session.stop = stop_and_come
sys.argv[0] = "lo2io"
main()
"""


def test_a_cpu_that_comes_while_lo2io_ends(tmp_path: Path) -> None:
    """The recording looks again when it is over: the CPU may have come before."""
    recorder = [sys.executable, "-c", COMES_AT_THE_END, "record", "-o", tmp_path / "T", "--", "true"]
    done = subprocess.run(recorder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert open_trace(tmp_path / "T").completeness.absent_cpus == 1


PINNED = """
import os, sys, time
cpu, switch = int(sys.argv[1]), sys.argv[2]

def write(count):
    os.sched_setaffinity(0, {cpu})
    with open(os.devnull, "wb", buffering=0) as file:
        for _ in range(count):
            file.write(bytes(7))

def turn(text):
    with open(switch, "w") as file:
        file.write(text)

write(10)
turn("0")
turn("1")
time.sleep(1.5)  # lo2io looks each second
write(20)
"""


def test_events_of_tasks_go_on_where_a_cpu_comes_back(tmp_path: Path, switch: Path) -> None:
    """They are the task's, not the CPU's. So nothing is missing, and nobody says so."""
    cpu = int(switch.parent.name.removeprefix("cpu"))
    command = [sys.executable, "-c", PINNED, str(cpu), switch]
    recorded = record(tmp_path / "T", command, "-e", "syscalls", "--scope", "inherit")
    written = [row for row in recorded.calls("write") if row["bytes_result"] == 7]
    assert [row["cpu"] for row in written] == [cpu] * 30, recorded.stderr
    assert recorded.trace.completeness.absent_cpus == 0
    assert f"CPU {cpu} went offline" in recorded.stderr
    assert "is not recorded" not in recorded.stderr
