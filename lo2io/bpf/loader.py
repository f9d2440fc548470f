"""Configures, loads and attaches the programs of ``lo2io/bpf/programs``, and reads their counts.

In: the calls and events to record, as numbers. Out: buffers that the programs write and the recording reads, counts,
and calls that are still running when the programs stop. Each CPU has a buffer for calls, and a second one if events of
tracepoints or records of layers are written. This module does not know the meaning of records.

Counts, the switch and the selected processes are the programs' own memory, mapped here. So reading them needs no
bpf(2), which would keep programs from running on its CPU at that time (bpf_disable_instrumentation in
include/linux/bpf.h).

Structures and constants are those of ``lo2io/bpf/programs/config.h`` and ``records.h``; bpf(2),
include/uapi/linux/bpf.h.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import mmap
import os
import re
import time
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from lo2io.bpf import libbpf
from lo2io.bpf.prepared import PreparedObject
from lo2io.bpf.refusals import refused
from lo2io.bpf.samples import PLACES
from lo2io.catalog.call_numbers import NO_NUMBER, knows_compat
from lo2io.errors import AccessError, CaptureError
from lo2io.frozen import dataclass
from lo2io.model.layers import FAULTS, LAYERS, SLOW_FROM_NS, STACK_FROM_NS, STACKS, WAITS, any_among_events
from lo2io.model.recording import UserStack
from lo2io.native._lib import ffi, lib
from lo2io.native.records import framed, pack

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from lo2io.bpf.samples import BpfSample
    from lo2io.model import CompatArgument, CompatCall

OBJECT = Path(__file__).parent / "programs" / "lo2io.bpf.o"
ROOT = Path("/")
_ENTER, _EXIT = "lo2_enter", "lo2_exit"
_CALLS = {"sys_enter": "lo2_raw_enter", "sys_exit": "lo2_raw_exit"}
_SWITCH = {"sched_switch": "lo2_switch_task"}
_FOLLOW = {"sched_process_fork": "lo2_fork"}
_LIVES = {"sched_process_exec": "lo2_exec", "sched_process_exit": "lo2_exit_task"}
_RINGS = {
    "io_uring_submit_req": "lo2_submit",
    "io_uring_complete": "lo2_complete",
    "io_uring_register": "lo2_register",
}
_RAW = {**_SWITCH, **_FOLLOW, **_LIVES, **_RINGS, **_CALLS}
"""Raw tracepoint → its program, in the order of attaching. If a program records the tracepoint's events, it replaces
this program and also does this program's work."""
_BOTH = {"sched_switch": "lo2_waits_sched_switch"}
"""Tracepoint → the program of a layer there. The program that records the tracepoint's events does its work, too."""
_OPTIONAL = {layer.programs[event.partition(":")[2]] for layer in LAYERS.values() for event in layer.optional}
"""Untyped, too: programs of layers whose tracepoints a kernel may lack. An interrupt during such a program may spin
for a lock. The kernel then does not run the program a second time, and nothing is lost by that."""
_OF_MODULES = {program for layer in LAYERS.values() if not layer.typed for program in layer.programs.values()}
_UNTYPED = {*_OPTIONAL, *_OF_MODULES, *_SWITCH.values(), *_FOLLOW.values(), *_LIVES.values(), *_RINGS.values()}
_FAULT_OVER = "lo2_faults_over_event"
_FITS, _LAYERS_FIT = "lo2_fits", "lo2_layers_fit"
_BLOCK_ERRORS = [
    0,
    errno.EOPNOTSUPP,
    errno.ETIMEDOUT,
    errno.ENOSPC,
    errno.ENOLINK,
    errno.EREMOTEIO,
    errno.EBADE,
    errno.ENODATA,
    errno.EILSEQ,
    errno.ENOMEM,
    errno.EIO,
    errno.EREMCHG,
    errno.EAGAIN,
    errno.EBUSY,
    errno.ETOOMANYREFS,
    errno.EOVERFLOW,
    errno.ENODEV,
    errno.ETIME,
    errno.EIO,
    errno.EINVAL,
]
"""The errno of each status of a block request, since Linux 6.10."""
_MAX_UNDER_WAY = 4
"""The most programs of a CPU that are at work at one time: of a task, a softirq, an interrupt, an NMI."""
_PID_BITS = 22
"""``PID_MAX_LIMIT`` of include/linux/threads.h."""


@dataclass(frozen=True, slots=True)
class BpfCall:
    """A system call, and its arguments that are read. Arguments are numbered from 1; 0: the call has none."""

    enter_event: int
    """``common_type`` of the call's sys_enter."""
    exit_event: int
    enter_index: int
    """Index of the entry's counter."""
    exit_index: int
    flags: int
    """Bits ``LO2_CALL_RETURNS_FD`` and so on."""
    nr_args: int
    fd: int = 0
    fd2: int = 0
    path: int = 0
    path2: int = 0
    dirfd: int = 0
    dirfd2: int = 0
    vector: int = 0
    """Argument with a pointer to iovecs."""
    vector_count: int = 0
    how: int = 0
    """Argument with a pointer to ``struct open_how``."""
    how_size: int = 0
    iocbs: int = 0
    """Argument with a pointer to pointers to iocbs."""
    iocbs_count: int = 0
    events: int = 0
    """Argument with a pointer to the ``struct io_event`` that the call returns."""
    context: int = 0
    """Argument with the ``aio_context_t`` of these events."""
    count: int = 0
    """Argument with the number of bytes asked for."""
    filled: int = 0
    """Bit n: the kernel may write where argument n + 1 points."""
    number: int = NO_NUMBER
    """The system call's number, see :func:`~lo2io.catalog.call_numbers.call_number`."""
    compat: tuple[CompatCall, ...] = ()
    """The calls of 32 bit programs that do the same."""


@dataclass(frozen=True, slots=True)
class BpfConfig:
    """The configuration of the programs. It is constant while they are loaded."""

    recorder: int
    """The recorder's process, which is never recorded."""
    calls: bool = True
    """True: the programs write calls. False: they write only facts, for calls that are perf samples."""
    single: bool = False
    """True: each call is seen at its own two tracepoints. False: calls of known number are seen at the raw pair."""
    all_tasks: bool = True
    """True: record all tasks. False: record the processes that :meth:`Programs.select` names, and their children."""
    cgroup: Path | None = None
    """Folder of a cgroup v2: record only tasks in it and below. None: record tasks of all cgroups."""
    facts: int = 1
    """Facts about descriptors, paths and requests are written. 1: only new facts; ``LO2_FACTS_ALWAYS``: with every
    call."""
    min_latency_ns: int = 0
    """Droppable calls that take less time are left out."""
    min_bytes: int = 0
    """Droppable calls that ask for fewer bytes are left out."""
    devices: tuple[int, ...] = ()
    """Droppable calls on files of other devices are left out; empty: none is. The kernel's ``major << 20 | minor``."""
    asks: tuple[int, ...] = ()
    """Opcode of io_uring → bits ``LO2_ASKS_FILE`` and so on."""
    samples: tuple[BpfSample, ...] = ()
    """Events of tracepoints that the programs record."""
    layers: tuple[str, ...] = ()
    """Layers whose programs run, too."""
    slow_from_ns: int = SLOW_FROM_NS
    """The layer ``stacks`` takes the stacks of calls that last this long ..."""
    slow_one_of: int = 1
    """... of one in so many of them on each CPU."""


@dataclass(frozen=True, slots=True)
class CountsAt:
    """The counts of an event at a position of a buffer. Events that the filter left out do not count."""

    count: int
    """The least that the count may be."""
    slack: int
    """The count may be larger by up to this number."""
    lost: int

    @classmethod
    def between(cls, before: Any, after: Any) -> Self:
        """From two readings (``struct lo2_bpf_counts``): the position's counts lie between them."""
        least = before.count - before.left_out
        slack = after.count - after.left_out - least
        if not slack and before.lost == after.lost:
            return cls(least, 0, before.lost)
        # A program that counts is not always done with its record.
        under_way = _MAX_UNDER_WAY + after.lost - before.lost
        return cls(least - under_way, slack + under_way, before.lost)

    def counted_by_perf(self, count: int) -> Self:
        """The same with perf's count, which was read meanwhile."""
        return replace(self, count=count - self.slack, slack=2 * self.slack)


class Programs:
    """The programs in the kernel, from loading to :meth:`close`, which also detaches them."""

    def __init__(self, config: BpfConfig, cpus: Sequence[int], ring_bytes: int) -> None:
        self._config = config
        self._calls: Sequence[BpfCall] = ()
        self._cpus = tuple(cpus)
        self._ring_bytes = ring_bytes
        self._object: PreparedObject | None = None
        self._fds = contextlib.ExitStack()
        self._rings: dict[int, int] = {}
        self._nr_events = 0
        self.samples: tuple[BpfSample, ...] = ()
        """The requested events whose programs fit this kernel. The programs do not record the others."""
        self.layers: tuple[str, ...] = ()
        """The requested layers whose programs fit this kernel."""

    def load(self, calls: Sequence[BpfCall], possible: int) -> None:
        """Make maps and buffers, and have the programs verified. :func:`load_programs` calls this.

        Raises:
            OSError: The kernel or libbpf refuses.
            CaptureError: There are too many calls or devices.
        """
        config = self._config
        self._calls = calls
        self._object = made = PreparedObject(OBJECT)
        self._fds.callback(made.close)
        made.set_value(".rodata.lo2io", tell(config, calls, self._ring_bytes))
        made.set_entries("lo2_cpus", possible)
        made.set_entries("lo2_rings", lib.LO2_RINGS * possible)
        made.set_inner_bytes("lo2_rings", buffer_bytes(self._ring_bytes))
        made.set_entries("lo2_counters", lib.LO2_MAX_SAMPLED * possible)
        if WAITS in config.layers:
            made.set_entries("lo2_sleepers", lib.LO2_MAX_SLEEPERS)
            made.set_entries("lo2_stacks", lib.LO2_MAX_STACKS)
        if FAULTS in config.layers:
            made.set_entries("lo2_faults", lib.LO2_MAX_FAULTS)
        if STACKS in config.layers:
            made.set_entries("lo2_begun", lib.LO2_MAX_BEGUN)
            made.set_entries("lo2_user_stacks", lib.LO2_MAX_USER_STACKS)
        if not config.all_tasks:
            made.set_entries("lo2_selected", 1 << (_PID_BITS - lib.LO2_SELECTED_SHIFT))
        for program in self._unused():
            made.leave_out(program)
        made.set_maps("lo2_rings", {key: ring for cpu in self._cpus for key, ring in self._make_rings(cpu)})
        made.load()
        if config.samples:
            fits = libbpf.run(made.program_fd(_FITS))
            self.samples = tuple(sample for sample in config.samples if fits >> sample.place & 1)
        if config.layers:
            fits = libbpf.run(made.program_fd(_LAYERS_FIT))
            self.layers = tuple(name for name in config.layers if fits >> _layer_place(name) & 1)
        if config.cgroup is not None:
            folder = os.open(config.cgroup, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                libbpf.put_fd(made.map_fd("lo2_cgroup"), 0, folder)
            finally:
                os.close(folder)
        self._stride = made.value_bytes("lo2_cpus") + 7 & ~7
        self._memory = self._map("lo2_cpus", self._stride * possible)
        self._switch = self._map(".data.lo2io", ffi.sizeof("struct lo2_bpf_switch"))
        self._selected = None if config.all_tasks else self._map("lo2_selected", 1 << _PID_BITS)
        stacks_bytes = lib.LO2_MAX_STACKS * ffi.sizeof("struct lo2_bpf_stack")
        self._stacks = self._map("lo2_stacks", stacks_bytes) if WAITS in config.layers else None
        user_bytes = lib.LO2_MAX_USER_STACKS * ffi.sizeof("struct lo2_bpf_user_stack")
        self._user_stacks = self._map("lo2_user_stacks", user_bytes) if STACKS in config.layers else None
        self._nr_events = 1 + max((max(call.enter_index, call.exit_index) for call in calls), default=-1)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def needs_event(self, call: int) -> bool:
        """True if the programs see this call through perf events (:meth:`attach`), not by :meth:`attach_raw`.

        The raw pair knows calls by number only. If calls are perf samples, facts about them come from these samples'
        own events.
        """
        return self._config.single or not self._config.calls or self._calls[call].number < 0

    def attach(self, event_fd: int, call: int, *, entry: bool) -> None:
        """Run a program whenever a call that needs events begins or ends, on any CPU.

        Args:
            event_fd: A perf event of the call's sys_enter or sys_exit. It may be disabled.
            call: The call's place in ``calls``.
            entry: True if the event is the call's entry.

        Raises:
            AccessError: The kernel refuses.
        """
        self._link(_ENTER if entry else _EXIT, event_fd, call)

    def attach_faults(self, event_fd: int) -> None:
        """Let the layer ``faults`` see the page faults that a software event of perf samples.

        Raises:
            AccessError: The kernel refuses.
        """
        self._link(_FAULT_OVER, event_fd, 0)

    def _link(self, program: str, event_fd: int, cookie: int) -> None:
        try:
            link = libbpf.link_event(self._loaded.program_fd(program), event_fd, cookie)
        except OSError as error:
            raise refused("attach a kernel program to a perf event", error) from error
        self._fds.callback(os.close, link)

    def attach_raw(self) -> None:
        """Attach the programs that watch calls, switches, children and submissions, as far as the kernel has these.

        Raises:
            AccessError: The kernel refuses.
        """
        for name, program in [*self._attached().items(), *self._of_layers()]:
            typed = program not in _UNTYPED  # a typed program got its tracepoint when it was loaded
            try:
                link = libbpf.open_raw_tracepoint(None if typed else name, self._loaded.program_fd(program))
            except OSError as error:
                if error.errno == errno.ENOENT and (name in _RINGS or program in _OPTIONAL):
                    continue
                raise refused(f"attach a kernel program to {name}", error) from error
            self._fds.callback(os.close, link)

    def _attached(self) -> dict[str, str]:
        """Raw tracepoint → the program that runs there, in the order of attaching."""
        unused = self._unused()
        return {
            **{sample.tracepoint: sample.program for sample in self.samples},
            **{name: program for name, program in _RAW.items() if program not in unused},
        }

    def _of_layers(self) -> Iterator[tuple[str, str]]:
        """Raw tracepoint and program, for each program of the recorded layers."""
        unused = self._unused()
        for layer in self.layers:
            yield from ((name, program) for name, program in LAYERS[layer].programs.items() if program not in unused)

    def select(self, pid: int) -> None:
        """Record this process. Its later children are recorded, too."""
        assert self._selected is not None  # noqa: S101 # only called without all_tasks
        self._selected[pid] = 1

    def selected(self) -> Iterator[int]:
        """The living recorded processes: those selected, and all that they started."""
        assert self._selected is not None  # noqa: S101 # as above
        pid = self._selected.find(b"\x01")
        while pid >= 0:
            yield pid
            pid = self._selected.find(b"\x01", pid + 1)

    def switch(self, *, on: bool, wait: bool = True) -> None:
        """Switch counting and writing on or off; at first they are off.

        Without ``wait``, running programs may go on.
        """
        self._switch[:4] = int(on).to_bytes(4, "little")
        if wait and not on:
            self.settle()

    def settle(self) -> None:
        """Wait until no program writes any more. Call this after switching off."""
        libbpf.wait_for_programs()

    def add_cpu(self, cpu: int) -> None:
        """Give a buffer to a CPU that has come. From now on results per CPU include it, even if there is no buffer.

        Raises:
            CaptureError: The kernel has no memory for a buffer. Events on this CPU are then counted as lost.
        """
        if cpu not in self._cpus:
            self._cpus = (*self._cpus, cpu)
        try:
            libbpf.put_fds(self._loaded.map_fd("lo2_rings"), dict(self._make_rings(cpu)))
        except OSError as error:
            answer = os.strerror(error.errno or 0)
            raise CaptureError(f"make a buffer for CPU {cpu}", answer, "record again with smaller buffers") from error

    def count_by(self, event_fd: int, sample: BpfSample, cpu: int) -> None:
        """Compare a counted event with the count of a perf event, from now on. Uncounted events are not recorded.

        Args:
            event_fd: A perf event that counts the sample's tracepoint on this CPU. It counts before the programs run if
                it was opened before :meth:`attach_raw`. The programs hold it open.
            sample: An event with ``counted``.
            cpu: The CPU.
        """
        self._cpu(cpu).sampling.counted[sample.place] = 0
        libbpf.put_fd(self._loaded.map_fd("lo2_counters"), lib.LO2_MAX_SAMPLED * cpu + sample.place, event_fd)

    @property
    def cpus(self) -> tuple[int, ...]:
        """The CPUs of all results per CPU."""
        return self._cpus

    def ring_fd(self, cpu: int) -> int:
        """The buffer that programs on this CPU write: a map with a ``struct lo2_bpf_buffer``."""
        return self._rings[lib.LO2_RINGS * cpu + lib.LO2_RING_CALLS]

    def sample_ring_fd(self, cpu: int) -> int:
        """The CPU's buffer for events of tracepoints. It exists only if :attr:`has_events`."""
        return self._rings[lib.LO2_RINGS * cpu + lib.LO2_RING_EVENTS]

    @property
    def has_events(self) -> bool:
        """True if there are buffers for events of tracepoints and for records of layers."""
        return bool(self._config.samples or any_among_events(self._config.layers))

    @property
    def bell_fd(self) -> int:
        """A BPF ring buffer that becomes readable when a buffer is half full."""
        return self._loaded.map_fd("lo2_bell")

    @property
    def ring_bytes(self) -> int:
        """Size of each buffer's data."""
        return self._ring_bytes

    def read_counts(self) -> list[list[tuple[int, int, int]]]:
        """For each counter and each CPU of ``cpus``: numbers of events, of lost ones, of ones left out."""
        counts = [ffi.unpack(self._cpu(cpu).counts, self._nr_events) for cpu in self._cpus]
        return [[(each.count, each.lost, each.left_out) for each in of_event] for of_event in zip(*counts, strict=True)]

    def count_records(
        self, cpu: int, buffer: mmap.mmap, counters: Mapping[int, Sequence[int]], *, of_samples: bool
    ) -> tuple[int, list[CountsAt]]:
        """Count the events that have records in one buffer, up to a position before which all records are finished.

        Args:
            cpu: The CPU.
            buffer: The mapped buffer of :meth:`ring_fd` or :meth:`sample_ring_fd`.
            counters: Place of an event → perf events that count it, too. Their sum replaces the programs' count.
            of_samples: The buffer is for events of tracepoints.

        Returns:
            The position, and the counts there, by place.

        Raises:
            CaptureError: A perf event's count cannot be read.
            BlockingIOError: A program has lost its CPU amid its work.
        """
        number = lib.LO2_MAX_SAMPLED if of_samples else self._nr_events
        before, after = ffi.new("struct lo2_bpf_counts[]", number), ffi.new("struct lo2_bpf_counts[]", number)
        reads = ffi.new("lo2_counter[]", [(fd, place) for place, fds in counters.items() for fd in fds])
        at = ffi.new("lo2_counted *")
        with ffi.from_buffer("struct lo2_bpf_buffer *", buffer) as native:
            failed = lib.lo2_count_records(
                self._cpu(cpu), native, of_samples, number, before, after, reads, len(reads), at
            )
        if failed and ffi.errno == errno.EAGAIN:
            raise BlockingIOError(errno.EAGAIN, f"a program on CPU {cpu} does not finish its record")
        if failed:
            raise CaptureError("read an event's count", os.strerror(ffi.errno), "report this kernel")
        found = [CountsAt.between(*pair) for pair in zip(before, after, strict=True)]
        for place in counters:
            total = sum(each.count for each in reads if each.place == place)
            found[place] = found[place].counted_by_perf(total)
        if at.pending:
            enter = self._calls[at.pending - 1].enter_index
            found[enter] = replace(found[enter], count=found[enter].count - 1)
        return int(at.position), found

    def begin_window(self, cpu: int) -> None:
        """Let the programs on a CPU tell each file again. Call this at a border, on that CPU."""
        self._cpu(cpu).borders += 1

    def read_sample_counts(self) -> dict[str, list[tuple[int, int]]]:
        """Event → for each CPU of ``cpus``: number of events, and of lost ones."""
        counts = {cpu: self._cpu(cpu).sampling.counts for cpu in self._cpus}
        return {
            sample.name: [(each[sample.place].count, each[sample.place].lost) for each in counts.values()]
            for sample in self.samples
        }

    def read_misses(self) -> list[tuple[int, int, int]]:
        """For each CPU of ``cpus``: lost facts, unreadable memory, entries whose thread left the CPU unseen."""
        misses = [self._cpu(cpu).misses for cpu in self._cpus]
        return [(each.facts_lost, each.unreadable, each.unpaired) for each in misses]

    def count_foreign(self) -> int:
        """Calls of recorded processes through call tables with unknown numbers: x32, 32 bit programs on arm64."""
        foreign: int = sum(self._cpu(cpu).misses.foreign for cpu in self._cpus)
        return foreign

    def read_stacks(self) -> dict[int, tuple[int, ...]]:
        """Number of a kernel stack → its return addresses, the innermost first. Empty without the layer ``waits``."""
        if self._stacks is None:
            return {}
        stacks = ffi.cast("struct lo2_bpf_stack *", ffi.from_buffer(self._stacks))
        places = (place for place in range(lib.LO2_MAX_STACKS) if stacks[place].frames)
        return {place: tuple(ffi.unpack(stacks[place].addresses, stacks[place].frames)) for place in places}

    def read_user_stacks(self) -> tuple[UserStack, ...]:
        """The stacks of programs in slow calls. Empty without the layer ``stacks``."""
        if self._user_stacks is None:
            return ()
        stacks = ffi.cast("struct lo2_bpf_user_stack *", ffi.from_buffer(self._user_stacks))
        places = (place for place in range(lib.LO2_MAX_USER_STACKS) if stacks[place].frames)
        return tuple(user_stack(place, stacks[place]) for place in places)

    def count_stackless(self) -> tuple[int, int]:
        """Slow calls whose stack was not taken, or found no place; and those whose stack was not copied."""
        misses = [self._cpu(cpu).misses for cpu in self._cpus]
        return sum(each.stackless for each in misses), sum(each.uncopied for each in misses)

    def missed_runs(self) -> int:
        """Number of times that a program did nothing or did not run, because one ran on the same CPU already.

        Events that perf counts are left out: its count shows them.
        """
        skipped: int = sum(self._cpu(cpu).misses.skipped for cpu in self._cpus)
        names = {*({_ENTER, _EXIT} - self._unused()), *self._attached().values()}
        names |= set(dict(self._of_layers()).values()) - _OPTIONAL
        names -= {sample.program for sample in self.samples if sample.counted}
        return skipped + sum(libbpf.read_misses(self._loaded.program_fd(name)) for name in names)

    def pending(self) -> dict[int, bytes]:
        """CPU → records that the programs have not written yet, each with its frame.

        ``LOST`` counts the last records that found a full buffer. ``ENTER`` is a call that still runs. Call this after
        :meth:`switch` has switched off.
        """
        found = {}
        for cpu in self._cpus:
            of_cpu = self._cpu(cpu)
            records, call = self.take_losses(cpu, of_samples=False), of_cpu.slot.record
            if of_cpu.slot.occupied:
                head, args = call.head, bytes(ffi.buffer(call.args)[: 8 * call.nr_args])
                enter = pack("enter", head.time_ns, head.tid, event=head.event, nr_args=call.nr_args, tail=args)
                records += framed(enter)
            if records:
                found[cpu] = records
        return found

    def pending_samples(self) -> dict[int, bytes]:
        """The same for the buffers of events: CPU → ``LOST``, and runs of pages."""
        found = {}
        for cpu in self._cpus if self.has_events else ():
            records = self.take_losses(cpu, of_samples=True) + b"".join(map(framed, self._open_runs(cpu)))
            if records:
                found[cpu] = records
        return found

    def take_losses(self, cpu: int, *, of_samples: bool) -> bytes:
        """The record ``LOST`` about the last events that found a full buffer; empty if there are none.

        The programs will not write the record. Call this on that CPU, or after :meth:`switch` has switched off.
        """
        of_cpu, found = self._cpu(cpu), b""
        of_events = ((of_cpu.sampling.losing, lib.LO2_LOST_EVENTS), (of_cpu.sampling.of_layers, lib.LO2_LOST_ROWS))
        for losing, what in of_events if of_samples else ((of_cpu.losing, lib.LO2_LOST_EVENTS),):
            begin_ns = losing.begin_ns
            lost = lib.lo2_take_number(ffi.addressof(losing, "lost"))
            told = pack("lost", losing.end_ns, 0, event=what, begin_ns=begin_ns, lost=lost)
            found += framed(told) if lost else b""
        return found

    def _open_runs(self, cpu: int) -> list[bytes]:
        """The runs of pages (``struct lo2_bpf_run``) that were still open. They ended now, as far as is known."""
        runs = [ffi.addressof(run, "record") for run in self._cpu(cpu).cache.runs if run.record.pages]
        for run in runs:
            run.head.time_ns = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
        return [bytes(ffi.buffer(run)) for run in runs]

    def close(self) -> None:
        """Detach and unload all programs. Nothing may be read afterwards."""
        self._fds.close()

    @property
    def _loaded(self) -> PreparedObject:
        assert self._object is not None  # noqa: S101 # load_programs returns loaded ones only
        return self._object

    def _unused(self) -> set[str]:
        config = self._config
        unused = set[str]()
        needing = {self.needs_event(call) for call in range(len(self._calls))}
        if False not in needing:
            unused |= set(_CALLS.values())
        if True not in needing:
            unused |= {_ENTER, _EXIT}
        if not config.calls:
            unused |= set(_SWITCH.values())
        if config.all_tasks:
            unused |= set(_FOLLOW.values())
        if not config.facts:
            unused |= set(_RINGS.values())
        recording = {sample.tracepoint: sample.program for sample in config.samples}
        replaced = recording.keys() | {name for layer in config.layers for name in LAYERS[layer].programs}
        unused |= {program for name, program in _RAW.items() if name in replaced}
        unused |= {program for name, program in _BOTH.items() if name in recording}
        unused |= {f"lo2_on_{name}" for name in PLACES} - {*recording.values()}
        for layer in LAYERS.values():
            if layer.name not in config.layers:
                unused |= set(layer.programs.values())
        if FAULTS not in config.layers:
            unused.add(_FAULT_OVER)
        if not config.layers:
            unused.add(_LAYERS_FIT)
        return unused if config.samples else unused | {_FITS}

    def _make_rings(self, cpu: int) -> Iterator[tuple[int, int]]:
        """Make a CPU's buffers. Yields each buffer's place in the map of all buffers, and its file descriptor."""
        for use in (lib.LO2_RING_CALLS, lib.LO2_RING_EVENTS)[: 1 + self.has_events]:
            ring = libbpf.create_memory(buffer_bytes(self._ring_bytes))
            self._fds.callback(os.close, ring)
            key = lib.LO2_RINGS * cpu + use
            self._rings[key] = ring
            yield key, ring

    def _map(self, name: str, size: int) -> mmap.mmap:
        memory = mmap.mmap(self._loaded.map_fd(name), -(-size // mmap.PAGESIZE) * mmap.PAGESIZE)
        self._fds.callback(memory.close)
        return memory

    def _cpu(self, cpu: int) -> Any:
        """The ``struct lo2_bpf_cpu`` of a CPU. Programs may write it at any time."""
        return ffi.cast("struct lo2_bpf_cpu *", ffi.from_buffer(self._memory) + self._stride * cpu)


def load_programs(config: BpfConfig, calls: Sequence[BpfCall], cpus: Sequence[int], ring_bytes: int) -> Programs:
    """Load the programs. They are not attached yet, and switched off.

    Args:
        config: The configuration.
        calls: At most ``LO2_MAX_CALLS`` calls. :meth:`Programs.attach` names them by their place.
        cpus: CPUs that get a buffer.
        ring_bytes: Size of each buffer, a power of two of whole pages.

    Raises:
        AccessError: The programs were not built, libbpf is not installed, or the kernel refuses. Perf events can record
            instead.
        CaptureError: There are too many calls or devices.
    """
    if not OBJECT.is_file():
        raise AccessError(
            "load the kernel programs",
            "lo2io was built without them",
            "install clang and libbpf-dev, then install lo2io again",
        )
    if not (ROOT / "sys/kernel/btf/vmlinux").exists():
        raise AccessError(
            "load the kernel programs",
            "this kernel does not describe its types (/sys/kernel/btf/vmlinux)",
            "boot a kernel with CONFIG_DEBUG_INFO_BTF=y",
        )
    programs = _load(Programs(config, cpus, ring_bytes), calls)
    if (programs.samples, programs.layers) != (config.samples, config.layers):
        programs.close()  # where a sample's program does not fit, another one must do its further work
        fitting = replace(config, samples=programs.samples, layers=programs.layers)
        programs = _load(Programs(fitting, cpus, ring_bytes), calls)
    return programs


def _load(programs: Programs, calls: Sequence[BpfCall]) -> Programs:
    try:
        programs.load(calls, _read_possible())
    except OSError as error:
        programs.close()
        raise refused("load the kernel programs", error) from error
    except BaseException:
        programs.close()
        raise
    return programs


def buffer_bytes(ring_bytes: int) -> int:
    """Size of a buffer for so many bytes of records: with its head, and with room for a record at the end."""
    return int(lib.LO2_BUFFER_HEAD + ring_bytes + lib.LO2_BUFFER_SLACK)


def user_stack(number: int, stack: Any) -> UserStack:
    """A stack of a program; bytes of a build id that are missing in its file are zeroes.

    In code without frame pointers, the kernel takes any word for a frame pointer. No program has code in the upper half
    of the address space. So the stack ends before the first frame with such an address.
    """
    every = (stack.at[frame] for frame in range(stack.frames))
    frames = list(itertools.takewhile(lambda frame: frame.offset < 1 << 63, every))
    return UserStack(
        number,
        tuple(bytes(frame.build_id).hex() if frame.status == lib.LO2_FRAME_VALID else "" for frame in frames),
        tuple(frame.offset for frame in frames),
        stack.top,
        stack.beside,
    )


def tell(config: BpfConfig, calls: Sequence[BpfCall], ring_bytes: int) -> bytes:
    """The constants that the programs read.

    Raises:
        CaptureError: There are too many calls or devices.
    """
    if len(calls) > lib.LO2_MAX_CALLS or len(config.devices) > lib.LO2_MAX_DEVICES:
        answer = "there are too many calls or devices for the programs"
        raise CaptureError("configure the kernel programs", answer, "record fewer events or devices")
    told = ffi.new("struct lo2_bpf_told *")
    told.config.compat = knows_compat()
    told.config.page_bytes = mmap.PAGESIZE
    told.config.ring_bytes, told.config.ring_mask = ring_bytes, ring_bytes - 1
    for name in ("recorder", "calls", "all_tasks", "facts", "min_latency_ns", "min_bytes"):
        setattr(told.config, name, getattr(config, name))
    told.config.one_cgroup = config.cgroup is not None
    told.config.nr_devices = len(config.devices)
    told.config.devices[0 : len(config.devices)] = config.devices
    told.config.asks[0 : len(config.asks)] = config.asks
    for place, call in enumerate(calls):
        for name, _ in ffi.typeof("struct lo2_bpf_call").fields:
            setattr(told.calls[place], name, getattr(call, name))
        if 0 <= call.number < lib.LO2_MAX_CALLS and config.calls:
            told.of_number[call.number] = 1 + place
            told.wanted[call.number] = 1
            for each in call.compat:
                told.wanted[lib.LO2_SOCKETCALL if each.is_socketcall else each.number] = 1
                nr_given = len(each.args) if each.memory else 0
                told.compat[_compat_place(each)] = (1 + place, each.memory, nr_given, _compat_arguments(each.args))
    for sample in config.samples:
        told.sampled[sample.place] = sample.type
        told.letters_at[sample.place] = sample.letters_at
    for name in config.layers:
        told.layers |= 1 << _layer_place(name)
    told.stack_from_ns = STACK_FROM_NS
    told.slow_from_ns, told.slow_one_of = config.slow_from_ns, config.slow_one_of
    told.errors[0 : lib.LO2_MAX_STATUS] = block_errors(os.uname().release)
    return bytes(ffi.buffer(told))


def block_errors(release: str) -> list[int]:
    """The errno of each ``blk_status_t`` (include/linux/blk_types.h, and the table in block/blk-core.c).

    Args:
        release: The kernel's, such as 6.18.1. Before Linux 6.10 there was one status more, the 14th.
    """
    version = tuple(int(part) for part in re.findall(r"\d+", release)[:2])
    errors = [_BLOCK_ERRORS[:14], [errno.EIO], _BLOCK_ERRORS[14:]] if version < (6, 10) else [_BLOCK_ERRORS]
    known = [number for part in errors for number in part]
    return known + [errno.EIO] * (lib.LO2_MAX_STATUS - len(known))


def _layer_place(name: str) -> int:
    return int(getattr(lib, f"LO2_LAYER_{name}"))


def _compat_place(call: CompatCall) -> int:
    return call.number + (lib.LO2_SOCKETCALLS if call.is_socketcall else 0)


@cache  # most calls have the same arguments
def _compat_arguments(args: tuple[CompatArgument, ...]) -> tuple[int, ...]:
    """The arguments of a call, in the form of ``struct lo2_bpf_compat``."""
    meanings = [getattr(lib, f"LO2_COMPAT_{arg.meaning.upper()}") if arg.meaning else 0 for arg in args]
    return tuple(
        arg.low | arg.high << lib.LO2_COMPAT_HIGH_SHIFT | meaning for arg, meaning in zip(args, meanings, strict=True)
    )


def _read_possible() -> int:
    """One more than the highest possible CPU number of this machine."""
    text = (ROOT / "sys/devices/system/cpu/possible").read_text(encoding="ascii")
    return 1 + int(text.strip().replace(",", "-").split("-")[-1])
