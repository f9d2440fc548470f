"""The flight recorder without a kernel: rings, counts and a clock of the test's own."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import socket
import time
from pathlib import Path
from typing import TYPE_CHECKING
from unittest.mock import Mock

import pytest
from build.flightrig import CALLS, CONVERTER, META, RING_BYTES, FakeClock, FakeKernel, Rig, serials

from lo2io import pipeline
from lo2io.capture import devices
from lo2io.capture.flight import dump
from lo2io.capture.flight import recorder as flight
from lo2io.capture.flight.border import Reading
from lo2io.capture.flight.recorder import FlightOptions
from lo2io.capture.flight.window import Border, describe_window
from lo2io.errors import CaptureError, UsageError
from lo2io.model import Absence, BlockDevice, Misses, Mount
from lo2io.spool.reader import SpoolReader
from lo2io.spool.segments import META_COPIES, META_EXTRA
from lo2io.spool.writer import DiskFullError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from lo2io.capture.options import Converter
    from lo2io.folder import Folder
    from lo2io.model import SpoolMeta


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> FakeClock:
    """Time passes only if the test makes it."""
    fake = FakeClock()
    monkeypatch.setattr(flight, "time", fake)
    monkeypatch.setattr(flight, "_run_on", lambda _: True)
    monkeypatch.setattr(os, "sched_setaffinity", lambda *_: None)
    return fake


@pytest.fixture
def rig(tmp_path: Path, clock: FakeClock) -> Iterator[Callable[[FlightOptions], Rig]]:
    """Makes recorders; ends those that a test has left."""
    made: list[Rig] = []

    def make(options: FlightOptions, converter: Converter = CONVERTER) -> Rig:
        made.append(Rig(tmp_path, clock, options, converter))
        return made[-1]

    yield make
    for each in made:
        each.flight.abandon()
        each.spool.close()


@pytest.mark.parametrize("last_s", [1.0, 8.0, 20.0])
def test_what_is_kept_spans_what_was_asked_for(rig: Callable[[FlightOptions], Rig], last_s: float) -> None:
    """At least that, at most a segment more; without a gap, and counted as the kernel counts."""
    recorder = rig(FlightOptions(last_s=last_s))
    recorder.start()
    recorder.run(3 * last_s)
    meta = recorder.finish()
    assert meta.complete
    assert meta.recording_start_ns == META.start_ns
    segment_s = max(last_s / 8, 0.5)
    assert last_s <= ((meta.stop_ns or 0) - meta.start_ns) / 1e9 <= last_s + segment_s + 0.2
    reader = SpoolReader(recorder.spool.path)
    assert reader.meta == meta
    for index, (paths, _) in enumerate(reader.streams()):
        found = serials(paths)
        assert found == list(range(found[0], recorder.rings[index].nr_samples[0]))
        assert meta.counts[0].counts[index] == len(found)
    assert [counts.slack for counts in meta.counts] == [None, None]
    assert recorder.rescans == sorted(recorder.rescans)
    assert len(recorder.rescans) == int(meta.segments[-1][4:])


def test_a_window_has_the_programs_records(rig: Callable[[FlightOptions], Rig]) -> None:
    """Counted as the programs count. At each border files are told again, and losses in the segment they are of."""
    recorder = rig(FlightOptions(last_s=2.0))
    kernel = FakeKernel()
    recorder.opened.kernel = kernel  # type: ignore[assignment]
    recorder.session._kernel_rings = kernel.rings  # type: ignore[assignment]
    recorder.spool.take_kernel(events=False)
    meta = dataclasses.replace(META, events=(*META.events, *CALLS), formats=META.formats * 2, kernel_facts=True)
    recorder.flight.start(recorder.session, meta, recorder.rescans.append)
    for step in range(60):
        for cpu, ring in enumerate(kernel.rings):
            for _ in range(cpu + 1):
                ring.write(ring.nr_samples[0])
        kernel.misses = [step, 2 * step]
        recorder.run(0.1)
    kernel.losing[1] = b"x" * 40
    recorder.flight._spool.begin(recorder.clock.now)
    recorder.flight._visit(recorder.session, 1, on_cpu=True)
    lost = recorder.spool.kept[-2].files[3]
    assert lost.path.name == "cpu-0001.calls"
    assert lost.path.read_bytes()[-40:] == b"x" * 40
    names = [segment.name for segment in recorder.spool.kept][:-2]
    begin, end = (recorder.flight._borders[name] for name in (names[0], recorder.spool.kept[-2].name))
    window = recorder.flight._describe(meta, tuple(names), (begin, end))
    for cpu in range(2):
        found = serials([recorder.spool.path / name / f"cpu-{cpu:04}.calls" for name in names])
        assert found == list(range(found[0], found[-1] + 1))
        assert [each.counts[cpu] for each in window.counts[2:]] == [len(found)] * 2
    assert kernel.borders[0] == len(recorder.rescans)
    assert window.missed_runs == 2 * window.nr_left_out > 0
    assert window.nr_left_out < kernel.misses[0]
    readings = [(each.misses_before.foreign_calls, each.misses_after.foreign_calls) for each in (begin, end)]
    assert [after - before for before, after in readings] == [1, 1]  # one on each side of the border
    assert window.foreign_calls == readings[1][1] - readings[0][0]


def test_what_is_missing_at_a_border_is_missing_on_both_sides() -> None:
    """It is read before the first buffer reaches the border, and again after the last."""
    zero = {name: [Reading(0)] * 2 for name in META.events}
    borders = [
        Border(at, at + 5, at, (), zero, misses_before=Misses(n, n, n, n, n), misses_after=Misses(*range(n, n + 5)))
        for at, n in ((1000, 1), (2000, 4))
    ]
    absences = (Absence(1, 7, None),)
    window = describe_window(
        dataclasses.replace(META, absences=absences), ("seg-000001",), (borders[0], borders[1]), own_pids=()
    )
    assert [getattr(window, name) for name in Misses._fields] == [3, 4, 5, 6, 7]
    assert window.absences == absences


def test_a_dump_looks_at_the_cpus_first(rig: Callable[[FlightOptions], Rig]) -> None:
    """A CPU that came since the last look is missing in the window."""
    recorder = rig(FlightOptions(last_s=2.0))
    recorder.start()
    absence = Absence(5, 1, None)

    def look() -> None:
        recorder.session.absences = (absence,)

    recorder.flight.look_at_cpus = look
    described: list[SpoolMeta] = []
    recorder.flight.dumper.start = lambda _why, segment, describe: described.append(describe((segment.name,)))  # type: ignore[method-assign]
    recorder.run(1.0)
    segment = recorder.spool.kept[-1]
    recorder.flight._dump(segment, recorder.flight._borders[segment.name], "test")
    assert [each.absences for each in described] == [(absence,)]


def test_a_short_recording_is_kept_whole(rig: Callable[[FlightOptions], Rig]) -> None:
    """Then it begins with itself."""
    recorder = rig(FlightOptions(last_s=60.0))
    recorder.start()
    recorder.run(20)
    meta = recorder.finish()
    assert (meta.start_ns, meta.recording_start_ns) == (META.start_ns, None)
    assert meta.counts[0].counts == (2000, 2000)


def test_the_bound_holds_whatever_the_time(rig: Callable[[FlightOptions], Rig]) -> None:
    """Bytes before seconds; and the clerk removes before the drain thread must."""
    bound = META_EXTRA + META_COPIES * 6000 + 10 * 2 * RING_BYTES
    recorder = rig(FlightOptions(last_s=100.0, max_bytes=bound))
    recorder.start()
    for _ in range(100):
        recorder.run(0.1, rate=50)
        assert sum(path.stat().st_size for path in recorder.spool.path.rglob("*") if path.is_file()) <= bound
    meta = recorder.finish()
    found = serials(SpoolReader(recorder.spool.path).streams()[0][0])
    assert found[-1] == 100 * 50 - 1
    assert len(found) == meta.counts[0].counts[0]
    assert 2 * 40 * len(found) >= (bound - META_EXTRA) // 3


def test_a_bound_too_small_for_the_rings_is_refused(rig: Callable[[FlightOptions], Rig]) -> None:
    """With the least that would do."""
    recorder = rig(FlightOptions(max_bytes=META_EXTRA + 2 * RING_BYTES))
    with pytest.raises(UsageError, match="need 5 times"):
        recorder.start()


def test_a_slow_clerk_is_not_waited_for(rig: Callable[[FlightOptions], Rig], monkeypatch: pytest.MonkeyPatch) -> None:
    """If the clerk gets no CPU, the drain thread makes the next segment itself, and removes old ones."""
    bound = META_EXTRA + META_COPIES * 6000 + 10 * 2 * RING_BYTES
    recorder = rig(FlightOptions(last_s=8.0, max_bytes=bound))
    monkeypatch.setattr(recorder, "settle", lambda: None)
    monkeypatch.setattr(recorder.flight._clerk, "_target", lambda: None)
    recorder.start()
    for _ in range(100):
        recorder.run(0.1, rate=50)
    assert len(recorder.spool.kept) > 1
    assert recorder.spool.kept[0].name != "seg-000000"
    assert recorder.spool.size <= (recorder.spool.room or 0)


def test_a_failure_at_the_border_is_the_drain_threads(
    rig: Callable[[FlightOptions], Rig], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ends the recording like any failure of writing."""
    recorder = rig(FlightOptions(last_s=1.0))
    recorder.start()
    recorder.run(0.3)

    def refuse(_: object) -> int:
        raise DiskFullError(Path("x"), "full")

    recorder.rings[0].write(0)
    monkeypatch.setattr(recorder.spool._current[0], "append", refuse)
    recorder.clock.now += 10**9
    with pytest.raises(DiskFullError):
        recorder.flight.pass_ended()


@pytest.fixture
def converter(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """A stand-in for ``lo2io convert``, with the arguments of its calls. It does not touch its input."""
    calls: list[list[str]] = []

    def run(_: object, command: list[str], folders: tuple[Folder, ...]) -> str:
        names = {str(folder.place): str(folder.path) for folder in folders}
        calls.append([names.get(word, word) for word in command])
        return "complete: all"

    monkeypatch.setattr(dump.Dumper, "_run_child", run)
    return calls


def test_a_window_is_a_spool_of_its_own(rig: Callable[..., Rig], converter: list[list[str]], tmp_path: Path) -> None:
    """It ends at the request and outlives the segments, and the recording goes on."""
    recorder = rig(FlightOptions(last_s=2.0, keep_spool=True), pipeline.converter("both"))
    recorder.start()
    recorder.run(5)
    with socket.socket(socket.AF_UNIX) as asker:
        asker.connect(str(recorder.spool.path / ".control"))
        told = asker.makefile("r")
        recorder.flight._session = type("Alive", (), {"is_draining": True})()  # type: ignore[assignment]
        asker.sendall(b"dump\n")
        while not recorder.flight._requests:
            time.sleep(0.001)
        recorder.flight._session = recorder.session
        at = [ring.nr_samples[0] for ring in recorder.rings]
        recorder.flight.pass_ended()
        recorder.run(5)
        (window,) = tmp_path.glob("dump-*")
        log = [json.loads(told.readline()) for _ in range(2)]
        assert [(entry["event"], entry["name"]) for entry in log] == [("begun", window.name), ("done", window.name)]
        recorder.finish()
        assert told.read() == "", "whoever still listens is told that the recording is over"
    assert not (recorder.spool.path / ".control").exists()
    reader = SpoolReader(window / "spool")
    for index, (paths, _) in enumerate(reader.streams()):
        found = serials(paths)
        assert found == list(range(found[0], at[index]))
        assert reader.meta.counts[0].counts[index] == len(found)
    assert reader.meta.complete
    assert 2.0 <= ((reader.meta.stop_ns or 0) - reader.meta.start_ns) / 1e9 <= 2.7
    assert converter[0][-6:] == ["convert", str(window / "spool"), "-o", str(window), "--block-records", "both"]
    assert any(f"{window} holds the last" in notice and "(lo2io dump)" in notice for notice in recorder.notices)


def test_requests_after_the_end_are_refused(rig: Callable[[FlightOptions], Rig], tmp_path: Path) -> None:
    """No thread drains any more, so there is no border to end a window."""
    recorder = rig(FlightOptions(last_s=2.0))
    recorder.start()
    recorder.flight.request_dump("a test")
    assert recorder.notices == ["no window was written for a test: the recording is over"]
    assert not list(tmp_path.glob("dump-*"))


def test_what_cannot_be_linked_is_told_and_left(
    rig: Callable[[FlightOptions], Rig], converter: list[list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The recording goes on, nothing is left of the window, and another one may be requested."""
    recorder = rig(FlightOptions(last_s=2.0))
    recorder.start()
    recorder.run(3)

    def refuse(*_: object, **__: object) -> None:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(os, "link", refuse)
        assert recorder.flight.dumper.claim()
        recorder.flight._requests.append("a test")
        recorder.run(0.1)
    assert recorder.notices == ["no window was written for a test: Input/output error"]
    assert not list(tmp_path.glob("dump-*"))
    assert recorder.flight.dumper.claim()
    assert not recorder.flight.dumper.claim()
    recorder.run(1)
    assert converter == []


def test_a_request_amid_the_deciding_is_followed(
    rig: Callable[[FlightOptions], Rig],
    converter: list[list[str]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The main thread asks while the drain thread finds that a segment is old enough: the window is written."""
    recorder = rig(FlightOptions(last_s=2.0))
    recorder.start()
    recorder.run(3)
    monkeypatch.setattr(type(recorder.session), "is_draining", True)

    def is_due(_: int) -> bool:
        recorder.flight.request_dump("a test")
        return True

    with monkeypatch.context() as patch:
        patch.setattr(recorder.flight, "_is_due", is_due)
        recorder.flight.pass_ended()
    recorder.run(1)
    recorder.finish()
    assert [Path(call[-1]).parent for call in converter] == [tmp_path]


def test_a_number_used_again_is_not_taken_for_a_converters(rig: Callable[[FlightOptions], Rig]) -> None:
    """lo2io's own are the converters that lived at the window's start, and no earlier ones."""
    recorder = rig(FlightOptions(last_s=2.0))
    recorder.start()
    begin = recorder.clock.now
    children = recorder.flight.dumper._children
    for pid, first, last in ((11, 0, 0.5), (12, 1, 2), (13, 7, 8.5), (14, 9.6, None), (15, 8, 9.9)):
        children.append(
            dump._Child(pid, begin + int(first * 10**9), None if last is None else begin + int(last * 10**9))
        )
    recorder.run(10)
    meta = recorder.finish()
    assert 7.0 <= (meta.start_ns - begin) / 1e9 <= 8.4
    assert meta.own_pids == (13, 15)
    assert [child.pid for child in children] == [13, 14, 15]


def test_the_mounts_and_disks_of_a_window_are_those_of_its_end(
    rig: Callable[[FlightOptions], Rig], converter: list[list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Disks that were mounted and plugged in during the recording have their names in it."""
    mount = Mount(id=4711, device=1, mount_point="/new", fs_type="ext4", source="/dev/sdz")
    disk = BlockDevice(device=0xFFF00000, name="sdz", scheduler=None, rotational=None, size_bytes=None)
    recorder = rig(FlightOptions(last_s=2.0, keep_spool=True))
    recorder.start()
    recorder.run(3)
    monkeypatch.setattr(devices.procfs, "read_mounts", lambda **_: (mount,))
    monkeypatch.setattr(devices.sysfs, "read_devices", lambda _: (disk, *META.devices))
    assert recorder.flight.dumper.claim()
    recorder.flight._requests.append("a test")
    recorder.run(0.1)
    recorder.finish()
    (window,) = tmp_path.glob("dump-*")
    meta = SpoolReader(window / "spool").meta
    assert meta.mounts == (*META.mounts, mount)
    assert meta.devices == (*META.devices, disk)


def test_no_more_threads(
    rig: Callable[[FlightOptions], Rig], converter: list[list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The window is not written, a message says so, and the clerk still removes old parts."""
    recorder = rig(FlightOptions(last_s=2.0))
    recorder.start()
    recorder.run(3)

    def refuse(_: object) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(dump.threading.Thread, "start", refuse)
        assert recorder.flight.dumper.claim()
        recorder.flight._requests.append("a test")
        recorder.run(0.1)
    assert recorder.notices == ["no window was written for a test: can't start new thread"]
    assert not list(tmp_path.glob("dump-*"))
    oldest = recorder.spool.kept[0].name
    recorder.run(3)
    assert recorder.spool.kept[0].name != oldest
    assert recorder.flight.dumper.claim()
    assert converter == []


def test_a_converter_is_asked_to_stop_once(
    rig: Callable[[FlightOptions], Rig], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It removes its unfinished files, during which a second signal would end it."""
    sent: list[int] = []
    dumper = rig(FlightOptions(last_s=2.0)).flight.dumper
    monkeypatch.setattr(dump, "_POLL_S", 0.001)

    class Child:
        def send_signal(self, number: int) -> None:
            sent.append(number)

    class Thread:
        joined = 0

        def is_alive(self) -> bool:
            return self.joined < 5

        def join(self, _: float) -> None:
            self.joined += 1

    dumper._child, dumper._thread = Child(), Thread()  # type: ignore[assignment]
    dumper.wait(lambda: True)
    assert sent == [signal.SIGTERM]


def test_the_commands_end_is_the_main_threads(
    rig: Callable[[FlightOptions], Rig], monkeypatch: pytest.MonkeyPatch
) -> None:
    """While a converter is started no thread takes SIGCHLD, whose usual effect is none: it would be lost."""
    masks: list[set[int]] = []

    def popen(*_: object, **__: object) -> None:
        masks.append(set(signal.pthread_sigmask(signal.SIG_BLOCK, ())))
        raise OSError

    monkeypatch.setattr(dump.subprocess, "Popen", popen)
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD, signal.SIGINT})
    try:
        with pytest.raises(OSError):  # noqa: PT011 - its own
            rig(FlightOptions(last_s=2.0)).flight.dumper._run_child(["x"])
        after = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    assert masks == [{signal.SIGCHLD}]
    assert after == before | {signal.SIGCHLD, signal.SIGINT}


def test_a_ring_that_comes_when_all_is_over(rig: Callable[[FlightOptions], Rig]) -> None:
    """A disk that fills up while a CPU comes online ends the recording, and nothing else."""
    session = rig(FlightOptions(last_s=2.0)).session
    session._epoll.close()
    session.watch([0], 1)
    assert session._ring_of[0] == 1


def test_an_unexpected_failure_ends_no_thread_unseen(
    rig: Callable[[FlightOptions], Rig], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the drain thread, it ends the recording; in the clerk, only the requested window."""

    def fail(*_: object) -> None:
        raise ValueError("odd")

    recorder = rig(FlightOptions(last_s=2.0))
    recorder.start()
    recorder.run(3)
    with monkeypatch.context() as patch:
        patch.setattr(recorder.flight.dumper, "start", fail)
        assert recorder.flight.dumper.claim()
        recorder.flight._requests.append("a test")
        recorder.run(0.1)
    assert recorder.flight.dumper.claim()
    oldest = recorder.spool.kept[0].name
    recorder.run(3)
    assert recorder.spool.kept[0].name != oldest
    with recorder.session._failing():
        fail()
    failure = recorder.session._failure
    assert isinstance(failure, CaptureError)
    assert failure.answer == "ValueError: odd"
    assert recorder.session._ended_ns is not None
    assert [notice.partition(":")[0] for notice in recorder.notices] == [
        "no window was written for a test",
        "recording ended early",
    ]


def test_how_long_a_trigger_rests(rig: Callable[[FlightOptions], Rig], clock: FakeClock) -> None:
    """As long as the window; without a length, as long as what is kept, and a second at least."""
    kept = rig(FlightOptions(last_s=None, max_bytes=1 << 20)).flight
    now = clock.monotonic_ns()
    kept._borders = {"a": Mock(monotonic_ns=now - 7), "b": Mock(monotonic_ns=now)}
    assert kept._window_ns() == 1_000_000_000
    kept._borders["a"].monotonic_ns -= 3_000_000_000
    assert kept._window_ns() == 3_000_000_007
    kept._last_ns = 2_500_000_000
    assert kept._window_ns() == 2_500_000_000


def test_the_watcher_is_told_who_converts(rig: Callable[[FlightOptions], Rig], monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise, the writer of a window would cause the next one."""
    recorder = rig(FlightOptions(last_s=2.0))
    recorder.start()
    monkeypatch.setattr(recorder.flight.dumper, "lived", lambda begin, end: (77,) if begin < end else ())
    watcher = Mock(**{"take_hits.return_value": []})
    recorder.flight._fire(watcher)
    watcher.take_hits.assert_called_once_with((77,))
