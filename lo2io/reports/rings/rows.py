"""What a summary says of io_uring and libaio: plain values, which are keys of ``lo2io report --json``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lo2io.reports.summary.histogram import Latency


@dataclass(frozen=True, slots=True)
class RingPathRow:
    """Requests that went one way; ``latency`` is submission to last completion, the others are its phases."""

    path: str
    requests: int
    inferred: int
    """Of these, the way is inferred and not stated by the kernel."""
    latency: Latency
    queued: Latency
    executing: Latency
    waiting: Latency


@dataclass(frozen=True, slots=True)
class RingOpcodeRow:
    """Requests of one opcode that went one way."""

    opcode: str
    path: str
    requests: int
    bytes: int
    """Moved: read, written, or both for a copy."""
    errors: int
    latency: Latency


@dataclass(frozen=True, slots=True)
class PuntRow:
    """Requests that a worker executed, for one reason."""

    reason: str
    inferred: bool
    """The kernel does not say why; this follows from flags, opcode and what happened before."""
    requests: int


@dataclass(frozen=True, slots=True)
class RingFileRow:
    """What requests did to one file; ``kind`` as in :class:`~lo2io.reports.summary.rows.FileRow`."""

    kind: str
    path: str | None
    pid: int | None
    process: str | None
    requests: int
    errors: int
    bytes_read: int
    bytes_written: int
    on_workers: int
    """Of the requests, executed by worker threads …"""
    worker_ns: int
    """… for so long, as far as begin and end are known."""


@dataclass(frozen=True, slots=True)
class WorkerFileRow:
    """A file of one ring whose requests workers executed, and for how long as far as begin and end are known."""

    kind: str
    path: str | None
    pid: int | None
    process: str | None
    requests: int
    worker_ns: int


@dataclass(frozen=True, slots=True)
class BatchSizeRow:
    """Calls that submitted (libaio: or collected) ``least`` to ``most`` requests at once."""

    least: int
    most: int
    calls: int


@dataclass(frozen=True, slots=True)
class BatchesRow:
    """The calls about one ring; ``submitting`` are those that were to submit anything and did not fail."""

    calls: int
    submitting: int
    submitted: int
    sizes: tuple[BatchSizeRow, ...]
    collecting: int
    """libaio: calls that returned completions, or none in time."""
    collected: int
    collected_sizes: tuple[BatchSizeRow, ...]
    slept: int
    """Calls that were seen going to sleep for completions."""


@dataclass(frozen=True, slots=True)
class BrokenLinkRow:
    """Requests that ended because one before them in their chain did; the culprit where it is known."""

    opcode: str | None
    error: str | None
    culprits: int
    ended: int


@dataclass(frozen=True, slots=True)
class EndRow:
    """Requests of one opcode that did not end as asked: ``status`` refused or cancelled, and with which error."""

    status: str
    opcode: str
    error: str
    requests: int


@dataclass(frozen=True, slots=True)
class WorkersRow:
    """The kernel's worker threads of one ring's submitters."""

    born: int
    most: int
    """Alive at one time."""
    executions: int
    busy_ns: int
    """All executions that are known, added up."""
    inferred: int
    """Executions of which the begin, the end or the thread is inferred."""
    bounded: int
    """Requests executed by workers whose number the kernel bounds by CPUs …"""
    unbounded: int
    """… by others …"""
    untold: int
    """… and by workers of a kind that is not known; the three add up to all that workers executed."""
    hashed: int
    """Of the bounded, executed one after the other for each file."""


@dataclass(frozen=True, slots=True)
class RingRow:
    """One ring; ``kind`` None: the sum of those not listed.

    ``requests``, ``completions`` and the next ones are the ring's own totals, whether sampled or filtered or not;
    ``written`` says of how many requests the trace holds a row, which is what all below is about.
    """

    kind: str | None
    """``io_uring``, ``libaio``."""
    ring: int | None
    """Number in the table of rings."""
    pid: int | None
    process: str | None
    """Name of the process, as :attr:`~lo2io.reports.summary.rows.ProcessRow.name` has it."""
    fd: int | None
    context: str
    """The kernel's address of it, libaio's context."""
    sq_entries: int | None
    cq_entries: int | None
    flags: tuple[str, ...] | None
    """Of its setup."""
    poller: bool
    """A thread of the kernel submits."""
    nr_files: int | None
    """Registered, at most."""
    nr_buffers: int | None
    requests: int
    completions: int
    overflows: int
    """Completions that found no room."""
    messages: int
    """Completions that other rings sent."""
    orphans: int
    punts: int
    most_in_flight: int
    written: int
    bytes_read: int
    bytes_written: int
    errors: int
    multishot: int
    """Requests that completed, and went on: their times are not among the latencies …"""
    multishot_completions: int
    """… and this is how often they completed, all together."""
    statuses: Mapping[str, int]
    paths: tuple[RingPathRow, ...]
    opcodes: tuple[RingOpcodeRow, ...]
    punted: tuple[PuntRow, ...]
    workers: WorkersRow
    worker_files: tuple[WorkerFileRow, ...]
    """Files whose requests workers executed, by that time."""
    batches: BatchesRow
    ends: tuple[EndRow, ...]
    broken_links: tuple[BrokenLinkRow, ...]


@dataclass(frozen=True, slots=True)
class RingsSummary:
    """All about rings; empty for a trace without any."""

    nr_rings: int
    requests: int
    """All of every ring, sampled and filtered or not."""
    libaio_untold: int
    """Of these, those on contexts of libaio of which the trace holds no request: nobody told of them."""
    written: int
    sample_rate: int
    bytes_read: int
    bytes_written: int
    errors: int
    rings: tuple[RingRow, ...]
    files: tuple[RingFileRow, ...]
    """By what they moved."""
