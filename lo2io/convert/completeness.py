"""The proof of completeness: a comparison of the kernel's counts with the samples that were read.

In: the counts of the spool, the samples that the engine saw, its totals. Out: a :class:`Completeness`. This module
knows neither how buffers are read nor what samples mean. ``lo2io/reports/summary/losses.py`` has the words for it.

``count - lost = samples`` must hold for every event on every CPU. A sample that is missing without a report by the
kernel has *vanished*, and counts as lost. Some counts are read while their event goes on (a flight recorder's window).
Such a count lies within ``[count, count + slack]``: samples that agree with any count of that range are proven.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lo2io.model import Completeness, EventCompleteness
from lo2io.model.notices import NoticeKind, kind_of
from lo2io.model.trace import REQUEST_END

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

    from lo2io.model import Absence, EventCounts, SpoolMeta, Totals


def completeness(
    meta: SpoolMeta, seen: Sequence[NDArray[np.uint64]], totals: Totals, missing_bytes: int = 0
) -> Completeness:
    """Reconcile counts and samples.

    Args:
        meta: Its ``counts`` are empty if the recording did not end in good order.
        seen: Samples of each event: for each CPU, in the order of ``meta.cpus``, an array of shape (events,).
        totals: The engine's final totals.
        missing_bytes: Bytes that were recorded and that the spool lacks.

    Returns:
        ``lost`` adds up what the kernel reported, what vanished, and lost records of layers and of facts. If the
        kernel skipped a program, the events that this program would have counted have vanished, too.
    """
    counted = {counts.name: counts for counts in meta.counts}
    events = tuple(
        _event(meta, counted.get(name), seen, event, index)
        for event, name in enumerate(meta.events)
        for index in range(len(meta.cpus))
    )
    reported = sum(event.lost for event in events)
    missing = sum(event.vanished for event in events) + meta.missed_runs
    # Before Linux 6.0 the kernel tells the losses of a buffer, not of an event. Those losses have an explanation.
    by_buffer = any(counts.lost is None for counts in meta.counts)
    explained = min(missing, max(0, totals.nr_lost - reported)) if by_buffer else 0
    of_samples = max(reported + meta.tasks_lost + missing, totals.nr_lost)
    # No event counts rows of layers or facts. But the trace is made of them, too, so each lost one counts.
    lost = of_samples + totals.nr_lost_rows + meta.facts_lost
    known = bool(events) and meta.complete and all(event.count is not None for event in events)
    agree = not any(event.vanished or event.surplus for event in events)
    unseen = _unseen(meta, totals)
    unreadable = totals.nr_undecoded or totals.truncated_bytes or missing_bytes
    readable = known and not unreadable and not any(unseen.values())
    own = meta.mode == "process"
    return Completeness(
        lost=lost,
        vanished=missing - explained,
        late=totals.nr_late,
        orphan=totals.nr_orphan_exits + totals.nr_orphan_completions + totals.nr_orphan_cqes,
        in_flight=totals.nr_in_flight_calls + totals.nr_in_flight_requests + totals.nr_in_flight_ring_requests,
        samples=sum(event.samples for event in events),
        proven=readable and agree and of_samples == reported,
        events=events,
        recorded_whole=own and readable and totals.nr_lost == reported and _only_ends_missing(events, lost),
        whose=("your command" if meta.command else "the recorded processes") if own else "",
        inferred_ends=totals.nr_inferred_ends,
        unknown_ends=totals.nr_unknown_ends,
        missing_bytes=missing_bytes,
        **unseen,
    )


def _unseen(meta: SpoolMeta, totals: Totals) -> dict[str, Any]:
    """What was not recorded and is no event that the kernel counts: fields of :class:`Completeness`."""
    return {
        # Only events of tasks can end in an exec. Events of CPUs go on.
        "unfollowed": totals.nr_gone_in_exec if meta.scope == "inherit" else 0,
        "compat": totals.nr_compat_programs,
        "foreign": meta.foreign_calls,
        "absent_cpus": len({each.cpu for each in meta.absences if _is_within(each, meta)}),
        # perf alone cannot tell what an io_submit was given: the trace has no requests of libaio then.
        "untold_iocbs": totals.nr_untold_iocbs if meta.has_kernel_records else 0,
        "ended_early": any(kind_of(notice) is NoticeKind.ENDED_EARLY for notice in meta.notices),
    }


def _is_within(absence: Absence, meta: SpoolMeta) -> bool:
    """True if a CPU was absent at some time of the recording, of which a spool may have a part only."""
    ends_before = absence.end_ns is not None and absence.end_ns < meta.start_ns
    return not ends_before and (meta.stop_ns is None or absence.begin_ns < meta.stop_ns)


def _only_ends_missing(events: Sequence[EventCompleteness], lost: int) -> bool:
    """True if, by the kernel's counts, only ends of block requests are missing.

    Each call, request of io_uring and beginning of a block request is an event of its own, so none of these is missing
    for any process. What is made of other records is complete, too: their losses are in ``lost``. A request without an
    end is known by its beginning. So a missing end that belongs to none of the recorded processes' requests is about
    other processes.
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
