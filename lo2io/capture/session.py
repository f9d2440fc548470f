"""A recording under way: open events in; out, their buffers' bytes in the spool, and the kernel's counts at the end.

One thread drains all buffers. It sleeps until a buffer is half full (or a second has passed), hands the bytes as they
are to the spool, and gives the space back in steps. If the user has the right, it runs under SCHED_FIFO, so that a busy
machine does not delay it. If the disk fills up, recording ends at once. The records on the disk stay whole. The kernel
counts the others, so they are known to be missing.
"""

from __future__ import annotations

import contextlib
import os
import select
import threading
import time
from typing import TYPE_CHECKING, Protocol

from lo2io.capture.clock import read_sync
from lo2io.capture.events.ring import RELEASE_BYTES
from lo2io.capture.threads import leave_cpus, raise_priority, run_on_each
from lo2io.errors import CaptureError, refusal
from lo2io.frozen import dataclass
from lo2io.kernel import abi
from lo2io.model import NO_MISSES, ClockSync, EventCounts, KernelStack, Misses, UserStack
from lo2io.model.notices import Notice, ended_early
from lo2io.spool.writer import DiskFullError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from lo2io.capture.clock_log import ClockLog
    from lo2io.capture.events.bpf_ring import KernelRing
    from lo2io.capture.events.opened import OpenEvents
    from lo2io.capture.events.ring import Ring
    from lo2io.model import Absence
    from lo2io.spool.sinks import Sink
    from lo2io.spool.writer import SpoolWriter

MAX_WAIT_S = 1.0
"""The longest time that bytes stay in memory only. They are lost if lo2io is killed."""
_HALF = 0.5


@dataclass(frozen=True, slots=True)
class Stopped:
    """The results of sampling, known only at its end."""

    stop_ns: int
    """The time up to which tracepoints were enabled, on the spool's clock."""
    syncs: tuple[ClockSync, ...]
    counts: tuple[EventCounts, ...]
    misses: Misses = NO_MISSES
    kernel_stacks: tuple[KernelStack, ...] = ()
    """Stacks of threads that slept."""
    user_stacks: tuple[UserStack, ...] = ()
    """Stacks of programs in slow calls."""


class Between(Protocol):
    """Work of the drain thread between two passes over the buffers."""

    wake_fd: int
    """An eventfd that ends the thread's sleep."""

    def wait_s(self) -> float:
        """The longest time that the thread may sleep."""
        ...

    def drained(self, index: int, views: Sequence[memoryview], *, of_programs: bool = False) -> None:
        """Take bytes of a buffer, perf's or the programs', that were written and are about to be released."""
        ...

    def pass_ended(self) -> None:
        """Act after a pass: every ready buffer is drained, and each file ends with a whole record.

        Any of these errors ends the recording.

        Raises:
            DiskFullError: The disk is full.
            OSError: A file cannot be written.
            CaptureError: Counts or clocks cannot be read.
        """
        ...


class Session:
    """Enables events, drains buffers, disables events, reads counts. ``begin`` → ``enable`` → ``stop``, each once.

    Args:
        opened: Events of either opener, disabled.
        writer: The spool. ``writer.rings[i]`` takes the bytes of ``opened.rings[i]``.
        tell: Called with each notice for the user, from any thread.
        between: Work of the drain thread between two passes.
        clocks: The log of the machine's clocks, which the drain thread keeps; None: there is none.
    """

    def __init__(
        self,
        opened: OpenEvents,
        writer: SpoolWriter,
        tell: Callable[[Notice], None],
        between: Between | None = None,
        clocks: ClockLog | None = None,
    ) -> None:
        self.opened = opened
        self.start_ns = 0
        self.absences: tuple[Absence, ...] = ()
        """CPUs that came online, and when their events were not recorded."""
        self._writer = writer
        self._tell = tell
        self._syncs: list[ClockSync] = []
        self._wake = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._nudge = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._epoll = select.epoll(flags=select.EPOLL_CLOEXEC)
        self._ring_of = {fd: index for index, fds in enumerate(opened.leaders) for fd in fds}
        self._kernel_rings = opened.kernel.rings if opened.kernel else []
        self._thread = threading.Thread(target=self._run, name="lo2io-drain", daemon=True)
        self._between = between
        self._clocks = clocks
        self._failure: OSError | CaptureError | None = None
        self._ended_ns: int | None = None
        self._real_time = False

    @property
    def syncs(self) -> tuple[ClockSync, ...]:
        """The clocks' comparisons so far."""
        return tuple(self._syncs)

    @property
    def is_draining(self) -> bool:
        """True if the drain thread is at work: neither stopped nor ended early."""
        return self._thread.is_alive() and self._ended_ns is None

    def compare_clocks(self) -> ClockSync | None:
        """Compare the clocks again, in the drain thread. The first and the newest comparison are kept."""
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
        self._read_clocks()
        self._thread.start()

    def enable(self) -> None:
        """Begin sampling."""
        self.start_ns = self.to_spool_clock(time.monotonic_ns())
        self.opened.switch_tracepoints(on=True)

    def stop(self) -> Stopped:
        """End sampling, empty every buffer, and read the counts.

        Raises:
            CaptureError: Draining failed, or the spool could not be written for another reason than a full disk.
        """
        self.opened.switch_tracepoints(on=False)
        ended_ns = self._ended_ns or time.monotonic_ns()
        run_on_each(self.opened.cpus)
        self._end_thread()
        self._drain_rest()
        self._write_pending()
        if self._ended_ns is None:
            self._read_clocks()
        self.opened.switch_leaders(on=True)  # after a full disk, leaders are off
        sync = read_sync(self.opened)
        self.opened.switch_leaders(on=False)
        if sync is not None:
            self._syncs.append(sync)
        self._drain_rest()
        if isinstance(self._failure, CaptureError):
            raise self._failure
        if self._failure is not None:
            answer = self._failure.strerror or str(self._failure)
            raise CaptureError(f"write the buffers to {self._writer.path}", answer, "record to another disk")
        counts = self._read_counts()
        misses = self._note_losses(counts)
        stacks = self.opened.kernel.read_stacks() if self.opened.kernel else ()
        of_programs = self.opened.kernel.read_user_stacks() if self.opened.kernel else ()
        end_ns = self.to_spool_clock(ended_ns)
        return Stopped(end_ns, tuple(self._syncs), counts, misses, stacks, of_programs)

    def abandon(self) -> None:
        """Stop without a result, after an error. After :meth:`stop` this does nothing."""
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
        """Convert by the nearest reading's offset, which is enough: the clocks drift by less than 0.1 µs/s."""
        sync = min(self._syncs, key=lambda each: abs(each.monotonic_ns - monotonic_ns))
        return sync.time_ns + monotonic_ns - sync.monotonic_ns

    def _run(self) -> None:
        """The drain thread. :meth:`_failing` handles failed writes: an OSError that arrives here is a failed wait."""
        try:
            self._drain_until_woken()
        except OSError as error:
            self._failure = refusal("wait for the buffers", error) or error
            self._end_early(str(self._failure))

    def _drain_until_woken(self) -> None:
        """The drain thread's work until ``stop`` wakes it or the recording fails."""
        self._real_time = raise_priority()
        with self._epoll as epoll:
            others = [] if self._between is None else [self._between.wake_fd]
            others += [self.opened.kernel.bell.fd] if self.opened.kernel else []
            for fd in (self._wake, self._nudge, *list(self._ring_of), *others):
                epoll.register(fd, select.EPOLLIN)
            while self._ended_ns is None and self._failure is None:
                ready = epoll.poll(MAX_WAIT_S if self._between is None else min(MAX_WAIT_S, self._between.wait_s()))
                if any(fd == self._wake for fd, _ in ready):
                    return
                for fd, events in ready:
                    if events & (select.EPOLLHUP | select.EPOLLERR):
                        epoll.unregister(fd)  # the task has ended, so the fd would be ready for ever
                rings = {self._ring_of[fd] for fd, _ in ready if fd in self._ring_of}
                kernels = self._filling() if ready else set()
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
                if self._clocks is not None and self._ended_ns is None:
                    with self._failing():
                        self._clocks.read_if_due()

    def _read_clocks(self) -> None:
        """Read the machine's clocks now: at the recording's start and end."""
        if self._clocks is not None:
            with self._failing():
                self._clocks.read()

    def _filling(self) -> set[int]:
        """The programs' buffers that are half full. The programs wake this thread again when they fill up further."""
        if self.opened.kernel:
            self.opened.kernel.bell.silence()  # before the look, so that no later call is missed
        return {index for index, ring in enumerate(self._kernel_rings) if ring.taken > _HALF}

    def _step_aside(self, rings: Iterable[int], kernel_rings: Iterable[int]) -> None:
        """Let the threads that fill these buffers run, if the kernel makes them wait for this thread."""
        if self._real_time:
            cpus = {self.opened.ring_cpus[index] for index in rings}
            kernel = self.opened.kernel
            leave_cpus(cpus.union(kernel.ring_place(index)[0] for index in kernel_rings) if kernel else cpus)

    def drain_now(self) -> None:
        """Request that all buffers are drained, however little they hold. Returns at once."""
        os.eventfd_write(self._nudge, 1)

    def watch(self, leaders: Sequence[int], index: int) -> None:
        """Drain a buffer that was added while recording.

        Args:
            leaders: The events that tell when the buffer is half full.
            index: The index of the buffer, and of its file in the writer.
        """
        for fd in leaders:
            self._ring_of[fd] = index
            with contextlib.suppress(ValueError):  # recording has ended early, and the thread has closed the epoll
                self._epoll.register(fd, select.EPOLLIN)

    def _drain(self, rings: Iterable[int], kernel_rings: Iterable[int]) -> None:
        """Write the present contents of these buffers. A full disk ends the recording.

        The programs' buffers come after perf's, and only as far as they were filled before. So the births of the
        threads that made the calls in them are in the spool, even if the recording ends right afterwards.
        """
        with self._failing():
            filled = [(index, self._kernel_rings[index].fill_bytes) for index in kernel_rings]
            for index in rings:
                self.drain_ring(index)
            for index, left in filled:
                self.drain_kernel_ring(index, left)

    def _drain_all(self) -> None:
        self._drain(range(len(self.opened.rings)), range(len(self._kernel_rings)))

    def drain_rings(self, least: float = 0) -> None:
        """Write the contents of all buffers that are filled to this share at least, in the drain thread.

        Raises:
            DiskFullError: The disk is full.
            OSError: The contents cannot be written.
        """
        for index, ring in enumerate(self.opened.rings):
            if ring.fill_bytes >= ring.size * least:
                self.drain_ring(index)
        for index, taken in enumerate(self._kernel_rings):
            if taken.taken >= least:
                self.drain_kernel_ring(index)

    def drain_ring(self, index: int, head: int | None = None) -> None:
        """Write the present contents of a buffer, in the drain thread.

        Args:
            index: The index of the buffer.
            head: Write up to this position; None: write all.

        Raises:
            DiskFullError: The disk is full.
            OSError: The contents cannot be written.
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

    def drain_kernel_ring(self, index: int, left: int | None = None) -> None:
        """As :meth:`drain_ring`, for a buffer of the programs.

        Args:
            index: The index of the buffer.
            left: Write that many bytes of finished records; None: write all.

        Raises:
            DiskFullError: The disk is full.
            OSError: The contents cannot be written.
        """
        assert self.opened.kernel is not None  # noqa: S101 - it has the buffers
        ring, file = self._kernel_rings[index], self.file_of(*self.opened.kernel.ring_place(index))
        left = ring.fill_bytes if left is None else left
        while left > 0:
            views = ring.peek(min(left, RELEASE_BYTES))
            done = file.append(views)
            if self._between is not None:
                self._between.drained(index, views, of_programs=True)
            ring.release(done)
            left -= done

    def file_of(self, cpu: int, of_samples: bool) -> Sink:
        """The file for the records of a CPU's programs: of calls, or of events of tracepoints."""
        return (self._writer.events if of_samples else self._writer.calls)[self._writer.cpus.index(cpu)]

    @contextlib.contextmanager
    def _failing(self) -> Iterator[None]:
        """End the recording after a failed write."""
        try:
            yield
        except DiskFullError as error:
            _drop_views(error)
            self._end_early(str(error))
        except (OSError, CaptureError) as error:
            _drop_views(error)
            self._failure = error
            self._end_early(str(error))
        except Exception as error:  # noqa: BLE001 - else the thread would end, and samples be lost in silence
            _drop_views(error)
            failure = CaptureError("drain the buffers", f"{type(error).__name__}: {error}", "report this error")
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
            with self._failing():
                self._writer.flush()
        if self._ended_ns is not None:
            rings: tuple[Ring | KernelRing, ...] = (*self.opened.rings, *self._kernel_rings)
            for ring in rings:
                ring.release(ring.fill_bytes)

    def _write_pending(self) -> None:
        """Write the records that no program has written yet: calls still running on a CPU, and the last losses."""
        kernel = self.opened.kernel
        if kernel is None or self._ended_ns is not None:
            return
        with self._failing():
            for of_samples, pending in ((False, kernel.pending()), (True, kernel.pending_samples())):
                for cpu, record in pending.items():
                    self.file_of(cpu, of_samples).append([record])

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

    def read_misses(self) -> Misses:
        """The numbers so far of missing calls and records that no event counts."""
        kernel = self.opened.kernel
        tasks = self._count_lost_tasks()
        if kernel is None:
            return Misses(tasks_lost=tasks)
        losses = kernel.read_losses()
        return Misses(kernel.count_left_out(), losses.missed_runs, losses.facts_lost, losses.foreign, tasks)

    def _count_lost_tasks(self) -> int:
        """Lost records of forks, names, exits and mappings. Linux before 6.0 does not count them: 0."""
        if not self.opened.has_lost:
            return 0
        return sum(abi.sum_counts(fds, has_lost=True)[1] for fds in self.opened.leaders)

    def _note_losses(self, counts: tuple[EventCounts, ...]) -> Misses:
        """Tell the user of losses, and return those that have no count of their own for each event."""
        misses = self.read_misses()
        lost = sum(sum(each.lost or ()) for each in counts)
        if lost and not self._real_time:
            why = "because lo2io has no CAP_SYS_NICE: samples were lost"
            self._tell(Notice(f"the drain thread ran without real-time priority, {why}"))
        if misses.tasks_lost:
            what = f"{misses.tasks_lost} records of tasks (FORK, COMM, EXIT, MMAP)"
            self._tell(Notice(f"{what} were lost: descendants may be missing"))
        if self.opened.kernel:
            for text in self.opened.kernel.read_losses().notices():
                self._tell(Notice(text))
        return misses


def _drop_views(error: BaseException | None) -> None:
    """Clear the variables of the functions that an error has ended: a buffer with a view left cannot be unmapped."""
    import traceback  # noqa: PLC0415 - few recordings fail

    while error is not None:
        traceback.clear_frames(error.__traceback__)
        error = error.__context__
