"""How files are read and written: the sizes of accesses, and the place of each after the one before.

In: operations, in the order of their ends. Out: sums by file group, histograms of sizes. An access is compared with
the one before of the same kind (read or write) through the same handle. It is

- *consecutive* if it begins at the byte at which the other ended,
- *sequential* if it begins at that byte or up to :data:`NEAR_BYTES` behind it (so consecutive ones are sequential),
- *random* otherwise: it begins before that byte, or farther behind.

The first access through a handle is none of these. Only accesses that moved bytes at a known offset have a place. All
accesses that moved bytes have a size. Memory: 16 B a handle, some 150 B a file, nothing for an operation.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from lo2io.model import UNKNOWN_I64, UNKNOWN_U32, CallClass

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from lo2io.model import Columns
    from lo2io.reports.summary.owners import Owners
    from lo2io.trace.reader import Trace

NEAR_BYTES: Final = 128 << 10
"""Linux reads ahead this much by default (VM_READAHEAD_PAGES, include/linux/pagemap.h)."""
SMALL_BYTES: Final = 4096
"""Smaller accesses move less than a page."""
ALIGNMENT: Final = 512
"""No disk has smaller logical blocks."""
NR_SIZES: Final = 65
"""Bins of sizes: bin 0 for size 0, then bin b for 2^(b-1) … 2^b - 1."""
MAX_COMMON: Final = 1 << 16
"""Only this many distinct sizes are counted one by one."""
_EINVAL: Final = 22
_DIRECT: Final = {"aarch64": 0o200000, "armv7l": 0o200000, "ppc64le": 0o400000, "ppc64": 0o400000, "alpha": 0o2000000}


class AccessSums:
    """Accesses of one kind by file group: arrays of shape (groups,), int64."""

    def __init__(self, groups: int) -> None:
        self.accesses = np.zeros(groups, np.int64)
        """Accesses that moved bytes."""
        self.small = np.zeros(groups, np.int64)
        """Accesses that asked for less than :data:`SMALL_BYTES`."""
        self.placed = np.zeros(groups, np.int64)
        """Accesses at a known offset, without the first one through each handle."""
        self.consecutive = np.zeros(groups, np.int64)
        self.sequential = np.zeros(groups, np.int64)
        self.bytes = np.zeros(groups, np.int64)
        """Bytes moved at known offsets."""
        self.first = np.full(groups, np.iinfo(np.int64).max, np.int64)
        """Offset of the first of these bytes."""
        self.end = np.zeros(groups, np.int64)
        """Offset behind the last of these bytes."""
        self.waited = np.zeros(groups, np.int64)
        """Accesses at known offsets during which a request of their thread was at a device."""
        self.waited_bytes = np.zeros(groups, np.int64)
        """Bytes that these moved."""
        self.unaided = np.zeros(groups, np.int64)
        """Waiting accesses that the kernel cannot do ahead or later: with O_DIRECT, or reads that jump."""
        self.unaided_bytes, self.unaided_ns = np.zeros(groups, np.int64), np.zeros(groups, np.int64)
        """Bytes that these moved, and their time."""
        self.alone = np.zeros(groups, np.int64)
        """Those of them that began after the access before to the same file had ended."""
        self.last_end_ns = np.zeros(groups, np.int64)
        self.time_ns = np.zeros(groups, np.int64)

    def random(self, key: Any = slice(None)) -> NDArray[np.int64]:
        """Accesses that were not sequential."""
        values: NDArray[np.int64] = self.placed[key] - self.sequential[key]
        return values

    def extent(self, key: Any = slice(None)) -> NDArray[np.int64]:
        """Bytes from the first accessed byte to the last."""
        values: NDArray[np.int64] = np.maximum(self.end[key] - self.first[key], 0) * (self.bytes[key] > 0)
        return values

    def again(self, key: Any = slice(None)) -> NDArray[np.int64]:
        """Bytes that were accessed before: the file's moved bytes beyond its extent."""
        values: NDArray[np.int64] = np.maximum(self.bytes[key] - self.extent(key), 0)
        return values


class PatternTally:
    """Sizes and order of accesses, and other sums by file group."""

    def __init__(self, trace: Trace, owners: Owners) -> None:
        groups = owners.nr_groups
        self.read, self.write = AccessSums(groups), AccessSums(groups)
        self.sizes = np.zeros((2, NR_SIZES), np.int64)
        """Reads and writes by the size that they asked for."""
        self.common: tuple[Counter[int], Counter[int]] = (Counter(), Counter())
        """Reads and writes by their exact size, for the first :data:`MAX_COMMON` sizes."""
        self.uncommon = np.zeros(2, np.int64)
        self.syncs, self.sync_ns = np.zeros(groups, np.int64), np.zeros(groups, np.int64)
        self.synced_writes, self.synced_write_ns = np.zeros(groups, np.int64), np.zeros(groups, np.int64)
        """Writes that are syncs, too, and their time."""
        self.opens, self.locks, self.lock_ns, self.locks_refused, self.short_writes, self.direct, self.buffered = (
            np.zeros(groups, np.int64) for _ in range(7)
        )
        self.misaligned, self.invalid = np.zeros(groups, np.int64), np.zeros(groups, np.int64)
        """Accesses with O_DIRECT at odd offsets or of odd sizes, and those refused with EINVAL."""
        self.turns, self._way = np.zeros(groups, np.int64), np.full(groups, -1, np.int8)
        """Changes between accesses with O_DIRECT and those without; and which kind the last access was."""
        self._ends = np.full((1, 2), -1, np.int64)
        self.is_direct = np.zeros(1, np.bool_)
        """For each handle, True if it was opened with O_DIRECT."""
        self._load_handles(trace)

    def _load_handles(self, trace: Trace) -> None:
        flag = direct_flag(trace.metadata["machine"])
        for rows in trace.batches("handles", ["handle", "open_flags"]):
            size = int(rows["handle"].max(initial=0)) + 2
            if size > len(self.is_direct):
                self.is_direct = np.append(self.is_direct, np.zeros(2 * size - len(self.is_direct), np.bool_))
            flags = rows["open_flags"]
            self.is_direct[rows["handle"]] = (flags != UNKNOWN_U32) & (flags & np.uint32(flag) != 0)
        self._ends = np.full((len(self.is_direct), 2), -1, np.int64)
        self._some_direct = bool(self.is_direct.any())

    def add(self, rows: Columns) -> None:
        """Add operations, as :func:`~lo2io.reports.summary.tally.derive` gives them."""
        kind = rows["class"]
        for direction, sums, wanted in ((0, self.read, CallClass.READ), (1, self.write, CallClass.WRITE)):
            which = np.flatnonzero(kind == wanted)
            if len(which):
                self._add_accesses(direction, sums, {name: rows[name][which] for name in _ACCESS})
        if self._some_direct:
            self._add_turns(rows["group"], rows["handle"], np.flatnonzero(kind <= CallClass.WRITE))
        for calls, wanted in ((self.opens, CallClass.OPEN), (self.syncs, CallClass.SYNC), (self.locks, CallClass.LOCK)):
            np.add.at(calls, rows["group"][kind == wanted], 1)
        for times, wanted in ((self.sync_ns, CallClass.SYNC), (self.lock_ns, CallClass.LOCK)):
            np.add.at(times, rows["group"][kind == wanted], rows["duration_ns"][kind == wanted])
        for counts, values in ((self.synced_writes, 1), (self.synced_write_ns, rows["duration_ns"][rows["synced"]])):
            np.add.at(counts, rows["group"][rows["synced"]], values)
        np.add.at(self.locks_refused, rows["group"][(kind == CallClass.LOCK) & (rows["error"] != 0)], 1)

    def _add_accesses(self, direction: int, sums: AccessSums, rows: Columns) -> None:
        group, moved, asked = rows["group"], rows["moved"], rows["bytes_request"]
        self._add_direct(rows)
        if direction:
            short = (moved > 0) & (asked > moved) & (rows["error"] == 0)
            np.add.at(self.short_writes, group[short], 1)
        np.add.at(sums.time_ns, group, rows["duration_ns"])
        known = moved > 0
        size = np.where(asked != UNKNOWN_I64, asked, moved)[known]
        np.add.at(sums.accesses, group[known], 1)
        np.add.at(sums.small, group[known][size < SMALL_BYTES], 1)
        self._add_sizes(direction, size)
        known &= (rows["offset_bytes"] >= 0) & (rows["handle"] != UNKNOWN_U32)
        self._place(direction, sums, {name: values[known] for name, values in rows.items()})

    def _add_direct(self, rows: Columns) -> None:
        handle = np.minimum(rows["handle"], len(self.is_direct) - 1)
        direct = self.is_direct[handle]
        np.add.at(self.direct, rows["group"][direct], 1)
        np.add.at(self.buffered, rows["group"][~direct], 1)
        if direct.any():
            np.add.at(self.misaligned, rows["group"][direct & odd(rows)], 1)
            np.add.at(self.invalid, rows["group"][direct & (np.abs(rows["error"]) == _EINVAL)], 1)

    def _add_turns(self, group: NDArray[np.intp], handle: NDArray[np.uint32], accesses: NDArray[np.intp]) -> None:
        """Compare each access with the one before to the same file, in these rows or in earlier ones."""
        order = accesses[np.argsort(group[accesses], kind="stable")]
        group = group[order]
        way = self.is_direct[np.minimum(handle[order], len(self.is_direct) - 1)].astype(np.int8)
        fresh = np.ones(len(order), np.bool_)
        fresh[1:] = group[1:] != group[:-1]
        before = np.empty_like(way)
        before[1:] = way[:-1]
        before[fresh] = self._way[group[fresh]]
        np.add.at(self.turns, group[(before >= 0) & (before != way)], 1)
        lasts = np.append(fresh[1:], True)[: len(order)]
        self._way[group[lasts]] = way[lasts]

    def _add_sizes(self, direction: int, size: NDArray[np.int64]) -> None:
        self.sizes[direction] += np.bincount(np.frexp(size.astype(np.float64))[1], minlength=NR_SIZES)[:NR_SIZES]
        common = self.common[direction]
        for value, number in zip(*(part.tolist() for part in np.unique(size, return_counts=True)), strict=True):
            if value in common or len(common) < MAX_COMMON:
                common[value] += number
            else:
                self.uncommon[direction] += number

    def _place(self, direction: int, sums: AccessSums, rows: Columns) -> None:
        """Compare each access with the one before through the same handle, in these rows or in earlier ones."""
        group, begin, moved = rows["group"], rows["offset_bytes"], rows["moved"]
        end = begin + moved
        np.add.at(sums.bytes, group, moved)
        np.minimum.at(sums.first, group, begin)
        np.maximum.at(sums.end, group, end)
        waited = rows["device_ns"] > 0
        np.add.at(sums.waited, group[waited], 1)
        np.add.at(sums.waited_bytes, group[waited], moved[waited])
        handle = np.minimum(rows["handle"], len(self._ends) - 1)
        order = np.argsort(handle, kind="stable")
        handle, group, begin, end = handle[order], group[order], begin[order], end[order]
        fresh = np.ones(len(order), np.bool_)
        fresh[1:] = handle[1:] != handle[:-1]
        before = np.empty_like(end)
        before[1:] = end[:-1]
        before[fresh] = self._ends[handle[fresh], direction]
        lasts = np.append(fresh[1:], True)[: len(order)]
        self._ends[handle[lasts], direction] = end[lasts]
        gap = begin - before
        placed = before >= 0
        for counts, which in (
            (sums.placed, placed),
            (sums.consecutive, placed & (gap == 0)),
            (sums.sequential, placed & (gap >= 0) & (gap <= NEAR_BYTES)),
        ):
            np.add.at(counts, group[which], 1)
        rows = {name: values[order] for name, values in rows.items()}
        unaided = self.is_direct[handle] & ~rows["synced"]
        if not direction:
            unaided |= placed & ~((gap >= 0) & (gap <= NEAR_BYTES))
        self._add_unaided(sums, rows, np.flatnonzero(unaided & waited[order]))

    def _add_unaided(self, sums: AccessSums, rows: Columns, which: NDArray[np.intp]) -> None:
        """Compare each access with the one before to the same file. If each begins later, at most one was under way."""
        which = which[np.lexsort((rows["end_time_ns"][which], rows["group"][which]))]
        group, begin, end = (rows[name][which] for name in ("group", "begin_time_ns", "end_time_ns"))
        fresh = np.ones(len(which), np.bool_)
        fresh[1:] = group[1:] != group[:-1]
        before = np.empty_like(end)
        before[1:] = end[:-1]
        before[fresh] = sums.last_end_ns[group[fresh]]
        lasts = np.append(fresh[1:], True)[: len(which)]
        sums.last_end_ns[group[lasts]] = end[lasts]
        for counts, values in (
            (sums.unaided, 1),
            (sums.unaided_bytes, rows["moved"][which]),
            (sums.unaided_ns, rows["duration_ns"][which]),
            (sums.alone, begin >= before),
        ):
            np.add.at(counts, group, values)


_ACCESS: Final = (
    "group", "moved", "bytes_request", "offset_bytes", "handle", "error", "duration_ns", "device_ns",
    "begin_time_ns", "end_time_ns", "synced",
)  # fmt: skip


def odd(rows: Columns) -> NDArray[np.bool_]:
    """For each access, True if its offset or its size is known and no multiple of :data:`ALIGNMENT`."""
    offset, size = rows["offset_bytes"], rows["bytes_request"]
    odd_offset: NDArray[np.bool_] = (offset != UNKNOWN_I64) & (offset % ALIGNMENT != 0)
    odd_size: NDArray[np.bool_] = (size != UNKNOWN_I64) & (size % ALIGNMENT != 0)
    either: NDArray[np.bool_] = odd_offset | odd_size
    return either


def direct_flag(machine: str) -> int:
    """O_DIRECT on the recorded machine (arch/*/include/uapi/asm/fcntl.h; include/uapi/asm-generic/fcntl.h)."""
    return _DIRECT.get(machine, 0o40000)
