"""Where the time went, in a few lines: the first thing that a report says.

In: waits by reason (layer ``waits``), and the usage of the command. Out: an :class:`Answer`, or None if the recording
does not tell when threads had a CPU.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lo2io.frozen import dataclass

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lo2io.reports.summary.usage import UsageRow
    from lo2io.reports.summary.waits import WaitRow

MAX_PARTS: Final = 5
"""The largest parts. The others are one part."""
ON_CPU, RUN_QUEUE, UNSEEN, OUTSIDE, OTHERS = (
    "on a CPU", "ready, without a CPU", "in calls, not known", "outside of recorded calls", "other waits",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class AnswerPart:
    """A part of the time, over all threads."""

    what: str
    """A reason of waits, or one of the words above."""
    time_ns: int


@dataclass(frozen=True, slots=True)
class Answer:
    """The parts add up to the whole, the largest first."""

    of: str
    """What the time is of: ``threads`` (their lives), or ``calls``."""
    whole_ns: int
    parts: tuple[AnswerPart, ...]


def answer(total: WaitRow | None, usage: UsageRow | None) -> Answer | None:
    """Put the parts together.

    Args:
        total: The time of all calls, by reason; None: not recorded.
        usage: Of the command; None: the time of calls is the whole.
    """
    if total is None or not total.time_ns:
        return None
    cpu_ns = total.cpu_ns
    whole_ns, of = total.time_ns, "calls"
    if usage is not None and usage.cpu_ns is not None and usage.threads_ns >= total.time_ns:
        # Most of the time outside of calls is in user mode. For other time there, no reason is recorded.
        cpu_ns = max(cpu_ns, min(usage.cpu_ns, usage.threads_ns - (total.time_ns - total.cpu_ns)))
        whole_ns, of = usage.threads_ns, "threads"
    known = sorted(_parts(total, cpu_ns), key=lambda part: -part.time_ns)
    rest = sum(part.time_ns for part in known[MAX_PARTS:])
    known = [*known[:MAX_PARTS], *([AnswerPart(OTHERS, rest)] if rest else [])]
    outside = whole_ns - sum(part.time_ns for part in known)
    if outside:
        known.append(AnswerPart(OUTSIDE, outside))
    return Answer(of, whole_ns, tuple(sorted(known, key=lambda part: -part.time_ns)))


def _parts(total: WaitRow, cpu_ns: int) -> Iterator[AnswerPart]:
    told = sum(reason.time_ns for reason in total.reasons)
    for what, time_ns in (
        (ON_CPU, cpu_ns),
        (RUN_QUEUE, total.run_queue_ns),
        (UNSEEN, total.unknown_ns + max(0, total.blocked_ns - told)),
        *((reason.reason, reason.time_ns) for reason in total.reasons),
    ):
        if time_ns > 0:
            yield AnswerPart(what, time_ns)
