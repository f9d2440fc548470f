"""Recording with programs in the kernel: all that they counted is in the spool, and only what was requested."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from build.rawspool import EVENTS, NR_CALLS, ids_of, iter_samples, work
from reference.kernel_records import frames
from workloads.machine import cgroups
from workloads.record import has_begun
from workloads.served import lo2io

from lo2io.capture.recording import RecordOptions, record
from lo2io.model import CallFilter
from lo2io.native.records import KINDS, unpack
from lo2io.spool.format import META_NAME, parse_meta
from lo2io.spool.reader import SpoolReader
from lo2io.trace.reader import open_trace

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = [pytest.mark.alone, pytest.mark.requires("root", "tracefs", "events", "syscalls:sys_enter_pwrite64")]

LO2IO = Path(sys.executable).parent / "lo2io"
NEIGHBOUR = """
import os
fd = os.open("/dev/null", os.O_WRONLY)
print("ready", flush=True)
while True:
    os.pwrite(fd, b"x", 0)
"""
FAMILY = """
import os, threading
fd = os.open("/dev/null", os.O_WRONLY)
def work(count):
    for _ in range(count):
        os.pwrite(fd, b"x", 0)
threads = [threading.Thread(target=work, args=(50,)) for _ in range(4)]
for thread in threads: thread.start()
for thread in threads: thread.join()
for _ in range(3):
    if not os.fork():
        work(100)
        if not os.fork():
            work(10)
            os._exit(0)
        os.wait()
        os._exit(0)
for _ in range(3): os.wait()
"""
"""4 threads, 3 children and 3 grandchildren: 4 * 50 + 3 * 100 + 3 * 10 calls."""


@pytest.fixture
def options(tmp_path: Path) -> RecordOptions:
    """Two events, recorded by programs."""
    return RecordOptions(spool=tmp_path / "spool", events=EVENTS, backend="bpf", command=work())


@pytest.fixture
def neighbour() -> Iterator[int]:
    """A process that makes such calls the whole time."""
    process = subprocess.Popen([sys.executable, "-S", "-c", NEIGHBOUR], stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        yield process.pid
    finally:
        process.kill()
        process.communicate()


def iter_calls(paths: tuple[Path, ...]) -> Iterator[tuple[str, int, int, int]]:
    """Kind, event, thread and event of the exit of each record of a CPU; 0 where it has none."""
    content = b"".join(path.read_bytes() for path in paths)
    end = 0
    for end, body in frames(content):  # noqa: B007 - looked at after the loop
        assert body, "discarded"
        head = unpack("head", body)
        kind = KINDS[head.type]
        yield kind, head.event, head.tid, unpack(kind, body).exit_event if kind == "call" else 0
    assert end == len(content)


def seen_on(paths: tuple[Path, ...]) -> collections.Counter[tuple[int, int]]:
    """(event, thread) → how often, as the kernel counts: a whole call is an entry and an exit."""
    seen: collections.Counter[tuple[int, int]] = collections.Counter()
    for kind, event, tid, exit_event in iter_calls(paths):
        if kind in {"call", "enter", "exit"}:
            seen[event, tid] += 1
        if kind == "call":
            seen[exit_event, tid] += 1
    return seen


def seen_in(spool: SpoolReader) -> collections.Counter[tuple[int, int]]:
    """The same counts on all CPUs; compares them with the kernel's."""
    total: collections.Counter[tuple[int, int]] = collections.Counter()
    ids = ids_of(spool)
    for index, (paths, _) in enumerate(spool.kernel_streams()):
        seen = seen_on(paths)
        for event, counts in zip(ids, spool.meta.counts, strict=True):
            here = sum(number for (each, _), number in seen.items() if each == event)
            assert counts.lost is not None
            assert counts.counts[index] - counts.lost[index] == here, (counts.name, index)
        total.update(seen)
    return total


def by_thread(seen: collections.Counter[tuple[int, int]], event: int) -> dict[int, int]:
    """How often an event was seen of each thread."""
    return {tid: number for (each, tid), number in seen.items() if each == event}


def test_every_counted_call_is_in_the_spool(options: RecordOptions, neighbour: int) -> None:
    """Per event and CPU, count minus lost is the number in the records; only the command is recorded."""
    result = record(options)
    spool = SpoolReader(options.spool)
    assert spool.meta == result.meta
    meta = spool.meta
    assert (meta.complete, meta.backend, meta.kernel_facts, meta.clock) == (True, "bpf", True, "monotonic")
    assert (meta.notices, meta.missed_runs, meta.facts_lost) == ((), 0, 0)
    seen = seen_in(spool)
    (root,) = meta.roots
    assert [by_thread(seen, event) for event in ids_of(spool)] == [{root: NR_CALLS}] * 2
    assert not [sample for paths, _ in spool.streams() for sample in iter_samples(paths)]
    assert neighbour != root


def test_children_and_threads_are_followed_in_the_kernel(options: RecordOptions, neighbour: int) -> None:
    """From their first call on, over generations; only the program itself knows how much each did."""
    record(dataclasses.replace(options, command=work(FAMILY)))
    spool = SpoolReader(options.spool)
    per_thread = [sorted(by_thread(seen_in(spool), event).values()) for event in ids_of(spool)]
    assert per_thread == [[10] * 3 + [50] * 4 + [100] * 3] * 2
    assert neighbour not in by_thread(seen_in(spool), ids_of(spool)[0])


ATTACHED = FAMILY.replace("def work(count):\n", "def work(count):\n    begin.wait()\n").replace(
    "for thread in threads: thread.join()",
    "print('ready', flush=True)\nsys.stdin.read()\nbegin.set()\nfor thread in threads: thread.join()",
)
"""The same, but the threads wait for the end of standard input."""


def test_attached_processes_with_all_their_threads(tmp_path: Path, neighbour: int) -> None:
    """Threads that run already, and children from then on; other processes are not recorded."""
    code = f"import sys, threading\nbegin = threading.Event()\n{ATTACHED}"
    with subprocess.Popen([*work(code)], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as target:
        assert target.stdin is not None
        assert target.stdout is not None
        assert target.stdout.readline() == b"ready\n"
        command = [str(LO2IO), "record", "-q", "--backend", "bpf", "-e", "pwrite64", "-p", str(target.pid)]
        with subprocess.Popen([*command, "--no-convert", "-o", str(tmp_path / "T")]) as recorder:
            while not has_begun(tmp_path / "T/spool"):
                time.sleep(0.005)
            time.sleep(0.05)  # between the description and the waiting
            target.stdin.close()
            assert (target.wait(), recorder.wait()) == (0, 0)
    spool = SpoolReader(tmp_path / "T/spool")
    seen = by_thread(seen_in(spool), ids_of(spool)[0])
    assert sorted(seen.values()) == [10] * 3 + [50] * 4 + [100] * 3
    assert neighbour not in seen


@pytest.mark.usefixtures("busy_cpus")
def test_facts_beside_perf_samples(options: RecordOptions, tmp_path: Path) -> None:
    """Calls are samples here, and programs write facts alone: a file with each call, for closes are not recorded."""
    target = tmp_path / "the file"
    code = f"import os\nfd = os.open({str(target)!r}, os.O_CREAT | os.O_RDWR)\n" + "os.pwrite(fd, b'x', 0)\n" * 300
    record(dataclasses.replace(options, backend="perf", names="kernel", command=work(code)))
    spool = SpoolReader(options.spool)
    assert (spool.meta.backend, spool.meta.kernel_facts) == ("perf", True)
    ids = ids_of(spool)
    (root,) = spool.meta.roots
    samples = [event for paths, _ in spool.streams() for _, event, tid in iter_samples(paths) if tid == root]
    assert collections.Counter(samples) == dict.fromkeys(ids, 300)
    kinds = collections.Counter(kind for paths, _ in spool.kernel_streams() for kind, *_ in iter_calls(paths))
    assert kinds.keys() <= {"file", "value", "usage", "exec"}
    assert kinds["file"] == 300
    content = b"".join(path.read_bytes() for paths, _ in spool.kernel_streams() for path in paths)
    assert b"the file\0" in content


@pytest.mark.parametrize(
    ("left_out", "kept"),
    [
        (CallFilter(min_bytes=2, droppable=frozenset({"pwrite64"})), 100),
        (CallFilter(min_latency_ns=3_600_000_000_000, droppable=frozenset({"pwrite64"})), 0),
        (CallFilter(min_bytes=2, droppable=frozenset({"fsync"})), NR_CALLS + 100),
    ],
)
def test_what_programs_leave_out_is_counted(options: RecordOptions, left_out: CallFilter, kept: int) -> None:
    """Such calls are neither written nor counted, for counts are of calls to be written; a call that slept stays."""
    code = "".join(work()[-1:]) + "for index in range(100):\n    os.pwrite(fd, b'xx', index)\n"
    result = record(dataclasses.replace(options, left_out=left_out, command=work(code)))
    spool = SpoolReader(options.spool)
    seen = [sum(by_thread(seen_in(spool), event).values()) for event in ids_of(spool)]
    preempted = seen[0] - kept
    assert seen == [kept + preempted] * 2
    assert 0 <= preempted < 20
    assert result.meta.nr_left_out == NR_CALLS + 100 - kept - preempted


def test_a_cgroup_of_version_2(tmp_path: Path) -> None:
    """Only its processes make records."""
    with cgroups("lo2io-bpf") as (folder,):
        if not (folder.parent / "cgroup.controllers").exists():
            pytest.skip("no cgroups of version 2 here")
        script = f"echo $$ > {folder}/cgroup.procs; exec {sys.executable} -S -c '{NEIGHBOUR}'"
        inside = subprocess.Popen(["sh", "-c", script], stdout=subprocess.PIPE)
        outside = subprocess.Popen([*work(NEIGHBOUR)], stdout=subprocess.PIPE)
        try:
            for process in (inside, outside):
                assert process.stdout is not None
                assert process.stdout.readline() == b"ready\n"
            command = ["system-wide", "-q", "-e", "pwrite64", "--cgroup", str(folder), "--duration", "200ms"]
            trace = tmp_path / "T"
            run = [*command, "--backend", "bpf", "--no-convert", "-o", str(trace)]
            lo2io(*run, check=True)
        finally:
            for process in (inside, outside):
                process.kill()
                process.communicate()
        spool = SpoolReader(trace / "spool")
        assert spool.meta.backend == "bpf"
        assert by_thread(seen_in(spool), ids_of(spool)[0]).keys() == {inside.pid}


def test_the_spool_of_a_recorder_that_was_killed(
    tmp_path: Path, until: Callable[[Callable[[], object]], object]
) -> None:
    """All that was drained before is readable, and marked as incomplete; the command goes on without programs."""
    done = tmp_path / "done"
    code = f"{''.join(work()[-1:])}\nimport time\nopen({str(done)!r}, 'w').close()\ntime.sleep(60)"
    run = [str(LO2IO), "record", "-q", "--backend", "bpf", "--no-convert", "-o", str(tmp_path / "T"), "--", *work(code)]
    recorder = subprocess.Popen(run)
    spool = tmp_path / "T/spool"

    def drained() -> bool:
        return done.exists() and sum(path.stat().st_size for path in spool.glob("*.calls")) > 60 * NR_CALLS

    until(drained)
    meta = parse_meta((spool / META_NAME).read_bytes())
    recorder.kill()
    assert recorder.wait() == -signal.SIGKILL
    os.kill(meta.roots[0], 0)  # it is alive
    os.kill(meta.roots[0], signal.SIGKILL)
    assert (meta.complete, meta.backend) == (False, "bpf")
    converted = lo2io("convert", str(spool), "-o", str(tmp_path / "U"), check=True)
    assert converted.stderr.startswith("not proven: ")
    calls = open_trace(tmp_path / "U").operations.column("call").to_pylist()
    assert calls.count("pwrite64") == NR_CALLS


@contextlib.contextmanager
def small_disk(size: str) -> Iterator[Path]:
    """A file system of its own that fills up soon."""
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "none", folder], check=True)
        try:
            yield Path(folder)
        finally:
            subprocess.run(["umount", folder], check=True)


def test_a_full_disk_ends_the_recording_and_not_the_command(options: RecordOptions, tmp_path: Path) -> None:
    """The part on the disk is whole and has its owner; later events were counted, and are known to be missing."""
    with small_disk("3m") as disk:
        count = 40_000
        code = f"import os\nfd = os.open('/dev/null', os.O_WRONLY)\nfor _ in range({count}): os.pwrite(fd, b'x', 0)\n"
        result = record(dataclasses.replace(options, spool=disk / "spool", ring_bytes=1 << 16, command=work(code)))
        assert result.exit_code == 0
        assert any(text.startswith("recording ended early") for text in result.notices)
        spool = SpoolReader(disk / "spool")
        assert spool.meta.complete
        (enter, _) = ids_of(spool)
        seen = sum(by_thread(seen_on(paths), enter).get(spool.meta.roots[0], 0) for paths, _ in spool.kernel_streams())
        assert 0 < seen < count
        lo2io("convert", str(disk / "spool"), "-o", str(tmp_path / "T"), check=True)
    assert open_trace(tmp_path / "T").operations.column("call").to_pylist().count("pwrite64") == seen
