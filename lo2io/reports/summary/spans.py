"""When threads had block requests under way, and the part of each call during which this was so.

In: the table of requests. Out: for any stretch of a thread's time, the part with a request of the thread at a device,
and the part with one in a queue and none at a device. Nothing tells whether the call waited for that request: the
thread may have sent it ahead (readahead), or for others. Memory: 40 B for each request of a known thread.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from lo2io.model import UNKNOWN_I64, UNKNOWN_U32
from lo2io.trace.columns import OFF_STATE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from lo2io.trace.reader import Trace

    _Stretches = tuple[NDArray[np.uint32], NDArray[np.int64], NDArray[np.int64]]
    """Task, begin and end of each stretch; times in ns."""

SWITCH: Final = "sched:sched_switch"
COLUMNS: Final = ("task", "status", "insert_time_ns", "issue_time_ns", "complete_time_ns")
_COMPLETED: Final = 0
_OFF_CPU: Final = ("task", "begin_time_ns", "end_time_ns", "state")


class Spans:
    """Stretches of time by task, united if they overlap; their total length up to any moment.

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
        starts, ends, self._first = [], [], [0]
        for low, high in pairwise([*np.searchsorted(task, tasks).tolist(), len(task)]):
            reached = np.maximum.accumulate(end[low:high])
            opens = np.ones(high - low, np.bool_)
            opens[1:] = begin[low + 1 : high] > reached[:-1]
            closes = np.append(opens[1:], True)[: high - low]
            starts.append(begin[low:high][opens])
            ends.append(reached[closes])
            self._first.append(self._first[-1] + len(starts[-1]))
        self._starts = np.concatenate([np.zeros(0, np.int64), *starts])
        self._ends = np.concatenate([np.zeros(0, np.int64), *ends])
        self._before = np.concatenate([np.zeros(1, np.int64), np.cumsum(self._ends - self._starts)])

    def within(self, index: int, begin: NDArray[np.int64], end: NDArray[np.int64]) -> NDArray[np.int64]:
        """The time in ns that is covered between each ``begin`` and ``end``, for the task number ``index``."""
        return self._until(index, end) - self._until(index, begin)

    def _until(self, index: int, moment: NDArray[np.int64]) -> NDArray[np.int64]:
        low, high = self._first[index], self._first[index + 1]
        if low == high:
            return np.zeros(len(moment), np.int64)
        place = low + np.searchsorted(self._starts[low:high], moment, side="right")
        last = np.maximum(place - 1, low)
        beyond = np.where(place > low, np.maximum(self._ends[last] - moment, 0), 0)
        covered: NDArray[np.int64] = self._before[place] - beyond
        return covered


class CallSpans:
    """The part of each call with a request of its thread under way, and the part without a CPU.

    Args:
        trace: It has the completed requests of known threads, and the stretches without a CPU.
    """

    def __init__(self, trace: Trace) -> None:
        device, either = _requests(trace)
        self.knows_cpu = bool(trace.rows("off_cpu")) or any(e.event == SWITCH for e in trace.completeness.events)
        """True if the scheduler's switches were recorded."""
        preempted, away, unknown = _off_cpu(trace)
        self._tasks = np.unique(np.concatenate([part[0] for part in (device, preempted, away, unknown)]))
        self._device, self._either = self._spans(device), self._spans(either)
        self._preempted, self._away, self._unknown = (self._spans(part) for part in (preempted, away, unknown))
        if self.knows_cpu:
            self._away_or_device, self._away_or_either = self._spans(away, device), self._spans(away, either)

    def _spans(self, *parts: _Stretches) -> Spans:
        task, begin, end = (np.concatenate(column) for column in zip(*parts, strict=True))
        return Spans(task, begin, end, self._tasks)

    def within(
        self, task: NDArray[np.uint32], begin: NDArray[np.int64], duration: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """For each call, the time with a request at a device, and the time with a request only in a queue; in ns.

        If the scheduler's switches were recorded, only time counts in which the thread waited: a thread can work
        while its request is under way.
        """
        if not self.knows_cpu:
            device, either = self._measure((self._device, self._either), task, begin, duration)
            return device, either - device
        parts = (self._device, self._either, self._away, self._away_or_device, self._away_or_either)
        device, either, away, or_device, or_either = self._measure(parts, task, begin, duration)
        device, either = device + away - or_device, either + away - or_either  # the overlaps
        return device, either - device

    def off_cpu(
        self, task: NDArray[np.uint32], begin: NDArray[np.int64], duration: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """For each call, the time in ns in which its thread was preempted; waited; had an unknown state."""
        parts = (self._preempted, self._away, self._unknown)
        preempted, away, unknown = self._measure(parts, task, begin, duration)
        return preempted, away, unknown

    def _measure(
        self,
        parts: Sequence[Spans],
        task: NDArray[np.uint32],
        begin: NDArray[np.int64],
        duration: NDArray[np.int64],
    ) -> list[NDArray[np.int64]]:
        """For each of these parts, the time in ns that it covers of each call."""
        covered = [np.zeros(len(task), np.int64) for _ in parts]
        if not len(self._tasks):
            return covered
        place = np.searchsorted(self._tasks, task).clip(0, len(self._tasks) - 1)
        which = np.flatnonzero((self._tasks[place] == task) & (duration > 0))
        which = which[np.argsort(place[which], kind="stable")]
        if not len(which):
            return covered
        indices, starts = np.unique(place[which], return_index=True)
        for index, rows in zip(indices.tolist(), np.split(which, starts[1:]), strict=True):
            first, last = begin[rows], begin[rows] + duration[rows]
            for values, spans in zip(covered, parts, strict=True):
                values[rows] = spans.within(index, first, last)
        return covered


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
    """When threads were preempted, when they waited, and when their state is unknown.

    An unknown state begins when a thread leaves a CPU and its return is missing. It ends at the latest when the thread
    leaves a CPU again.
    """
    parts = [tuple(rows.values()) for rows in trace.batches("off_cpu", _OFF_CPU)] if trace.rows("off_cpu") else []
    none = np.zeros(0, np.uint32), np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0, np.uint8)
    task, begin, end, state = (np.concatenate(column) for column in zip(none, *parts, strict=True))
    order = np.lexsort((begin, task))
    task, begin, end, state = task[order], begin[order], end[order], state[order]
    again = np.full(len(task), np.iinfo(np.int64).max, np.int64)
    again[:-1] = np.where(task[1:] == task[:-1], begin[1:], again[:-1])
    unknown, preempted = end == UNKNOWN_I64, state == OFF_STATE.index("preempted")
    return (
        (task[preempted & ~unknown], begin[preempted & ~unknown], end[preempted & ~unknown]),
        (task[~preempted & ~unknown], begin[~preempted & ~unknown], end[~preempted & ~unknown]),
        (task[unknown], begin[unknown], again[unknown]),
    )
