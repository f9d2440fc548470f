"""A kernel's work on requests of rings, for histories of rings.

After Linux 6.18, ``io_uring/``: the order of events in a submission is that of ``io_submit_sqe``. Addresses are given
out last in, first out (``io_alloc_req``).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from reference.histories import History

NOP, FSYNC, READ_FIXED, POLL_ADD, TIMEOUT, ACCEPT, CANCEL = 0, 3, 4, 6, 11, 13, 14
OPENAT, CLOSE, READ, WRITE, RECV, SPLICE, MSG_RING, SEND_ZC = 18, 19, 22, 23, 27, 30, 40, 47
OPCODES = (NOP, READ, READ, WRITE, WRITE, FSYNC, READ_FIXED, POLL_ADD, TIMEOUT, ACCEPT, CANCEL, OPENAT, CLOSE, RECV)
OPCODES += (SPLICE, MSG_RING, SEND_ZC)
WITHOUT_FILE = (NOP, TIMEOUT, CANCEL, OPENAT, CLOSE, MSG_RING)
FIXED_FILE, DRAIN, LINK, HARDLINK, ASYNC, CQE_SKIP = 1, 2, 4, 8, 16, 64
SQE_FLAGS = (0, 0, 0, 0, FIXED_FILE, DRAIN, ASYNC, CQE_SKIP, ASYNC | CQE_SKIP, ASYNC | FIXED_FILE)
MORE, NOTIF = 2, 8
CANCELLED, NO_ENTRY, AGAIN = -125, -2, -11
SQPOLL, DEFER_TASKRUN = 2, 1 << 13
CONTEXTS, ADDRESSES, USER_DATA = (0x1000, 0x2000, 0x3000), 4, 3
RESULTS = (0, 0, 7, 512, 4096, NO_ENTRY, AGAIN)


@dataclass(eq=False)
class Thread:
    """A thread: a program's, a worker or a poller."""

    pid: int
    tid: int
    cpu: int
    call: str = ""
    ring: Ring | None = None
    """The ring of its pending io_uring_enter."""
    submitted: int = 0
    owner: int | None = None
    """A worker's owner."""


@dataclass(eq=False)
class Request:
    """A request between submission and its last completion."""

    ring: Ring
    address: int
    user_data: int
    opcode: int
    flags: int
    thread: Thread
    behind: Request | None = None
    state: str = "prepared"
    worker: Thread | None = None


@dataclass(eq=False)
class Ring:
    """A ring."""

    ctx: int
    fd: int
    pid: int
    flags: int
    poller: Thread | None = None
    free: list[int] = field(default_factory=list)
    requests: list[Request] = field(default_factory=list)


class RingKernel:
    """Threads and rings, and the records that they cause."""

    def __init__(self, cpus: int) -> None:
        self.cpus = cpus
        self.now = 100_000
        self.history: History = []
        self.threads: list[Thread] = []
        self.workers: list[Thread] = []
        self.rings: list[Ring] = []
        self.contexts = list(CONTEXTS)
        self.next_tid = 100
        self.sectors = 0

    def record(self, method: str, *args: Any, **options: Any) -> None:
        """One call of the builder."""
        self.history.append((method, args, options))

    def event(self, thread: Thread, name: str, **fields: int) -> None:
        """An event of io_uring in a thread, a nanosecond after the one before or at the same time."""
        self.now += self.sectors % 2
        self.sectors += 1
        self.record("ring", self.now, thread.cpu, thread.tid, name, **fields)

    def start(self, processes: int, flags: int) -> None:
        """Processes of two threads each, from before the trace."""
        for _ in range(processes):
            first = self._thread(None)
            for thread in (first, self._thread(first.pid)):
                self.record("fact_task", self.now, thread.pid, thread.tid, comm=b"old", flags=flags)
        self.now += 10_000

    def _thread(self, pid: int | None) -> Thread:
        tid, self.next_tid = self.next_tid, self.next_tid + 1
        thread = Thread(pid or tid, tid, tid % self.cpus)
        self.threads.append(thread)
        return thread

    def _born(self, thread: Thread, name: bytes) -> Thread:
        child = self._thread(thread.pid)
        self.threads.remove(child)
        self.record("fork", self.now, thread.cpu, child.pid, child.tid, thread.pid, thread.tid)
        self.now += 1
        self.record("comm", self.now, child.cpu, child.pid, child.tid, name)
        return child

    def _own(self, thread: Thread) -> list[Ring]:
        return [ring for ring in self.rings if ring.pid == thread.pid]

    # -- requests

    def submit(self, thread: Thread, what: int, salt: int) -> None:
        """One request or a chain of two or three; an SQ thread submits on its own."""
        polled = next((ring for ring in self._own(thread) if ring.poller is not None and salt % 2), None)
        ring = polled or thread.ring
        if ring is None:
            return
        actor = polled.poller if polled is not None and polled.poller is not None else thread
        length = (1, 1, 1, 2, 3)[what % 5]
        before: Request | None = None
        for place in range(length):
            before = self._take(actor, ring, before, what + place, salt + 3 * place, last=place == length - 1)
            if before is None:
                break
            actor.submitted += 1
        heads = [r for r in ring.requests if r.state == "prepared" and r.behind is None and not r.flags & DRAIN]
        for request in heads:
            self._issue(actor, request, what // 2 + salt)

    def _take(
        self, thread: Thread, ring: Ring, before: Request | None, what: int, salt: int, *, last: bool
    ) -> Request | None:
        if not ring.free:
            return None
        address = ring.free.pop()
        opcode = OPCODES[(what + salt) % len(OPCODES)]
        flags = SQE_FLAGS[salt // 3 % len(SQE_FLAGS)] | (0 if last else (LINK, HARDLINK)[salt % 2])
        request = Request(ring, address, salt % USER_DATA, opcode, flags, thread)
        known = {"ctx": ring.ctx, "req": address, "user_data": request.user_data, "opcode": opcode}
        if what % 13 == 12:
            self.event(thread, "req_failed", **known, flags=flags & 0xFF, error=-22, len=what % 100, off=512)
            ring.requests.append(request)
            self._complete(thread, request, -22)
            return None
        self.event(thread, "submit_req", **known, flags=flags | 1 << 20, sq_thread=int(ring.poller is thread))
        if before is not None:
            self.event(thread, "link", ctx=ring.ctx, req=address, target_req=before.address)
            request.behind = before
        if flags & DRAIN:
            self.event(thread, "defer", ctx=ring.ctx, req=address, data=request.user_data, opcode=opcode)
        ring.requests.append(request)
        return request

    def progress(self, thread: Thread, what: int, salt: int) -> None:
        """An event of a request of this thread's process, or of an older one that was not seen."""
        requests = [request for ring in self._own(thread) for request in ring.requests]
        if not requests:
            self._unknown(thread, what, salt)
            return
        request = requests[what % len(requests)]
        if request.state == "prepared":
            if request.behind is None:
                self._issue(thread if what % 3 else request.thread, request, salt)
        elif request.state == "polling":
            self._wake(thread, request, salt)
        elif request.state == "punted":
            self._work(request, what, salt)
        elif request.state == "working" and request.worker is not None:
            self._worked(request.worker, request, salt)
        else:
            self._finish(request.thread if salt % 3 else thread, request, salt)

    def _known(self, request: Request) -> dict[str, int]:
        return {"ctx": request.ring.ctx, "req": request.address, "user_data": request.user_data}

    def _look_up(self, thread: Thread, request: Request) -> None:
        if request.opcode not in WITHOUT_FILE and not request.flags & FIXED_FILE:
            for fd in (5, 4) if request.opcode == SPLICE else (4,):
                self.event(thread, "file_get", **self._known(request), fd=fd)

    def _issue(self, thread: Thread, request: Request, salt: int) -> None:
        """The request goes to a worker, a device or a poll, or it is done."""
        if request.flags & (ASYNC | DRAIN):
            self._punt(thread, request, salt)
            return
        self._look_up(thread, request)
        way = salt % 6
        if way == 0:
            self._punt(thread, request, salt)
        elif way == 1:
            self.event(thread, "poll_arm", **self._known(request), opcode=request.opcode, mask=0, events=1)
            request.state = "polling"
        elif way == 2:
            request.state = "device"
        else:
            self._finish(thread, request, salt)

    def _punt(self, thread: Thread, request: Request, salt: int) -> None:
        fields = self._known(request) | {"opcode": request.opcode, "flags": request.flags, "rw": salt % 2}
        self.event(thread, "queue_async_work", **fields, work=request.address + 8)
        request.state = "punted"

    def _wake(self, thread: Thread, request: Request, salt: int) -> None:
        self.event(thread, "task_add", **self._known(request), opcode=request.opcode, mask=(1, 1, 0)[salt % 3])
        request.state = "prepared"
        if salt % 3 == 2:
            self._complete(request.thread, request, CANCELLED)

    def _work(self, request: Request, what: int, salt: int) -> None:
        """A worker takes it, perhaps a new one."""
        mine = [worker for worker in self.workers if worker.owner == request.thread.tid]
        if mine and what % 4:
            worker = mine[what % len(mine)]
        else:
            worker = self._born(request.thread, b"iou-wrk-%d" % request.thread.tid)
            worker.owner = request.thread.tid
            self.workers.append(worker)
        if any(r.worker is worker for r in request.ring.requests):
            return
        if salt % 3:
            self.record("switch", self.now, worker.cpu, 0, worker.tid, 0)
        self._look_up(worker, request)
        request.state, request.worker = "working", worker

    def _worked(self, worker: Thread, request: Request, salt: int) -> None:
        """Its worker has done it, or must wait. The next member of its chain is next on this worker."""
        request.worker = None
        followers = [r for r in request.ring.requests if r.behind is request]
        self._finish(request.thread if salt % 5 == 4 else worker, request, salt)
        for follower in followers:
            if follower in request.ring.requests:
                self._look_up(worker, follower)
                follower.state, follower.worker = "working", worker
        if salt % 4 == 3:
            self.record("switch", self.now, worker.cpu, worker.tid, 0, 1)

    def _finish(self, thread: Thread, request: Request, salt: int) -> None:
        """Completions, as the opcode has them. Those in task work precede the batch's end."""
        if request.opcode == CLOSE and salt % 2:
            self.record(
                "ring", self.now, thread.cpu, thread.tid, "short_write", ctx=request.ring.ctx, fpos=512, wanted=9, got=4
            )
        if request.opcode in (POLL_ADD, ACCEPT, RECV, SEND_ZC) and salt % 4 == 1:
            fields = self._known(request) | {"res": salt % 5, "cflags": MORE}
            self.event(thread, "complete", **(fields if request.opcode == SEND_ZC else fields | {"req": 0}))
            if request.opcode == SEND_ZC:
                fields = self._known(request) | {"res": 0, "cflags": NOTIF, "req": request.address + 4}
                self.event(thread, "complete", **fields)
                self._gone(request)
            return
        result = RESULTS[salt // 4 % len(RESULTS)]
        self._complete(thread, request, result)
        if salt % 3 == 0:
            if request.ring.flags & DEFER_TASKRUN:
                self.event(thread, "local_work_run", ctx=request.ring.ctx, count=1, loops=1)
            else:
                self.event(thread, "task_work_run", tctx=0x99, count=1 + salt % 2)

    def _complete(self, thread: Thread, request: Request, result: int, culprit: Request | None = None) -> None:
        """If a chain breaks at a request with CQE_SKIP, the rest has no events."""
        followers = [r for r in request.ring.requests if r.behind is request]
        failed = culprit is not None or (result < 0 and request.flags & LINK and not request.flags & HARDLINK)
        passed_over = culprit is not None and culprit.flags & CQE_SKIP
        if not passed_over and (not request.flags & CQE_SKIP or result < 0):
            if (self.now + request.user_data) % 9 == 0:
                fields = {"user_data": request.user_data, "res": result, "cflags": 0, "ocqe": 1}
                self.event(thread, "cqe_overflow", ctx=request.ring.ctx, **fields)
            else:
                self.event(thread, "complete", **self._known(request), res=result, cflags=0)
        self._gone(request)
        for follower in followers:
            follower.behind = None
            if failed and follower in request.ring.requests:
                broken_by = culprit or request
                known = self._known(broken_by) | {"opcode": broken_by.opcode}
                self.event(thread, "fail_link", **known, link=follower.address)
                self._complete(thread, follower, CANCELLED, broken_by)

    @staticmethod
    def _gone(request: Request) -> None:
        if request in request.ring.requests:
            request.ring.requests.remove(request)
            request.ring.free.append(request.address)

    def _unknown(self, thread: Thread, what: int, salt: int) -> None:
        """An event of a request that began before the trace."""
        for ring in self._own(thread)[:1]:
            known = {"ctx": ring.ctx, "req": ring.ctx + 16 * (what % ADDRESSES), "user_data": salt % USER_DATA}
            name, more = (
                ("complete", {"res": 7, "cflags": 0}),
                ("file_get", {"fd": 4}),
                ("task_add", {"opcode": READ, "mask": 1}),
                ("queue_async_work", {"opcode": READ, "flags": 0, "rw": 1}),
                ("poll_arm", {"opcode": READ, "mask": 0, "events": 1}),
            )[salt % 5]
            self.event(thread, name, **known, **more)
