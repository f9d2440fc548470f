"""Distinct numbers; sets of numbers from a counter, with one bit for each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

_PAGE_BITS = 20


def distinct(numbers: NDArray[Any]) -> NDArray[Any]:
    """Each number once, in rising order. ``np.unique`` imports NumPy's masked arrays for that, which takes 15 ms."""
    rising = np.sort(numbers)
    fresh = np.ones(len(rising), np.bool_)
    fresh[1:] = rising[1:] != rising[:-1]
    return rising[fresh]


class NumberSet:
    """A set of numbers. Where they are dense, as a counter's are, each takes one bit."""

    def __init__(self) -> None:
        self._pages: dict[int, NDArray[np.uint8]] = {}

    def add(self, numbers: NDArray[Any]) -> None:
        """Add numbers, in any order."""
        for page, inside, places in self._split(numbers):
            bits = self._pages.setdefault(page, np.zeros(1 << _PAGE_BITS >> 3, np.uint8))
            np.bitwise_or.at(bits, places[inside] >> 3, np.left_shift(1, places[inside] & 7).astype(np.uint8))

    def holds(self, numbers: NDArray[Any]) -> NDArray[np.bool_]:
        """For each number, True if it is in the set."""
        found = np.zeros(len(numbers), np.bool_)
        for page, inside, places in self._split(numbers):
            bits = self._pages.get(page)
            if bits is not None:
                found[inside] = bits[places[inside] >> 3] >> (places[inside] & 7) & 1
        return found

    @staticmethod
    def _split(numbers: NDArray[Any]) -> Iterator[tuple[int, NDArray[np.bool_], NDArray[np.int64]]]:
        wide = numbers.astype(np.int64)
        pages, places = wide >> _PAGE_BITS, wide & ((1 << _PAGE_BITS) - 1)
        for page in distinct(pages).tolist():
            yield page, pages == page, places
