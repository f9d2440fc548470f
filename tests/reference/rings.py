"""All rings, with their processes, begins and ends."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lo2io.model import UNKNOWN_U32, CallKind, Role
from reference.fds import BY_RING, Description, Table
from reference.ring_batches import Batches, registered
from reference.ring_objects import Lane, Request, Ring
from reference.ring_requests import RingRequests
from reference.ring_states import States

if TYPE_CHECKING:
    from reference.engine import Reference
    from reference.fds import Handle
    from reference.pending import Pending
    from reference.tasks import Process, Task

URING, AIO = 0, 1
SETUP_SQPOLL, REGISTERED_FD_ONLY = 2, 1 << 15
RESIZE_RINGS = 33
WORKER, POLLER = 1, 2
SURE_FDS = 4096
"""Below that, descriptors of rings are known from others."""


class Rings:
    """All rings, by their tracepoints and the calls on them."""

    def __init__(self, engine: Reference) -> None:
        self.engine = engine
        self.all: list[Ring] = []
        self.at: dict[int, Ring] = {}
        self.states = States(self)
        self.batches = Batches(self)
        self.requests = RingRequests(engine, self)

    # -- identity

    def known(self, ctx: int) -> Ring | None:
        """The ring last seen at this address."""
        return self.at.get(ctx)

    def of(self, ctx: int, task: Task | None) -> Ring:
        """The ring of an event; ``task`` is the thread that uses it, if the event has one."""
        ring = self.at.get(ctx)
        if ring is None or (task is not None and ring.gone):
            if ring is not None:
                self._give_up(ring)
            ring = self.at[ctx] = self.new(URING, ctx, task)
        if task is not None and ring.process is None:
            ring.process, ring.pid = task.process, task.process.pid
        return ring

    def new(self, kind: int, context: int, task: Task | None) -> Ring:
        """A new ring."""
        ring = Ring(len(self.all), kind, context)
        if task is not None:
            ring.process, ring.pid = task.process, task.process.pid
        self.all.append(ring)
        return ring

    def _give_up(self, ring: Ring, *, ended: bool = True) -> None:
        """Its address is another's, or the trace ends: its requests end."""
        ring.left = True
        for task in self.engine.tasks.all:
            task.serves = [each for each in task.serves if each is not ring]
        self.requests.abandon(ring, torn_down=ended, time=self.engine.now)
        self.states.settle(ring)

    # -- events

    def sample(self, role: Role, time: int, tid: int, values: dict[str, Any]) -> None:
        """An event of io_uring."""
        task = self.engine.tasks.of_sample(tid, create=True)
        lane = self.requests.lane(tid)
        recorded = task is not None and task.recorded
        if role is Role.RING_CREATE and task is not None and recorded:
            self._create(task, time, values)
        elif role is Role.RING_CREATE and values["ctx"] in self.at:
            self._give_up(self.at.pop(values["ctx"]))
        elif role is Role.RING_REGISTER and task is not None and (recorded or values["ctx"] in self.at):
            self._register(task, values)
        elif role is Role.RING_WAIT and task is not None and (recorded or values["ctx"] in self.at):
            ring = self.of(values["ctx"], task if recorded else None)
            if recorded:
                self._named(ring, task, CallKind.RING_ENTER)
            self.states.waited(ring, lane, time, values.get("count", 0))
            self.batches.waited(ring, task, time)
        self.requests.sample(role, time, tid, values)

    def _create(self, task: Task, time: int, values: dict[str, Any]) -> None:
        ctx = values["ctx"]
        old = self.at.get(ctx)
        if old is not None:
            self._give_up(old)
        ring = self.at[ctx] = self.new(URING, ctx, task)
        ring.created, ring.task, ring.flags = time, task, values.get("flags")
        ring.sq_entries, ring.cq_entries = values.get("count", 0), values.get("count2", 0)
        ring.forks = task.process.forks
        ring.files = 0
        ring.nr_files = ring.nr_buffers = 0
        ring.room = ring.cq_entries or None
        ring.cq_most = 0 if ring.room else None
        pending = task.pending
        inside = pending is not None and pending.spec.kind is CallKind.RING_SETUP
        if (ring.flags or 0) & REGISTERED_FD_ONLY:
            ring.fd = -1
        else:
            ring.fd = values.get("fd", -1)
        if inside and pending is not None:
            pending.ring = ring
            if (ring.flags or 0) & SETUP_SQPOLL:
                ring.poller = pending.child

    def _register(self, task: Task, values: dict[str, Any]) -> None:
        ring = self.of(values["ctx"], task if task.recorded else None)
        if task.recorded:
            self._named(ring, task, CallKind.RING_REGISTER)
        for column, name in (("nr_files", "count"), ("nr_buffers", "count2")):
            if name in values:
                setattr(ring, column, max(getattr(ring, column) or 0, values[name]))
        if "count" in values:
            ring.files = values["count"]
        if values.get("opcode") == RESIZE_RINGS and values.get("result", 0) >= 0:
            ring.room = ring.cq_most = None

    def _named(self, ring: Ring, task: Task, call: CallKind) -> None:
        """An event of this thread names the ring, so its call's descriptor is that ring."""
        pending = task.pending
        if pending is None or pending.spec.kind is not call or registered(pending):
            return
        if call is CallKind.RING_ENTER:
            self.batches.named(ring, pending)
        pending.named = ring
        if pending.handle is not None and self._is_kept(pending):
            self._learn_handle(ring, pending, pending.handle)

    def _learn_handle(self, ring: Ring, pending: Pending, handle: Handle) -> None:
        if ring.handle is None:
            ring.fd, ring.handle = pending.fd, handle
        self.bind(ring, handle)

    def _is_kept(self, pending: Pending) -> bool:
        """True if its slot has been constant since the entry, so that the call met nothing else."""
        slot, table = pending.task.table.slots.get(pending.fd), pending.task.table
        here = slot is not None and slot.handle is pending.handle and slot.since <= pending.time
        return here and table.is_steady(pending.fd, pending.time) and self.engine.gaps.spare(pending.time)

    def bind(self, ring: Ring, handle: Handle) -> None:
        """The handle is a descriptor of the ring."""
        ring.held = ring.held or (handle.ended and handle.description.ring is not ring)
        former = handle.description.ring
        if former is not None and former is not ring:
            former.descriptions.remove(handle.description)
        handle.description.ring = ring
        if handle.description not in ring.descriptions:
            ring.descriptions.append(handle.description)
        for fact in handle.description.ring_facts:
            self._learn(ring, fact)

    # -- effects of calls

    def seen(self, op: Pending) -> None:
        """The descriptor of a call that named a ring is known now, unless entry and exit may be of two calls."""
        if op.named is not None and not op.named.left and op.handle is not None and self.engine.gaps.spare(op.time):
            self._learn_handle(op.named, op, op.handle)

    def has_no_descriptor(self, op: Pending) -> bool:
        """True if io_uring_setup returns the place of a registered ring."""
        return op.ring is not None and bool((op.ring.flags or 0) & REGISTERED_FD_ONLY)

    def installed(self, op: Pending, handle: Handle) -> None:
        """io_uring_setup has returned this descriptor."""
        if op.ring is not None and op.spec.kind is CallKind.RING_SETUP:
            if op.ring.handle is None:
                op.ring.fd, op.ring.handle = handle.fd, handle
            self.bind(op.ring, handle)

    # -- facts

    def fact(self, values: dict[str, Any]) -> None:
        """``RING``: facts from fdinfo."""
        found = self.engine.tasks.table_of(values["pid"])
        if found is None or values["jumped"]:
            return
        task, table = found
        slot = table.slots.get(values["fd"])
        if slot is None or slot.since > values["begin"] or (self.engine.all_tasks and not task.recorded):
            return
        slot.description.ring_facts.append(values)
        if slot.description.ring is not None:
            self._learn(slot.description.ring, values)

    def _learn(self, ring: Ring, values: dict[str, Any]) -> None:
        ring.sq_entries = ring.sq_entries or values["sq_entries"]
        ring.cq_entries = ring.cq_entries or values["cq_entries"]
        if ring.poller is None and values["poller"] >= 0:
            ring.poller = self.engine.tasks.alive.get(values["poller"])
        if ring.nr_files is None and values["nr_files"] != UNKNOWN_U32:
            ring.nr_files = ring.files = values["nr_files"]
        if ring.nr_buffers is None and values["nr_buffers"] != UNKNOWN_U32:
            ring.nr_buffers = values["nr_buffers"]

    # -- requests

    def began(self, request: Request, time: int) -> None:
        """A request of the ring begins."""
        ring, lane = request.ring, request.lane
        task = lane.task if lane is not None else None
        if task is not None and not request.older:
            self._named(ring, task, CallKind.RING_ENTER)
            if ring.ended and not ring.gone:
                ring.ended, ring.end_time, ring.held = False, None, True
            first = ring not in task.uses
            if first:
                task.uses.append(ring)
            if task.kind == POLLER and ring.poller is None:
                ring.poller = task
            self.batches.submitted(ring, task)
        ring.nr_requests += 1
        self.engine.totals["nr_ring_requests"] += 1
        self.states.began(request, time)
        if task is not None and not request.older and first and self.workers_of(task):
            self.states.changed_workers(ring, time, self.workers_of(task), 1)

    def punted(self, request: Request, time: int) -> None:
        """A request goes to a worker for the first time."""
        request.ring.nr_punts += 1
        self.states.punted(request, time)

    def ended(self, request: Request, time: int, how: str) -> None:
        """A request has ended."""
        self.states.ended(request, time, how)

    def posted(self, ring: Ring, time: int, lane: Lane, *, overflows: bool) -> None:
        """A CQE."""
        ring.nr_completions += 1
        if overflows:
            ring.nr_overflows += 1
            self.states.overflowed(ring, time)
        else:
            self.states.posted(ring, lane, time)
            self.batches.posted(ring)

    def orphan(self, ring: Ring) -> None:
        """A CQE of an unknown request."""
        ring.nr_orphans += 1
        self.engine.totals["nr_orphan_cqes"] += 1

    def message(self, ring: Ring, time: int, lane: Lane) -> None:
        """A CQE of another ring's request, or of the kernel itself."""
        ring.nr_messages += 1
        self.posted(ring, time, lane, overflows=False)

    def opened(self, ring: Ring, task: Task, fd: int, time: int) -> None:
        """A request returned a descriptor, or the index of a registered file."""
        slot = task.table.take(fd, time)
        if slot is not None and slot.own:
            slot.handle.end(None)
        if ring.files != 0:
            return
        handle = self.engine.calls.tables.make(task, fd, BY_RING, Description(None), time)
        task.table.put(fd, handle, time)

    def closed_something(self, task: Task, time: int) -> None:
        """A request closed an unknown descriptor; not a ring's, for CLOSE refuses that."""
        table: Table = task.table
        for fd in list(table.slots):
            if table.slots[fd].description.ring is None or fd >= SURE_FDS:
                slot = table.take(fd, time)
                if slot is not None and slot.own:
                    slot.handle.end(None)
        table.since = time
        table.changed = {fd: at for fd, at in table.changed.items() if fd in table.slots}

    # -- threads

    def _named_owner(self, task: Task) -> Task | None:
        """Of a worker: the living thread in its name, if it is of the same process."""
        number = task.comm.partition(b"iou-wrk-")[2]
        found = self.engine.tasks.alive.get(int(number)) if number.isdigit() else None
        return found if found is not None and found.process is task.process else None

    def workers_of(self, task: Task) -> list[Task]:
        """Living workers."""
        return [each for each in self.engine.tasks.alive.values() if each.kind == WORKER and each.owner is task]

    def worker_born(self, task: Task, time: int) -> None:
        """A worker has its name now, or was made by one that has it."""
        owner = task.owner = self._named_owner(task)
        for ring in owner.uses if owner is not None else ():
            if not ring.ended and not ring.left:
                ring.nr_workers += 1
                self.states.changed_workers(ring, time, [task], 1)

    def worker_gone(self, task: Task, time: int) -> None:
        """A worker has exited."""
        for ring in list(task.serves):
            self.states.changed_workers(ring, time, [task], -1)

    def owner_gone(self, task: Task, time: int) -> None:
        """A thread has exited: its workers serve nobody."""
        workers = self.workers_of(task)
        for ring in task.uses:
            served = [each for each in workers if ring in each.serves]
            if served:
                self.states.changed_workers(ring, time, served, -1)

    # -- ends

    def look_for_ends(self, time: int) -> None:
        """After each record: does any process still have a descriptor?"""
        for ring in self.all:
            if ring.ended or ring.left or not ring.descriptions or ring.kind == AIO or ring.held:
                continue
            if not self._held(ring.descriptions):
                self._end(ring, time)

    def _held(self, descriptions: list[Description]) -> bool:
        tables = {id(task.table): task.table for task in self.engine.tasks.alive.values()}
        slots = [slot for table in tables.values() for slot in table.slots.values()]
        calls = [task.pending for task in self.engine.tasks.alive.values() if task.pending is not None]
        handles = [handle for op in calls for handle in (op.handle, op.handle2) if handle is not None]
        return any(each.description in descriptions for each in (*slots, *handles))

    def _end(self, ring: Ring, time: int | None) -> None:
        unsure = any(
            handle.ended and handle.close_time is None
            for handle in self.engine.calls.tables.handles
            if handle.description in ring.descriptions
        )
        if not unsure:
            ring.ended, ring.end_time = True, time
            self.states.ring_ended(ring, self.engine.now)

    def process_ended(self, process: Process, time: int | None) -> None:
        """The ring ends with its process' last task, if no other process has a descriptor."""
        for ring in self.all:
            if ring.process is process and not ring.left and not self._held(ring.descriptions):
                if not ring.ended:
                    ring.ended, ring.end_time = True, time
                    self.states.ring_ended(ring, self.engine.now)
                ring.gone = True

    def finish(self) -> None:
        """The trace ends, and with it all executions."""
        for lane in list(self.requests.lanes.values()):
            if lane.task is None or not lane.task.ended:
                self.requests.note(lane, self.engine.now, "exit")
        for ring in self.all:
            if self.at.get(ring.context) is ring or ring.kind == AIO:
                self._give_up(ring, ended=ring.ended)
