"""Opens events with the kernel's own Python binding for perf.

The binding opens and maps. lo2io drains each buffer itself, through a second mapping: the binding makes an object for
each sample, and would lose most samples at storage speed. The binding offers no choice of a clock, so samples are on
the kernel's perf clock.
"""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING, Any

from lo2io.capture.events.opened import (
    SYSTEM,
    OpenEvents,
    OpenRequest,
    dummy_attr,
    open_rings,
    opening_failed,
    probe_lost,
    rings_refused,
)
from lo2io.capture.events.ring import PAGE_BYTES, Ring
from lo2io.errors import CaptureError
from lo2io.kernel import abi
from lo2io.kernel.binding import find_binding

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


class PerfSource:
    """Opens events with the distribution's ``perf`` module.

    Raises:
        AccessError: There is no such module for this Python. The remedy names the package.
    """

    name = "python-perf"

    def __init__(self) -> None:
        self._perf = find_binding().module

    def open(self, request: OpenRequest) -> OpenEvents:
        """Open the requested events, disabled. See :class:`lo2io.capture.events.opened.EventSource`."""
        has_lost = probe_lost(request.cpus[0])
        ring_bytes = _affordable(request)
        evlist, keep = self._evlist(request, has_lost=has_lost)
        try:
            evlist.open()
        except OSError as error:
            raise opening_failed(f"{len(request.events)} tracepoints", error) from error
        try:
            with _silent_stderr():
                evlist.mmap(ring_bytes // PAGE_BYTES)
        except OSError as error:
            raise rings_refused(ring_bytes, len(request.cpus), error) from error
        per_event = _sort_fds([file.fileno() for file in evlist.get_pollfd()], 1 + len(request.events), request.cpus)
        leaders = per_event[0]
        return OpenEvents(
            opener=self.name,
            clock="perf",
            scope=SYSTEM,
            cpus=request.cpus,
            names=tuple(name for name, _ in request.events),
            leaders=[[fd] for fd in leaders],
            tracepoints=[[[fd] for fd in fds] for fds in per_event[1:]],
            rings=[Ring(fd, ring_bytes) for fd in leaders],
            ring_bytes=ring_bytes,
            ring_bytes_wanted=request.ring_bytes,
            has_lost=has_lost,
            keep=(evlist, keep),
        )

    def _evlist(self, request: OpenRequest, *, has_lost: bool) -> tuple[Any, Any]:
        """The binding's list of events, and the objects that the list refers to without owning them."""
        perf = self._perf
        cpu_map = perf.cpu_map(",".join(map(str, request.cpus)))
        thread_map = perf.thread_map(-1)
        common = {
            "sample_type": abi.SAMPLE_TYPE,
            "read_format": abi.FORMAT_ID | (abi.FORMAT_LOST if has_lost else 0),
            "sample_id_all": 1,
            "watermark": 1,
            "disabled": 1,
            "freq": 0,
        }
        evsels = [
            perf.evsel(
                type=abi.TYPE_SOFTWARE,
                config=abi.COUNT_SW_DUMMY,
                comm=1,
                task=1,
                mmap=int(request.wants_mappings),
                sample_period=0,
                **common,
            )
        ]
        evsels += [
            perf.evsel(type=abi.TYPE_TRACEPOINT, config=number, sample_period=1, **common)
            for _, number in request.events
        ]
        evlist = perf.evlist(cpu_map, thread_map)
        for evsel in evsels:
            evlist.add(evsel)
        return evlist, (cpu_map, thread_map, evsels)


def _sort_fds(fds: Sequence[int], nr_events: int, cpus: Sequence[int]) -> list[list[int]]:
    """The fds of each event on each CPU. The kernel's ids tell them: the binding opens event by event, CPU by CPU.

    Raises:
        CaptureError: There is not exactly one fd for each event on each CPU, or the leaders are not in their places.
    """
    by_id = [fd for _, fd in sorted((abi.event_id(fd), fd) for fd in dict.fromkeys(fds))]
    nr_cpus = len(cpus)
    rows = [by_id[first : first + nr_cpus] for first in range(0, len(by_id), nr_cpus)]
    # The binding's list goes CPU by CPU. If one of the two orders differs from that, they do not agree.
    by_cpu = [row[index] for index in range(nr_cpus) for row in rows] if len(by_id) == nr_events * nr_cpus else []
    if by_cpu != list(dict.fromkeys(fds)):
        raise CaptureError(
            f"tell the {nr_events} events on {nr_cpus} CPUs apart",
            f"the perf binding opened {len(by_id)}, in an unknown order",
            "use --opener native",
        )
    return rows


def _affordable(request: OpenRequest) -> int:
    """The buffer size that the kernel grants this user, found out with trial buffers.

    A refused ``evlist.mmap`` leaves the binding's list half mapped. To open the list again, every tracepoint must be
    closed first, which takes the kernel tens of milliseconds each.
    """
    leaders: list[int] = []
    try:
        for cpu in request.cpus:
            try:
                leaders.append(abi.event_open(dummy_attr(abi.FORMAT_ID), -1, cpu))
            except OSError as error:
                raise opening_failed(f"a software event on CPU {cpu}", error) from error
        rings = open_rings(leaders, request.ring_bytes)
        size = rings[0].size
        for ring in rings:
            ring.close()
        return size
    finally:
        for fd in leaders:
            os.close(fd)


@contextlib.contextmanager
def _silent_stderr() -> Iterator[None]:
    """Silence fd 2. The binding's library prints each of its steps there, and has no option against it."""
    saved = os.dup(2)
    null = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(null, 2)
        yield
    finally:
        os.dup2(saved, 2)
        os.close(saved)
        os.close(null)
