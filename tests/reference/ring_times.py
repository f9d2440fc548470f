"""When requests of rings were executed, concluded from all events."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from reference.ring_objects import CANCELED, PASSED_OVER, Event, Execution, Lane, Request, Sleep, start_of
from reference.ring_works import CONTINUED, Worker, completed

if TYPE_CHECKING:
    from reference.ring_requests import RingRequests

ISSUE, WORK_BEGIN, WORK_END, SIZE = 1, 4, 8, 256
SHORT = 128
STATUS_CANCELLED, STATUS_REFUSED = 2, 3


class Times:
    """Conclusions about every request."""

    def __init__(self, requests: RingRequests) -> None:
        self.requests = requests
        self.works: list[Execution] = []
        self._free_executions()
        self._by_submitters()
        self._by_workers()
        for request in requests.all:
            request.executions.sort(key=lambda each: each.first.order if each.first else 0)
        for event, values in requests.shorts:
            self._short(event, values)

    def _short(self, event: Event, values: dict[str, Any]) -> None:
        """A short write belongs to its thread's execution, else to the thread's next CQE on that ring."""
        there = [r for r in self.requests.all if r.ring.context == values["ctx"]]
        found = [r for r in there for each in r.executions if _within(each, event)]
        if not found:
            later = [e for e in event.lane.log if e.order > event.order and e.kind == "cqe" and e.request in there]
            found = [e.request for e in later[:1] if e.request is not None]
        if found and found[0].size is None:
            found[0].offset, found[0].size = values.get("offset"), values.get("length")
            found[0].traits |= SHORT
            found[0].inferred |= SIZE

    # -- executions

    def _free_executions(self) -> None:
        """Requests that are executed at once: when submitted, or when their chain is closed."""
        for request in self.requests.all:
            event = start_of(request)
            if event is None:
                continue
            log = [each for each in event.lane.log if each.kind not in PASSED_OVER]
            place = log.index(event) + 1
            execution = Execution(request, event.lane, event.time, begin_inferred=True, seen=False, first=event)
            if place < len(log) and log[place].kind == "file_get" and log[place].request is request:
                execution.begin, execution.begin_inferred, execution.seen = log[place].time, False, True
            _run_on(execution, log[place:])
            request.executions.append(execution)

    def _by_submitters(self) -> None:
        """Other lookups of descriptors by threads other than workers."""
        for lane in self.requests.lanes.values():
            if lane.task is None:
                continue
            running: Request | None = None
            for place, event in enumerate(lane.log):
                if event.kind in PASSED_OVER:
                    continue
                if event.kind == "file_get" and event.request is not None and not event.worker:
                    begun = [each for each in event.request.executions if _covers(each, lane, event)]
                    if running is not event.request and not begun:
                        execution = Execution(event.request, lane, event.time, first=event)
                        _run_on(execution, lane.log[place + 1 :])
                        event.request.executions.append(execution)
                    running = event.request
                else:
                    running = None

    def _by_workers(self) -> None:
        """Executions of workers, with the CQEs that other threads post for them."""
        workers: dict[Lane, Worker] = {}
        for event in self.requests.events:
            if event.kind == "cqe" and event.request is not None:
                for worker in workers.values():
                    if (
                        worker.lane is not event.lane
                        and worker.work is not None
                        and worker.work.request is event.request
                    ):
                        worker.ended_elsewhere(event)
            if event.kind != "exit" and (event.worker or event.kind in ("in", "out")):
                worker = workers.setdefault(event.lane, Worker(event.lane))
                worker.see(event)
            elif event.kind == "exit" and event.lane in workers:
                workers[event.lane].exits()
        for worker in workers.values():
            worker.exits()
            self.works += worker.done
        self.works.sort(key=lambda each: each.first.order if each.first else 0)
        for work in self.works:
            work.request.executions.append(work)
            self._hand_over(work)

    @staticmethod
    def _hand_over(work: Execution) -> None:
        order = work.first.order if work.first else 0
        punts = [event for event in work.request.events if event.kind == "punt" and event.order < order]
        earlier = [each for each in work.request.executions if each.worker and each is not work]
        if punts and not any(each.first and each.first.order > punts[-1].order for each in earlier):
            work.queue = punts[-1].time
        elif work.request.previous is not None:
            work.request.traits |= CONTINUED

    # -- conclusions about a request

    def split(self, request: Request) -> tuple[int | None, int | None]:
        """Of its executions by workers: time in the run queue, and blocked."""
        meta = self.requests.engine.meta
        works = [each for each in request.executions if each.worker]
        told = {"waits", "workers"} <= {*meta.layers} and not meta.facts_lost
        if not works or not told or request.older:
            return None, None
        queue = blocked = 0
        for work in works:
            sleeps = self._sleeps(work)
            over = work.last is not None and work.end is not None and work.last.order <= request.ended_at
            if not over or any(s.wake is None or s.out < work.begin or s.end > (work.end or 0) for s in sleeps):
                return None, None
            queue += sum(sleep.end - (sleep.wake or 0) for sleep in sleeps)
            blocked += sum((sleep.wake or 0) - sleep.out for sleep in sleeps)
        return queue, blocked

    def _sleeps(self, work: Execution) -> list[Sleep]:
        """The request's stretches since its start; or, if nothing told that, since its execution before."""
        others = (each for each in self.works if each.request is work.request and each is not work)
        ends = [each.last.order for each in others if each.last]
        last = work.last.order if work.last is not None else len(self.requests.events)
        since = max((end for end in ends if end < last), default=-1)
        if not work.begin_inferred and work.first is not None:
            since = work.first.order
        return [each for each in self.requests.sleeps if each.request is work.request and since < each.order <= last]

    def issue(self, request: Request) -> int | None:  # noqa: PLR0911 - one case per row of the document
        """Its first execution, and the flag that this is inferred."""
        status = self.requests.status(request)
        if status == STATUS_REFUSED:
            return None
        if request.times_out and request.previous is not None:
            if status == STATUS_CANCELLED:
                return None
            request.inferred |= ISSUE
            return self.issue(request.previous)
        shown = [e for e in request.events if e.kind == "poll_arm" or (e.kind == "cqe" and e.result != CANCELED)]
        first = request.executions[0] if request.executions else None
        if first is not None and first.first is not None and not any(e.order < first.first.order for e in shown):
            request.inferred |= ISSUE if first.begin_inferred else 0
            return first.begin
        if not shown or request.older:
            return None
        request.inferred |= ISSUE
        before = completed(request.previous)
        if before is not None and before <= shown[0].time and before >= (request.submit or before):
            return before
        return shown[0].time

    def phases(self, request: Request, issue: int | None) -> tuple[int | None, int | None, int | None]:
        """Queued, executing, waiting."""
        over = [each for each in request.executions if each.last is not None and each.last.order < request.ended_at]
        ended = [each.end - each.begin for each in over if each.end is not None]
        if request.complete is None:
            queued = None if request.submit is None or issue is None else issue - request.submit
            return queued, sum(ended) if ended else None, None
        if request.submit is None:
            return None, sum(ended) if ended else None, None
        whole = request.complete - request.submit
        queued = whole if issue is None else min(issue - request.submit, whole)
        executing = min(sum(ended), whole - queued)
        return queued, executing, whole - queued - executing


def _run_on(execution: Execution, log: list[Event]) -> None:
    """The execution ends with the thread's next event that is not a lookup of this request."""
    ends = (e for e in log if e.kind not in PASSED_OVER)
    following = next((e for e in ends if e.kind != "file_get" or e.request is not execution.request), None)
    if following is not None:
        execution.end, execution.last = following.time, following


def _within(execution: Execution, event: Event) -> bool:
    """True if the thread was executing it then."""
    first, last = execution.first, execution.last
    begun = execution.lane is event.lane and first is not None and first.order < event.order
    gone = not execution.request.alive and execution.request.ended_at <= event.order
    return begun and not gone and (last is None or last.order > event.order)


def _covers(execution: Execution, lane: Lane, event: Event) -> bool:
    """True if the event lies inside of the execution."""
    if execution.lane is not lane or execution.first is None or execution.first.order > event.order:
        return False
    between = [e for e in lane.log if execution.first.order < e.order < event.order and e.kind not in PASSED_OVER]
    return all(e.kind == "file_get" and e.request is execution.request for e in between)
