"""The status of a recording: buffers and counts in, rates and losses out.

Reading an event's count interrupts the event's CPU, and is itself a recorded system call. So each look counts the
events of a few CPUs only. The other buffers' heads cost nothing to read, and show what happened there since. lo2io
reads the counts of its programs from memory that it shares with them.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from lo2io.kernel import abi
from lo2io.model.status import Status

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from lo2io.capture.events.opened import OpenEvents

_AT_ONCE = 4
"""The number of CPUs whose events are counted at a time."""
_FIRST_GUESS_BYTES = 44.0
"""Size of one sample: a system call's exit."""


class Meter:
    """Measures the status. Call :meth:`read` from one thread only.

    Args:
        opened: The events of the recording.
        spool_bytes: Tells the spool's size.
        clock: Tells the time in seconds.
    """

    def __init__(
        self,
        opened: OpenEvents,
        spool_bytes: Callable[[], int],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._opened = opened
        self._spool_bytes = spool_bytes
        self._clock = clock
        self._begin = clock()
        self._turn = 0
        self._counted = [(0, 0, ring.head) for ring in opened.rings]
        self._last = (self._begin, 0, sum(self._heads()))

    def read(self) -> Status:
        """The status now. Each call counts the events of the next few CPUs."""
        nr_cpus = len(self._counted)
        for index in range(self._turn, self._turn + min(_AT_ONCE, nr_cpus)):
            self._count(index % nr_cpus)
        self._turn = (self._turn + _AT_ONCE) % nr_cpus
        now = self._clock()
        heads = self._heads()
        nr_counted = sum(count for count, _, _ in self._counted)
        counted_bytes = sum(head for count, _, head in self._counted if count)
        mean = counted_bytes / nr_counted if nr_counted else _FIRST_GUESS_BYTES
        # A CPU that came later has a buffer after the others. If it came back, its events count with the former CPU's.
        grown = sum(head - at for head, (_, _, at) in zip(heads, self._counted, strict=False))
        kernel = self._opened.kernel
        nr_records, nr_records_lost = kernel.count_all() if kernel else (0, 0)
        nr_events = nr_counted + round(grown / mean) + nr_records
        before, events_before, bytes_before = self._last
        seconds = max(now - before, 1e-9)
        self._last = (now, nr_events, sum(heads))
        return Status(
            elapsed_s=now - self._begin,
            nr_events=nr_events,
            events_per_s=max(0.0, nr_events - events_before) / seconds,
            bytes_per_s=(sum(heads) - bytes_before) / seconds,
            nr_lost=sum(lost for _, lost, _ in self._counted) + nr_records_lost,
            ring_fill=max(self._fills()),
            spool_bytes=self._spool_bytes(),
        )

    def _heads(self) -> list[int]:
        """Bytes written to each buffer so far: first those of samples, then those of programs."""
        kernel = self._opened.kernel
        return [ring.head for ring in self._opened.rings] + [ring.head for ring in (kernel.rings if kernel else ())]

    def _fills(self) -> Iterator[float]:
        """The full share of each buffer."""
        for ring in self._opened.rings:
            yield ring.fill_bytes / ring.size
        for taken in self._opened.kernel.rings if self._opened.kernel else ():
            yield taken.taken

    def _count(self, index: int) -> None:
        head = self._opened.rings[index].head
        has_lost = self._opened.has_lost
        fds = [fd for per_cpu in self._opened.tracepoints for fd in per_cpu[index]]
        self._counted[index] = (*abi.sum_counts(fds, has_lost=has_lost), head)
