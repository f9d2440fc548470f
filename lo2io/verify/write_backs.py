"""The rules of write-back: who dirtied what requests write, and why it is written.

In: the tables, and attributes of the trace's block requests. Out: findings. ``docs/explanation/rules/dirty.md`` says
what a charge and a reason are.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from lo2io.model import UNKNOWN_I64, UNKNOWN_U32
from lo2io.trace.columns import WRITE_REASON

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lo2io.trace.reader import Trace
    from lo2io.verify.rules import Verification
    from lo2io.verify.told import ToldWriteBacks

_TIMES = ("call_begin_ns", "first_dirtied_ns", "last_dirtied_ns", "issue_time_ns", "complete_time_ns")


def check_told(trace: Trace, told: ToldWriteBacks, verdict: Verification) -> None:
    """Report block requests to which trace and tables give different reasons, or charge different threads.

    A trace without block requests tells nothing. Memory grows with the number of requests that have charges.

    Raises:
        TraceError: A table cannot be read.
    """
    if not told:
        return
    charged = _only_threads(trace)
    for rows in trace.batches("requests", ("id", "reason", "complete_time_ns")):
        columns = (rows[name].tolist() for name in ("id", "reason", "complete_time_ns"))
        for number, reason, complete in zip(*columns, strict=True):
            if told.reasons.get(number, WRITE_REASON[0]) != WRITE_REASON[reason]:
                verdict.report("request.told", f"requests: trace and table give {number} different reasons")
            if complete != UNKNOWN_I64 and told.charged.get(number) != charged.get(number):
                verdict.report("request.told", f"write_backs: trace and table charge {number} to different threads")


def _only_threads(trace: Trace) -> dict[int, int | None]:
    """Request → the thread with all of its charges; None: there are several, or some is unknown."""
    found: dict[int, int | None] = {}
    for rows in trace.batches("write_backs", ("request", "tid")):
        for request, tid in zip(rows["request"].tolist(), rows["tid"].tolist(), strict=True):
            known = None if tid == UNKNOWN_U32 else tid
            found[request] = known if found.setdefault(request, known) == known else None
    return found


def check_write_backs(trace: Trace, verdict: Verification) -> None:
    """Report parts of which more or less is charged than they have, and charges whose times are out of order.

    Memory grows with the number of parts.

    Raises:
        TraceError: A table cannot be read.
    """
    charged = _sums(trace, "write_backs")
    parts = _sums(trace, "request_parts")
    for key, total in charged.items():
        if key[0] and total != parts.get(key):
            verdict.report("request.charged", f"write_backs: part {key[1]} of {key[0]}: its charges are not its bytes")
    for rows in trace.batches("write_backs", ("request", *_TIMES)):
        bad = np.zeros(len(rows["request"]), np.bool_)
        for earlier, later in pairwise(_TIMES):
            known = (rows[earlier] != UNKNOWN_I64) & (rows[later] != UNKNOWN_I64)
            bad |= known & (rows[earlier] > rows[later])
        for number in rows["request"][bad].tolist():
            verdict.report("request.charged", f"write_backs: the times of a charge of {number} are out of order")


def _sums(trace: Trace, table: str) -> dict[tuple[int, int], int]:
    """Bytes by request and number of the part."""
    sums: dict[tuple[int, int], int] = {}
    rows: Iterable[tuple[int, int, int]]
    for batch in trace.batches(table, ("request", "number", "bytes")):
        rows = zip(*(batch[name].tolist() for name in ("request", "number", "bytes")), strict=True)
        for request, number, size in rows:
            sums[request, number] = sums.get((request, number), 0) + size
    return sums
