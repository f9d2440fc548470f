"""The likeliest reasons why a trace is empty."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lo2io.model import Completeness
    from lo2io.reports.summary.chosen import Chosen

NAMED_EVENTS = 5


def why_nothing(meta: Mapping[str, Any], proof: Completeness, chosen: Chosen) -> tuple[str, ...]:
    """Sentences about a trace without a single call or request, the likeliest reason first.

    Args:
        meta: The trace's metadata.
        proof: The proof of completeness, with the kernel's count of each event.
        chosen: The limits of the recording.
    """
    hints = []
    left_out = chosen.filtered_calls + chosen.filtered_requests + chosen.filtered_ring_requests
    filtered = chosen.filter and left_out  # otherwise rows were left out for their cgroup
    if filtered:
        hints.append(
            f"the filter {chosen.filter!r} left out all {chosen.filtered_calls:,} calls and "
            f"{chosen.filtered_requests + chosen.filtered_ring_requests:,} requests that were recorded"
        )
    elif chosen.filter and not proof.samples:
        hints.append(f"no event in the kernel passed the filter {chosen.filter!r}")
    if chosen.cgroup and not filtered:
        hints.append(
            f"no process of the cgroup {chosen.cgroup} made a recorded call or request: does it have any process?"
        )
    if chosen.cpus and not filtered:
        hints.append(f"only CPU {', '.join(map(str, chosen.cpus))} was recorded")
    if not hints and (chosen.own_calls or chosen.own_requests):
        own = f"{chosen.own_calls:,} calls and {chosen.own_requests:,} requests"
        hints.append(f"all I/O, {own}, was lo2io's own, which is left out")
    if not filtered:  # with a filter, the recorded rows are missing for this reason alone
        hints += _idle_events(proof)
    if proof.samples and not hints:
        others = "processes that were not recorded" if meta["mode"] == "process" else "calls that had begun before"
        hints.append(f"all {proof.samples:,} events that happened were of {others}")
    return tuple(hints)


def _idle_events(proof: Completeness) -> list[str]:
    """A sentence about events that never happened, if the kernel's counts are known."""
    counts: dict[str, int] = {}
    for event in proof.events:
        if event.count is None:
            return []
        counts[event.event] = counts.get(event.event, 0) + event.count
    idle = [name for name, count in counts.items() if not count]
    if not idle:
        return []
    if len(idle) == len(counts):
        return [f"none of the {len(idle):,} chosen events happened during the recording"]
    named = ", ".join(idle[:NAMED_EVENTS]) + (
        f" and {len(idle) - NAMED_EVENTS:,} more" if len(idle) > NAMED_EVENTS else ""
    )
    return [f"never happened: {named}"]
