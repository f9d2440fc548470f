"""Latency percentiles without sorting: log-linear histograms, one for each row (a call, a device).

In: durations in ns. Out: count, sum, extremes (exact) and percentiles, each within 0.4 % of the exact one (exact below
256 ns). Each power of two is cut into 128 bins: the bin's number is the exponent and the first 7 bits of the
mantissa, read off the bits of the double. Memory is 48 KiB a row, whatever the number of durations.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from lo2io.frozen import dataclass

if TYPE_CHECKING:
    from numpy.typing import NDArray

_BITS: Final = 7
_EXPONENTS: Final = 48
"""Up to 2^48 ns, 3.3 days. Longer durations share the last bin; their maximum stays exact."""
_BINS: Final = (_EXPONENTS << _BITS) + 1
_SHIFT: Final = 52 - _BITS
_BIAS: Final = (1023 << _BITS) - 1
_LARGEST: Final = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Latency:
    """Durations in ns. If ``nr`` is 0, all else is 0."""

    nr: int = 0
    total_ns: int = 0
    min_ns: int = 0
    mean_ns: int = 0
    p50_ns: int = 0
    p95_ns: int = 0
    p99_ns: int = 0
    max_ns: int = 0


@dataclass(frozen=True, slots=True)
class Bin:
    """Number of durations from ``least_ns`` to below ``below_ns``: two neighbouring powers of two."""

    least_ns: int
    below_ns: int
    nr: int


class LatencyHistograms:
    """``rows`` histograms side by side."""

    def __init__(self, rows: int) -> None:
        self._bins = np.zeros(rows * _BINS, np.int64)
        self._total = np.zeros(rows, np.int64)
        self._min = np.full(rows, _LARGEST, np.int64)
        self._max = np.zeros(rows, np.int64)

    def add(self, rows: NDArray[Any], durations_ns: NDArray[np.int64]) -> None:
        """Count durations. Negative ones count as 0: late samples were put at their predecessor's time.

        Args:
            rows: shape (n,), the histogram of each duration.
            durations_ns: shape (n,).
        """
        rows = rows.astype(np.intp)
        durations = np.maximum(durations_ns, 0)
        bins = (durations.astype(np.float64).view(np.int64) >> _SHIFT) - _BIAS
        np.add.at(self._bins, rows * _BINS + bins.clip(0, _BINS - 1), 1)
        np.add.at(self._total, rows, durations)
        np.minimum.at(self._min, rows, durations)
        np.maximum.at(self._max, rows, durations)

    def arrays(self) -> dict[str, NDArray[np.int64]]:
        """Members of ``lo2_histograms``, which adds as :meth:`add` does."""
        return {"bins": self._bins, "total_ns": self._total, "min_ns": self._min, "max_ns": self._max}

    @classmethod
    def of_counts(cls, counts: NDArray[np.int64], total_ns: int, min_ns: int, max_ns: int) -> LatencyHistograms:
        """One histogram with these counts, which :meth:`counts` of others yielded."""
        made = cls(1)
        made._bins[: len(counts)] = counts
        made._total[0], made._min[0], made._max[0] = total_ns, min_ns, max_ns
        return made

    def counts(self, rows: int | NDArray[np.intp]) -> NDArray[np.int64]:
        """The number of durations in each bin, of one histogram or of several together. Counts of nodes add up."""
        return self._sum(rows)

    def log2(self, rows: int | NDArray[np.intp]) -> tuple[Bin, ...]:
        """One histogram, or the sum of several, by powers of two.

        Empty bins are left out. The bin of 1 ns begins with 0. The last bin, from 2^47 on, has no end.
        """
        bins = self._sum(rows)
        powers = np.add.reduceat(bins, [0, *range(1, _BINS - 1, 1 << _BITS)])
        powers[1] += powers[0]
        return tuple(
            Bin(1 << power if power else 0, 1 << power + 1, int(powers[power + 1]))
            for power in np.flatnonzero(powers[1:]).tolist()
        )

    def _sum(self, rows: int | NDArray[np.intp]) -> NDArray[np.int64]:
        bins: NDArray[np.int64] = self._bins.reshape(-1, _BINS)[np.atleast_1d(rows)].sum(axis=0)
        return bins

    def latency(self, rows: int | NDArray[np.intp]) -> Latency:
        """The latency of one histogram, or of several together; percentiles by nearest rank."""
        bins = self._sum(rows)
        ranks = bins.cumsum()
        nr = int(ranks[-1])
        if not nr:
            return Latency()
        where = np.atleast_1d(rows)
        low, high, total = int(self._min[where].min()), int(self._max[where].max()), int(self._total[where].sum())

        def percentile(percent: int) -> int:
            rank = -(-nr * percent // 100)
            return min(max(_middle(int(np.searchsorted(ranks, rank))), low), high)

        return Latency(nr, total, low, round(total / nr), percentile(50), percentile(95), percentile(99), high)


def _middle(bin_number: int) -> int:
    """The middle of the integers in the bin."""
    if not bin_number:
        return 0
    exponent, step = divmod(bin_number - 1, 1 << _BITS)
    first = (((1 << _BITS) + step) << exponent) >> _BITS
    return first + max(0, (1 << exponent >> _BITS) - 1) // 2
