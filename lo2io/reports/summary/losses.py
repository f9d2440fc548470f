"""The proof of completeness: what the kernel counted against what was read.

In: the counts of the spool, the samples the engine saw, its totals. Out: a :class:`Completeness` and the line every
command ends with. It does not know how rings are read, nor what the samples mean.

``count - lost = samples`` must hold for every event on every CPU. What is missing without the kernel having said so
has *vanished*, and counts as lost. Counts read while the event went on happening (a flight recorder's window) are known
to lie within ``[count, count + slack]``, no better: samples that agree with any count of that range are proven.
"""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING

from lo2io.model import Completeness, EventCompleteness

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from lo2io.model import EventCounts, SpoolMeta, Totals

NAMED_EVENTS = 3
"""Events named in the line; the table ``completeness`` has them all."""
REQUEST_END = "block:block_rq_complete"
"""The event that ends a block request. It happens in an interrupt, so its samples name no owner."""


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


def completeness_line(
    proof: Completeness, reconciliation: str = "", filtered: str = "", sampled: str = "", shortfall: str = ""
) -> str:
    """What was captured, of how much; exactly what is missing; the other three counters; and what else bears witness.

    Args:
        proof: The four counters.
        reconciliation: What was captured of the kernel's own accounts, in words.
        filtered: What a filter left out of what was captured, in words.
        sampled: That of the requests of rings not all were written, in words.
        shortfall: That too little was captured of the kernel's own accounts, in words. The line begins with it.
    """
    first = _short(proof, shortfall) if shortfall else _verdict(proof)
    others = f"late {proof.late:,} · orphan {proof.orphan:,} · in flight {proof.in_flight:,}"
    ends = f"ends inferred {proof.inferred_ends:,}, unknown {proof.unknown_ends:,}" if proof.unseen_ends else ""
    return " · ".join(part for part in (first, others, ends, reconciliation, filtered, sampled) if part)


def verdict(proof: Completeness, shortfall: str = "") -> str:
    """The line in a word: ``short``, ``complete``, ``not proven`` or ``incomplete``."""
    if shortfall:
        return "short"
    if proof.whole:
        return "complete"
    return "incomplete" if _counts_known(proof) else "not proven"


def filtered_words(text: str, calls: int, requests: int, ring_requests: int = 0) -> str:
    """That a filter was applied, and how much of what was recorded it left out; empty if there is none.

    Args:
        text: The filter.
        calls: Calls left out.
        requests: Block requests left out.
        ring_requests: Requests of rings left out.
    """
    if not (text or calls or requests or ring_requests):
        return ""
    if ring_requests:
        return f"filtered: {calls:,} calls, {requests:,} requests and {ring_requests:,} of rings left out"
    return f"filtered: {calls:,} calls and {requests:,} requests left out"


def sampled_words(rate: int, requests: int) -> str:
    """That one request of rings in so many was written; empty if all were.

    Args:
        rate: ``sample_rate`` of the metadata.
        requests: All of them, written or not.
    """
    return f"sampled: 1 in {rate:,} of {requests:,} requests of rings written" if rate > 1 else ""


def _counts_known(proof: Completeness) -> bool:
    return bool(proof.events) and all(event.count is not None for event in proof.events)


def _verdict(proof: Completeness) -> str:
    if not _counts_known(proof):
        lost = f", at least {proof.lost:,} lost" if proof.lost else ""
        return f"not proven: {proof.samples:,} events captured{lost}; the kernel's counts are not known"
    if not proof.whole:
        return f"incomplete: {_captured(proof)}, {_all_missing(proof)}"
    if not proof.lost:
        return f"complete: {_captured(proof)}"
    number = f"{proof.unseen_ends:,} block request{'' if proof.unseen_ends == 1 else 's'}"
    unseen = f" but for the ends of {number}" if proof.unseen_ends else ""
    return "; ".join(part for part in (f"{proof.whose}: complete{unseen}", _elsewhere(proof)) if part)


def _short(proof: Completeness, shortfall: str) -> str:
    """Whatever the counts say: what lies beyond the events that were counted is missing, so nothing is complete."""
    missing = f", {_all_missing(proof)}" if proof.lost or not proof.whole else ""
    known = _counts_known(proof)
    return f"incomplete: {shortfall} · {_captured(proof)}{missing}" if known else f"{shortfall} · {_verdict(proof)}"


def _captured(proof: Completeness) -> str:
    counted = sum(_counted(event) for event in proof.events)
    slack = sum(event.slack for event in proof.events)
    uncertain = f" (counted to within {slack:,})" if slack else ""
    return f"{proof.samples:,} of {counted:,} counted events captured{uncertain}"


def _elsewhere(proof: Completeness) -> str:
    if not proof.elsewhere:
        return ""
    counted = sum(_counted(event) for event in proof.events)
    how = "vanished" if proof.lost == proof.vanished else "missing"
    return f"elsewhere on the machine: {proof.elsewhere:,} of {counted:,} counted events {how}, all {REQUEST_END}"


def _all_missing(proof: Completeness) -> str:
    surplus = sum(event.surplus for event in proof.events)
    parts = [
        *_missing(proof),
        f"{surplus:,} more than counted" if surplus else "",
        f"out of sight since their exec: {proof.unfollowed:,}" if proof.unfollowed else "",
        f"32-bit programs without their calls: {proof.compat:,}" if proof.compat else "",
    ]
    return ", ".join(part for part in parts if part) or "but the spool is damaged"


def _counted(event: EventCompleteness) -> int:
    """The count within its range that agrees best with the samples."""
    least = event.count or 0
    return min(max(least, event.samples + event.lost), least + event.slack)


def _missing(proof: Completeness) -> list[str]:
    """What rings had no room for, as the kernel says, and what it counted and never delivered: two ailments."""
    in_rings = proof.lost - proof.vanished
    # Kernels that do not tell losses by event: what the rings lost is missing among what vanished, nobody knows where.
    untold = sum(event.vanished for event in proof.events) > proof.vanished
    lost = "" if untold else _where((event.event, event.lost) for event in proof.events)
    side_records = "" if untold else ": records of forks, exits and names"
    vanished = "" if untold else _where((event.event, event.vanished) for event in proof.events)
    return [
        f"{in_rings:,} lost{lost or side_records}" if in_rings else "",
        f"{proof.vanished:,} vanished{vanished}" if proof.vanished else "",
    ]


def _where(missing: Iterable[tuple[str, int]]) -> str:
    by_name = groupby(sorted(missing), key=lambda each: each[0])
    worst = sorted(((sum(number for _, number in group), name) for name, group in by_name), reverse=True)
    worst = [(number, name) for number, name in worst if number]
    if not worst:
        return ""
    named = ", ".join(f"{name} {number:,}" for number, name in worst[:NAMED_EVENTS])
    rest = len(worst) - NAMED_EVENTS
    return f": {named}" + (f" and {rest} more events" if rest > 0 else "")
