"""The slow engine's objects of rings: all events, in order, for conclusions at the end."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from lo2io.catalog.catalog import load_catalog
from lo2io.model import OpcodeTrait

if TYPE_CHECKING:
    from reference.fds import Description, Handle
    from reference.tasks import Process, Task

FIXED_FILE, DRAIN, LINK, HARDLINK, ASYNC, CQE_SKIP = 1, 2, 4, 8, 16, 64
CHAINS, SQE_FLAGS = LINK | HARDLINK, 0x7F
MORE, NOTIF = 2, 8
CANCELED, EBADF = -125, -9
IOPOLL = 1
NO_OPCODE = 255

PASSED_OVER = ("in", "out", "freed", "dropped", "wake", "short")
"""Events that do not end what a thread executes."""

Row = dict[str, Any]


@dataclass(eq=False)
class Ring:
    """A ring, of io_uring (kind 0) or libaio (1)."""

    number: int
    kind: int
    context: int
    process: Process | None = None
    pid: int | None = None
    task: Task | None = None
    flags: int | None = None
    fd: int = -1
    handle: Handle | None = None
    descriptions: list[Description] = field(default_factory=list)
    sq_entries: int = 0
    cq_entries: int = 0
    created: int | None = None
    end_time: int | None = None
    ended: bool = False
    gone: bool = False
    """Its process has ended."""
    left: bool = False
    """Its address is another ring's."""
    held: bool = False
    """It was used after its descriptors were closed, so something else holds it."""
    poller: Task | None = None
    nr_files: int | None = None
    nr_buffers: int | None = None
    files: int | None = None
    """Currently registered."""
    forks: int = 0
    room: int | None = None
    cq_most: int | None = None
    unread: int = 0
    nr_requests: int = 0
    nr_completions: int = 0
    nr_overflows: int = 0
    nr_messages: int = 0
    nr_orphans: int = 0
    nr_batches: int = 0
    nr_punts: int = 0
    most_in_flight: int = 0
    nr_workers: int = 0
    rows: list[Row] = field(default_factory=list)

    @property
    def recorded(self) -> bool:
        """True if its process is recorded."""
        return self.process is not None and self.process.recorded


@dataclass(eq=False)
class Lane:
    """A thread, for rings. Of an unknown thread, only the number is known."""

    task: Task | None
    tid: int
    log: list[Event] = field(default_factory=list)

    @property
    def worker(self) -> bool:
        """True if its name is a worker's."""
        return self.task is not None and self.task.kind == 1

    @property
    def recorded(self) -> bool:
        """True if its thread is recorded."""
        return self.task is not None and self.task.recorded


@dataclass(eq=False)
class Event:
    """An event in a thread, or about a thread."""

    order: int
    time: int
    lane: Lane
    kind: str
    """A role, or ``call`` (entry or exit), ``in``, ``out`` (of a CPU), ``exit``, ``freed`` (a worker's CQE for it),
    ``dropped`` (cancelled with its chain, without a CQE)."""
    request: Request | None = None
    count: int = 0
    by_address: bool = False
    result: int = 0
    worker: bool = False
    """The lane was a worker's at that time."""
    opcode: int = NO_OPCODE
    """Of the request, as known at that time."""


@dataclass(eq=False)
class Execution:
    """A span in which a thread executed a request."""

    request: Request
    lane: Lane
    begin: int
    end: int | None = None
    begin_inferred: bool = False
    end_inferred: bool = False
    worker: bool = False
    seen: bool = True
    queue: int | None = None
    first: Event | None = None
    last: Event | None = None


@dataclass(eq=False)
class Sleep:
    """A stretch of a worker without a CPU."""

    order: int
    """Of the first event after its end."""
    lane: Lane
    request: Request
    out: int
    wake: int | None
    """None: a part of the stretch, or one before it, was not seen."""
    end: int


@dataclass(eq=False)
class Request:
    """A request: one use of its address."""

    number: int
    ring: Ring
    address: int | None
    user_data: int
    opcode: int
    flags: int
    lane: Lane | None
    """The submitter."""
    submit: int | None
    refused: bool = False
    older: bool = False
    alive: bool = True
    waits_for_notification: bool = False
    end: str = ""
    """Why it has ended: cqe, over (its successor shows it), dropped, replaced, gone, trace, given up."""
    end_time: int | None = None
    shown_by: Event | None = None
    """The event of a successor that shows the end of a request that asked for no completion."""
    ended_at: int = 0
    """How many events there were at its end."""
    events: list[Event] = field(default_factory=list)
    previous: Request | None = None
    chain: list[Request] = field(default_factory=list)
    behind: Request | None = None
    """The request right before its submission, which is linked to its successor."""
    served: bool = False
    """It sent a block request that does not read ahead."""
    closed: Event | None = None
    """Of a chain's head: the event that closed the chain."""
    culprit: Request | None = None
    traits: int = 0
    inferred: int = 0
    result: int = 0
    cqe_flags: int = 0
    refusal: tuple[int, int, int] | None = None
    complete: int | None = None
    notify: int | None = None
    nr_completions: int = 0
    bytes: int | None = None
    moved: int | None = None
    offset: int | None = None
    size: int | None = None
    fd: int = -1
    fds: list[tuple[int, int, Handle | None]] = field(default_factory=list)
    """Lookups: number, time, and the handle found."""
    doubtful: set[int] = field(default_factory=set)
    """Of these, those that may be another file's."""
    looked_since: int = 0
    """The first lookup came after that."""
    splices: bool = False
    """It is known to look up two descriptors."""
    last_cqe: Event | None = None
    begin_row: Row = field(default_factory=dict)
    executions: list[Execution] = field(default_factory=list)

    def was_given_up(self, event: Event) -> bool:
        """By then, its successor had begun, its address was another's, or its ring was gone."""
        return self.end in ("over", "replaced", "gone") and self.ended_at <= event.order

    @property
    def is_silent(self) -> bool:
        """True if it lives, and posts a completion only if it fails."""
        return self.alive and bool(self.flags & CQE_SKIP) and not self.nr_completions and not self.refused

    @property
    def times_out(self) -> bool:
        """True if it ends the request before it in the chain."""
        return opcode_has(self.opcode, OpcodeTrait.TIMES_OUT)

    @property
    def awaits_readiness(self) -> bool:
        """True if it is a poll itself."""
        return opcode_has(self.opcode, OpcodeTrait.READINESS)

    @property
    def zero_copy(self) -> bool:
        """True if its buffer is free only when a notification says so."""
        return opcode_has(self.opcode, OpcodeTrait.NOTIFIES)

    @property
    def repeats(self) -> bool:
        """True if it may have several CQEs."""
        may = opcode_has(self.opcode, OpcodeTrait.REPEATS | OpcodeTrait.UNKNOWN)
        return may and not self.flags & CQE_SKIP

    @property
    def head(self) -> bool:
        """The first request of its chain."""
        return bool(self.flags & CHAINS) and self.previous is None

    def times(self, kind: str) -> list[int]:
        """Times of such events of the request."""
        return [event.time for event in self.events if event.kind == kind]


def opcode_has(opcode: int, traits: OpcodeTrait) -> bool:
    """True if the catalog gives the opcode one of these traits. An opcode that is not there may have any."""
    opcodes = load_catalog().opcodes
    return bool((opcodes[opcode].traits if opcode < len(opcodes) else OpcodeTrait.UNKNOWN) & traits)


def queues(opcode: int) -> bool:
    """True if it can wait for a device without a thread."""
    return opcode_has(opcode, OpcodeTrait.QUEUES | OpcodeTrait.UNKNOWN)


def start_of(request: Request) -> Event | None:
    """The event at which it is executed at once, if it is."""
    if request.refused or request.older or request.submit is None or request.times_out:
        return None
    if request.flags & (DRAIN | ASYNC):
        return None
    if request.flags & CHAINS:
        if request.previous is not None:
            return None
        shows = [e for e in request.events if e.kind in ("file_get", "poll_arm", "cqe", "punt")]
        began = any(request.closed is not None and e.order < request.closed.order for e in shows)
        closed = request.closed
        refused = [each for each in request.chain if each.refused and closed and each.events[0].order <= closed.order]
        return None if began or refused else closed
    event = request.events[0]
    behind = next((e for e in event.lane.log if e.order > event.order and e.kind not in PASSED_OVER), None)
    taken_back = behind is not None and behind.request is request and behind.kind in ("link", "defer")
    return None if request.behind is not None or taken_back else event
