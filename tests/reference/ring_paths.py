"""The path of each request, concluded from all events."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lo2io.model import OpcodeTrait
from reference.ring_objects import IOPOLL, Event, Request, opcode_has, queues, start_of

if TYPE_CHECKING:
    from reference.ring_requests import RingRequests

PATH = 16
UNKNOWN, INLINE, DEVICE, POLL, WORKER, REFUSED, CANCELLED = range(7)
IN_FLIGHT, STATUS_CANCELLED, STATUS_REFUSED, TORN_DOWN, SILENT = 1, 2, 3, 4, 5
BETWEEN = ("call", "wait", "work", "exit")
SETTLES = ("submit", "refuse", "wait", "call", "exit")
ITEMS = ("punt", "poll_arm")


class Paths:
    """The path of each request."""

    def __init__(self, requests: RingRequests) -> None:
        self.requests = requests

    def path(self, request: Request, issue: int | None) -> int:  # noqa: PLR0911 - one case per row of the document
        """``enum lo2_ring_path``."""
        status = self.requests.status(request)
        punted = bool(request.times("punt"))
        if status == STATUS_REFUSED:
            return REFUSED
        if status == STATUS_CANCELLED and issue is None and not request.times("poll_arm") and not request.executions:
            request.inferred |= PATH if punted else 0
            return CANCELLED
        if punted or any(each.worker for each in request.executions):
            return WORKER
        if request.times("poll_arm"):
            return POLL
        if request.served:
            return DEVICE
        if request.last_cqe is None or (request.end != "cqe" and not request.waits_for_notification):
            return self._path_without_end(request, status)
        if request.older:
            return self._path_of_older(request)
        if not queues(request.opcode):
            return INLINE
        return self._inline_or_device(request, request.last_cqe)

    @staticmethod
    def _path_of_older(request: Request) -> int:
        """The events before its first one are unknown."""
        if not any(event.kind == "wake" and event.count for event in request.events):
            return UNKNOWN
        if request.awaits_readiness:
            return DEVICE
        request.inferred |= PATH
        return POLL

    def _path_without_end(self, request: Request, status: int) -> int:
        started = start_of(request)
        if status == SILENT and self._silently_inline(request, started):
            return INLINE
        if status in (IN_FLIGHT, TORN_DOWN) and started is not None and queues(request.opcode):
            since = [event for event in started.lane.log if started.order < event.order < request.ended_at]
            if any(event.kind in BETWEEN for event in since):
                request.inferred |= PATH
                return DEVICE
        return UNKNOWN

    def _silently_inline(self, request: Request, started: Event | None) -> bool:
        """True if it can be nothing else, or if its successor follows before a run of task work has ended."""
        if request.executions and not queues(request.opcode):
            return True
        shows = request.shown_by
        if started is None or shows is None or shows.lane is not request.lane:
            return False
        runs = [e for e in started.lane.log if e.kind == "work" and started.order < e.order < shows.order]
        request.inferred |= 0 if runs else PATH
        return not runs

    def _inline_or_device(self, request: Request, cqe: Event) -> int:  # noqa: PLR0911 - as above
        if (
            request.times_out
            or any(e.count for e in request.events if e.kind == "wake")
            or cqe.lane is not request.lane
        ):
            return DEVICE
        polled = opcode_has(request.opcode, OpcodeTrait.POLLED | OpcodeTrait.UNKNOWN)
        if (request.ring.flags or 0) & IOPOLL and polled:
            return DEVICE
        started = start_of(request)
        log = cqe.lane.log
        if started is None:
            return self._executed_later(request, cqe)
        if any(event.kind in BETWEEN and started.order < event.order < cqe.order for event in log):
            return DEVICE
        for event in log[log.index(cqe) :]:
            if event.kind == "work":
                if self._came_out_of(event, cqe):
                    request.inferred |= PATH
                    return DEVICE
                return INLINE
            if event.kind in SETTLES:
                return INLINE
        return INLINE

    def _came_out_of(self, run: Event, cqe: Event) -> bool:
        """True if the CQE is among the items that a run of task work claims."""
        log = run.lane.log
        items = [event for event in log if cqe.order <= event.order < run.order and self._is_item(event)]
        return len(items) <= run.count - _freed(log, run)

    def _is_item(self, event: Event) -> bool:
        """True for an event that a run of task work may have done; once for a request and run."""
        if event.kind == "dropped":
            return True
        if event.kind not in ("file_get", *ITEMS) and not (event.kind == "cqe" and event.by_address):
            return False
        if event.kind == "file_get" and not self._begins(event):
            return False
        before = [e for e in event.lane.log if e.order < event.order]
        last_run = max((e.order for e in before if e.kind == "work"), default=-1)
        looked = [e for e in before if e.order > last_run and e.kind == "file_get" and e.request is event.request]
        return event.request is None or not any(self._begins(e) for e in looked)

    @staticmethod
    def _begins(event: Event) -> bool:
        """A lookup that begins an execution in a thread other than a worker, except at the submission."""
        if event.request is None:
            return False
        executions = event.request.executions
        if start_of(event.request) is not None and event.request.times("file_get")[:1] == [event.time]:
            first = next(e for e in event.request.events if e.kind == "file_get")
            if first is event:
                return False
        return any(each.first is event and not each.worker for each in executions)

    def _executed_later(self, request: Request, cqe: Event) -> int:
        log = cqe.lane.log
        if request.executions:
            begin = request.executions[-1].first
            if request.executions[-1].lane is not request.lane:
                return DEVICE
            runs = [e for e in log if e.kind == "work" and begin is not None and begin.order < e.order < cqe.order]
            return DEVICE if runs else INLINE
        request.inferred |= PATH
        before = request.previous.last_cqe if request.previous is not None else None
        if before is None:
            return INLINE
        runs = [e for e in log if e.kind == "work" and before.order < e.order < cqe.order]
        at_once = request.previous is not None and self._at_once(request.previous, before)
        if runs and not at_once and before.lane is cqe.lane and self._came_out_of(runs[0], before):
            runs = runs[1:]
        return DEVICE if runs else INLINE

    @staticmethod
    def _at_once(request: Request, cqe: Event) -> bool:
        """True if it was executed when submitted, and done before its thread did anything else: no run took part."""
        started = start_of(request)
        if started is None or queues(request.opcode):
            return False
        return not any(e.kind in BETWEEN and started.order < e.order < cqe.order for e in started.lane.log)


def _freed(log: list[Event], run: Event) -> int:
    """Number of CQEs that workers posted for this thread since its last run."""
    count = 0
    for event in log[: log.index(run)]:
        count = 0 if event.kind == "work" else count + (event.kind == "freed")
    return count
