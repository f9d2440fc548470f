"""What the engine hands on, and what is known of a trace at its end."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

UNKNOWN_I64 = -(2**63)
"""Unknown in int64 columns (times, offsets, sizes)."""
UNKNOWN_U32 = 2**32 - 1
"""Unknown, or none, in uint32 references and flags."""

BLOCK_RECORDS = ("samples", "begin-end", "both")
"""How block requests may stand in an OTF2 trace; ``docs/reference/otf2.md`` says what each looks like."""
REQUEST_END = "block:block_rq_complete"
"""The event that ends a block request. It happens in an interrupt, so its samples name no owner."""

Columns: TypeAlias = "dict[str, NDArray[Any]]"
"""Column name → array; all of one table have the same length."""


@dataclass(slots=True)
class Batch:
    """What the engine hands on at a time: rows of every table, in the order they became final.

    The column sets and their meanings are those of ``columns.h`` and ``ring_columns.h`` (``lo2io/native``); arrays
    are views that are valid until the batch is filled again. ``text`` holds the paths and names that ``path_offset``
    and its like point into.
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
    nr_inferred_ends: int = 0
    nr_unknown_ends: int = 0
    nr_lost_records: int = 0
    nr_lost: int = 0
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
    nr_compat_programs: int = 0
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
    unfollowed: int = 0
    """Programs that perf may have stopped following at their exec, where it follows tasks instead of CPUs."""
    compat: int = 0
    """Programs of 32 bits where calls are perf samples, which leave theirs out."""
    recorded_whole: bool = False
    """All that the recorded processes did is proven captured. Other events may be missing: ends of block requests."""
    whose: str = ""
    """Those processes in words; empty: the recording is about the whole machine."""
    inferred_ends: int = 0
    """Block requests in the trace whose completion is missing, and that are proven to have ended …"""
    unknown_ends: int = 0
    """… or not. Both are 0 where no completion is missing."""

    @property
    def unseen_ends(self) -> int:
        """Block requests in the trace without a completion, where completions are missing."""
        return self.inferred_ends + self.unknown_ends

    @property
    def whole(self) -> bool:
        """Nothing is missing of what the recording is about."""
        return self.recorded_whole or (self.proven and not self.lost)

    @property
    def elsewhere(self) -> int:
        """Of ``lost``, at least so many are not about the recorded processes; 0 where that is not proven."""
        return max(0, self.lost - self.unseen_ends) if self.recorded_whole else 0

    def as_dict(self) -> dict[str, Any]:
        """The counters and what follows from them, for JSON; without the events."""
        facts = {key: value for key, value in asdict(self).items() if key != "events"}
        return facts | {"whole": self.whole, "elsewhere": self.elsewhere}


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
    by_exec: int = 0
    """So much of ``counted`` may be what exec read itself, without a call."""


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
