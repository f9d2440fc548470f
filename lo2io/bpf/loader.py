"""The kernel programs of ``lo2io/bpf/programs``: told what to do, loaded, attached, counted.

What comes in: what to record, as numbers. What goes out: rings that the programs write (one per CPU, read by whoever
records), counts, and calls that are still running when the programs stop. What a record means is not known here.

Counts, the switch and the selected processes are the programs' own memory, mapped: looking at it takes no bpf(2), which
would keep programs from running on its CPU meanwhile (bpf_disable_instrumentation in include/linux/bpf.h).

Structures and constants are those of ``lo2io/bpf/programs/config.h`` and ``records.h``; bpf(2),
include/uapi/linux/bpf.h.
"""

from __future__ import annotations

import contextlib
import errno
import mmap
import os
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from lo2io.bpf import libbpf
from lo2io.bpf.refusals import refused
from lo2io.bpf.samples import PLACES
from lo2io.catalog.call_numbers import NO_NUMBER, knows_compat
from lo2io.errors import AccessError, CaptureError
from lo2io.native._lib import ffi, lib
from lo2io.native.records import framed, pack

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

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
"""Raw tracepoint → its program, in the order of attaching. A program that records the tracepoint's events does the
same, and takes the other's place."""
_UNTYPED = {*_SWITCH.values(), *_FOLLOW.values(), *_LIVES.values(), *_RINGS.values()}
_FITS = "lo2_fits"
_PID_BITS = 22
"""``PID_MAX_LIMIT`` of include/linux/threads.h."""


@dataclass(frozen=True, slots=True)
class BpfCall:
    """A system call, and what of it is worth reading. Arguments are numbered from 1; 0: it has none such."""

    enter_event: int
    """``common_type`` of its sys_enter."""
    exit_event: int
    enter_index: int
    """Of the counters."""
    exit_index: int
    flags: int
    """``LO2_CALL_RETURNS_FD`` and so on."""
    nr_args: int
    fd: int = 0
    fd2: int = 0
    path: int = 0
    path2: int = 0
    dirfd: int = 0
    dirfd2: int = 0
    vector: int = 0
    """Pointer to iovecs."""
    vector_count: int = 0
    how: int = 0
    """Pointer to ``struct open_how``."""
    how_size: int = 0
    iocbs: int = 0
    """Pointer to pointers to iocbs."""
    iocbs_count: int = 0
    events: int = 0
    """Pointer to the ``struct io_event`` that the call returns."""
    context: int = 0
    """The ``aio_context_t`` that they come from."""
    count: int = 0
    """Bytes asked for."""
    filled: int = 0
    """Bit n: the kernel may write where argument n + 1 points."""
    number: int = NO_NUMBER
    """The system call's number, see :func:`~lo2io.catalog.call_numbers.call_number`."""
    compat: tuple[CompatCall, ...] = ()
    """What 32 bit programs have for it."""


@dataclass(frozen=True, slots=True)
class BpfConfig:
    """What is recorded; constant while the programs are loaded."""

    recorder: int
    """The recorder's process: never recorded."""
    calls: bool = True
    """Calls are written; else only facts, for calls that are perf samples."""
    all_tasks: bool = True
    """Else the processes that :meth:`Programs.select` names, and their children."""
    cgroup: Path | None = None
    """The folder of a cgroup v2: only tasks in it and below."""
    facts: int = 1
    """What descriptors, paths and requests stand for is written; 1: if it is news; ``LO2_FACTS_ALWAYS``: with every
    call."""
    min_latency_ns: int = 0
    """Shorter calls are left out, if droppable."""
    min_bytes: int = 0
    """Likewise those that ask for fewer."""
    devices: tuple[int, ...] = ()
    """Kernel numbers, ``major << 20 | minor``."""
    asks: tuple[int, ...] = ()
    """``LO2_ASKS_FILE`` and so on, by opcode of io_uring."""
    samples: tuple[BpfSample, ...] = ()
    """Events of tracepoints that programs are to record."""


class Programs:
    """Programs in the kernel, from loading to closing; what they are attached to ends with :meth:`close`."""

    def __init__(self, config: BpfConfig, cpus: Sequence[int], ring_bytes: int) -> None:
        self._config = config
        self._calls: Sequence[BpfCall] = ()
        self._cpus = tuple(cpus)
        self._ring_bytes = ring_bytes
        self._object: libbpf.BpfObject | None = None
        self._fds = contextlib.ExitStack()
        self._rings: dict[int, int] = {}
        self._sample_rings: dict[int, int] = {}
        self._nr_events = 0
        self.samples: tuple[BpfSample, ...] = ()
        """Those of the events asked for whose programs fit this kernel: the others nobody records."""

    def load(self, content: bytes, calls: Sequence[BpfCall], possible: int) -> None:
        """Make maps and rings, verify the programs; used by :func:`load_programs`.

        Raises:
            OSError: The kernel, or libbpf, refuses.
        """
        config = self._config
        self._calls = calls
        self._object = made = libbpf.BpfObject(content)
        self._fds.callback(made.close)
        made.set_value(".rodata.lo2io", tell(config, calls))
        made.set_entries("lo2_cpus", possible)
        made.set_entries("lo2_rings", possible)
        made.set_entries("lo2_sample_rings", possible)
        if not config.all_tasks:
            made.set_entries("lo2_selected", 1 << (_PID_BITS - lib.LO2_SELECTED_SHIFT))
        for program in self._unused():
            made.leave_out(program)
        made.load()
        if config.samples:
            fits = libbpf.run(made.program_fd(_FITS))
            self.samples = tuple(sample for sample in config.samples if fits >> sample.place & 1)
        for name, rings in self._ring_maps():
            libbpf.put_fds(made.map_fd(name), {cpu: self._make_ring(rings, cpu) for cpu in self._cpus})
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
        self._nr_events = 1 + max((max(call.enter_index, call.exit_index) for call in calls), default=-1)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def needs_event(self, call: int) -> bool:
        """Whether this call is seen through perf events, see :meth:`attach`; else :meth:`attach_raw` is enough.

        Raw tracepoints cost a recorded call half as much as perf events, and open and close at once. They tell calls
        by their numbers. Facts about calls that are perf samples come from these samples' own events.
        """
        return not self._config.calls or self._calls[call].number < 0

    def attach(self, event_fd: int, call: int, *, entry: bool) -> None:
        """Run a program whenever a call that needs events begins, or ends, on whatever CPU.

        Args:
            event_fd: A perf event of the call's sys_enter or sys_exit; disabled will do.
            call: Its place in ``calls``.
            entry: The event is the call's entry.

        Raises:
            AccessError: The kernel refuses.
        """
        try:
            link = libbpf.link_event(self._loaded.program_fd(_ENTER if entry else _EXIT), event_fd, call)
        except OSError as error:
            raise refused("attach a kernel program to a perf event", error) from error
        self._fds.callback(os.close, link)

    def attach_raw(self) -> None:
        """Run the programs that watch calls, switches, children and submissions, as far as the kernel has these.

        Raises:
            AccessError: The kernel refuses.
        """
        for name, program in self._attached().items():
            typed = program not in _UNTYPED  # such programs know their tracepoint since they were loaded
            try:
                link = libbpf.open_raw_tracepoint(None if typed else name, self._loaded.program_fd(program))
            except OSError as error:
                if error.errno == errno.ENOENT and name in _RINGS:
                    continue
                raise refused(f"attach a kernel program to {name}", error) from error
            self._fds.callback(os.close, link)

    def _attached(self) -> dict[str, str]:
        """Raw tracepoint → the program that runs there, in the order of attaching."""
        unused = self._unused()
        found = {name: program for name, program in _RAW.items() if program not in unused}
        return {
            **{sample.tracepoint: sample.program for sample in self.samples if sample.tracepoint not in found},
            **found,
            **{sample.tracepoint: sample.program for sample in self.samples},
        }

    def select(self, pid: int) -> None:
        """Record this process; its children from now on are recorded anyhow."""
        assert self._selected is not None  # noqa: S101 # asked for without all_tasks only
        self._selected[pid] = 1

    def selected(self) -> Iterator[int]:
        """The processes that are recorded: those selected, and all they have started, without those that have ended."""
        assert self._selected is not None  # noqa: S101 # as above
        pid = self._selected.find(b"\x01")
        while pid >= 0:
            yield pid
            pid = self._selected.find(b"\x01", pid + 1)

    def switch(self, *, on: bool, wait: bool = True) -> None:
        """Begin, or end, to count and to write; begins off. Without ``wait`` what runs just now may go on."""
        self._switch[:4] = int(on).to_bytes(4, "little")
        if wait and not on:
            self.settle()

    def settle(self) -> None:
        """Wait, once they are off, until no program is still about to write."""
        libbpf.wait_for_programs()

    def add_cpu(self, cpu: int) -> None:
        """Give a CPU that came later a ring: what is read per CPU has a column of it from now on, with or without one.

        Raises:
            CaptureError: The kernel has no room for one. What happens there is counted as lost.
        """
        if cpu not in self._cpus:
            self._cpus = (*self._cpus, cpu)
        try:
            for name, rings in self._ring_maps():
                libbpf.put_fd(self._loaded.map_fd(name), cpu, self._make_ring(rings, cpu))
        except OSError as error:
            answer = os.strerror(error.errno or 0)
            raise CaptureError(f"make a ring for CPU {cpu}", answer, "record again, with smaller rings") from error

    @property
    def cpus(self) -> tuple[int, ...]:
        """What all that is read per CPU has columns of."""
        return self._cpus

    def ring_fd(self, cpu: int) -> int:
        """The ring that programs on this CPU write: a BPF ring buffer of ``ring_bytes``."""
        return self._rings[cpu]

    def sample_ring_fd(self, cpu: int) -> int:
        """The same of the ring for events of tracepoints; only where there are ``samples``."""
        return self._sample_rings[cpu]

    @property
    def ring_bytes(self) -> int:
        """Size of each ring's data."""
        return self._ring_bytes

    def read_counts(self) -> list[list[tuple[int, int, int]]]:
        """Per index of the counters, per CPU of ``cpus``: how often it happened, was lost, was left out."""
        counts = [ffi.unpack(self._cpu(cpu).counts, self._nr_events) for cpu in self._cpus]
        return [[(each.count, each.lost, each.left_out) for each in of_event] for of_event in zip(*counts, strict=True)]

    def read_sample_counts(self) -> dict[str, list[tuple[int, int]]]:
        """Event → per CPU of ``cpus``: how often it happened, and was lost."""
        counts = {cpu: self._cpu(cpu).sampling.counts for cpu in self._cpus}
        return {
            sample.name: [(each[sample.place].count, each[sample.place].lost) for each in counts.values()]
            for sample in self.samples
        }

    def read_misses(self) -> list[tuple[int, int, int]]:
        """Per CPU of ``cpus``: facts lost, unreadable memory, entries whose thread left the CPU unseen."""
        misses = [self._cpu(cpu).misses for cpu in self._cpus]
        return [(each.facts_lost, each.unreadable, each.unpaired) for each in misses]

    def count_foreign(self) -> int:
        """Calls of recorded processes through tables whose numbers are not known: x32, 32 bit programs on arm64."""
        foreign: int = sum(self._cpu(cpu).misses.foreign for cpu in self._cpus)
        return foreign

    def missed_runs(self) -> int:
        """How often a program did nothing, or was not run, because one was at work on that CPU already."""
        skipped: int = sum(self._cpu(cpu).misses.skipped for cpu in self._cpus)
        names = {*({_ENTER, _EXIT} - self._unused()), *self._attached().values()}
        return skipped + sum(libbpf.read_misses(self._loaded.program_fd(name)) for name in names)

    def pending(self) -> dict[int, bytes]:
        """What the programs would have written next: CPU → records behind the ring's headers.

        ``LOST``, of what found no room at last, and ``ENTER`` of a call that still runs, alone on its CPU. Valid once
        :meth:`switch` has switched off.
        """
        found = {}
        for cpu in self._cpus:
            of_cpu, records = self._cpu(cpu), []
            losing, call = of_cpu.losing, of_cpu.slot.record
            if losing.lost:
                records.append(pack("lost", losing.end_ns, 0, begin_ns=losing.begin_ns, lost=losing.lost))
            if of_cpu.slot.occupied:
                head, args = call.head, bytes(ffi.buffer(call.args)[: 8 * call.nr_args])
                records.append(pack("enter", head.time_ns, head.tid, event=head.event, nr_args=call.nr_args, tail=args))
            if records:
                found[cpu] = b"".join(map(framed, records))
        return found

    def pending_samples(self) -> dict[int, bytes]:
        """The same for the rings of events: CPU → ``LOST``."""
        losing = {cpu: self._cpu(cpu).sampling.losing for cpu in self._cpus if self.samples}
        return {
            cpu: framed(pack("lost", each.end_ns, 0, begin_ns=each.begin_ns, lost=each.lost))
            for cpu, each in losing.items()
            if each.lost
        }

    def close(self) -> None:
        """Detach and unload all; nothing may be read afterwards."""
        self._fds.close()

    @property
    def _loaded(self) -> libbpf.BpfObject:
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
        unused |= {f"lo2_on_{name}" for name in PLACES} - {sample.program for sample in config.samples}
        return unused if config.samples else unused | {_FITS}

    def _ring_maps(self) -> tuple[tuple[str, dict[int, int]], ...]:
        """The maps of rings, and the rings in them by their CPU."""
        calls, samples = ("lo2_rings", self._rings), ("lo2_sample_rings", self._sample_rings)
        return (calls, samples) if self.samples else (calls,)

    def _make_ring(self, rings: dict[int, int], cpu: int) -> int:
        ring = rings[cpu] = libbpf.create_ring(self._ring_bytes)
        self._fds.callback(os.close, ring)
        return ring

    def _map(self, name: str, size: int) -> mmap.mmap:
        memory = mmap.mmap(self._loaded.map_fd(name), -(-size // mmap.PAGESIZE) * mmap.PAGESIZE)
        self._fds.callback(memory.close)
        return memory

    def _cpu(self, cpu: int) -> Any:
        """The ``struct lo2_bpf_cpu`` of a CPU, which its programs go on writing."""
        return ffi.cast("struct lo2_bpf_cpu *", ffi.from_buffer(self._memory) + self._stride * cpu)


def load_programs(config: BpfConfig, calls: Sequence[BpfCall], cpus: Sequence[int], ring_bytes: int) -> Programs:
    """Load the programs; nothing is attached, and they are switched off.

    Args:
        config: What is recorded.
        calls: At most ``LO2_MAX_CALLS``; :meth:`Programs.attach` names them by their place.
        cpus: Those that get a ring.
        ring_bytes: Of each: a power of two of whole pages.

    Raises:
        AccessError: No object was built, no libbpf is installed, or the kernel refuses. Perf events can record instead.
    """
    try:
        content = OBJECT.read_bytes()
    except OSError as error:
        raise AccessError(
            "load the kernel programs",
            "lo2io was built without them",
            "install clang and libbpf-dev, then lo2io again",
        ) from error
    if not (ROOT / "sys/kernel/btf/vmlinux").exists():
        raise AccessError(
            "load the kernel programs",
            "this kernel does not describe its types (/sys/kernel/btf/vmlinux)",
            "boot one with CONFIG_DEBUG_INFO_BTF=y",
        )
    programs = Programs(config, cpus, ring_bytes)
    try:
        programs.load(content, calls, _read_possible())
    except OSError as error:
        programs.close()
        raise refused("load the kernel programs", error) from error
    except BaseException:
        programs.close()
        raise
    return programs


def tell(config: BpfConfig, calls: Sequence[BpfCall]) -> bytes:
    """What the programs read as constants.

    Raises:
        CaptureError: There is no room for so many calls or devices.
    """
    if len(calls) > lib.LO2_MAX_CALLS or len(config.devices) > lib.LO2_MAX_DEVICES:
        raise CaptureError("tell the kernel programs what to record", "they hold no more", "ask for less")
    told = ffi.new("struct lo2_bpf_told *")
    told.config.compat = knows_compat()
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
            for each in call.compat:
                nr_given = len(each.args) if each.memory else 0
                told.compat[_compat_place(each)] = (1 + place, each.memory, nr_given, _compat_arguments(each.args))
    for sample in config.samples:
        told.sampled[sample.place] = sample.type
    return bytes(ffi.buffer(told))


def _compat_place(call: CompatCall) -> int:
    return call.number + (lib.LO2_SOCKETCALLS if call.is_socketcall else 0)


@cache  # most calls have the same arguments
def _compat_arguments(args: tuple[CompatArgument, ...]) -> tuple[int, ...]:
    """As ``struct lo2_bpf_compat`` has them."""
    meanings = [getattr(lib, f"LO2_COMPAT_{arg.meaning.upper()}") if arg.meaning else 0 for arg in args]
    return tuple(
        arg.low | arg.high << lib.LO2_COMPAT_HIGH_SHIFT | meaning for arg, meaning in zip(args, meanings, strict=True)
    )


def _read_possible() -> int:
    """One more than the highest number that a CPU can have here."""
    text = (ROOT / "sys/devices/system/cpu/possible").read_text(encoding="ascii")
    return 1 + int(text.strip().replace(",", "-").split("-")[-1])
