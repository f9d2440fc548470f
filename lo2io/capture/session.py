"""A recording under way: open events in, their rings' bytes to the spool, and at the end what the kernel counted.

One thread drains all buffers. It sleeps until a buffer is half full (or a second has passed), writes the bytes as they
are, and gives the space back in steps. If the user has the right, it runs under SCHED_FIFO, so that a busy machine does
not delay it. If the disk fills up, recording ends at once. The records on the disk stay whole. The kernel counts the
others, so they are known to be missing.
"""

from __future__ import annotations

import contextlib
import os
import select
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from lo2io.capture.clock import read_sync
from lo2io.capture.events.ring import RELEASE_BYTES
from lo2io.capture.threads import leave_cpus, raise_priority, run_on_each
from lo2io.errors import CaptureError
from lo2io.kernel import abi
from lo2io.model import ClockSync, EventCounts
from lo2io.model.notices import Notice, ended_early
from lo2io.spool.writer import DiskFullError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from lo2io.capture.events.bpf_ring import KernelRing
    from lo2io.capture.events.opened import OpenEvents
    from lo2io.capture.events.ring import Ring
    from lo2io.spool.writer import Sink, SpoolWriter

MAX_WAIT_S = 1.0
"""How long bytes may stay in memory only. They are lost if lo2io is killed."""
_HALF = 0.5


@dataclass(frozen=True, slots=True)
class Stopped:
    """The results of sampling, known only at its end."""

    stop_ns: int
    """Tracepoints were enabled up to here, on the spool's clock."""
    syncs: tuple[ClockSync, ...]
    counts: tuple[EventCounts, ...]
    nr_left_out: int = 0
    """Calls that programs in the kernel left out, by the filter."""
    missed_runs: int = 0
    """How often the kernel did not run one of the programs."""
    facts_lost: int = 0
    """Records of files and paths that found a full buffer."""


class Between(Protocol):
    """Work of the drain thread between two passes over the buffers."""

    wake_fd: int
    """An eventfd that ends the thread's sleep."""

    def wait_s(self) -> float:
        """How long the thread may sleep at most."""
        ...

    def drained(self, index: int, views: Sequence[memoryview]) -> None:
        """These bytes of a ring were written, and are about to be released."""
        ...

    def pass_ended(self) -> None:
        """Every ring that was ready is drained; each file ends where a record ends.

        Raises:
            DiskFullError: The recording ends.
            OSError: As well.
            CaptureError: As well.
        """
        ...


class Session:
    """Enable, drain, disable, count. ``begin`` → ``enable`` → ``stop``, each once.

    Args:
        opened: Events of either opener, disabled.
        writer: Where the rings go; ``writer.rings[i]`` takes ``opened.rings[i]``.
        tell: Called with each notice for the user, from whatever thread.
        between: What the drain thread does between two passes.
    """

    def __init__(
        self,
        opened: OpenEvents,
        writer: SpoolWriter,
        tell: Callable[[Notice], None],
        between: Between | None = None,
    ) -> None:
        self.opened = opened
        self.start_ns = 0
        self._writer = writer
        self._tell = tell
        self._syncs: list[ClockSync] = []
        self._wake = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._nudge = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._epoll = select.epoll(flags=select.EPOLL_CLOEXEC)
        self._ring_of = {fd: index for index, fds in enumerate(opened.leaders) for fd in fds}
        self._kernel_rings = opened.kernel.rings if opened.kernel else []
        self._kernel_ring_of = {ring.fd: index for index, ring in enumerate(self._kernel_rings)}
        self._thread = threading.Thread(target=self._drain_until_woken, name="lo2io-drain", daemon=True)
        self._between = between
        self._failure: OSError | CaptureError | None = None
        self._ended_ns: int | None = None
        self._real_time = False

    @property
    def syncs(self) -> tuple[ClockSync, ...]:
        """The clocks' comparisons so far."""
        return tuple(self._syncs)

    @property
    def is_draining(self) -> bool:
        """Whether the drain thread is at work: neither stopped, nor ended early."""
        return self._thread.is_alive() and self._ended_ns is None

    def compare_clocks(self) -> ClockSync | None:
        """Compare the clocks again, in the drain thread; the one reading of before but the first is forgotten."""
        sync = read_sync(self.opened)
        if sync is not None:
            self._syncs[1:] = [sync]
        return sync

    def begin(self) -> None:
        """Begin to follow tasks and to drain buffers, without sampling.

        Raises:
            CaptureError: The clocks could not be compared.
        """
        self.opened.switch_leaders(on=True)
        sync = read_sync(self.opened)
        if sync is None:
            raise CaptureError(
                "compare the clocks of samples and facts", "the kernel delivered no COMM record", "use --opener native"
            )
        self._syncs.append(sync)
        self._thread.start()

    def enable(self) -> None:
        """Sampling begins."""
        self.start_ns = self.to_spool_clock(time.monotonic_ns())
        self.opened.switch_tracepoints(on=True)

    def stop(self) -> Stopped:
        """End sampling, empty every buffer, and read the counts.

        Raises:
            CaptureError: The spool could not be written, for another reason than a full disk.
        """
        self.opened.switch_tracepoints(on=False)
        ended_ns = self._ended_ns or time.monotonic_ns()
        run_on_each(self.opened.cpus)
        self._end_thread()
        self._drain_rest()
        self._write_pending()
        self.opened.switch_leaders(on=True)  # a full disk has switched them off
        sync = read_sync(self.opened)
        self.opened.switch_leaders(on=False)
        if sync is not None:
            self._syncs.append(sync)
        self._drain_rest()
        if isinstance(self._failure, CaptureError):
            raise self._failure
        if self._failure is not None:
            answer = self._failure.strerror or str(self._failure)
            raise CaptureError(f"write the rings to {self._writer.path}", answer, "record to another disk")
        counts = self._read_counts()
        missed_runs, facts_lost = self._note_losses(counts)
        left_out = self.opened.kernel.count_left_out() if self.opened.kernel else 0
        return Stopped(self.to_spool_clock(ended_ns), tuple(self._syncs), counts, left_out, missed_runs, facts_lost)

    def abandon(self) -> None:
        """Stop without a result, after an error; does nothing after :meth:`stop`."""
        if self._wake >= 0:
            self.opened.switch_tracepoints(on=False)
            self.opened.switch_leaders(on=False)
            self._end_thread()

    def _end_thread(self) -> None:
        os.eventfd_write(self._wake, 1)
        if self._thread.ident is not None:
            self._thread.join()
        os.close(self._wake)
        os.close(self._nudge)
        self._epoll.close()
        self._wake = -1

    def to_spool_clock(self, monotonic_ns: int) -> int:
        """By the reading next in time: clocks drift apart by less than 0.1 µs/s, so the offset is enough."""
        sync = min(self._syncs, key=lambda each: abs(each.monotonic_ns - monotonic_ns))
        return sync.time_ns + monotonic_ns - sync.monotonic_ns

    def _drain_until_woken(self) -> None:
        """The thread: until ``stop`` wakes it, or the disk is full."""
        self._real_time = raise_priority()
        with self._epoll as epoll:
            epoll.register(self._wake, select.EPOLLIN)
            epoll.register(self._nudge, select.EPOLLIN)
            for fd in (*list(self._ring_of), *([] if self._between is None else [self._between.wake_fd])):
                epoll.register(fd, select.EPOLLIN)
            for fd in self._kernel_ring_of:
                # Such a ring is readable as long as it holds a byte: only the wakeup itself counts.
                epoll.register(fd, select.EPOLLIN | select.EPOLLET)
            while self._ended_ns is None and self._failure is None:
                ready = epoll.poll(MAX_WAIT_S if self._between is None else min(MAX_WAIT_S, self._between.wait_s()))
                if any(fd == self._wake for fd, _ in ready):
                    return
                for fd, events in ready:
                    if events & (select.EPOLLHUP | select.EPOLLERR):
                        epoll.unregister(fd)  # the task is gone, and the fd would be ready for ever
                rings = {self._ring_of[fd] for fd, _ in ready if fd in self._ring_of}
                kernels = {self._kernel_ring_of[fd] for fd, _ in ready if fd in self._kernel_ring_of}
                kernels |= self._filling() if ready else set()
                self._step_aside(rings, kernels)
                if any(fd == self._nudge for fd, _ in ready):
                    os.eventfd_read(self._nudge)
                    rings, kernels = set(), set()
                if rings and not kernels:
                    self._drain(rings, ())
                else:
                    self._drain(range(len(self.opened.rings)), kernels or range(len(self._kernel_rings)))
                if self._between is not None and self._ended_ns is None:
                    with self._failing():
                        self._between.pass_ended()

    def _filling(self) -> set[int]:
        """The programs' buffers that are half full. A full one has no room for a record that wakes anybody."""
        return {index for index, ring in enumerate(self._kernel_rings) if ring.taken > _HALF}

    def _step_aside(self, rings: Iterable[int], kernel_rings: Iterable[int]) -> None:
        """Let the threads that fill these buffers run, if the kernel makes them wait for this thread."""
        if self._real_time:
            cpus = {self.opened.ring_cpus[index] for index in rings}
            kernel = self.opened.kernel
            leave_cpus(cpus.union(kernel.ring_place(index)[0] for index in kernel_rings) if kernel else cpus)

    def drain_now(self) -> None:
        """Have all rings drained, however little they hold; returns at once."""
        os.eventfd_write(self._nudge, 1)

    def watch(self, leaders: Sequence[int], index: int) -> None:
        """Drain a ring that was added while recording.

        Args:
            leaders: The events that tell when it is half full.
            index: Of the ring, and of what takes its bytes.
        """
        for fd in leaders:
            self._ring_of[fd] = index
            with contextlib.suppress(ValueError):  # recording has ended early, and the thread has closed it
                self._epoll.register(fd, select.EPOLLIN)

    def watch_kernel(self, index: int) -> None:
        """The same of a ring that programs in the kernel write, by its place among these."""
        fd = self._kernel_rings[index].fd
        self._kernel_ring_of[fd] = index
        with contextlib.suppress(ValueError):
            self._epoll.register(fd, select.EPOLLIN | select.EPOLLET)

    def _drain(self, rings: Iterable[int], kernel_rings: Iterable[int]) -> None:
        """Write what these rings hold now; a full disk ends the recording.

        The programs' buffers with calls come last. If nothing follows them, the births of their threads are in the
        spool already.
        """
        with self._failing():
            filled = [(index, self._kernel_rings[index].fill_bytes) for index in kernel_rings]
            for index in rings:
                self.drain_ring(index)
            for index, left in filled:
                self._drain_kernel_ring(index, left)

    def _drain_all(self) -> None:
        self._drain(range(len(self.opened.rings)), range(len(self._kernel_rings)))

    def drain_ring(self, index: int, head: int | None = None) -> None:
        """Write what a ring holds now, in the drain thread.

        Args:
            index: Which.
            head: No further than this position; None: all.

        Raises:
            DiskFullError: It does not fit.
            OSError: It cannot be written.
        """
        ring, file = self.opened.rings[index], self._writer.rings[index]
        left = ring.fill_bytes if head is None else head - ring.tail
        while left > 0:
            views = ring.peek(min(left, RELEASE_BYTES))
            done = file.append(views)
            if self._between is not None:
                self._between.drained(index, views)
            ring.release(done)
            left -= done

    def _drain_kernel_ring(self, index: int, left: int) -> None:
        """As :meth:`drain_ring`, of what a program in the kernel writes: so many bytes of finished records."""
        assert self.opened.kernel is not None  # noqa: S101 - it has the rings
        ring, file = self._kernel_rings[index], self._file_of(*self.opened.kernel.ring_place(index))
        while left > 0:
            done = file.append(ring.peek(min(left, RELEASE_BYTES)))
            ring.release(done)
            left -= done

    def _file_of(self, cpu: int, of_samples: bool) -> Sink:
        """What takes the records of a CPU's programs: of calls, or of events of tracepoints."""
        return (self._writer.events if of_samples else self._writer.calls)[self._writer.cpus.index(cpu)]

    @contextlib.contextmanager
    def _failing(self) -> Iterator[None]:
        """End the recording after a failed write."""
        try:
            yield
        except DiskFullError as error:
            self._end_early(str(error))
        except (OSError, CaptureError) as error:
            self._failure = error
            self._end_early(str(error))
        except Exception as error:  # noqa: BLE001 - the thread would be gone, samples be lost, and nobody know
            failure = CaptureError("drain the rings", f"{type(error).__name__}: {error}", "report this error")
            self._failure = failure
            self._end_early(str(failure))

    def _end_early(self, why: str) -> None:
        self.opened.switch_tracepoints(on=False)
        self._ended_ns = time.monotonic_ns()
        self.opened.switch_leaders(on=False)
        self._tell(ended_early(why))

    def _drain_rest(self) -> None:
        """Empty the buffers after the thread's end: into the spool, or without writing if the disk is full."""
        if self._ended_ns is None:
            self._drain_all()
        if self._ended_ns is not None:
            rings: tuple[Ring | KernelRing, ...] = (*self.opened.rings, *self._kernel_rings)
            for ring in rings:
                ring.release(ring.fill_bytes)

    def _write_pending(self) -> None:
        """What no program has written yet: calls that are still running on their CPU, and what was lost last."""
        kernel = self.opened.kernel
        if kernel is None or self._ended_ns is not None:
            return
        with self._failing():
            for of_samples, pending in ((False, kernel.pending()), (True, kernel.pending_samples())):
                for cpu, record in pending.items():
                    self._file_of(cpu, of_samples).append([record])

    def _read_counts(self) -> tuple[EventCounts, ...]:
        has_lost = self.opened.has_lost
        counts = []
        for name, per_cpu in zip(self.opened.names, self.opened.tracepoints, strict=True):
            sums = [abi.sum_counts(fds, has_lost=has_lost) for fds in per_cpu]
            lost = tuple(lost for _, lost in sums) if has_lost else None
            counts.append(EventCounts(name, tuple(count for count, _ in sums), lost))
        if self.opened.kernel:
            counts += self.opened.kernel.read_counts(self.opened.cpus)
        return tuple(counts)

    def _note_losses(self, counts: tuple[EventCounts, ...]) -> tuple[int, int]:
        """Tell of losses; returns what of them no event's count knows, as ``Stopped`` has it."""
        lost = sum(sum(each.lost or ()) for each in counts)
        if lost and not self._real_time:
            why = "for want of CAP_SYS_NICE: it lost samples"
            self._tell(Notice(f"the drain thread ran without real-time priority, {why}"))
        if self.opened.has_lost:
            lost_tasks = sum(abi.sum_counts(fds, has_lost=True)[1] for fds in self.opened.leaders)
            if lost_tasks:
                what = f"{lost_tasks} records of tasks (FORK, COMM, EXIT)"
                self._tell(Notice(f"{what} were lost: descendants may be missing"))
        if self.opened.kernel is None:
            return 0, 0
        losses = self.opened.kernel.read_losses()
        for text in losses.notices():
            self._tell(Notice(text))
        return losses.missed_runs, losses.facts_lost
