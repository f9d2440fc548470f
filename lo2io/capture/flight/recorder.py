"""A flight recorder keeps only the newest part of a recording, and writes it as a trace on request.

The drain thread moves from segment to segment of the spool between two passes over the buffers. At each border it reads
the kernel's counts and compares the clocks, and lo2io's programs begin to tell each file again. So the part between any
two borders is a recording of its own, with its own proof of completeness. The clerk thread does the slow work: it
prepares the next segment, requests a look at ``/proc`` for the segment just begun, removes the oldest segments, and
starts dumps.

The drain thread visits one CPU after the other, so the buffers reach the border at different moments. A window begins
with the last of these visits. The facts of a segment come from looks after that visit.
"""

from __future__ import annotations

import contextlib
import os
import queue
import threading
import time
from collections import deque
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from lo2io.capture.devices import with_new_devices
from lo2io.capture.flight.border import BorderReader, Reading
from lo2io.capture.flight.dump import BUSY, REFUSED, Dumper
from lo2io.capture.flight.trigger import Watcher, parse_trigger
from lo2io.capture.flight.window import Border, describe_window, final_border
from lo2io.catalog.catalog import load_catalog
from lo2io.catalog.layouts import compile_layout
from lo2io.kernel.sysfs import read_devices
from lo2io.model.notices import Notice, no_window
from lo2io.spool.format import SegmentStart, segment_name
from lo2io.spool.segments import PARTS, SegmentedSpool
from lo2io.units import NS_PER_S

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from lo2io.capture.accounts import Readings
    from lo2io.capture.events.opened import OpenEvents
    from lo2io.capture.options import Converter, RecordOptions
    from lo2io.capture.session import Session, Stopped
    from lo2io.catalog.layouts import Layout
    from lo2io.model import SpoolMeta
    from lo2io.model.events import Event
    from lo2io.spool.segments import Segment
    from lo2io.spool.writer import SpoolWriter

MIN_SEGMENT_S = 0.5
"""Shorter segments would cost more than the exactness of the window is worth."""
_WATCH_S = 0.25
"""A trigger is noticed within this time, even if its events do not fill the buffers."""
_LEAST_WAIT_S = 0.01
"""How long the drain thread waits if the clerk has not prepared the next segment yet."""
_HALF = 0.5
"""Buffers that are so full are drained between two visits."""
_LATE_FACTOR = 2
"""If a segment has grown by this factor beyond its size, the drain thread no longer waits for the clerk."""


@dataclass(frozen=True, slots=True)
class FlightOptions:
    """The part of the recording to keep.

    Attributes:
        last_s: Keep at least this many seconds, as far as ``max_bytes`` allows.
        max_bytes: The spool never takes more bytes than this.
        keep_spool: Leave the spool beside each dumped trace.
    """

    last_s: float | None = None
    max_bytes: int | None = None
    keep_spool: bool = False


class FlightRecorder:
    """The work between two passes of the drain thread (``session.Between``), and that of the clerk thread.

    ``FlightRecorder`` → ``start`` → any number of ``request_dump`` → ``finish``, or ``abandon``.

    Args:
        options: The part of the recording to keep.
        spool: The spool that takes the buffers' bytes.
        opened: The events, opened per CPU.
        layout: The layouts of ``opened.names``.
        note: Called with each notice for the user, from any thread.
        converter: Makes traces of the windows that are dumped.
        watcher: Looks for slow requests or calls that trigger a dump.
    """

    first_segments = (segment_name(0),)
    """Marks the spool as a flight recorder's. ``spool.json`` has this from the start on."""

    def __init__(
        self,
        options: FlightOptions,
        spool: SegmentedSpool,
        opened: OpenEvents,
        layout: Layout,
        note: Callable[[Notice], None],
        *,
        converter: Converter,
        watcher: Watcher | None = None,
    ) -> None:
        self.wake_fd = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self.dumper = Dumper(spool, note, converter, keep_spool=options.keep_spool)
        self._options = options
        self._spool = spool
        self._opened = opened
        self._note = note
        self._watcher = watcher
        self._reader = BorderReader(opened, layout)
        last_s = options.last_s
        self._segment_ns = None if last_s is None else int(max(last_s / PARTS, MIN_SEGMENT_S) * NS_PER_S)
        self._last_ns = None if last_s is None else int(last_s * NS_PER_S)
        self._borders: dict[str, Border] = {}
        self._requests: deque[str] = deque()
        self._rest_until_ns = 0
        self._session: Session | None = None
        self._meta: SpoolMeta | None = None
        self.look_at_cpus: Callable[[], None] = lambda: None
        """Looks for CPUs that came or went: a window without all CPUs is not complete."""
        self._rescan: Callable[[int], None] = lambda _: None
        self._look: Callable[[], Readings] = tuple
        self._work: queue.SimpleQueue[tuple[Segment, Border, str] | None] = queue.SimpleQueue()
        self._clerk = threading.Thread(target=self._serve, name="lo2io-clerk", daemon=True)

    # ---- life ----

    def start(
        self,
        session: Session,
        meta: SpoolMeta,
        rescan: Callable[[int], None],
        look: Callable[[], Readings] = tuple,
    ) -> None:
        """Begin the first segment. Call this when sampling has begun.

        Args:
            session: Its drain thread calls this object.
            meta: The spool's description so far, written.
            rescan: Requests facts of all tasks and descriptors. Facts of threads that lived at the given time,
                CLOCK_MONOTONIC, are stated for exactly this time.
            look: Reads the kernel's accounts.

        Raises:
            UsageError: ``max_bytes`` is too small for the buffers.
        """
        self._spool.check_bound(self._rings_bytes)
        now = time.monotonic_ns()
        self._borders[self._spool.current.name] = Border(
            meta.start_ns, meta.start_ns, now, meta.syncs, {}, accounts_after=look()
        )
        self._rescan, self._look = rescan, look
        self._session, self._meta = session, meta
        self._clerk.start()
        self.dumper.control.start(lambda: self._request("lo2io dump"))

    def request_dump(self, why: str) -> bool:
        """Request a dump of the window that ends now. While another dump runs, this one is refused with a notice."""
        return self._request(why) is None

    def _request(self, why: str) -> tuple[str, str] | None:
        """The event and the text by which the request is refused; None: it is accepted."""
        session = self._session
        if session is None or not session.is_draining:
            refusal = REFUSED, "the recording is over"
        elif self.dumper.claim():
            self._requests.append(why)
            os.eventfd_write(self.wake_fd, 1)
            return None
        else:
            refusal = BUSY, "another window is still being written"
        self._note(no_window(why, refusal[1]))
        return refusal

    def finish(
        self,
        meta: SpoolMeta,
        stopped: Stopped,
        is_given_up: Callable[[], bool] = lambda: False,
        last: Readings = (),
    ) -> SpoolMeta:
        """Describe the last window. Call this when sampling has ended.

        Args:
            meta: The description of the whole recording.
            stopped: The results of sampling.
            is_given_up: Asked now and then while a dump is being written. True ends the dump.
            last: The kernel's accounts, read while samples were still taken.
        """
        for why in self._requests:
            self.dumper.refuse(why, "the recording ended first")
        self._end_clerk()
        self.dumper.wait(is_given_up)
        if self._spool.skipped_facts:
            self._note(Notice("some names are not known: the spool had no room for the facts of open files"))
        if self._watcher is not None:
            self._take_hits(self._watcher)  # the last hits are counted, though no other window follows
            self._note(Notice(self._watcher.summary()))
        end = final_border(stopped, last)
        names = tuple(segment.name for segment in self._spool.kept)
        return self._describe(meta, names, (self._borders[names[0]], end))

    def abandon(self) -> None:
        """Stop without a result, after an error; does nothing after :meth:`finish`."""
        self._end_clerk()
        self.dumper.wait(lambda: True)

    def _end_clerk(self) -> None:
        if self._clerk.is_alive():
            self._work.put(None)
            self._clerk.join()
        if self.wake_fd >= 0:
            os.close(self.wake_fd)
            self.wake_fd = -1

    # ---- in the drain thread ----

    def wait_s(self) -> float:
        """How long the drain thread may sleep: until the current segment is old enough or a trigger is due."""
        longest = float("inf") if self._watcher is None else _WATCH_S
        if self._session is None or self._segment_ns is None:
            return longest
        age = time.monotonic_ns() - self._borders[self._spool.current.name].monotonic_ns
        return min(longest, max(_LEAST_WAIT_S, (self._segment_ns - age) / NS_PER_S))

    def drained(self, index: int, views: Sequence[memoryview], *, of_programs: bool = False) -> None:
        """Look for slow requests or calls in the drained bytes. To the watcher, all of a CPU's perf buffers are one."""
        if self._watcher is None:
            return
        place = index if of_programs else self._opened.cpus.index(self._opened.ring_cpus[index])
        self._watcher.feed(place, views, of_programs=of_programs)

    def pass_ended(self) -> None:
        """Go on to the next segment, if it is time."""
        session = self._session
        if session is None:
            return
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(self.wake_fd)
        if self._watcher is not None and self._watcher.is_due:
            session.drain_rings()
            self._fire(self._watcher)
        now = time.monotonic_ns()
        if self._requests or self._is_due(now):
            # A request that the main thread makes at this moment belongs to this border or to the next one.
            self._go_on(session, self._requests.popleft() if self._requests else "")

    def _fire(self, watcher: Watcher) -> None:
        """Dump, unless the last trigger was so recent that the same window would be written again."""
        hits = self._take_hits(watcher)
        now = time.monotonic_ns()
        if hits and now >= self._rest_until_ns:
            self._rest_until_ns = now + self._window_ns()
            watcher.nr_fired += self.request_dump(hits[0])

    def _take_hits(self, watcher: Watcher) -> list[str]:
        return watcher.take_hits(self.dumper.lived(0, time.monotonic_ns()))

    def _is_due(self, now: int) -> bool:
        current, room = self._spool.current, self._spool.room
        age = now - self._borders[current.name].monotonic_ns
        old = self._segment_ns is not None and age >= self._segment_ns
        limit = None if room is None else room // PARTS
        large = limit is not None and current.size >= limit
        if self._spool.is_prepared or not (old or large):
            return old or large
        # The clerk is no real-time thread: it gets some time to prepare the next segment.
        far_older = old and self._segment_ns is not None and age >= _LATE_FACTOR * self._segment_ns
        return far_older or (limit is not None and current.size >= _LATE_FACTOR * limit)

    def _go_on(self, session: Session, request: str) -> None:
        """Move one buffer after the other to the next segment."""
        sync = session.compare_clocks()
        before, missed_before = self._look(), session.read_misses()
        first = time.monotonic_ns()
        segment = self._spool.begin(first)
        allowed = os.sched_getaffinity(0)
        counts: dict[str, list[Reading]] = {name: [] for name in self._opened.recorded}
        try:
            for index, cpu in enumerate(self._opened.cpus):
                readings = self._visit(session, index, on_cpu=_run_on(cpu))
                for name, of_cpus in counts.items():
                    of_cpus.append(readings.get(name, Reading(0)))
                session.drain_rings(_HALF)
        finally:
            os.sched_setaffinity(0, allowed)
        last = time.monotonic_ns()
        self._spool.end(first, last)
        border = Border(
            session.to_spool_clock(first),
            session.to_spool_clock(last),
            first,
            () if sync is None else (sync,),
            counts,
            before,
            self._look(),
            missed_before,
            session.read_misses(),
        )
        self._borders[segment.name] = border
        self._work.put((segment, border, request))

    def _visit(self, session: Session, index: int, *, on_cpu: bool) -> dict[str, Reading]:
        """Move the buffers of one CPU to the next segment. Returns each event's reading at this place.

        Other threads may run on the CPU between two buffers. Then a segment should rather have the births of threads
        without their calls, and facts without their samples, than the reverse::

            programs record calls    calls, facts ── births
            perf records calls       samples ── facts
        """
        kernel = self._opened.kernel
        rings = kernel.rings_of(self._opened.cpus[index]) if kernel else ()
        for number in rings:
            session.drain_kernel_ring(number)
        session.drain_ring(self._reader.ring_of(index))
        if kernel and kernel.names:
            readings = self._close_rings(session, rings, on_cpu=on_cpu)
            readings |= self._close_ring(session, index, on_cpu=on_cpu)
        else:
            readings = self._close_ring(session, index, on_cpu=on_cpu)
            readings |= self._close_rings(session, rings, on_cpu=on_cpu)
        self._spool.switch_cpu(index)
        return readings

    def _close_ring(self, session: Session, index: int, *, on_cpu: bool) -> dict[str, Reading]:
        """Write perf's buffer up to the place at which its events are counted."""
        head, readings = self._reader.read(index, on_cpu=on_cpu)
        session.drain_ring(self._reader.ring_of(index), head)
        return dict(zip(self._opened.names, readings, strict=True))

    def _close_rings(self, session: Session, rings: Sequence[int], *, on_cpu: bool) -> dict[str, Reading]:
        """The same for a CPU's buffers of the programs, with the losses before this place."""
        kernel = self._opened.kernel
        found: dict[str, Reading] = {}
        for number in rings:
            assert kernel is not None  # noqa: S101 - it has the buffer
            position, readings = self._reader.read_kernel(number, on_cpu=on_cpu)
            cpu, of_samples = kernel.ring_place(number)
            if not of_samples:
                kernel.begin_window(cpu)
            ring = kernel.rings[number]
            if ring.fill_bytes:
                session.drain_kernel_ring(number, position - ring.tail)
            losses = kernel.take_losses(number) if on_cpu else b""
            if losses:
                session.file_of(cpu, of_samples).append([losses])
            found |= readings
        return found

    @property
    def _rings_bytes(self) -> int:
        """The size of all buffers together."""
        kernel = self._opened.kernel
        of_programs = kernel.ring_bytes * len(kernel.rings) if kernel else 0
        return self._opened.ring_bytes * len(self._opened.cpus) + of_programs

    # ---- in the clerk's thread ----

    def _serve(self) -> None:
        self._prepare()
        while (work := self._work.get()) is not None:
            segment, border, request = work
            if border.syncs:
                self._spool.describe_start(segment, SegmentStart(border.last_ns, border.syncs))
            try:
                if request:
                    self._dump(segment, border, request)
            except Exception as error:  # noqa: BLE001 - without the clerk the spool would grow and grow
                self.dumper.refuse(request, f"{type(error).__name__}: {error}")
            self._drop_old()
            self._prepare()
            self._rescan(border.monotonic_ns)

    def _prepare(self) -> None:
        try:
            self._spool.prepare()
        except OSError as error:
            # The drain thread will try again, and end the recording if that fails, too.
            self._note(Notice(f"the next segment of the spool cannot be created: {error.strerror}"))

    def _drop_old(self) -> None:
        """Remove segments that the window does not need, or that ``max_bytes`` has no room for."""
        while True:
            kept = self._spool.kept
            if len(kept) < 2:  # noqa: PLR2004
                return
            second = self._borders.get(kept[1].name)
            if second is None:  # the buffers are moving to this segment
                return
            age = time.monotonic_ns() - second.monotonic_ns - (second.last_ns - second.first_ns)
            unneeded = self._last_ns is not None and age >= self._last_ns
            if not (unneeded or self._spool.is_tight(self._rings_bytes)):
                break
            if not self._spool.drop_oldest():
                break
        names = {segment.name for segment in self._spool.kept}
        for name in [name for name in self._borders if name not in names]:
            del self._borders[name]
        self.dumper.forget(min(border.monotonic_ns for border in list(self._borders.values())))

    def _dump(self, segment: Segment, end: Border, why: str) -> None:
        meta = self._meta
        assert meta is not None  # noqa: S101 - set before the clerk is started
        begins: Mapping[str, Border] = dict(self._borders)

        def describe(names: tuple[str, ...]) -> SpoolMeta:
            self.look_at_cpus()
            return self._describe(with_new_devices(meta), names, (begins[names[0]], end))

        self.dumper.start(why, segment, describe)

    def _describe(self, meta: SpoolMeta, names: tuple[str, ...], borders: tuple[Border, Border]) -> SpoolMeta:
        begin = borders[0]
        # Later processes are known by their forks. An earlier own pid may be another process' by now.
        own_pids = self.dumper.lived(begin.monotonic_ns, begin.monotonic_ns + begin.last_ns - begin.first_ns)
        untold = () if self._opened.has_lost else self._opened.names
        kernel = self._opened.kernel
        assert self._session is not None  # noqa: S101 - there are borders
        return describe_window(
            replace(meta, absences=self._session.absences),
            names,
            borders,
            own_pids=own_pids,
            without_lost=untold,
            kernel_stacks=kernel.read_stacks() if kernel else (),
            user_stacks=kernel.read_user_stacks() if kernel else (),
        )

    def _window_ns(self) -> int:
        """How long a trigger rests after a dump: by then the whole window is new."""
        if self._last_ns is not None:
            return self._last_ns
        begins = [border.monotonic_ns for border in list(self._borders.values())]
        return max(time.monotonic_ns() - min(begins), NS_PER_S)


def make_flight(
    options: RecordOptions,
    spool: SpoolWriter,
    opened: OpenEvents,
    events: Sequence[Event],
    note: Callable[[Notice], None],
) -> FlightRecorder | None:
    """The flight recorder that a recording's options ask for, or None.

    Raises:
        UsageError: The trigger cannot be read, or the events that it needs are not recorded.
    """
    if not isinstance(spool, SegmentedSpool):
        return None
    texts = {event.name: event.text for event in events}
    layout = compile_layout(opened.names, [texts[name] for name in opened.names], load_catalog())
    watcher = None
    if options.trigger is not None:
        names = [event.name for event in events if event.name in opened.recorded]
        recorded = compile_layout(names, [texts[name] for name in names], load_catalog())
        devices = read_devices()
        trigger = parse_trigger(options.trigger, devices)
        nr_kernel_rings = len(opened.kernel.rings) if opened.kernel else 0
        watcher = Watcher(trigger, recorded, len(opened.rings), devices, nr_kernel_rings)
    assert options.converter is not None  # noqa: S101 - options with windows have a converter
    kept = FlightOptions(options.last_s, options.max_bytes, keep_spool=options.keep_spool)
    return FlightRecorder(kept, spool, opened, layout, note, converter=options.converter, watcher=watcher)


def _run_on(cpu: int) -> bool:
    """Move to a CPU. False: it is offline, or this process may not run there."""
    try:
        os.sched_setaffinity(0, {cpu})
    except OSError:
        return False
    return True
