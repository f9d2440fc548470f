"""Finds the request of a CQE, and applies the CQE to it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lo2io.model import CallKind, Returns
from reference.ring_objects import CANCELED, CQE_SKIP, EBADF, MORE, NOTIF, Event, Lane, Request, Ring

if TYPE_CHECKING:
    from reference.ring_requests import RingRequests

OVERFLOWED, NOTIFIED, MULTISHOT = 8, 16, 32
IDENTITY, TORN_DOWN = 64, 4


class Completions:
    """CQEs, including those that found no room."""

    def __init__(self, requests: RingRequests) -> None:
        self.requests = requests

    def alike(self, ring: Ring, user_data: int, *, repeats: bool = False, notified: bool = False) -> list[Request]:
        """Living requests of this ring and user_data, the oldest first."""
        alike = [r for r in self.requests.all if r.alive and r.ring is ring and r.user_data == user_data]
        alike = [r for r in alike if r.waits_for_notification == notified]
        return [r for r in alike if r.repeats] if repeats else alike

    @staticmethod
    def first(found: list[Request]) -> Request | None:
        """The first of these; a request that asks for its CQE precedes others."""
        return min(found, key=lambda r: bool(r.flags & CQE_SKIP), default=None)

    def complete(self, lane: Lane, time: int, values: dict[str, Any]) -> None:
        """``complete``."""
        flags = values.get("flags", 0)
        ring = self._ring_of_cqe(lane, values)
        if ring is None:
            self.requests.note(lane, time, "cqe", by_address=bool(values.get("req")))
            return
        if flags & NOTIF:
            found = self.alike(ring, values["user_data"], notified=True)
            self._posted(lane, time, values, ring, found[0] if found else None)
            return
        if "req" not in values:
            found = self.alike(ring, values["user_data"], repeats=bool(flags & MORE))
            self._posted(lane, time, values, ring, self.first(found), identity=True)
            return
        if not values["req"]:
            found = self.alike(ring, values["user_data"], repeats=True) if flags & MORE else []
            if not found:
                self.requests.rings.message(ring, time, lane)
                self.requests.note(lane, time, "cqe")
                return
            self._posted(lane, time, values, ring, found[0], identity=len(found) > 1)
            return
        request = self.requests.meant(values, time, is_cqe=True)
        if request is not None and not request.alive:
            if request.end == "gone" and self.requests.status(request) == TORN_DOWN:
                self.requests.note(lane, time, "cqe", by_address=True)
                return
            request = None
        self._posted(lane, time, values, ring, request)

    def _ring_of_cqe(self, lane: Lane, values: dict[str, Any]) -> Ring | None:
        ring = self.requests.rings.known(values["ctx"])
        if ring is None and lane.recorded:
            ring = self.requests.rings.of(values["ctx"], None)
        return ring if ring is not None and (ring.recorded or lane.recorded) else None

    def overflow(self, lane: Lane, time: int, values: dict[str, Any]) -> None:
        """``cqe_overflow``."""
        ring = self._ring_of_cqe(lane, values)
        if ring is None:
            self.requests.note(lane, time, "cqe")
            return
        flags = values.get("flags", 0)
        if flags & NOTIF:
            found = self.alike(ring, values["user_data"], notified=True)
        else:
            found = self.alike(ring, values["user_data"], repeats=bool(flags & MORE))
        self._posted(lane, time, values, ring, self.first(found), identity=True, overflows=True)

    def _posted(
        self,
        lane: Lane,
        time: int,
        values: dict[str, Any],
        ring: Ring,
        request: Request | None,
        *,
        identity: bool = False,
        overflows: bool = False,
    ) -> None:
        result, flags = values.get("result", 0), values.get("flags", 0)
        self.requests.rings.posted(ring, time, lane, overflows=overflows)
        if request is None:
            self.requests.rings.orphan(ring)
            self.requests.note(lane, time, "cqe", by_address=bool(values.get("req")))
            return
        if request.lane is None:
            self.requests.owned(request, lane)
        by_address = bool(values.get("req")) or overflows
        event = self.requests.note(
            lane, time, "cqe", request, by_address=by_address, result=result, count=flags & (MORE | NOTIF)
        )
        if lane.worker and request.lane is not None and request.lane is not lane and not flags & NOTIF:
            request.lane.log.append(Event(event.order, time, request.lane, "freed"))
        request.nr_completions += 1
        request.inferred |= IDENTITY if identity else 0
        request.traits |= OVERFLOWED if overflows else 0
        if flags & NOTIF:
            request.notify, request.traits = time, request.traits | NOTIFIED
            self._last(request, time)
            return
        request.result, request.cqe_flags, request.complete = result, flags, time
        request.last_cqe = event
        if result != EBADF:
            self.requests.descriptors.proves(request, lane)
        if result >= 0 and self._returns(request) is Returns.BYTES:
            request.bytes = (request.bytes or 0) + result
        if result != CANCELED and not request.refused:
            self.requests.links.shows_ended(request, event)
        if not flags & MORE:
            self._last(request, time)
        elif request.zero_copy:
            request.waits_for_notification = True
        else:
            request.traits |= MULTISHOT
        self._opens_or_closes(request, result, time)

    def _last(self, request: Request, time: int) -> None:
        """Its last CQE: it has ended. A request without a thread has no row, so its CQE is an orphan."""
        self.requests.engine.block.ring_request_over(request, time)
        self.requests.finish(request, "cqe", time)
        if request.lane is None:
            self.requests.rings.orphan(request.ring)

    def _returns(self, request: Request) -> Returns | None:
        opcodes = self.requests.engine.specs.opcodes
        return opcodes[request.opcode].returns if request.opcode < len(opcodes) else None

    def _opens_or_closes(self, request: Request, result: int, time: int) -> None:
        opcodes = self.requests.engine.specs.opcodes
        kind = opcodes[request.opcode].kind if request.opcode < len(opcodes) else None
        task = request.lane.task if request.lane is not None else None
        if task is None or task.ended or result < 0:
            return
        if kind is CallKind.OPEN:
            self.requests.rings.opened(request.ring, task, result, time)
        elif kind is CallKind.CLOSE:
            self.requests.rings.closed_something(task, time)
