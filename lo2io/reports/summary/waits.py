"""Where the time of calls went, by reason: on a CPU, ready to run, or waiting for something.

In: operations with their shares, and stretches without a CPU, both of the layer ``waits``. Out: sums by class of call,
by file and by process. The parts of a class add up to the time of its calls. Memory: 17 B for each wait.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final, TypeAlias

import numpy as np

from lo2io.frozen import dataclass
from lo2io.model import UNKNOWN_I64, CallClass
from lo2io.model.layers import WAITS
from lo2io.model.number_sets import distinct
from lo2io.reports.summary.classes import NR_CLASSES
from lo2io.reports.summary.journal import JOURNAL, PHASES, Commits, named

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from lo2io.model import Columns
    from lo2io.trace.reader import Trace

SHARES: Final = ("run_queue_ns", "blocked_ns")
"""Columns of operations with the parts of their time."""


@dataclass(frozen=True, slots=True)
class ReasonRow:
    """What calls waited for, and how long."""

    reason: str
    times: int
    time_ns: int
    phases: tuple[PhaseRow, ...] = ()
    """Of the journal: the parts of ``time_ns``. Empty: none is known."""


@dataclass(frozen=True, slots=True)
class PhaseRow:
    """How long calls waited while a commit of the journal was in one phase."""

    phase: str
    """One of :data:`~lo2io.reports.summary.journal.PHASES`."""
    time_ns: int


@dataclass(frozen=True, slots=True)
class WaitRow:
    """The time of one class of calls: the last four numbers add up to ``time_ns``. Calls in flight add nothing."""

    kind: str
    """Class of call, as in :class:`~lo2io.reports.summary.io.TimeRow`."""
    calls: int
    time_ns: int
    cpu_ns: int
    run_queue_ns: int
    """The threads were ready to run, and others had the CPUs."""
    blocked_ns: int
    """The threads waited."""
    unknown_ns: int
    """Time of calls of which a part was not seen."""
    reasons: tuple[ReasonRow, ...]
    """Of ``blocked_ns``, most time first."""


def records_waits(trace: Trace) -> bool:
    """True if the layer was recorded."""
    return WAITS in trace.metadata.get("layers", ())


class WaitTally:
    """Sums by class of call and by reason, in ns. Without the layer, all are 0."""

    def __init__(self, trace: Trace) -> None:
        self.recorded = records_waits(trace)
        self.names: tuple[str, ...] = tuple(trace.metadata.get("wait_reasons", ()))
        self.run_queue_ns = np.zeros(NR_CLASSES, np.int64)
        self.blocked_ns = np.zeros(NR_CLASSES, np.int64)
        self.unknown_ns = np.zeros(NR_CLASSES, np.int64)
        self.times = np.zeros((NR_CLASSES, len(self.names)), np.int64)
        self.total_ns = np.zeros((NR_CLASSES, len(self.names)), np.int64)
        self.of_file: dict[str, Waited] = {name: Waited() for name in self.names}
        """Reason → the waits of calls on each file group."""
        self.of_process: dict[str, Waited] = {name: Waited() for name in self.names}
        """Reason → the waits of each process' calls that are no syncs."""
        self.phase_ns = np.zeros((NR_CLASSES, len(PHASES)), np.int64)
        """Of waits for the journal."""
        self._journal = self.names.index(JOURNAL) if JOURNAL in self.names else -1
        found = _read_waits(trace, self._journal) if self.recorded else _NO_WAITS
        self._owner, self._reason, self._lasted, self._phases = found
        self._for_journal = np.flatnonzero(self._reason == self._journal)

    def calls(self, reason: str) -> NDArray[np.uint64]:
        """Ids of the calls that waited for this, in their order; some more than once."""
        if reason not in self.names:
            return np.zeros(0, np.uint64)
        found: NDArray[np.uint64] = self._owner[self._reason == self.names.index(reason)]
        return found

    def away(self, rows: Columns) -> NDArray[np.int64]:
        """How long each of these calls had no CPU; UNKNOWN_I64: not known."""
        known = rows["blocked_ns"] != UNKNOWN_I64
        return np.where(known, rows["blocked_ns"] + rows["run_queue_ns"] * known, UNKNOWN_I64)

    def which(self, rows: Columns) -> NDArray[np.intp]:
        """The calls among these that did not keep their CPU; their classes are needed."""
        kept = (rows["run_queue_ns"] == 0) & (rows["blocked_ns"] == 0)
        return np.flatnonzero(~kept & (rows["end_time_ns"] != UNKNOWN_I64))

    def add(self, rows: Columns) -> None:
        """Add calls, with what :meth:`~lo2io.reports.summary.adding.RowContext.derive` works out."""
        classes = rows["class"]
        known = rows["blocked_ns"] != UNKNOWN_I64
        duration = np.maximum(rows["end_time_ns"] - rows["begin_time_ns"], 0)
        np.add.at(self.unknown_ns, classes[~known], duration[~known])
        np.add.at(self.run_queue_ns, classes[known], rows["run_queue_ns"][known])
        np.add.at(self.blocked_ns, classes[known], rows["blocked_ns"][known])
        ids, classes = rows["id"][known], classes[known]
        begin, end = np.searchsorted(self._owner, ids), np.searchsorted(self._owner, ids, side="right")
        numbers = np.repeat(classes, end - begin)
        places = _ranges(begin, end)
        np.add.at(self.times, (numbers, self._reason[places]), 1)
        np.add.at(self.total_ns, (numbers, self._reason[places]), self._lasted[places])
        of_journal = self._reason[places] == self._journal
        rank = np.searchsorted(self._for_journal, places[of_journal])
        np.add.at(self.phase_ns, numbers[of_journal], self._phases[rank])
        sync = (rows["class"] == CallClass.SYNC) | rows["synced"]
        of = np.repeat(np.flatnonzero(known), end - begin)
        for number in distinct(self._reason[places]).tolist():
            which = self._reason[places] == number
            lasted = self._lasted[places][which]
            self.of_file[self.names[number]].add(rows["group"][of][which], lasted)
            alone = ~sync[of][which]
            self.of_process[self.names[number]].add(rows["process"][of][which][alone], lasted[alone])


class Waited:
    """How often and how long the calls of each file, or of each process, waited for one thing."""

    def __init__(self) -> None:
        self.times: Counter[int] = Counter()
        self.total_ns: Counter[int] = Counter()

    def add(self, keys: NDArray[np.intp], lasted: NDArray[np.int64]) -> None:
        """Add waits: the number of the file or process of each, and its length in ns."""
        found, place, times = np.unique(keys, return_inverse=True, return_counts=True)
        total_ns = np.zeros(len(found), np.int64)
        np.add.at(total_ns, place, lasted)
        self.times.update(dict(zip(found.tolist(), times.tolist(), strict=True)))
        self.total_ns.update(dict(zip(found.tolist(), total_ns.tolist(), strict=True)))


def wait_row(tally: WaitTally, kind: str, key: int | slice | list[int], calls: int, total_ns: int) -> WaitRow:
    """The row of one class, or of several together."""
    run_queue, blocked, unknown = (
        int(values[key].sum()) for values in (tally.run_queue_ns, tally.blocked_ns, tally.unknown_ns)
    )
    times = tally.times[key].reshape(-1, len(tally.names)).sum(axis=0).tolist()
    lasted = tally.total_ns[key].reshape(-1, len(tally.names)).sum(axis=0).tolist()
    phases = named(tally.phase_ns[key].reshape(-1, len(PHASES)).sum(axis=0).tolist())
    reasons = [
        ReasonRow(*row, tuple(PhaseRow(*phase) for phase in phases if row[0] == JOURNAL))
        for row in zip(tally.names, times, lasted, strict=True)
        if row[2]
    ]
    return WaitRow(
        kind,
        calls,
        total_ns,
        total_ns - run_queue - blocked - unknown,
        run_queue,
        blocked,
        unknown,
        tuple(sorted(reasons, key=lambda row: -row.time_ns)),
    )


_Waits: TypeAlias = "tuple[NDArray[np.uint64], NDArray[np.uint8], NDArray[np.int64], NDArray[np.int64]]"
_NO_WAITS: Final[_Waits] = (
    np.zeros(0, np.uint64),
    np.zeros(0, np.uint8),
    np.zeros(0, np.int64),
    np.zeros((0, len(PHASES)), np.int64),
)


def _read_waits(trace: Trace, journal: int) -> _Waits:
    """Id of the call, reason, and time until the wakeup of each stretch that is a wait, in the order of ids.

    A stretch is no wait if its thread could run from the stretch's start on, or if nobody saw the wakeup. The last
    array has the phases of waits for the journal, in the same order. It has no rows for other waits.
    """
    columns = ("operation", "reason", "begin_time_ns", "wake_time_ns", "waker_tid", "stack")
    parts = [tuple(rows.values()) for rows in trace.batches("off_cpu", columns)]
    numbers = (np.zeros(0, np.uint32),) * 2
    none = np.zeros(0, np.uint64), np.zeros(0, np.int8), *(np.zeros(0, np.int64),) * 2, *numbers
    stretches = [np.concatenate(column) for column in zip(none, *parts, strict=True)]
    begin, wake = stretches[2:4]
    is_wait = wake > begin  # an unknown wakeup is smaller than any time
    owner, reason, begin, wake, waker, stack = (column[is_wait] for column in stretches)
    lasted = wake - begin
    order = np.argsort(owner, kind="stable")
    of = order[reason[order] == journal]
    phases = Commits(trace).divide(begin[of], wake[of], waker[of], stack[of])
    return owner[order], reason[order].astype(np.uint8), lasted[order], phases


def _ranges(begin: NDArray[np.intp], end: NDArray[np.intp]) -> NDArray[np.intp]:
    """All numbers of several ranges, one range after the other."""
    lengths = end - begin
    starts = np.cumsum(lengths) - lengths
    numbers: NDArray[np.intp] = np.arange(int(lengths.sum())) + np.repeat(begin - starts, lengths)
    return numbers
