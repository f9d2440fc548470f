"""Recording on the running kernel: all that the kernel counted is in the spool, with each opener."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import os
import signal
import struct
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from build.rawspool import (
    EVENTS,
    NR_CALLS,
    RECORD_COMM,
    RECORD_FORK,
    RECORD_SAMPLE,
    fd_facts,
    ids_of,
    iter_records,
    iter_samples,
    task_facts,
    work,
)
from workloads.sidebyside import read_all, recorders

from lo2io.capture import recording, session, threads
from lo2io.capture.recording import RecordOptions, record
from lo2io.errors import CaptureError, UsageError
from lo2io.kernel import abi, procfs
from lo2io.model.notices import Notice, NoticeKind
from lo2io.spool.facts import TASK_FROM_EXEC, TASK_SELECT
from lo2io.spool.reader import SpoolReader

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = pytest.mark.requires("root", "tracefs", "events", "syscalls:sys_enter_pwrite64")

MISC_COMM_EXEC = 1 << 13


@pytest.mark.usefixtures("busy_cpus")
def test_every_counted_sample_is_in_the_spool(options: RecordOptions) -> None:
    """Per event and CPU, count minus lost is the number of samples; the command has as many as it made calls."""
    result = record(options)
    spool = SpoolReader(options.spool)
    assert spool.meta == result.meta
    assert spool.meta.complete
    assert spool.meta.opener == options.opener
    assert (spool.meta.start_ns < (spool.meta.stop_ns or 0)) is True
    ids = ids_of(spool)
    own: collections.Counter[int] = collections.Counter()
    for index, (paths, _) in enumerate(spool.streams()):
        samples = list(iter_samples(paths))
        seen = collections.Counter(event for _, event, _ in samples)
        for event, counts in zip(ids, spool.meta.counts, strict=True):
            lost = counts.lost[index] if counts.lost else 0
            assert counts.counts[index] - lost == seen[event], (counts.name, index)
        assert all(spool.meta.start_ns <= time_ns <= (spool.meta.stop_ns or 0) for time_ns, _, _ in samples)
        own.update(event for _, event, tid in samples if tid == spool.meta.roots[0])
    assert own == {ids[0]: NR_CALLS, ids[1]: NR_CALLS}


def test_formats_are_the_kernels_own_text(options: RecordOptions) -> None:
    """Converting reads these texts instead of the kernel's files; they are equal byte by byte."""
    record(options)
    meta = SpoolReader(options.spool).meta
    root = Path("/sys/kernel/tracing/events")
    for name, text in zip(meta.events, meta.formats, strict=True):
        assert text == (root / name.replace(":", "/") / "format").read_text()
    assert "commit" in meta.header_page


def test_the_command_is_announced(options: RecordOptions) -> None:
    """A TASK fact selects it from its exec on, its COMM carries the exec bit, and its child is in a FORK record."""
    code = "import os\npid = os.fork()\nif pid: os.waitpid(pid, 0)"
    record(dataclasses.replace(options, command=work(code)))
    spool = SpoolReader(options.spool)
    (root,) = spool.meta.roots
    assert task_facts(spool) == [(root, root, os.getpid(), TASK_SELECT | TASK_FROM_EXEC)]
    records = [each for paths, _ in spool.streams() for each in iter_records(paths)]
    execs = [body for kind, misc, body in records if kind == RECORD_COMM and misc & MISC_COMM_EXEC]
    assert [struct.unpack_from("<I", body)[0] for body in execs].count(root) == 1
    forks = [struct.unpack_from("<IIII", body) for kind, _, body in records if kind == RECORD_FORK]
    assert len([pid for pid, parent, _, _ in forks if parent == root and pid != root]) == 1


def test_samples_lie_between_the_programs_own_readings_of_the_clock(options: RecordOptions, tmp_path: Path) -> None:
    """The clocks' comparison carries a sample's time to CLOCK_MONOTONIC: between readings right before and after it."""
    target = tmp_path / "times"
    code = f"""
import os, time
out = open({str(target)!r}, "w")
fd = os.open("/dev/null", os.O_WRONLY)
for _ in range(100):
    before = time.monotonic_ns()
    os.pwrite(fd, b"x", 0)
    print(before, time.monotonic_ns(), file=out)
"""
    record(dataclasses.replace(options, command=work(code)))
    spool = SpoolReader(options.spool)
    sync = spool.meta.syncs[0]
    assert len(spool.meta.syncs) == 2
    assert 0 < sync.error_ns < 1_000_000
    enter = ids_of(spool)[0]
    times = sorted(
        time_ns - sync.time_ns + sync.monotonic_ns
        for paths, _ in spool.streams()
        for time_ns, event, tid in iter_samples(paths)
        if event == enter and tid == spool.meta.roots[0]
    )
    readings = [tuple(map(int, line.split())) for line in target.read_text().splitlines()]
    assert len(times) == len(readings) == 100
    margin = sync.error_ns + 1000  # by so much the clocks may drift in between
    assert all(
        before - margin <= time_ns <= after + margin for time_ns, (before, after) in zip(times, readings, strict=True)
    )


@pytest.mark.skipif(len(os.sched_getaffinity(0)) == 1, reason="there is no other CPU to go to")
@pytest.mark.parametrize(("backend", "names"), [("perf", "proc"), ("bpf", "kernel")])
def test_the_draining_thread_leaves_the_cpu_whose_ring_it_has_to_empty(
    tmp_path: Path, backend: str, names: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A real-time thread that begins on the command's CPU would run there for ever instead of the command."""
    allowed = os.sched_getaffinity(0)
    here = max(allowed)
    seen: list[tuple[set[int], int]] = []

    def begin_here() -> bool:
        is_real_time = threads.raise_priority()
        os.sched_setaffinity(0, {here})
        os.sched_setaffinity(0, allowed)
        return is_real_time

    def leave(cpus: set[int]) -> None:
        threads.leave_cpus(cpus)
        seen.append((cpus, abi.libc.sched_getcpu()))

    monkeypatch.setattr(session, "raise_priority", begin_here)
    monkeypatch.setattr(session, "leave_cpus", leave)
    code = f"""
import os
os.sched_setaffinity(0, {{{here}}})
fd = os.open("/dev/null", os.O_WRONLY)
for _ in range(20_000):
    os.pwrite(fd, b"x", 0)
"""
    record(
        RecordOptions(
            spool=tmp_path / "spool",
            events=EVENTS,
            backend=backend,
            names=names,
            opener="native",
            ring_bytes=256 << 10,
            command=(sys.executable, "-c", code),
        )
    )
    places = {place for cpus, place in seen if cpus == {here}}
    assert places, "no ring was half full"
    assert here not in places


def test_the_draining_thread_alone_is_real_time(options: RecordOptions, monkeypatch: pytest.MonkeyPatch) -> None:
    """The thread that writes would stop the recorded program for as long as it writes. It only goes before others."""
    seen: dict[str, tuple[int, int]] = {}

    def noting(begin: Callable[[], object]) -> Callable[[], object]:
        def begin_and_note() -> object:
            result = begin()
            seen[threading.current_thread().name] = (
                os.sched_getscheduler(0),
                os.getpriority(os.PRIO_PROCESS, threading.get_native_id()),
            )
            return result

        return begin_and_note

    monkeypatch.setattr(session, "raise_priority", noting(threads.raise_priority))
    monkeypatch.setattr(recording, "go_first", noting(threads.go_first))
    record(options)
    assert seen.pop("lo2io-write") == (os.SCHED_OTHER, -20)
    ((policy, _),) = seen.values()
    assert policy == os.SCHED_FIFO


def test_no_thread_keeps_pythons_lock_for_long(tmp_path: Path) -> None:
    """The draining thread waits while another thread has the lock and waits for a CPU, or loads a library.

    Each thread of a recorder goes before others. Libraries for converting are loaded when the recording is over.
    """
    with recorders(tmp_path, {"T": ()}, "system-wide", "-a", "-e", "block") as running:
        time.sleep(0.5)
        recorder = Path(f"/proc/{running['T'].pid}")
        libraries = (recorder / "maps").read_text(encoding="utf-8")
        stats = [(task / "stat").read_text(encoding="utf-8") for task in recorder.glob("task/*")]
        running["T"].send_signal(signal.SIGTERM)
        read_all(tmp_path, running)
    assert "_lib" in libraries
    assert "arrow" not in libraries
    assert "numpy" not in libraries
    fields = [stat.rpartition(")")[2].split() for stat in stats]
    # proc(5): field 41 is the policy, field 19 the nice value. The first here is field 3.
    found = [(int(each[38]), int(each[16])) for each in fields]
    assert os.SCHED_FIFO in dict(found)
    assert all(policy == os.SCHED_FIFO or nice == -20 for policy, nice in found), found


def test_open_files_of_the_command_are_sighted(options: RecordOptions, tmp_path: Path) -> None:
    """A file that it holds open is seen with path, device, inode, mode, flags and position, within its own life."""
    name = tmp_path / "held open \udcff"
    code = f"""
import os, sys
fd = os.open({os.fsencode(name)!r}, os.O_RDWR | os.O_CREAT | os.O_APPEND)
os.pwrite(fd, b"x" * 10, 0)
os.lseek(fd, 7, os.SEEK_SET)
print(fd, flush=True)
sys.stdin.read()
"""
    seen, answer = os.pipe()
    question, release = os.pipe()
    saved = os.dup(0), os.dup(1)
    os.dup2(question, 0)
    os.dup2(answer, 1)
    for fd in (question, answer):
        os.close(fd)

    def let_go_later() -> None:
        fd = int(os.read(seen, 10))
        found.append(fd)
        threading.Event().wait(0.5)  # several scans
        os.close(release)

    found: list[int] = []
    thread = threading.Thread(target=let_go_later)
    thread.start()
    try:
        os.set_inheritable(release, False)
        record(dataclasses.replace(options, command=work(code)))
    finally:
        thread.join()
        os.dup2(saved[0], 0)
        os.dup2(saved[1], 1)
        for fd in (*saved, seen):
            os.close(fd)
    spool = SpoolReader(options.spool)
    status = name.stat()
    sighted = [fields for fields, path in fd_facts(spool) if path == os.fsencode(name)]
    assert len(sighted) >= 2
    for end, begin, device, inode, position, pid, fd, flags, mode, mount, _ in sighted:
        assert begin <= end
        assert (device, inode, pid, fd, mode) == (
            status.st_dev, status.st_ino, spool.meta.roots[0], found[0], status.st_mode,
        )  # fmt: skip
        assert flags & (os.O_ACCMODE | os.O_APPEND | os.O_CLOEXEC) == os.O_RDWR | os.O_APPEND | os.O_CLOEXEC
        assert position in {0, 7}
        assert mount in {each.id for each in spool.meta.mounts if each.device == device}
    assert sighted[-1][4] == 7


@contextlib.contextmanager
def tiny_disk(size: str) -> Iterator[Path]:
    """A file system of its own that fills up soon."""
    with tempfile.TemporaryDirectory() as name:
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", name], check=True)
        try:
            yield Path(name)
        finally:
            subprocess.run(["umount", "--lazy", name], check=True)


@pytest.mark.usefixtures("busy_cpus")
def test_a_full_disk_ends_the_recording_and_not_the_command(options: RecordOptions) -> None:
    """The part on disk is whole, the description complete, the rest known to be missing.

    The exit code is the command's.
    """
    code = """
import os, sys
fd = os.open("/dev/null", os.O_WRONLY)
for index in range(60_000): os.pwrite(fd, b"x", index)
sys.exit(5)
"""
    told: list[Notice] = []
    with tiny_disk("3m") as disk:
        chosen = dataclasses.replace(options, spool=disk / "spool", ring_bytes=1 << 20, command=work(code))
        result = record(chosen, told.append)
        spool = SpoolReader(chosen.spool)
        assert result.exit_code == spool.meta.exit_code == 5
        assert spool.meta.complete
        assert [each for each in told if "No space left" in each.text and each.kind is NoticeKind.ENDED_EARLY]
        assert spool.meta.notices == tuple(notice.text for notice in told) == result.notices
        samples = 0
        for (path,), _ in spool.streams():
            assert path.stat().st_size % (512 << 10) == 0 or path.stat().st_size < 3 << 20
            content = path.read_bytes()
            samples += count_whole_samples(content)
        counted = sum(sum(counts.counts) for counts in spool.meta.counts)
        assert 0 < samples < counted
        assert counted < 120_000  # sampling ended when the disk was full, not with the command


def count_whole_samples(content: bytes) -> int:
    """Samples up to the last whole record."""
    position = samples = 0
    while position + 8 <= len(content):
        kind, _, size = struct.unpack_from("<IHH", content, position)
        assert size >= 8
        samples += kind == RECORD_SAMPLE and position + size <= len(content)
        position += size
    return samples


def test_missing_optional_events_are_left_out_with_a_notice(options: RecordOptions) -> None:
    """An event that the user named is an error instead."""
    absent = "syscalls:sys_enter_lo2io"
    chosen = dataclasses.replace(options, events=(absent, *EVENTS))
    with pytest.raises(UsageError, match="no such tracepoint"):
        record(chosen)
    assert not chosen.spool.exists()
    result = record(dataclasses.replace(chosen, optional=frozenset({absent})))
    assert result.meta.events == EVENTS
    assert any(absent in notice for notice in result.notices)


def test_nothing_is_left_open_and_the_closer_holds_nothing_of_the_user(options: RecordOptions) -> None:
    """lo2io keeps no event. The process that closes them is in another session, without lo2io's streams and files."""
    before = {state.fd for state in procfs.iter_fds(os.getpid())}
    children = set(procfs.read_children(os.getpid()))
    record(options)
    assert {state.fd for state in procfs.iter_fds(os.getpid())} == before
    new = set(procfs.read_children(os.getpid())) - children
    assert not [child for child in new if procfs.read_stat(child).comm == b"python"]
    holders = [pid for pid in procfs.iter_pids() if pid != os.getpid() and holds_events_of(pid)]
    for pid in holders:  # none, if the kernel was quick
        assert os.getsid(pid) != os.getsid(0)
        paths = {state.path for state in procfs.iter_fds(pid)}
        assert {path for path in paths if not path.startswith((b"anon_inode:[perf_event]", b"pipe:"))} <= {b"/dev/null"}


def holds_events_of(pid: int) -> bool:
    """True for a fork of this process that has events."""
    with contextlib.suppress(OSError):
        stat = procfs.read_stat(pid)
        if stat is None or stat.ppid == os.getppid():  # a sibling runs other tests
            return False
        same = Path(f"/proc/{pid}/cmdline").read_bytes() == Path("/proc/self/cmdline").read_bytes()
        return same and any(b"perf_event" in state.path for state in procfs.iter_fds(pid))
    return False


def test_a_spool_that_cannot_be_made_is_an_error_before_anything_is_opened(options: RecordOptions) -> None:
    """The directory has something in it, or a file is in its place."""
    options.spool.mkdir()
    (options.spool / "mine").touch()
    with pytest.raises(UsageError, match="it exists"):
        record(options)
    assert [path.name for path in options.spool.iterdir()] == ["mine"]
    with pytest.raises((UsageError, CaptureError)):
        record(dataclasses.replace(options, spool=options.spool / "mine" / "spool"))
