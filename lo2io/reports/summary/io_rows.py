"""What a summary says of time, sizes, order and metadata: plain values, which are keys of ``lo2io report --json``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lo2io.reports.summary.histogram import Bin, Latency

TIME_PARTS: Final = {
    "device_ns": "device",
    "queue_ns": "queue",
    "waiting_ns": "waiting",
    "blocked_ns": "blocked",
    "preempted_ns": "preempted",
    "cpu_ns": "CPU",
    "unexplained_ns": "not explained",
}
"""The parts of :class:`TimeRow`, as tables call them."""


@dataclass(frozen=True, slots=True)
class TimeRow:
    """Where the time of one class of calls went; its parts add up to ``time_ns``.

    Times are added up over all threads. Calls in flight add none. Where the scheduler's switches were recorded, the
    first three parts are without a CPU; else ``blocked_ns``, ``preempted_ns`` and ``cpu_ns`` are None.
    """

    kind: str
    """Class of call: ``read``, ``write``, ``copy``, ``sync``, ``open``, ``close``, ``pipe``, ``socket`` …"""
    calls: int
    errors: int
    time_ns: int
    device_ns: int
    """While a block request that the calling thread had sent was at a device …"""
    queue_ns: int
    """… or only waited in the queue of one."""
    waiting_ns: int
    """The rest of calls that wait by their nature: polls, locks, syncs, rings …; pipes, sockets and terminals."""
    blocked_ns: int | None
    """Other calls: waited for what no table tells of: a lock, memory, another's request, leave to write more."""
    preempted_ns: int | None
    """Could have run, and others did."""
    cpu_ns: int | None
    """Had a CPU."""
    unexplained_ns: int
    """The rest."""


@dataclass(frozen=True, slots=True)
class OffCpuRow:
    """Stretches of calls in which their thread had no CPU, in one state."""

    state: str
    times: int
    time_ns: int


@dataclass(frozen=True, slots=True)
class TimeSummary:
    """Where the time of calls went."""

    requests_recorded: bool
    """Without block requests, device and queue are part of the others."""
    total: TimeRow
    storage: TimeRow
    """Of it, what is about files and what is in them."""
    classes: tuple[TimeRow, ...]
    """By time; those about storage first."""
    off_cpu: tuple[OffCpuRow, ...]
    """Empty unless the scheduler's switches were recorded."""


@dataclass(frozen=True, slots=True)
class LatencyRow:
    """Durations of one class of calls, or of one phase of one operation on one device."""

    subject: str
    """``calls``, or a device."""
    operation: str
    """The class, or the requests' operation."""
    phase: str
    """``call``; ``queue``: insert to (last) issue; ``device``: issue to completion."""
    latency: Latency
    histogram: tuple[Bin, ...]


@dataclass(frozen=True, slots=True)
class SlowRow:
    """One of the calls that took longest; calls that wait by their nature (polls, locks, rings, pipes …) are none."""

    id: int
    """In the table of operations."""
    call: str
    begin_ns: int
    """On the trace's clock …"""
    at_ns: int
    """… and since the trace's start."""
    duration_ns: int
    device_ns: int
    queue_ns: int
    kind: str
    """Of the file, as in :class:`~lo2io.reports.summary.rows.FileRow`; ``given``: without a descriptor, by its path."""
    path: str | None
    pid: int | None
    process: str | None
    """Name of the process, as :attr:`~lo2io.reports.summary.rows.ProcessRow.name` has it."""
    tid: int | None
    comm: str | None
    """The thread's."""
    offset_bytes: int | None
    bytes: int | None
    """Moved, or else asked for."""
    error: str | None


@dataclass(frozen=True, slots=True)
class SizeRow:
    """Accesses that asked for ``least`` to ``most`` bytes."""

    least: int
    most: int
    accesses: int


@dataclass(frozen=True, slots=True)
class AccessRow:
    """Sizes and order of all reads, or of all writes; what each word means is in docs/reference/report.md."""

    operation: str
    accesses: int
    """Calls that moved bytes."""
    small: int
    """Of less than 4 KiB."""
    placed: int
    """Of which is known what went before: the four below are about these."""
    consecutive: int
    sequential: int
    """Consecutive ones included."""
    random: int
    bytes: int
    """Moved at known offsets."""
    again_bytes: int
    """Of these, at least so many had been accessed before."""
    sizes: tuple[SizeRow, ...]
    common: Mapping[int, int]
    """The sizes that occur most: size → accesses."""


@dataclass(frozen=True, slots=True)
class PatternRow:
    """The same for all files of one path on one device; extents and what was accessed again: each file's, summed."""

    kind: str
    path: str | None
    pid: int | None
    process: str | None
    operation: str
    accesses: int
    small: int
    placed: int
    consecutive: int
    sequential: int
    random: int
    bytes: int
    extent_bytes: int
    """From the first byte accessed to the last."""
    again_bytes: int
    files: int
    """So many were accessed so; as in :class:`~lo2io.reports.summary.rows.FileRow`."""


@dataclass(frozen=True, slots=True)
class OpenRow:
    """How often the files of one path were opened, synced and locked."""

    kind: str
    path: str | None
    pid: int | None
    process: str | None
    opens: int
    syncs: int
    sync_ns: int
    locks: int
    lock_ns: int
    files: int
    """So many were, as in :class:`~lo2io.reports.summary.rows.FileRow`."""


@dataclass(frozen=True, slots=True)
class IoSummary:
    """All of it."""

    time: TimeSummary
    latencies: tuple[LatencyRow, ...]
    slowest: tuple[SlowRow, ...]
    accesses: tuple[AccessRow, ...]
    patterns: tuple[PatternRow, ...]
    """By accesses."""
    opens: tuple[OpenRow, ...]
    """By opens, syncs and locks together."""
