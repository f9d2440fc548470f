"""The usage of processes: their times, and the part of their time that recorded calls explain.

In: the table of threads, with the usage of each at its exit, and the command's own figures. Out: rows of plain
values. A figure that is unknown for one thread is unknown for its process.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from lo2io.frozen import dataclass
from lo2io.model import UNKNOWN_I64

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from numpy.typing import NDArray

    from lo2io.reports.summary.owners import Owners
    from lo2io.trace.reader import Trace

_FIGURES: Final = (
    "cpu_ns", "user_ns", "system_ns", "block_delay_ns", "major_faults", "minor_faults",
    "voluntary_switches", "involuntary_switches",
)  # fmt: skip
_OF_COMMAND: Final = (
    "user_ns",
    "system_ns",
    "major_faults",
    "minor_faults",
    "voluntary_switches",
    "involuntary_switches",
)
_MAY_TAKE_TIME: Final = ("metadata", "poll", "lock", "futex", "socket", "process", "mmap")
"""Groups of calls that are off by default, or can be left out, and in which a program may spend its time."""
_HALF: Final = 0.5


@dataclass(frozen=True, slots=True)
class UsageRow:
    """The usage of one process, or of all processes, during the recording; None: unknown.

    lo2io's programs in the kernel read a thread's figures when it exits. So the figures of processes that lived before
    or after the recording are unknown.
    """

    wall_ns: int
    """From the first thread's birth to the last thread's end."""
    threads_ns: int
    """Lifetimes of all threads, summed up."""
    calls_ns: int
    """Time in recorded calls."""
    calls_share: float | None
    """``calls_ns`` as a part of ``threads_ns``, 0 … 1; None: the threads lived no time."""
    cpu_ns: int | None
    user_ns: int | None
    system_ns: int | None
    block_delay_ns: int | None
    """Time waiting for block requests; also None if the system does not count it (``task_delayacct``)."""
    major_faults: int | None
    minor_faults: int | None
    voluntary_switches: int | None
    involuntary_switches: int | None


class UsageTally:
    """By process, by the owners' numbers: when its threads lived, and what they used."""

    def __init__(self, trace: Trace, owners: Owners) -> None:
        meta = trace.metadata
        self._start_ns, self._stop_ns = meta["start_ns"], max(meta["stop_ns"], meta["start_ns"])
        nr = owners.nr_processes + 1
        self.first_ns, self.last_ns = np.full(nr, self._stop_ns, np.int64), np.full(nr, self._start_ns, np.int64)
        self.threads_ns = np.zeros(nr, np.int64)
        self._sums = {name: np.zeros(nr, np.int64) for name in _FIGURES}
        self._known = {name: np.ones(nr, np.bool_) for name in _FIGURES}
        columns = ("task", "start_time_ns", "exit_time_ns", "kind")
        figures = [name for name in _FIGURES if name in trace.schema("threads").names]
        for name in set(_FIGURES).difference(figures):
            self._known[name][:] = False
        for rows in trace.batches("threads", [*columns, *figures]):
            of_program = rows["kind"] == 0
            self._add({name: values[of_program] for name, values in rows.items()}, owners, figures)

    def _add(self, rows: Mapping[str, NDArray[Any]], owners: Owners, figures: list[str]) -> None:
        process, start, end = owners.processes(rows["task"]), rows["start_time_ns"], rows["exit_time_ns"]
        born = start != UNKNOWN_I64
        begin = np.where(born, start, self._start_ns).clip(self._start_ns, self._stop_ns)
        end = np.where(end == UNKNOWN_I64, self._stop_ns, end).clip(begin, self._stop_ns)
        np.minimum.at(self.first_ns, process, begin)
        np.maximum.at(self.last_ns, process, end)
        np.add.at(self.threads_ns, process, end - begin)
        for name in figures:
            known = born & (rows[name] != UNKNOWN_I64)  # older threads used a part before the recording
            np.add.at(self._sums[name], process, rows[name] * known)
            self._known[name][process[~known]] = False

    def row(self, process: int, calls_ns: int) -> UsageRow:
        """Usage of one process. ``calls_ns``: its time in recorded calls."""
        figures = {name: int(self._sums[name][process]) if self._known[name][process] else None for name in _FIGURES}
        wall_ns = int(max(self.last_ns[process] - self.first_ns[process], 0))
        return _row(wall_ns, int(self.threads_ns[process]), calls_ns, figures)

    def total(self, usage: Mapping[str, int] | None, calls_ns: int) -> UsageRow:
        """Usage of all processes. ``usage``: the command's, from the metadata."""
        lived = np.flatnonzero(self.threads_ns)
        figures: dict[str, int | None] = {}
        for name in _FIGURES:
            figures[name] = int(self._sums[name].sum()) if len(lived) and self._known[name][lived].all() else None
        wall_ns = self._stop_ns - self._start_ns
        if usage is not None:  # also for processes whose last thread has no known end
            figures |= {name: usage.get(name) for name in _OF_COMMAND} | {
                "cpu_ns": usage["user_ns"] + usage["system_ns"]
            }
            wall_ns = usage["wall_ns"]
        return _row(wall_ns, int(self.threads_ns.sum()), calls_ns, figures)


def _row(wall_ns: int, threads_ns: int, calls_ns: int, figures: Mapping[str, int | None]) -> UsageRow:
    share = min(calls_ns / threads_ns, 1.0) if threads_ns else None
    return UsageRow(wall_ns, threads_ns, calls_ns, share, **figures)


def not_recorded(meta: Mapping[str, Any], row: UsageRow) -> dict[str, tuple[str, ...]]:
    """Groups of calls that were not recorded and may be where the time went, each with some of its calls.

    They may be, if recorded calls and user mode together explain less than half of the threads' time.
    """
    explained = row.calls_ns + (row.user_ns or 0)
    if explained >= _HALF * row.threads_ns:
        return {}
    events = set(meta["events"])
    found: dict[str, tuple[str, ...]] = {}
    for group in _MAY_TAKE_TIME:
        calls = [call for call in meta["calls"] if call["group"].split("-")[0] == group]
        lacking = [call["name"] for call in calls if f"syscalls:sys_enter_{call['tracepoint']}" not in events]
        if len(lacking) > _HALF * len(calls):
            found[group] = tuple(lacking)
    return found
