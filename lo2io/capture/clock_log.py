"""The machine's clocks, read once a second. In: clocks. Out: readings in the spool, which align the clocks of nodes."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from lo2io.native._lib import ffi, lib
from lo2io.units import NS_PER_S

if TYPE_CHECKING:
    from lo2io.spool.sinks import Sink

PERIOD_NS = NS_PER_S
"""NTP changes the rate of CLOCK_MONOTONIC at any time. Between two readings, the rate counts as steady."""
NR_TRIES = 8
"""Of these the tightest counts. A try takes about 0.3 µs."""


class ClockLog:
    """Appends readings to a file of the spool.

    Args:
        sink: The file. Its errors are those of :meth:`~lo2io.spool.sinks.Sink.append`.
    """

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._reading = ffi.new("lo2_clock_reading *")
        self._due_ns = 0

    def read_if_due(self) -> None:
        """Read the clocks if a second has passed since the last reading."""
        if time.monotonic_ns() >= self._due_ns:
            self.read()

    def read(self) -> None:
        """Read the clocks now."""
        lib.lo2_read_clocks(NR_TRIES, self._reading)
        self._sink.append([bytes(ffi.buffer(self._reading))])
        self._due_ns = self._reading.monotonic_ns + PERIOD_NS
