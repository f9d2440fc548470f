"""One pass over the tables: sums by call, by process and by file; requests by device.

In: a trace, streamed. Out: arrays indexed by call, process and file group. This module knows no names: the report
looks them up for the few rows that it shows. Memory: some bytes a handle and a file, nothing for an operation.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from lo2io.model import UNKNOWN_I64, CallClass
from lo2io.reports.summary.classes import NR_CLASSES, classes_of
from lo2io.reports.summary.histogram import LatencyHistograms

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from lo2io.model import Columns
    from lo2io.reports.summary.classes import Classes
    from lo2io.reports.summary.histogram import Bin, Latency
    from lo2io.reports.summary.owners import Owners
    from lo2io.reports.summary.paths import Paths
    from lo2io.reports.summary.spans import CallSpans
    from lo2io.trace.reader import Trace

NR_ERRNOS: Final = 4096
"""MAX_ERRNO + 1 (include/linux/err.h)."""
NR_REQUEST_OPS: Final = 8
SLICE_ROWS: Final = 4096
"""Rows summed at a time, so that intermediate arrays stay in the cache (a third less time than with 64 Ki)."""
_COMPLETED, _IN_FLIGHT, MERGED, _INFERRED, _END_UNKNOWN = range(5)
_MOVES_IN: Final = frozenset({"read", "copy"})
_MOVES_OUT: Final = frozenset({"write", "copy"})
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
        self.calls = np.zeros(keys, np.int64)
        self.errors = np.zeros(keys, np.int64)
        self.reads = np.zeros(keys, np.int64)
        self.writes = np.zeros(keys, np.int64)
        self.bytes_read = np.zeros(keys, np.int64)
        self.bytes_written = np.zeros(keys, np.int64)
        self.time_ns = np.zeros(keys, np.int64)

    def add(self, keys: NDArray[Any], facts: dict[str, NDArray[np.int64]]) -> None:
        """Add operations. ``facts`` has the amounts for each sum."""
        np.add.at(self.calls, keys, 1)
        for name, values in facts.items():
            np.add.at(getattr(self, name), keys, values)

    def merged(self, paths: Paths) -> Sums:
        """Turn sums by file group into sums by path."""
        sums = Sums(0)
        for name, values in vars(self).items():
            setattr(sums, name, paths.merged(values))
        return sums


def read_ahead(batches: Iterator[Columns]) -> Iterator[Columns]:
    """Yield the same batches. A thread unpacks the next one without the GIL while the caller sums up one."""
    with ThreadPoolExecutor(1, "lo2io-read") as pool:
        coming = pool.submit(next, batches, None)
        while (batch := coming.result()) is not None:
            coming = pool.submit(next, batches, None)
            yield batch


def derive(rows: Columns, owners: Owners, classes: Classes, spans: CallSpans) -> Columns:
    """Work out once what several sums need of the same rows.

    Args:
        rows: Some rows of operations, with the columns of :data:`OPERATION_COLUMNS`.
        owners: The process and the file group of each operation.
        classes: The classes of calls.
        spans: When each thread had requests under way.

    Returns:
        The rows, and ``class``, ``ended``, ``duration_ns`` (0: in flight, or negative), ``moved`` (bytes, 0: none),
        ``synced`` (a write that is also a sync: O_SYNC, O_DSYNC, RWF_SYNC, RWF_DSYNC), ``process`` and ``group`` as the
        owners number them, ``device_ns`` and ``queue_ns`` (:class:`CallSpans`).
    """
    call = rows["call"].astype(np.intp)
    group, written = (owners.groups(rows[name]) for name in ("handle", "handle2"))
    ended = rows["end_time_ns"] != UNKNOWN_I64
    duration = np.maximum((rows["end_time_ns"] - rows["begin_time_ns"]) * ended, 0)
    kind = classes.of_rows(call, rows["flags"], owners.types[group], owners.types[written])
    synced = owners.synced(rows["handle"]) | classes.writes_synced(call, rows["flags"])
    device, queue = spans.within(rows["task"], rows["begin_time_ns"], duration)
    return {
        **rows,
        "call": call,
        "class": kind,
        "synced": synced & (kind == CallClass.WRITE),
        "ended": ended,
        "duration_ns": duration,
        "moved": rows["bytes_result"] * (rows["bytes_result"] != UNKNOWN_I64),
        "process": owners.processes(rows["task"]),
        "group": group,
        "device_ns": device,
        "queue_ns": queue,
    }


def _latency_rows(calls: Sequence[Mapping[str, Any]]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Make a histogram for each pair of a call and a class that it can have: their calls, classes and numbers."""
    pairs = np.array([(number, kind) for number, call in enumerate(calls) for kind in classes_of(call)], np.intp)
    pairs = pairs.reshape(-1, 2)
    numbers = np.full((len(calls), NR_CLASSES), -1, np.intp)
    numbers[pairs[:, 0], pairs[:, 1]] = np.arange(len(pairs))
    return pairs, numbers


class OperationTally:
    """Operations by call, process and file group; errors by call."""

    def __init__(self, calls: Sequence[Mapping[str, Any]], owners: Owners) -> None:
        kinds = [call["kind"] for call in calls]
        self._is_read = np.array([kind in _MOVES_IN for kind in kinds], np.int64)
        self._is_write = np.array([kind in _MOVES_OUT for kind in kinds], np.int64)
        self._copies = np.array([kind == "copy" for kind in kinds], np.bool_)
        self._owners = owners
        self.by_call = Sums(len(kinds))
        self.by_process = Sums(owners.nr_processes + 1)
        self.by_group = Sums(owners.nr_groups)
        self.in_flight = np.zeros(len(kinds), np.int64)
        self.errnos = np.zeros((len(kinds), NR_ERRNOS), np.int64)
        self._rows, self._latency_row = _latency_rows(calls)
        self._latency = LatencyHistograms(len(self._rows))

    def add(self, rows: Columns) -> None:
        """Add operations, as :func:`derive` gives them."""
        call, ended = rows["call"], rows["ended"]
        is_read, is_write = self._is_read[call], self._is_write[call]
        facts = {
            "errors": (rows["error"] != 0).astype(np.int64),
            "reads": is_read,
            "writes": is_write,
            "bytes_read": rows["moved"] * is_read,
            "bytes_written": rows["moved"] * is_write,
            "time_ns": rows["duration_ns"],
        }
        self.by_call.add(call, facts)
        self.by_process.add(rows["process"], facts)
        if self._copies.any():
            self._add_copies(rows, call, facts)
        self.by_group.add(rows["group"], facts)
        row = self._latency_row[call, rows["class"]]
        if ended.all():
            self._latency.add(row, rows["duration_ns"])
        else:
            self._latency.add(row[ended], rows["duration_ns"][ended])
            np.add.at(self.in_flight, call[~ended], 1)
        failed = np.flatnonzero(rows["error"])
        np.add.at(self.errnos, (call[failed], np.abs(rows["error"][failed].astype(np.intp)).clip(0, NR_ERRNOS - 1)), 1)

    def latency_of_call(self, call: int) -> Latency:
        """Durations of a call, in whatever class."""
        return self._latency.latency(np.flatnonzero(self._rows[:, 0] == call))

    def latency_of_class(self, kind: CallClass) -> tuple[Latency, tuple[Bin, ...]]:
        """Durations of a class of calls, and their number for each power of two."""
        rows = np.flatnonzero(self._rows[:, 1] == kind)
        return self._latency.latency(rows), self._latency.log2(rows)

    def _add_copies(self, rows: Columns, call: NDArray[np.intp], facts: dict[str, NDArray[np.int64]]) -> None:
        """Add what a copy wrote to the written file. The call and its time stay with the file that it read."""
        copies = np.flatnonzero(self._copies[call])
        written = self._owners.groups(rows["handle2"][copies])
        np.add.at(self.by_group.writes, written, 1)
        np.add.at(self.by_group.bytes_written, written, facts["bytes_written"][copies])
        for name in ("writes", "bytes_written"):
            facts[name] = facts[name].copy()
            facts[name][copies] = 0


class RequestTally:
    """Block requests by device and operation: row ``index of device * 8 + operation``."""

    def __init__(self, trace: Trace, owners: Owners) -> None:
        self._owners = owners
        self.process_requests = np.zeros(owners.nr_processes + 1, np.int64)
        """Requests by process, numbered as in sums of operations; the last entry is for unrecorded processes."""
        self.process_bytes = np.zeros(owners.nr_processes + 1, np.int64)
        self.devices = np.zeros(0, np.uint32)
        for batch in trace.batches("requests", ["device"]):
            self.devices = np.union1d(self.devices, batch["device"])
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
