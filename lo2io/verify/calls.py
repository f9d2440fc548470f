"""The rule of the attributes of calls: they tell the same waits and requests as the tables.

In: the tables, and attributes of the leaves of calls. Out: findings. ``docs/reference/otf2.md`` says what the
attributes mean. Memory: 24 B for each block request that a recorded thread submitted, and for each request of FUSE.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from lo2io.model import UNKNOWN_I64, UNKNOWN_U32

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from lo2io.model import Columns
    from lo2io.trace.reader import Trace
    from lo2io.verify.rules import Verification
    from lo2io.verify.told import ToldCalls

_CALLS: Final = ("id", "task", "status", "begin_time_ns", "end_time_ns", "run_queue_ns", "blocked_ns")
_REQUESTS: Final = ("id", "task", "insert_time_ns", "issue_time_ns", "nr_requeues")
_COMPLETED: Final = 0
_NR_FIRST: Final = 4
"""Of the values that calls tell, so many stand before those of block requests."""


def check_calls(trace: Trace, told: ToldCalls, verdict: Verification) -> None:
    """Report calls of which the trace tells other waits or other requests than the tables.

    Raises:
        TraceError: A table cannot be read.
    """
    if not told:
        return
    rows = told.by_id()
    requests, fuse = _Requests(trace), _Fuse(trace)
    width = rows.shape[1] - 1 if requests.whole else _NR_FIRST
    for batch in trace.batches("operations", _CALLS):
        place = np.searchsorted(rows[:, 0], batch["id"])
        there = place < len(rows)
        there[there] = rows[place[there], 0] == batch["id"][there]
        said = np.zeros((len(place), rows.shape[1] - 1), np.uint64)
        said[there] = rows[place[there], 1:]
        meant = np.column_stack([*_waits(batch), *fuse.of_calls(batch), *requests.of_calls(batch)])
        ended = batch["status"] == _COMPLETED
        bad = ended & (said[:, :width] != meant[:, :width]).any(axis=1)
        for number in batch["id"][bad].tolist():
            verdict.report("call.told", f"operations: trace and tables tell different waits or requests of {number}")


def _waits(batch: Columns) -> tuple[Any, Any]:
    queue, blocked = batch["run_queue_ns"], batch["blocked_ns"]
    known = (queue != UNKNOWN_I64) & (blocked != UNKNOWN_I64)
    return tuple(np.where(known, times, 0).astype(np.uint64) for times in (queue, blocked))  # type: ignore[return-value]


class _Fuse:
    """The requests to servers of FUSE file systems, by the call that sent them."""

    def __init__(self, trace: Trace) -> None:
        none = np.zeros(0, np.uint64), np.zeros(0, np.int64), np.zeros(0, np.int64)
        columns = ("operation", "begin_time_ns", "end_time_ns")
        parts = [tuple(rows[name] for name in columns) for rows in trace.batches("fuse_requests", columns)]
        calls, begins, ends = (np.concatenate(column) for column in zip(none, *parts, strict=True))
        order = np.lexsort((ends, calls))
        self._calls, self._ends = calls[order], ends[order]
        self._times = (ends - begins)[order]

    def of_calls(self, batch: Columns) -> tuple[Any, Any]:
        """The number of requests of each call, and the time of those that ended before it did."""
        first = np.searchsorted(self._calls, batch["id"])
        behind = np.searchsorted(self._calls, batch["id"], side="right")
        times = np.zeros(len(first), np.int64)
        for row in np.flatnonzero(behind > first).tolist():
            mine = slice(first[row], behind[row])
            known = (self._ends[mine] != UNKNOWN_I64) & (self._ends[mine] <= batch["end_time_ns"][row])
            times[row] = self._times[mine][known].sum()
        return (behind - first).astype(np.uint64), times.astype(np.uint64)


class _Requests:
    """The block requests of all threads, by thread and begin."""

    def __init__(self, trace: Trace) -> None:
        none = np.zeros(0, np.uint64), np.zeros(0, np.uint32), np.zeros(0, np.int64)
        parts = [self._read(batch) for batch in trace.batches("requests", _REQUESTS)]
        self.whole = all(whole for *_, whole in parts)
        """False if the start of some request is not known: it was issued twice, and the table has the last time."""
        ids, tasks, begins = (np.concatenate(columns) for columns in zip(none, *(p[:3] for p in parts), strict=True))
        order = np.lexsort((begins, tasks))
        self._ids, self._tasks, self._begins = ids[order], tasks[order], begins[order]

    @staticmethod
    def _read(batch: Columns) -> tuple[Any, Any, Any, bool]:
        inserted, issued = batch["insert_time_ns"], batch["issue_time_ns"]
        begin = np.where(inserted == UNKNOWN_I64, issued, inserted)
        mine = (batch["task"] != UNKNOWN_U32) & (begin != UNKNOWN_I64)
        again = mine & (inserted == UNKNOWN_I64) & (batch["nr_requeues"] > 0)
        return batch["id"][mine], batch["task"][mine], begin[mine], not again.any()

    def of_calls(self, batch: Columns) -> tuple[Any, Any, Any]:
        """The number of requests of each call, and the ids of the first and the last of them; 0: none."""
        first = self._place(batch["task"], batch["begin_time_ns"])
        behind = self._place(batch["task"], np.maximum(batch["end_time_ns"], batch["begin_time_ns"] - 1) + 1)
        count = behind - first
        ids = np.append(self._ids, np.uint64(0))
        has = count > 0
        return (
            count.astype(np.uint64),
            np.where(has, ids[first], 0).astype(np.uint64),
            np.where(has, ids[behind - 1], 0).astype(np.uint64),
        )

    def _place(self, tasks: NDArray[np.uint32], times: NDArray[np.int64]) -> NDArray[np.intp]:
        """The place before which all requests of each thread that began before this time lie."""
        low = np.searchsorted(self._tasks, tasks)
        high = np.searchsorted(self._tasks, tasks, side="right")
        found = low.copy()
        for task in np.unique(tasks[high > low]).tolist():
            mine = tasks == task
            begin, end = int(low[mine][0]), int(high[mine][0])
            found[mine] = begin + np.searchsorted(self._begins[begin:end], times[mine])
        return found
