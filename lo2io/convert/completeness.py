"""The proof of completeness: what the kernel counted against what was read.

In: the counts of the spool, the samples the engine saw, its totals. Out: a :class:`Completeness`. It does not know how
rings are read, nor what the samples mean; ``lo2io/reports/summary/losses.py`` has the words for it.

``count - lost = samples`` must hold for every event on every CPU. What is missing without the kernel having said so
has *vanished*, and counts as lost. Counts read while the event went on happening (a flight recorder's window) are known
to lie within ``[count, count + slack]``, no better: samples that agree with any count of that range are proven.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lo2io.model import Completeness, EventCompleteness
from lo2io.model.trace import REQUEST_END

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

    from lo2io.model import EventCounts, SpoolMeta, Totals


def completeness(meta: SpoolMeta, seen: Sequence[NDArray[np.uint64]], totals: Totals) -> Completeness:
    """Reconcile counts and samples.

    Args:
        meta: Its ``counts`` are empty if the recording did not end in good order.
        seen: Samples of each event, one array of shape (events,) a CPU, in the order of ``meta.cpus``.
        totals: The engine's, final.

    Returns:
        ``lost`` holds what the kernel reported, what vanished, and records that are no samples (forks, names) lost
        beyond that: without them the choice of tasks is not proven either. Programs that the kernel did not run would
        have counted something: what that was vanished, too.
    """
    counted = {counts.name: counts for counts in meta.counts}
    events = tuple(
        _event(meta, counted.get(name), seen, event, index)
        for event, name in enumerate(meta.events)
        for index in range(len(meta.cpus))
    )
    reported = sum(event.lost for event in events)
    missing = sum(event.vanished for event in events) + meta.missed_runs
    # Before Linux 6.0 the kernel tells a ring's losses, not an event's: those are no longer unexplained.
    untold = any(counts.lost is None for counts in meta.counts)
    explained = min(missing, max(0, totals.nr_lost - reported)) if untold else 0
    lost = max(reported + missing, totals.nr_lost)
    known = meta.complete and all(event.count is not None for event in events)
    agree = not any(event.vanished or event.surplus for event in events)
    # Events of CPUs go on, whatever an exec does to the events of its task.
    unfollowed = totals.nr_gone_in_exec if meta.scope == "inherit" else 0
    followed = not (unfollowed or totals.nr_compat_programs)
    readable = known and followed and not (totals.nr_undecoded or totals.truncated_bytes)
    own = meta.mode == "process"
    return Completeness(
        lost=lost,
        vanished=missing - explained,
        late=totals.nr_late,
        orphan=totals.nr_orphan_exits + totals.nr_orphan_completions + totals.nr_orphan_cqes,
        in_flight=totals.nr_in_flight_calls + totals.nr_in_flight_requests + totals.nr_in_flight_ring_requests,
        samples=sum(event.samples for event in events),
        proven=readable and agree and lost == reported,
        events=events,
        unfollowed=unfollowed,
        compat=totals.nr_compat_programs,
        recorded_whole=own and readable and totals.nr_lost == reported and _only_ends_missing(events, lost),
        whose=("your command" if meta.command else "the recorded processes") if own else "",
        inferred_ends=totals.nr_inferred_ends,
        unknown_ends=totals.nr_unknown_ends,
    )


def _only_ends_missing(events: Sequence[EventCompleteness], lost: int) -> bool:
    """Whether all that is missing are ends of block requests, by the kernel's counts.

    Then no call, no request of a ring and no beginning of a block request is missing, whoever made it: each is an event
    of its own. A request whose end is missing is known by its beginning. So a missing end that belongs to none of the
    recorded processes' requests is about other processes.
    """
    ends = sum(event.lost + event.vanished for event in events if event.event == REQUEST_END)
    return lost == ends and not any(event.surplus for event in events)


def _event(
    meta: SpoolMeta, counts: EventCounts | None, seen: Sequence[NDArray[np.uint64]], event: int, index: int
) -> EventCompleteness:
    return EventCompleteness(
        event=meta.events[event],
        cpu=meta.cpus[index].cpu,
        count=None if counts is None else counts.counts[index],
        lost=0 if counts is None or counts.lost is None else counts.lost[index],
        samples=int(seen[index][event]),
        slack=0 if counts is None or counts.slack is None else counts.slack[index],
    )
