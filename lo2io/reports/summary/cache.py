"""The page cache in the report: what reads found there, and what was read ahead for nothing.

In: the tables of calls, of rings' requests and of fills. Out: a :class:`CacheSummary`. Memory grows with the number of
files and processes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from lo2io.frozen import dataclass
from lo2io.model import UNKNOWN_U32
from lo2io.native._lib import ffi, lib
from lo2io.native.columns import pointer_to
from lo2io.reports.summary.adding import native_rows
from lo2io.reports.summary.names import file_names
from lo2io.trace.columns import CACHE_VERDICT, FILL_REASON

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from lo2io.model import Columns
    from lo2io.reports.summary.adding import RowContext
    from lo2io.reports.summary.names import People
    from lo2io.reports.summary.owners import Owners
    from lo2io.reports.summary.paths import Paths
    from lo2io.trace.reader import Trace

    Integers = NDArray[np.int64]

MAX_ROWS: Final = 100
"""Files and processes listed by the bytes that their reads missed."""
COLUMNS: Final = ("task", "handle", "bytes_result", "cache", "cache_missed_pages", "cache_wait_ns")
"""Of calls and of rings' requests."""
_FILLS: Final = ("task", "file", "pages", "page_bytes", "why", "used_pages")


@dataclass(frozen=True, slots=True)
class CacheRow:
    """Reads of some calls and requests of rings that moved bytes, and what they put into the page cache.

    ``kind``, ``path``, ``pid`` and ``process`` are those of :class:`~lo2io.reports.summary.summary.FileRow`; for a
    process, ``kind`` is ``process``, for the sum of all ``all``.
    """

    kind: str
    path: str | None
    pid: int | None
    process: str | None
    hits: int
    waits: int
    misses: int
    memory: int
    uncached: int
    """Reads that do not go through the page cache: O_DIRECT, pipes, sockets, files that the kernel makes up."""
    unknown: int
    hit_bytes: int
    """Bytes of the reads that hit."""
    buffered_bytes: int
    """Bytes of all reads that hit, waited or missed."""
    missed_bytes: int
    """Whole pages that reads put into the page cache because they asked for them."""
    wait_ns: int
    """Time in which reads waited for I/O."""
    ahead_bytes: int
    """Pages that were put there in advance, and whose use was followed."""
    unused_bytes: int
    """Of them, pages that no recorded read used before they were gone, or before the recording ended."""

    @property
    def reads(self) -> int:
        """Reads of files that have pages in the page cache."""
        return self.hits + self.waits + self.misses

    @property
    def hit_rate(self) -> float | None:
        """Part of these reads that hit, 0 … 1; None: there is none."""
        return self.hits / self.reads if self.reads else None


@dataclass(frozen=True, slots=True)
class CacheSummary:
    """The part of the report about the page cache."""

    total: CacheRow
    processes: tuple[CacheRow, ...]
    """Most missed bytes first."""
    files: tuple[CacheRow, ...]
    """The same."""


class CacheTally:
    """Sums by process and by file group: at first of rings' requests and of fills alone. :meth:`add` adds calls.

    Args:
        trace: A trace.
        owners: The numbers of its processes and file groups.
        context: How rows are looked up.
    """

    def __init__(self, trace: Trace, owners: Owners, context: RowContext) -> None:
        self.recorded = "cache" in trace.metadata.get("layers", ())
        self.by_process = _Sums(owners.nr_processes + 1)
        self.by_group = _Sums(owners.nr_groups)
        self._owners, self._context, self._page_bytes = owners, context, 0
        if not self.recorded:
            return
        for fills in trace.batches("fills", _FILLS):
            self._add_fills(fills)
        for rows in trace.batches("ring_requests", COLUMNS):
            self.add(rows)

    def add(self, rows: Columns) -> None:
        """Add calls or requests, with the columns :data:`COLUMNS`."""
        native, kept = native_rows(rows, "lo2_cache_rows")
        sums = (each.native() for each in (self.by_process, self.by_group))
        lib.lo2_cache_add(self._context.native, native, self._page_bytes, *sums)
        del kept

    def _add_fills(self, rows: Columns) -> None:
        owners = self._owners
        followed = np.isin(rows["why"], (FILL_REASON.index("ahead"), FILL_REASON.index("advice")))
        followed &= rows["used_pages"] != UNKNOWN_U32
        chosen = {name: values[followed] for name, values in rows.items()}
        groups = owners.files(chosen["file"], owners.no_handle)
        self.by_process.add_fills(owners.processes(chosen["task"]), chosen)
        self.by_group.add_fills(np.minimum(groups, owners.no_handle), chosen)
        self._page_bytes = max(self._page_bytes, int(rows["page_bytes"].max(initial=0)))


class _Sums:
    """Sums by a number, each of shape (numbers,) or (numbers, verdicts)."""

    def __init__(self, nr: int) -> None:
        self.reads: Integers = np.zeros((nr, len(CACHE_VERDICT)), np.int64)
        self.bytes: Integers = np.zeros((nr, len(CACHE_VERDICT)), np.int64)
        self.missed_bytes, self.wait_ns, self.ahead_bytes, self.unused_bytes = np.zeros((4, nr), np.int64)

    def native(self) -> Any:
        """A ``lo2_cache_sums``, which points to the arrays of this object."""
        names = ("reads", "bytes", "missed_bytes", "wait_ns")
        return ffi.new("lo2_cache_sums *", {name: pointer_to(getattr(self, name), "int64_t") for name in names})

    def add_fills(self, place: Integers, rows: Columns) -> None:
        pages = rows["page_bytes"].astype(np.int64)
        np.add.at(self.ahead_bytes, place, rows["pages"] * pages)
        np.add.at(self.unused_bytes, place, (rows["pages"] - rows["used_pages"]) * pages)

    def row(
        self, where: Integers | slice, kind: str, path: str | None, pid: int | None, process: str | None
    ) -> CacheRow:
        """The sum over some numbers."""
        reads, moved = self.reads[where].sum(axis=0), self.bytes[where].sum(axis=0)
        by_name = dict(zip(CACHE_VERDICT, reads.tolist(), strict=True))
        buffered = [CACHE_VERDICT.index(name) for name in ("hit", "wait", "miss")]
        sums = ("missed_bytes", "wait_ns", "ahead_bytes", "unused_bytes")
        return CacheRow(
            kind,
            path,
            pid,
            process,
            hits=by_name["hit"],
            waits=by_name["wait"],
            misses=by_name["miss"],
            memory=by_name["memory"],
            uncached=by_name["none"],
            unknown=by_name["unknown"],
            hit_bytes=int(moved[buffered[0]]),
            buffered_bytes=int(moved[buffered].sum()),
            **{name: int(getattr(self, name)[where].sum()) for name in sums},
        )


def summarize_cache(
    tally: CacheTally, trace: Trace, owners: Owners, people: People, paths: Paths
) -> CacheSummary | None:
    """Make rows from the sums; None: the layer was not recorded, or nothing was read."""
    total = tally.by_process.row(slice(None), "all", None, None, None)
    if not tally.recorded or not (total.reads or total.memory or total.uncached or total.unknown):
        return None
    return CacheSummary(
        total,
        processes=tuple(_processes(tally.by_process, people)),
        files=tuple(_files(tally.by_group, trace, owners, people, paths)),
    )


def _processes(found: _Sums, people: People) -> list[CacheRow]:
    places = _most(found, lambda values: values)
    names = people.names(set(places))
    return [found.row(np.array([place]), "process", None, people.pid(place), names.get(place)) for place in places]


def _files(found: _Sums, trace: Trace, owners: Owners, people: People, paths: Paths) -> list[CacheRow]:
    places = [place for place in _most(found, paths.merged) if place != owners.no_handle]
    names = file_names(trace, owners, people, places)
    return [found.row(paths.members(place), *names[place]) for place in places]


def _most(found: _Sums, merged: Callable[[Integers], Integers]) -> list[int]:
    """The places with buffered reads: most missed bytes first, then most bytes read ahead, then most reads."""
    reads = merged(found.reads[:, CACHE_VERDICT.index("hit") :].sum(axis=1))
    order = np.lexsort((-reads, -merged(found.ahead_bytes), -merged(found.missed_bytes)))
    chosen: list[int] = order[reads[order] > 0][:MAX_ROWS].tolist()
    return chosen
