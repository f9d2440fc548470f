"""Opening of events: names and ids in, open file descriptors and mapped rings out. Two openers, one interface.

``PerfSource`` opens through the kernel's Python binding and is its only user; ``NativeSource`` (native.py) calls
perf_event_open(2). What differs stays here: the clock of the samples, and who may be recorded.

Per CPU there is one ring. Its owner, the *leader*, is a dummy software event that delivers COMM, FORK and EXIT of every
task; the tracepoints of that CPU write into the leader's ring.
"""

from __future__ import annotations

import errno
import os
from dataclasses import dataclass, field
from fcntl import ioctl
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from lo2io.capture.events.ring import PAGE_BYTES, Ring
from lo2io.errors import AccessError, CaptureError, UsageError
from lo2io.kernel import abi

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from lo2io.capture.events.programs import Kernel

MIN_RING_BYTES = 64 << 10
"""Smaller rings lose samples at any load: then refusing is the honest answer."""
SYSTEM = "system"
INHERIT = "inherit"
OPENERS = ("python-perf", "native")


@dataclass(frozen=True, slots=True)
class OpenRequest:
    """What is to be opened."""

    events: tuple[tuple[str, int], ...]
    """Tracepoints: full name and id."""
    cpus: tuple[int, ...]
    ring_bytes: int
    """Wanted per CPU, a power of two of at least one page."""
    scope: str = SYSTEM
    """``system``: every task; ``inherit``: the tasks ``tids`` and all they will start."""
    tids: tuple[int, ...] = ()
    cgroup: Path | None = None
    """Folder of the cgroup whose system calls alone are recorded (scope ``system``, native opener)."""

    @property
    def has_calls(self) -> bool:
        """Perf samples tell of system calls; not of those of 32 bit programs, which their mappings betray."""
        return any(name.startswith("syscalls:") for name, _ in self.events)


@dataclass(slots=True)
class OpenEvents:
    """Events, opened and disabled, with their rings.

    Attributes:
        opener: ``python-perf`` or ``native``.
        clock: ``perf`` or ``monotonic``, as in ``SpoolMeta``.
        leaders: Per CPU the dummy events (one per task in scope ``inherit``); the first owns the ring.
        tracepoints: Per event, per CPU, the fds of its instances.
        rings: Per CPU.
        has_lost: The kernel tells how many samples each event lost.
        keep: What must live as long as the fds.
        sampled: Indices of the CPUs whose tracepoints are ever enabled; None: all.
        added: CPUs whose rings were added while recording, in that order.
        kernel: lo2io's programs in the kernel, where calls or names are theirs to tell.
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
        """Events that perf samples or the programs' records tell of."""
        return frozenset((*self.names, *(self.kernel.names if self.kernel else ())))

    def iter_fds(self) -> Iterator[int]:
        """Every event's fd: tracepoints first, leaders last, so that whoever closes in this order keeps the rings."""
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
        """Enable or disable the tracepoints of all CPUs that are sampled, and with them the programs.

        Programs that only tell of the files of calls begin before and end after: that is of use with a call's sample
        only. Those that record begin last and end first: some ends are samples though the begins are not.
        Tracepoints are listed from the begin of things to their end. So the last begins first, and ends last: what has
        begun in this recording ends in it, where the other way round it would seem to be under way for good.
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
        """Let only samples of one tracepoint pass that a filter in the kernel's syntax lets through.

        Returns:
            Whether the kernel takes the filter; if not, every sample passes.
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
        """Whose each ring is: a CPU that went and came back has several."""
        return (*self.cpus[: len(self.rings) - len(self.added)], *self.added)

    def add(self, extra: OpenEvents, *, sampled: bool) -> None:
        """Take in the events of one more CPU, or of one that has come back, and its ring behind the others.

        Args:
            extra: The same events, opened for that CPU alone.
            sampled: Its tracepoints are to be switched with the others.
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
        self.added = (*self.added, cpu)
        self.rings.append(extra.rings[0])
        self.keep = (self.keep, extra.keep)

    def close(self) -> None:
        """Close every event: takes the kernel tens of milliseconds for each tracepoint that nobody else has open."""
        for fd in self.iter_fds():
            os.close(fd)

    def unmap(self) -> None:
        """Give up the rings, and the programs."""
        for ring in self.rings:
            ring.close()
        if self.kernel:
            self.kernel.detach()


class EventSource(Protocol):
    """An opener."""

    name: str

    def open(self, request: OpenRequest) -> OpenEvents:
        """Open what is requested, disabled.

        Raises:
            AccessError: The user may not.
            CaptureError: The kernel cannot, or not so much.
        """
        ...


def select_source(opener: str | None, scope: str) -> tuple[EventSource, str]:
    """The opener to use, and a notice for the user if it is not the one usually used (or an empty string).

    Args:
        opener: ``python-perf``, ``native``, or None for the best there is.
        scope: ``inherit`` needs the native one.

    Raises:
        AccessError: ``python-perf`` was asked for and there is none.
        UsageError: No such opener, or not for this scope.
    """
    from lo2io.capture.events.native import NativeSource  # noqa: PLC0415 - it needs this module's types
    from lo2io.capture.events.python_perf import PerfSource  # noqa: PLC0415

    if opener not in {None, *OPENERS}:
        raise UsageError(f"open events with {opener}", "no such opener", f"one of {', '.join(OPENERS)}")
    if opener == "native" or (opener is None and scope == INHERIT):
        return NativeSource(), ""
    if scope == INHERIT:
        raise UsageError("open events per task with python-perf", "it opens per CPU only", "leave --opener out")
    try:
        return PerfSource(), ""
    except AccessError as error:
        if opener is not None:
            raise
        return NativeSource(), f"events are opened without the perf binding ({error}; it comes with: {error.remedy})"


def open_rings(leaders: Sequence[int], wanted: int) -> list[Ring]:
    """Map one ring per leader, all of one size: ``wanted``, halved as long as the kernel refuses.

    Raises:
        CaptureError: It refuses the smallest, too.
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
    """The error for rings of which even the smallest size is refused."""
    kib = (size + PAGE_BYTES) * nr_rings >> 10
    return CaptureError(
        f"map {nr_rings} rings of {size >> 10} KiB",
        error.strerror or str(error),
        f"allow that much locked memory: `ulimit -l {kib}`, or sysctl kernel.perf_event_mlock_kb={kib // nr_rings + 4}",
    )


def opening_failed(what: str, error: OSError, root: Path = Path("/")) -> AccessError | CaptureError:
    """What the kernel's refusal to open an event means for the user."""
    answer = error.strerror or str(error)
    if error.errno in {errno.EACCES, errno.EPERM}:
        try:
            level = (root / "proc/sys/kernel/perf_event_paranoid").read_text(encoding="ascii").strip()
        except OSError:
            level = "unknown"
        return AccessError(
            f"open {what}",
            f"{answer} (kernel.perf_event_paranoid is {level}; without CAP_PERFMON it would have to be -1)",
            "run it with sudo (the command itself still runs as you), or give lo2io CAP_PERFMON",
        )
    if error.errno in {errno.EMFILE, errno.ENFILE}:
        return CaptureError(f"open {what}", answer, "raise the limit of open files: `ulimit -n 65536`")
    if error.errno in {errno.ENOSYS, errno.ENOENT}:
        return CaptureError(f"open {what}", answer, "use a kernel with perf events and tracepoints")
    return CaptureError(f"open {what}", answer, "try --opener native, or fewer events")


def probe_lost(cpu: int) -> bool:
    """Whether this kernel tells lost samples per event (Linux 6.0).

    Raises:
        AccessError: It does not let the user open events on a CPU at all.
    """
    try:
        os.close(abi.event_open(dummy_attr(abi.FORMAT_ID | abi.FORMAT_LOST), -1, cpu))
    except OSError as error:
        if error.errno == errno.EINVAL:
            return False
        raise opening_failed(f"a software event on CPU {cpu}", error) from error
    return True


def dummy_attr(read_format: int) -> abi.EventAttr:
    """The leader: no samples, but COMM, FORK and EXIT."""
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
