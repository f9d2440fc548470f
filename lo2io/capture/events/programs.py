"""lo2io's programs in the kernel during a recording: calls and options in, records in mapped buffers out.

With the hook ``raw``, one pair of tracepoints shows the programs every call with a known number. For other calls, and
for all calls with the hook ``single``, programs are attached to the call's own tracepoints through perf events. Such an
event is bound to one CPU and never enabled, for it only holds the program, which runs on every CPU. Each CPU has a
buffer for calls, and a second one if events of tracepoints or records of layers are written.
"""

from __future__ import annotations

import contextlib
import os
from dataclasses import field
from fcntl import ioctl
from typing import TYPE_CHECKING

from lo2io.bpf import kept
from lo2io.bpf.calls import plan_calls, plan_opcodes
from lo2io.bpf.loader import BpfConfig, load_programs
from lo2io.bpf.samples import plan_samples
from lo2io.capture.events.bpf_ring import Bell, KernelRing
from lo2io.capture.options import RAW, SINGLE
from lo2io.catalog.catalog import ENDING, left_out
from lo2io.errors import AccessError, CaptureError
from lo2io.frozen import dataclass
from lo2io.kernel import abi, procfs
from lo2io.kernel.symbols import name_functions
from lo2io.model import CallFilter, EventCounts, KernelStack, UserStack
from lo2io.model.layers import FAULTS, SlowCalls
from lo2io.native._lib import lib

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from lo2io.bpf.calls import KernelCall
    from lo2io.bpf.loader import CountsAt, Programs
    from lo2io.catalog.catalog import Catalog
    from lo2io.model.events import Event

EVERYTHING = CallFilter()
FUNCTIONS = "functions"
"""The kind of file that keeps names of the kernel's functions."""


@dataclass(frozen=True, slots=True)
class KernelRequest:
    """The task of the programs.

    Attributes:
        events: The recorded events.
        catalog: The meaning of the events.
        cpus: CPUs that get a buffer.
        ring_bytes: Size of each buffer, a power of two of at least a page.
        calls: True: the programs record calls. False: they only tell facts that tracepoints do not tell.
        hook: Where the programs see the calls that they record: ``raw`` or ``single``.
        all_tasks: True: record every task except lo2io's. False: record selected tasks and all that they start.
        cgroup: Folder of the only cgroup (v2) that is recorded; None: all are.
        layers: Layers that the programs record, of :data:`~lo2io.model.layers.LAYERS`. The kernel has their
            tracepoints.
        slow_calls: The calls of which the layer ``stacks`` takes the program's stack.
        left_out: The calls that the programs leave out.
        filters: Event → its filter. Events with a filter that no program supports stay perf samples.
    """

    events: tuple[Event, ...]
    catalog: Catalog
    cpus: tuple[int, ...]
    ring_bytes: int
    calls: bool
    all_tasks: bool
    cgroup: Path | None = None
    hook: str = RAW
    layers: tuple[str, ...] = ()
    slow_calls: SlowCalls = field(default_factory=SlowCalls)
    left_out: CallFilter = EVERYTHING
    filters: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class KernelLosses:
    """Counts of failures in the programs, over all CPUs."""

    facts_lost: int
    """Records of facts (of files, paths, sleeps and others) that found a full buffer."""
    unreadable: int
    """Strings and arrays that could not be read, because they were not in memory (swapped out, say)."""
    unpaired: int
    """Entries of calls whose thread left its CPU unseen."""
    missed_runs: int
    """Number of times that a program did not run, because one ran on the same CPU already."""
    foreign: int = 0
    """Calls through call tables with unknown numbers."""
    stackless: int = 0
    """Slow calls without a stack of their program."""
    uncopied: int = 0
    """Slow calls whose stack was not copied, for the buffer was half full."""

    def notices(self) -> Iterator[str]:
        """Notices about these failures for the user."""
        if self.facts_lost:
            what = "names, waits, stacks or requests of libaio may be missing (--ring)"
            yield f"{self.facts_lost} records beside those of events found a full buffer: {what}"
        if self.unreadable:
            yield f"{self.unreadable} paths or arrays of calls could not be read: they were not in memory"
        if self.unpaired:
            yield f"{self.unpaired} calls changed their CPU unseen: their times are right, their CPU may be wrong"
        if self.foreign:
            yield (
                f"{self.foreign} calls were not recorded: they are of x32 programs, or of 32-bit programs on a machine "
                "for which lo2io does not know the numbers of such calls"
            )
        if self.stackless:
            yield f"{self.stackless} slow calls have no stack: it could not be read, or there are too many"
        if self.uncopied:
            yield (
                f"{self.uncopied} stacks of slow calls were not copied, for the buffer was half full: these calls have "
                "frames by frame pointers alone (--ring, or fewer by --stacks)"
            )
        if self.missed_runs:
            yield f"the kernel did not run a program {self.missed_runs} times: as many calls or facts are missing"


class Kernel:
    """Loaded and attached programs, at first switched off. :func:`open_kernel` makes the object.

    Attributes:
        cpus: CPUs that have buffers.
        rings: Buffers of records.
        bell: Wakes the reader of the buffers.
        ring_bytes: Size of each buffer.
        samples: The events of other tracepoints than calls' that the programs record.
        hook: The request's hook; empty if the programs record no calls.
        layers: The request's layers whose programs fit this kernel.
    """

    def __init__(self, programs: Programs, request: KernelRequest, calls: Sequence[KernelCall]) -> None:
        self.cpus = request.cpus
        self.ring_bytes = request.ring_bytes
        self.rings: list[KernelRing] = []
        self.bell = Bell(programs.bell_fd)
        self.samples = tuple(sample.name for sample in programs.samples)
        self._places: list[tuple[int, bool]] = []
        self._programs = programs
        self._events: list[int] = []
        self._counting: dict[tuple[str, int], list[int]] = {}
        self._faults: dict[int, int] = {}
        events = [(event, index) for index, call in enumerate(calls) for event in (call.enter, call.leave)]
        self._counters = {
            event.name: 2 * call + (event is calls[call].leave) for event, call in events if event and request.calls
        }
        self.hook = request.hook if self._counters else ""
        self.layers = programs.layers
        try:
            for cpu in request.cpus:
                self._map_rings(cpu)
            for index, call in enumerate(calls):
                if programs.needs_event(index):
                    self._attach(call, index)
            for cpu in request.cpus:
                self._count(cpu)
            programs.attach_raw()
        except BaseException:
            self.close()
            raise

    @property
    def names(self) -> tuple[str, ...]:
        """The events that the programs record instead of perf events."""
        return (*self._counters, *self.samples)

    @property
    def has_events(self) -> bool:
        """True if there are buffers for events of tracepoints, and for records of layers."""
        return self._programs.has_events

    def ring_place(self, index: int) -> tuple[int, bool]:
        """A buffer's CPU, and True if the buffer is for events of tracepoints, False if it is for calls."""
        return self._places[index]

    def rings_of(self, cpu: int) -> tuple[int, ...]:
        """The indices of a CPU's buffers."""
        return tuple(index for index, (place, _) in enumerate(self._places) if place == cpu)

    def _map_rings(self, cpu: int) -> None:
        """Map a CPU's buffers."""
        fds = [(self._programs.ring_fd(cpu), False)]
        if self._programs.has_events:
            fds.append((self._programs.sample_ring_fd(cpu), True))
        for fd, of_samples in fds:
            ring = KernelRing(fd, self.ring_bytes)
            self._places.append(
                (cpu, of_samples)
            )  # before the buffer is listed, because the drain thread asks for its CPU
            self.rings.append(ring)

    def _attach(self, call: KernelCall, index: int) -> None:
        for event, is_entry in ((call.enter, True), (call.leave, False)):
            if event is None:
                continue
            self._programs.attach(self._open(event.name, event.id, self.cpus[0]), index, entry=is_entry)

    def _count(self, cpu: int) -> None:
        """Count the events of a CPU that programs may miss. A CPU that comes back gets new counters."""
        for sample in self._programs.samples:
            if sample.counted:
                fd = self._open(sample.name, sample.type, cpu)
                self._counting.setdefault((sample.name, cpu), []).append(fd)
                self._programs.count_by(fd, sample, cpu)
        if FAULTS in self._programs.layers:
            attr = abi.EventAttr(type=abi.TYPE_SOFTWARE, config=abi.COUNT_SW_PAGE_FAULTS_MAJ, sample_period=1)
            self._faults[cpu] = self._open_event("page faults", attr, cpu)
            self._programs.attach_faults(self._faults[cpu])

    def _open(self, name: str, number: int, cpu: int) -> int:
        """Open a perf event that takes no samples. It is disabled, and this object closes it."""
        attr = abi.EventAttr(type=abi.TYPE_TRACEPOINT, config=number, read_format=abi.FORMAT_ID, flags=abi.DISABLED)
        return self._open_event(name, attr, cpu)

    def _open_event(self, name: str, attr: abi.EventAttr, cpu: int) -> int:
        try:
            fd = abi.event_open(attr, -1, cpu)
        except OSError as error:
            remedy = "give lo2io CAP_PERFMON, or run it with sudo"
            raise AccessError(f"open {name}", error.strerror or str(error), remedy) from error
        self._events.append(fd)
        return fd

    def add_cpu(self, cpu: int) -> None:
        """Give buffers to a CPU that has come.

        Raises:
            CaptureError: There is no memory for them, or the kernel refuses the perf events that count. Events on this
                CPU are then counted as lost.
            OSError: A buffer cannot be mapped.
        """
        self._programs.add_cpu(cpu)
        self._map_rings(cpu)
        self.count_again(cpu)
        self.cpus = (*self.cpus, cpu)

    def count_again(self, cpu: int) -> None:
        """Let a CPU that has come count its events from now on.

        Raises:
            CaptureError: The kernel refuses the perf events.
        """
        try:
            self._count(cpu)
        except AccessError as error:
            raise CaptureError(error.tried, error.answer, error.remedy) from error
        for (_, place), fds in self._counting.items():
            if place == cpu:
                ioctl(fds[-1], abi.IOC_ENABLE)

    def count_no_more(self, cpu: int) -> None:
        """Disable the counters of a CPU, before :meth:`count_again` replaces them."""
        fds = [fds[-1] for (_, place), fds in self._counting.items() if place == cpu]
        for fd in (*fds, *(fd for place, fd in self._faults.items() if place == cpu)):
            ioctl(fd, abi.IOC_DISABLE)

    def select(self, pid: int) -> None:
        """Record a process, and all that it starts from now on."""
        self._programs.select(pid)

    def selected(self) -> Iterator[int]:
        """The recorded processes that are alive."""
        return self._programs.selected()

    def switch(self, *, on: bool) -> None:
        """Switch recording on or off. Programs that run at this moment may still write, see :meth:`settle`.

        Counted events end operations, or wake them. They are on before all others, and off after them: otherwise an
        operation could seem to be under way for ever.
        """
        if not on:
            self._programs.switch(on=False, wait=False)
        for fds in self._counting.values():
            ioctl(fds[-1], abi.IOC_ENABLE if on else abi.IOC_DISABLE)
        if on:
            self._programs.switch(on=True, wait=False)

    def settle(self) -> None:
        """Wait until no program writes any more. Call this after switching off."""
        self._programs.settle()

    def iter_fds(self) -> Iterator[int]:
        """Descriptors that the kernel takes long to close."""
        yield from self._events

    def pending(self) -> dict[int, bytes]:
        """CPU → framed records of the last losses and of a call that runs. Call this when the programs are off."""
        return self._programs.pending()

    def pending_samples(self) -> dict[int, bytes]:
        """CPU → framed records of the last losses and of open runs of pages. Call this when the programs are off."""
        return self._programs.pending_samples()

    def read_counts(self, cpus: Sequence[int]) -> list[EventCounts]:
        """The counts of each event on these CPUs. CPUs without a buffer have none."""
        table = self._programs.read_counts()
        column = {cpu: place for place, cpu in enumerate(self._programs.cpus)}
        found = []
        for name, number in self._counters.items():
            row = [table[number][column[cpu]] if cpu in column else (0, 0, 0) for cpu in cpus]
            counts = tuple(count - left_out for count, _, left_out in row)
            found.append(EventCounts(name, counts, tuple(lost for _, lost, _ in row)))
        for name, of_cpus in self._programs.read_sample_counts().items():
            counted = [of_cpus[column[cpu]] if cpu in column else (0, 0) for cpu in cpus]
            numbers, lost = zip(*counted, strict=True)
            if (name, self.cpus[0]) in self._counting:
                numbers = tuple(self._count_by_perf(name, cpu) for cpu in cpus)
            found.append(EventCounts(name, numbers, lost))
        return found

    def _count_by_perf(self, name: str, cpu: int) -> int:
        return abi.sum_counts(self._counting.get((name, cpu), ()), has_lost=False)[0]

    def count_records(self, index: int) -> tuple[int, dict[str, CountsAt]]:
        """Count the events that have records in one buffer, up to a position before which all records are finished.

        Returns:
            The position, and each event's counts there.

        Raises:
            CaptureError: A perf event's count cannot be read.
            BlockingIOError: A program has lost its CPU amid its work.
        """
        cpu, of_samples = self._places[index]
        places = {sample.name: sample.place for sample in self._programs.samples} if of_samples else self._counters
        counting = {places[name]: fds for (name, of), fds in self._counting.items() if of == cpu and of_samples}
        memory = self.rings[index].memory
        position, found = self._programs.count_records(cpu, memory, counting, of_samples=of_samples)
        return position, {name: found[place] for name, place in places.items()}

    def begin_window(self, cpu: int) -> None:
        """Let the programs on a CPU tell each file again. Call this at a border, on that CPU."""
        self._programs.begin_window(cpu)

    def take_losses(self, index: int) -> bytes:
        """The record about the last events that found this buffer full. Call this on the buffer's CPU."""
        cpu, of_samples = self._places[index]
        return self._programs.take_losses(cpu, of_samples=of_samples)

    def count_left_out(self) -> int:
        """The number of calls that the filter left out."""
        table = self._programs.read_counts()
        exits = [number for number in self._counters.values() if number % 2]
        return sum(left_out for number in exits for _, _, left_out in table[number])

    def count_all(self) -> tuple[int, int]:
        """The number of events so far, and how many of them found a full buffer. Calls left out do not count."""
        table = self._programs.read_counts()
        rows = [each for number in self._counters.values() for each in table[number]]
        rows += [(*each, 0) for of_cpus in self._programs.read_sample_counts().values() for each in of_cpus]
        return sum(count - left_out for count, _, left_out in rows), sum(lost for _, lost, _ in rows)

    def read_losses(self) -> KernelLosses:
        """The counts of failures so far."""
        rows = self._programs.read_misses()
        facts_lost, unreadable, unpaired = (sum(row[place] for row in rows) for place in range(3))
        return KernelLosses(
            facts_lost,
            unreadable,
            unpaired,
            self._programs.missed_runs(),
            self._programs.count_foreign(),
            *self._programs.count_stackless(),
        )

    def read_stacks(self) -> tuple[KernelStack, ...]:
        """The kernel stacks of threads that slept, with the names that the kernel gives to addresses now."""
        stacks = self._programs.read_stacks()
        if not stacks:
            return ()
        names = _name_functions({address for stack in stacks.values() for address in stack})
        return tuple(
            KernelStack(number, tuple(names.get(address, "") for address in stack)) for number, stack in stacks.items()
        )

    def read_user_stacks(self) -> tuple[UserStack, ...]:
        """The stacks of programs in slow calls. Their files and functions are looked up when the spool is converted."""
        return self._programs.read_user_stacks()

    def detach(self) -> None:
        """Unmap the buffers and detach the programs. A second call does nothing. The events stay open."""
        for ring in self.rings:
            ring.close()
        self.bell.close()
        self._programs.close()

    def close(self) -> None:
        """Detach the programs and close the events. A second call does nothing."""
        self.detach()
        for fd in self._events:
            os.close(fd)
        self._events = []


def _name_functions(addresses: set[int]) -> dict[int, str]:
    """The names of the kernel's functions around these addresses. Names that cannot be known are left out.

    The kernel takes a tenth of a second to list its functions, so those that last until the next boot are kept.
    """
    with contextlib.suppress(OSError):
        key = [procfs.read_boot_id(), *kept.kernel()]  # the kernel chooses its addresses when it boots
        names: dict[int, str] = kept.read(FUNCTIONS, key) or {}
        if unknown := addresses - names.keys():
            found = name_functions(unknown)
            lasting = {address: function.name for address, function in found.items() if function.is_lasting}
            if lasting and kept.may_keep():
                kept.keep(FUNCTIONS, key, names | lasting)
            names |= {address: function.name for address, function in found.items()}
        return names
    return {}


def open_kernel(request: KernelRequest) -> Kernel:
    """Load and attach the programs, switched off. After an error, nothing of them is left.

    Raises:
        AccessError: The kernel refuses the programs, or lacks something that they need.
        CaptureError: The same, for want of memory or another resource.
    """
    calls = plan_calls(request.events, request.catalog, request.left_out.droppable)
    tells_news_only = not left_out(request.catalog.calls, ENDING, {event.name for event in request.events})
    config = BpfConfig(
        recorder=os.getpid(),
        calls=request.calls,
        single=request.hook == SINGLE,
        all_tasks=request.all_tasks,
        cgroup=request.cgroup,
        facts=1 if tells_news_only else lib.LO2_FACTS_ALWAYS,
        min_latency_ns=request.left_out.min_latency_ns,
        min_bytes=request.left_out.min_bytes,
        devices=request.left_out.devices,
        asks=plan_opcodes(request.catalog.opcodes),
        samples=plan_samples(request.events, request.catalog, request.filters) if request.calls else (),
        layers=request.layers,
        slow_from_ns=request.slow_calls.from_ns,
        slow_one_of=request.slow_calls.one_of,
    )
    programs = load_programs(config, [call.spec for call in calls], request.cpus, request.ring_bytes)
    try:
        return Kernel(programs, request, calls)
    except OSError as error:
        raise CaptureError(
            "map the buffers of the programs in the kernel", error.strerror or str(error), "use --backend perf"
        ) from error
