"""Block requests from insert to completion."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lo2io.model import RequestOp, Role

if TYPE_CHECKING:
    from reference.engine import Reference
    from reference.ring_objects import Request as RingRequest
    from reference.tasks import Task

SECTOR = 512
BY_CALL, BY_RING_REQUEST, BY_LATER_REQUEST = 1, 2, 3
COMPLETED, IN_FLIGHT, MERGED, INFERRED, END_UNKNOWN = range(5)
PREFLUSH, FUA, READAHEAD, SYNC, METADATA = 1, 2, 4, 8, 16
OPERATIONS = {
    "R": RequestOp.READ,
    "W": RequestOp.WRITE,
    "D": RequestOp.DISCARD,
    "DE": RequestOp.SECURE_ERASE,
    "WZ": RequestOp.WRITE_ZEROES,
}
PLACED = frozenset(OPERATIONS.values())
"""Operations that have their sectors to themselves.

Others have none, or share one: zone appends name their zone's start.
"""
MODIFIERS = {"F": FUA, "A": READAHEAD, "S": SYNC, "M": METADATA}


def parse_rwbs(rwbs: str, nr_sector: int) -> tuple[RequestOp, int]:
    """``FWFS`` → write, with flags; as blk_fill_rwbs (kernel/trace/blktrace.c) writes it."""
    flags = 0
    if rwbs[:1] == "F":
        if rwbs[1:2] in ("F", "R", "W", "D", "N", "Z"):
            flags, rwbs = PREFLUSH, rwbs[1:]
        if rwbs[:1] == "F" or not nr_sector:
            return RequestOp.FLUSH, flags | _modifiers(rwbs[1:])
    for length in (2, 1):
        if rwbs[:length] in OPERATIONS:
            return OPERATIONS[rwbs[:length]], flags | _modifiers(rwbs[length:])
    if rwbs[:1] == "Z":
        return RequestOp.ZONE, flags | _modifiers(rwbs[2:])
    return RequestOp.OTHER, flags | _modifiers(rwbs[1:])


def _modifiers(text: str) -> int:
    flags = 0
    for letter in text:
        flags |= MODIFIERS.get(letter, 0)
    return flags


@dataclass(eq=False)
class Request:
    """One request; ``sector`` and ``size`` (sectors) move with merges and partial completions."""

    device: int
    sector: int
    size: int
    operation: RequestOp
    flags: int
    task: Task | None
    tid: int
    written: bool
    bytes_request: int | None
    insert: int | None = None
    issue: int | None = None
    complete: int | None = None
    bytes_issued: int | None = None
    bytes_result: int = 0
    error: int = 0
    queued: bool = True
    returned: bool = False
    requeues: int = 0
    merges: int = 0
    completions: int = 0
    issued_sector: int | None = None
    begun: int = 0
    end_latest: int | None = None
    end_proof: int = 0
    """The proof of its end, if no completion was seen: one of BY_…"""
    succeeded: bool = False
    ring_request: RingRequest | None = None
    """The ring's request that its thread executed at its start."""

    @property
    def moved(self) -> int | None:
        """Bytes of all completions without error; unknown without one, and for flushes."""
        return self.bytes_result if self.succeeded and self.operation is not RequestOp.FLUSH else None


class Requests:
    """All queued and issued requests, the oldest first."""

    def __init__(self, engine: Reference) -> None:
        self.engine = engine
        self.open: list[Request] = []
        self.ended: list[Request] = []
        self.asked: dict[int, list[tuple[Task | None, int]]] = {}
        """Who asked a disk for a flush since its last one."""
        self.cpu = 0
        """The CPU of the current sample …"""
        self.partial = False
        """… and whether that completed a part of a request."""

    def sample(self, role: Role, time: int, tid: int, task: Task | None, values: dict[str, Any], *, cpu: int) -> None:
        """One block sample."""
        self.cpu, self.partial = cpu, False
        self._sample(role, time, tid, task, values)
        if role is Role.RQ_COMPLETE:
            self._completion(time, values)

    def _completion(self, time: int, values: dict[str, Any]) -> None:
        """Every completion, also of requests that are not recorded."""
        operation, _ = parse_rwbs(values["rwbs"], values["nr_sector"])
        letter = values["rwbs"].removeprefix("F")[:1]
        self.engine.completions.append(
            {
                "time_ns": time,
                "device": values["dev"],
                "sector": values["sector"],
                "bytes": 0 if operation is RequestOp.FLUSH else values["nr_sector"] * SECTOR,
                "operation": int(operation),
                "asked_flush": int(not values["nr_sector"] and letter not in ("", "F")),
                "ends": int(not self.partial),
            }
        )

    def _sample(  # noqa: C901, PLR0912 - one case per row of the document's table
        self, role: Role, time: int, tid: int, task: Task | None, values: dict[str, Any]
    ) -> None:
        operation, flags = parse_rwbs(values["rwbs"], values["nr_sector"])
        device, sector, size = values["dev"], values["sector"], values["nr_sector"]
        if operation is RequestOp.FLUSH:
            sector = size = 0
        amount = None if operation is RequestOp.FLUSH else size * SECTOR
        alike = [r for r in self.open if r.device == device and r.operation is operation]
        if role is Role.RQ_INSERT:
            back = [r for r in alike if r.returned and r.sector == sector]
            if back:
                self._pick(back, size).returned = False
            else:
                owner = self._owner(task, tid)
                self._begin(Request(device, sector, size, operation, flags, *owner, amount, insert=time), time)
        elif role is Role.BIO_FLUSH:
            if flags & PREFLUSH:
                self.asked.setdefault(device, []).append((task, tid))
        elif role is Role.RQ_ISSUE:
            self._issue(alike, time, Request(device, sector, size, operation, flags, *self._owner(task, tid), amount))
        elif role is Role.RQ_COMPLETE:
            empty_write = not values["nr_sector"] and "W" in values["rwbs"][:2]
            if empty_write and all(r.queued for r in alike):
                return
            self._complete(
                [r for r in alike if not r.queued and r.sector == sector], time, size, values.get("error", 0)
            )
        elif role is Role.RQ_REQUEUE:
            issued = [r for r in alike if not r.queued and r.sector == sector]
            if issued:
                request = self._pick(issued, size)
                request.queued = request.returned = True
                request.requeues += 1
        elif role is Role.BIO_FRONTMERGE:
            grown = [r for r in alike if r.queued and r.sector == sector + size]
            if grown:
                request = self._pick(grown, size)
                request.sector -= size
                request.size += size
        elif role is Role.RQ_MERGE:
            self._merge([r for r in alike if r.queued], time, sector, size)

    def _owner(self, task: Task | None, tid: int) -> tuple[Task | None, int, bool]:
        recorded = task is not None and task.recorded
        return task if recorded else None, tid, recorded or (self.engine.all_tasks and task is None)

    def _pick(self, twins: list[Request], size: int) -> Request:
        """Of requests with one key: first those of equal size, then the oldest (newest if completions are missing)."""
        order = list(reversed(twins)) if self.engine.completions_missing else twins
        return next((r for r in order if r.size == size), order[0])

    def call_over(self, task: Task, begin: int, time: int) -> None:
        """A call of this thread has ended, other than those of rings and libaio, which leave their requests behind."""
        self._unseen(
            [r for r in self.open if r.task is task and r.begun >= begin and not r.ring_request], time, BY_CALL
        )

    def ring_request_over(self, request: RingRequest, time: int) -> None:
        """A request of a ring has posted its last CQE."""
        self._unseen([r for r in self.open if r.ring_request is request], time, BY_RING_REQUEST)

    def _unseen(self, waiting: list[Request], time: int, proof: int) -> None:
        """Of these, those end for which their thread waited."""
        for request in reversed(waiting):
            reads = request.operation in (RequestOp.READ, RequestOp.FLUSH)
            if not request.queued and not request.flags & READAHEAD and (reads or request.flags & SYNC):
                self._ended_unseen(request, time, proof)

    def _close(self, request: Request) -> None:
        self.open.remove(request)
        if request.task is not None:
            request.task.request_gone = self.engine.now

    def _make_way(self, fresh: Request, time: int) -> None:
        """Requests issued for the same sectors have ended, unless both only read."""
        for r in list(reversed(self.open)):
            both_read = RequestOp.READ is r.operation is fresh.operation
            placed = PLACED.issuperset((r.operation, fresh.operation))
            if (r.device, r.sector) == (fresh.device, fresh.sector) and placed and not (r.queued or both_read):
                self._ended_unseen(r, time, BY_LATER_REQUEST)

    def _ended_unseen(self, request: Request, time: int, proof: int) -> None:
        """Only if completions are missing: else its own may still come."""
        if self.engine.completions_missing:
            request.end_latest, request.end_proof = time, proof
            self.ended.append(request)
            self._close(request)

    def write_ended(self) -> None:
        """Write the requests that the current record shows to have ended."""
        for request in self.ended:
            self.cpu = 2**16 - 1
            self._event(request, request.end_latest or 0, 4, None)
            self._end(request, INFERRED)
        self.ended.clear()

    def _begin(self, request: Request, time: int) -> None:
        self._make_way(request, time)
        request.begun = time
        issuer = request.tid
        if request.operation is RequestOp.FLUSH:
            self._attribute(request)
        if request.tid == issuer:
            cause = request.ring_request = self.engine.rings.requests.executing(request.task)
            if cause is not None and not request.flags & READAHEAD:
                cause.served = True
        self.open.append(request)
        self.engine.totals["nr_own_requests"] += self.engine.all_tasks and not request.written
        self._event(request, time, 0, request.bytes_request)

    def _issue(self, alike: list[Request], time: int, fresh: Request) -> None:
        queued = [r for r in alike if r.queued and r.sector == fresh.sector]
        if queued:
            request = self._pick(queued, fresh.size)
        else:
            request = fresh
            self._begin(request, time)
        request.queued = request.returned = False
        request.issue, request.flags = time, fresh.flags
        request.size = fresh.size
        request.issued_sector = request.sector
        request.bytes_issued = fresh.bytes_request
        if not request.requeues:
            self._event(request, time, 1, request.bytes_issued)

    def _attribute(self, request: Request) -> None:
        """A kernel thread issues the flushes for which others asked."""
        asked = self.asked.pop(request.device, [])
        if asked:
            first = next((who for who in asked if who[0] is not None and who[0].recorded), asked[0])
            request.task, request.tid, request.written = self._owner(*first)

    def _complete(self, issued: list[Request], time: int, size: int, error: int) -> None:
        if not issued:
            self.engine.totals["nr_orphan_completions"] += 1
            return
        request = self._pick(issued, size)
        request.completions += 1
        if error:
            request.error = abs(error)
        else:
            request.succeeded = True
            request.bytes_result += size * SECTOR
            if size < request.size:
                request.sector += size
                request.size -= size
                self.partial = True
                return
        request.complete = time
        self._event(request, time, 2, request.moved)
        self._end(request, 0)

    def _merge(self, queued: list[Request], time: int, sector: int, size: int) -> None:
        merged = [r for r in queued if r.sector == sector]
        gone = self._pick(merged, size) if merged else None
        if gone is None:
            return
        absorbing = [r for r in queued if r.sector + r.size == sector and r is not gone]
        if absorbing:
            into = self._pick(absorbing, size)
            into.size += size
            into.merges += 1
        if not gone.requeues:
            self._event(gone, time, 1, gone.bytes_request)
        self._event(gone, time, 3, None)
        self._end(gone, 2)

    def _event(self, request: Request, time: int, kind: int, size: int | None) -> None:
        if request.written:
            self.engine.request_events.append(
                {
                    "request": request,
                    "time_ns": time,
                    "device": request.device,
                    "task": request.task,
                    "pid": request.task.process.pid if request.task else None,
                    "tid": request.tid,
                    "kind": kind,
                    "operation": int(request.operation),
                    "flags": request.flags,
                    "sector": request.sector if request.issued_sector is None else request.issued_sector,
                    "bytes": size,
                    "error": request.error,
                    "cpu": self.cpu,
                    "insert_time_ns": request.insert,
                    "issue_time_ns": request.issue,
                    "ring_request": request.ring_request,
                    "reason": 0,
                    "inode": 0,
                    "charged": 0,
                }
            )

    def _end(self, request: Request, status: int) -> None:
        if status != INFERRED:
            self._close(request)
        if not request.written:
            return
        self.engine.totals["nr_in_flight_requests"] += status == IN_FLIGHT
        self.engine.totals["nr_inferred_ends"] += status == INFERRED
        self.engine.totals["nr_unknown_ends"] += status == END_UNKNOWN
        self.engine.requests.append(
            {
                "request": request,
                "device": request.device,
                "task": request.task,
                "tid": request.tid,
                "insert_time_ns": request.insert,
                "issue_time_ns": request.issue,
                "complete_time_ns": request.complete,
                "end_earliest_ns": request.issue if request.end_proof else None,
                "end_latest_ns": request.end_latest,
                "end_proof": request.end_proof,
                "sector": request.sector if request.issued_sector is None else request.issued_sector,
                "bytes_request": request.bytes_request,
                "bytes_issued": request.bytes_issued,
                "bytes_result": request.moved,
                "error": request.error,
                "operation": int(request.operation),
                "status": status,
                "flags": request.flags,
                "nr_requeues": request.requeues,
                "nr_merges": request.merges,
                "nr_completions": request.completions,
                "ring_request": request.ring_request,
                "reason": 0,
            }
        )

    def finish(self) -> None:
        """A request that is queued or issued at the end is in flight, or its completion is missing."""
        for request in list(self.open):
            self._end(request, END_UNKNOWN if self.engine.completions_missing else IN_FLIGHT)
