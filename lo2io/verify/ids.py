"""Matching ids, at about a bit each."""

from __future__ import annotations

_PAGE_BITS = 9


class Ids:
    """A set of integers that takes few bytes where they are dense, as those of a counter are."""

    def __init__(self) -> None:
        self._pages: dict[int, int] = {}

    def is_new(self, number: int) -> bool:
        """Add it; False if it was there."""
        page, bit = number >> _PAGE_BITS, 1 << (number & (1 << _PAGE_BITS) - 1)
        bits = self._pages.get(page, 0)
        self._pages[page] = bits | bit
        return not bits & bit

    def __contains__(self, number: int) -> bool:
        return bool(self._pages.get(number >> _PAGE_BITS, 0) >> (number & (1 << _PAGE_BITS) - 1) & 1)
