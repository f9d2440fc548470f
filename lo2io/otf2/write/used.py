"""The definitions that the events of each location name: ``traces/used.ids``, for merging archives.

In: the ids that the native loop holds, each once. Out: all ids in rising order. The loop's ids go to a file, in sorted
runs, before they take much memory.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from lo2io.model.number_sets import distinct
from lo2io.native._lib import ffi, lib
from lo2io.otf2.write.spill import MOST_ROWS, Spill

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from numpy.typing import NDArray

_PIECE: Final = 1 << 14
"""Ids of each run in memory while all runs are merged."""


class UsedIds:
    """Ids as little-endian numbers of 64 bits (``lo2_otf2_used_ids`` says what they are).

    Args:
        writer: ``lo2_otf2_writer *``.
        folder: Where a file for many ids is made.
    """

    def __init__(self, writer: Any, folder: Path) -> None:
        self._writer = writer
        self._spill = Spill(folder, "<u8")
        self._runs: list[range] = []
        """The rows of each run in the file."""

    def relieve(self) -> None:
        """Take the ids from the native loop if it holds many.

        Raises:
            OSError: They cannot be written.
        """
        if lib.lo2_otf2_nr_used(self._writer) >= MOST_ROWS:
            ids = self._held().copy()
            lib.lo2_otf2_forget_used(self._writer)
            self._runs.append(range(len(self._spill), len(self._spill) + len(ids)))
            self._spill.append(ids)

    def _held(self) -> NDArray[np.uint64]:
        """The ids that the native loop holds, in rising order, in its memory."""
        number = ffi.new("uint64_t *")
        ids = lib.lo2_otf2_used_ids(self._writer, number)
        return np.frombuffer(ffi.buffer(ids, number[0] * 8), np.uint64) if number[0] else np.empty(0, np.uint64)

    def __iter__(self) -> Iterator[NDArray[np.uint64]]:
        """All ids once, in rising order, in pieces. The native loop can then write no more.

        Raises:
            OSError: They cannot be read.
        """
        runs = [self._pieces(run) for run in self._runs]
        coming = [np.empty(0, np.uint64) for _ in runs] + [self._held()]
        while True:
            last = []
            for number, run in enumerate(runs):
                if not len(coming[number]):
                    coming[number] = next(run, coming[number])
                if len(coming[number]):
                    last.append(coming[number][-1])
            # Up to this id all runs are known: later pieces of each run have larger ids.
            bound = min(last) if last else np.iinfo(np.uint64).max
            places = [int(np.searchsorted(ids, bound, side="right")) for ids in coming]
            parts = [ids[:place] for ids, place in zip(coming, places, strict=True) if place]
            if parts:
                ids = parts[0] if len(parts) == 1 else distinct(np.concatenate(parts))
                yield ids.astype("<u8", copy=False)
            if not last:
                return
            coming = [ids[place:] for ids, place in zip(coming, places, strict=True)]

    def _pieces(self, run: range) -> Iterator[NDArray[np.uint64]]:
        for first in run[::_PIECE]:
            yield self._spill.read(first, min(_PIECE, run.stop - first)).astype(np.uint64, copy=False)

    def close(self) -> None:
        """Remove the file."""
        self._spill.close()
