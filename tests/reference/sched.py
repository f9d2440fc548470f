"""Switches of CPUs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from reference.engine import Reference
    from reference.tasks import Task

WAITING, UNINTERRUPTIBLE = 0xFF, 2
PREEMPTED, DEVICE, BLOCKED, SLEEPING = range(4)


class Sched:
    """Every switch, and the stretches of calls without a CPU."""

    def __init__(self, engine: Reference) -> None:
        self.engine = engine

    def switch(self, time: int, cpu: int, values: dict[str, Any]) -> None:
        """``sched_switch``."""
        alive = {tid: task for tid, task in self.engine.tasks.alive.items() if tid}
        leaves, comes = alive.get(values["prev_tid"]), alive.get(values["next_tid"])
        state = self._state(leaves, values["prev_state"])
        self.engine.switches.append(
            {
                "time_ns": time,
                "cpu": cpu,
                "prev_task": leaves if leaves is not None and leaves.recorded else None,
                "prev_tid": values["prev_tid"],
                "next_task": comes if comes is not None and comes.recorded else None,
                "next_tid": values["next_tid"],
                "state": state,
            }
        )
        for task, kind in ((leaves, "out"), (comes, "in")):
            if task is not None and task.kind == 1:
                self.engine.rings.requests.thread(task, time, kind)
        if leaves is not None and leaves.pending is not None:
            self.back(leaves, None)
            leaves.pending.off = (time, state)
        if comes is not None:
            self.back(comes, time)

    def _state(self, task: Task | None, state: int) -> int:
        if not state & WAITING:
            return PREEMPTED
        if task is not None and any(request.task is task for request in self.engine.block.open):
            return DEVICE
        return BLOCKED if state & UNINTERRUPTIBLE else SLEEPING

    def back(self, task: Task, time: int | None) -> None:
        """The stretch, if any, is over."""
        if task.pending is None or task.pending.off is None:
            return
        begin, state = task.pending.off
        task.pending.off = None
        if task.recorded:
            self.engine.off_cpu.append(
                {
                    "before": len(self.engine.operations),
                    "task": task,
                    "begin_time_ns": begin,
                    "end_time_ns": time,
                    "state": state,
                }
            )
