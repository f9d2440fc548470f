"""Where the time of calls went, and which of them took longest.

In: operations, what rings' calls add to theirs, and waits, if the layer ``waits`` or the scheduler's switches were
    recorded. Out: sums by class of call, failures by process, the slowest operations. Memory: nothing for an operation.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

import numpy as np

from lo2io.frozen import dataclass
from lo2io.model import UNKNOWN_I64
from lo2io.native.columns import allocate_rows
from lo2io.reports.summary.classes import NR_CLASSES
from lo2io.reports.summary.spans import wait_ends
from lo2io.trace.columns import OFF_STATE

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from lo2io.model import Columns
    from lo2io.reports.summary.owners import Owners
    from lo2io.reports.summary.spans import CallSpans
    from lo2io.trace.reader import Trace

_WAIT_BEGINS: Final = "io_uring:io_uring_cqring_wait"


class Sleeps:
    """When calls of io_uring_enter began to wait for completions. Before that they worked.

    The time is known if io_uring's own events were recorded. Their table has a row for each such call, in the order of
    the calls' ids. So the two tables are read side by side. Memory: one batch of the table.
    """

    def __init__(self, trace: Trace, spans: CallSpans) -> None:
        recorded = any(event.event == _WAIT_BEGINS for event in trace.completeness.events)
        self._coming = trace.batches("batches", ["id", "sleep_time_ns"]) if recorded else iter(())
        self._ids, self._times = np.zeros(0, np.uint64), np.zeros(0, np.int64)
        self._spans = spans
        self._enters = np.array([call["kind"] == "ring_enter" for call in trace.metadata["calls"]], np.bool_)

    def worked(self, rows: Columns) -> NDArray[np.int64] | None:
        """How long each call worked before it waited, in ns; 0: unknown, or the call did not wait.

        Time during which a request of the thread was at a device or in a queue does not count as work.

        Args:
            rows: Operations, each time the next ones.

        Returns:
            None if no row is such a call.
        """
        which = np.flatnonzero(self._enters[rows["call"]])
        if not len(which):
            return None
        worked = np.zeros(len(rows["id"]), np.int64)
        ids = rows["id"][which]
        self._read_on(ids[0], ids[-1])
        if not len(self._ids):
            return worked
        place = np.searchsorted(self._ids, ids).clip(0, len(self._ids) - 1)
        which, place = which[self._ids[place] == ids], place[self._ids[place] == ids]
        slept, begin, end = self._times[place], rows["begin_time_ns"][which], rows["end_time_ns"][which]
        lasted = np.maximum((end - begin) * (end != UNKNOWN_I64), 0)
        until = np.where(slept == UNKNOWN_I64, lasted, slept - begin).clip(0, lasted)
        device, queue = self._spans.within(rows["task"][which], begin, until)
        worked[which] = until - device - queue
        return worked

    def _read_on(self, first: np.uint64, last: np.uint64) -> None:
        """Keep the rows between two calls, both by id. Earlier rows are no longer needed."""
        ids, times = self._ids, self._times
        while True:
            begin = np.searchsorted(ids, first)
            ids, times = ids[begin:], times[begin:]
            if (len(ids) and ids[-1] >= last) or (rows := next(self._coming, None)) is None:
                break
            ids, times = np.append(ids, rows["id"]), np.append(times, rows["sleep_time_ns"])
        self._ids, self._times = ids, times


class TimeTally:
    """By class of call: count, time, and the part with a request of the calling thread under way.

    With the scheduler's switches, each moment of a call is one of three: it had a CPU, was ready to run, or waited.
    Without them, this is unknown. Waiting counts as the first of these that holds: for the device or its queue;
    for others, in calls that wait by their nature (polls, locks, syncs, collecting from rings; reads, writes,
    copies and opens of pipes, sockets and terminals, but not of /dev/null and its like); blocked. ``adding.py`` adds
    the calls up.
    """

    def __init__(self, owners: Owners, spans: CallSpans) -> None:
        rows = self.rows = allocate_rows("lo2_time_sums", NR_CLASSES)
        self.calls, self.errors, self.total_ns, self.device_ns, self.queue_ns, self.waiting_ns = (
            rows[name] for name in ("calls", "errors", "total_ns", "device_ns", "queue_ns", "waiting_ns")
        )
        """``waiting_ns``: the part of the remaining time in calls that wait for others."""
        self.blocked_ns, self.preempted_ns, self.cpu_ns = (
            rows[name] for name in ("blocked_ns", "preempted_ns", "cpu_ns")
        )
        """Known if the layer ``waits`` or the scheduler's switches were recorded; else 0."""
        self.knows_cpu = spans.knows_cpu
        self.process_calls = np.zeros((owners.nr_processes + 1, NR_CLASSES), np.int64)
        self.process_ns = np.zeros((owners.nr_processes + 1, NR_CLASSES), np.int64)
        self.process_syncs = np.zeros(owners.nr_processes + 1, np.int64)
        """Syncs of each process, and its writes that are syncs, too."""
        self.process_sync_ns = np.zeros(owners.nr_processes + 1, np.int64)
        self.failures: Counter[tuple[int, int, int, int]] = Counter()
        """Failed calls by process, call, class (``fcntl`` has two) and errno."""
        self.failure_ns: Counter[tuple[int, int, int, int]] = Counter()
        """The time of these calls."""


class OffCpuTally:
    """Stretches of calls, and of requests in workers, without a CPU, by state.

    Empty unless the layer ``waits`` or switches were recorded.

    A state ends when its thread is woken. From then on the thread is ready to run, like a preempted one.
    """

    def __init__(self, trace: Trace) -> None:
        self.times = np.zeros(len(OFF_STATE), np.int64)
        self.total_ns = np.zeros(len(OFF_STATE), np.int64)
        for rows in trace.batches("off_cpu", ["state", "begin_time_ns", "end_time_ns", "wake_time_ns"]):
            begin, end, state = rows["begin_time_ns"], rows["end_time_ns"], rows["state"]
            known = (end != UNKNOWN_I64) & (end >= begin)
            woken = wait_ends(begin, end, rows["wake_time_ns"], state)
            np.add.at(self.times, state, 1)
            np.add.at(self.total_ns, state, (woken - begin) * known)
            self.total_ns[OFF_STATE.index("preempted")] += ((end - woken) * known).sum()


@dataclass(frozen=True, slots=True)
class Slow:
    """One of the slowest operations, without calls that wait by their nature and calls about processes."""

    id: int
    call: int
    task: int
    begin_ns: int
    duration_ns: int
    group: int
    offset_bytes: int | None
    bytes: int | None
    """Bytes moved, or else asked for."""
    error: int
    device_ns: int
    queue_ns: int
