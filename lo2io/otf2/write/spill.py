"""Rows that are kept until the end of a trace. Of many rows only the newest are in memory; the rest is in a file.

The file has no name. It lies beside the trace, and is gone when it is closed.
"""

from __future__ import annotations

import tempfile
from typing import IO, TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from numpy.typing import DTypeLike, NDArray

MOST_ROWS = 1 << 18
"""Rows in memory. A file is made only for more of them."""


class Spill:
    """Rows in the order in which they came.

    Args:
        folder: Where the file is made.
        dtype: Of a row.
    """

    def __init__(self, folder: Path, dtype: DTypeLike) -> None:
        self._folder = folder
        self._dtype = np.dtype(dtype)
        self._file: IO[bytes] | None = None
        self._in_file = 0
        self._newest: list[NDArray[np.generic]] = []
        self._nr_newest = 0

    def __len__(self) -> int:
        return self._in_file + self._nr_newest

    def append(self, rows: NDArray[np.generic]) -> None:
        """Take rows of shape (n,). The caller does not change them later.

        Raises:
            OSError: The file cannot be made or written.
        """
        self._newest.append(rows)
        self._nr_newest += len(rows)
        if self._nr_newest >= MOST_ROWS:
            if self._file is None:
                self._file = tempfile.TemporaryFile(dir=self._folder)  # noqa: SIM115 - it lives as long as this object
            for part in self._newest:
                self._file.write(part.astype(self._dtype, copy=False).tobytes())
            self._in_file += self._nr_newest
            self._newest, self._nr_newest = [], 0

    def read(self, first: int, count: int) -> NDArray[np.generic]:
        """``count`` rows from ``first`` on, all of them in the file.

        Raises:
            OSError: The file cannot be read.
        """
        assert self._file is not None  # noqa: S101 - the caller asks for rows that are in it
        self._file.seek(first * self._dtype.itemsize)
        return np.frombuffer(self._file.read(count * self._dtype.itemsize), self._dtype)

    def __iter__(self) -> Iterator[NDArray[np.generic]]:
        """All rows, in pieces of shape (n,). None is empty.

        Raises:
            OSError: The file cannot be read.
        """
        for first in range(0, self._in_file, MOST_ROWS):
            yield self.read(first, min(MOST_ROWS, self._in_file - first))
        if self._nr_newest:
            merged = np.concatenate(self._newest)
            self._newest = [merged]
            yield merged

    def close(self) -> None:
        """Remove the file."""
        if self._file is not None:
            self._file.close()
