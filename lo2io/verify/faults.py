"""The rule of page faults.

In: the tables. Out: findings. ``docs/explanation/rules/faults.md`` says what a fault is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from lo2io.catalog.catalog import PAGE_FAULT
from lo2io.model import UNKNOWN_I64

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from lo2io.model import Columns
    from lo2io.trace.reader import Trace
    from lo2io.verify.rules import Verification

_RULE = "fault.read"
_SAME = ("task", "begin_time_ns", "end_time_ns", "offset_bytes")
_PARTS = ("run_queue_ns", "blocked_ns")


def check_faults(trace: Trace, verdict: Verification) -> None:
    """Report faults that are not the operation they name, and page faults among operations that no fault names.

    Also reports threads with more faults than the kernel counted. Memory grows with the number of faults.

    Raises:
        TraceError: A table cannot be read.
    """
    codes = [code for code, call in enumerate(trace.metadata["calls"]) if call["name"] == PAGE_FAULT.abi_name]
    reads: dict[int, tuple[int, ...]] = {}
    for rows in trace.batches("operations", ("id", "call", *_SAME)):
        chosen = np.flatnonzero(np.isin(rows["call"], codes))
        reads.update(zip(rows["id"][chosen].tolist(), _facts(rows, chosen), strict=True))
    nr_faults: dict[int, int] = {}
    for rows in trace.batches("faults", ("operation", *_SAME, *_PARTS)):
        everywhere = np.arange(len(rows["task"]))
        for number in rows["operation"][_is_longer(rows)].tolist():
            verdict.report(_RULE, f"faults: the parts of the time of {number} are no parts of it")
        for number, facts in zip(rows["operation"].tolist(), _facts(rows, everywhere), strict=True):
            nr_faults[facts[0]] = nr_faults.get(facts[0], 0) + 1
            if number and reads.pop(number, None) != facts:
                verdict.report(_RULE, f"faults: operation {number} is not this fault")
    for number in reads:
        verdict.report(_RULE, f"operations: {number} is a page fault that faults does not have")
    for rows in trace.batches("threads", ("task", "major_faults")):
        for task, counted in zip(rows["task"].tolist(), rows["major_faults"].tolist(), strict=True):
            if counted != UNKNOWN_I64 and nr_faults.get(task, 0) > counted:
                verdict.report(
                    _RULE, f"faults: {nr_faults[task]} of thread {task}, of which the kernel counted {counted}"
                )


def _is_longer(rows: Columns) -> NDArray[np.bool_]:
    """Faults whose parts are known, and negative or longer than the faults."""
    queued, blocked = rows["run_queue_ns"], rows["blocked_ns"]
    known, lasted = blocked != UNKNOWN_I64, rows["end_time_ns"] - rows["begin_time_ns"]
    bad: NDArray[np.bool_] = (known != (queued != UNKNOWN_I64)) | (
        known & ((queued < 0) | (blocked < 0) | (queued + blocked > lasted))
    )
    return bad


def _facts(rows: Columns, places: np.ndarray[tuple[int], np.dtype[np.intp]]) -> list[tuple[int, ...]]:
    return list(zip(*(rows[column][places].tolist() for column in _SAME), strict=True))
