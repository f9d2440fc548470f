"""The rule of stacks.

In: the tables. Out: findings. ``docs/explanation/rules/stacks.md`` says which calls have a stack.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from lo2io.model import UNKNOWN_U32
from lo2io.model.layers import SLOW_FROM_NS

if TYPE_CHECKING:
    from lo2io.trace.reader import Trace
    from lo2io.verify.rules import Verification

_RULE = "stack.call"


def check_stacks(trace: Trace, verdict: Verification) -> None:
    """Report calls with a stack that are not there, were not slow or have two, and stacks without frames.

    Memory grows with the number of slow calls.

    Raises:
        TraceError: A table cannot be read.
    """
    slow_from_ns = trace.metadata.get("slow_from_ns", SLOW_FROM_NS)
    known = {number for rows in trace.batches("stacks", ("stack",)) for number in rows["stack"].tolist()}
    of_call: dict[int, int] = {}
    for rows in trace.batches("call_stacks", ("operation", "stack")):
        for number, stack in zip(rows["operation"].tolist(), rows["stack"].tolist(), strict=True):
            if number in of_call:
                verdict.report(_RULE, f"call_stacks: operation {number} has two stacks")
            if stack not in known and stack != UNKNOWN_U32:
                verdict.report(_RULE, f"call_stacks: stack {stack} has no frames")
            of_call[number] = stack
    wanted = np.array(sorted(of_call), np.uint64)
    for rows in trace.batches("operations", ("id", "begin_time_ns", "end_time_ns")):
        at = np.flatnonzero(np.isin(rows["id"], wanted))
        for number, lasted in zip(
            rows["id"][at].tolist(), (rows["end_time_ns"] - rows["begin_time_ns"])[at].tolist(), strict=True
        ):
            of_call.pop(number, None)
            if lasted < slow_from_ns:
                verdict.report(_RULE, f"call_stacks: operation {number} took {lasted} ns, and has a stack")
    for number in of_call:
        verdict.report(_RULE, f"call_stacks: operation {number} is not there")
