"""When threads had block requests under way, and the part of each call during which this was so.

In: the table of requests. Out: for any stretch of a thread's time, the part with a request of the thread at a device,
and the part with one in a queue and none at a device. Nothing tells whether the call waited for that request: the
thread may have sent it ahead (readahead), or for others. Memory: 40 B for each request of a known thread.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from lo2io.model import UNKNOWN_I64, UNKNOWN_U32
from lo2io.model.number_sets import distinct
from lo2io.native._lib import ffi, lib
from lo2io.native.columns import pointer_to
from lo2io.trace.columns import OFF_STATE

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from lo2io.trace.reader import Trace

    _Stretches = tuple[NDArray[np.uint32], NDArray[np.int64], NDArray[np.int64]]
    """Task, start and end of each stretch; times in ns."""

SWITCH: Final = "sched:sched_switch"
COLUMNS: Final = ("task", "status", "insert_time_ns", "issue_time_ns", "complete_time_ns")
_COMPLETED: Final = 0
_OFF_CPU: Final = ("task", "begin_time_ns", "end_time_ns", "wake_time_ns", "state")


class Spans:
    """Stretches of time by task, united if they overlap; their total length up to the start of each.

    Args:
        task: shape (n,), the task of each stretch.
        begin: shape (n,), ns; ``end`` likewise, not before ``begin``.
        tasks: All tasks, ascending; also those without a stretch.
    """

    def __init__(
        self,
        task: NDArray[np.uint32],
        begin: NDArray[np.int64],
        end: NDArray[np.int64],
        tasks: NDArray[np.uint32],
    ) -> None:
        order = np.lexsort((begin, task))
        task, begin, end = task[order], begin[order], end[order]
        starts, ends, first = [], [], [0]
        for low, high in pairwise([*np.searchsorted(task, tasks).tolist(), len(task)]):
            reached = np.maximum.accumulate(end[low:high])
            opens = np.ones(high - low, np.bool_)
            opens[1:] = begin[low + 1 : high] > reached[:-1]
            closes = np.append(opens[1:], True)[: high - low]
            starts.append(begin[low:high][opens])
            ends.append(reached[closes])
            first.append(first[-1] + len(starts[-1]))
        self._starts = np.concatenate([np.zeros(0, np.int64), *starts])
        self._ends = np.concatenate([np.zeros(0, np.int64), *ends])
        self._before = np.concatenate([np.zeros(1, np.int64), np.cumsum(self._ends - self._starts)])
        self._first = np.array(first, np.int64)
        self._last = self._first.copy()

    def native(self) -> Any:
        """A ``lo2_spans``, which points to the arrays of this object."""
        return {
            "starts": pointer_to(self._starts, "int64_t"),
            "ends": pointer_to(self._ends, "int64_t"),
            "before": pointer_to(self._before, "int64_t"),
            "first": pointer_to(self._first, "int64_t"),
            "last": pointer_to(self._last, "int64_t"),
        }


class CallSpans:
    """The part of each call with a request of its thread under way, and the part without a CPU.

    Args:
        trace: It has the completed requests of known threads, and the stretches without a CPU.
    """

    def __init__(self, trace: Trace) -> None:
        device, either = _requests(trace)
        self.knows_cpu = bool(trace.rows("off_cpu")) or any(e.event == SWITCH for e in trace.completeness.events)
        """True if the layer ``waits`` or the scheduler's switches were recorded."""
        ready, away, unknown = _off_cpu(trace)
        self._tasks = distinct(np.concatenate([part[0] for part in (device, ready, away, unknown)]))
        parts: dict[str, tuple[_Stretches, ...]] = {"device": (device,), "either": (either,)}
        if self.knows_cpu:
            parts |= {"ready": (ready,), "away": (away,), "unknown": (unknown,)}
            parts["off_cpu"] = ready, away, unknown
            parts |= {"away_or_device": (away, device), "away_or_either": (away, either)}
        with ThreadPoolExecutor(2, "lo2io-spans") as pool:  # sorting does not hold the GIL
            self._spans = dict(zip(parts, pool.map(self._united, parts.values()), strict=True))
        self._of_task = np.full(int(self._tasks.max(initial=0)) + 1, -1, np.int32)
        self._of_task[self._tasks] = np.arange(len(self._tasks))
        self.native = ffi.new("lo2_call_spans *")
        """The same for the native part."""
        self.native.of_task, self.native.nr_tasks = pointer_to(self._of_task, "int32_t"), len(self._of_task)
        self.native.knows_cpu = self.knows_cpu
        for name, spans in self._spans.items():
            setattr(self.native, name, spans.native())

    def _united(self, parts: tuple[_Stretches, ...]) -> Spans:
        task, begin, end = (np.concatenate(column) for column in zip(*parts, strict=True))
        return Spans(task, begin, end, self._tasks)

    def within(
        self, task: NDArray[np.uint32], begin: NDArray[np.int64], duration: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """For each call, the time with a request at a device, and the time with a request only in a queue; in ns.

        If it is known when threads had a CPU, only time counts in which the thread waited: a thread can work while its
        request is under way.
        """
        task, begin, duration = np.ascontiguousarray(task), np.ascontiguousarray(begin), np.ascontiguousarray(duration)
        device, queue = np.zeros(len(task), np.int64), np.zeros(len(task), np.int64)
        times = (pointer_to(values, "int64_t") for values in (begin, duration, device, queue))
        lib.lo2_spans_within(self.native, len(task), pointer_to(task, "uint32_t"), *times)
        return device, queue


def wait_ends(
    begin: NDArray[np.int64], end: NDArray[np.int64], wake: NDArray[np.int64], state: NDArray[np.uint8]
) -> NDArray[np.int64]:
    """When the wait of each stretch without a CPU was over: from then on, its thread was ready to run.

    This is the time of its wakeup, and without a known wakeup the end of the stretch. A preempted thread does not wait.

    Args:
        begin: column ``begin_time_ns`` of the table off_cpu, shape (n,).
        end: column ``end_time_ns``.
        wake: column ``wake_time_ns``.
        state: column ``state``.

    Returns:
        shape (n,), ns.
    """
    woken = np.where(wake == UNKNOWN_I64, end, np.clip(wake, begin, end))
    return np.where(state == OFF_STATE.index("preempted"), begin, woken)


def _requests(trace: Trace) -> tuple[_Stretches, _Stretches]:
    """When requests were at a device, and when they were at a device or in its queue."""
    parts: list[tuple[NDArray[Any], ...]] = []
    for rows in trace.batches("requests", COLUMNS) if trace.rows("requests") else ():
        issue, complete = rows["issue_time_ns"], rows["complete_time_ns"]
        which = (rows["task"] != UNKNOWN_U32) & (rows["status"] == _COMPLETED)
        which &= (issue != UNKNOWN_I64) & (complete >= issue)
        insert = np.where(rows["insert_time_ns"] == UNKNOWN_I64, issue, rows["insert_time_ns"])
        parts.append(tuple(v[which] for v in (rows["task"], np.minimum(insert, issue), issue, complete)))
    none = np.zeros(0, np.uint32), *(np.zeros(0, np.int64) for _ in range(3))
    task, insert, issue, complete = (np.concatenate(column) for column in zip(none, *parts, strict=True))
    return (task, issue, complete), (task, insert, complete)


def _off_cpu(trace: Trace) -> tuple[_Stretches, _Stretches, _Stretches]:
    """When threads were ready to run and others ran, when threads waited, and when their state is unknown.

    A wait is over when the thread is woken. If no wakeup is known, it is over when the thread has a CPU again.
    An unknown state begins when a thread leaves a CPU and its return is missing. It ends at the latest when the thread
    leaves a CPU again.
    """
    parts = [tuple(rows.values()) for rows in trace.batches("off_cpu", _OFF_CPU)] if trace.rows("off_cpu") else []
    none = np.zeros(0, np.uint32), *(np.zeros(0, np.int64) for _ in range(3)), np.zeros(0, np.uint8)
    task, begin, end, wake, state = (np.concatenate(column) for column in zip(none, *parts, strict=True))
    order = np.lexsort((begin, task))
    task, begin, end, wake, state = task[order], begin[order], end[order], wake[order], state[order]
    again = np.full(len(task), np.iinfo(np.int64).max, np.int64)
    again[:-1] = np.where(task[1:] == task[:-1], begin[1:], again[:-1])
    unknown = end == UNKNOWN_I64
    woken = wait_ends(begin, end, wake, state)
    waited, ready = ~unknown & (begin < woken), ~unknown & (woken < end)
    return (
        (task[ready], woken[ready], end[ready]),
        (task[waited], begin[waited], woken[waited]),
        (task[unknown], begin[unknown], again[unknown]),
    )
