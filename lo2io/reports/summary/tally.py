"""One pass over the tables: sums by call, by process and by file; requests by device.

In: a trace, streamed. Out: arrays indexed by call, process and file group. This module knows no names: the report
looks them up for the few rows that it shows. Memory: some bytes a handle and a file, nothing for an operation.
"""

from __future__ import annotations

from collections import deque
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from lo2io.model import UNKNOWN_I64
from lo2io.model.number_sets import distinct
from lo2io.native._lib import lib
from lo2io.native.columns import allocate_rows
from lo2io.reports.summary.classes import NR_CLASSES, classes_of
from lo2io.reports.summary.histogram import LatencyHistograms

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from concurrent.futures import Future

    from numpy.typing import NDArray

    from lo2io.model import CallClass, Columns
    from lo2io.reports.summary.histogram import Bin, Latency
    from lo2io.reports.summary.owners import Owners
    from lo2io.reports.summary.paths import Paths
    from lo2io.trace.reader import Trace

NR_ERRNOS: Final = int(lib.LO2_NR_ERRNOS)
"""MAX_ERRNO + 1 (include/linux/err.h)."""
NR_REQUEST_OPS: Final = 8
BATCHES_AHEAD: Final = 4
"""A thread may be so many batches ahead of another. With one batch, each would wait for the slowest at every batch.
With more batches than these, the kernel would have to clear more memory first."""
_COMPLETED, _IN_FLIGHT, MERGED, _INFERRED, _END_UNKNOWN = range(5)
OPERATION_COLUMNS: Final = (
    "id", "begin_time_ns", "end_time_ns", "task", "call", "handle", "handle2", "flags", "offset_bytes",
    "bytes_request", "bytes_result", "error",
)  # fmt: skip
_REQUEST_COLUMNS: Final = (
    "task", "device", "operation", "status", "insert_time_ns", "issue_time_ns", "complete_time_ns", "bytes_result",
    "error", "nr_requeues",
)  # fmt: skip


class Sums:
    """Sums by a key (call, process, file group): arrays of shape (keys,), int64."""

    def __init__(self, keys: int) -> None:
        rows = self.rows = allocate_rows("lo2_activity_sums", keys)
        self.calls, self.errors, self.reads, self.writes = (rows[n] for n in ("calls", "errors", "reads", "writes"))
        self.bytes_read, self.bytes_written, self.time_ns = (
            rows[n] for n in ("bytes_read", "bytes_written", "time_ns")
        )

    def merged(self, paths: Paths) -> Sums:
        """Turn sums by file group into sums by path."""
        sums = Sums(len(paths.of))
        for name in self.rows.dtype.names or ():
            sums.rows[name] = paths.merged(self.rows[name])
        return sums


def read_ahead(batches: Iterator[Columns]) -> Iterator[Columns]:
    """Yield the same batches. A thread unpacks the next ones without the GIL while the caller works on one."""
    with ThreadPoolExecutor(1, "lo2io-read") as pool:

        def unpack() -> Future[Columns | None]:
            return pool.submit(next, batches, None)

        coming = deque(unpack() for _ in range(BATCHES_AHEAD))
        while (batch := coming.popleft().result()) is not None:
            coming.append(unpack())
            yield batch


def shared(batches: Iterator[Columns], see: Callable[[Columns], None]) -> Iterator[Columns]:
    """Yield the same batches. A thread calls ``see`` with each of them, too. At the end, the thread is done with all.

    Raises:
        Exception: ``see`` has raised it.
    """
    shown: deque[Future[None]] = deque()
    with ThreadPoolExecutor(1, "lo2io-beside") as pool:
        for batch in batches:
            shown.append(pool.submit(see, batch))
            yield batch
            if len(shown) > BATCHES_AHEAD:
                shown.popleft().result()
        for other in shown:
            other.result()


def _latency_rows(calls: Sequence[Mapping[str, Any]]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Make a histogram for each pair of a call and a class that it can have: their calls, classes and numbers."""
    pairs = np.array([(number, kind) for number, call in enumerate(calls) for kind in classes_of(call)], np.intp)
    pairs = pairs.reshape(-1, 2)
    numbers = np.full((len(calls), NR_CLASSES), -1, np.intp)
    numbers[pairs[:, 0], pairs[:, 1]] = np.arange(len(pairs))
    return pairs, numbers


class OperationTally:
    """Operations by call, process and file group; errors by call. ``adding.py`` adds them up."""

    def __init__(self, calls: Sequence[Mapping[str, Any]], owners: Owners) -> None:
        self.by_call = Sums(len(calls))
        self.by_process = Sums(owners.nr_processes + 1)
        self.by_group = Sums(owners.nr_groups)
        """A copy's written bytes count for the written file; the call and its time, for the file that it read."""
        self.thread_ns = np.zeros(owners.nr_tasks + 1, np.int64)
        """Time in calls by task, at least 1 ns a call; the last entry is of unknown ones."""
        self.in_flight = np.zeros(len(calls), np.int64)
        self.errnos = np.zeros((len(calls), NR_ERRNOS), np.int64)
        self._rows, self.latency_row = _latency_rows(calls)
        """By call and class: the number of the histogram."""
        self.latency = LatencyHistograms(len(self._rows))

    def latency_of_call(self, call: int) -> Latency:
        """Durations of a call, in whatever class."""
        return self.latency.latency(np.flatnonzero(self._rows[:, 0] == call))

    def latency_counts(self, call: int) -> NDArray[np.int64]:
        """The number of a call's durations in each bin of a histogram."""
        return self.latency.counts(np.flatnonzero(self._rows[:, 0] == call))

    def latency_of_class(self, kind: CallClass) -> tuple[Latency, tuple[Bin, ...]]:
        """Durations of a class of calls, and their number for each power of two."""
        rows = np.flatnonzero(self._rows[:, 1] == kind)
        return self.latency.latency(rows), self.latency.log2(rows)


class RequestTally:
    """Block requests by device and operation: row ``index of device * 8 + operation``."""

    def __init__(self, trace: Trace, owners: Owners) -> None:
        self._owners = owners
        self.process_requests = np.zeros(owners.nr_processes + 1, np.int64)
        """Requests by process, numbered as in sums of operations; the last entry is for unrecorded processes."""
        self.process_bytes = np.zeros(owners.nr_processes + 1, np.int64)
        self.devices = np.zeros(0, np.uint32)
        for batch in trace.batches("requests", ["device"]):
            self.devices = distinct(np.append(self.devices, batch["device"]))
        self.first_ns = np.full(len(self.devices), np.iinfo(np.int64).max, np.int64)
        """For each device, when its first request was queued or issued."""
        self.last_ns = np.zeros(len(self.devices), np.int64)
        """For each device, when its last request was completed; 0: none was."""
        rows = len(self.devices) * NR_REQUEST_OPS
        self.requests = np.zeros(rows, np.int64)
        self.merged = np.zeros(rows, np.int64)
        self.in_flight = np.zeros(rows, np.int64)
        self.inferred = np.zeros(rows, np.int64)
        self.end_unknown = np.zeros(rows, np.int64)
        self.errors = np.zeros(rows, np.int64)
        self.requeues = np.zeros(rows, np.int64)
        self.bytes = np.zeros(rows, np.int64)
        self.queue = LatencyHistograms(rows)
        self.device = LatencyHistograms(rows)
        for batch in trace.batches("requests", _REQUEST_COLUMNS):
            self._add(batch)

    def _add(self, rows: Columns) -> None:
        key = np.searchsorted(self.devices, rows["device"]) * NR_REQUEST_OPS + rows["operation"]
        status = rows["status"]
        alive = status != MERGED
        for counts, which in (
            (self.requests, alive),
            (self.merged, ~alive),
            (self.in_flight, status == _IN_FLIGHT),
            (self.inferred, status == _INFERRED),
            (self.end_unknown, status == _END_UNKNOWN),
            (self.errors, rows["error"] != 0),
        ):
            np.add.at(counts, key[which], 1)
        np.add.at(self.requeues, key, rows["nr_requeues"].astype(np.int64))
        moved = rows["bytes_result"] * ((rows["bytes_result"] != UNKNOWN_I64) & alive)
        np.add.at(self.bytes, key, moved)
        process = self._owners.processes(rows["task"])
        np.add.at(self.process_requests, process[alive], 1)
        np.add.at(self.process_bytes, process, moved)
        insert, issue, complete = (rows[f"{name}_time_ns"] for name in ("insert", "issue", "complete"))
        queued = (insert != UNKNOWN_I64) & (issue != UNKNOWN_I64) & alive
        self.queue.add(key[queued], issue[queued] - insert[queued])
        served = (issue != UNKNOWN_I64) & (complete != UNKNOWN_I64) & (status == _COMPLETED)
        self.device.add(key[served], complete[served] - issue[served])
        device = key // NR_REQUEST_OPS
        for begin in (insert, issue):
            known = begin != UNKNOWN_I64
            np.minimum.at(self.first_ns, device[known], begin[known])
        np.maximum.at(self.last_ns, device[served], complete[served])
