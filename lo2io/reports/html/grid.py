"""Sums over equal pieces of time, and a few rows that stand for many: all that pictures need, in constant memory.

In: batches of times in ns on the trace's clock. Out: arrays of shape (lanes, bins), and chosen rows. Sums are exact:
a time outside of the grid counts in the nearest bin, so that the bins of a lane add up to all that was added.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from lo2io.model import Columns

_COMPACT_AT: Final = 4
"""Rows are thrown away when there are this many times more than wanted: seldom enough to cost little."""
_ALL: Final = np.uint64(2**64 - 1)


@dataclass(frozen=True, slots=True)
class TimeGrid:
    """Equal bins of time from ``start_ns``. The last edge is at ``stop_ns`` or later."""

    start_ns: int
    bin_ns: int
    bins: int

    def index(self, times_ns: NDArray[np.int64]) -> NDArray[np.int64]:
        """Bin of each time. A time before the grid gets the first bin, a time after it the last one."""
        index: NDArray[np.int64] = ((times_ns - self.start_ns) // self.bin_ns).clip(0, self.bins - 1)
        return index


def time_grid(start_ns: int, stop_ns: int, bins: int) -> TimeGrid:
    """Divide a span of time into at most ``bins`` bins of at least 1 ns."""
    span_ns = max(1, stop_ns - start_ns)
    bin_ns = -(-span_ns // bins)
    return TimeGrid(start_ns, bin_ns, -(-span_ns // bin_ns))


class PointSums:
    """Sums of events at points of time. Memory: 8 bytes a lane and bin."""

    def __init__(self, grid: TimeGrid, lanes: int) -> None:
        self._grid = grid
        self._sums = np.zeros(lanes * grid.bins, np.int64)
        self._shape = lanes, grid.bins

    def add(self, lanes: NDArray[Any], times_ns: NDArray[np.int64], amounts: NDArray[Any]) -> None:
        """Add ``amounts`` (shape (n,)) to their lanes (shape (n,)) at their times."""
        np.add.at(self._sums, lanes * self._grid.bins + self._grid.index(times_ns), amounts)

    @property
    def sums(self) -> NDArray[np.int64]:
        """Shape (lanes, bins)."""
        return self._sums.reshape(self._shape)


class Presence:
    """For each bin, how long intervals lie in it, and thus how many at a time. The cost of an interval is constant.

    Take the edge e of a bin. The time that all intervals have spent before e is the sum of ``e - begin`` over the
    intervals that began before e, less the sum of ``e - end`` over those that ended before e. Both follow from a count
    and a sum for each bin.
    a sum for each bin.
    """

    def __init__(self, grid: TimeGrid, lanes: int) -> None:
        self._grid = grid
        self._shape = lanes, grid.bins
        self._nr = np.zeros(lanes * grid.bins, np.int64)
        self._into = np.zeros(lanes * grid.bins, np.int64)

    def add(self, lanes: NDArray[Any], begin_ns: NDArray[np.int64], end_ns: NDArray[np.int64]) -> None:
        """Add the intervals [begin, end). Parts outside of the grid are cut off."""
        grid = self._grid
        stop_ns = grid.start_ns + grid.bins * grid.bin_ns
        base = lanes.astype(np.int64) * grid.bins
        for times, sign in ((begin_ns, 1), (np.maximum(begin_ns, end_ns), -1)):
            inside = times.clip(grid.start_ns, stop_ns) - grid.start_ns
            index = np.minimum(inside // grid.bin_ns, grid.bins - 1)
            np.add.at(self._nr, base + index, sign)
            np.add.at(self._into, base + index, sign * (inside - index * grid.bin_ns))

    @property
    def time_ns(self) -> NDArray[np.int64]:
        """Time spent, by lane and bin; shape (lanes, bins). Two intervals at a time count twice."""
        nr, into = self._nr.reshape(self._shape), self._into.reshape(self._shape)
        already = nr.cumsum(axis=1) - nr
        time_ns: NDArray[np.int64] = (already + nr) * self._grid.bin_ns - into
        return time_ns

    @property
    def mean(self) -> NDArray[np.float64]:
        """Mean number of intervals at a time, by lane and bin; shape (lanes, bins)."""
        mean: NDArray[np.float64] = self.time_ns / self._grid.bin_ns
        return mean


def scatter_keys(ids: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """A pseudo-random number for each id, the same in every run. The rows with the smallest numbers are a fair sample.

    Source: SplitMix64's finalizer (Steele, Lea, Flood: Fast splittable pseudorandom number generators, OOPSLA 2014).
    """
    with np.errstate(over="ignore"):
        mixed = ids.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    keys: NDArray[np.uint64] = mixed ^ (mixed >> np.uint64(31))
    return keys


class Smallest:
    """For each lane, the ``limit`` rows with the smallest keys, and the number of rows offered."""

    def __init__(self, lanes: int, limit: int) -> None:
        self.seen = np.zeros(lanes, np.int64)
        self._limit = limit
        self._bound = np.full(lanes, _ALL)
        """For each lane, a bound: a row with a larger key cannot be among the smallest."""
        self._parts: list[Columns] = []
        self._held = 0

    def add(self, lanes: NDArray[Any], keys: NDArray[np.uint64], rows: Columns) -> None:
        """Offer rows: lane, key and columns, all of shape (n,)."""
        np.add.at(self.seen, lanes, 1)
        wanted = keys <= self._bound[lanes]
        chosen = {name: values[wanted] for name, values in rows.items()}
        self._parts.append({"lane": lanes[wanted].astype(np.int64), "key": keys[wanted], **chosen})
        self._held += int(np.count_nonzero(wanted))
        if self._held > _COMPACT_AT * self._limit * len(self.seen):
            self._compact()

    def _compact(self) -> None:
        parts = self._parts
        rows = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
        order = np.lexsort((rows["key"], rows["lane"]))
        lanes = rows["lane"][order]
        rank = np.arange(len(order)) - np.searchsorted(lanes, lanes)
        last = order[rank == self._limit - 1]
        self._bound[rows["lane"][last]] = rows["key"][last]
        kept = order[rank < self._limit]
        self._parts = [{name: values[kept] for name, values in rows.items()}]
        self._held = len(kept)

    def rows(self) -> Columns:
        """The chosen rows' columns with ``lane`` and ``key``, sorted by both. Nothing, if no row was offered."""
        if not self._parts:
            return {}
        self._compact()
        return self._parts[0]
