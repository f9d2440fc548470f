"""Calls that submit to rings or collect from them; and libaio's contexts, which are known by these calls alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lo2io.model import CallKind

if TYPE_CHECKING:
    from reference.pending import Pending
    from reference.ring_objects import Ring
    from reference.rings import Rings
    from reference.tasks import Process, Task

MASK32 = 2**32 - 1
SUBMITS, COLLECTS = (CallKind.RING_ENTER, CallKind.AIO_SUBMIT), (CallKind.AIO_COLLECT,)
LIBAIO = (CallKind.AIO_SETUP, CallKind.AIO_SUBMIT, CallKind.AIO_COLLECT, CallKind.AIO_DESTROY)
AIO, REGISTERED_RING, REGISTER_USES_RING = 1, 16, 1 << 31


def registered(op: Pending) -> bool:
    """True if the given number is no descriptor."""
    flags = op.values.get("flags", 0)
    if op.spec.kind is CallKind.RING_ENTER:
        return bool(flags & REGISTERED_RING)
    return op.spec.kind is CallKind.RING_REGISTER and bool(flags & REGISTER_USES_RING)


class Batches:
    """Rows of ``batches``, and libaio's contexts."""

    def __init__(self, rings: Rings) -> None:
        self.rings = rings
        self.contexts: dict[tuple[Process, int], Ring] = {}

    # -- io_uring_enter

    @staticmethod
    def by_number(op: Pending) -> None:
        """True if the call names its ring by a place among registered rings, which is no descriptor."""
        if registered(op):
            op.fd = -1

    def entered(self, op: Pending) -> None:
        """A call's entry."""
        op.order = len(self.rings.requests.events)
        if op.spec.kind in LIBAIO:
            known = self.contexts.get((op.task.process, op.values.get("context", 0)))
            op.ring = known if known is not None and not known.ended else None
        if op.spec.kind is not CallKind.RING_ENTER:
            return
        if op.handle is not None and op.handle.description.ring is not None:
            self.named(op.handle.description.ring, op)

    def named(self, ring: Ring, op: Pending) -> None:
        """The call's ring is known now."""
        if op.ring is not ring:
            op.ring, op.nr_completions = ring, 0
            op.order = len(self.rings.requests.events)
            self.rings.states.entered(op, ring)

    def submitted(self, ring: Ring, task: Task) -> None:
        """A request has begun."""
        op = task.pending
        if op is not None and op.spec.kind is CallKind.RING_ENTER and op.ring is ring:
            op.nr_requests += 1

    def posted(self, ring: Ring) -> None:
        """A CQE has come."""
        for task in self.rings.engine.tasks.alive.values():
            op = task.pending
            if op is not None and op.spec.kind is CallKind.RING_ENTER and op.ring is ring:
                op.nr_completions += 1

    def waited(self, ring: Ring, task: Task, time: int) -> None:
        """The thread is about to sleep."""
        op = task.pending
        if op is not None and op.spec.kind is CallKind.RING_ENTER and op.ring is ring and op.sleep is None:
            op.sleep = time

    def row(self, op: Pending, ret: int | None, time: int | None) -> dict[str, Any] | None:
        """The batch's row, when the call is over; None if it is no batch."""
        kind, values = op.spec.kind, op.values
        if kind in LIBAIO:
            self._libaio(op, ret, time)
        if op.ring is not None and kind is CallKind.RING_ENTER and not self.rings.engine.over:
            self.rings.states.left(op.ring, self.rings.engine.now)
        if kind not in (*SUBMITS, *COLLECTS):
            return None
        if op.ring is not None and not op.ring.left:
            op.ring.nr_batches += 1
        replaced = op.ring is not None and op.ring.kind != AIO and self.rings.known(op.ring.context) is not op.ring
        done = ret if ret is not None and ret >= 0 else -1
        return {
            "ring": op.ring,
            "asked": min(values.get("count", 0), MASK32),
            "wanted": min(values.get("wanted", 0), MASK32),
            "submitted": done if kind in SUBMITS else -1,
            "collected": done if kind in COLLECTS else -1,
            "nr_requests": op.nr_requests,
            "nr_completions": 0 if replaced else op.nr_completions,
            "sleep_time_ns": op.sleep,
        }

    # -- libaio

    def _libaio(self, op: Pending, ret: int | None, time: int | None) -> None:
        task = op.task
        if ret is None or ret < 0 or time is None or not task.recorded:
            return
        if op.spec.kind is CallKind.AIO_SETUP:
            task.process.setups.append(op)
            op.done = time
            return
        context = op.values["context"]
        ring = self.contexts.get((task.process, context))
        if ring is None or ring.ended:
            ring = self._first_use(op, context)
        op.ring = ring
        if op.spec.kind is CallKind.AIO_DESTROY:
            ring.ended, ring.end_time = True, time
            return
        change = ret if op.spec.kind is CallKind.AIO_SUBMIT else -ret
        if change > 0:
            ring.nr_requests += ret
        else:
            ring.nr_completions += ret
        self.rings.states.collected(ring, change, time)

    def _first_use(self, op: Pending, context: int) -> Ring:
        ring = self.rings.new(AIO, context, op.task)
        self.contexts[op.task.process, context] = ring
        process = op.task.process
        setups = process.setups
        if process.whole and setups:
            if len(setups) == 1 and not process.several_setups:
                ring.created, ring.task = setups[0].done, setups[0].task
            if len({each.values.get("count", 0) for each in setups}) == 1:
                ring.sq_entries = setups[0].values.get("count", 0)
            process.several_setups = len(setups) > 1
        if setups:
            setups.pop(0)
        return ring

    def process_execs(self, process: Process, time: int | None) -> None:
        """Its contexts are gone, as at the end of its last task."""
        for (owner, _), ring in self.contexts.items():
            if owner is process and not ring.ended:
                ring.ended, ring.end_time = True, time
        process.setups.clear()
