"""The CPUs and the priority of lo2io's own threads."""

from __future__ import annotations

import contextlib
import os
import threading
from typing import TYPE_CHECKING

from lo2io.kernel import abi

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from collections.abc import Set as AbstractSet

_FIFO_PRIORITY = 1
_NICEST = -20


def raise_priority() -> bool:
    """Give the calling thread real-time priority. Returns True if that worked."""
    with contextlib.suppress(OSError):
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(_FIFO_PRIORITY))
        return True
    go_first()
    return False


def go_first() -> None:
    """Let the calling thread run before others that are not real-time threads, if the kernel allows it.

    Such a thread does not stop another one for long: the scheduler still divides the CPU between them.
    """
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICEST)


@contextlib.contextmanager
def going_first() -> Iterator[None]:
    """Let the calling thread go first for a while, and all threads that it starts meanwhile.

    The draining thread needs Python's lock, whatever its own priority. If the thread that has the lock waits for a busy
    CPU, the draining thread waits as long.
    """
    before = os.getpriority(os.PRIO_PROCESS, 0)
    go_first()
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), before)


def leave_cpus(cpus: AbstractSet[int]) -> None:
    """Move the calling thread away from these CPUs, if it may run on another.

    The kernel wakes a real-time thread on its last CPU, even if that stops another thread and other CPUs are idle
    (select_task_rq_rt in kernel/sched/rt.c). It wakes other threads on a free CPU.
    """
    if abi.libc.sched_getcpu() not in cpus:
        return
    allowed = os.sched_getaffinity(0)
    others = allowed - cpus
    if others:
        with contextlib.suppress(OSError):  # those CPUs have just gone offline
            os.sched_setaffinity(0, others)
            os.sched_setaffinity(0, allowed)


def run_on_each(cpus: Sequence[int]) -> None:
    """Wait until every CPU has finished the sample that it is writing.

    The interrupt that disables an event may hit the tracepoint's own handler between counting and writing the sample.
    The handler cannot be preempted: once a thread has run on its CPU, the sample is in the buffer. If the kernel
    refuses to move the thread, nothing is waited for: a sample that comes too late is counted, and so proven missing.
    """
    allowed = os.sched_getaffinity(0)
    for cpu in cpus:
        with contextlib.suppress(OSError):  # a CPU that is no longer online has nothing to finish
            os.sched_setaffinity(0, {cpu})
    with contextlib.suppress(OSError):
        os.sched_setaffinity(0, allowed)
