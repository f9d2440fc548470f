"""The kernel's refusals: each becomes an error with a remedy, or a smaller recording with a notice."""

from __future__ import annotations

import errno
import os
import time
from typing import TYPE_CHECKING

import pytest

from lo2io.capture import session
from lo2io.capture.background_close import close_in_background
from lo2io.capture.clock import read_sync
from lo2io.capture.events import native, python_perf
from lo2io.capture.events import opened as source
from lo2io.capture.events.select import select_source
from lo2io.capture.recording import RecordOptions, record
from lo2io.errors import AccessError, CaptureError, UsageError
from lo2io.kernel import sysfs, tracefs
from lo2io.spool.writer import SpoolWriter

if TYPE_CHECKING:
    from pathlib import Path

EVENT = "syscalls:sys_enter_fadvise64"
"""Rare: the calls of other processes must not fill a buffer of 64 KiB before the test's own calls come."""
RECORDS = pytest.mark.requires("root", "tracefs", "events", EVENT)


class RefusedRing:
    """A buffer of at most ``granted`` bytes."""

    granted = 0
    nr_open = 0

    def __init__(self, fd: int, size: int) -> None:
        if fd == 12 and size > self.granted:
            raise OSError(errno.EPERM, "Operation not permitted")
        self.size = size
        RefusedRing.nr_open += 1

    def close(self) -> None:
        """Count it off."""
        RefusedRing.nr_open -= 1


@pytest.mark.parametrize(("granted", "size"), [(1 << 22, 1 << 22), (1 << 20, 1 << 20), (100_000, 1 << 16)])
def test_rings_are_all_of_the_size_the_last_one_gets(monkeypatch: pytest.MonkeyPatch, granted: int, size: int) -> None:
    """All are halved when one is refused; those mapped before are given up first."""
    monkeypatch.setattr(source, "Ring", RefusedRing)
    monkeypatch.setattr(RefusedRing, "granted", granted)
    monkeypatch.setattr(RefusedRing, "nr_open", 0)
    rings = source.open_rings([10, 11, 12], 1 << 22)
    assert [ring.size for ring in rings] == [size] * 3
    assert RefusedRing.nr_open == 3


def test_refused_rings_are_an_error_that_says_how_much_it_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sizes below the smallest useful one are not tried; no buffer stays mapped."""
    monkeypatch.setattr(source, "Ring", RefusedRing)
    monkeypatch.setattr(RefusedRing, "granted", source.MIN_RING_BYTES // 2)
    monkeypatch.setattr(RefusedRing, "nr_open", 0)
    with pytest.raises(CaptureError, match="map 2 buffers of 64 KiB") as caught:
        source.open_rings([11, 12], 1 << 22)
    assert "ulimit -l 136" in caught.value.remedy
    assert RefusedRing.nr_open == 0


@pytest.mark.parametrize(
    ("number", "kind", "words"),
    [
        (errno.EACCES, AccessError, "perf_event_paranoid is 3"),
        (errno.EPERM, AccessError, "perf_event_paranoid is 3"),
        (errno.EMFILE, CaptureError, "Too many open files"),
        (errno.ENOSYS, CaptureError, "not implemented"),
        (errno.EINVAL, CaptureError, "Invalid argument"),
    ],
)
def test_refused_events(tmp_path: Path, number: int, kind: type[Exception], words: str) -> None:
    """The error has the kernel's answer, the level that matters, and the remedy."""
    setting = tmp_path / "proc/sys/kernel/perf_event_paranoid"
    setting.parent.mkdir(parents=True)
    setting.write_text("3\n")
    error = source.opening_failed("an event", OSError(number, os.strerror(number)), tmp_path)
    assert type(error) is kind
    assert words in str(error)
    assert error.remedy


def test_without_the_binding_the_native_opener_is_used_and_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """If the user named the binding, its absence is an error that names the package."""

    def none() -> None:
        raise AccessError("looking for the perf binding", "not installed", "sudo apt-get install linux-perf")

    monkeypatch.setattr(python_perf, "find_binding", none)
    opener, notice = select_source(None, source.SYSTEM)
    assert isinstance(opener, native.NativeSource)
    assert "linux-perf" in notice
    with pytest.raises(AccessError, match="not installed"):
        select_source("python-perf", source.SYSTEM)


def test_openers_that_cannot_be() -> None:
    """An unknown one, and one that cannot record task by task."""
    with pytest.raises(UsageError, match="no such opener"):
        select_source("bpf", source.SYSTEM)
    with pytest.raises(UsageError, match="per CPU only"):
        select_source("python-perf", source.INHERIT)
    opener, notice = select_source(None, source.INHERIT)
    assert isinstance(opener, native.NativeSource)
    assert notice == ""


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, "either a command or processes"),
        ({"command": ("true",), "pids": (1,)}, "either a command or processes"),
        ({"command": ("true",), "scope": "cgroup"}, "no such scope"),
        ({"command": ("true",), "ring_bytes": 3 << 20}, "a power of two"),
        ({"command": ("true",), "ring_bytes": 512}, "a power of two"),
        ({"command": ("true",), "duration_s": 1.0}, "recorded to its end"),
    ],
)
def test_contradicting_options(tmp_path: Path, changes: dict[str, object], words: str) -> None:
    """Contradicting options are refused before anything is started or created."""
    with pytest.raises(UsageError, match=words):
        record(RecordOptions(tmp_path / "spool", (EVENT,), **changes))
    assert not (tmp_path / "spool").exists()


def opened(opener: str) -> source.OpenEvents:
    """One event, system-wide."""
    number = tracefs.load_format(tracefs.find_tracefs(), EVENT)[0].id
    chosen, _ = select_source(opener, source.SYSTEM)
    return chosen.open(source.OpenRequest(((EVENT, number),), sysfs.read_online_cpus(), 1 << 16))


@RECORDS
def test_each_fd_is_the_event_it_is_taken_for(opener: str) -> None:
    """Each counts on the CPU where the call was made, and nowhere else: names, CPUs and fds are not mixed up."""
    events = opened(opener)
    before = os.sched_getaffinity(0)
    fd = os.open("/dev/null", os.O_WRONLY)
    try:
        assert len(events.rings) == len(events.leaders) == len(events.tracepoints[0]) == len(events.cpus)
        events.switch_tracepoints(on=True)
        for nr_calls, cpu in enumerate(events.cpus, start=11):
            os.sched_setaffinity(0, {cpu})
            for _ in range(nr_calls):
                os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_NORMAL)
        events.switch_tracepoints(on=False)
        for index in range(len(events.cpus)):
            content = b"".join(events.rings[index].peek(1 << 16))
            own = sum(int.from_bytes(record[24:28], "little") == os.getpid() for record in samples(content))
            assert own == 11 + index
    finally:
        os.sched_setaffinity(0, before)
        os.close(fd)
        close_in_background(events)


def samples(content: bytes) -> list[bytes]:
    """The samples among the records."""
    found = []
    while content:
        size = int.from_bytes(content[6:8], "little")
        if content[0] == 9:
            found.append(content[:size])
        content = content[size:]
    return found


@RECORDS
def test_no_mark_no_recording(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the clocks cannot be compared, facts would prove wrong names: it is an error, and no event stays enabled."""
    events = opened("native")
    try:
        before = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
        sync = read_sync(events)
        after = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
        assert sync is not None
        assert sync.time_ns == sync.monotonic_ns  # one clock, where that can be requested
        assert before <= sync.monotonic_ns - sync.error_ns < sync.monotonic_ns + sync.error_ns <= after + 1
        monkeypatch.setattr(events, "clock", "perf")
        assert read_sync(events) is None  # the leaders are off: no mark comes back
        monkeypatch.setattr(session, "read_sync", lambda _: None)
        with SpoolWriter(tmp_path / "spool", events.cpus) as writer:
            failing = session.Session(events, writer, lambda _: None)
            with pytest.raises(CaptureError, match="compare the clocks"):
                failing.begin()
            failing.abandon()
            failing.abandon()
    finally:
        close_in_background(events)
