"""Histories of ring requests: a :class:`~ringrig.Rig` with a method for each event of a request.

>>> rig = RequestRig(folder)
>>> times = [rig.setup(), rig.submit(1, opcode=READ), rig.cqe(1, 512)]
>>> rig.only()["bytes_result"]
512
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from build.perfwriter import SpoolBuilder
from build.ringrig import PID, A, Rig

if TYPE_CHECKING:
    from pathlib import Path

    from build.ringrig import Row

NOP, READV, FSYNC, POLL_ADD, TIMEOUT, ACCEPT, LINK_TIMEOUT = 0, 1, 3, 6, 11, 13, 15
OPENAT, CLOSE, READ, WRITE, SEND, RECV, SPLICE, SEND_ZC, UNHEARD_OF = 18, 19, 22, 23, 26, 27, 30, 47, 200
FIXED_FILE, DRAIN, LINK, HARDLINK, ASYNC, SKIP = 1, 2, 4, 8, 16, 64
"""IOSQE_*"""
MORE, NOTIF = 2, 8
"""IORING_CQE_F_*"""
EBADF, EAGAIN, EINVAL, ETIME, ECANCELED, EIO = -9, -11, -22, -62, -125, -5
COMPLETED, IN_FLIGHT, CANCELLED, REFUSED, TORN_DOWN, SILENT = range(6)
UNKNOWN, INLINE, DEVICE, POLL, WORKER, PATH_REFUSED, PATH_CANCELLED = range(7)
SQPOLL, DRAINED, HASHED, OVERFLOWED, NOTIFIED, MULTISHOT, CONTINUED, SHORT, BOUNDED, UNBOUNDED, OLDER = (
    1 << bit for bit in range(11)
)
BY_ISSUE, BY_WORKER, BY_BEGIN, BY_END, BY_PATH, BY_BOUND, BY_IDENTITY, BY_CULPRIT, BY_SIZE = (
    1 << bit for bit in range(9)
)
"""What is inferred."""


class RequestRig(Rig):
    """Each method adds one event and returns its time."""

    def __init__(self, path: Path, *, era: str = "6.18", **options: Any) -> None:
        super().__init__(path, **options)
        if era != "6.18":
            self.spool = SpoolBuilder(path / "spool", rings=era, start_ns=50_000)
            self.spool.fact_task(1_000, PID, PID, ppid=1, comm=b"ten")

    def refuse(self, req: int, *, error: int = EINVAL, ctx: int = A, tid: int = PID, **fields: int) -> int:
        """``req_failed``."""
        return self.event("req_failed", tid, ctx=ctx, req=req, error=error, **fields)

    def gets(self, req: int, fd: int, *, tid: int = PID, ctx: int = A, user_data: int = 0) -> int:
        """``file_get``."""
        return self.event("file_get", tid, ctx=ctx, req=req, fd=fd, user_data=user_data)

    def punt(self, req: int, *, hashed: int = 0, tid: int = PID, ctx: int = A, **fields: int) -> int:
        """``queue_async_work``."""
        return self.event("queue_async_work", tid, ctx=ctx, req=req, rw=hashed, **fields)

    def arm(self, req: int, *, tid: int = PID, ctx: int = A, **fields: int) -> int:
        """``poll_arm``."""
        return self.event("poll_arm", tid, ctx=ctx, req=req, mask=1, events=1, **fields)

    def wake(self, req: int, *, tid: int = PID, ctx: int = A, mask: int = 1, **fields: int) -> int:
        """``task_add``."""
        return self.event("task_add", tid, ctx=ctx, req=req, mask=mask, **fields)

    def ran(self, count: int, *, tid: int = PID) -> int:
        """``task_work_run``."""
        return self.event("task_work_run", tid, tctx=1, count=count)

    def link(self, req: int, target: int, *, tid: int = PID, ctx: int = A) -> int:
        """``link``: the request stands after the target."""
        return self.event("link", tid, ctx=ctx, req=req, target_req=target)

    def fail_link(self, req: int, victim: int, *, tid: int = PID, ctx: int = A) -> int:
        """``fail_link``."""
        return self.event("fail_link", tid, ctx=ctx, req=req, link=victim)

    def cqe(self, req: int, res: int = 0, *, tid: int = PID, ctx: int = A, user_data: int = 0, flags: int = 0) -> int:
        """``complete``."""
        return self.event("complete", tid, ctx=ctx, req=req, res=res, user_data=user_data, cflags=flags)

    def overflow(self, user_data: int, res: int = 0, *, flags: int = 0, tid: int = PID, ctx: int = A) -> int:
        """``cqe_overflow``."""
        return self.event("cqe_overflow", tid, ctx=ctx, user_data=user_data, res=res, cflags=flags)

    def all(self) -> list[Row]:
        """The requests, in the order of their starts; reads the spool if that was not done."""
        if not self.rows:
            self.run()
        return sorted(self.rows["ring_requests"], key=lambda row: row["id"])

    def only(self) -> Row:
        """The only request."""
        (row,) = self.all()
        return row

    def column(self, *names: str) -> list[Any]:
        """Some columns of the requests; a single one as plain values."""
        found = [tuple(row[name] for name in names) for row in self.all()]
        return [values[0] for values in found] if len(names) == 1 else found

    def events(self, *names: str) -> list[tuple[Any, ...]]:
        """Some columns of the events, in their order."""
        self.all()
        return [tuple(row[name] for name in names) for row in self.rows["ring_events"]]


def phases(row: Row) -> tuple[int | None, ...]:
    """Queued, executing, waiting."""
    return row["queued_ns"], row["executing_ns"], row["waiting_ns"]
