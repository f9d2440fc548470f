"""Which threads share a table of descriptors, by the address in each fact: the slow engine's rules."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reference.fds import End, Table
from reference.lookups import Lookups, ends_begin, ends_over

if TYPE_CHECKING:
    from reference.engine import Reference
    from reference.pending import Pending
    from reference.tasks import Task


def table_told(engine: Reference, task: Task, address: int, op: Pending | None) -> None:
    """The thread's table is the one at that address.

    Args:
        engine: Has all tables.
        task: The thread.
        address: 0 if the fact names no table.
        op: The call that the thread is in, or is about to leave.
    """
    own, now = task.table, engine.now
    if not address or own.address == address:
        return
    alive = list(engine.tasks.alive.values())
    other = next((each.table for each in alive if each.table.address == address), None)
    if other is None and (not own.address or own.users == 1):
        was, own.address = own.address, address
        if was:
            _doubt(own, now)
        return
    if other is None:
        other = Table(now)
        other.address = address
    if own.address:
        _move(task, other, now, op)
        _doubt(other, now)
        return
    _agree(own, other, now)
    for each in [each for each in alive if each.table is own]:
        _move(each, other, now, op if each is task else each.pending)
    _unsettle(other, now)


def _doubt(table: Table, now: int) -> None:
    """The table's slots are unknown, and so is what calls under way have met."""
    table.forget(now)
    _unsettle(table, now)


def _unsettle(table: Table, now: int) -> None:
    """Whatever calls under way have met may have been exchanged."""
    table.ends.append(End(None, None, now, blind=True, until=now))


def _agree(own: Table, other: Table, now: int) -> None:
    """A supposed copy is none: what both hold alike was never changed; all else is unknown."""
    for fd, slot in list(other.slots.items()):
        twin = own.slots.get(fd)
        if twin is None or twin.description is not slot.description or twin.cloexec != slot.cloexec:
            Lookups.forget(other, fd, now)
            continue
        slot.since = max(slot.since, twin.since)
        if twin.own and (not slot.own or slot.handle.parent is twin.handle):
            slot.handle, twin.handle, slot.own, twin.own = twin.handle, slot.handle, True, slot.own
    other.since, other.changed = now, {fd: slot.since for fd, slot in other.slots.items()}


def _move(task: Task, to: Table, now: int, op: Pending | None) -> None:
    ends = op is not None and any(end.op is op and end.until is None for end in task.table.ends)
    if op is not None:
        ends_over(op, now)
        op.shared = False
    task.table.users -= 1
    if not task.table.users:
        task.table.forget(now)
    task.table, to.users = to, to.users + 1
    if op is not None:
        op.table = to
        if ends:  # the thread's call may still end a descriptor in the new table
            ends_begin(op)
