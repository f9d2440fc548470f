"""The kernel's counts at a place in a ring: where one segment of the spool ends and the next begins.

A recording proves its completeness by ``count - lost = samples``, and so does each part of it. But while the counts
are read, events go on. So for each event the ring's head is taken right before and right after its count is read
(``native/capture/counts.c``): samples behind the second came later and are added, samples between the two are
uncertain, and the counts of those events are read again. The thread reads each CPU's counts on that CPU. There nobody
else can be between counting an event and writing its sample meanwhile; only interrupts come in between, and its own
calls of read(2), of which it knows on which side of the count they are.
"""

from __future__ import annotations

import os
import struct
import threading
from dataclasses import dataclass
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
"""Events whose samples came while their count was read are read so often, then what is uncertain is called slack."""
RECORD_SAMPLE = 9
_RAW_AT = 20
"""Of a sample's raw data: header, time, their size."""
_TYPE = struct.Struct("<H")
_TID = struct.Struct("<i")
_UNDER_WAY = (1, 3)
"""Samples that may be counted and not written yet, seen from another CPU: of a system call one, of others one in each
context that can interrupt another (task, softirq, interrupt)."""


@dataclass(frozen=True, slots=True)
class Reading:
    """An event on one CPU, at one place of its ring."""

    count: int
    slack: int = 0
    """By so much the true count may be larger."""
    lost: int = 0


class BorderReader:
    """Reads counts and heads, ring by ring.

    Args:
        opened: Events per CPU (scope ``system``).
        layout: Of ``opened.names``, in that order.
    """

    def __init__(self, opened: OpenEvents, layout: Layout) -> None:
        self._opened = opened
        self._ids = [event.type for event in layout.events]
        self._names = opened.names
        self._type_at = _RAW_AT + layout.type_offset
        self._tid_at = _RAW_AT + layout.pid_offset

    def read(self, index: int, *, on_cpu: bool) -> tuple[int, list[Reading]]:
        """Find a place at the end of what a ring holds, and the counts there; nothing is released.

        Args:
            index: Which ring.
            on_cpu: The calling thread runs on its CPU and nowhere else.

        Returns:
            The place, a position of the ring's head, and each event's reading.

        Raises:
            CaptureError: The counts cannot be read.
        """
        ring = self._opened.rings[index]
        own = threading.get_native_id()
        fds = [per_cpu[index][0] for per_cpu in self._opened.tracepoints]
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
        return head, results if on_cpu else [self._from_afar(event, result) for event, result in enumerate(results)]

    def _read_counts(self, ring: Ring, fds: Sequence[int]) -> list[tuple[int, int, int, int]]:
        """``before``, ``after``, ``count`` and ``lost`` of each."""
        readings = ffi.new("lo2_reading[]", len(fds))
        with ffi.from_buffer("uint64_t[]", ring.head_view) as head:
            failed = lib.lo2_read_counts(ffi.new("int32_t[]", fds), len(fds), head, self._opened.has_lost, readings)
        if failed:
            raise CaptureError("read an event's count", os.strerror(ffi.errno), "report this kernel")
        return [(each.before, each.after, each.count, each.lost) for each in readings]

    def _list_samples(self, ring: Ring, head: int) -> dict[int, list[tuple[int, int]]]:
        """Position and thread of each sample that waits in the ring up to ``head``, by ``common_type``."""
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
        """What the counts are at the end of ``samples``."""
        results = []
        for event, (before, after, count, lost) in enumerate(readings):
            later = uncertain = 0
            for position, tid in samples.get(self._ids[event], ()):
                if position >= after:
                    later += 1
                elif position >= before and tid != own:
                    uncertain += 1
                elif position >= before and self._names[event].startswith("syscalls:sys_exit_"):
                    later += 1  # of the read(2) that gave the count; its entry is in the count
            results.append(Reading(count + later, uncertain, lost))
        return results

    def _from_afar(self, event: int, reading: Reading) -> Reading:
        under_way = min(_UNDER_WAY[not self._names[event].startswith("syscalls:")], reading.count)
        return Reading(reading.count - under_way, reading.slack + under_way, reading.lost)


def subtract(end: Reading, start: Reading) -> Reading:
    """What was counted between two places."""
    count = end.count - start.count - start.slack
    return Reading(max(count, 0), end.slack + start.slack + min(count, 0), end.lost - start.lost)
