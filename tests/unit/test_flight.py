"""The flight recorder without a kernel: rings, counts and a clock of the test's own."""

from __future__ import annotations

import dataclasses
import json
import os
import struct
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from perfwriter import SpoolBuilder, frame

from lo2io.capture import dumping, flight
from lo2io.capture.border import BorderReader, Reading, subtract
from lo2io.capture.flight import FlightOptions, FlightRecorder
from lo2io.capture.session import Session, Stopped
from lo2io.capture.source import OpenEvents
from lo2io.catalog import load_catalog
from lo2io.decode import compile_layout
from lo2io.errors import UsageError
from lo2io.model import Cpu, EventCounts
from lo2io.spool.reader import SpoolReader
from lo2io.spool.segments import META_COPIES, META_EXTRA, SegmentedSpool
from lo2io.spool.writer import DiskFullError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from lo2io.decode import Layout
    from lo2io.model import SpoolMeta

SAMPLE = 9
RING_BYTES = 4096
EVENTS = ("syscalls:sys_enter_pread64", "syscalls:sys_exit_pread64")


def small_meta(cpus: int = 2) -> SpoolMeta:
    """Of two events."""
    whole = SpoolBuilder(Path(), cpus=cpus, calls=("pread64",), stop_ns=None).meta()
    chosen = [whole.events.index(name) for name in EVENTS]
    return dataclasses.replace(
        whole,
        events=EVENTS,
        formats=tuple(whole.formats[index] for index in chosen),
        segments=flight.FIRST_SEGMENTS,
        cpus=tuple(Cpu(cpu, cpu, 0) for cpu in range(cpus)),
        ring_bytes=RING_BYTES,
        start_ns=1000,
    )


META = small_meta()
LAYOUT: Layout = compile_layout(META.events, META.formats, load_catalog())


class FakeRing:
    """A ring whose kernel is the test."""

    def __init__(self, size: int = RING_BYTES) -> None:
        self.size = size
        self.head = self.tail = 0
        self.content = b""
        self.nr_samples = [0, 0]

    @property
    def fill_bytes(self) -> int:
        """As of ``Ring``, and so the others."""
        return self.head - self.tail

    def peek(self, limit: int) -> list[memoryview]:
        """Two pieces, as where a ring wraps."""
        half = min(limit, self.fill_bytes) // 2
        return [memoryview(self.content)[:half], memoryview(self.content)[half : min(limit, self.fill_bytes)]]

    def release(self, length: int) -> None:
        """Forget them."""
        self.tail += length
        self.content = self.content[length:]

    def write(self, serial: int, *, event: int = 0, tid: int = 1) -> None:
        """A sample, as the kernel lays it out."""
        raw = struct.pack("<HBBiQ", LAYOUT.events[event].type, 0, 0, tid, serial) + bytes(4)
        record = frame(SAMPLE, struct.pack("<QI", serial, len(raw)) + raw)
        assert self.fill_bytes + len(record) <= self.size, "the ring overflows"
        self.content += record
        self.head += len(record)
        self.nr_samples[event] += 1


class FakeClock:
    """Instead of the module ``time``."""

    def __init__(self) -> None:
        self.now = 10**9

    def monotonic_ns(self) -> int:
        """As the test says."""
        return self.now


class Rig:
    """A flight recorder whose drain thread is the test."""

    def __init__(self, path: Path, clock: FakeClock, options: FlightOptions) -> None:
        self.clock = clock
        self.notices: list[str] = []
        self.rescans: list[int] = []
        self.spool = SegmentedSpool(path / "spool", [0, 1], options.max_bytes)
        self.rings = [FakeRing(), FakeRing()]
        self.opened = OpenEvents(
            opener="native",
            clock="monotonic",
            scope="system",
            cpus=(0, 1),
            names=EVENTS,
            leaders=[[], []],
            tracepoints=[[[], []], [[], []]],
            rings=self.rings,  # type: ignore[arg-type]
            ring_bytes=RING_BYTES,
            ring_bytes_wanted=RING_BYTES,
            has_lost=True,
        )
        self.flight = FlightRecorder(options, self.spool, self.opened, LAYOUT, self.notices.append)
        self.flight._reader = self  # type: ignore[assignment]
        self.session = Session(self.opened, self.spool, self.notices.append, self.flight)
        self.session._syncs = [dataclasses.replace(META.syncs[0], time_ns=0, monotonic_ns=0)]
        self.spool.write_meta(META)

    def read(self, index: int, *, on_cpu: bool) -> tuple[int, list[Reading]]:
        """Instead of ``BorderReader``: nothing happens meanwhile."""
        assert on_cpu
        ring = self.rings[index]
        return ring.head, [Reading(count) for count in ring.nr_samples]

    def start(self) -> None:
        """The recording begins."""
        self.flight.start(self.session, META, self.rescans.append)

    def run(self, seconds: float, rate: int = 10) -> None:
        """Each tenth of a second so many samples on each CPU, drained at once; the clerk keeps pace."""
        for _ in range(round(seconds * 10)):
            for ring in self.rings:
                for _ in range(rate):
                    ring.write(ring.nr_samples[0])
            self.clock.now += 100_000_000
            for index in range(2):
                self.session.drain_ring(index)
            self.flight.pass_ended()
            self.settle()

    def settle(self) -> None:
        """Until the clerk has nothing to do."""
        end = time.monotonic() + 60
        while not (self.flight._work.empty() and self.spool.is_prepared):
            assert time.monotonic() < end
            time.sleep(0.0005)

    def finish(self) -> SpoolMeta:
        """The recording ends: the last window's description, written."""
        counts = tuple(
            EventCounts(name, tuple(ring.nr_samples[event] for ring in self.rings), (0, 0))
            for event, name in enumerate(EVENTS)
        )
        stopped = Stopped(self.clock.now, META.syncs, counts)
        meta = self.flight.finish(dataclasses.replace(META, stop_ns=stopped.stop_ns), stopped)
        self.spool.write_meta(meta)
        self.spool.close()
        return meta


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> FakeClock:
    """Time passes only when the test says so."""
    fake = FakeClock()
    monkeypatch.setattr(flight, "time", fake)
    monkeypatch.setattr(flight, "_run_on", lambda _: True)
    monkeypatch.setattr(os, "sched_setaffinity", lambda *_: None)
    return fake


@pytest.fixture
def rig(tmp_path: Path, clock: FakeClock) -> Iterator[Callable[[FlightOptions], Rig]]:
    """Makes recorders; ends those that a test has left."""
    made: list[Rig] = []

    def make(options: FlightOptions) -> Rig:
        made.append(Rig(tmp_path, clock, options))
        return made[-1]

    yield make
    for each in made:
        each.flight.abandon()
        each.spool.close()


def serials(paths: Sequence[Path]) -> list[int]:
    """The numbers of a CPU's samples."""
    content = b"".join(path.read_bytes() for path in paths)
    return [struct.unpack_from("<Q", content, at + 8)[0] for at in range(0, len(content), 40)]


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
    """Where it gets no CPU, the drain thread makes the next segment itself, and removes what must go."""
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
    """It ends the recording as any failure of writing does."""
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
    """Instead of ``lo2io convert``; what it was called with. It leaves what it was given."""
    calls: list[list[str]] = []

    def run(_: object, command: list[str]) -> str:
        calls.append(command)
        return "complete: all"

    monkeypatch.setattr(dumping.Dumper, "_run_child", run)
    return calls


def test_a_window_is_a_spool_of_its_own(
    rig: Callable[[FlightOptions], Rig], converter: list[list[str]], tmp_path: Path
) -> None:
    """It ends when it is asked for, outlives the segments, and the recording goes on."""
    recorder = rig(FlightOptions(last_s=2.0, keep_spool=True, convert=("--block-records", "both")))
    recorder.start()
    recorder.run(5)
    recorder.flight._session = type("Alive", (), {"is_draining": True})()  # type: ignore[assignment]
    recorder.flight.request_dump("a test")
    recorder.flight._session = recorder.session
    at = [ring.nr_samples[0] for ring in recorder.rings]
    recorder.flight.pass_ended()
    recorder.run(5)
    (window,) = tmp_path.glob("dump-*")
    reader = SpoolReader(window / "spool")
    for index, (paths, _) in enumerate(reader.streams()):
        found = serials(paths)
        assert found == list(range(found[0], at[index]))
        assert reader.meta.counts[0].counts[index] == len(found)
    assert reader.meta.complete
    assert 2.0 <= ((reader.meta.stop_ns or 0) - reader.meta.start_ns) / 1e9 <= 2.7
    assert converter[0][-6:] == ["convert", str(window / "spool"), "-o", str(window), "--block-records", "both"]
    assert any(f"{window} holds the last" in notice and "(a test)" in notice for notice in recorder.notices)
    log = [json.loads(line) for line in (recorder.spool.path / "dumps.jsonl").read_text().splitlines()]
    assert [(entry["event"], entry["path"]) for entry in log] == [("begun", str(window)), ("done", str(window))]
    recorder.finish()
    assert not (recorder.spool.path / "dumps.jsonl").exists()


def test_requests_after_the_end_are_refused(rig: Callable[[FlightOptions], Rig], tmp_path: Path) -> None:
    """Nobody drains any more: there is no border to end a window at."""
    recorder = rig(FlightOptions(last_s=2.0))
    recorder.start()
    recorder.flight.request_dump("a test")
    assert recorder.notices == ["no window was written for a test: the recording is over"]
    assert not list(tmp_path.glob("dump-*"))


def test_what_cannot_be_linked_is_told_and_left(
    rig: Callable[[FlightOptions], Rig], converter: list[list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The recording goes on, nothing is left of the window, and another may be asked for."""
    recorder = rig(FlightOptions(last_s=2.0))
    recorder.start()
    recorder.run(3)

    def refuse(*_: object) -> None:
        raise OSError(1, "Operation not permitted")

    with monkeypatch.context() as patch:
        patch.setattr(os, "link", refuse)
        assert recorder.flight.dumper.claim("a test")
        recorder.flight._request = "a test"
        recorder.run(0.1)
    assert recorder.notices == ["no window was written for a test: Operation not permitted"]
    assert not list(tmp_path.glob("dump-*"))
    assert recorder.flight.dumper.claim("another")
    assert not recorder.flight.dumper.claim("a third")
    recorder.run(1)
    assert converter == []


def border_reader() -> BorderReader:
    """Without events."""
    reader = BorderReader.__new__(BorderReader)
    reader._ids, reader._names = [event.type for event in LAYOUT.events], EVENTS
    reader._type_at, reader._tid_at = 20 + LAYOUT.type_offset, 20 + LAYOUT.pid_offset
    return reader


def test_counts_are_carried_to_the_border() -> None:
    """Samples behind the reading are added; those amid it are uncertain, but for the reader's own call."""
    ring = FakeRing()
    own = 77
    for serial, (event, tid) in enumerate([(0, 5), (0, own), (1, own), (1, 5), (0, 5), (1, 5)]):
        ring.write(serial, event=event, tid=tid)
    reader = border_reader()
    samples = reader._list_samples(ring, ring.head)  # type: ignore[arg-type]
    enter, exit_ = LAYOUT.events[0].type, LAYOUT.events[1].type
    assert samples == {enter: [(0, 5), (40, own), (160, 5)], exit_: [(80, own), (120, 5), (200, 5)]}
    # Both were read while the ring's head went from 40 to 160.
    results = reader._judge([(40, 160, 1000, 3), (40, 160, 2000, 0)], samples, own)
    assert results == [Reading(1001, 0, 3), Reading(2002, 1, 0)]
    assert reader._from_afar(0, Reading(1000, 2, 3)) == Reading(999, 3, 3)
    assert reader._from_afar(0, Reading(0)) == Reading(0)


@pytest.mark.parametrize(
    ("start", "end", "between"),
    [
        (Reading(10), Reading(25), Reading(15)),
        (Reading(10, 2, 1), Reading(25, 3, 4), Reading(13, 5, 3)),
        (Reading(10, 2), Reading(11, 0), Reading(0, 1)),
    ],
)
def test_bounds_are_subtracted_as_bounds(start: Reading, end: Reading, between: Reading) -> None:
    """The least is the end's least minus the start's most; what is sure stays sure."""
    assert subtract(end, start) == between
