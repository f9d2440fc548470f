"""Requests of libaio, the slow way: each event searches the list of all requests from its end."""

from __future__ import annotations

from dataclasses import dataclass, field

from lo2io.model import RingStatus

ISSUE, IDENTITY, END = 1, 64, 512
CANCELED = -125

Event = tuple[int, int, int]
"""The iocb's address, its data, the result."""


@dataclass(eq=False)
class Request:
    """A request that an io_submit has taken."""

    context: int
    iocb: int
    data: int
    begin: int
    result: int = 0
    end: int | None = None
    bound: int | None = None
    status: int | None = None
    alike: bool = False
    """When its event came, an older request had the same iocb and data."""

    def row(self) -> tuple[int, int | None, int, int | None, int | None, int]:
        """Data, begin, result, end, bound, and inferred columns."""
        ended = self.status in (RingStatus.COMPLETED, RingStatus.CANCELLED, RingStatus.UNSEEN)
        inferred = ISSUE | END * ended | IDENTITY * self.alike
        return self.data, self.begin, self.result, self.end, self.bound, inferred


@dataclass
class Call:
    """An io_submit under way: its iocbs, and the events that another thread has collected of them."""

    context: int
    begin: int
    iocbs: list[tuple[int, int]]
    early: dict[int, tuple[int, int]] = field(default_factory=dict)
    """By place in the array: result and time."""


class Aio:
    """The contexts and requests of one process."""

    def __init__(self) -> None:
        self.requests: list[Request] = []
        self.calls: dict[int, Call] = {}
        self.known: set[int] = set()
        """Contexts that have been used."""
        self.orphans = 0

    def _living(self, context: int, iocb: int) -> list[Request]:
        return [r for r in self.requests if r.status is None and (r.context, r.iocb) == (context, iocb)]

    def enter(self, tid: int, context: int, iocbs: list[tuple[int, int]], time: int) -> None:
        """An io_submit begins."""
        self.calls[tid] = Call(context, time, iocbs)

    def leave(self, tid: int, ret: int) -> None:
        """The io_submit has taken so many; below 0: none."""
        call = self.calls.pop(tid)
        if ret >= 0:
            self.known.add(call.context)
        for place, (iocb, data) in enumerate(call.iocbs[: max(ret, 0)]):
            for before in self._living(call.context, iocb)[-1:]:
                if before.begin < call.begin and before.bound is None:
                    before.bound = call.begin
            request = Request(call.context, iocb, data, call.begin)
            self.requests.append(request)
            if place in call.early:
                self._end(request, *call.early[place])

    def collect(self, context: int, events: list[Event], time: int) -> None:
        """A call has returned these events."""
        for iocb, data, result in events:
            fitting = [r for r in self._living(context, iocb) if r.data == data] if context in self.known else []
            if fitting:
                older = [
                    r for r in self._living(context, iocb) if self.requests.index(r) < self.requests.index(fitting[-1])
                ]
                fitting[-1].alike = bool(older) and older[-1].data == data
                self._end(fitting[-1], result, time)
            elif not self._early(context, (iocb, data), result, time):
                self.orphans += context in self.known
        self.known.add(context)

    def _early(self, context: int, name: tuple[int, int], result: int, time: int) -> bool:
        for _, call in sorted(self.calls.items()):
            places = [n for n, given in enumerate(call.iocbs) if given == name and n not in call.early]
            if call.context == context and places:
                call.early[places[0]] = result, time
                return True
        return False

    @staticmethod
    def _end(request: Request, result: int, time: int) -> None:
        request.result, request.end, request.bound = result, time, None
        request.status = RingStatus.CANCELLED if result == CANCELED else RingStatus.COMPLETED

    def destroy(self, context: int, time: int) -> None:
        """The context is gone; the next one at its address is another."""
        self.known.discard(context)
        for request in self.requests:
            if request.context == context and request.status is None:
                request.status = RingStatus.TORN_DOWN if request.bound is None else RingStatus.UNSEEN
                request.bound = request.bound or time

    def over(self) -> list[Request]:
        """The recording ends. Returns all requests, in order."""
        for request in self.requests:
            if request.status is None:
                request.status = RingStatus.IN_FLIGHT if request.bound is None else RingStatus.UNSEEN
        return self.requests
