"""Which descriptors ring requests look up, and what that proves about them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lo2io.model import OpcodeTrait
from reference.fds import LONG_AGO, UNSEEN, Description
from reference.ring_objects import opcode_has

if TYPE_CHECKING:
    from reference.engine import Reference
    from reference.fds import Handle
    from reference.ring_objects import Event, Lane, Request
    from reference.tasks import Task


class Descriptors:
    """Lookups: by file_get, and by later events of the request."""

    def __init__(self, engine: Reference) -> None:
        self.engine = engine

    def looked_up(self, request: Request, lane: Lane, fd: int, event: Event, since: int = LONG_AGO) -> None:
        """``file_get``; an empty slot may turn out to hold something."""
        since = max(since, self._before(lane, event))
        if len(request.fds) > (opcode_has(request.opcode, OpcodeTrait.TWO_FILES)):
            return
        submitter = request.lane.task if request.lane is not None else None
        task = submitter if submitter is not None and not submitter.ended else lane.task
        handle = None
        if task is not None:
            slot = task.table.slots.get(fd)
            handle = None if slot is None else self.engine.calls.tables.use(slot, task, fd)
            if handle is not None and not (self._is_kept(task, fd, since) and self._is_told(task, handle)):
                request.doubtful.add(len(request.fds))
                handle = None
        if not request.fds:
            request.splices, request.looked_since = opcode_has(request.opcode, OpcodeTrait.TWO_FILES), since
        request.fds.append((fd, event.time, handle))
        if handle is not None:
            handle.wanted = True

    def proves(self, request: Request, lane: Lane) -> None:
        """The descriptor that was looked up is open."""
        task = request.lane.task if request.lane is not None else None
        if task is not None and task.ended:
            task = lane.task if lane.task is not None and lane.task.process is task.process else None
        if task is None:
            return
        for place, (fd, looked, handle) in enumerate(request.fds):
            if handle is None and fd >= 0 and place not in request.doubtful:
                found = self._appeared(task, fd, request.looked_since)
                found.wanted = True
                request.fds[place] = (fd, looked, found)
                request.splices = opcode_has(request.opcode, OpcodeTrait.TWO_FILES)

    @staticmethod
    def _before(lane: Lane, event: Event) -> int:
        """Time of the thread's last event, after which it looks the descriptor up."""
        if not lane.recorded or lane.task is None:
            return LONG_AGO
        others = ("in", "out", "freed", "dropped")
        own = [each.time for each in lane.log if each.order < event.order and each.kind not in others]
        start = lane.task.start
        return max([*own, LONG_AGO if start is None else start])

    def _is_kept(self, task: Task, fd: int, since: int) -> bool:
        """True if the slot has been constant since then."""
        slot = task.table.slots.get(fd)
        changed = task.table.last_change(fd) if slot is None else slot.since
        return changed <= since and task.table.is_steady(fd, since) and self.engine.gaps.spare(since)

    def _is_told(self, task: Task, handle: Handle) -> bool:
        """True if a fact confirms the descriptor, or need not."""
        known = handle.description.name is not None or handle.description.identity is not None
        return not self.engine.files.ends_unseen or not known or task.told is handle.description

    def _appeared(self, task: Task, fd: int, looked: int) -> Handle:
        """A handle whose opening was not seen; for this request alone if the slot has changed since."""
        if not self._is_kept(task, fd, looked):
            handle = self.engine.calls.tables.make(task, fd, UNSEEN, Description(None), None)
            handle.end(None)
            return handle
        return self.engine.calls.lookups.unseen(task, fd, looked)
