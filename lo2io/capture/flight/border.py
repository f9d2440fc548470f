"""The kernel's counts at a border: the place in a buffer where one segment of the spool ends and the next begins.

A recording proves its completeness by ``count - lost = samples``, and so does each part of it. But events go on while
the counts are read.

lo2io's programs count in memory that lo2io maps. So the counts are read twice, and the place in between, until nothing
has happened meanwhile (``native/capture/counts.c``). That takes a few microseconds, and is exact.

perf's counts take a system call each. So the head of the buffer is read right before and right after each count::

    head ── count ── head ── border: the head when all counts are read
      │       ?        │  samples here came after the count: they are added to it
      └ samples here are uncertain: the count of their event is read again

The thread reads each CPU's counts on that CPU. Then no other thread can be between counting an event and writing its
sample. Interrupts can. The thread's own calls of read(2) can, too, and lo2io knows their place relative to the count.
No call of another thread runs there: the programs have written its entry when the thread left the CPU.
"""

from __future__ import annotations

import os
import struct
import threading
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from lo2io.errors import CaptureError
from lo2io.kernel import abi
from lo2io.native._lib import ffi, lib

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lo2io.capture.events.opened import OpenEvents
    from lo2io.capture.events.ring import Ring
    from lo2io.catalog.layouts import Layout

NR_TRIES = 4
"""How often a count is read again if samples of its event came meanwhile. What is uncertain after that is *slack*."""
NR_WAITS = 100
WAIT_S = 0.001
"""How often, and how long, to wait for a program that has lost its CPU amid its work (Linux 6.19 and later)."""
RECORD_SAMPLE = 9
_RAW_AT = 20
"""Where a sample's raw data begins: after header, time and size."""
_TYPE = struct.Struct("<H")
_TID = struct.Struct("<i")
_UNDER_WAY = (1, 3)
"""How many samples another CPU may have counted and not written yet: one of a system call; of other events one in each
context that can interrupt another (task, softirq, interrupt)."""


@dataclass(frozen=True, slots=True)
class Reading:
    """The counts of one event on one CPU, at one place of its buffer."""

    count: int
    slack: int = 0
    """The true count may be larger by up to this number."""
    lost: int = 0


class BorderReader:
    """Reads counts and heads, one buffer after the other.

    Args:
        opened: Events per CPU (scope ``system``).
        layout: The layouts of ``opened.names``, in that order.
    """

    def __init__(self, opened: OpenEvents, layout: Layout) -> None:
        self._opened = opened
        self._ids = [event.type for event in layout.events]
        self._names = opened.names
        self._type_at = _RAW_AT + layout.type_offset
        self._tid_at = _RAW_AT + layout.pid_offset

    def ring_of(self, index: int) -> int:
        """The newest buffer of a CPU: if the CPU came back, its former buffer is empty and stays so."""
        cpu = self._opened.cpus[index]
        return max(number for number, place in enumerate(self._opened.ring_cpus) if place == cpu)

    def read(self, index: int, *, on_cpu: bool) -> tuple[int, list[Reading]]:
        """Find a place at the end of the contents of a CPU's newest buffer, and the counts there. Nothing is released.

        Args:
            index: The CPU's place in ``opened.cpus``.
            on_cpu: The calling thread runs on this CPU and on no other.

        Returns:
            The place, a position of the buffer's head, and each event's reading.

        Raises:
            CaptureError: The counts cannot be read.
        """
        ring = self._opened.rings[self.ring_of(index)]
        own = threading.get_native_id()
        fds = [per_cpu[index][-1] for per_cpu in self._opened.tracepoints]
        readings = self._read_counts(ring, fds)
        for _ in range(NR_TRIES):
            head = ring.head
            results = self._judge(readings, self._list_samples(ring, head), own)
            uncertain = [event for event, result in enumerate(results) if result.slack]
            if not uncertain:
                break
            again = self._read_counts(ring, [fds[event] for event in uncertain])
            for event, reading in zip(uncertain, again, strict=True):
                readings[event] = reading
        else:
            head = ring.head
            results = self._judge(readings, self._list_samples(ring, head), own)
        results = self._add_former(index, results)
        return head, results if on_cpu else [_from_afar(*each) for each in zip(self._names, results, strict=True)]

    def _add_former(self, index: int, results: list[Reading]) -> list[Reading]:
        """Add what the CPU's events counted before it went and came back. They are dead: their counts stand still."""
        former = [per_cpu[index][:-1] for per_cpu in self._opened.tracepoints]
        if not any(former):
            return results
        sums = [abi.sum_counts(fds, has_lost=self._opened.has_lost) for fds in former]
        return [
            replace(result, count=result.count + count, lost=result.lost + lost)
            for result, (count, lost) in zip(results, sums, strict=True)
        ]

    def read_kernel(self, index: int, *, on_cpu: bool) -> tuple[int, dict[str, Reading]]:
        """The same for a buffer of lo2io's programs, and each event's reading by the event's name.

        Raises:
            CaptureError: The counts cannot be read.
        """
        kernel = self._opened.kernel
        assert kernel is not None  # noqa: S101 - it has the buffer
        for _ in range(NR_WAITS):
            try:
                position, counts = kernel.count_records(index)
            except BlockingIOError:
                time.sleep(WAIT_S)
                continue
            readings = {name: Reading(at.count, at.slack, at.lost) for name, at in counts.items()}
            if not on_cpu:
                readings = {name: _from_afar(name, reading) for name, reading in readings.items()}
            return position, readings
        tried = f"count the events on CPU {kernel.ring_place(index)[0]}"
        raise CaptureError(tried, "a program does not finish its record", "use --backend perf")

    def _read_counts(self, ring: Ring, fds: Sequence[int]) -> list[tuple[int, int, int, int]]:
        """``before``, ``after``, ``count`` and ``lost`` of each event."""
        readings = ffi.new("lo2_reading[]", len(fds))
        with ffi.from_buffer("uint64_t[]", ring.head_view) as head:
            failed = lib.lo2_read_counts(ffi.new("int32_t[]", fds), len(fds), head, self._opened.has_lost, readings)
        if failed:
            raise CaptureError("read an event's count", os.strerror(ffi.errno), "report this kernel")
        return [(each.before, each.after, each.count, each.lost) for each in readings]

    def _list_samples(self, ring: Ring, head: int) -> dict[int, list[tuple[int, int]]]:
        """Position and thread of each sample in the buffer up to ``head``, by ``common_type``."""
        tail = ring.tail
        content = b"".join(ring.peek(head - tail))
        found: dict[int, list[tuple[int, int]]] = {}
        position, least = 0, max(self._type_at, self._tid_at) + 4
        while position + abi.RECORD_HEADER.size <= len(content):
            kind, _, size = abi.RECORD_HEADER.unpack_from(content, position)
            if size < abi.RECORD_HEADER.size:
                break
            if kind == RECORD_SAMPLE and size >= least and position + size <= len(content):
                (common_type,) = _TYPE.unpack_from(content, position + self._type_at)
                (tid,) = _TID.unpack_from(content, position + self._tid_at)
                found.setdefault(common_type, []).append((tail + position, tid))
            position += size
        return found

    def _judge(
        self,
        readings: Sequence[tuple[int, int, int, int]],
        samples: Mapping[int, Sequence[tuple[int, int]]],
        own: int,
    ) -> list[Reading]:
        """The counts at the end of ``samples``."""
        results = []
        for event, (before, after, count, lost) in enumerate(readings):
            later = uncertain = 0
            for position, tid in samples.get(self._ids[event], ()):
                if position >= after:
                    later += 1
                elif position >= before and tid != own:
                    uncertain += 1
                elif position >= before and self._names[event].startswith("syscalls:sys_exit_"):
                    later += 1  # the exit of the read(2) that gave the count; the count has its entry
            results.append(Reading(count + later, uncertain, lost))
        return results


def _from_afar(name: str, reading: Reading) -> Reading:
    under_way = min(_UNDER_WAY[not name.startswith("syscalls:")], reading.count)
    return Reading(reading.count - under_way, reading.slack + under_way, reading.lost)


def subtract(end: Reading, start: Reading) -> Reading:
    """The counts between two places."""
    count = end.count - start.count - start.slack
    return Reading(max(count, 0), end.slack + start.slack + min(count, 0), end.lost - start.lost)
