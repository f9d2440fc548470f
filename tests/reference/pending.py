"""A call under way, as the slow engine keeps it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from reference.cache import Deeds
from reference.fds import LONG_AGO

if TYPE_CHECKING:
    from lo2io.model import CallSpec
    from reference.fds import Description, Handle, Slot, Table
    from reference.ring_objects import Ring
    from reference.tasks import Task


@dataclass(eq=False)
class Pending:
    """A call between its entry and its exit."""

    task: Task
    call: int
    spec: CallSpec
    time: int
    cpu: int
    values: dict[str, Any]
    fd: int = -1
    fd2: int = -1
    table: Table | None = None
    handle: Handle | None = None
    handle2: Handle | None = None
    taken: Slot | None = None
    position: int | None = None
    moves: list[Description] = field(default_factory=list)
    overlapped: bool = False
    told_position: int | None = None
    """The position that a BPF program told, and …"""
    told_value: int | None = None
    first_use: int = 0
    confirmed: set[int] = field(default_factory=set)
    """Descriptors whose files a fact about this very call told."""
    claimed: set[Handle] = field(default_factory=set)
    """Handles that no row has named before."""
    doubtful: set[int] = field(default_factory=set)
    """0, 1: handle, handle2 may have been exchanged during the call."""
    shared: bool = False
    """Its table was shared at its entry."""
    made: Handle | None = None
    """The handle that it put into a slot."""
    found_since: int | None = None
    """How long the slot had held the replaced file."""
    new_flags: int | None = None
    off: tuple[int, int] | None = None
    """Without a CPU since then, and why."""
    run_queue: int = 0
    off_end: int = LONG_AGO
    """Of its last stretch without a CPU."""
    blocked: int = 0
    unseen: bool = True
    """A part of its time without a CPU is not known."""
    ring: Ring | None = None
    named: Ring | None = None
    """The ring of an event of io_uring inside of the call."""
    order: int = 0
    """Number of events of rings before the call."""
    deeds: Deeds = field(default_factory=Deeds)
    """What it did in the page cache."""
    nr_requests: int = 0
    nr_completions: int = 0
    sleep: int | None = None
    child: Task | None = None
    """A thread born inside of the call."""
    done: int = 0

    @property
    def shares(self) -> dict[str, int]:
        """The known parts of its time."""
        return {} if self.unseen else {"run_queue_ns": self.run_queue, "blocked_ns": self.blocked}
