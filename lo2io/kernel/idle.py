"""Tries whether this machine delivers samples of idle CPUs. The trial takes a third of a second.

Some virtual machines count events on an idle CPU but do not deliver them. A timer that expires on an idle CPU is such
an event. So the trial samples timers on some CPUs, while this process sleeps again and again. Then it compares the
kernel's count with the samples in the buffers.
"""

from __future__ import annotations

import mmap
import os
import time
from dataclasses import dataclass
from fcntl import ioctl
from pathlib import Path
from typing import TYPE_CHECKING, Final

from lo2io.kernel import abi
from lo2io.units import NS_PER_S

if TYPE_CHECKING:
    from collections.abc import Sequence

TIMER_EVENT: Final = "timer:hrtimer_expire_entry"
MOST_CPUS: Final = 8
_RING_BYTES: Final = 64 << 10
_NAPS: Final = 100
_NAP_S: Final = 0.003


@dataclass(frozen=True, slots=True)
class IdleSamples:
    """Counts of timers that expired."""

    counted: int
    """Timers by the kernel's count, without those that found a full buffer."""
    delivered: int
    idle_ns: int
    """Idle time of all CPUs during the trial, summed."""


def try_idle(tracepoint_id: int, cpus: Sequence[int], *, has_lost: bool) -> IdleSamples:
    """Count timers that expire, and how many of them are delivered as samples.

    Args:
        tracepoint_id: Id of :data:`TIMER_EVENT`.
        cpus: Online CPUs. The first :data:`MOST_CPUS` are tried.
        has_lost: True if the kernel tells how many samples of an event found a full buffer.

    Raises:
        OSError: The kernel refuses the events or their buffers.
        CaptureError: A count cannot be read.
    """
    fds: list[int] = []
    rings: list[mmap.mmap] = []
    try:
        for cpu in cpus[:MOST_CPUS]:
            fds.append(abi.event_open(_attr(tracepoint_id, has_lost=has_lost), -1, cpu))
            rings.append(mmap.mmap(fds[-1], mmap.PAGESIZE + _RING_BYTES))
        idle_ns = _read_idle_ns()
        for fd in fds:
            ioctl(fd, abi.IOC_ENABLE, 0)
        for _ in range(_NAPS):
            time.sleep(_NAP_S)
        for fd in fds:
            ioctl(fd, abi.IOC_DISABLE, 0)
        idle_ns = _read_idle_ns() - idle_ns
        counted, lost = abi.sum_counts(fds, has_lost=has_lost)
        delivered = sum(_nr_samples(ring) for ring in rings)
    finally:
        for ring in rings:
            ring.close()
        for fd in fds:
            os.close(fd)
    return IdleSamples(counted - lost, delivered, idle_ns)


def _attr(tracepoint_id: int, *, has_lost: bool) -> abi.EventAttr:
    return abi.EventAttr(
        type=abi.TYPE_TRACEPOINT,
        config=tracepoint_id,
        sample_period=1,
        sample_type=abi.SAMPLE_TIME,
        read_format=abi.FORMAT_ID | (abi.FORMAT_LOST if has_lost else 0),
        flags=abi.DISABLED,
    )


def _read_idle_ns() -> int:
    """Idle time of all CPUs since boot, with and without I/O under way, from the first line of ``/proc/stat``."""
    fields = Path("/proc/stat").read_text(encoding="ascii").split(maxsplit=6)
    return (int(fields[4]) + int(fields[5])) * NS_PER_S // os.sysconf("SC_CLK_TCK")


def _nr_samples(ring: mmap.mmap) -> int:
    """The number of samples in a buffer that nobody has read yet."""
    head = int.from_bytes(ring[abi.HEAD_OFFSET : abi.HEAD_OFFSET + 8], "little")
    content = ring[mmap.PAGESIZE : mmap.PAGESIZE + min(head, _RING_BYTES)]
    samples = position = 0
    while position + abi.RECORD_HEADER.size <= len(content):
        kind, _, size = abi.RECORD_HEADER.unpack_from(content, position)
        samples += kind == abi.RECORD_SAMPLE
        position += max(size, abi.RECORD_HEADER.size)
    return samples
