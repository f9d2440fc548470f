"""What a recording was confined to, and what it left out, as its metadata tell."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lo2io.frozen import dataclass

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class Chosen:
    """The limits of the recording, and what it left out."""

    filter: str
    """The filter's text. Here and below, an empty value means no limit."""
    cgroup: str
    cpus: tuple[int, ...]
    recorded_ns: int | None
    """For a flight recorder's window: the time from the recording's start to the window's end."""
    filtered_calls: int
    """Recorded calls that the filter left out."""
    filtered_requests: int
    """Requests of disks that the filter left out."""
    own_calls: int
    """Calls of lo2io itself."""
    own_requests: int
    sample_rate: int = 1
    """The trace has one of this many requests of rings."""
    ring_requests: int = 0
    """All requests of rings, with those left out."""
    filtered_ring_requests: int = 0


def read_chosen(meta: Mapping[str, Any]) -> Chosen:
    """The limits that the metadata of a trace tell."""
    filtered, totals = meta.get("filtered", {}), meta["totals"]
    began = meta.get("recording_start_ns")
    return Chosen(
        filter=meta.get("filter", ""),
        cgroup=meta.get("cgroup", ""),
        cpus=tuple(meta.get("chosen_cpus", ())),
        recorded_ns=None if began is None else meta["stop_ns"] - began,
        filtered_calls=filtered.get("calls", 0),
        filtered_requests=filtered.get("requests", 0),
        filtered_ring_requests=filtered.get("ring_requests", 0),
        own_calls=totals.get("nr_own_calls", 0),
        own_requests=totals.get("nr_own_requests", 0),
        sample_rate=meta.get("sample_rate", 1),
        ring_requests=totals.get("nr_ring_requests", 0),
    )
