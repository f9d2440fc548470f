"""Files by path: a journal that is replaced a thousand times is a thousand inodes, and one line of a report.

In: the table of files. Out: for each file group the first one with its path on its device, which stands for all.
Numbers about the bytes of a file (extents, repeated reads) are summed up by file first, then by path.
Memory: 16 B a file; while the object is made, also the paths.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from lo2io.trace.reader import as_numpy

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from lo2io.reports.summary.owners import Owners
    from lo2io.trace.reader import Trace


class Paths:
    """Which file groups have the same path on one device. A group without a path stands for itself.

    Args:
        trace: Where the files are.
        owners: Who numbers the groups.
    """

    def __init__(self, trace: Trace, owners: Owners) -> None:
        self.of: NDArray[np.intp] = np.arange(owners.nr_groups)
        """Of each group the one that stands for it, shape (groups,)."""
        self._nr_files = owners.nr_files
        parts = [(batch["file"], batch["device"]) for batch in trace.batches("files", ["file", "device"])]
        if not parts:
            return
        file, device = (np.concatenate(column) for column in zip(*parts, strict=True))
        texts = pa.chunked_array([batch.column("path") for batch in trace.record_batches("files", ["path"])])
        path = texts.combine_chunks().dictionary_encode().indices
        named = np.flatnonzero(as_numpy(path.is_valid()))
        file, device, number = file[named], device[named], as_numpy(path)[named]
        order = np.lexsort((file, device, number))
        fresh = np.ones(len(order), np.bool_)
        fresh[1:] = (np.diff(number[order]) != 0) | (device[order][1:] != device[order][:-1])
        self.of[file[order]] = file[order][fresh][np.cumsum(fresh) - 1]

    def merged(self, values: NDArray[np.int64]) -> NDArray[np.int64]:
        """Values of groups (shape (groups,)) summed up where they stand; elsewhere 0."""
        sums = np.zeros(len(self.of), np.int64)
        np.add.at(sums, self.of, values)
        return sums

    def members(self, group: int) -> NDArray[np.intp]:
        """The groups that one stands for."""
        return np.flatnonzero(self.of == group)

    def nr_files(self, used: NDArray[np.bool_]) -> NDArray[np.int64]:
        """How many named files, of those that are used (shape (groups,)), each group stands for."""
        files = used.copy()
        files[self._nr_files :] = False
        return self.merged(files.astype(np.int64))
