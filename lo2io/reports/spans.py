"""When threads had block requests under way, and how much of a call that was.

In: the table of requests. Out: of any stretch of a thread's time the part in which a request that it had sent was at a
device, and the part in which one waited in a queue and none was at a device. Whether the call waited for that request
is not known: a thread may have sent it ahead (readahead), or for others. Memory: 40 B a request of a known thread.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from lo2io.model import UNKNOWN_I64, UNKNOWN_U32

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from lo2io.tables import Trace

COLUMNS: Final = ("task", "status", "insert_time_ns", "issue_time_ns", "complete_time_ns")
_COMPLETED: Final = 0


class Spans:
    """Stretches of time by task, united where they overlap; how long they are up to any moment.

    Args:
        task: shape (n,), whose each is.
        begin: shape (n,), ns; ``end`` likewise, not before ``begin``.
    """

    def __init__(self, task: NDArray[np.uint32], begin: NDArray[np.int64], end: NDArray[np.int64]) -> None:
        order = np.lexsort((begin, task))
        task, begin, end = task[order], begin[order], end[order]
        self.tasks, first = np.unique(task, return_index=True)
        starts, ends, self._first = [], [], [0]
        for low, high in pairwise([*first.tolist(), len(task)]):
            reached = np.maximum.accumulate(end[low:high])
            opens = np.ones(high - low, np.bool_)
            opens[1:] = begin[low + 1 : high] > reached[:-1]
            closes = np.append(opens[1:], True)
            starts.append(begin[low:high][opens])
            ends.append(reached[closes])
            self._first.append(self._first[-1] + len(starts[-1]))
        self._starts = np.concatenate([np.zeros(0, np.int64), *starts])
        self._ends = np.concatenate([np.zeros(0, np.int64), *ends])
        self._before = np.concatenate([np.zeros(1, np.int64), np.cumsum(self._ends - self._starts)])

    def within(self, index: int, begin: NDArray[np.int64], end: NDArray[np.int64]) -> NDArray[np.int64]:
        """How much of each stretch from ``begin`` to ``end`` is covered for the task ``tasks[index]``, in ns."""
        return self._until(index, end) - self._until(index, begin)

    def _until(self, index: int, moment: NDArray[np.int64]) -> NDArray[np.int64]:
        low, high = self._first[index], self._first[index + 1]
        place = low + np.searchsorted(self._starts[low:high], moment, side="right")
        last = np.maximum(place - 1, low)
        beyond = np.where(place > low, np.maximum(self._ends[last] - moment, 0), 0)
        covered: NDArray[np.int64] = self._before[place] - beyond
        return covered


class RequestSpans:
    """What of each call had a request of its thread under way.

    Args:
        trace: Where the requests are; those that completed, of known threads.
    """

    def __init__(self, trace: Trace) -> None:
        parts: list[tuple[NDArray[Any], ...]] = []
        for rows in trace.batches("requests", COLUMNS) if trace.rows("requests") else ():
            issue, complete = rows["issue_time_ns"], rows["complete_time_ns"]
            which = (rows["task"] != UNKNOWN_U32) & (rows["status"] == _COMPLETED)
            which &= (issue != UNKNOWN_I64) & (complete >= issue)
            insert = np.where(rows["insert_time_ns"] == UNKNOWN_I64, issue, rows["insert_time_ns"])
            parts.append(tuple(v[which] for v in (rows["task"], np.minimum(insert, issue), issue, complete)))
        none = np.zeros(0, np.uint32), *(np.zeros(0, np.int64) for _ in range(3))
        task, insert, issue, complete = (np.concatenate(column) for column in zip(none, *parts, strict=True))
        parts.clear()
        self._device = Spans(task, issue, complete)
        self._either = Spans(task, insert, complete)

    def within(
        self, task: NDArray[np.uint32], begin: NDArray[np.int64], duration: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Of each call the time with a request at a device, and that with one in a queue alone, in ns."""
        device, queue = np.zeros(len(task), np.int64), np.zeros(len(task), np.int64)
        tasks = self._device.tasks
        if not len(tasks):
            return device, queue
        place = np.searchsorted(tasks, task).clip(0, len(tasks) - 1)
        which = np.flatnonzero((tasks[place] == task) & (duration > 0))
        which = which[np.argsort(place[which], kind="stable")]
        if not len(which):
            return device, queue
        indices, starts = np.unique(place[which], return_index=True)
        for index, rows in zip(indices.tolist(), np.split(which, starts[1:]), strict=True):
            first, last = begin[rows], begin[rows] + duration[rows]
            device[rows] = self._device.within(index, first, last)
            queue[rows] = self._either.within(index, first, last) - device[rows]
        return device, queue
