"""Sums files up by path. A journal that is replaced a thousand times has a thousand inodes, but one line in a report.

In: the table of files. Out: for each file group, the first group with the same path on the same device.
Numbers about the bytes of a file (extents, repeated reads) are summed up by file first, then by path.
Memory: 16 B a file; while the object is made, also the paths.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from lo2io.native._lib import ffi, lib
from lo2io.native.columns import pointer_to

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from lo2io.reports.summary.owners import Owners
    from lo2io.trace.reader import Trace

_MAX_BYTES: Final = (1 << 31) - 1
"""The most bytes of all paths together, for Arrow counts them in 32 bits. Beyond that, each file has its own row."""


class Paths:
    """Groups of files with the same path on one device. The first group stands for all of them.

    A group without a path stands for itself.

    Args:
        trace: The trace with the table of files.
        owners: The numbers of the groups.
    """

    def __init__(self, trace: Trace, owners: Owners) -> None:
        self.of: NDArray[np.intp] = np.arange(owners.nr_groups)
        """Group → the group that stands for it, shape (groups,)."""
        self._nr_files = owners.nr_files
        parts = [(batch["file"], batch["device"]) for batch in trace.batches("files", ["file", "device"])]
        if not parts:
            return
        file, device = (np.concatenate(column) for column in zip(*parts, strict=True))
        texts = pa.chunked_array([batch.column("path") for batch in trace.record_batches("files", ["path"])])
        if texts.nbytes > _MAX_BYTES:
            return
        paths = _numbered(texts.combine_chunks())
        named = np.flatnonzero(paths >= 0)
        file, device, number = file[named], device[named], paths[named]
        order = np.lexsort((file, device, number))
        fresh = np.ones(len(order), np.bool_)
        fresh[1:] = (np.diff(number[order]) != 0) | (device[order][1:] != device[order][:-1])
        self.of[file[order]] = file[order][fresh][np.cumsum(fresh) - 1]

    def merged(self, values: NDArray[np.int64]) -> NDArray[np.int64]:
        """Values of groups (shape (groups,)), summed up at the groups that stand for others; elsewhere 0."""
        sums = np.zeros(len(self.of), np.int64)
        np.add.at(sums, self.of, values)
        return sums

    def members(self, group: int) -> NDArray[np.intp]:
        """The groups that this group stands for."""
        return np.flatnonzero(self.of == group)

    def nr_files(self, used: NDArray[np.bool_]) -> NDArray[np.int64]:
        """The number of used named files that each group stands for. ``used`` has shape (groups,)."""
        files = used.copy()
        files[self._nr_files :] = False
        return self.merged(files.astype(np.int64))


def _numbered(texts: pa.Array) -> NDArray[np.int32]:
    """A number for each text, the same for equal texts; -1: there is no text.

    ``pa.Array.dictionary_encode`` imports ``pyarrow.compute``, which describes 286 functions for 40 ms.
    """
    _, ends, content = texts.buffers()
    numbers = np.zeros(len(texts), np.int32)
    if content is None:
        return numbers - 1
    begin = ffi.cast("int32_t *", ends.address) + texts.offset
    bytes_of_all = ffi.cast("uint8_t *", content.address)
    if not lib.lo2_number_texts(len(texts), begin, bytes_of_all, pointer_to(numbers, "int32_t")):
        raise MemoryError
    return numbers
