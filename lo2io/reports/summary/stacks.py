"""Slow calls by the program's stack.

In: the tables of stacks and operations. Out: a :class:`StacksSummary`. Memory grows with the number of slow calls.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from lo2io.frozen import dataclass
from lo2io.model import UNKNOWN_I64, UNKNOWN_U32
from lo2io.model.trace import CUT, frame_words

if TYPE_CHECKING:
    from lo2io.reports.summary.sums import TraceSums
    from lo2io.trace.reader import Trace

MAX_ROWS: Final = 100
"""Stacks listed by the time of their calls."""
FRAME_POINTERS: Final = "frame pointers"


@dataclass(frozen=True, slots=True)
class StackRow:
    """The slow calls that a program made at one place."""

    functions: tuple[str, ...]
    """The outermost first. Without a known name: the file and the offset in it. :data:`CUT` stands for those that
    lie beyond what was copied of the stack."""
    calls: int
    time_ns: int
    bytes: int
    """Bytes that the calls read or wrote."""


@dataclass(frozen=True, slots=True)
class StacksSummary:
    """Slow calls whose stack was taken."""

    calls: int
    time_ns: int
    calls_by: dict[str, int]
    """Calls by how their stacks were found: ``unwind tables``, ``frame pointers`` (at least one frame by these),
    ``cut`` (some frames are missing, in either way), ``unknown`` (no frame is known)."""
    stacks: tuple[StackRow, ...]


def summarize_stacks(sums: TraceSums) -> StacksSummary | None:
    """Sum up slow calls by stack; None: the layer was not recorded, or no call was slow.

    Raises:
        TraceError: A table is missing or damaged.
    """
    trace = sums.trace
    if "stacks" not in trace.metadata.get("layers", ()) or not trace.rows("call_stacks"):
        return None
    chosen = stacks_of_calls(trace)
    wanted = np.array(sorted(chosen), np.uint64)
    found: dict[int, list[int]] = {}
    for rows in trace.batches("operations", ("id", "begin_time_ns", "end_time_ns", "bytes_result")):
        at = np.flatnonzero(np.isin(rows["id"], wanted))
        lasted = (rows["end_time_ns"] - rows["begin_time_ns"])[at].tolist()
        moved = np.where(rows["bytes_result"] == UNKNOWN_I64, 0, rows["bytes_result"])[at].tolist()
        for number, time_ns, size in zip(rows["id"][at].tolist(), lasted, moved, strict=True):
            sums_of = found.setdefault(chosen[number], [0, 0, 0])
            for place, amount in enumerate((1, time_ns, size)):
                sums_of[place] += amount
    shown = sorted(found, key=lambda stack: (-found[stack][1], stack))
    functions = functions_of(trace, set(shown[:MAX_ROWS]))
    listed = [StackRow(functions.get(stack, ()), *found[stack]) for stack in shown[:MAX_ROWS]]
    calls, time_ns = (sum(numbers[place] for numbers in found.values()) for place in (0, 1))
    calls_by = _count_by_way(trace, {stack: numbers[0] for stack, numbers in found.items()})
    return StacksSummary(calls, time_ns, calls_by, tuple(listed))


def _count_by_way(trace: Trace, calls: dict[int, int]) -> dict[str, int]:
    """``calls_by`` of the summary. ``calls``: those of each stack."""
    ways: dict[int, set[str]] = {}
    for row in trace.table("stacks").to_pylist():  # older traces do not say: they know frame pointers alone
        ways.setdefault(row["stack"], set()).update({row.get("way") or FRAME_POINTERS, row.get("end") or "unknown"})
    unknown = calls.get(UNKNOWN_U32, 0)
    pointed = sum(number for stack, number in calls.items() if FRAME_POINTERS in ways.get(stack, ()))
    return {
        "unwind tables": sum(calls.values()) - pointed - unknown,
        FRAME_POINTERS: pointed,
        "cut": sum(number for stack, number in calls.items() if "cut" in ways.get(stack, ())),
        "unknown": unknown,
    }


def stacks_of_calls(trace: Trace) -> dict[int, int]:
    """Id of a slow call → its stack, ``UNKNOWN_U32`` if nothing is known of it; empty: the trace has none."""
    found: dict[int, int] = {}
    for rows in trace.batches("call_stacks", ("operation", "stack")) if trace.rows("call_stacks") else ():
        found.update(zip(rows["operation"].tolist(), rows["stack"].tolist(), strict=True))
    return found


def has_name(function: str) -> bool:
    """False for a frame whose function has no name: :func:`functions_of` gives it its file and offset."""
    return "+0x" not in function


def functions_of(trace: Trace, stacks: set[int]) -> dict[int, tuple[str, ...]]:
    """The names of each stack's frames, the outermost first."""
    names, cut = dict[int, list[str]](), set[int]()
    for row in trace.table("stacks").to_pylist() if stacks else ():
        if row["stack"] in stacks:
            words = frame_words(row["function"], row["file"], row["offset"])
            names.setdefault(row["stack"], []).append(words)
            if row.get("end") == "cut":
                cut.add(row["stack"])
    return {stack: (*((CUT,) if stack in cut else ()), *reversed(frames)) for stack, frames in names.items()}
