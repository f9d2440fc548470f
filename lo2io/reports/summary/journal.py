"""Which phases of a journal's commits a wait for the journal consists of.

In: the table of commits, and stretches without a CPU. Out: the parts of each stretch, which add up to it.
``docs/explanation/rules/waits.md`` has the rules. Memory: 200 B for each commit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from lo2io.model import UNKNOWN_I64, UNKNOWN_U32
from lo2io.model.number_sets import distinct

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from lo2io.trace.reader import Trace

JOURNAL: Final = "journal"
"""The reason, in ``tracepoints/waits.toml``."""
PHASES: Final = ("before the commit", "open transaction", "data", "log", "not known")
_BEFORE, _LOCKING, _FLUSHING, _LOGGING, _UNKNOWN = range(len(PHASES))
_MOMENTS: Final = ("begin_time_ns", "locking_time_ns", "flushing_time_ns", "logging_time_ns", "end_time_ns")
LOG_FUNCTION: Final = "do_get_write_access"
"""Function of jbd2. A call waits in it until a block that it wants to change is written to the log."""


class Commits:
    """The commits of a trace, ready to divide waits."""

    def __init__(self, trace: Trace) -> None:
        self._timelines: dict[int, Timeline] = {}
        self._of_log = np.zeros(0, np.uint32)
        if JOURNAL not in trace.metadata.get("layers", ()):
            return
        stacks = trace.text_batches("kernel_stacks", ("stack", "functions"))
        of_log = [
            number
            for numbers, functions in stacks
            for number, text in zip(numbers, functions, strict=True)
            if LOG_FUNCTION in (name.partition(".")[0] for name in (text or "").split(";"))
        ]
        self._of_log = np.array(of_log, np.uint32)
        parts = [np.stack([rows[name] for name in _MOMENTS], axis=1) for rows in trace.batches("commits", _MOMENTS)]
        of = [tuple(rows.values()) for rows in trace.batches("commits", ("tid", "transaction"))]
        if not parts:
            return
        moments, (tids, transactions) = np.concatenate(parts), map(np.concatenate, zip(*of, strict=True))
        for tid in distinct(tids).tolist():
            self._timelines[tid] = Timeline(moments[tids == tid], transactions[tids == tid])
        self._losses = [
            (begin, end)
            for rows in trace.batches("losses", ("begin_time_ns", "end_time_ns"))
            for begin, end in zip(rows["begin_time_ns"].tolist(), rows["end_time_ns"].tolist(), strict=True)
        ]

    @property
    def any(self) -> bool:
        """True if the trace has commits."""
        return bool(self._timelines)

    def divide(
        self,
        begin: NDArray[np.int64],
        wake: NDArray[np.int64],
        waker_tid: NDArray[np.uint32],
        stack: NDArray[np.uint32],
    ) -> NDArray[np.int64]:
        """The time of each wait in each of :data:`PHASES`. A wait without a known end has none.

        The thread that woke the waiter tells what the journal did meanwhile. Where the end of a write woke it, the
        stack may tell.
        """
        lasted = np.where(wake == UNKNOWN_I64, 0, wake - begin)
        found = np.zeros((len(begin), len(PHASES)), np.int64)
        found[:, _UNKNOWN] = lasted
        told = lasted > 0
        for first, last in self._losses if self.any else ():
            told &= (wake < first) | (begin > last)
        for tid, timeline in self._timelines.items():
            rows = np.flatnonzero(told & (waker_tid == tid))
            found[rows] = timeline.before(wake[rows]) - timeline.before(begin[rows])
        rows = np.flatnonzero((found[:, _UNKNOWN] > 0) & np.isin(stack, self._of_log))
        found[rows, _LOGGING], found[rows, _UNKNOWN] = lasted[rows], 0
        return found

    def of_stretch(self, begin: int, wake: int, waker_tid: int, stack: int | None) -> tuple[tuple[str, int], ...]:
        """The phases of one wait; empty if they are not known."""
        tid, number = np.array([waker_tid], np.uint32), np.array([UNKNOWN_U32 if stack is None else stack], np.uint32)
        columns = np.array([begin]), np.array([wake]), tid, number
        return named(self.divide(*columns)[0].tolist())


def named(phases: Sequence[int]) -> tuple[tuple[str, int], ...]:
    """Name and time of the phases that took time, in their order; empty if none of the time is known."""
    if not any(phases[:_UNKNOWN]):
        return ()
    return tuple((name, time_ns) for name, time_ns in zip(PHASES, phases, strict=True) if time_ns)


class Timeline:
    """What a journal's thread did when: ``phase[n]`` until ``edge[n]``, and the last phase from then on."""

    def __init__(self, moments: NDArray[np.int64], transactions: NDArray[np.uint32]) -> None:
        seen = np.where(moments == UNKNOWN_I64, np.iinfo(np.int64).max, moments).min(axis=1)
        order = np.argsort(seen, kind="stable")
        edges, phases = [], [_BEFORE]
        last = None
        for row, transaction in zip(moments[order].tolist(), transactions[order].tolist(), strict=True):
            if UNKNOWN_I64 in row or (last is not None and (last + 1) & 0xFFFFFFFF != transaction):
                phases[-1] = _UNKNOWN  # since the previous commit, or since the beginning
            last = transaction
            if UNKNOWN_I64 not in row:
                begin, _, flushing, logging, end = row
                edges += [begin, flushing, logging, end]
                phases += [_LOCKING, _FLUSHING, _LOGGING, _BEFORE]
        self._edge, self._phase = np.array(edges, np.int64), np.array(phases)
        lengths = np.zeros((len(phases), len(PHASES)), np.int64)
        lengths[np.arange(1, len(edges)), self._phase[1 : len(edges)]] = np.diff(self._edge)
        self._sums = np.cumsum(lengths, axis=0)

    def before(self, time: NDArray[np.int64]) -> NDArray[np.int64]:
        """How long the thread was in each phase from the first edge up to each of these times."""
        if not len(self._edge):
            found = np.zeros((len(time), len(PHASES)), np.int64)
            found[:, self._phase[0]] = time
            return found
        place = np.searchsorted(self._edge, time, side="right")
        found = self._sums[np.maximum(place - 1, 0)]
        edge = self._edge[np.maximum(place - 1, 0)]
        found[np.arange(len(time)), self._phase[place]] += time - edge
        return found
