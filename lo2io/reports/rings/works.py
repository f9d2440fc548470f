"""Where the time of workers' executions of requests went: on a CPU, ready to run, or waiting, and for what.

In: requests with their parts, and stretches without a CPU, both of the layer ``workers``. Out: sums by ring. The sums
cover requests that a worker executed once, and whose start the kernel told. Memory: 24 B for each of these requests
that waited.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from lo2io.frozen import dataclass
from lo2io.model import UNKNOWN_I64
from lo2io.native._lib import lib
from lo2io.reports.summary.waits import ReasonRow

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from lo2io.model import Columns
    from lo2io.trace.reader import Trace

COLUMNS: Final = (
    *("id", "inferred", "work_begin_time_ns", "work_end_time_ns", "nr_polls", "nr_punts"),
    *("run_queue_ns", "blocked_ns"),
)
"""Columns of ``ring_requests`` that :meth:`WorkTimes.add` reads."""
_INFERRED: Final = lib.LO2_INFERRED_WORKER | lib.LO2_INFERRED_WORK_BEGIN


@dataclass(frozen=True, slots=True)
class WorkTimeRow:
    """The time in which workers executed requests of a ring: ``cpu_ns`` and the two after it add up to ``time_ns``."""

    requests: int
    """The number of requests whose parts are known."""
    inferred: int
    """How many of these have an inferred end of the execution: the latest possible one."""
    time_ns: int
    cpu_ns: int
    """The rest; with inferred ends, the most that it can be."""
    run_queue_ns: int
    """The workers were ready to run, and others had the CPUs."""
    blocked_ns: int
    """The workers waited."""
    reasons: tuple[ReasonRow, ...]
    """Of ``blocked_ns``, most time first."""


class WorkTimes:
    """Sums by slot of a ring and by reason, in ns. Without the layer, all are 0."""

    def __init__(self, trace: Trace, nr_slots: int) -> None:
        self._trace = trace
        self._names: tuple[str, ...] = tuple(trace.metadata.get("wait_reasons", ()))
        self._requests, self._inferred, self._time, self._run_queue, self._blocked = np.zeros((5, nr_slots), np.int64)
        self._times, self._total = np.zeros((2, nr_slots, len(self._names)), np.int64)
        self._waited: list[tuple[NDArray[Any], ...]] = []

    def add(self, rows: Columns, slot: NDArray[np.intp]) -> None:
        """Add requests, each with the slot of its ring."""
        begin, end = rows["work_begin_time_ns"], rows["work_end_time_ns"]
        fits = (rows["blocked_ns"] != UNKNOWN_I64) & (begin != UNKNOWN_I64) & (end != UNKNOWN_I64)
        fits &= (rows["inferred"] & _INFERRED == 0) & (rows["nr_punts"] <= 1) & (rows["nr_polls"] == 0)
        for sums, amount in (
            (self._requests, np.ones(len(begin), np.int64)),
            (self._inferred, (rows["inferred"] & lib.LO2_INFERRED_WORK_END != 0).astype(np.int64)),
            (self._time, end - begin),
            (self._run_queue, rows["run_queue_ns"]),
            (self._blocked, rows["blocked_ns"]),
        ):
            np.add.at(sums, slot[fits], amount[fits])
        waited = fits & (rows["blocked_ns"] > 0)
        if waited.any():
            self._waited.append((rows["id"][waited], slot[waited], begin[waited]))

    def add_waits(self) -> None:
        """Add the stretches of the requests, by their reasons. Call this after the last request.

        A stretch before the execution is left out: the worker was still on its way to the request.

        Raises:
            TraceError: The table of stretches is damaged.
        """
        if not self._waited:
            return
        ids, slots, begins = (np.concatenate(column) for column in zip(*self._waited, strict=True))
        order = np.argsort(ids)
        ids, slots, begins = ids[order], slots[order], begins[order]
        for rows in self._trace.batches("off_cpu", ("request", "reason", "begin_time_ns", "wake_time_ns")):
            place = np.minimum(np.searchsorted(ids, rows["request"]), len(ids) - 1)
            mine = (ids[place] == rows["request"]) & (rows["begin_time_ns"] >= begins[place])
            mine &= rows["wake_time_ns"] > rows["begin_time_ns"]
            where = slots[place[mine]], rows["reason"][mine].astype(np.intp)
            np.add.at(self._times, where, 1)
            np.add.at(self._total, where, (rows["wake_time_ns"] - rows["begin_time_ns"])[mine])

    def row(self, slot: int) -> WorkTimeRow | None:
        """The sums of one slot; None: no request is known."""
        if not self._requests[slot]:
            return None
        numbers = zip(self._names, self._times[slot].tolist(), self._total[slot].tolist(), strict=True)
        reasons = [ReasonRow(*each) for each in numbers if each[1]]
        time, run_queue, blocked = (int(sums[slot]) for sums in (self._time, self._run_queue, self._blocked))
        return WorkTimeRow(
            int(self._requests[slot]),
            int(self._inferred[slot]),
            time,
            time - run_queue - blocked,
            run_queue,
            blocked,
            tuple(sorted(reasons, key=lambda row: -row.time_ns)),
        )
