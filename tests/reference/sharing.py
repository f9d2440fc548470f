"""Who shares a table of descriptors, by the address that each fact about one bears: the slow engine's rules."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reference.fds import End, Table
from reference.lookups import ends_over

if TYPE_CHECKING:
    from reference.engine import Reference
    from reference.pending import Pending
    from reference.tasks import Task


def table_told(engine: Reference, task: Task, address: int, op: Pending | None) -> None:
    """The thread's table is the one at that address.

    Args:
        engine: Knows all tables.
        task: The thread.
        address: 0 if the fact is about no table.
        op: The call that the thread is in, or about to leave.
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
    for each in [each for each in alive if each.table is own] if not own.address else [task]:
        _move(each, other, now, op if each is task else each.pending)
    _doubt(other, now)


def _doubt(table: Table, now: int) -> None:
    """Nothing is known of it, nor what calls that are under way have met."""
    table.forget(now)
    table.ends.append(End(None, None, now, blind=True, until=now))


def _move(task: Task, to: Table, now: int, op: Pending | None) -> None:
    if op is not None:
        ends_over(op, now)
        op.shared = False
    task.table.users -= 1
    if not task.table.users:
        task.table.forget(now)
    task.table, to.users = to, to.users + 1
