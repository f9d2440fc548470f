"""Finds the request of each event, and the ends of requests, as far as that is possible while events come in."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lo2io.native._lib import lib

from lo2io.model import CallKind, OpcodeTrait, Role
from reference.fds import LONG_AGO
from reference.ring_completions import IDENTITY, Completions
from reference.ring_descriptors import Descriptors
from reference.ring_links import Links
from reference.ring_objects import (
    CANCELED,
    CQE_SKIP,
    DRAIN,
    FIXED_FILE,
    NO_OPCODE,
    PASSED_OVER,
    SQE_FLAGS,
    Event,
    Lane,
    Request,
    Ring,
    Sleep,
    opcode_has,
    start_of,
)

if TYPE_CHECKING:
    from reference.engine import Reference
    from reference.rings import Rings
    from reference.tasks import Task

ABOUT = {
    Role.RING_FILE_GET: "file_get",
    Role.RING_PUNT: "punt",
    Role.RING_POLL_ARM: "poll_arm",
    Role.RING_WAKE: "wake",
    Role.RING_DEFER: "defer",
}
"""Events that prove a request whose submission was not seen."""
LONE = {
    Role.RING_CREATE: "create",
    Role.RING_REGISTER: "register",
    Role.RING_WAIT: "wait",
    Role.RING_TASK_WORK: "work",
    Role.RING_LOCAL_WORK: "work",
}
DRAINED, HASHED = 2, 4
SQPOLL, WORKER, POLLER = 1, 1, 2
PLUG_THRESHOLD = 2
"""Submitting more at once holds block requests back until the end (IO_PLUG_THRESHOLD, io_uring/io_uring.c)."""


class RingRequests:
    """Requests of rings, from the first event to the last."""

    def __init__(self, engine: Reference, rings: Rings) -> None:
        self.engine = engine
        self.rings = rings
        self.lanes: dict[object, Lane] = {}
        self.events: list[Event] = []
        self.last: dict[tuple[int, int], Request] = {}
        """By the addresses of ring and request."""
        self.all: list[Request] = []
        self.shorts: list[tuple[Event, dict[str, Any]]] = []
        self.sleeps: list[Sleep] = []
        self.stashed: dict[Lane, tuple[Event, dict[str, Any]]] = {}
        """Lookups of descriptors whose event does not name the request."""
        self.descriptors = Descriptors(engine)
        self.completions = Completions(self)
        self.links = Links(self)

    # -- threads

    def lane(self, tid: int) -> Lane:
        """The lane of a thread."""
        return self.lane_of(self.engine.tasks.alive.get(tid), tid)

    def lane_of(self, task: Task | None, tid: int) -> Lane:
        """The lane of a thread, known or not."""
        return self.lanes.setdefault(tid if task is None else task, Lane(task, tid))

    def note(self, lane: Lane, time: int, kind: str, request: Request | None = None, **more: Any) -> Event:
        """Add an event to the lists to which it belongs."""
        event = Event(len(self.events), time, lane, kind, request, worker=lane.worker and lane.recorded, **more)
        self.events.append(event)
        lane.log.append(event)
        if request is not None:
            request.events.append(event)
            event.opcode = request.opcode
        return event

    def thread(self, task: Task, time: int, kind: str) -> None:
        """An act of a thread other than io_uring's events: ``call``, ``exit``, ``in``, ``out``."""
        self.note(self.lane_of(task, task.tid), time, kind)

    def slept(self, task: Task, end: int, told: dict[str, Any]) -> Request | None:
        """A worker had no CPU. Returns the request that it executed; None: not known, or it is over."""
        found = [request for request in self.all if request.address == told["request"]]
        if not found or not found[-1].alive or (found[-1].submit is not None and told["out_ns"] < found[-1].submit):
            return None
        lane = self.lane_of(task, task.tid)
        broken = lib.LO2_SLEEP_ENDLESS | lib.LO2_SLEEP_LOST | lib.LO2_SLEEP_FAULT
        wake = None if told["flags"] & broken else told["wake_ns"] or None
        self.sleeps.append(Sleep(len(self.events), lane, found[-1], told["out_ns"], wake, end))
        return found[-1]

    def executing(self, task: Task | None) -> Request | None:
        """The request that a thread provably executes at this moment."""
        if task is None or (task.pending is None and task.kind != WORKER):
            return None
        call = task.pending
        if call is not None and call.spec.kind is CallKind.RING_ENTER and call.values.get("count", 0) > PLUG_THRESHOLD:
            return None
        log = self.lanes[task].log if task in self.lanes else []
        if task.kind == WORKER:
            log = [
                event for event in log if event.kind in ("file_get", "poll_arm", "cqe") and event.request is not None
            ]
            if any(_begins_unheard(r) for r in self.all if r.alive):
                return None
        latest = next((event for event in reversed(log) if event.kind not in PASSED_OVER), None)
        if latest is None:
            return None
        about = latest.request
        if about is not None and any(e.kind == "cqe" and e.order > latest.order for e in about.events):
            return None
        begun = [r for r in self.all if r.alive and start_of(r) is latest]
        if latest.kind == "file_get" and latest.request is not None and latest.request.alive:
            begun.append(latest.request)
        return begun[0] if begun else None

    # -- events

    def sample(self, role: Role, time: int, tid: int, values: dict[str, Any]) -> None:
        """An event of io_uring."""
        self.engine.tasks.of_sample(tid, create=True)
        lane = self.lane(tid)
        if role in (Role.RING_SUBMIT, Role.RING_REFUSE):
            self._begin(role, time, tid, values)
        elif role in ABOUT:
            self._about(ABOUT[role], lane, time, values)
        elif role is Role.RING_COMPLETE:
            self.completions.complete(lane, time, values)
        elif role is Role.RING_OVERFLOW:
            self.completions.overflow(lane, time, values)
        elif role is Role.RING_LINK:
            self.links.link(lane, time, values)
        elif role is Role.RING_FAIL_LINK:
            self.links.fail(lane, time, values)
        elif role is Role.RING_SHORT_WRITE:
            self._short(lane, time, values)
        else:
            self.note(lane, time, LONE[role], count=values.get("count", 0))

    def known(self, values: dict[str, Any]) -> Request | None:
        """The last request at the event's address."""
        if not values.get("req"):
            return None
        if "ctx" in values:
            return self.last.get((values["ctx"], values["req"]))
        there = [request for (_, address), request in self.last.items() if address == values["req"]]
        return max(there, key=lambda request: request.number, default=None)

    def meant(self, values: dict[str, Any], time: int, *, is_cqe: bool = False) -> Request | None:
        """The last request at the address, unless user_data is another's, whose start was lost then."""
        request = self.known(values)
        if request is None or not request.alive or request.awaits_readiness or request.opcode == NO_OPCODE:
            return request
        if values.get("user_data", request.user_data) == request.user_data:
            return request
        self.finish(request, "replaced", time)
        request.ended_at += is_cqe  # this event ends what the thread executed
        return None

    def unclear(self) -> None:
        """An event that belongs to no row."""
        self.engine.totals["nr_ring_unclear"] += 1

    def _begin(self, role: Role, time: int, tid: int, values: dict[str, Any]) -> None:
        task = self.engine.tasks.of_sample(tid, create=True)
        if task is None or not task.recorded:
            self.engine.totals["nr_own_requests"] += task is not None and self.engine.all_tasks
            self.note(self.lane(tid), time, "submit")
            return
        lane = self.lane_of(task, tid)
        ring = self.rings.of(values["ctx"], task)
        old = self.known(values)
        if old is not None and old.alive:
            self.finish(old, "replaced", time)
            old.ended_at += 1  # this event ends what the thread executed
        request = self._new(ring, values, lane, time)
        if role is Role.RING_REFUSE:
            request.refused = True
            request.refusal = (values.get("result", 0), values.get("offset", 0), values.get("length", 0))
        self.note(lane, time, "submit" if role is Role.RING_SUBMIT else "refuse", request)
        self.rings.began(request, time)
        request.traits |= SQPOLL if values.get("count2") or task.kind == POLLER else 0
        request.traits |= DRAINED if request.flags & DRAIN else 0
        self.links.submitted(lane, request)
        event, looked = self.stashed.pop(lane, (None, {}))
        ring_events = [each for each in lane.log if each.kind not in (*PASSED_OVER, "call")]
        if event is not None and ring_events[-2] is event and looked["ctx"] == values["ctx"]:
            self.descriptors.looked_up(request, lane, looked["fd"], event)

    def _new(self, ring: Ring, values: dict[str, Any], lane: Lane | None, time: int | None) -> Request:
        address = values.get("req") or None
        request = Request(
            len(self.all),
            ring,
            address,
            values.get("user_data", 0),
            values.get("opcode", NO_OPCODE),
            values.get("flags", 0) & SQE_FLAGS if time is not None else 0,
            lane,
            time,
        )
        self.all.append(request)
        request.begin_row = {"before": len(self.engine.operations), "call": _call_of(lane)}
        if address is not None:
            self.last[ring.context, address] = request
        return request

    def _about(  # noqa: C901, PLR0912 - one case per row of the document's table
        self, kind: str, lane: Lane, time: int, values: dict[str, Any]
    ) -> None:
        request = self.meant(values, time)
        if "req" not in values:
            if kind == "file_get":
                self.stashed[lane] = (self.note(lane, time, kind), values)
                return
            ring = self.rings.known(values["ctx"])
            found = (
                self.completions.alike(ring, values["user_data"]) if ring is not None and "user_data" in values else []
            )
            request = self.completions.first(found)
            if request is not None:
                request.inferred |= IDENTITY
        elif values["req"] and (request is None or not request.alive) and "user_data" in values:
            request = self._learns_address(values) or request
        if request is not None and not request.alive and kind == "wake":
            self.note(lane, time, kind)
            return
        if request is None or not request.alive:
            request = self._older(kind, lane, time, values)
        if request is None:
            self.note(lane, time, kind)
            return
        if request.lane is None and kind != "wake":
            self.owned(request, lane)
        if request.opcode == NO_OPCODE:
            request.opcode = values.get("opcode", NO_OPCODE)
        event = self.note(lane, time, kind, request, count=values.get("count", 0))
        if kind == "file_get":
            submitted = LONG_AGO if request.submit is None else request.submit
            self.descriptors.looked_up(request, lane, values["fd"], event, submitted)
        elif kind in ("punt", "poll_arm"):
            self.descriptors.proves(request, lane)
            if kind == "punt":
                request.traits |= HASHED if values.get("count") else 0
                self.rings.punted(request, time)
        elif kind == "defer":
            request.traits |= DRAINED
        if kind in ("file_get", "punt", "poll_arm"):
            self.links.shows_ended(request, event)

    def _learns_address(self, values: dict[str, Any]) -> Request | None:
        """A request whose submission had no address gets that of an event with its user_data."""
        ring = self.rings.known(values["ctx"])
        alike = [] if ring is None else self.completions.alike(ring, values["user_data"])
        found = next((request for request in alike if request.address is None), None)
        if found is not None:
            found.address = values["req"]
            found.inferred |= IDENTITY
            self.last[found.ring.context, found.address] = found
        return found

    def _older(self, kind: str, lane: Lane, time: int, values: dict[str, Any]) -> Request | None:
        """One that began before the trace."""
        ring = self.rings.known(values["ctx"])
        if not ((lane.recorded and kind != "wake") or (ring is not None and ring.recorded)):
            return None
        if kind == "wake" and not values.get("count"):
            return None
        owner = self._owner(lane) if kind != "wake" else None
        if owner is None and lane.worker and kind != "wake":
            return None
        ring = self.rings.of(values["ctx"], owner.task if owner is not None else None)
        if "user_data" not in values or ("req" in values and not values["req"]):
            self.unclear()
            return None
        request = self._new(ring, values, None, None)
        request.older = True
        self.rings.began(request, time)
        return request

    def owned(self, request: Request, lane: Lane) -> None:
        """True if this is the first thread seen with it."""
        request.lane = self._owner(lane)
        if request.lane is not None and request.ring.process is None:
            self.rings.of(request.ring.context, request.lane.task)

    def _owner(self, lane: Lane) -> Lane | None:
        """The owner of a request with which this thread is seen."""
        if not lane.worker or lane.task is None:
            return lane if lane.recorded else None
        owner = lane.task.owner
        return None if owner is None else self.lane_of(owner, owner.tid)

    # -- short writes

    def _short(self, lane: Lane, time: int, values: dict[str, Any]) -> None:
        event = self.note(lane, time, "short")
        self.shorts.append((event, values))

    # -- ends

    def finish(self, request: Request, how: str, time: int) -> None:
        """The request has ended."""
        request.alive, request.end, request.ended_at, request.end_time = False, how, len(self.events), time
        request.begin_row["end_before"] = len(self.engine.operations)
        request.begin_row["end_call"] = _call_of(request.lane)
        self.rings.ended(request, time, how)

    def dropped(self, request: Request, time: int) -> None:
        """It is cancelled with its chain, without a CQE; task work of its submitter frees it."""
        if not request.refused:
            request.result, request.complete = CANCELED, time
        if request.lane is not None:
            request.lane.log.append(Event(len(self.events) - 1, time, request.lane, "dropped"))
        self.finish(request, "dropped", time)

    def abandon(self, ring: Ring, *, torn_down: bool, time: int) -> None:
        """The ring is gone, or the trace ends."""
        for request in self.all:
            if request.alive and request.ring is ring:
                self.finish(request, "gone" if torn_down else "trace", time)

    def status(self, request: Request) -> int:
        """``enum lo2_ring_status``."""
        completed, in_flight, cancelled, refused, torn_down, silent = range(6)
        if request.refused:
            return refused
        if request.end == "dropped":
            return cancelled
        if request.end == "cqe" or request.waits_for_notification:
            return cancelled if request.result == CANCELED else completed
        if request.flags & CQE_SKIP and not request.nr_completions:
            return silent
        return torn_down if request.end == "gone" else in_flight


def _begins_unheard(request: Request) -> bool:
    """True if a worker may begin it at any time, without a lookup."""
    marks = [
        e.kind for e in request.events if e.kind == "punt" or (e.worker and e.kind in ("file_get", "cqe", "poll_arm"))
    ]
    looks_up = (
        opcode_has(request.opcode, OpcodeTrait.LOOKS_UP)
        and not request.older
        and not request.flags & FIXED_FILE
        and not request.fds
    )
    return marks[-1:] == ["punt"] and not looks_up


def _call_of(lane: Lane | None) -> int | None:
    pending = lane.task.pending if lane is not None and lane.task is not None else None
    return None if pending is None else pending.time
