"""The line about a recording's completeness, with which every command ends.

In: a :class:`Completeness`, which ``lo2io/convert/completeness.py`` computes or a trace has stored. Out: text.
"""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING

from lo2io.model.trace import REQUEST_END

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lo2io.model import Completeness, EventCompleteness

NAMED_EVENTS = 3
"""The number of events named in the line. The table ``completeness`` has all events."""


def completeness_line(
    proof: Completeness, reconciliation: str = "", filtered: str = "", sampled: str = "", shortfall: str = ""
) -> str:
    """The line: captured and missing events, the other three counters, and the kernel's accounts.

    Args:
        proof: The four counters.
        reconciliation: The captured part of the kernel's own accounts, in words.
        filtered: The rows that a filter left out, in words.
        sampled: The written part of the rings' requests, in words.
        shortfall: A warning, if too little of the kernel's own accounts was captured. The line begins with it.
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
    """The filter, and how much it left out, in words; empty without a filter.

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
    """The written part of the rings' requests, in words; empty if all were written.

    Args:
        rate: ``sample_rate`` of the metadata.
        requests: The number of all requests, written or not.
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
    """The words for a shortfall.

    A shortfall outweighs the counts, because events are missing that were never counted.
    """
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
        f"calls of x32 or 32-bit programs not recorded: {proof.foreign:,}" if proof.foreign else "",
        f"CPUs not recorded for a time: {proof.absent_cpus:,}" if proof.absent_cpus else "",
        f"requests of libaio without a row: {proof.untold_iocbs:,}" if proof.untold_iocbs else "",
        "the recording ended early" if proof.ended_early else "",
        f"bytes missing from the spool: {proof.missing_bytes:,}" if proof.missing_bytes else "",
    ]
    return ", ".join(part for part in parts if part) or "but the spool is damaged"


def _counted(event: EventCompleteness) -> int:
    """The count within its range that agrees best with the samples."""
    least = event.count or 0
    return min(max(least, event.samples + event.lost), least + event.slack)


def _missing(proof: Completeness) -> list[str]:
    """The words for three kinds of loss: a buffer had no room for events, or for other records; or nobody saw them."""
    in_buffers = proof.lost - proof.vanished
    # Some kernels do not count losses by event. Then the buffers' losses are counted as vanished, of unknown events.
    untold = sum(event.vanished for event in proof.events) > proof.vanished
    of_events = in_buffers if untold else sum(event.lost for event in proof.events)
    others = in_buffers - of_events
    lost = "" if untold else _where((event.event, event.lost) for event in proof.events)
    vanished = "" if untold else _where((event.event, event.vanished) for event in proof.events)
    return [
        f"{of_events:,} lost{lost}" if of_events else "",
        f"{others:,} lost: records of forks, exits, names, layers or files" if others else "",
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
