"""Opens events with perf_event_open(2). This is needed for samples on CLOCK_MONOTONIC, and for tasks instead of CPUs.

In scope ``inherit`` each event has one instance for each task and CPU, because the kernel maps no buffer of an
inherited event that is not bound to a CPU (kernel/events/core.c, perf_mmap). All instances of a CPU share one buffer.
"""

from __future__ import annotations

import contextlib
import os
import time
from fcntl import ioctl
from typing import TYPE_CHECKING

from lo2io.capture.events.opened import (
    INHERIT,
    OpenEvents,
    OpenRequest,
    dummy_attr,
    open_rings,
    opening_failed,
    probe_lost,
)
from lo2io.errors import AccessError, UsageError
from lo2io.kernel import abi

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path


class NativeSource:
    """Calls perf_event_open through ctypes. Samples are on CLOCK_MONOTONIC, as facts are."""

    name = "native"

    def open(self, request: OpenRequest) -> OpenEvents:
        """Open the requested events, disabled. See :class:`lo2io.capture.events.opened.EventSource`."""
        inherit = request.scope == INHERIT
        tasks = request.tids if inherit else (-1,)
        has_lost = _probe_lost_of(os.getpid()) if inherit else probe_lost(request.cpus[0])
        read_format = abi.FORMAT_ID | (abi.FORMAT_LOST if has_lost else 0)
        flags = abi.USE_CLOCKID
        if inherit:
            # Unprivileged users may open user space events only. A system call's tracepoint counts as one, since it
            # has the caller's registers (kernel/trace/trace_syscalls.c).
            flags |= abi.INHERIT | abi.EXCLUDE_KERNEL | abi.EXCLUDE_HV
        opened = OpenEvents(
            opener=self.name,
            clock="monotonic",
            scope=request.scope,
            cpus=request.cpus,
            names=tuple(name for name, _ in request.events),
            leaders=[],
            tracepoints=[],
            rings=[],
            ring_bytes=0,
            ring_bytes_wanted=request.ring_bytes,
            has_lost=has_lost,
        )
        try:
            _open_all(opened, request, tasks, read_format, flags)
        except BaseException:
            opened.unmap()
            for fd in opened.iter_fds():
                os.close(fd)
            raise
        return opened


def _open_all(opened: OpenEvents, request: OpenRequest, tasks: Sequence[int], read_format: int, flags: int) -> None:
    leader = dummy_attr(read_format)
    leader.flags |= flags | (abi.MMAP if request.wants_mappings else 0)
    leader.flags |= abi.CODE if request.code else 0
    leader.clockid = time.CLOCK_MONOTONIC
    for cpu in request.cpus:
        opened.leaders.append([])
        _open_tasks(leader, tasks, cpu, "a software event", opened.leaders[-1])
    # Buffers are mapped first: an event cannot join a buffer that is not mapped (EINVAL).
    opened.rings = open_rings([fds[0] for fds in opened.leaders], request.ring_bytes)
    opened.ring_bytes = opened.rings[0].size
    for fds in opened.leaders:
        _join(fds[1:], fds[0])
    for name, number in request.events:
        attr = abi.EventAttr(
            type=abi.TYPE_TRACEPOINT,
            config=number,
            sample_period=1,
            sample_type=abi.SAMPLE_TYPE,
            read_format=read_format,
            flags=flags | abi.DISABLED | abi.WATERMARK | abi.SAMPLE_ID_ALL,
            clockid=time.CLOCK_MONOTONIC,
        )
        opened.tracepoints.append([])
        with _folder(request.cgroup if name.startswith("syscalls:") else None) as cgroup:
            for index, cpu in enumerate(request.cpus):
                opened.tracepoints[-1].append([])
                if cgroup is None:
                    _open_tasks(attr, tasks, cpu, name, opened.tracepoints[-1][-1])
                else:
                    _open_tasks(attr, (cgroup,), cpu, name, opened.tracepoints[-1][-1], flags=abi.FLAG_PID_CGROUP)
                _join(opened.tracepoints[-1][-1], opened.leaders[index][0])


@contextlib.contextmanager
def _folder(path: Path | None) -> Iterator[int | None]:
    """Open a folder; yield None without a path."""
    if path is None:
        yield None
        return
    try:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise UsageError(
            f"open the cgroup {path}", error.strerror or str(error), "name a cgroup that exists"
        ) from error
    try:
        yield fd
    finally:
        os.close(fd)


def _open_tasks(
    attr: abi.EventAttr, tasks: Sequence[int], cpu: int, what: str, fds: list[int], *, flags: int = 0
) -> None:
    """Open one event for each task on one CPU. A task that has ended by now is left out."""
    for tid in tasks:
        with contextlib.suppress(ProcessLookupError):
            try:
                fds.append(abi.event_open(attr, tid, cpu, flags))
            except ProcessLookupError:
                raise
            except OSError as error:
                raise opening_failed(f"{what} on CPU {cpu}", error) from error
    if not fds:
        raise AccessError(f"open {what} on CPU {cpu}", "the process has ended", "name a process that runs")


def _join(fds: Sequence[int], leader: int) -> None:
    for fd in fds:
        ioctl(fd, abi.IOC_SET_OUTPUT, leader)


def _probe_lost_of(pid: int) -> bool:
    """As :func:`lo2io.capture.events.opened.probe_lost`, for users who may open events of their own tasks only."""
    attr = dummy_attr(abi.FORMAT_ID | abi.FORMAT_LOST)
    attr.flags |= abi.EXCLUDE_KERNEL | abi.EXCLUDE_HV
    try:
        os.close(abi.event_open(attr, pid, -1))
    except OSError:
        return False
    return True
