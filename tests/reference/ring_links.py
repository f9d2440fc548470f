"""Chains of requests: their order, what closes them, and whose failure ends others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from reference.ring_objects import CHAINS, CQE_SKIP, PASSED_OVER, Event, Lane, Request

if TYPE_CHECKING:
    from reference.ring_requests import RingRequests

CULPRIT = 128


class Links:
    """Rules for ``link``, ``fail_link`` and refusals."""

    def __init__(self, requests: RingRequests) -> None:
        self.requests = requests
        self.latest: dict[Lane, Request] = {}
        """The last submission of a thread that only links have followed."""

    def submitted(self, lane: Lane, request: Request) -> None:
        """``submit`` or ``refuse``. A request refused within a chain has no link event."""
        before = self._before(lane, request)
        request.behind = before if before is not None and before.flags & CHAINS else None
        if request.refused and request.behind is not None:
            head = request.behind
            while head.behind is not None and not head.chain:
                head = head.behind
            head = _head(head)
            self._append(head, request)
            if head.culprit is None and head.alive:
                head.culprit = request
                head.inferred |= CULPRIT
            self._closes(head, request)
        self.latest[lane] = request

    def _before(self, lane: Lane, request: Request) -> Request | None:
        before = self.latest.get(lane)
        before = before.chain[-1] if before is not None and before.chain else before
        if before is None or before.ring is not request.ring or before.end == "replaced":
            return None
        between = [event for event in lane.log if event.order > self.latest[lane].events[0].order][:-1]
        return before if all(event.kind in ("link", *PASSED_OVER) for event in between) else None

    def _is_gone(self, request: Request) -> bool:
        """True if its address is another request's."""
        return self.requests.last.get((request.ring.context, request.address or 0)) is not request

    def _append(self, head: Request, request: Request) -> None:
        if not head.chain or head.chain[0] is not head:
            head.chain = [head]
        request.previous = head if self._is_gone(head.chain[-1]) else head.chain[-1]
        head.chain.append(request)
        request.chain = head.chain

    @staticmethod
    def _closes(head: Request, request: Request) -> None:
        event = request.events[-1]
        if not request.flags & CHAINS and head.closed is None and event.lane is head.lane:
            head.closed = event

    def link(self, lane: Lane, time: int, values: dict[str, Any]) -> None:
        """A request waits for another one."""
        requests = self.requests
        request = requests.known(values)
        other = requests.known(values | {"req": values.get("other", 0)})
        requests.note(lane, time, "link", request)
        if request is None or other is None or not request.alive:
            if lane.recorded:
                requests.unclear()
            return
        if request.previous is not None or request is other:
            requests.unclear()
            return
        head = _head(other)
        self._append(other if self._is_gone(head) else head, request)
        self._closes(head, request)

    def fail(self, lane: Lane, time: int, values: dict[str, Any]) -> None:
        """A request has failed, and another will."""
        requests = self.requests
        culprit = requests.known(values)
        victim = requests.known(values | {"req": values.get("other", 0)})
        requests.note(lane, time, "fail_link", culprit)
        if culprit is None or victim is None or not victim.alive:
            ring = requests.rings.known(values["ctx"]) if "ctx" in values else culprit and culprit.ring
            if ring is not None and ring.recorded:
                requests.unclear()
            return
        if victim is culprit:
            return
        if not victim.refused and victim.culprit is None:
            victim.culprit = culprit.culprit or culprit
            victim.inferred |= CULPRIT if culprit.culprit is not None else 0
        if culprit.flags & CQE_SKIP:
            requests.dropped(victim, time)

    def shows_ended(self, request: Request, event: Event) -> None:
        """The request is executed, so those before it in its chain that asked for no completion have ended."""
        silent: list[Request] = []
        before = None if request.times_out else request.previous
        number = request.number
        while before is not None and before.number < number:
            number = before.number
            if before.is_silent:
                silent.append(before)
            elif not before.times_out:
                break
            before = before.previous
        for each in reversed(silent):
            each.shown_by = event
            self.requests.finish(each, "over", event.time)


def _head(request: Request) -> Request:
    return request.chain[0] if request.chain else request
