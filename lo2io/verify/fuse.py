"""The rule of requests to the servers of FUSE file systems.

In: the tables. Out: findings. ``docs/explanation/rules/fuse.md`` says what such a request is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from lo2io.model import UNKNOWN_I64

if TYPE_CHECKING:
    from lo2io.trace.reader import Trace
    from lo2io.verify.rules import Verification

_RULE = "fuse.request"


def check_fuse(trace: Trace, verdict: Verification) -> None:
    """Report requests that stand twice, that end before they begin, and those that their call did not send.

    Memory grows with the number of requests.

    Raises:
        TraceError: A table cannot be read.
    """
    numbers: set[tuple[int, int, int]] = set()  # a mount after another may have its number, and count anew
    sent: dict[int, list[tuple[int, int, int]]] = {}
    columns = ("connection", "unique", "operation", "task", "begin_time_ns", "end_time_ns")
    for rows in trace.batches("fuse_requests", columns):
        for connection, unique, call, task, begin, end in zip(*(rows[name].tolist() for name in columns), strict=True):
            if (connection, unique, begin) in numbers:
                verdict.report(_RULE, f"fuse_requests: {unique} of connection {connection} stands twice")
            if end != UNKNOWN_I64 and end < begin:
                verdict.report(_RULE, f"fuse_requests: {unique} of connection {connection} ends before it begins")
            numbers.add((connection, unique, begin))
            if call:
                sent.setdefault(call, []).append((unique, task, begin))
    _check_calls(trace, sent, verdict)


def _check_calls(trace: Trace, sent: dict[int, list[tuple[int, int, int]]], verdict: Verification) -> None:
    calls = np.array(sorted(sent), np.uint64)
    columns = ("id", "task", "begin_time_ns", "end_time_ns")
    for rows in trace.batches("operations", columns):
        chosen = np.isin(rows["id"], calls)
        for call, task, begin, end in zip(*(rows[name][chosen].tolist() for name in columns), strict=True):
            for unique, sender, at in sent.pop(call):
                if sender != task or at < begin or (end != UNKNOWN_I64 and at > end):
                    verdict.report(_RULE, f"fuse_requests: call {call} did not send {unique}")
    for call in sorted(sent):
        verdict.report(_RULE, f"fuse_requests: there is no call {call}")
