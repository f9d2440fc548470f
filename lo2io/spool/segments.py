"""A spool of which only the newest part is kept. In: buffers' bytes and facts. Out: folders of files.

Each *segment* is a folder with files for each CPU and one for facts, like a small spool. The drain thread writes the
buffers' bytes and goes from segment to segment. At the same time, another thread may write facts, prepare the next
segment and remove the oldest one. Before the spool would exceed its bound, the oldest segment is removed.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import math
import os
import struct
import threading
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from lo2io.errors import CaptureError, UsageError
from lo2io.spool.format import (
    FACTS_NAME,
    META_NAME,
    SEGMENT_NAME,
    SegmentStart,
    dump_segment_start,
    events_name,
    kernel_name,
    ring_name,
    segment_name,
)
from lo2io.spool.writer import AppendFile, DiskFullError, SpoolWriter
from lo2io.units import format_bytes

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from lo2io.folder import Folder
    from lo2io.model import SpoolMeta
    from lo2io.spool.sinks import Sink

PARTS = 6
"""The approximate number of segments in a full spool. So up to a sixth more is kept than was asked for.

More segments would keep less beyond that. But each takes a look at every process, most of a flight recorder's work.
"""
RINGS_WITHIN = 5
"""A bounded spool must have room for the contents of all buffers this many times: for the segments that are written,
and to drain."""
META_COPIES = 5
"""Room for this many copies of ``spool.json``: the file, its successor while it is written, and the space put aside."""
META_EXTRA = 1 << 20
"""Further room: counts and notices come at the end, and each segment describes its start."""
_FACT_TIMES = struct.Struct("<6xHQQ").unpack_from
_NO_LINKS = frozenset({errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS})
_COPY_BYTES = 1 << 20
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})


@dataclass(slots=True, eq=False)
class Segment:
    """A folder of the spool: the files of all buffers, in the spool's order, and last the file of facts."""

    number: int
    """The segments are counted from 0 in the order in which they are written."""
    folder: Folder
    files: list[AppendFile]
    removed: bool = False
    facts_lock: threading.Lock = field(default_factory=threading.Lock, repr=False)
    """Held while facts are written. The segment must not be removed then."""
    link_lock: threading.Lock = field(default_factory=threading.Lock, repr=False)
    """Held while the files get further names. The segment must not be removed then."""

    @property
    def name(self) -> str:
        """The folder's name."""
        return segment_name(self.number)

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(file.size for file in self.files)

    @property
    def facts(self) -> AppendFile:
        """The file of facts."""
        return self.files[-1]

    def remove(self) -> None:
        """Remove the folder. Files with further names stay under those."""
        with self.facts_lock, self.link_lock:
            self.removed = True
            for file in self.files:
                file.close()
            spool, hidden = self.folder.parent, f".{self.name}"
            assert spool is not None  # noqa: S101 - the spool makes its segments
            with contextlib.suppress(OSError):
                spool.rename(self.name, spool, hidden)
                spool.remove(hidden)
            self.folder.close()


@dataclass(frozen=True, slots=True)
class _FactsRoute:
    """The facts that one segment takes. Times are CLOCK_MONOTONIC, as those of facts."""

    segment: Segment
    first_ns: int = 0
    """The time at which the first buffer moved to this segment. Facts for exactly this time are about its beginning."""
    last_ns: int = 0
    """The time at which all buffers had moved to it. Looks from then on belong to this segment."""
    end_ns: int | None = None
    """The time at which the first buffer moved on to the next segment; None: not yet."""

    def takes(self, begin_ns: int, end_ns: int) -> bool:
        """True if a look between the two times is about this segment and no other."""
        whole = begin_ns >= self.last_ns or begin_ns == end_ns == self.first_ns
        return whole and (self.end_ns is None or end_ns <= self.end_ns)


@dataclass(frozen=True, slots=True)
class _BufferSink:
    spool: SegmentedSpool
    place: int

    def append(self, views: Sequence[memoryview | bytes]) -> int:
        return self.spool.append_buffer(self.place, views)


@dataclass(frozen=True, slots=True)
class _FactsSink:
    spool: SegmentedSpool

    def append(self, views: Sequence[memoryview | bytes]) -> int:
        return self.spool.append_facts(views)


class SegmentedSpool(SpoolWriter):
    """A spool that is written segment by segment.

    The files of buffers have places in each segment: first perf's of all CPUs, then those with the programs' calls,
    then those with the programs' events.

    Args:
        path: Directory to create.
        cpus: The CPUs of the buffers.
        max_bytes: The directory never holds more bytes than this; None: no bound.
        folder: As for :class:`SpoolWriter`.

    Raises:
        UsageError: ``path`` exists and is not an empty directory.
        CaptureError: The directory cannot be created.
    """

    def __init__(
        self, path: Path, cpus: Sequence[int], max_bytes: int | None = None, *, folder: Folder | None = None
    ) -> None:
        self.skipped_facts = 0
        """Bytes of facts for which there was no room."""
        self._max_bytes = max_bytes
        self._lock = threading.Lock()
        self._used = 0
        self._overhead = META_EXTRA
        self._numbers = itertools.count()
        self._newest = 0
        """The number of the newest segment that was begun."""
        self._next: Segment | None = None
        self._kept: list[Segment] = []
        self._nr_written = 1
        """The number of newest segments that may still get buffers' bytes."""
        self._kinds = [ring_name]
        """For each kind of buffer, the names of its files."""
        super().__init__(path, cpus, folder=folder)

    def _create(self) -> tuple[tuple[Sink, ...], Sink]:
        first = self._make(next(self._numbers))
        self._kept.append(first)
        self._current = list(first.files[:-1])
        self._route = _FactsRoute(first)
        return self._sinks(0), _FactsSink(self)

    def _sinks(self, kind: int) -> tuple[Sink, ...]:
        nr_cpus = len(self.cpus)
        return tuple(_BufferSink(self, kind * nr_cpus + index) for index in range(nr_cpus))

    def take_kernel(self, *, events: bool) -> None:
        """As :meth:`SpoolWriter.take_kernel`. Call this before anything is written."""
        first = self.current
        fresh = [kernel_name, events_name][: 1 + events]
        try:
            files = [AppendFile(first.folder, name(cpu)) for name in fresh for cpu in self.cpus]
        except OSError as error:
            raise CaptureError(
                f"create the spool {self.path}", error.strerror or str(error), "name a directory on a disk with space"
            ) from error
        self._kinds += fresh
        first.files[-1:-1] = files
        self._current += files
        self.calls = self._sinks(1)
        self.events = self._sinks(2) if events else ()

    def add_ring(self, cpu: int) -> None:
        """Add the buffer of a CPU that has come back: ``rings`` gets once more the place of its former buffer."""
        self.rings = (*self.rings, self.rings[self.cpus.index(cpu)])

    def _make(self, number: int) -> Segment:
        name = segment_name(number)
        folder = self.folder.make(f".{name}")
        names = [name(cpu) for name in self._kinds for cpu in self.cpus]
        files = [AppendFile(folder, name) for name in (*names, FACTS_NAME)]
        self.folder.rename(f".{name}", self.folder, name)  # so a spool that is cut off has whole segments only
        folder.path = self.path / name
        for file in files:
            file.path = folder.path / file.name
        return Segment(number, folder, files)

    # ---- what is there ----

    @property
    def kept(self) -> tuple[Segment, ...]:
        """The segments, oldest first. The last one is being written."""
        with self._lock:
            return tuple(self._kept)

    @property
    def size(self) -> int:
        """Bytes of all segments."""
        return sum(segment.size for segment in self.kept)

    @property
    def current(self) -> Segment:
        """The segment that is being written."""
        return self._kept[-1]

    @property
    def room(self) -> int | None:
        """Bytes that all segments together may have; None: no bound."""
        return None if self._max_bytes is None else self._max_bytes - self._overhead

    def is_tight(self, rings_bytes: int) -> bool:
        """True if the next segment may not fit beside the kept ones. ``rings_bytes`` is the size of all buffers."""
        room = self.room
        return room is not None and self._used + room // PARTS + rings_bytes > room

    def check_bound(self, rings_bytes: int) -> None:
        """Check that the bound leaves room for the buffers' contents. Call this after the first ``spool.json``.

        Args:
            rings_bytes: The size of all buffers together.

        Raises:
            UsageError: The bound is too small. The remedy names the least bound.
        """
        least = RINGS_WITHIN * rings_bytes + self._overhead
        if self._max_bytes is not None and self._max_bytes < least:
            mebibytes = -(-least >> 20)
            raise UsageError(
                f"keep a spool of {format_bytes(self._max_bytes)}",
                f"the buffers of {len(self.cpus)} CPUs take {format_bytes(rings_bytes)} and need {RINGS_WITHIN} times "
                f"their size, and {format_bytes(self._overhead)} more",
                f"use --max-size {mebibytes}MiB, or a smaller --ring",
            )

    def write_meta(self, meta: SpoolMeta) -> None:
        """As :meth:`SpoolWriter.write_meta`. The bound includes the file's size."""
        super().write_meta(meta)
        found = self.folder.status(META_NAME)
        size = found.st_size if found else 0
        self._overhead = max(self._overhead, META_COPIES * size + META_EXTRA)

    # ---- writing ----

    def append_buffer(self, place: int, views: Sequence[memoryview | bytes]) -> int:
        """Write a buffer's bytes to the buffer's current segment.

        Raises:
            DiskFullError: There is no room, even after all older segments were removed.
        """
        total = sum(len(view) for view in views)
        self._reserve(total)
        while True:
            try:
                return self._current[place].append(views)
            except DiskFullError as error:
                cause = error.__cause__
                if isinstance(cause, OSError) and cause.errno in _FULL and self.drop_oldest():
                    continue
                with self._lock:
                    self._used -= total
                raise

    def append_facts(self, views: Sequence[memoryview | bytes]) -> int:
        """Write facts to the segment of their time. Facts about two segments, and facts without room, are left out."""
        content = b"".join(views)
        route = self._route
        records = _choose_facts(content, route)
        room = self.room
        with route.segment.facts_lock:
            if room is not None and route.segment.facts.size + len(records) > room // PARTS:
                self.skipped_facts += len(records)
                records = b""
        if records and not self._write_facts(route.segment, records):
            self.skipped_facts += len(records)
        return len(content)

    def _write_facts(self, segment: Segment, records: bytes) -> bool:
        """Write facts. False: there was no room. The recording goes on, since a full disk may have room again."""
        with contextlib.suppress(DiskFullError):
            self._reserve(len(records))
            with contextlib.suppress(DiskFullError), segment.facts_lock:
                if segment.removed:
                    raise DiskFullError(segment.folder.path, "removed")
                segment.facts.append([records])
                return True
            with self._lock:
                self._used -= len(records)
        return False

    def _reserve(self, size: int) -> None:
        """Reserve room for bytes to be written, and remove the oldest segments for them."""
        room = self.room
        with self._lock:
            self._used += size
        while room is not None and self._used > room:
            if not self.drop_oldest():
                with self._lock:
                    self._used -= size
                raise DiskFullError(self.path, "the bound of its size leaves no room")

    # ---- going on ----

    def prepare(self) -> None:
        """Create the next segment's files, so that the change to it takes no time.

        The drain thread may create a segment of its own meanwhile, if this takes long. Then the prepared one comes too
        late, since segments are written in the order of their numbers. It is removed.

        Raises:
            OSError: The files cannot be created.
        """
        if self._next is not None:
            return
        segment = self._make(next(self._numbers))
        with self._lock:
            in_time = segment.number > self._newest
            if in_time:
                self._next = segment
        if not in_time:
            segment.remove()

    @property
    def is_prepared(self) -> bool:
        """True if :meth:`begin` need not create any file."""
        return self._next is not None

    def begin(self, first_ns: int) -> Segment:
        """Open the next segment. Then move each CPU's buffers with :meth:`switch_cpu`, and call :meth:`end`.

        Args:
            first_ns: CLOCK_MONOTONIC now.

        Raises:
            OSError: The segment cannot be created.
        """
        self._route = replace(self._route, end_ns=first_ns)
        with self._lock:
            prepared, self._next = self._next, None
            self._newest = prepared.number if prepared else next(self._numbers)
        segment = prepared or self._make(self._newest)
        with self._lock:
            self._kept.append(segment)
            self._nr_written = 2
        return segment

    def switch_cpu(self, index: int) -> None:
        """Move the buffers of ``cpus[index]`` to the newest segment: their further bytes go there."""
        for place in range(index, len(self._current), len(self.cpus)):
            before, self._current[place] = self._current[place], self._kept[-1].files[place]
            before.close()

    def end(self, first_ns: int, last_ns: int) -> None:
        """Note that all buffers have moved to the newest segment.

        Args:
            first_ns: The time given to :meth:`begin`.
            last_ns: CLOCK_MONOTONIC now.
        """
        with self._lock:
            newest = self._kept[-1]
            self._nr_written = 1
        self._route = _FactsRoute(newest, first_ns, last_ns)

    def drop_oldest(self) -> bool:
        """Remove the oldest segment, unless it is being written. True if a segment was removed."""
        with self._lock:
            if len(self._kept) <= self._nr_written:
                return False
            oldest = self._kept.pop(0)
        oldest.remove()
        with self._lock:
            self._used -= oldest.size
        return True

    def describe_start(self, segment: Segment, start: SegmentStart) -> None:
        """Describe a segment's start in its folder.

        A reader needs this if the spool is cut off with this oldest segment.
        """
        with segment.link_lock, contextlib.suppress(OSError):
            if not segment.removed:
                segment.folder.write(SEGMENT_NAME, dump_segment_start(start))

    def link(self, target: Folder, end: Segment) -> tuple[str, ...]:
        """Give the files of all segments before ``end`` a second name, in folders of ``target``.

        A file system without hard links (vfat, some of FUSE) gets copies.

        Returns:
            The segments' names, oldest first. Empty: ``end`` is the oldest segment by now, or was removed.

        Raises:
            OSError: The files can be neither linked nor copied.
        """
        copies: list[tuple[int, int]] = []
        with contextlib.ExitStack() as opened:
            with contextlib.ExitStack() as held:
                with self._lock:
                    segments = self._kept[: self._kept.index(end)] if end in self._kept else []
                    for segment in segments:
                        held.enter_context(segment.link_lock)
                for segment in segments:
                    folder = opened.enter_context(target.make(segment.name))
                    for file in segment.files:
                        try:
                            os.link(file.name, file.name, src_dir_fd=segment.folder.fd, dst_dir_fd=folder.fd)
                        except OSError as error:
                            if error.errno not in _NO_LINKS:
                                raise
                            copies.append((segment.folder.open_file(file.name), folder.create(file.name)))
                            opened.callback(os.close, copies[-1][0])
                            opened.callback(os.close, copies[-1][1])
            # From now on the segments may be removed, because their files are open.
            for source, copy in copies:
                while os.sendfile(copy, source, None, _COPY_BYTES):
                    pass
        return tuple(segment.name for segment in segments)

    # ---- the end ----

    def _close_files(self) -> None:
        """Close every file, and remove a segment that was only prepared."""
        if self._next is not None:
            self._next.remove()
            self._next = None
        for segment in self._kept:
            for file in segment.files:
                file.close()
            segment.folder.close()
        super()._close_files()

    def discard(self) -> None:
        """Remove every segment, and the directory."""
        self._close_files()
        for segment in self._kept:
            segment.remove()
        super().discard()


def _choose_facts(content: bytes, route: _FactsRoute) -> bytes:
    """The records that a segment takes: mostly all, which are not copied then."""
    chosen = []
    begin = position = 0
    earliest_ns, latest_ns = route.last_ns, math.inf if route.end_ns is None else route.end_ns
    while position < len(content):
        size, end_ns, begin_ns = _FACT_TIMES(content, position)
        if (begin_ns < earliest_ns or end_ns > latest_ns) and not route.takes(begin_ns, end_ns):  # mostly neither
            chosen.append(content[begin:position])
            begin = position + size
        position += size
    return b"".join((*chosen, content[begin:])) if begin else content
