"""The engine's output, and the facts about a trace that are known at its end."""

from __future__ import annotations

from dataclasses import field, fields
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from lo2io.frozen import dataclass

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

UNKNOWN_I64 = -(2**63)
"""Unknown, in int64 columns (times, offsets, sizes)."""
UNKNOWN_U32 = 2**32 - 1
"""Unknown or none, in uint32 references and flags."""

BLOCK_RECORDS = ("samples", "begin-end", "both")
"""Forms of block requests in an OTF2 trace. ``docs/reference/otf2.md`` describes each."""
REQUEST_END = "block:block_rq_complete"
"""The event that ends a block request. It happens in an interrupt, so its samples name no owner."""

Columns: TypeAlias = "dict[str, NDArray[Any]]"
"""Column name → array. All arrays of one table have the same length."""


@dataclass(slots=True)
class Batch:
    """A batch of the engine: rows of every table, in the order in which they became final.

    ``columns.h`` and ``ring_columns.h`` (``lo2io/native``) list the columns and their meanings. Arrays are views that
    are valid until the batch is filled again. ``text`` has the paths and names; ``path_offset`` and similar columns
    point into it.
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
    ring_requests: Columns = field(default_factory=dict)
    ring_events: Columns = field(default_factory=dict)
    ring_works: Columns = field(default_factory=dict)
    ring_states: Columns = field(default_factory=dict)
    batches: Columns = field(default_factory=dict)
    rings: Columns = field(default_factory=dict)
    paths: Columns = field(default_factory=dict)
    iocbs: Columns = field(default_factory=dict)
    commits: Columns = field(default_factory=dict)
    faults: Columns = field(default_factory=dict)
    fuse_requests: Columns = field(default_factory=dict)
    call_stacks: Columns = field(default_factory=dict)
    futexes: Columns = field(default_factory=dict)
    request_parts: Columns = field(default_factory=dict)
    write_backs: Columns = field(default_factory=dict)
    fills: Columns = field(default_factory=dict)
    evictions: Columns = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Totals:
    """The engine's counters, with the names of ``lo2_totals``."""

    nr_samples: int = 0
    nr_selected: int = 0
    nr_late: int = 0
    nr_reordered: int = 0
    nr_orphan_exits: int = 0
    nr_orphan_completions: int = 0
    nr_in_flight_calls: int = 0
    nr_in_flight_requests: int = 0
    nr_inferred_ends: int = 0
    nr_unknown_ends: int = 0
    nr_lost_records: int = 0
    nr_lost: int = 0
    nr_lost_rows: int = 0
    nr_throttled: int = 0
    nr_undecoded: int = 0
    truncated_bytes: int = 0
    nr_names_verified: int = 0
    nr_names_refused: int = 0
    nr_files_told: int = 0
    nr_files_refused: int = 0
    nr_own_calls: int = 0
    nr_own_requests: int = 0
    nr_ring_requests: int = 0
    nr_orphan_cqes: int = 0
    nr_in_flight_ring_requests: int = 0
    nr_ring_unclear: int = 0
    nr_gone_in_exec: int = 0
    nr_fills_unfollowed: int = 0
    nr_compat_programs: int = 0
    nr_untold_iocbs: int = 0
    first_time_ns: int = 0
    last_time_ns: int = 0


@dataclass(frozen=True, slots=True)
class EventCompleteness:
    """The equation ``count - lost = samples`` for one event on one CPU, to within ``slack``, and any difference."""

    event: str
    cpu: int
    count: int | None
    """None: the recording did not end in good order, so the kernel's count is unknown."""
    lost: int
    """Reported by the kernel."""
    samples: int
    slack: int = 0
    """The true count lies within ``[count, count + slack]``: it was read while the event went on."""

    @property
    def vanished(self) -> int:
        """Samples that the kernel certainly counted, never delivered, and never reported as lost."""
        return 0 if self.count is None else max(0, self.count - self.lost - self.samples)

    @property
    def surplus(self) -> int:
        """Samples beyond the largest possible count."""
        return 0 if self.count is None else max(0, self.samples - (self.count + self.slack - self.lost))


@dataclass(frozen=True, slots=True)
class Completeness:
    """The four counters and their proof. ``lost`` includes samples that vanished unreported."""

    lost: int
    vanished: int
    late: int
    orphan: int
    in_flight: int
    samples: int
    proven: bool
    """True if every event on every CPU was counted, and all counts agree."""
    events: tuple[EventCompleteness, ...] = field(default=(), repr=False)
    unfollowed: int = 0
    """Programs that perf may have stopped following at their exec, because it followed tasks and not CPUs."""
    compat: int = 0
    """Programs of 32 bits in a recording of calls at single tracepoints, which leave their calls out."""
    recorded_whole: bool = False
    """True if all I/O of the recorded processes is proven captured. Ends of other block requests may be missing."""
    whose: str = ""
    """A name for those processes; empty: the recording is about the whole machine."""
    inferred_ends: int = 0
    """Block requests in the trace without their completion that are proven to have ended."""
    unknown_ends: int = 0
    """Block requests in the trace without a completion and without such a proof. Both are 0 if none is missing."""
    foreign: int = 0
    """Calls that were seen but not recorded, since their numbers have no known meaning (x32, 32 bits on arm64)."""
    absent_cpus: int = 0
    """CPUs that came online and were not recorded for a time."""
    untold_iocbs: int = 0
    """Requests of libaio that a call submitted, and that have no row."""
    ended_early: bool = False
    """True if the recording ended before the user wanted that: the disk was full, say."""
    missing_bytes: int = 0
    """Bytes that were recorded and that the spool lacks: a copy that was cut off, say."""

    @property
    def unseen_ends(self) -> int:
        """Block requests in the trace without a completion, if completions are missing."""
        return self.inferred_ends + self.unknown_ends

    @property
    def whole(self) -> bool:
        """True if nothing is missing of the recording's subject."""
        return self.recorded_whole or (self.proven and not self.lost)

    @property
    def elsewhere(self) -> int:
        """The least part of ``lost`` that is not about the recorded processes; 0 if that is not proven."""
        return max(0, self.lost - self.unseen_ends) if self.recorded_whole else 0

    def as_dict(self) -> dict[str, Any]:
        """The counters and what follows from them, for JSON, without the events."""
        facts = {each.name: getattr(self, each.name) for each in fields(self) if each.name != "events"}
        return facts | {"whole": self.whole, "elsewhere": self.elsewhere}


@dataclass(frozen=True, slots=True)
class Reconciliation:
    """One number of the kernel's accounts, and the captured counterpart."""

    source: str
    """Here and below as in :class:`Account`."""
    subject: str
    device: int | None
    name: str
    counted: int
    """Counted by the kernel."""
    captured: int | None
    """None: the number cannot be compared, for ``reason``."""
    at_borders: int = 0
    """The width of the range for ``captured``: operations that ended while the account was being read."""
    reason: str = ""
    by_exec: int = 0
    """The part of ``counted`` that exec may have read itself, without a call."""


CUT: Final = "[cut]"
"""Stands for the functions that lie beyond what was copied of a stack."""


def frame_words(function: str | None, file: str | None, offset: int) -> str:
    """A frame's function. Where its name is not known, its file and its place there: ``libc.so.6+0x2724a``."""
    return function or f"{(file or '').rpartition('/')[2] or '?'}+{offset:#x}"


class Frame(NamedTuple):
    """A row of the table ``stacks``: a function of a program that led to a call."""

    stack: int
    frame: int
    """0: the innermost one."""
    build_id: str
    offset: int
    """Of the return address in the file; without a file: the address."""
    file: str
    """Empty: none was found."""
    function: str
    """Empty: not known."""
    way: int = 0
    """How it was found: ``lo2io.unwind.walk.Way``."""
    end: int = 0
    """Why the stack has no further frames: ``lo2io.unwind.walk.End``."""


@dataclass(frozen=True, slots=True)
class TraceEnd:
    """Facts about a run that are known when its last batch is written."""

    start_ns: int
    """The trace covers all from this moment on the spool's clock."""
    stop_ns: int
    """The trace covers all up to this moment."""
    completeness: Completeness
    totals: Totals
    properties: Mapping[str, str] = field(default_factory=dict)
    """Further facts about the trace as a whole: name (letters, digits, ``_``) → text."""
    frames: Sequence[Frame] = ()
    """Of all stacks of programs that calls have, stack by stack."""
