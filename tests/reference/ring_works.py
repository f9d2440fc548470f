"""Executions by workers, and the kind of worker that a request needs."""

from __future__ import annotations

from lo2io.model import OpcodeTrait
from reference.ring_objects import ASYNC, NOTIF, PASSED_OVER, Event, Execution, Lane, Request, opcode_has

CONTINUED, BOUNDED, UNBOUNDED, BOUND = 64, 256, 512, 32


def completed(request: Request | None) -> int | None:
    """Its end, by its last CQE."""
    return request.complete if request is not None and request.end == "cqe" else None


def bound(request: Request) -> None:
    """Bounded or unbounded: the kind of worker that it needs."""
    punts = [event for event in request.events if event.kind == "punt"]
    if any(punt.count for punt in punts):
        request.traits |= BOUNDED
        return
    if request.traits & CONTINUED and request.previous is not None:
        bound(request.previous)
        request.traits |= request.previous.traits & (BOUNDED | UNBOUNDED)
        request.inferred |= BOUND if request.traits & (BOUNDED | UNBOUNDED) else 0
    if not punts or request.traits & (BOUNDED | UNBOUNDED):
        return
    if opcode_has(request.opcode, OpcodeTrait.UNBOUNDED):
        if any(_shows_unbound(request, punt) for punt in punts):
            request.traits |= UNBOUNDED
            request.inferred |= BOUND
    elif not opcode_has(request.opcode, OpcodeTrait.UNKNOWN):
        request.traits |= BOUNDED
        request.inferred |= BOUND


def _shows_unbound(request: Request, punt: Event) -> bool:
    """True if its file can be polled, or is not known yet."""
    before = {event.kind for event in request.events if event.order < punt.order}
    return "poll_arm" in before or (bool(request.flags & ASYNC) and "file_get" not in before)


class Worker:
    """A worker thread, as its events show it."""

    def __init__(self, lane: Lane) -> None:
        self.lane = lane
        self.work: Execution | None = None
        self.done: list[Execution] = []
        self.last_end: int | None = None
        self.first_in: int | None = None
        self.left: int | None = None

    def see(self, event: Event) -> None:
        """An event of the worker."""
        if self.work is not None and self.work.request.was_given_up(event):
            self.last_end, self.first_in = self.work.begin, None
            self.exits()
        if event.kind == "in":
            self.left = None
            self.first_in = event.time if self.first_in is None else self.first_in
            return
        if event.kind == "out":
            self.left = event.time
            return
        if event.request is None or event.kind in PASSED_OVER:
            return
        if event.kind not in ("file_get", "poll_arm", "cqe") or event.count & NOTIF:
            return
        if self.work is not None and self.work.request is not event.request:
            self._end(event.time, event, inferred=True)
        if event.kind == "file_get" and self.work is None:
            self.work = Execution(event.request, self.lane, event.time, worker=True, first=event)
        elif event.kind != "file_get":
            if self.work is None:
                begin = self._begin(event.request, event)
                self.work = Execution(event.request, self.lane, begin, begin_inferred=True, worker=True, first=event)
            self._end(event.time, event, inferred=False)

    def _begin(self, request: Request, event: Event) -> int:
        punts = [e.time for e in request.events if e.kind == "punt" and e.order < event.order]
        before = completed(request.previous)
        led = punts[-1] if punts else before
        bounds = [request.submit, led, self.last_end, self.lane.task.start if self.lane.task is not None else None]
        if self.first_in is not None and (not punts or self.first_in >= punts[-1]):
            bounds.append(self.first_in)
        known = [bound for bound in bounds if bound is not None and bound <= event.time]
        return max(known, default=event.time)

    def _end(self, time: int, event: Event, *, inferred: bool) -> None:
        assert self.work is not None
        self.work.end, self.work.end_inferred, self.work.last = time, inferred, event
        self.done.append(self.work)
        self.work, self.last_end, self.first_in = None, time, None

    def exits(self) -> None:
        """The worker exits: its execution has no end."""
        self.done += [self.work] if self.work is not None else []
        self.work = None

    def ended_elsewhere(self, event: Event) -> None:
        """Another thread has posted the CQE of the execution."""
        assert self.work is not None
        left = self.left if self.left is not None and self.left >= self.work.begin else None
        self._end(event.time if left is None else left, event, inferred=True)
