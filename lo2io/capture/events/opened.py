"""Opening of events: names and ids in, file descriptors and mapped buffers out. Two openers have one interface.

``PerfSource`` (python_perf.py) opens through the kernel's Python binding. ``NativeSource`` (native.py) calls
perf_event_open(2). They differ in the clock of samples, and in the tasks that can be recorded.

Each CPU has one buffer. Its owner, the *leader*, is a dummy software event that delivers COMM, FORK and EXIT of every
task. The tracepoints of the CPU write into the leader's buffer.
"""

from __future__ import annotations

import errno
import os
from dataclasses import field
from fcntl import ioctl
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from lo2io.capture.events.ring import PAGE_BYTES, Ring
from lo2io.errors import AccessError, CaptureError
from lo2io.frozen import dataclass
from lo2io.kernel import abi

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from lo2io.capture.events.programs import Kernel

MIN_RING_BYTES = 64 << 10
"""lo2io itself makes no smaller buffers: they lose samples at any load. A user may ask for them."""
SYSTEM = "system"
INHERIT = "inherit"
OPENERS = ("python-perf", "native")


@dataclass(frozen=True, slots=True)
class OpenRequest:
    """The events to open."""

    events: tuple[tuple[str, int], ...]
    """Full name and id of each tracepoint."""
    cpus: tuple[int, ...]
    ring_bytes: int
    """The wanted size of each CPU's buffer, a power of two of at least one page."""
    scope: str = SYSTEM
    """``system``: every task. ``inherit``: the tasks ``tids`` and all that they start."""
    tids: tuple[int, ...] = ()
    cgroup: Path | None = None
    """Folder of the only cgroup whose system calls are recorded (scope ``system``, native opener)."""

    single: bool = False
    """Programs in the kernel watch each system call at its own tracepoints."""
    code: bool = False
    """Mappings of code are told with the build ids of the files: unwinding needs them (native opener)."""

    @property
    def wants_mappings(self) -> bool:
        """True if calls are seen at single tracepoints.

        These miss calls of 32 bit programs, which are known by their mappings.
        """
        return self.single or any(name.startswith("syscalls:") for name, _ in self.events)


@dataclass(slots=True)
class OpenEvents:
    """Opened events with their buffers. At first the events are disabled.

    Attributes:
        opener: ``python-perf`` or ``native``.
        clock: ``perf`` or ``monotonic``, as in ``SpoolMeta``.
        leaders: For each CPU the dummy events (one for each task in scope ``inherit``). The first owns the buffer.
        tracepoints: For each event and CPU, the fds of the event's instances.
        rings: The buffer of each CPU.
        has_lost: True if the kernel tells how many samples each event lost.
        keep: Objects that must live as long as the fds.
        sampled: Indices of the CPUs whose tracepoints may be enabled; None: all.
        added: CPUs whose buffers were added while recording, in this order.
        kernel: lo2io's programs in the kernel, if they record calls or names.
    """

    opener: str
    clock: str
    scope: str
    cpus: tuple[int, ...]
    names: tuple[str, ...]
    leaders: list[list[int]]
    tracepoints: list[list[list[int]]]
    rings: list[Ring]
    ring_bytes: int
    ring_bytes_wanted: int
    has_lost: bool
    keep: Any = field(default=None, repr=False)
    sampled: tuple[int, ...] | None = None
    added: tuple[int, ...] = ()
    kernel: Kernel | None = None

    @property
    def recorded(self) -> frozenset[str]:
        """Names of all events that perf or the programs record."""
        return frozenset((*self.names, *(self.kernel.names if self.kernel else ())))

    def iter_fds(self) -> Iterator[int]:
        """Every event's fd: tracepoints first, leaders last. So closing in this order keeps the buffers to the end."""
        for per_cpu in self.tracepoints:
            for fds in per_cpu:
                yield from fds
        if self.kernel:
            yield from self.kernel.iter_fds()
        for fds in self.leaders:
            yield from fds

    def switch_leaders(self, *, on: bool) -> None:
        """Enable or disable the dummy events: COMM, FORK, EXIT."""
        for fds in self.leaders:
            _switch(fds, on=on)

    def switch_tracepoints(self, *, on: bool) -> None:
        """Enable or disable the tracepoints of all sampled CPUs, and the programs.

        Programs that only tell the files of calls are enabled first and disabled last, because each call's sample needs
        its files. Programs that record calls are enabled last and disabled first, because some ends are perf samples
        while the starts are programs' records.
        Tracepoints are listed from begins to ends, e.g. issue before completion. The last is enabled first and disabled
        last. So an operation that begins in the recording also has its end in it. In the other order, it could seem to
        be under way for ever.
        """
        outside = self.kernel is not None and not self.kernel.names
        if self.kernel and outside == on:
            self.kernel.switch(on=on)
        for per_cpu in reversed(self.tracepoints) if on else self.tracepoints:
            for index, fds in enumerate(per_cpu):
                if self.sampled is None or index in self.sampled:
                    _switch(fds, on=on)
        if self.kernel and outside != on:
            self.kernel.switch(on=on)
        if self.kernel and not on:
            self.kernel.settle()

    def set_filter(self, name: str, text: str) -> bool:
        """Set the filter of one tracepoint, in the kernel's syntax.

        Returns:
            True if the kernel takes the filter. Otherwise every sample passes.
        """
        fds = [fd for per_cpu in self.tracepoints[self.names.index(name)] for fd in per_cpu]
        try:
            for fd in fds:
                ioctl(fd, abi.IOC_SET_FILTER, text.encode() + b"\0")
        except OSError:
            return False
        return True

    @property
    def ring_cpus(self) -> tuple[int, ...]:
        """The CPU of each buffer. A CPU that went and came back has several buffers."""
        return (*self.cpus[: len(self.rings) - len(self.added)], *self.added)

    def add(self, extra: OpenEvents, *, sampled: bool) -> None:
        """Add the events and the buffer of a new CPU, or of one that has come back. The buffer is the last.

        Args:
            extra: The same events, opened for this CPU alone.
            sampled: True if the CPU's tracepoints are switched along with the others.
        """
        (cpu,) = extra.cpus
        if cpu in self.cpus:
            index = self.cpus.index(cpu)
        else:
            index = len(self.cpus)
            self.cpus = (*self.cpus, cpu)
            for per_cpu in self.tracepoints:
                per_cpu.append([])
            if self.sampled is not None and sampled:
                self.sampled = (*self.sampled, index)
        for per_cpu, fresh in zip(self.tracepoints, extra.tracepoints, strict=True):
            per_cpu[index].extend(fresh[0])
        self.leaders.append(extra.leaders[0])
        self.rings.append(extra.rings[0])  # before the CPU is listed: the drain thread asks which CPUs the others have
        self.added = (*self.added, cpu)
        self.keep = (self.keep, extra.keep)

    def switch_off(self, cpu: int) -> None:
        """Disable all events of one CPU, before :meth:`add` replaces them. Their counts stay."""
        for per_cpu in self.tracepoints:
            _switch(per_cpu[self.cpus.index(cpu)], on=False)
        for fds, place in zip(self.leaders, self.ring_cpus, strict=True):
            if place == cpu:
                _switch(fds, on=False)
        if self.kernel:
            self.kernel.count_no_more(cpu)

    def close(self) -> None:
        """Close every event.

        The kernel takes tens of milliseconds for each tracepoint that no other process has open.
        """
        for fd in self.iter_fds():
            os.close(fd)

    def unmap(self) -> None:
        """Unmap the buffers and detach the programs."""
        for ring in self.rings:
            ring.close()
        if self.kernel:
            self.kernel.detach()


class EventSource(Protocol):
    """An opener of events."""

    name: str

    def open(self, request: OpenRequest) -> OpenEvents:
        """Open the requested events, disabled.

        Raises:
            AccessError: The user may not open the events.
            CaptureError: The kernel cannot open them, or not as many.
        """
        ...


def open_rings(leaders: Sequence[int], wanted: int) -> list[Ring]:
    """Map one buffer for each leader, all of one size: ``wanted``, halved as long as the kernel refuses.

    Raises:
        CaptureError: The kernel refuses the smallest size, too.
    """
    size = wanted
    while True:
        rings: list[Ring] = []
        try:
            rings.extend(Ring(fd, size) for fd in leaders)
        except OSError as error:
            for ring in rings:
                ring.close()
            if error.errno not in {errno.EPERM, errno.ENOMEM}:
                raise
            if size // 2 < max(MIN_RING_BYTES, PAGE_BYTES):
                raise rings_refused(size, len(leaders), error) from error
            size //= 2
        else:
            return rings


def rings_refused(size: int, nr_rings: int, error: OSError) -> CaptureError:
    """The error for buffers of which the kernel refuses even the smallest size."""
    kib = (size + PAGE_BYTES) * nr_rings >> 10
    return CaptureError(
        f"map {nr_rings} buffers of {size >> 10} KiB",
        error.strerror or str(error),
        f"allow this much locked memory: `ulimit -l {kib}`, or sysctl kernel.perf_event_mlock_kb={kib // nr_rings + 4}",
    )


def opening_failed(what: str, error: OSError, root: Path = Path("/")) -> AccessError | CaptureError:
    """The error for the kernel's refusal to open an event, with a remedy."""
    answer = error.strerror or str(error)
    if error.errno in {errno.EACCES, errno.EPERM}:
        try:
            level = (root / "proc/sys/kernel/perf_event_paranoid").read_text(encoding="ascii").strip()
        except OSError:
            level = "unknown"
        return AccessError(
            f"open {what}",
            f"{answer} (kernel.perf_event_paranoid is {level}; without CAP_PERFMON it would have to be -1)",
            "run lo2io with sudo (the command itself still runs as you), or give lo2io CAP_PERFMON",
        )
    if error.errno in {errno.EMFILE, errno.ENFILE}:
        return CaptureError(f"open {what}", answer, "raise the limit of open files: `ulimit -n 65536`")
    if error.errno in {errno.ENOSYS, errno.ENOENT}:
        return CaptureError(f"open {what}", answer, "use a kernel with perf events and tracepoints")
    return CaptureError(f"open {what}", answer, "try --opener native, or fewer events")


def probe_lost(cpu: int) -> bool:
    """True if this kernel tells the lost samples of each event (Linux 6.0).

    Raises:
        AccessError: The kernel does not let the user open any event on a CPU.
    """
    try:
        os.close(abi.event_open(dummy_attr(abi.FORMAT_ID | abi.FORMAT_LOST), -1, cpu))
    except OSError as error:
        if error.errno == errno.EINVAL:
            return False
        raise opening_failed(f"a software event on CPU {cpu}", error) from error
    return True


def dummy_attr(read_format: int) -> abi.EventAttr:
    """The attributes of a leader, which delivers no samples, but COMM, FORK and EXIT."""
    return abi.EventAttr(
        type=abi.TYPE_SOFTWARE,
        config=abi.COUNT_SW_DUMMY,
        sample_type=abi.SAMPLE_TYPE,
        read_format=read_format,
        flags=abi.DISABLED | abi.COMM | abi.TASK | abi.COMM_EXEC | abi.WATERMARK | abi.SAMPLE_ID_ALL,
    )


def _switch(fds: Sequence[int], *, on: bool) -> None:
    for fd in fds:
        ioctl(fd, abi.IOC_ENABLE if on else abi.IOC_DISABLE, 0)
