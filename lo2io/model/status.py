"""The state of a recording, as capturing measures it and the user sees it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Status:
    """The state of a recording at one moment."""

    elapsed_s: float
    nr_events: int
    """Events so far. For CPUs without a fresh count, the growth of their buffers gives an estimate."""
    events_per_s: float
    """Rate since the last status; so is the next field."""
    bytes_per_s: float
    nr_lost: int
    """The kernel's count for each CPU, when it was last read."""
    ring_fill: float
    """Fill of the fullest buffer, 0 to 1."""
    spool_bytes: int
