"""The rule of futexes.

In: the tables. Out: findings.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from lo2io.trace.reader import Trace
    from lo2io.verify.rules import Verification

_RULE = "futex.call"


def check_futexes(trace: Trace, verdict: Verification) -> None:
    """Report rows of futexes that name no call on a futex, or a call that another row names.

    Memory grows with the number of rows.

    Raises:
        TraceError: A table cannot be read.
    """
    parts = [rows["operation"] for rows in trace.batches("futexes", ("operation",))]
    named, times = np.unique(np.concatenate(parts), return_counts=True)
    for number in named[times > 1].tolist():
        verdict.report(_RULE, f"futexes: operation {number} has two rows")
    codes = [code for code, call in enumerate(trace.metadata["calls"]) if call["group"] == "futex"]
    there = np.zeros(len(named), np.bool_)
    for rows in trace.batches("operations", ("id", "call")):
        there |= np.isin(named, rows["id"][np.isin(rows["call"], codes)])
    for number in named[~there].tolist():
        verdict.report(_RULE, f"futexes: operation {number} is no call on a futex")
