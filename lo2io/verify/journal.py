"""The rule of commits of journals.

In: the table of commits. Out: findings. Memory: 50 B for each commit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from lo2io.model import UNKNOWN_I64

if TYPE_CHECKING:
    from lo2io.trace.reader import Trace
    from lo2io.verify.rules import Verification

_MOMENTS: Final = ("begin_time_ns", "locking_time_ns", "flushing_time_ns", "logging_time_ns", "end_time_ns")


def check_commits(trace: Trace, verdict: Verification) -> None:
    """Report commits whose phases are out of order, or that overlap another one of their journal's thread.

    Raises:
        TraceError: A table cannot be read.
    """
    parts = [
        np.stack([rows[name] for name in (*_MOMENTS, "tid")], 1)
        for rows in trace.batches("commits", (*_MOMENTS, "tid"))
    ]
    until: dict[int, int] = {}
    for row in np.concatenate(parts).tolist() if parts else ():
        tid, met = row[-1], [time for time in row[:-1] if time != UNKNOWN_I64]
        if not met or met != sorted(met):
            verdict.report("journal.commit", f"commits: the phases of a commit of thread {tid} are out of order")
        elif met[0] < until.get(tid, met[0]):
            verdict.report("journal.commit", f"commits: two commits of thread {tid} overlap")
        until[tid] = max(met, default=until.get(tid, 0))
