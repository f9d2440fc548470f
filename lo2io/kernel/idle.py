"""Whether this machine delivers samples of what happens while a CPU idles: tried, within a third of a second.

Some virtual machines count events while the current task of a CPU is the idle task, and deliver none of them. A switch
away from the idle task happens while that task is still the current one. So such switches are sampled on some CPUs,
while this process sleeps again and again, and the kernel's own count of them is compared with the samples in the rings.
"""

from __future__ import annotations

import mmap
import os
import time
from dataclasses import dataclass
from fcntl import ioctl
from typing import TYPE_CHECKING, Final

from lo2io.kernel import abi

if TYPE_CHECKING:
    from collections.abc import Sequence

SWITCH_EVENT: Final = "sched:sched_switch"
FROM_IDLE: Final = "prev_pid == 0"
MOST_CPUS: Final = 8
_RING_BYTES: Final = 64 << 10
_NAPS: Final = 100
_NAP_S: Final = 0.003


@dataclass(frozen=True, slots=True)
class IdleSamples:
    """Switches away from the idle task."""

    counted: int
    """By the kernel, but for those that found a ring full."""
    delivered: int


def try_idle(tracepoint_id: int, cpus: Sequence[int], *, has_lost: bool) -> IdleSamples:
    """Count switches away from the idle task, and how many of them are delivered as samples.

    Args:
        tracepoint_id: Of :data:`SWITCH_EVENT`.
        cpus: Online ones; the first :data:`MOST_CPUS` are tried.
        has_lost: The kernel tells how many samples of an event found the ring full.

    Returns:
        Both numbers are 0 if no CPU idled meanwhile.

    Raises:
        OSError: The kernel refuses the events, their filter or their rings.
        CaptureError: It answers with other than what was asked for.
    """
    fds: list[int] = []
    rings: list[mmap.mmap] = []
    try:
        for cpu in cpus[:MOST_CPUS]:
            fds.append(abi.event_open(_attr(tracepoint_id, has_lost=has_lost), -1, cpu))
            ioctl(fds[-1], abi.IOC_SET_FILTER, FROM_IDLE.encode() + b"\0")
            rings.append(mmap.mmap(fds[-1], mmap.PAGESIZE + _RING_BYTES))
        for fd in fds:
            ioctl(fd, abi.IOC_ENABLE, 0)
        for _ in range(_NAPS):
            time.sleep(_NAP_S)
        for fd in fds:
            ioctl(fd, abi.IOC_DISABLE, 0)
        counted, lost = abi.sum_counts(fds, has_lost=has_lost)
        delivered = sum(_nr_samples(ring) for ring in rings)
    finally:
        for ring in rings:
            ring.close()
        for fd in fds:
            os.close(fd)
    return IdleSamples(counted - lost, delivered)


def _attr(tracepoint_id: int, *, has_lost: bool) -> abi.EventAttr:
    return abi.EventAttr(
        type=abi.TYPE_TRACEPOINT,
        config=tracepoint_id,
        sample_period=1,
        sample_type=abi.SAMPLE_TIME,
        read_format=abi.FORMAT_ID | (abi.FORMAT_LOST if has_lost else 0),
        flags=abi.DISABLED,
    )


def _nr_samples(ring: mmap.mmap) -> int:
    """Samples in a ring that nobody has read yet."""
    head = int.from_bytes(ring[abi.HEAD_OFFSET : abi.HEAD_OFFSET + 8], "little")
    content = ring[mmap.PAGESIZE : mmap.PAGESIZE + min(head, _RING_BYTES)]
    samples = position = 0
    while position + abi.RECORD_HEADER.size <= len(content):
        kind, _, size = abi.RECORD_HEADER.unpack_from(content, position)
        samples += kind == abi.RECORD_SAMPLE
        position += max(size, abi.RECORD_HEADER.size)
    return samples
