"""A call under way, as the slow engine keeps it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

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
    """By the kernel's own programs, as is …"""
    told_value: int | None = None
    first_use: int = 0
    confirmed: set[int] = field(default_factory=set)
    """Descriptors of which a fact about this very call has told."""
    claimed: set[Handle] = field(default_factory=set)
    """Those that no row has named before."""
    doubtful: set[int] = field(default_factory=set)
    """0, 1: what handle, handle2 was thought to be may have been exchanged meanwhile."""
    shared: bool = False
    """Its table was, at its entry."""
    made: Handle | None = None
    """What it has put into a slot."""
    found_since: int | None = None
    """What was in that slot until then had been there since."""
    new_flags: int | None = None
    off: tuple[int, int] | None = None
    """Without a CPU since then, and why."""
    ring: Ring | None = None
    named: Ring | None = None
    """By an event of io_uring inside of it."""
    order: int = 0
    """Events of rings before it."""
    nr_requests: int = 0
    nr_completions: int = 0
    sleep: int | None = None
    child: Task | None = None
    """Born inside of it."""
    done: int = 0
