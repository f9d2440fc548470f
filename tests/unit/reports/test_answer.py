"""The first thing that a report says: parts that add up to the whole, the largest first."""

from __future__ import annotations

import dataclasses

from lo2io.reports.summary.answer import MAX_PARTS, ON_CPU, OTHERS, OUTSIDE, RUN_QUEUE, UNSEEN, Answer, answer
from lo2io.reports.summary.usage import UsageRow
from lo2io.reports.summary.waits import ReasonRow, WaitRow

CALLS = WaitRow("all", 9, 1000, 100, 50, 800, 50, (ReasonRow("journal", 4, 500), ReasonRow("lock", 2, 200)))
USAGE = UsageRow(3000, 3000, 1000, 0.3, 400, 300, 100, None, 0, 0, 0, 0)


def parts(found: Answer | None) -> dict[str, int]:
    """Part → its time. They must add up."""
    assert found is not None
    assert sum(part.time_ns for part in found.parts) == found.whole_ns
    assert [part.time_ns for part in found.parts] == sorted((part.time_ns for part in found.parts), reverse=True)
    return {part.what: part.time_ns for part in found.parts}


def test_calls_alone() -> None:
    """Without the command's usage the whole is the time in calls. A wait without a reason is not known."""
    assert parts(answer(CALLS, None)) == {"journal": 500, "lock": 200, UNSEEN: 150, ON_CPU: 100, RUN_QUEUE: 50}


def test_lives_of_threads() -> None:
    """With it the whole is their lives: all CPU time counts, and what nobody looked at is said."""
    found = parts(answer(CALLS, USAGE))
    assert found == {OUTSIDE: 1700, "journal": 500, ON_CPU: 400, "lock": 200, UNSEEN: 150, RUN_QUEUE: 50}


def test_more_cpu_time_than_there_is_room_for() -> None:
    """Figures of the kernel's ticks may exceed the time outside of waits: the parts add up all the same."""
    usage = dataclasses.replace(USAGE, threads_ns=1000, cpu_ns=5000)
    assert parts(answer(CALLS, usage))[ON_CPU] == 100


def test_small_waits_are_one_part() -> None:
    """Of many reasons the largest are named."""
    reasons = tuple(ReasonRow(f"reason {number}", 1, 100 - number) for number in range(12))
    blocked = sum(reason.time_ns for reason in reasons)
    found = parts(answer(WaitRow("all", 1, blocked, 0, 0, blocked, 0, reasons), None))
    assert len(found) == MAX_PARTS + 1
    assert found[OTHERS] == sum(reason.time_ns for reason in reasons[MAX_PARTS:])


def test_nothing_recorded() -> None:
    """There is no answer without the layer, nor without a call."""
    assert answer(None, USAGE) is None
    assert answer(WaitRow("all", 0, 0, 0, 0, 0, 0, ()), None) is None
