"""Switches of CPUs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lo2io.native._lib import lib

from lo2io.catalog.wait_reasons import load_reasons
from lo2io.model.layers import STACK_FROM_NS

if TYPE_CHECKING:
    from reference.engine import Reference
    from reference.ring_objects import Request
    from reference.tasks import Task

WAITING, UNINTERRUPTIBLE = 0xFF, 2
PREEMPTED, DEVICE, BLOCKED, SLEEPING = range(4)
NOTHING, UNKNOWN, SHORT, SHORT_IO, OTHER, FIRST_KNOWN = range(6)


class Sched:
    """Every switch, and the stretches of calls without a CPU."""

    def __init__(self, engine: Reference) -> None:
        self.engine = engine
        meta = engine.meta
        self.layer = "waits" in meta.layers
        """Programs told of stretches: they do not follow from switches."""
        self.worker_ends: dict[Task, int] = {}
        """The end of the last stretch of each worker."""
        self.reasons = {stack.stack + 1: load_reasons().number_of(stack.functions) for stack in meta.kernel_stacks}

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
        if self.layer:
            return
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
            self._row(task, begin, time, state, NOTHING if state == PREEMPTED else UNKNOWN)

    def _row(self, task: Task, begin: int, end: int | None, state: int, reason: int, **told: Any) -> None:
        rest = {"wake_time_ns": None, "waker": None, "waker_tid": None, "stack": None, "holder": None}
        rest |= {"holder_tid": None, "lock_inode": 0, "lock_device": 0, "worked_on": None}
        self.engine.off_cpu.append(
            {
                "before": len(self.engine.operations),
                "task": task,
                "begin_time_ns": begin,
                "end_time_ns": end,
                "state": state,
                "reason": reason,
                **rest,
                **told,
            }
        )

    # ---- the layer `waits` ----

    def slept(self, task: Task, end: int, told: dict[str, Any]) -> None:
        """A stretch that a program has put together."""
        op, out, wake = task.pending, told["out_ns"], told["wake_ns"] or None
        if told["request"] and op is None:
            self._worker_slept(task, end, told)
            return
        endless, lost = told["flags"] & lib.LO2_SLEEP_ENDLESS, told["flags"] & lib.LO2_SLEEP_LOST
        if op is None or out < op.time:
            return
        if not op.off_end <= out <= (wake or out) <= end:  # a damaged record
            op.unseen = True
            self.engine.totals["nr_undecoded"] += 1
            return
        op.off_end = out if endless else end
        if endless or lost or wake is None:
            op.unseen = True
        else:
            op.run_queue += end - wake
            op.blocked += wake - out
        if task.recorded:
            self._stretch(task, end, told)

    def _worker_slept(self, task: Task, end: int, told: dict[str, Any]) -> None:
        """The same, of a worker that executes a request."""
        out, wake = told["out_ns"], told["wake_ns"] or None
        if not self.worker_ends.get(task, 0) <= out <= (wake or out) <= end:
            self.engine.totals["nr_undecoded"] += 1
            return
        self.worker_ends[task] = out if told["flags"] & lib.LO2_SLEEP_ENDLESS else end
        request = self.engine.rings.requests.slept(task, end, told)
        if task.recorded and request is not None:
            self._stretch(task, end, told, request=request)

    def _stretch(self, task: Task, end: int, told: dict[str, Any], *, request: Request | None = None) -> None:
        out, wake, endless = told["out_ns"], told["wake_ns"] or None, told["flags"] & lib.LO2_SLEEP_ENDLESS
        row: dict[str, Any] = {
            "wake_time_ns": wake,
            "worked_on": request,
            "stack": told["stack"] - 1 if told["stack"] else None,
        }
        if wake is not None and told["state"] != lib.LO2_SLEEP_PREEMPTED:
            row |= {"waker_tid": told["waker"], "waker": self._recorded(told["waker"])}
        if told["flags"] & lib.LO2_SLEEP_LOCK:
            row |= {"lock_inode": told["lock_inode"], "lock_device": told["lock_device"]}
            if told["holder"]:
                row |= {"holder_tid": told["holder"], "holder": self._recorded(told["holder"])}
        state = self._state_of_sleep(task, out, told["state"])
        self._row(task, out, None if endless else end, state, self._reason(told, end), **row)

    def _recorded(self, tid: int) -> Task | None:
        task = self.engine.tasks.alive.get(tid) if tid else None
        return task if task is not None and task.recorded else None

    def _state_of_sleep(self, task: Task, out: int, state: int) -> int:
        if state == lib.LO2_SLEEP_PREEMPTED:
            return PREEMPTED
        if task.request_gone >= out or any(request.task is task for request in self.engine.block.open):
            return DEVICE
        return BLOCKED if state == lib.LO2_SLEEP_BLOCKED else SLEEPING

    def _reason(self, told: dict[str, Any], end: int) -> int:
        lasted = (told["wake_ns"] or end) - told["out_ns"]
        by_stack = self.reasons.get(told["stack"], UNKNOWN)
        lock = load_reasons().names.index("lock")
        if told["state"] == lib.LO2_SLEEP_PREEMPTED:
            return NOTHING
        if told["flags"] & lib.LO2_SLEEP_LOCK:
            return by_stack if FIRST_KNOWN <= by_stack < lock else lock
        if told["stack"] or told["flags"] & lib.LO2_SLEEP_ENDLESS or lasted >= STACK_FROM_NS:
            return by_stack
        return SHORT_IO if told["flags"] & lib.LO2_SLEEP_IOWAIT else SHORT
