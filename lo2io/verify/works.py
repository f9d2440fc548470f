"""The rule that the ends of rings' requests tell the same of the workers that executed them as the table does.

In: the table, and attributes of the requests' ends. Out: findings. ``docs/reference/otf2.md`` says what the attributes
mean.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from lo2io.trace.reader import Trace
    from lo2io.verify.rules import Verification
    from lo2io.verify.told import ToldWorks

_COLUMNS: Final = ("id", "run_queue_ns", "blocked_ns")


def check_works(trace: Trace, told: ToldWorks, verdict: Verification) -> None:
    """Report requests whose time without a CPU differs between the trace and the table.

    Raises:
        TraceError: The table cannot be read.
    """
    rows = told.by_id()
    if not len(rows):
        return
    for batch in trace.batches("ring_requests", _COLUMNS):
        ids = batch["id"].astype(np.int64)
        place = np.minimum(np.searchsorted(rows[:, 0], ids), len(rows) - 1)
        meant = np.column_stack([batch[name] for name in _COLUMNS[1:]])
        bad = (rows[place, 0] == ids) & (rows[place, 1:] != meant).any(axis=1)
        for number in ids[bad].tolist():
            verdict.report("ring.told", f"ring_requests: trace and table tell different waits of request {number}")
