"""Matching ids, at about a bit each, and next to nothing where all numbers of a range are there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

_WORD_BITS = 6
_PAGE_BITS = 9
_FULL = (1 << (1 << _PAGE_BITS)) - 1


class Ids:
    """A set of integers that takes few bytes where they are dense, as those of a counter are."""

    def __init__(self) -> None:
        self._pages: dict[int, int] = {}
        self._full: Ids | None = None
        """Numbers of pages all of whose integers are in the set."""
        self._highest = -1

    def is_new(self, number: int) -> bool:
        """Add it; False if it was there."""
        page, bit = number >> _PAGE_BITS, 1 << (number & (1 << _PAGE_BITS) - 1)
        known = number in self
        if not known:
            self._add(page, bit)
            self._highest = max(self._highest, number)
        return not known

    def __contains__(self, number: int) -> bool:
        page = number >> _PAGE_BITS
        if self._pages.get(page, 0) >> (number & (1 << _PAGE_BITS) - 1) & 1:
            return True
        return self._full is not None and page in self._full

    def holds(self, numbers: NDArray[np.uint64]) -> NDArray[np.bool_]:
        """Whether each is in the set; quick for those above all that are."""
        found = np.zeros(len(numbers), np.bool_)
        if self._highest >= 0:
            for place in np.flatnonzero(numbers <= np.uint64(self._highest)).tolist():
                found[place] = int(numbers[place]) in self
        return found

    def add(self, numbers: NDArray[np.uint64]) -> None:
        """Take in numbers that ascend strictly and are not in the set."""
        if not len(numbers):
            return
        words, bits = numbers >> np.uint64(_WORD_BITS), np.uint64(1) << (numbers & np.uint64((1 << _WORD_BITS) - 1))
        starts = np.flatnonzero(np.concatenate([[True], words[1:] != words[:-1]]))
        merged: Any = np.bitwise_or.reduceat(bits, starts)
        spare = _PAGE_BITS - _WORD_BITS
        for word, of_word in zip(words[starts].tolist(), merged.tolist(), strict=True):
            self._add(word >> spare, of_word << ((word & (1 << spare) - 1) << _WORD_BITS))
        self._highest = max(self._highest, int(numbers[-1]))

    def _add(self, page: int, bits: int) -> None:
        merged = self._pages.get(page, 0) | bits
        if merged != _FULL:
            self._pages[page] = merged
            return
        self._pages.pop(page, None)
        if self._full is None:
            self._full = Ids()
        self._full.is_new(page)
