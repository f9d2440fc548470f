"""How a recording is getting on: what capturing measures, and what is shown of it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Status:
    """A recording at one moment."""

    elapsed_s: float
    nr_events: int
    """So far; of CPUs that were not just counted, by their rings' growth since they were last counted."""
    events_per_s: float
    """Since the status before, as the next."""
    bytes_per_s: float
    nr_lost: int
    """What the kernel said of each CPU when it was last counted."""
    ring_fill: float
    """Of the fullest ring, 0 to 1."""
    spool_bytes: int
