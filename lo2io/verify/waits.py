"""Rules of the stretches without a CPU: each lies in its call, and together they are the parts of the call's time.

In: the tables. Out: findings. ``docs/explanation/rules/waits.md`` has the rules that the engine follows. Memory: 40 B
for each stretch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from lo2io.model import UNKNOWN_I64
from lo2io.model.layers import WAITS, WORKERS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from lo2io.model import Columns
    from lo2io.trace.reader import Trace
    from lo2io.verify.rules import Verification

_STRETCHES: Final = ("operation", "begin_time_ns", "wake_time_ns", "end_time_ns")
_CALLS: Final = ("id", "begin_time_ns", "end_time_ns", "run_queue_ns", "blocked_ns")


def _columns(trace: Trace, table: str, names: tuple[str, ...]) -> list[NDArray[Any]]:
    parts = [tuple(rows.values()) for rows in trace.batches(table, names)]
    none = np.zeros(0, np.uint64), *(np.zeros(0, np.int64) for _ in names[1:])
    return [np.concatenate(column) for column in zip(none, *parts, strict=True)]


def _lie_in(
    owner: NDArray[np.uint64], begin: NDArray[np.int64], end: NDArray[np.int64], spans: list[NDArray[Any]]
) -> NDArray[np.bool_]:
    """True for what lies in a span of its owner. Spans of an owner do not overlap."""
    owners, begins, ends = spans
    all_owners, all_begins = np.concatenate([owners, owner]), np.concatenate([begins, begin])
    is_span = np.arange(len(all_owners)) < len(owners)
    order = np.lexsort((~is_span, all_begins, all_owners))
    last = np.maximum.accumulate(np.where(is_span[order], np.arange(len(order)), -1))
    span = np.where(last >= 0, order[last], -1)[np.argsort(order)][len(owners) :]
    if not len(owners):
        return np.zeros(len(owner), np.bool_)
    found: NDArray[np.bool_] = (span >= 0) & (owners[span] == owner) & (ends[span] != UNKNOWN_I64) & (end <= ends[span])
    return found


def has_waits(metadata: Mapping[str, Any]) -> bool:
    """True if the layer ``waits`` was recorded."""
    return WAITS in metadata.get("layers", ())


class WaitRules:
    """Checks the stretches of one trace against its calls, once."""

    def __init__(self, trace: Trace, verdict: Verification) -> None:
        self._trace = trace
        self._verdict = verdict
        owner, begin, wake, end = _columns(trace, "off_cpu", _STRETCHES)
        order = np.lexsort((begin, owner))
        self._owner, self._begin, self._wake, self._end = owner[order], begin[order], wake[order], end[order]

    def check(self) -> None:
        """Report the rows that break a rule.

        Raises:
            TraceError: A table cannot be read.
        """
        self._check_order()
        if WORKERS in self._trace.metadata["layers"]:
            self._check_requests()
        for batch in self._trace.batches("operations", _CALLS):
            self._check_calls(batch)

    def _check_order(self) -> None:
        """Check that each stretch begins, ends by a wakeup and ends in this order, and before the next one begins."""
        begin, wake, end = self._begin, self._wake, self._end
        ended, woken = end != UNKNOWN_I64, wake != UNKNOWN_I64
        bad = (ended & (end < begin)) | (woken & (wake < begin)) | (ended & woken & (wake > end))
        self._report(bad, self._owner, "a stretch without a CPU ends before it begins, or its wakeup lies outside")
        bad = (self._owner[1:] == self._owner[:-1]) & (self._owner[1:] != 0) & ended[:-1] & (begin[1:] < end[:-1])
        self._report(bad, self._owner[1:], "two stretches without a CPU overlap")

    def _check_calls(self, rows: Columns) -> None:
        """Check that shares are the sums of stretches, which lie in their call."""
        first = np.searchsorted(self._owner, rows["id"])
        last = np.searchsorted(self._owner, rows["id"], side="right")
        known, duration = rows["blocked_ns"] != UNKNOWN_I64, rows["end_time_ns"] - rows["begin_time_ns"]
        shares = rows["run_queue_ns"] + rows["blocked_ns"]
        bad = known & ((rows["run_queue_ns"] < 0) | (rows["blocked_ns"] < 0) | (shares > duration))
        self._report(bad, rows["id"], "the parts of its time are no parts of its duration")
        seen = (self._wake != UNKNOWN_I64) & (self._end != UNKNOWN_I64)
        for column, lengths in (("blocked_ns", self._wake - self._begin), ("run_queue_ns", self._end - self._wake)):
            sums = np.concatenate([[0], np.cumsum(np.where(seen, lengths, 0))])
            bad = known & (sums[last] - sums[first] != rows[column])
            self._report(bad, rows["id"], f"{column} is not the sum of its stretches")
        has = first < last
        place = np.minimum(first, max(len(self._begin) - 1, 0))
        bad = has & (self._begin[place] < rows["begin_time_ns"]) if len(self._begin) else np.zeros(len(has), np.bool_)
        self._report(bad, rows["id"], "a stretch without a CPU begins before it")
        bad = known & has & (self._end[np.maximum(last - 1, 0)] > rows["end_time_ns"]) if len(self._begin) else bad
        self._report(bad, rows["id"], "a stretch without a CPU ends after it")

    def _check_requests(self) -> None:
        """Check that shares of requests are the sums of those stretches that lie in their executions by workers."""
        owner, begin, wake, end = _columns(
            self._trace, "off_cpu", ("request", "begin_time_ns", "wake_time_ns", "end_time_ns")
        )
        works = _columns(self._trace, "ring_works", ("id", "begin_time_ns", "end_time_ns"))
        inside = (end != UNKNOWN_I64) & (wake != UNKNOWN_I64) & _lie_in(owner, begin, end, works)
        owner, begin, wake, end = (values[inside] for values in (owner, begin, wake, end))
        order = np.argsort(owner, kind="stable")
        owner, lengths = owner[order], {"blocked_ns": (wake - begin)[order], "run_queue_ns": (end - wake)[order]}
        for rows in self._trace.batches("ring_requests", ("id", "executing_ns", *lengths)):
            first, last = (np.searchsorted(owner, rows["id"], side=side) for side in ("left", "right"))
            known = rows["blocked_ns"] != UNKNOWN_I64
            lasted = rows["executing_ns"]
            bad = known & (lasted != UNKNOWN_I64) & (rows["blocked_ns"] + rows["run_queue_ns"] > lasted)
            self._report(bad, rows["id"], "the parts of its executions are longer than these", "request")
            for column, each in lengths.items():
                sums = np.concatenate([[0], np.cumsum(each)])
                bad = known & (sums[last] - sums[first] != rows[column])
                self._report(bad, rows["id"], f"{column} is not the sum of its stretches", "request")

    def _report(self, bad: NDArray[np.bool_], ids: NDArray[np.uint64], text: str, what: str = "call") -> None:
        for number in ids[bad].tolist():
            self._verdict.report("table.waits", f"{what} {number}: {text}")
