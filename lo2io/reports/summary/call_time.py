"""Where the time of calls went, and which of them took longest.

In: operations, what rings' calls add to theirs, and waits where the scheduler's switches were recorded. Out: sums by
class of call, failures by process, the slowest operations. Memory: nothing for an operation.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from lo2io.model import UNKNOWN_I64, CallClass
from lo2io.reports.summary.classes import NR_CLASSES, PASSIVE
from lo2io.trace.columns import OFF_STATE

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from lo2io.model import Columns
    from lo2io.reports.summary.classes import Classes
    from lo2io.reports.summary.owners import Owners
    from lo2io.reports.summary.spans import CallSpans
    from lo2io.trace.reader import Trace

MAX_SLOW: Final = 20
"""Number of slow operations that are kept."""
_WAIT_BEGINS: Final = "io_uring:io_uring_cqring_wait"
_PASSIVE_CLASSES: Final = np.isin(np.arange(NR_CLASSES), PASSIVE)


class _Sleeps:
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

    def worked(self, rows: Columns) -> NDArray[np.int64]:
        """How long each call worked before it waited, in ns; 0: unknown, or the call did not wait.

        Time during which a request of the thread was at a device or in a queue does not count as work.

        Args:
            rows: Operations as :func:`~lo2io.reports.summary.tally.derive` gives them, each time the next ones.
        """
        worked = np.zeros(len(rows["id"]), np.int64)
        which = np.flatnonzero(self._enters[rows["call"]])
        if not len(which):
            return worked
        ids = rows["id"][which]
        self._read_on(ids[0], ids[-1])
        if not len(self._ids):
            return worked
        place = np.searchsorted(self._ids, ids).clip(0, len(self._ids) - 1)
        which, place = which[self._ids[place] == ids], place[self._ids[place] == ids]
        slept, lasted = self._times[place], rows["duration_ns"][which]
        begin = rows["begin_time_ns"][which]
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
    """By class of call: count, time, and the part with a request of the calling thread under way."""

    def __init__(self, trace: Trace, owners: Owners, classes: Classes, spans: CallSpans) -> None:
        self._classes, self._spans, self._waits = classes, spans, owners.waits
        self._sleeps = _Sleeps(trace, spans)
        self.calls, self.errors, self.total_ns, self.device_ns, self.queue_ns, self.waiting_ns = (
            np.zeros(NR_CLASSES, np.int64) for _ in range(6)
        )
        """``waiting_ns``: the part of the remaining time in calls that wait for others; see :meth:`add`."""
        self.blocked_ns, self.preempted_ns, self.cpu_ns = (np.zeros(NR_CLASSES, np.int64) for _ in range(3))
        """Known if the scheduler's switches were recorded; else 0."""
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

    def add(self, rows: Columns) -> None:
        """Add operations, as :func:`~lo2io.reports.summary.tally.derive` gives them.

        With the scheduler's switches, each moment of a call is one of three: it had a CPU, was preempted, or waited.
        Without them, this is unknown. Waiting counts as the first of these that holds: for the device or its queue;
        for others, in calls that wait by their nature (polls, locks, syncs, collecting from rings; reads, writes,
        copies and opens of pipes, sockets and terminals, but not of /dev/null and its like); blocked.
        """
        kind, lasted = rows["class"], rows["duration_ns"]
        waits = self._classes.waiting(rows["call"], kind, rows["flags"])
        waits |= self._waits[rows["group"]] & self._classes.may_wait[rows["call"]]
        if self.knows_cpu:
            preempted, away, unknown = self._spans.off_cpu(rows["task"], rows["begin_time_ns"], lasted)
            rest = away - rows["device_ns"] - rows["queue_ns"]
            np.add.at(self.blocked_ns, kind, rest * ~waits)
            np.add.at(self.preempted_ns, kind, preempted)
            np.add.at(self.cpu_ns, kind, lasted - preempted - away - unknown)
        else:
            rest = lasted - rows["device_ns"] - rows["queue_ns"] - self._sleeps.worked(rows)
        for sums, values in (
            (self.calls, 1),
            (self.errors, (rows["error"] != 0).astype(np.int64)),
            (self.total_ns, lasted),
            (self.device_ns, rows["device_ns"]),
            (self.queue_ns, rows["queue_ns"]),
            (self.waiting_ns, rest * waits),
        ):
            np.add.at(sums, kind, values)
        by_process = rows["process"] * NR_CLASSES + kind
        np.add.at(self.process_calls.reshape(-1), by_process, 1)
        np.add.at(self.process_ns.reshape(-1), by_process, lasted)
        syncs = (kind == CallClass.SYNC) | rows["synced"]
        np.add.at(self.process_syncs, rows["process"][syncs], 1)
        np.add.at(self.process_sync_ns, rows["process"][syncs], lasted[syncs])
        failed = np.flatnonzero(rows["error"])
        if len(failed):
            numbers = np.abs(rows["error"][failed].astype(np.int64))
            keys = np.stack([rows["process"][failed], rows["call"][failed], kind[failed], numbers])
            found, place, counts = np.unique(keys, axis=1, return_inverse=True, return_counts=True)
            times = np.zeros(len(counts), np.int64)
            np.add.at(times, place.reshape(-1), lasted[failed])
            for key, count, time_ns in zip(found.T.tolist(), counts.tolist(), times.tolist(), strict=True):
                self.failures[key[0], key[1], key[2], key[3]] += count
                self.failure_ns[key[0], key[1], key[2], key[3]] += time_ns


class OffCpuTally:
    """Stretches of calls without a CPU, by state. Empty unless switches were recorded."""

    def __init__(self, trace: Trace) -> None:
        self.times = np.zeros(len(OFF_STATE), np.int64)
        self.total_ns = np.zeros(len(OFF_STATE), np.int64)
        for rows in trace.batches("off_cpu", ["state", "begin_time_ns", "end_time_ns"]):
            known = rows["end_time_ns"] != UNKNOWN_I64
            lasted = np.maximum((rows["end_time_ns"] - rows["begin_time_ns"]) * known, 0)
            np.add.at(self.times, rows["state"], 1)
            np.add.at(self.total_ns, rows["state"], lasted)


@dataclass(frozen=True, slots=True)
class Slow:
    """One slow operation: values of its row, and values derived from them."""

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


class SlowTally:
    """The slowest operations, without calls that wait by their nature and calls about processes.

    Args:
        waits: For each file group, True if calls on it wait for somebody to write or read.
        classes: The classes of calls that can be slow operations.
        limit: Number of operations that are kept.
    """

    def __init__(self, waits: NDArray[np.bool_], classes: Classes, limit: int = MAX_SLOW) -> None:
        self._limit = limit
        self._waits, self._may_wait = waits, classes.may_wait
        self._least = 0
        self._rows: list[tuple[int, int, dict[str, int]]] = []

    def add(self, rows: Columns) -> None:
        """Keep the slowest operations; among equals, those with the smaller ids."""
        which = np.flatnonzero(rows["duration_ns"] >= max(1, self._least))
        waits = self._waits[rows["group"][which]] & self._may_wait[rows["call"][which]]
        which = which[~(_PASSIVE_CLASSES[rows["class"][which]] | waits)]
        if not len(which):
            return
        if len(which) > self._limit:
            order = np.lexsort((rows["id"][which], -rows["duration_ns"][which]))
            which = which[order[: self._limit]]
        for row in which.tolist():
            values = {name: int(rows[name][row]) for name in _SLOW}
            self._rows.append((-values["duration_ns"], values["id"], values))
        self._rows = sorted(self._rows, key=lambda row: row[:2])[: self._limit]
        if len(self._rows) == self._limit:
            self._least = -self._rows[-1][0]

    def slowest(self) -> list[Slow]:
        """The operations, longest first."""
        return [_slow(values) for _, _, values in self._rows]


_SLOW: Final = (
    "id", "call", "task", "begin_time_ns", "duration_ns", "group", "offset_bytes", "bytes_request", "bytes_result",
    "error", "device_ns", "queue_ns",
)  # fmt: skip


def _slow(values: dict[str, Any]) -> Slow:
    size = values["bytes_request"] if values["bytes_result"] == UNKNOWN_I64 else values["bytes_result"]
    return Slow(
        id=values["id"],
        call=values["call"],
        task=values["task"],
        begin_ns=values["begin_time_ns"],
        duration_ns=values["duration_ns"],
        group=values["group"],
        offset_bytes=None if values["offset_bytes"] == UNKNOWN_I64 else values["offset_bytes"],
        bytes=None if size == UNKNOWN_I64 else size,
        error=abs(values["error"]),
        device_ns=values["device_ns"],
        queue_ns=values["queue_ns"],
    )
