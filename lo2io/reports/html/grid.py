"""Sums over equal pieces of time, and a few rows that stand for many: all that pictures need, in constant memory.

In: batches of times in ns on the trace's clock. Out: arrays of shape (lanes, bins), and chosen rows. Sums are exact:
a time outside of the grid counts in the nearest bin, so that the bins of a lane add up to all that was added.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from lo2io.native._lib import ffi, lib
from lo2io.native.columns import allocate_rows, pointer_to

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from lo2io.model import Columns


@dataclass(frozen=True, slots=True)
class TimeGrid:
    """Equal bins of time from ``start_ns``. The last edge is at ``stop_ns`` or later."""

    start_ns: int
    bin_ns: int
    bins: int

    def native(self, lanes: int) -> Any:
        """The grid of some lanes as a ``lo2_time_grid *``."""
        return ffi.new("lo2_time_grid *", (self.start_ns, self.bin_ns, self.bins, lanes))


def time_grid(start_ns: int, stop_ns: int, bins: int) -> TimeGrid:
    """Divide a span of time into at most ``bins`` bins of at least 1 ns."""
    span_ns = max(1, stop_ns - start_ns)
    bin_ns = -(-span_ns // bins)
    return TimeGrid(start_ns, bin_ns, -(-span_ns // bin_ns))


class PointSums:
    """Sums of events at points of time. Memory: 8 bytes a lane and bin."""

    def __init__(self, grid: TimeGrid, lanes: int) -> None:
        self._grid_of = grid
        self._grid = grid.native(lanes)
        self.sums = np.zeros((lanes, grid.bins), np.int64)
        """Shape (lanes, bins)."""

    def add(self, lanes: NDArray[Any], times_ns: NDArray[np.int64], amounts: NDArray[Any]) -> None:
        """Add ``amounts`` (shape (n,)) to their lanes (shape (n,)) at their times."""
        kept, columns = _int64(lanes, times_ns, amounts)
        if not lib.lo2_grid_add_points(self._grid, len(lanes), *columns, pointer_to(self.sums, "int64_t")):
            raise IndexError("no such lane")
        del kept

    def regrouped(self, lane_of: NDArray[np.int64], lanes: int) -> PointSums:
        """The same with other lanes, of which each has the sums of some."""
        new = PointSums(self._grid_of, lanes)
        new.sums = _regrouped(self.sums, lane_of, lanes)
        return new


class Presence:
    """For each bin, how long intervals lie in it, and thus how many at a time. The cost of an interval is constant.

    Take the edge e of a bin. The time that all intervals have spent before e is the sum of ``e - begin`` over the
    intervals that began before e, less the sum of ``e - end`` over those that ended before e. Both follow from a count
    and a sum for each bin.
    """

    def __init__(self, grid: TimeGrid, lanes: int) -> None:
        self._grid_of = grid
        self._bin_ns = grid.bin_ns
        self._grid = grid.native(lanes)
        self._edges = allocate_rows("lo2_edge_sums", lanes * grid.bins).reshape(lanes, grid.bins)

    @property
    def edges(self) -> Any:
        """The sums of each bin, as a ``lo2_edge_sums *``."""
        return pointer_to(self._edges, "lo2_edge_sums")

    def add(self, lanes: NDArray[Any], begin_ns: NDArray[np.int64], end_ns: NDArray[np.int64]) -> None:
        """Add the intervals [begin, end). Parts outside of the grid are cut off."""
        kept, columns = _int64(lanes, begin_ns, end_ns)
        if not lib.lo2_grid_add_intervals(self._grid, len(lanes), *columns, self.edges):
            raise IndexError("no such lane")
        del kept

    def regrouped(self, lane_of: NDArray[np.int64], lanes: int) -> Presence:
        """The same with other lanes, of which each has the intervals of some."""
        new = Presence(self._grid_of, lanes)
        for name in self._edges.dtype.names or ():
            new._edges[name] = _regrouped(self._edges[name], lane_of, lanes)
        return new

    @property
    def time_ns(self) -> NDArray[np.int64]:
        """Time spent, by lane and bin; shape (lanes, bins). Two intervals at a time count twice."""
        time_ns: NDArray[np.int64] = self._edges["nr"].cumsum(axis=1) * self._bin_ns - self._edges["into_ns"]
        return time_ns

    @property
    def mean(self) -> NDArray[np.float64]:
        """Mean number of intervals at a time, by lane and bin; shape (lanes, bins)."""
        mean: NDArray[np.float64] = self.time_ns / self._bin_ns
        return mean


def scatter_keys(ids: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """A pseudo-random number for each id, the same in each run. Rows with the smallest numbers are a fair sample."""
    ids = np.ascontiguousarray(ids, np.uint64)
    keys = np.empty(len(ids), np.uint64)
    lib.lo2_scatter_keys(len(ids), pointer_to(ids, "uint64_t"), pointer_to(keys, "uint64_t"))
    return keys


class Taken:
    """The rows of a batch that the native part has taken, and their places."""

    def __init__(self, nr: int) -> None:
        self._arrays = np.empty(nr, np.int64), np.empty(nr, np.int64)
        rows, places = (pointer_to(values, "int64_t") for values in self._arrays)
        self.native = ffi.new("lo2_taken_rows *", (rows, places, 0))

    @property
    def rows(self) -> NDArray[np.int64]:
        """The rows of the batch."""
        return self._arrays[0][: self.native.nr]

    @property
    def places(self) -> NDArray[np.int64]:
        """Their places. A place may come twice: then the later row has it."""
        return self._arrays[1][: self.native.nr]


class Smallest:
    """For each lane, the ``limit`` rows with the smallest keys, and the number of rows offered."""

    def __init__(self, lanes: int, limit: int) -> None:
        self._seen = np.zeros(lanes + 1, np.int64)
        self.seen = self._seen[:lanes]
        self._limit = limit
        self._heaps = allocate_rows("lo2_kept_row", lanes * limit)
        self._columns: Columns = {}
        """By place. They come with the first rows."""

    def add(self, lanes: NDArray[Any], keys: NDArray[np.uint64], rows: Columns) -> None:
        """Offer rows: lane, key and columns, all of shape (n,)."""
        kept, columns = _int64(lanes)
        keys = np.ascontiguousarray(keys)
        taken = Taken(len(lanes))
        pointers = taken.native.rows, taken.native.places
        nr = lib.lo2_smallest_add([self.native()], len(lanes), *columns, pointer_to(keys, "uint64_t"), *pointers)
        if nr < 0:
            raise IndexError("no such lane")
        taken.native.nr = nr
        self.keep(taken, {name: values[taken.rows] for name, values in rows.items()})
        del kept

    def native(self) -> Mapping[str, Any]:
        """A ``lo2_smallest`` over the same rows."""
        heaps, seen = pointer_to(self._heaps, "lo2_kept_row"), pointer_to(self._seen, "int64_t")
        return {"heaps": heaps, "seen": seen, "lanes": len(self.seen), "limit": self._limit}

    def keep(self, taken: Taken, rows: Columns) -> None:
        """Keep the columns of the rows that the native part has taken."""
        for name, values in rows.items():
            if name not in self._columns:
                self._columns[name] = np.zeros(len(self._heaps), values.dtype)
            self._columns[name][taken.places] = values

    def rows(self) -> Columns:
        """The chosen rows' columns with ``lane`` and ``key``, sorted by both. Nothing, if no row was offered."""
        if not self.seen.any():
            return {}
        kept, lanes = self._held()
        order = np.lexsort((kept["number"], kept["key"], lanes))
        return {"lane": lanes[order], "key": kept["key"][order], **self._at(kept["place"][order])}

    def regrouped(self, lane_of: NDArray[np.int64], lanes: int) -> Smallest:
        """The same as if each row had come to another lane; -1: as if the lane's rows had not come."""
        new = Smallest(lanes, self._limit)
        kept, old = self._held()
        order = np.argsort(kept["number"])
        order = order[lane_of[old[order]] >= 0]
        new.add(lane_of[old[order]], kept["key"][order], self._at(kept["place"][order]))
        new.seen[:] = _regrouped(self.seen, lane_of, lanes)
        return new

    def _held(self) -> tuple[NDArray[Any], NDArray[np.int64]]:
        """The native rows that are kept, and their lanes."""
        nr = np.minimum(self.seen, self._limit)
        lanes = np.repeat(np.arange(len(nr)), nr)
        within = np.arange(len(lanes)) - np.repeat(np.cumsum(nr) - nr, nr)
        return self._heaps[lanes * self._limit + within], lanes

    def _at(self, places: NDArray[np.int64]) -> Columns:
        return {name: values[places] for name, values in self._columns.items()}


def _regrouped(values: NDArray[Any], lane_of: NDArray[np.int64], lanes: int) -> NDArray[Any]:
    """Sums of the lanes (first axis) that get the same number; those that get -1 are left out."""
    sums = np.zeros((lanes, *values.shape[1:]), values.dtype)
    np.add.at(sums, lane_of[lane_of >= 0], values[lane_of >= 0])
    return sums


def _int64(*columns: NDArray[Any]) -> tuple[list[NDArray[np.int64]], list[Any]]:
    """Columns as the native part takes them, and pointers to them."""
    kept = [np.ascontiguousarray(column, np.int64) for column in columns]
    return kept, [pointer_to(column, "int64_t") for column in kept]
