"""The types between the stages.

What comes in and goes out of each stage is declared here, and nothing else is: no stage imports another.
Times are int64 nanoseconds on the spool's clock unless a name says otherwise.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

UNKNOWN_I64 = -(2**63)
"""Unknown in int64 columns (times, offsets, sizes)."""
UNKNOWN_U32 = 2**32 - 1
"""Unknown, or none, in uint32 references and flags."""


class Role(enum.IntEnum):
    """What a tracepoint's sample does to an operation (``enum lo2_role``)."""

    IGNORED = 0
    ENTER = 1
    EXIT = 2
    RQ_INSERT = 3
    RQ_ISSUE = 4
    RQ_COMPLETE = 5
    RQ_REQUEUE = 6
    RQ_MERGE = 7
    BIO_FRONTMERGE = 8
    BIO_FLUSH = 9
    SCHED_SWITCH = 10
    CGROUP_ATTACH = 11


class CallKind(enum.IntEnum):
    """What a system call does to fds and positions (``enum lo2_call_kind``)."""

    META = 0
    OPEN = 1
    CLOSE = 2
    CLOSE_RANGE = 3
    READ = 4
    WRITE = 5
    SEEK = 6
    SYNC = 7
    DUP = 8
    DUP_TO = 9
    FCNTL = 10
    COPY = 11
    CLONE = 12
    UNSHARE = 13
    IOCTL = 14


class Returns(enum.IntEnum):
    """What a successful call returns (``enum lo2_returns``)."""

    ZERO = 0
    BYTES = 1
    FD = 2
    OFFSET = 3
    COUNT = 4
    VALUE = 5


class RequestOp(enum.IntEnum):
    """What a block request does (``enum lo2_rq_op``)."""

    READ = 0
    WRITE = 1
    FLUSH = 2
    DISCARD = 3
    SECURE_ERASE = 4
    WRITE_ZEROES = 5
    ZONE = 6
    OTHER = 7


@dataclass(frozen=True, slots=True)
class FieldLayout:
    """One field of a tracepoint's raw data, as the kernel's ``format`` file states it.

    ``offset`` and ``size`` are bytes. ``is_data_loc`` marks a dynamic array: 4 bytes that hold
    ``length << 16 | offset``; ``is_array`` one of fixed size (``char rwbs[10]``).
    """

    name: str
    ctype: str
    offset: int
    size: int
    signed: bool
    is_array: bool = False
    is_data_loc: bool = False


@dataclass(frozen=True, slots=True)
class EventFormat:
    """A tracepoint as one kernel has it: full name, id (= common_type) and fields in file order."""

    name: str
    """``subsystem:event``."""
    id: int
    fields: tuple[FieldLayout, ...]

    def field(self, name: str) -> FieldLayout | None:
        """The first field of that name, or None."""
        return next((f for f in self.fields if f.name == name), None)


@dataclass(frozen=True, slots=True)
class CallSpec:
    """One system call of ``tracepoints/syscalls.toml``."""

    name: str
    """Suffix of the tracepoints: ``newfstat`` for ``syscalls:sys_enter_newfstat``."""
    abi_name: str
    """The name programmers know: ``fstat``; the region's name in the trace."""
    group: str
    core: bool
    """Recorded by default."""
    kind: CallKind
    returns: Returns
    io_mode: str
    """``read``, ``write``, ``flush`` or ``none``: the OTF2 I/O operation mode."""
    region_role: str
    """OTF2 region role: ``file_io`` or ``file_io_metadata`` …"""
    fields: Mapping[str, str]
    """Role (fd, fd2, count, offset, flags, path) → field name in the entry's format."""
    vectored: bool = False
    fixed_flags: int | None = None
    """open(2) flags of a call of kind OPEN that has none among its arguments (creat)."""
    summary: str = ""

    @property
    def enter_event(self) -> str:
        """Full name of the entry tracepoint."""
        return f"syscalls:sys_enter_{self.name}"

    @property
    def exit_event(self) -> str:
        """Full name of the exit tracepoint."""
        return f"syscalls:sys_exit_{self.name}"


@dataclass(frozen=True, slots=True)
class TracepointSpec:
    """One tracepoint that is no system call: its role and which field means what."""

    event: str
    role: Role
    fields: Mapping[str, str]
    """Role (dev, sector, nr_sector, bytes, rwbs, error) → field name in the format."""
    group: str
    core: bool
    optional: bool = False
    """Kernels without it are recorded without it."""
    filter: str = ""
    """In the kernel's own syntax: samples that do not pass are neither taken nor counted."""
    summary: str = ""


@dataclass(frozen=True, slots=True)
class EventCounts:
    """What the kernel counted for one event: per CPU, in the order of the spool's CPUs."""

    name: str
    counts: tuple[int, ...]
    lost: tuple[int, ...] | None
    """None: this kernel does not tell (before 6.0)."""
    slack: tuple[int, ...] | None = None
    """By so much the true count may be larger: it was read while the event went on happening. None: by nothing."""


@dataclass(frozen=True, slots=True)
class Account:
    """What the kernel counted itself over a part of the recording, for comparison with what was captured."""

    source: str
    """``diskstats``, ``proc_io`` or ``cgroup_io``: the file the numbers stand in."""
    subject: str
    """The device's name, the process' id, the cgroup's path."""
    device: int | None
    """Kernel ``dev_t`` the numbers are about; None: all."""
    names: tuple[str, ...]
    """What each number counts: ``reads``, ``read_bytes`` …"""
    values: tuple[int, ...]
    """Increase from ``begin_ns`` to ``end_ns``."""
    begin_ns: int
    """Spool's clock."""
    end_ns: int
    begin_slack_ns: int = 0
    """The first look took so long, from ``begin_ns`` on: what happened meanwhile is in the account or not."""
    end_slack_ns: int = 0
    """The last look, from ``end_ns`` on."""


@dataclass(frozen=True, slots=True)
class Reconciliation:
    """One number of the kernel's accounts, and the same as captured."""

    source: str
    """As in :class:`Account` …"""
    subject: str
    device: int | None
    name: str
    counted: int
    """By the kernel."""
    captured: int | None
    """None: cannot be compared, for ``reason``."""
    at_borders: int = 0
    """By so much ``captured`` could be chosen: what ended while the account was being read."""
    reason: str = ""


@dataclass(frozen=True, slots=True)
class ClockSync:
    """One reading of three clocks at the same moment, ``error_ns`` apart at most."""

    time_ns: int
    """The spool's clock: that of the perf samples."""
    monotonic_ns: int
    realtime_ns: int
    error_ns: int


@dataclass(frozen=True, slots=True)
class Mount:
    """One line of ``/proc/PID/mountinfo``."""

    id: int
    device: int
    """``st_dev`` as stat(2) gives it."""
    mount_point: str
    fs_type: str
    source: str


@dataclass(frozen=True, slots=True)
class BlockDevice:
    """One disk or partition."""

    device: int
    """Kernel ``dev_t`` of the tracepoints: major << 20 | minor."""
    name: str
    """``vda``."""
    scheduler: str | None
    rotational: bool | None
    size_bytes: int | None
    model: str | None = None
    disk: int | None = None
    """Of a partition: kernel ``dev_t`` of its disk."""
    start_sector: int | None = None
    """Of a partition: where on its disk it begins, in units of 512 bytes."""


@dataclass(frozen=True, slots=True)
class Cpu:
    """Where one logical CPU sits."""

    cpu: int
    core: int
    package: int


@dataclass(frozen=True, slots=True)
class SpoolMeta:
    """``spool.json``: all that converting needs besides the rings.

    ``events[i]`` is the engine's event index i; ``formats`` its ``format`` file's text, byte for byte.
    """

    lo2io_version: str
    complete: bool
    mode: str
    """``process`` or ``system``."""
    command: tuple[str, ...]
    roots: tuple[int, ...]
    """pids whose descendants are recorded; empty in system mode."""
    recorder_pid: int
    hostname: str
    kernel: str
    machine: str
    cpus: tuple[Cpu, ...]
    """Every CPU with a ring, in the order of the ring files."""
    events: tuple[str, ...]
    formats: tuple[str, ...]
    header_page: str
    clock: str
    """``perf`` (the kernel's local clock) or ``monotonic_raw`` …"""
    syncs: tuple[ClockSync, ...]
    start_ns: int
    """Tracepoints were enabled from here …"""
    stop_ns: int | None
    """… to here, on the spool's clock. None: never stopped in good order."""
    ring_bytes: int
    ring_bytes_wanted: int
    opener: str
    """``python-perf`` or ``native``."""
    scope: str
    """``system`` (per CPU, descendants selected when converting) or ``inherit`` (per task)."""
    counts: tuple[EventCounts, ...]
    """Empty unless ``complete``."""
    mounts: tuple[Mount, ...]
    devices: tuple[BlockDevice, ...]
    exit_code: int | None = None
    filters: tuple[tuple[str, ...], ...] = ()
    """Pairs of an event and the filter the kernel applied to it: what did not pass was not counted either."""
    notices: tuple[str, ...] = ()
    """What the user was told while recording: rings halved, disk full, events this kernel lacks …"""
    filter: str = ""
    """What the user chose by a filter: converting applies all of it, the kernel what ``filters`` says."""
    cgroup: str = ""
    """Only this cgroup and those below it were recorded: path in its hierarchy."""
    chosen_cpus: tuple[int, ...] = ()
    """Only these CPUs were recorded; empty: all."""
    segments: tuple[str, ...] = ()
    """Folders of the spool that hold the ring files, in order; empty: the spool itself holds them."""
    recording_start_ns: int | None = None
    """The recording began here, and what lies before ``start_ns`` was not kept. None: ``start_ns`` is the beginning."""
    accounts: tuple[Account, ...] = ()
    own_pids: tuple[int, ...] = ()
    """Further processes that were lo2io's own, beside the recorder: they wrote traces meanwhile."""


Columns: TypeAlias = "dict[str, NDArray[Any]]"
"""Column name → array; all of one table have the same length."""


@dataclass(slots=True)
class Batch:
    """What the engine hands on at a time: rows of every table, in the order they became final.

    The column sets and their meanings are those of ``lo2io/_native/lo2io.h``; arrays are views that are valid until
    the batch is filled again. ``text`` holds the paths and names that ``path_offset`` and its like point into.
    """

    operations: Columns
    handle_events: Columns
    handles: Columns
    files: Columns
    tasks: Columns
    requests: Columns
    request_events: Columns
    completions: Columns
    switches: Columns
    off_cpu: Columns
    losses: Columns
    text: bytes
    first_operation: int
    native: Any = None
    """The ``lo2_batch *`` behind the views, for native writers."""


@dataclass(frozen=True, slots=True)
class Totals:
    """The engine's counters; names as in ``lo2_totals``."""

    nr_samples: int = 0
    nr_selected: int = 0
    nr_late: int = 0
    nr_reordered: int = 0
    nr_orphan_exits: int = 0
    nr_orphan_completions: int = 0
    nr_in_flight_calls: int = 0
    nr_in_flight_requests: int = 0
    nr_lost_records: int = 0
    nr_lost: int = 0
    nr_throttled: int = 0
    nr_undecoded: int = 0
    truncated_bytes: int = 0
    nr_names_verified: int = 0
    nr_names_refused: int = 0
    nr_own_calls: int = 0
    nr_own_requests: int = 0
    first_time_ns: int = 0
    last_time_ns: int = 0


@dataclass(frozen=True, slots=True)
class EventCompleteness:
    """``count - lost = samples`` of one event on one CPU, to within ``slack``, or by how much not."""

    event: str
    cpu: int
    count: int | None
    """None: the recording did not end in good order, so the kernel's count is not known."""
    lost: int
    """As the kernel reported."""
    samples: int
    slack: int = 0
    """The true count lies within ``[count, count + slack]``: it was read while the event went on happening."""

    @property
    def vanished(self) -> int:
        """Counted by the kernel for certain, never delivered, never reported as lost."""
        return 0 if self.count is None else max(0, self.count - self.lost - self.samples)

    @property
    def surplus(self) -> int:
        """Delivered beyond what the kernel can have counted."""
        return 0 if self.count is None else max(0, self.samples - (self.count + self.slack - self.lost))


@dataclass(frozen=True, slots=True)
class Completeness:
    """The four counters and their proof. ``lost`` includes what vanished unreported."""

    lost: int
    vanished: int
    late: int
    orphan: int
    in_flight: int
    samples: int
    proven: bool
    """Every event on every CPU was counted, and the counts agree."""
    events: tuple[EventCompleteness, ...] = field(default=(), repr=False)


@dataclass(frozen=True, slots=True)
class TraceEnd:
    """What is known of a run only when its last batch was written."""

    start_ns: int
    """The trace covers all from here …"""
    stop_ns: int
    """… to here, on the spool's clock."""
    completeness: Completeness
    totals: Totals
    properties: Mapping[str, str] = field(default_factory=dict)
    """More to say about the trace as a whole: name (letters, digits, ``_``) → text."""
