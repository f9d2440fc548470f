"""The states of rings: how much is in flight, and how many CQEs may lie in the queue."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from lo2io.model import CallKind
from reference.ring_objects import CQE_SKIP

if TYPE_CHECKING:
    from reference.pending import Pending
    from reference.ring_objects import Lane, Request, Ring
    from reference.rings import Rings
    from reference.tasks import Task

UP, DOWN = 1, 2
CQE_MIXED = 1 << 18


@dataclass(eq=False)
class State:
    """The state of one ring."""

    turned: int | None = None
    direction: int = 0
    open_requests: set[Request] = field(default_factory=set)
    punted: set[Request] = field(default_factory=set)
    workers: int = 0
    cq_least: int = 0
    inside: Pending | None = None
    """The call of the only user."""
    waiting: bool = False
    """CQEs wait for room, as far as is known."""
    posts: list[tuple[int, Lane]] = field(default_factory=list)
    looks: dict[Lane, int] = field(default_factory=dict)
    """The number of the event at which a thread last posted or submitted."""


class States:
    """Rows of ``ring_states``."""

    def __init__(self, rings: Rings) -> None:
        self.rings = rings
        self.of: dict[Ring, State] = {}

    def state(self, ring: Ring) -> State:
        """The state of a ring."""
        return self.of.setdefault(ring, State())

    # -- rows

    def _row(self, ring: Ring, time: int) -> None:
        state = self.state(ring)
        ring.rows.append(
            {
                "time_ns": time,
                "ring": ring,
                "process": None if ring.process is None else ring.process.index,
                "in_flight": ring.unread if ring.kind else len(state.open_requests),
                "punted": len(state.punted),
                "workers": state.workers,
                "cq_least": min(state.cq_least, 2**32 if ring.cq_most is None else ring.cq_most),
                "cq_most": ring.unread if ring.kind else ring.cq_most,
            }
        )

    def settle(self, ring: Ring) -> None:
        """Write the row of a change that has none yet."""
        state = self.state(ring)
        if state.turned is not None:
            self._row(ring, state.turned)
            state.turned, state.direction = None, 0

    def _before(self, ring: Ring, direction: int) -> None:
        if self.state(ring).direction not in (0, direction):
            self.settle(ring)

    def _after(self, ring: Ring, direction: int, time: int) -> None:
        state = self.state(ring)
        state.turned, state.direction = time, direction

    def _at_once(self, ring: Ring, time: int) -> None:
        state = self.state(ring)
        state.turned, state.direction = None, 0
        self._row(ring, time)

    # -- changes

    def _order(self) -> int:
        return len(self.rings.requests.events)

    def began(self, request: Request, time: int) -> None:
        """A request."""
        ring = request.ring
        state = self.state(ring)
        self._before(ring, UP)
        state.open_requests.add(request)
        ring.most_in_flight = max(ring.most_in_flight, len(state.open_requests))
        self._after(ring, UP, time)
        if request.lane is not None:
            state.looks[request.lane] = self._order()

    def punted(self, request: Request, time: int) -> None:
        """A request goes to a worker for the first time."""
        state = self.state(request.ring)
        if request not in state.punted and request in state.open_requests:
            self._before(request.ring, UP)
            state.punted.add(request)
            self._after(request.ring, UP, time)

    def ended(self, request: Request, time: int, how: str) -> None:
        """A request has ended."""
        state = self.state(request.ring)
        if request not in state.open_requests or how in ("gone", "trace"):
            return
        self._before(request.ring, DOWN)
        state.open_requests.discard(request)
        state.punted.discard(request)
        self._after(request.ring, DOWN, time)

    def posted(self, ring: Ring, lane: Lane, time: int) -> None:
        """A CQE found room."""
        state = self.state(ring)
        self._before(ring, DOWN)
        state.waiting = False
        if ring.cq_most is not None:
            ring.cq_most = min(ring.cq_most + 1, ring.room or ring.cq_most + 1)
        if self._watched(ring):
            state.cq_least += 1
        else:
            state.cq_least = 0
        state.posts.append((self._order(), lane))
        state.looks[lane] = self._order()
        self._after(ring, DOWN, time)

    def overflowed(self, ring: Ring, time: int) -> None:
        """A CQE found no room."""
        state = self.state(ring)
        proves = not state.waiting and ring.room and ring.created is not None and not (ring.flags or 0) & CQE_MIXED
        state.waiting = True
        self._before(ring, DOWN)
        if proves:
            self.settle(ring)
        if ring.room:
            ring.cq_most = ring.room
        elif ring.cq_most is not None:
            ring.cq_most += 1
        if not proves:
            self._after(ring, DOWN, time)
            return
        state.cq_least = ring.room or 0
        self._row(ring, time)
        if not self._watched(ring):
            state.cq_least = 0
            self._row(ring, time)

    def waited(self, ring: Ring, lane: Lane, time: int, wanted: int) -> None:
        """A thread has looked and found too few."""
        state = self.state(ring)
        self.settle(ring)
        pending = lane.task.pending if lane.task is not None else None
        entry = pending.order if pending is not None and pending.spec.kind is CallKind.RING_ENTER else None
        if entry is not None and wanted > 0:
            look = max(entry, state.looks.get(lane, entry))
            since = sum(order >= look and other is not lane for order, other in state.posts)
            bound = wanted - 1 + since
            ring.cq_most = bound if ring.cq_most is None else min(bound, ring.cq_most)
            state.cq_least = min(state.cq_least, ring.cq_most)
            state.waiting = state.waiting and since > 0
        self._at_once(ring, time)

    def changed_workers(self, ring: Ring, time: int, workers: list[Task], change: int) -> None:
        """Workers were born or have died, or their owner submits from now on."""
        self.settle(ring)
        for worker in workers:
            (worker.serves.append if change > 0 else worker.serves.remove)(ring)
        self.state(ring).workers += change * len(workers)
        self._at_once(ring, time)

    def ring_ended(self, ring: Ring, time: int) -> None:
        """Nobody collects or works any more, and requests that asked for no CQE may be over."""
        state = self.state(ring)
        silent = {request for request in state.open_requests if request.flags & CQE_SKIP}
        self.settle(ring)
        for task in self.rings.engine.tasks.all:
            task.serves = [each for each in task.serves if each is not ring]
        if ring.kind or not (silent or state.workers or state.cq_least):
            return
        state.open_requests -= silent
        state.punted -= silent
        state.workers = state.cq_least = 0
        self._at_once(ring, time)

    # -- the only user

    @staticmethod
    def _only_user(ring: Ring) -> Task | None:
        """The only thread that can collect."""
        if ring.created is None or ring.process is None or ring.process.forks != ring.forks:
            return None
        users = [task for task in ring.process.alive if not task.kernels and not task.kind]
        return users[0] if len(users) == 1 else None

    def _watched(self, ring: Ring) -> bool:
        """True if nobody can collect at this moment."""
        inside = self.state(ring).inside
        return inside is not None and self._only_user(ring) is inside.task and inside.task.pending is inside

    def entered(self, op: Pending, ring: Ring) -> None:
        """A thread is in a call on the ring."""
        if self._only_user(ring) is op.task:
            self.state(ring).inside = op

    def left(self, ring: Ring, time: int) -> None:
        """The exit of io_uring_enter: the thread can collect from now on."""
        state = self.state(ring)
        state.inside = None
        if state.cq_least > 0:
            self.settle(ring)
            state.cq_least = 0
            self._at_once(ring, time)

    def collected(self, ring: Ring, change: int, time: int) -> None:
        """libaio: so many more are under way, or fewer."""
        if change:
            direction = UP if change > 0 else DOWN
            self._before(ring, direction)
            ring.unread = max(0, ring.unread + change)
            ring.most_in_flight = max(ring.most_in_flight, ring.unread)
            self._after(ring, direction, time)


Row = dict[str, Any]
