"""Which descriptors requests of rings look up, and what that shows of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reference.fds import UNSEEN, Description

if TYPE_CHECKING:
    from reference.engine import Reference
    from reference.fds import Handle
    from reference.ring_objects import Lane, Request
    from reference.tasks import Task

SPLICES = (30, 33)


class Descriptors:
    """By file_get, and by what becomes of the request."""

    def __init__(self, engine: Reference) -> None:
        self.engine = engine

    def looked_up(self, request: Request, lane: Lane, fd: int, time: int) -> None:
        """``file_get``; an empty slot may turn out to hold something."""
        if len(request.fds) > (request.opcode in SPLICES):
            return
        submitter = request.lane.task if request.lane is not None else None
        task = submitter if submitter is not None and not submitter.ended else lane.task
        handle = None
        if task is not None:
            slot = task.table.slots.get(fd)
            handle = None if slot is None else self.engine.calls.tables.use(slot, task, fd)
        if not request.fds:
            request.splices = request.opcode in SPLICES
        request.fds.append((fd, time, handle))
        if handle is not None:
            handle.wanted = True

    def proves(self, request: Request, lane: Lane) -> None:
        """What was looked up was open."""
        task = request.lane.task if request.lane is not None else None
        if task is not None and task.ended:
            task = lane.task if lane.task is not None and lane.task.process is task.process else None
        if task is None:
            return
        for place, (fd, looked, handle) in enumerate(request.fds):
            if handle is None and fd >= 0:
                found = self._appeared(task, fd, looked)
                found.wanted = True
                request.fds[place] = (fd, looked, found)
                request.splices = request.opcode in SPLICES

    def _appeared(self, task: Task, fd: int, looked: int) -> Handle:
        """A handle nobody saw opened; if the slot has changed meanwhile, for this request alone."""
        if task.table.slots.get(fd) is None and task.table.last_change(fd) > looked:
            handle = self.engine.calls.tables.make(task, fd, UNSEEN, Description(None), None)
            handle.end(None)
            return handle
        return self.engine.calls.lookups.unseen(task, fd, looked)
