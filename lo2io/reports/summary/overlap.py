"""How much of the time with I/O under way each process computed: ``docs/explanation/rules/overlap.md`` has the rules.

In: the tables of operations, requests of rings and threads. Out: sums by process. Tables are in the order of ends, and
moments are needed in the order of time. So the newest moments of each process wait in the native part. Rows that begin
before these are looked up first, by the bounds that each batch tells. Memory: some bytes a thread, and a dozen batches
of each table.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from lo2io.errors import TraceError
from lo2io.frozen import dataclass
from lo2io.model import UNKNOWN_I64, CallClass
from lo2io.model.number_sets import distinct
from lo2io.native._lib import ffi, lib
from lo2io.native.columns import allocate_rows, pointer_to
from lo2io.reports.summary.adding import native_rows
from lo2io.reports.summary.classes import NR_CLASSES, STORAGE
from lo2io.reports.summary.file_types import FileType
from lo2io.reports.summary.tally import OPERATION_COLUMNS, read_ahead

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from lo2io.model import Columns
    from lo2io.reports.summary.adding import RowContext
    from lo2io.reports.summary.owners import Owners
    from lo2io.trace.reader import Trace

_IO: Final = tuple(kind for kind in STORAGE if kind != CallClass.LOCK)
"""Classes of calls that are I/O: a lock waits for other programs, not for storage."""
_IO_OPCODES: Final = frozenset({"open", "close", "read", "write", "copy", "sync"})
_REQUESTS: Final = ("task", "opcode", "handle", "status", "submit_time_ns", "complete_time_ns", "end_before_time_ns")
_IN_FLIGHT: Final = 1
_THREADS: Final = ("task", "kind", "start_time_ns", "exit_time_ns", "cpu_ns")
_LATEST: Final = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class Overlap:
    """Time in which a process had I/O with storage under way; of several processes, the sum of their times."""

    io_ns: int
    """The sum of the other three."""
    overlapped_ns: int
    """One of its threads computed meanwhile: it was on a CPU outside of recorded calls."""
    unoverlapped_ns: int
    """None did."""
    unknown_ns: int
    """The trace does not tell which of the two."""


class OverlapTally:
    """By process, by the owners' numbers. The last one stands for unknown processes."""

    def __init__(self, rows: NDArray[Any], reason: str) -> None:
        self._rows = rows
        self.reason = reason
        """Why nothing is known; empty: the rows are."""

    def of(self, key: Any) -> Overlap | None:
        """The sum of some processes; None: it is unknown."""
        if self.reason:
            return None
        return Overlap(**{name: int(self._rows[name][key].sum()) for name in Overlap.__slots__})


def why_unknown(trace: Trace) -> str:
    """Why the trace does not tell when a process had I/O, or a thread that computed; empty: the trace does tell."""
    meta = trace.metadata
    if "foreign" in meta:
        return "another tool's archive does not tell what threads did outside of calls"
    if meta.get("selection") or meta.get("filter"):
        return "a part of the calls was chosen"
    if meta.get("sample_rate", 1) > 1:
        return "a part of the rings' requests was written"
    proof = trace.completeness
    lost = sum(event.lost for event in proof.events)
    missing = any((event.lost or event.vanished) and not event.event.startswith("block:") for event in proof.events)
    unseen = proof.compat or proof.foreign or proof.absent_cpus or proof.untold_iocbs
    unknown = meta.get("missed_runs") or meta.get("tasks_lost")
    if missing or unseen or unknown or meta["totals"].get("nr_lost", 0) > lost:
        return "records of calls or threads are missing"
    return ""


class OverlapAdder:
    """Adds up the tables of a trace.

    Args:
        trace: With tables of threads and of requests of rings.
        owners: The process of each thread, and the file of each handle.
        context: How rows of operations are looked up.
    """

    def __init__(self, trace: Trace, owners: Owners, context: RowContext) -> None:
        self._reason = why_unknown(trace)
        self._sums = allocate_rows("lo2_overlap_sums", owners.nr_processes + 1)
        if self._reason:
            return
        self._trace, self._owners = trace, owners
        start, stop = trace.metadata["start_ns"], max(trace.metadata["stop_ns"], trace.metadata["start_ns"])
        threads = _threads(trace, context.native.nr_tasks, start, stop)
        is_io = np.isin(np.arange(NR_CLASSES), _IO)
        is_alone = self._alone(threads)
        self._told: Iterator[tuple[int, int]] = iter(())
        first = np.zeros(owners.nr_processes + 1, np.int64)
        none = allocate_rows("lo2_overlap_moment", 1)
        config = ffi.new("lo2_overlap_config *")
        config.context, config.is_io = context.native, pointer_to(is_io, "bool")
        config.threads = pointer_to(threads, "lo2_overlap_thread")
        config.by_process = pointer_to(self._sums, "lo2_overlap_sums")
        config.is_alone = pointer_to(is_alone, "bool")
        config.nr_tasks, config.nr_processes = context.native.nr_tasks, owners.nr_processes
        config.start_ns, config.stop_ns = start, stop
        config.known, config.first_known = pointer_to(none, "lo2_overlap_moment"), pointer_to(first, "int64_t")
        self._start, self._stop = start, stop
        known = self._known(threads, _made(config))
        process = owners.processes(known["task"].astype(np.uint32))
        order = np.lexsort((known["time_ns"], process))
        known = np.append(known[order], none)
        first[:] = np.searchsorted(process[order], np.arange(owners.nr_processes + 1))
        config.known = pointer_to(known, "lo2_overlap_moment")
        self._kept = context, is_io, is_alone, threads, first, known, config
        self._native = _made(config)
        self._calls, self._rings = _Reach(), _Reach()
        self._coming = self._requests()

    def _alone(self, threads: NDArray[Any]) -> NDArray[np.bool_]:
        """For each process, True if it has one thread and no requests of rings: nothing overlaps with its calls."""
        nr = self._owners.nr_processes
        task = np.flatnonzero(threads["begin_ns"] <= threads["end_ns"]).astype(np.uint32)
        alone: NDArray[np.bool_] = np.bincount(self._owners.processes(task), minlength=nr + 1)[: nr + 1] == 1
        if "ring_requests" in self._trace.metadata["tables"]:
            for rows in self._trace.batches("ring_requests", ["task"]):
                alone[self._owners.processes(rows["task"])] = False
        alone[nr] = True
        self._every_one_is_alone = bool(alone.all())
        return alone

    def _known(self, threads: NDArray[Any], native: Any) -> NDArray[Any]:
        """Moments needed before their rows are read: births and ends of threads, long calls and long requests."""
        task = np.flatnonzero(threads["begin_ns"] <= threads["end_ns"])
        parts = []
        for what, name in ((lib.LO2_BIRTH, "begin_ns"), (lib.LO2_EXIT, "end_ns")):
            parts.append(_moments(threads[name][task], task, what))
        if not self._every_one_is_alone:
            parts += self._early_calls(native)
        parts += self._early_requests()
        return np.concatenate(parts)

    def _early_calls(self, native: Any) -> Iterator[NDArray[Any]]:
        bounds: dict[int, int] = {}
        reach = _Reach()
        told = self._batch_bounds()
        self._told = iter(told)
        for number, (earliest, latest) in enumerate(told):
            if earliest < reach.before:
                bounds[number] = reach.before
            reach.add(latest)
        found = self._trace.batches_at("operations", OPERATION_COLUMNS, bounds)
        for rows, before in zip(found, bounds.values(), strict=True):
            moments = allocate_rows("lo2_overlap_moment", 2 * len(rows["id"]))
            mine, kept = native_rows(rows)
            nr = lib.lo2_overlap_early(native, mine, before, pointer_to(moments, "lo2_overlap_moment"))
            yield moments[:nr].copy()
            del kept

    def _batch_bounds(self) -> list[tuple[int, int]]:
        """Earliest start and latest end of each batch of operations."""
        told = self._trace.operation_bounds()
        if told is not None:
            return told
        parts = read_ahead(self._trace.batches("operations", ["begin_time_ns", "end_time_ns"]))
        return [_bounds_of(rows) for rows in parts]

    def _early_requests(self) -> Iterator[NDArray[Any]]:
        reach = _Reach()
        for task, begin, end in self._requests():
            process = self._owners.processes(task)
            which = (begin < reach.before) & (process < self._owners.nr_processes)
            yield from _united(process[which], task[which], begin[which], np.maximum(begin, end)[which])
            reach.add(_latest(end))

    def _requests(self) -> Iterator[tuple[NDArray[np.uint32], NDArray[np.int64], NDArray[np.int64]]]:
        """Submitter, start and end of the requests of rings that are I/O with storage, batch by batch."""
        if "ring_requests" not in self._trace.metadata["tables"]:
            return
        numbers = [row["number"] for row in self._trace.metadata["opcodes"] if row["kind"] in _IO_OPCODES]
        for rows in self._trace.batches("ring_requests", _REQUESTS):
            stored = self._owners.types[self._owners.groups(rows["handle"])] <= FileType.STORAGE
            end = np.where(
                rows["complete_time_ns"] != UNKNOWN_I64, rows["complete_time_ns"], rows["end_before_time_ns"]
            )
            end[(end == UNKNOWN_I64) & (rows["status"] == _IN_FLIGHT)] = self._stop
            which = np.isin(rows["opcode"], numbers) & stored & (end != UNKNOWN_I64)
            begin = np.where(rows["submit_time_ns"] == UNKNOWN_I64, self._start, rows["submit_time_ns"])
            begin, end = (times.clip(self._start, self._stop)[which] for times in (begin, end))
            yield np.ascontiguousarray(rows["task"][which]), begin, end

    def add(self, rows: Columns, away: NDArray[np.int64] | None) -> None:
        """Add calls in the order of the table.

        Args:
            rows: Columns of :data:`~lo2io.reports.summary.tally.OPERATION_COLUMNS`.
            away: The time that each was without a CPU, in ns; None: unknown of all.

        Raises:
            TraceError: The table of requests is damaged.
        """
        if self._reason:
            return
        native, kept = native_rows(rows)
        lost = ffi.NULL if away is None else pointer_to(away, "int64_t")
        if not lib.lo2_overlap_add_calls(self._native, native, lost, self._calls.before):
            raise MemoryError
        del kept
        self._calls.add(self._checked_end(rows))
        self._read_requests(self._calls.before)
        lib.lo2_overlap_advance(self._native, min(self._calls.before, self._rings.before))

    def _checked_end(self, rows: Columns) -> int:
        """The latest end in the next batch. Refuses bounds other than those that found the early calls."""
        bounds = _bounds_of(rows)
        told = next(self._told, bounds)
        if told != bounds:
            raise TraceError(
                f"cannot read the operations of {self._trace.path}",
                f"a batch is said to reach from {told[0]} to {told[1]} ns, its rows from {bounds[0]} to {bounds[1]}",
                "convert the spool again",
            )
        return bounds[1]

    def _read_requests(self, until: int) -> None:
        """Read on, until no further request begins before that moment."""
        while self._rings.before < until:
            if (rows := next(self._coming, None)) is None:
                self._rings.before = _LATEST
                return
            task, begin, end = rows
            times = (pointer_to(values, "int64_t") for values in (begin, end))
            tasks = pointer_to(task, "uint32_t")
            if not lib.lo2_overlap_add_requests(self._native, len(task), tasks, *times, self._rings.before):
                raise MemoryError
            self._rings.add(_latest(end))
            lib.lo2_overlap_advance(self._native, min(self._calls.before, self._rings.before))

    def finish(self) -> OverlapTally:
        """Hand out the sums."""
        if not self._reason:
            self._calls.before = _LATEST
            self._read_requests(_LATEST)
            lib.lo2_overlap_finish(self._native)
        return OverlapTally(self._sums, self._reason)


class _Reach:
    """The moment before which no row of the next batch begins, except rows that were looked up beforehand.

    This is the latest end in all batches but the last one.
    """

    def __init__(self) -> None:
        self.before = self._last = UNKNOWN_I64

    def add(self, latest_end: int) -> None:
        """Go on by one batch."""
        self.before = self._last
        self._last = max(self._last, latest_end)


def _latest(ends: NDArray[np.int64]) -> int:
    return int(ends.max(initial=UNKNOWN_I64))


def _bounds_of(rows: Columns) -> tuple[int, int]:
    return int(rows["begin_time_ns"].min(initial=_LATEST)), _latest(rows["end_time_ns"])


def _made(config: Any) -> Any:
    native = lib.lo2_overlap_new(config)
    if native == ffi.NULL:
        raise MemoryError
    return ffi.gc(native, lib.lo2_overlap_free)


def _threads(trace: Trace, nr: int, start: int, stop: int) -> NDArray[Any]:
    """The life of each thread of programs, within the trace, and its time on a CPU."""
    threads = allocate_rows("lo2_overlap_thread", nr)
    threads["begin_ns"], threads["cpu_ns"] = 1, UNKNOWN_I64
    for rows in trace.batches("threads", _THREADS):
        task = rows["task"]
        born, ended = rows["start_time_ns"] != UNKNOWN_I64, rows["exit_time_ns"] != UNKNOWN_I64
        begin = np.where(born, rows["start_time_ns"], start).clip(start, stop)
        end = np.where(ended, rows["exit_time_ns"], stop).clip(begin, stop)
        of_program = rows["kind"] == 0
        threads["begin_ns"][task] = np.where(of_program, begin, 1)
        threads["end_ns"][task] = np.where(of_program, end, 0)
        threads["cpu_ns"][task] = np.where(rows["exit_time_ns"] <= stop, rows["cpu_ns"], UNKNOWN_I64)
        threads["born"][task] = born & (rows["start_time_ns"] >= start)
    return threads


def _united(
    process: NDArray[np.intp], task: NDArray[np.uint32], begin: NDArray[np.int64], end: NDArray[np.int64]
) -> Iterator[NDArray[Any]]:
    """The moments of stretches of I/O. Stretches of one process that overlap become one, even of different tasks."""
    for number in distinct(process).tolist():
        which = np.flatnonzero(process == number)
        which = which[np.argsort(begin[which], kind="stable")]
        reached = np.maximum.accumulate(end[which])
        opens = np.append(True, begin[which][1:] > reached[:-1])
        of = task[which[opens]]
        yield _moments(begin[which][opens], of, lib.LO2_IO_BEGIN)
        yield _moments(reached[np.append(opens[1:], True)], of, lib.LO2_IO_END)


def _moments(times: NDArray[np.int64], task: NDArray[Any], what: int) -> NDArray[Any]:
    found = allocate_rows("lo2_overlap_moment", len(times))
    found["time_ns"], found["task"], found["what"] = times, task, what
    return found
