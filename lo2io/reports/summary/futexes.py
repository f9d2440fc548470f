"""Waits on futexes, by futex: how long threads slept there, who woke them, and where the program made the call.

In: the tables of futexes, of operations, of stretches without a CPU, of threads and of stacks. Out: a
:class:`FutexSummary`. Memory: some 150 B for each wait.
"""

from __future__ import annotations

import errno
from collections import Counter
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from lo2io.frozen import dataclass
from lo2io.model import UNKNOWN_I64, UNKNOWN_U32
from lo2io.model.number_sets import distinct
from lo2io.reports.summary.stacks import functions_of, stacks_of_calls
from lo2io.reports.summary.waits import records_waits

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from lo2io.reports.summary.sums import TraceSums
    from lo2io.trace.reader import Trace

MAX_ROWS: Final = 100
"""Futexes listed by the time that threads slept there."""
_MOST_WAKERS: Final = 3
_COLUMNS: Final = ("operation", "task", "begin_time_ns", "wake_time_ns", "waker", "waker_tid")


@dataclass(frozen=True, slots=True)
class WakerRow:
    """A thread that woke others."""

    tid: int
    thread: str | None
    """Its name, if the thread was recorded."""
    times: int


@dataclass(frozen=True, slots=True)
class FutexRow:
    """The waits on one futex."""

    pid: int | None
    process: str | None
    address: int
    """In the memory of the process. Several processes may know a shared futex by several addresses."""
    waits: int
    time_ns: int
    """From the time at which a thread lost its CPU until it was woken."""
    longest_ns: int
    threads: int
    """Threads that slept there."""
    wakers: tuple[WakerRow, ...]
    """Those that woke most often; at most three. A timeout has none."""
    timeouts: int
    """Calls that ended because their time was over."""
    functions: tuple[str, ...]
    """Where most of the slow waits came from, the outermost function first; empty: not known."""


@dataclass(frozen=True, slots=True)
class FutexSummary:
    """Waits on futexes. A call on a futex during which the thread kept its CPU is not recorded."""

    waits: int
    time_ns: int
    futexes: tuple[FutexRow, ...]
    """Most time first."""


class _Waits(NamedTuple):
    """The waits that ended with a wakeup; all arrays have the same length."""

    operation: NDArray[np.uint64]
    timed_out: NDArray[np.bool_]
    process: NDArray[np.intp]
    task: NDArray[np.uint32]
    address: NDArray[np.uint64]
    lasted: NDArray[np.int64]
    waker: NDArray[np.uint32]
    waker_tid: NDArray[np.uint32]


def summarize_futexes(sums: TraceSums) -> FutexSummary | None:
    """Sum up the waits; None: calls on futexes were not recorded, or nobody slept there.

    Raises:
        TraceError: A table is missing or damaged.
    """
    trace = sums.trace
    if not (records_waits(trace) and trace.rows("futexes") and trace.rows("off_cpu")):
        return None
    waits = _read(sums)
    if not len(waits.lasted):
        return None
    keys = np.stack([waits.process.astype(np.uint64), waits.address], axis=1)
    found, futex = np.unique(keys, axis=0, return_inverse=True)
    futex = futex.reshape(-1)
    time_ns = np.zeros(len(found), np.int64)
    np.add.at(time_ns, futex, waits.lasted)
    shown = np.argsort(-time_ns, kind="stable")[:MAX_ROWS].tolist()
    owners = {int(found[place, 0]) for place in shown}
    names = sums.people.names({place for place in owners if place < sums.owners.nr_processes})
    of_calls = stacks_of_calls(trace)
    chosen = {place: np.flatnonzero(futex == place) for place in shown}
    found_stacks = {place: _stack(waits.operation[at], waits.lasted[at], of_calls) for place, at in chosen.items()}
    stacks = {place: stack for place, stack in found_stacks.items() if stack is not None}
    functions = functions_of(trace, set(stacks.values()))
    threads = _thread_names(trace, waits, chosen)
    rows = [
        FutexRow(
            pid=sums.people.pid(int(found[place, 0])),
            process=names.get(int(found[place, 0])),
            address=int(found[place, 1]),
            waits=len(at),
            time_ns=int(time_ns[place]),
            longest_ns=int(waits.lasted[at].max()),
            threads=len(distinct(waits.task[at])),
            wakers=_wakers(waits, at, threads),
            timeouts=len(distinct(waits.operation[at[waits.timed_out[at]]])),
            functions=functions.get(stacks[place], ()) if place in stacks else (),
        )
        for place, at in chosen.items()
    ]
    return FutexSummary(len(waits.lasted), int(waits.lasted.sum()), tuple(rows))


def _read(sums: TraceSums) -> _Waits:
    parts = [tuple(rows.values()) for rows in sums.trace.batches("futexes", ("operation", "address"))]
    operation, address = (np.concatenate(column) for column in zip(*parts, strict=True))
    order = np.argsort(operation)
    operation, address = operation[order], address[order]
    timed_out = _timed_out(sums.trace, operation)
    found = []
    for rows in sums.trace.batches("off_cpu", _COLUMNS):
        place = np.searchsorted(operation, rows["operation"]).clip(max=len(operation) - 1)
        woken = (operation[place] == rows["operation"]) & (rows["wake_time_ns"] != UNKNOWN_I64)
        at = np.flatnonzero(woken & (rows["wake_time_ns"] > rows["begin_time_ns"]))  # a preempted thread does not wait
        begin, wake, task = (rows[name][at] for name in ("begin_time_ns", "wake_time_ns", "task"))
        of_call = rows["operation"][at], timed_out[place[at]]
        of_wait = sums.owners.processes(task), task, address[place[at]], wake - begin
        found.append((*of_call, *of_wait, rows["waker"][at], rows["waker_tid"][at]))
    return _Waits(*(np.concatenate(column) for column in zip(*found, strict=True)))


def _timed_out(trace: Trace, operations: NDArray[np.uint64]) -> NDArray[np.bool_]:
    """True for those of these operations, which are in the order of their ids, that ended with ETIMEDOUT."""
    found = np.zeros(len(operations), np.bool_)
    for rows in trace.batches("operations", ("id", "error")):
        late = rows["id"][rows["error"] == errno.ETIMEDOUT]
        found |= np.isin(operations, late)
    return found


def _stack(operations: NDArray[np.uint64], lasted: NDArray[np.int64], of_calls: dict[int, int]) -> int | None:
    """The stack with most time among these waits; None: none of their calls has one."""
    time_ns: Counter[int] = Counter()
    for operation, time in zip(operations.tolist(), lasted.tolist(), strict=True):
        if operation in of_calls:
            time_ns[of_calls[operation]] += time
    return max(time_ns, key=lambda stack: (time_ns[stack], -stack)) if time_ns else None


def _wakers(waits: _Waits, at: NDArray[np.intp], names: dict[int, str | None]) -> tuple[WakerRow, ...]:
    known = at[(waits.waker_tid[at] != UNKNOWN_U32) & ~waits.timed_out[at]]
    tids, tasks = waits.waker_tid[known].tolist(), waits.waker[known].tolist()
    of_tid = {tid: names[task] for tid, task in zip(tids, tasks, strict=True) if task in names}
    return tuple(WakerRow(tid, of_tid.get(tid), times) for tid, times in Counter(tids).most_common(_MOST_WAKERS))


def _thread_names(trace: Trace, waits: _Waits, chosen: dict[int, NDArray[np.intp]]) -> dict[int, str | None]:
    tasks = {int(task) for at in chosen.values() for task in distinct(waits.waker[at]) if task != UNKNOWN_U32}
    return trace.texts("threads", "task", "comm", sorted(tasks))
