"""How files are read and written: the sizes of accesses, and the place of each after the one before.

In: operations, in the order of their ends. Out: sums by file group, histograms of sizes. An access is compared with
the one before of the same kind (read or write) through the same handle. It is

- *consecutive* if it begins at the byte at which the other ended,
- *sequential* if it begins at that byte or up to :data:`NEAR_BYTES` after it (so consecutive ones are sequential),
- *random* otherwise: it begins before that byte, or farther after.

The first access through a handle is none of these. Only accesses that moved bytes at a known offset have a place. All
accesses that moved bytes have a size. Memory: 16 B a handle, some 150 B a file, nothing for an operation.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from lo2io.model import UNKNOWN_I64, UNKNOWN_U32
from lo2io.native._lib import lib
from lo2io.native.columns import allocate_rows

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
NR_SIZES: Final = int(lib.LO2_NR_SIZES)
"""Bins of sizes: bin 0 for size 0, then bin b for 2^(b-1) … 2^b - 1."""
MAX_COMMON: Final = int(lib.LO2_MAX_COMMON)
"""Only this many distinct sizes are counted one by one."""
_DIRECT: Final = {"aarch64": 0o200000, "armv7l": 0o200000, "ppc64le": 0o400000, "ppc64": 0o400000, "alpha": 0o2000000}


class AccessSums:
    """Accesses of one kind by file group: arrays of shape (groups,), int64."""

    def __init__(self, groups: int) -> None:
        rows = self.rows = allocate_rows("lo2_access_sums", groups)
        rows["first"] = np.iinfo(np.int64).max
        self.accesses: NDArray[np.int64] = rows["accesses"]
        """Accesses that moved bytes."""
        self.small: NDArray[np.int64] = rows["small"]
        """Accesses that asked for less than :data:`SMALL_BYTES`."""
        self.placed: NDArray[np.int64] = rows["placed"]
        """Accesses at a known offset, without the first one through each handle."""
        self.consecutive: NDArray[np.int64] = rows["consecutive"]
        self.sequential: NDArray[np.int64] = rows["sequential"]
        self.bytes: NDArray[np.int64] = rows["bytes"]
        """Bytes moved at known offsets."""
        self.first: NDArray[np.int64] = rows["first"]
        """Offset of the first of these bytes."""
        self.end: NDArray[np.int64] = rows["end"]
        """Offset after the last of these bytes."""
        self.waited: NDArray[np.int64] = rows["waited"]
        """Accesses at known offsets during which a request of their thread was at a device."""
        self.waited_bytes: NDArray[np.int64] = rows["waited_bytes"]
        """Bytes that these moved."""
        self.unaided: NDArray[np.int64] = rows["unaided"]
        """Waiting accesses that the kernel cannot do ahead or later: with O_DIRECT, or reads that jump."""
        self.unaided_bytes: NDArray[np.int64] = rows["unaided_bytes"]
        self.unaided_ns: NDArray[np.int64] = rows["unaided_ns"]
        """Bytes that these moved, and their time."""
        self.alone: NDArray[np.int64] = rows["alone"]
        """Such accesses that began after the previous access to the same file had ended."""
        self.time_ns: NDArray[np.int64] = rows["time_ns"]

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
    """Sizes and order of accesses, and other sums by file group. ``adding.py`` adds them up."""

    def __init__(self, trace: Trace, owners: Owners) -> None:
        groups = owners.nr_groups
        self.read, self.write = AccessSums(groups), AccessSums(groups)
        self.sizes = np.zeros((2, NR_SIZES), np.int64)
        """Reads and writes by the size that they asked for."""
        self.common: tuple[dict[int, int], dict[int, int]] = ({}, {})
        """Reads and writes by their exact size, for the first :data:`MAX_COMMON` sizes."""
        rows = self.rows = allocate_rows("lo2_group_sums", groups)
        rows["way"] = -1
        self.opens, self.locks, self.lock_ns, self.locks_refused, self.short_writes = (
            rows[name] for name in ("opens", "locks", "lock_ns", "locks_refused", "short_writes")
        )
        self.syncs, self.sync_ns = rows["syncs"], rows["sync_ns"]
        self.synced_writes, self.synced_write_ns = rows["synced_writes"], rows["synced_write_ns"]
        """Writes that are syncs, too, and their time."""
        self.direct, self.buffered = rows["direct"], rows["buffered"]
        self.misaligned, self.invalid = rows["misaligned"], rows["invalid"]
        """Accesses with O_DIRECT at odd offsets or of odd sizes, and those refused with EINVAL."""
        self.turns = rows["turns"]
        """Changes between accesses with O_DIRECT and those without."""
        self.is_direct = np.zeros(1, np.bool_)
        """For each handle, True if it was opened with O_DIRECT."""
        self._load_handles(trace)
        self.ends = np.full((len(self.is_direct), 2), -1, np.int64)
        """For each handle, where its last read and its last write ended; -1: there was none."""

    def _load_handles(self, trace: Trace) -> None:
        flag = direct_flag(trace.metadata["machine"])
        for rows in trace.batches("handles", ["handle", "open_flags"]):
            size = int(rows["handle"].max(initial=0)) + 2
            if size > len(self.is_direct):
                self.is_direct = np.append(self.is_direct, np.zeros(2 * size - len(self.is_direct), np.bool_))
            flags = rows["open_flags"]
            self.is_direct[rows["handle"]] = (flags != UNKNOWN_U32) & (flags & np.uint32(flag) != 0)


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
