"""A flight recorder without a kernel: the test has its own buffers, counts and clock.

>>> ring = FakeRing()
>>> ring.write(7)
>>> ring.nr_samples
[1, 0]
>>> ring.release((folder / "ring").write_bytes(b"".join(ring.peek(RING_BYTES))))
>>> serials([folder / "ring"]), ring.fill_bytes
([7], 0)
"""

from __future__ import annotations

import dataclasses
import struct
import time
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING

from build.perfwriter import SpoolBuilder, frame
from lo2io.bpf.loader import CountsAt
from lo2io.capture.events.opened import OpenEvents
from lo2io.capture.flight import recorder
from lo2io.capture.flight.border import Reading
from lo2io.capture.flight.recorder import FlightOptions, FlightRecorder
from lo2io.capture.options import Converter
from lo2io.capture.session import Session, Stopped
from lo2io.catalog.catalog import load_catalog
from lo2io.catalog.layouts import compile_layout
from lo2io.model import Cpu, EventCounts
from lo2io.spool.segments import SegmentedSpool

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lo2io.catalog.layouts import Layout
    from lo2io.model import SpoolMeta
    from lo2io.model.notices import Notice

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
        segments=recorder.FlightRecorder.first_segments,
        cpus=tuple(Cpu(cpu, cpu, 0) for cpu in range(cpus)),
        ring_bytes=RING_BYTES,
        start_ns=1000,
    )


META = small_meta()
LAYOUT: Layout = compile_layout(META.events, META.formats, load_catalog())


class FakeRing:
    """A buffer whose kernel is the test."""

    def __init__(self, size: int = RING_BYTES) -> None:
        self.size = size
        self.head = self.tail = 0
        self.content = b""
        self.nr_samples = [0, 0]

    @property
    def fill_bytes(self) -> int:
        """As in ``Ring``, like the others."""
        return self.head - self.tail

    @property
    def taken(self) -> float:
        """As in ``KernelRing``."""
        return self.fill_bytes / self.size

    def peek(self, limit: int) -> list[memoryview]:
        """Two pieces, as where a buffer wraps."""
        half = min(limit, self.fill_bytes) // 2
        return [memoryview(self.content)[:half], memoryview(self.content)[half : min(limit, self.fill_bytes)]]

    def release(self, length: int) -> None:
        """Forget these bytes."""
        self.tail += length
        self.content = self.content[length:]

    def write(self, serial: int, *, event: int = 0, tid: int = 1) -> None:
        """A sample in the kernel's layout."""
        raw = struct.pack("<HBBiQ", LAYOUT.events[event].type, 0, 0, tid, serial) + bytes(4)
        record = frame(SAMPLE, struct.pack("<QI", serial, len(raw)) + raw)
        assert self.fill_bytes + len(record) <= self.size, "the ring overflows"
        self.content += record
        self.head += len(record)
        self.nr_samples[event] += 1


CALLS = ("syscalls:sys_enter_read", "syscalls:sys_exit_read")


class FakeKernel:
    """Programs of two CPUs, each with a buffer of calls. Their records have the form of perf's samples here.

    Attributes:
        borders: CPU → borders at which files were to be told again.
        losing: CPU → a record about the last losses, which the recorder takes.
    """

    names = CALLS
    samples = ()
    ring_bytes = RING_BYTES

    @staticmethod
    def read_stacks() -> tuple[()]:
        """Nobody slept."""
        return ()

    @staticmethod
    def read_user_stacks() -> tuple[()]:
        """No call was slow."""
        return ()

    def __init__(self) -> None:
        self.rings = [FakeRing(), FakeRing()]
        self.borders = [0, 0]
        self.losing = [b"", b""]
        self.misses = [0, 0]
        self.nr_readings = 0

    def rings_of(self, cpu: int) -> tuple[int, ...]:
        """As in ``Kernel``, like the others."""
        return (cpu,)

    def ring_place(self, index: int) -> tuple[int, bool]:
        """The buffer's CPU; calls."""
        return index, False

    def count_records(self, index: int) -> tuple[int, dict[str, CountsAt]]:
        """No call happens during a reading."""
        ring = self.rings[index]
        return ring.head, {name: CountsAt(ring.nr_samples[0], 0, 0) for name in CALLS}

    def begin_window(self, cpu: int) -> None:
        """Count."""
        self.borders[cpu] += 1

    def take_losses(self, index: int) -> bytes:
        """Once."""
        record, self.losing[index] = self.losing[index], b""
        return record

    def count_left_out(self) -> int:
        """The test's number."""
        return self.misses[0]

    def read_losses(self) -> SimpleNamespace:
        """The test's number."""
        self.nr_readings += 1
        return SimpleNamespace(missed_runs=self.misses[1], facts_lost=0, foreign=self.nr_readings)


class FakeClock:
    """Instead of the module ``time``."""

    def __init__(self) -> None:
        self.now = 10**9

    def monotonic_ns(self) -> int:
        """The test's time."""
        return self.now


CONVERTER = Converter(run=lambda spool, trace: ["true", str(spool), str(trace)], show=lambda *_: "convert by hand")
"""Makes no trace."""


class Rig:
    """A flight recorder whose drain thread is the test."""

    def __init__(self, path: Path, clock: FakeClock, options: FlightOptions, converter: Converter = CONVERTER) -> None:
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
        self.flight = FlightRecorder(options, self.spool, self.opened, LAYOUT, self._note, converter=converter)
        self.flight._reader = self  # type: ignore[assignment]
        self.session = Session(self.opened, self.spool, self._note, self.flight)
        self.session._syncs = [dataclasses.replace(META.syncs[0], time_ns=0, monotonic_ns=0)]
        self.spool.write_meta(META)

    def _note(self, notice: Notice) -> None:
        self.notices.append(notice.text)

    def ring_of(self, index: int) -> int:
        """Each CPU has one buffer."""
        return index

    def read(self, index: int, *, on_cpu: bool) -> tuple[int, list[Reading]]:
        """Instead of ``BorderReader``: no event happens during a reading."""
        assert on_cpu
        ring = self.rings[index]
        return ring.head, [Reading(count) for count in ring.nr_samples]

    def read_kernel(self, index: int, *, on_cpu: bool) -> tuple[int, dict[str, Reading]]:
        """The same for a buffer of programs."""
        assert on_cpu
        assert self.opened.kernel is not None
        position, counts = self.opened.kernel.count_records(index)
        return position, {name: Reading(at.count, at.slack, at.lost) for name, at in counts.items()}

    def start(self) -> None:
        """Begin the recording."""
        self.flight.start(self.session, META, self.rescans.append)

    def run(self, seconds: float, rate: int = 10) -> None:
        """Each tenth of a second, write so many samples on each CPU and drain them at once. The clerk keeps pace."""
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
        """Wait until the clerk has nothing to do."""
        end = time.monotonic() + 60
        while not (self.flight._work.empty() and self.spool.is_prepared):
            assert time.monotonic() < end
            time.sleep(0.0005)

    def finish(self) -> SpoolMeta:
        """End the recording; the last window's description, written."""
        counts = tuple(
            EventCounts(name, tuple(ring.nr_samples[event] for ring in self.rings), (0, 0))
            for event, name in enumerate(EVENTS)
        )
        stopped = Stopped(self.clock.now, META.syncs, counts)
        meta = self.flight.finish(dataclasses.replace(META, stop_ns=stopped.stop_ns), stopped)
        self.spool.write_meta(meta)
        self.spool.close()
        return meta


def serials(paths: Sequence[Path]) -> list[int]:
    """The numbers of a CPU's samples."""
    content = b"".join(path.read_bytes() for path in paths)
    return [struct.unpack_from("<Q", content, at + 8)[0] for at in range(0, len(content), 40)]
