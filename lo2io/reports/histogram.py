"""Latency percentiles without sorting: log-linear histograms, one a row (a call, a device).

In: durations in ns. Out: count, sum, extremes (exact) and percentiles, each within 0.4 % of the exact one (exact below
256 ns). Each power of two is cut into 128 bins: the bin's number is the exponent and the first 7 bits of the
mantissa, read off the bits of the double. Memory is 48 KiB a row, whatever the number of durations.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

_BITS: Final = 7
_EXPONENTS: Final = 48
"""Up to 2^48 ns, 3.3 days; longer ones share the last bin, their maximum stays exact."""
_BINS: Final = (_EXPONENTS << _BITS) + 1
_SHIFT: Final = 52 - _BITS
_BIAS: Final = (1023 << _BITS) - 1
_LARGEST: Final = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Latency:
    """Durations in ns. Of none (``nr`` 0), all else is 0."""

    nr: int = 0
    total_ns: int = 0
    min_ns: int = 0
    mean_ns: int = 0
    p50_ns: int = 0
    p95_ns: int = 0
    p99_ns: int = 0
    max_ns: int = 0


class LatencyHistograms:
    """``rows`` histograms side by side."""

    def __init__(self, rows: int) -> None:
        self._bins = np.zeros(rows * _BINS, np.int64)
        self._total = np.zeros(rows, np.int64)
        self._min = np.full(rows, _LARGEST, np.int64)
        self._max = np.zeros(rows, np.int64)

    def add(self, rows: NDArray[Any], durations_ns: NDArray[np.int64]) -> None:
        """Count durations; negative ones (late samples, put at their predecessor's time) as 0.

        Args:
            rows: shape (n,), the histogram of each.
            durations_ns: shape (n,).
        """
        rows = rows.astype(np.intp)
        durations = np.maximum(durations_ns, 0)
        bins = (durations.astype(np.float64).view(np.int64) >> _SHIFT) - _BIAS
        np.add.at(self._bins, rows * _BINS + bins.clip(0, _BINS - 1), 1)
        np.add.at(self._total, rows, durations)
        np.minimum.at(self._min, rows, durations)
        np.maximum.at(self._max, rows, durations)

    def latency(self, row: int) -> Latency:
        """What one histogram holds; percentiles by nearest rank."""
        bins = self._bins[row * _BINS : (row + 1) * _BINS]
        ranks = bins.cumsum()
        nr = int(ranks[-1])
        if not nr:
            return Latency()
        low, high, total = int(self._min[row]), int(self._max[row]), int(self._total[row])

        def percentile(percent: int) -> int:
            rank = -(-nr * percent // 100)
            return min(max(_middle(int(np.searchsorted(ranks, rank))), low), high)

        return Latency(nr, total, low, round(total / nr), percentile(50), percentile(95), percentile(99), high)


def _middle(bin_number: int) -> int:
    """The middle of the integers that fall into the bin."""
    if not bin_number:
        return 0
    exponent, step = divmod(bin_number - 1, 1 << _BITS)
    first = (((1 << _BITS) + step) << exponent) >> _BITS
    return first + max(0, (1 << exponent >> _BITS) - 1) // 2
