"""Why a trace is empty, the likeliest reasons; and what stands out about rings, with the evidence."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lo2io.reports.lines import count_of
from lo2io.units import format_duration

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lo2io.model import Completeness
    from lo2io.reports.ring_rows import RingRow, RingsSummary
    from lo2io.reports.rows import Chosen

NAMED_EVENTS = 5
MANY = 100
"""Requests or calls from which on a habit is one."""
MOSTLY = 0.9
"""Share of the calls that submit a single request from which on that is how a program uses its ring."""
OFTEN = 0.1
"""Share of the requests on workers from which on they are worth a word."""


def why_nothing(meta: Mapping[str, Any], proof: Completeness, chosen: Chosen) -> tuple[str, ...]:
    """Sentences, the likeliest reason first; for a trace without a single call or request.

    Args:
        meta: The trace's metadata.
        proof: With its events: what the kernel counted of each.
        chosen: What the recording was confined to.
    """
    hints = []
    left_out = chosen.filtered_calls + chosen.filtered_requests + chosen.filtered_ring_requests
    filtered = chosen.filter and left_out  # else of other cgroups
    if filtered:
        hints.append(
            f"the filter {chosen.filter!r} left nothing of {chosen.filtered_calls:,} calls and "
            f"{chosen.filtered_requests + chosen.filtered_ring_requests:,} requests that were recorded"
        )
    elif chosen.filter and not proof.samples:
        hints.append(f"the kernel let nothing pass the filter {chosen.filter!r}")
    if chosen.cgroup and not filtered:
        hints.append(f"no process of the cgroup {chosen.cgroup} did any of what was recorded: are there any in it?")
    if chosen.cpus and not filtered:
        hints.append(f"only CPU {', '.join(map(str, chosen.cpus))} was recorded")
    if not hints and (chosen.own_calls or chosen.own_requests):
        own = f"{chosen.own_calls:,} calls and {chosen.own_requests:,} requests"
        hints.append(f"all there was, {own}, was lo2io's own, which is left out")
    hints += _idle_events(proof)
    if proof.samples and not hints:
        others = "processes that were not recorded" if meta["mode"] == "process" else "calls that had begun before"
        hints.append(f"all {proof.samples:,} events that happened were of {others}")
    return tuple(hints)


def _idle_events(proof: Completeness) -> list[str]:
    """Which events never happened, where the kernel's counts are known."""
    counts: dict[str, int] = {}
    for event in proof.events:
        if event.count is None:
            return []
        counts[event.event] = counts.get(event.event, 0) + event.count
    idle = [name for name, count in counts.items() if not count]
    if not idle:
        return []
    if len(idle) == len(counts):
        return [f"none of the {len(idle):,} chosen events happened while it was recorded"]
    named = ", ".join(idle[:NAMED_EVENTS]) + (
        f" and {len(idle) - NAMED_EVENTS:,} more" if len(idle) > NAMED_EVENTS else ""
    )
    return [f"never happened: {named}"]


def ring_findings(rings: RingsSummary) -> tuple[str, ...]:
    """Known ways not to get much out of a ring, each with the figures that show it; none for most traces."""
    found = []
    for ring in rings.rings:
        if ring.kind is not None:
            name = f"ring {ring_name(ring)}"
            found += [f"{name}: {text}" for text in (*_one_by_one(ring), *_on_workers(ring), *_overflowed(ring))]
    return tuple(found)


def ring_name(ring: RingRow) -> str:
    """Its number in the table, whose it is, and by which descriptor; libaio has none."""
    who = ring.comm or "unknown"
    owner = who if ring.pid is None else f"{who} ({ring.pid})"
    where = " libaio" if ring.kind == "libaio" else "" if ring.fd is None else f" fd {ring.fd}"
    return owner if ring.ring is None else f"{ring.ring}: {owner}{where}"


def kernel_submits(ring: RingRow) -> bool:
    """Calls only wake the thread of the kernel then, and return what they were asked to submit all the same."""
    return ring.poller or "SQPOLL" in (ring.flags or ())


def _one_by_one(ring: RingRow) -> list[str]:
    """A system call for each request: what rings were made to save. Where the kernel submits, calls only wake it."""
    batches = ring.batches
    single = sum(size.calls for size in batches.sizes if size.most == 1 and size.least == 1)
    if kernel_submits(ring) or batches.submitting < MANY or single < MOSTLY * batches.submitting:
        return []
    depth = (
        f"at most {ring.most_in_flight:,} under way at a time"
        if ring.most_in_flight
        else "how many were under way is not known"
    )
    return [f"{single:,} of {batches.submitting:,} submitting calls submit a single request ({depth})"]


def _on_workers(ring: RingRow) -> list[str]:
    """A hand-over to a thread and back for each request; and why, where one reason stands out."""
    found = []
    on_workers = sum(row.requests for row in ring.punted)
    if ring.written >= MANY and on_workers >= OFTEN * ring.written:
        main = ring.punted[0]
        because = f"{main.reason}{' (inferred)' if main.inferred else ''}: {main.requests:,}"
        found.append(f"{on_workers:,} of {ring.written:,} requests went to worker threads ({because}){_slower(ring)}")
    return found


def _slower(ring: RingRow) -> str:
    """Beside what went inline, if that is enough to compare with."""
    enough = OFTEN * ring.written
    medians = {row.path: row.latency.p50_ns for row in ring.paths if row.latency.nr >= enough}
    if "worker" not in medians or "inline" not in medians:
        return ""
    return f"; half took over {format_duration(medians['worker'])}, inline {format_duration(medians['inline'])}"


def _overflowed(ring: RingRow) -> list[str]:
    if not ring.overflows:
        return []
    room = f" in the queue of {ring.cq_entries:,}" if ring.cq_entries else ""
    missed = f"{count_of(ring.overflows, 'completion')} found no room{room}"
    return [f"{missed}: collect more often, or ask for a larger completion queue"]
