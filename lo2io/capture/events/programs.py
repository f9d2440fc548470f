"""lo2io's programs in the kernel, as a recording has them: calls and options in, records in mapped rings out.

Calls whose numbers are known the programs see all together. To those of others they are attached through perf events:
one for each tracepoint, bound to some CPU and never enabled, for it only holds the program, which runs on every CPU.
Each CPU has a ring of its own.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from lo2io.bpf.calls import plan_calls, plan_opcodes
from lo2io.bpf.loader import BpfConfig, load_programs
from lo2io.bpf.samples import plan_samples
from lo2io.capture.events.bpf_ring import KernelRing
from lo2io.catalog.catalog import ENDING, left_out
from lo2io.errors import AccessError, CaptureError
from lo2io.kernel import abi
from lo2io.model import CallFilter, EventCounts
from lo2io.native._lib import lib

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from lo2io.bpf.calls import KernelCall
    from lo2io.bpf.loader import Programs
    from lo2io.catalog.catalog import Catalog
    from lo2io.model.events import Event

EVERYTHING = CallFilter()


@dataclass(frozen=True, slots=True)
class KernelRequest:
    """What the programs are to do.

    Attributes:
        events: What is recorded.
        catalog: What the events mean.
        cpus: Those that get a ring.
        ring_bytes: Of each, a power of two of at least a page.
        calls: Whether they record the calls; else only what tracepoints do not tell of them.
        all_tasks: Record every task but lo2io's; else those that are selected, and all they start.
        cgroup: Folder of the cgroup (v2) outside of which nothing is recorded.
        left_out: Which calls they leave out.
        filters: Event → what is to pass of it; events with a filter that no program knows stay perf samples.
    """

    events: tuple[Event, ...]
    catalog: Catalog
    cpus: tuple[int, ...]
    ring_bytes: int
    calls: bool
    all_tasks: bool
    cgroup: Path | None = None
    left_out: CallFilter = EVERYTHING
    filters: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class KernelLosses:
    """What went wrong in the programs, over all CPUs."""

    facts_lost: int
    """Records of files and paths that found a ring full."""
    unreadable: int
    """Strings and arrays that were not in the program's memory when they were looked at."""
    unpaired: int
    """Entries whose thread left its CPU unseen."""
    missed_runs: int
    """So often a program was not run because one ran on that CPU already."""
    foreign: int = 0
    """Calls through tables whose numbers are not known."""

    def notices(self) -> Iterator[str]:
        """What the user should know."""
        if self.facts_lost:
            yield f"{self.facts_lost} records of files and paths found no room in a ring: some names may lack (--ring)"
        if self.unreadable:
            yield f"{self.unreadable} paths or arrays were not in their program's memory when they were looked at"
        if self.unpaired:
            yield f"{self.unpaired} calls were taken off their CPU unseen: their times are right, their CPU may not be"
        if self.foreign:
            yield (
                f"{self.foreign} calls were not looked at: they are of x32 programs, or of 32-bit ones on a machine "
                "whose numbers of such calls lo2io does not know"
            )
        if self.missed_runs:
            yield f"the kernel did not run a program {self.missed_runs} times: so many calls or facts are missing"


class Kernel:
    """Programs that are loaded and attached, switched off; made by :func:`open_kernel`.

    Attributes:
        cpus: Those that have rings.
        rings: Of records.
        ring_bytes: Of each.
        samples: The events of tracepoints, beside calls, that the programs record.
    """

    def __init__(self, programs: Programs, request: KernelRequest, calls: Sequence[KernelCall]) -> None:
        self.cpus = request.cpus
        self.ring_bytes = request.ring_bytes
        self.rings: list[KernelRing] = []
        self.samples = tuple(sample.name for sample in programs.samples)
        self._places: list[tuple[int, bool]] = []
        self._programs = programs
        self._events: list[int] = []
        events = [(event, index) for index, call in enumerate(calls) for event in (call.enter, call.leave)]
        self._counters = {
            event.name: 2 * call + (event is calls[call].leave) for event, call in events if event and request.calls
        }
        try:
            for cpu in request.cpus:
                self._map_rings(cpu)
            for index, call in enumerate(calls):
                if programs.needs_event(index):
                    self._attach(call, index)
            programs.attach_raw()
        except BaseException:
            self.close()
            raise

    @property
    def names(self) -> tuple[str, ...]:
        """The events that the programs record instead of perf events."""
        return (*self._counters, *self.samples)

    def ring_place(self, index: int) -> tuple[int, bool]:
        """A ring's CPU, and whether it is for events of tracepoints; else it is for calls."""
        return self._places[index]

    def _map_rings(self, cpu: int) -> list[int]:
        """Map a CPU's rings; their places among the rings."""
        fds = [(self._programs.ring_fd(cpu), False)]
        if self.samples:
            fds.append((self._programs.sample_ring_fd(cpu), True))
        for fd, of_samples in fds:
            ring = KernelRing(fd, self.ring_bytes)
            self._places.append((cpu, of_samples))  # before the ring: whoever drains that asks whose it is
            self.rings.append(ring)
        return list(range(len(self.rings) - len(fds), len(self.rings)))

    def _attach(self, call: KernelCall, index: int) -> None:
        for event, is_entry in ((call.enter, True), (call.leave, False)):
            if event is None:
                continue
            attr = abi.EventAttr(type=abi.TYPE_TRACEPOINT, config=event.id, flags=abi.DISABLED)
            try:
                fd = abi.event_open(attr, -1, self.cpus[0])
            except OSError as error:
                remedy = "give lo2io CAP_PERFMON, or run it with sudo"
                raise AccessError(f"open {event.name}", error.strerror or str(error), remedy) from error
            self._events.append(fd)
            self._programs.attach(fd, index, entry=is_entry)

    def add_cpu(self, cpu: int) -> list[int]:
        """Give a CPU rings that was not there before.

        Returns:
            Their places among the rings.

        Raises:
            CaptureError: There is no room for them: what happens there is counted as lost.
        """
        self._programs.add_cpu(cpu)
        places = self._map_rings(cpu)
        self.cpus = (*self.cpus, cpu)
        return places

    def select(self, pid: int) -> None:
        """Record a process, and all it starts from now on."""
        self._programs.select(pid)

    def selected(self) -> Iterator[int]:
        """The processes that are recorded and live."""
        return self._programs.selected()

    def switch(self, *, on: bool) -> None:
        """Record, or do not: as it begins. Programs that run just now may go on, see :meth:`settle`."""
        self._programs.switch(on=on, wait=False)

    def settle(self) -> None:
        """Wait until no program writes any more; they are off."""
        self._programs.settle()

    def iter_fds(self) -> Iterator[int]:
        """Everything whose last closing takes the kernel long."""
        yield from self._events

    def pending(self) -> dict[int, bytes]:
        """CPU → the record of a call that is running there; the programs are switched off."""
        return self._programs.pending()

    def pending_samples(self) -> dict[int, bytes]:
        """CPU → the record of events that found no room at last; likewise."""
        return self._programs.pending_samples()

    def read_counts(self, cpus: Sequence[int]) -> list[EventCounts]:
        """What was counted of each event on these CPUs; nothing on those that were given no ring."""
        table = self._programs.read_counts()
        column = {cpu: place for place, cpu in enumerate(self._programs.cpus)}
        found = []
        for name, number in self._counters.items():
            row = [table[number][column[cpu]] if cpu in column else (0, 0, 0) for cpu in cpus]
            counts = tuple(count - left_out for count, _, left_out in row)
            found.append(EventCounts(name, counts, tuple(lost for _, lost, _ in row)))
        for name, of_cpus in self._programs.read_sample_counts().items():
            counted = [of_cpus[column[cpu]] if cpu in column else (0, 0) for cpu in cpus]
            found.append(EventCounts(name, *zip(*counted, strict=True)))
        return found

    def count_left_out(self) -> int:
        """Calls that the filter left out."""
        table = self._programs.read_counts()
        exits = [number for number in self._counters.values() if number % 2]
        return sum(left_out for number in exits for _, _, left_out in table[number])

    def count_all(self) -> tuple[int, int]:
        """Events so far that were to be written, and how many of them found no room."""
        table = self._programs.read_counts()
        rows = [each for number in self._counters.values() for each in table[number]]
        rows += [(*each, 0) for of_cpus in self._programs.read_sample_counts().values() for each in of_cpus]
        return sum(count - left_out for count, _, left_out in rows), sum(lost for _, lost, _ in rows)

    def read_losses(self) -> KernelLosses:
        """What went wrong so far."""
        rows = self._programs.read_misses()
        facts_lost, unreadable, unpaired = (sum(row[place] for row in rows) for place in range(3))
        return KernelLosses(
            facts_lost, unreadable, unpaired, self._programs.missed_runs(), self._programs.count_foreign()
        )

    def detach(self) -> None:
        """Unmap the rings and detach the programs; a second time does nothing. The events stay open."""
        for ring in self.rings:
            ring.close()
        self._programs.close()

    def close(self) -> None:
        """Give up all, as if it had never been; a second time does nothing."""
        self.detach()
        for fd in self._events:
            os.close(fd)
        self._events = []


def open_kernel(request: KernelRequest) -> Kernel:
    """Load and attach the programs, switched off.

    Raises:
        AccessError: The kernel refuses them, or what they need is not there; nothing of them is left.
        CaptureError: Likewise.
    """
    calls = plan_calls(request.events, request.catalog, request.left_out.droppable)
    tells_news_only = not left_out(request.catalog.calls, ENDING, {event.name for event in request.events})
    config = BpfConfig(
        recorder=os.getpid(),
        calls=request.calls,
        all_tasks=request.all_tasks,
        cgroup=request.cgroup,
        facts=1 if tells_news_only else lib.LO2_FACTS_ALWAYS,
        min_latency_ns=request.left_out.min_latency_ns,
        min_bytes=request.left_out.min_bytes,
        devices=request.left_out.devices,
        asks=plan_opcodes(request.catalog.opcodes),
        samples=plan_samples(request.events, request.catalog, request.filters) if request.calls else (),
    )
    programs = load_programs(config, [call.spec for call in calls], request.cpus, request.ring_bytes)
    try:
        return Kernel(programs, request, calls)
    except OSError as error:
        raise CaptureError(
            "map the rings of the programs in the kernel", error.strerror or str(error), "use --backend perf"
        ) from error
