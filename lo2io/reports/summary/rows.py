"""What a summary consists of: plain values, which are the keys of ``lo2io report --json``."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lo2io.reports.findings.finding import Finding
    from lo2io.reports.rings.rows import RingsSummary
    from lo2io.reports.summary.histogram import Latency
    from lo2io.reports.summary.io_rows import IoSummary
    from lo2io.reports.summary.name_counts import NameCounts


@dataclass(frozen=True, slots=True)
class Activity:
    """Sums over some operations.

    ``reads`` and ``writes`` are calls that move data; a copy is both. ``time_ns`` adds up the durations of calls, over
    all threads: it may exceed the span. Calls in flight add none.
    """

    calls: int
    errors: int
    reads: int
    writes: int
    bytes_read: int
    bytes_written: int
    time_ns: int


@dataclass(frozen=True, slots=True)
class UsageRow:
    """What a process used while it was recorded, or all of them; None: not known.

    The kernel tells a thread's figures when it exits, to lo2io's programs in the kernel; so of processes that are there
    before or after the recording they are not known.
    """

    wall_ns: int
    """From the first thread's birth to the last one's end."""
    threads_ns: int
    """How long each of its threads lived, summed up."""
    calls_ns: int
    """Of it in recorded calls."""
    calls_share: float | None
    """The same as a part of it, 0 … 1; None: they lived no time."""
    cpu_ns: int | None
    user_ns: int | None
    system_ns: int | None
    block_delay_ns: int | None
    """Waited for block requests; None, too, where the system does not account for it (``task_delayacct``)."""
    major_faults: int | None
    voluntary_switches: int | None
    involuntary_switches: int | None


@dataclass(frozen=True, slots=True)
class ProcessRow:
    """One process; ``pid`` None: calls of threads nobody announced, or the sum of the processes not listed."""

    pid: int | None
    comm: str | None
    threads: int
    activity: Activity
    cgroup: str | None = None
    container: str | None = None
    requests: int = 0
    """Block requests it sent, and what they moved; writing back what is dirty is the kernel's threads' business."""
    request_bytes: int = 0
    ring_requests: int = 0
    """Requests of io_uring that it or its SQ threads submitted, and what they moved."""
    ring_bytes: int = 0
    usage: UsageRow | None = None
    """None: the sum of the processes not listed, or threads nobody announced."""
    cmdline: str | None = None
    """The last command line, as for a shell, or the title that replaced it; None: unknown."""
    name: str | None = None
    """``comm``, or what the command line says better: a title, an interpreter with its script."""


@dataclass(frozen=True, slots=True)
class FileRow:
    """All files of one path on one device.

    ``kind``: ``named``, ``unnamed`` (all unnamed fds of a process), ``none`` (no fd) or ``others``.
    """

    kind: str
    path: str | None
    pid: int | None
    process: str | None
    """Name of the process whose unnamed fds they are, as :attr:`ProcessRow.name` has it."""
    activity: Activity
    files: int
    """How many rows of the table of files (inodes, as a rule): several where it was made anew; 0: none has a name."""
    type: str = "unknown"
    """What answers: ``storage``, ``pipe``, ``socket``, ``terminal``, ``event`` (eventfd …), ``special`` (/proc …)."""


@dataclass(frozen=True, slots=True)
class CallRow:
    """One system call."""

    name: str
    in_flight: int
    activity: Activity
    latency: Latency
    share: float
    """Its part of the time of all calls, 0 … 1."""


@dataclass(frozen=True, slots=True)
class CommandLineRow:
    """Processes with one command line and one name. Processes without a command line share a row by their name."""

    cmdline: str | None
    """As for a shell, or the title that replaced it; None: unknown."""
    name: str | None
    """As :attr:`ProcessRow.name` has it, or how many ``others`` are not listed; None: unknown."""
    processes: int
    """0: calls of which nobody knows the process."""
    activity: Activity
    share: float
    """Its part of the time of all calls, 0 … 1."""
    ring_requests: int
    """Requests of io_uring, and what they moved."""
    ring_bytes: int


@dataclass(frozen=True, slots=True)
class ErrorRow:
    """One errno: how often, and in which calls (most frequent first)."""

    name: str
    number: int
    text: str
    nr: int
    calls: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class DeviceRow:
    """Requests of one operation on one device; ``requests`` leaves out those merged into others.

    ``queue``: insert to (last) issue. ``device``: issue to completion.
    """

    name: str
    operation: str
    requests: int
    bytes: int
    errors: int
    in_flight: int
    merged: int
    requeues: int
    queue: Latency
    device: Latency
    inferred: int = 0
    """Their completion is missing, and something proves that they ended; in no latency."""
    end_unknown: int = 0
    """Theirs may be, and nothing proves that they ended."""


@dataclass(frozen=True, slots=True)
class CpuLosses:
    """What is missing of one CPU's samples; CPUs of which nothing is missing have no row.

    ``lost``: its ring had no room, as the kernel says. ``vanished``: counted, and never delivered. ``gaps``: how often
    the ring was full, and ``gap_ns`` for how long in all.
    """

    cpu: int
    lost: int
    vanished: int
    gaps: int
    gap_ns: int


@dataclass(frozen=True, slots=True)
class Chosen:
    """What the recording was confined to, and what it left out."""

    filter: str
    """Empty: everything; so are the others."""
    cgroup: str
    cpus: tuple[int, ...]
    recorded_ns: int | None
    """A flight recorder's: how long it had been recording at the trace's end, of which the trace is the last part."""
    filtered_calls: int
    """Recorded, and then left out by the filter."""
    filtered_requests: int
    """Of disks."""
    own_calls: int
    """lo2io's own."""
    own_requests: int
    sample_rate: int = 1
    """Of so many requests of rings the trace has one."""
    ring_requests: int = 0
    """All there were."""
    filtered_ring_requests: int = 0


@dataclass(frozen=True, slots=True)
class Paradigm:
    """Calls of one I/O paradigm (POSIX, ISO C, MPI …) in an archive without lo2io's tables.

    ``nested_…``: those of them that another call of the trace made. Their bytes are those of that call, too.
    """

    name: str
    calls: int
    bytes_read: int
    bytes_written: int
    nested_calls: int
    nested_bytes_read: int
    nested_bytes_written: int


@dataclass(frozen=True, slots=True)
class Foreign:
    """An OTF2 archive without lo2io's tables: another tool's, as a rule. All counts are of the whole trace."""

    tool: str
    """As it calls itself; empty: it does not."""
    own: bool
    """lo2io wrote it, and its tables are gone."""
    trace: str
    anchor: str
    """Its ``.otf2`` file."""
    events: int
    calls: int
    title: str
    paradigms: tuple[Paradigm, ...]
    twice: str
    """What all sums have twice, in words; empty: nothing."""
    unknown: tuple[str, ...]
    """What is not known of it, a sentence each."""
    completeness_line: str
    nothing: str
    """Why there is nothing to report; empty: there is."""


@dataclass(frozen=True, slots=True)
class Summary:
    """The page. Times in ns on the trace's clock, ``start_realtime_ns`` since the epoch."""

    schema: str
    schema_version: int
    trace: str
    command: tuple[str, ...]
    """Empty: processes that ran already (``roots``), or the whole system."""
    roots: tuple[int, ...]
    mode: str
    exit_code: int | None
    hostname: str
    kernel: str
    start_ns: int
    span_ns: int
    start_realtime_ns: int | None
    activity: Activity
    bytes_read_per_s: float | None
    bytes_written_per_s: float | None
    nr_processes: int
    nr_files: int
    processes: tuple[ProcessRow, ...]
    files: tuple[FileRow, ...]
    calls: tuple[CallRow, ...]
    errors: tuple[ErrorRow, ...]
    devices: tuple[DeviceRow, ...]
    completeness: Mapping[str, Any]
    completeness_line: str
    verdict: str
    """That line in a word: ``complete``, ``incomplete``, ``not proven``, or ``short`` where the kernel's own accounts
    hold much more than was captured."""
    shortfall: str
    """In words what too little was captured of, and the likely causes; empty: enough was captured."""
    notices: tuple[str, ...]
    chosen: Chosen
    losses: tuple[CpuLosses, ...]
    reconciliation: tuple[Mapping[str, Any], ...]
    """The kernel's accounts and what was captured of them: rows of :class:`lo2io.model.Reconciliation`."""
    hints: tuple[str, ...]
    """Where nothing was recorded: why that may be."""
    rings: RingsSummary | None = None
    """None: the trace has no table of them, or no ring was used."""
    names: NameCounts | None = None
    """Who proved the names of files and descriptors."""
    findings: tuple[Finding, ...] = ()
    """What stands out, each with its evidence; the rules are in docs/reference/findings.md."""
    cmdlines: tuple[CommandLineRow, ...] = ()
    """The processes once more, by command line."""
    io: IoSummary | None = None
    """Time, latencies, slow calls, sizes and order of accesses, opens; None: no calls and no block requests."""
    living_on: Mapping[str, int] = field(default_factory=dict)
    """Name → how many processes that the command started had not ended when its recording did."""
    usage: UsageRow | None = None
    """Of all processes; of a command user and system time, faults and switches with the children that it waited for.
    None: of a whole machine, of a part of the recorded calls, or of another tool's archive."""
    not_recorded: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Groups of calls that were not recorded and may be where the time went, with their calls; see ``usage``."""
    foreign: Foreign | None = None
    """Whose trace it is, unless lo2io's own tables were there."""
