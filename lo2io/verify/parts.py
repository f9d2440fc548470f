"""The rule of requests' parts.

In: the tables. Out: findings. ``docs/explanation/rules/parts.md`` says what a part is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from lo2io.model import UNKNOWN_I64

if TYPE_CHECKING:
    from lo2io.trace.reader import Trace
    from lo2io.verify.rules import Verification


def check_parts(trace: Trace, verdict: Verification) -> None:
    """Report requests whose known parts are not all of their bytes. Memory grows with the number of requests.

    A request that was issued again may carry other bytes than before, so it is left out.

    Raises:
        TraceError: A table cannot be read.
    """
    sums: dict[int, int] = {}
    cut: set[int] = set()
    for rows in trace.batches("request_parts", ("request", "bytes", "cut")):
        numbers, place = np.unique(rows["request"], return_inverse=True)
        totals = np.bincount(place, weights=rows["bytes"]).astype(np.int64)
        for number, total in zip(numbers.tolist(), totals.tolist(), strict=True):
            sums[number] = sums.get(number, 0) + total
        cut.update(rows["request"][rows["cut"]].tolist())
    for rows in trace.batches("requests", ("id", "bytes_issued", "nr_requeues")):
        judged = (rows["bytes_issued"] != UNKNOWN_I64) & (rows["nr_requeues"] == 0)
        found = np.array([sums.get(number, -1) for number in rows["id"].tolist()], np.int64)
        doubtful = np.array([number in cut for number in rows["id"].tolist()], np.bool_)
        bad = rows["id"][judged & (found >= 0) & ~doubtful & (found != rows["bytes_issued"])]
        for number in bad.tolist():
            verdict.report("request.parts", f"request_parts: the parts of {number} do not add up to its bytes")
