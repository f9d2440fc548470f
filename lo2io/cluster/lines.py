"""Broken lines from one clock to another: through readings of both at the same moments.

Times are nanoseconds since 1970 or a boot. As float64 they would be off by up to 128 ns, so only differences are
floats.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from lo2io.frozen import dataclass

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Times = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Line:
    """A line through points, whose times rise on both clocks. Before the first and after the last it goes straight on.

    With one point, both clocks run alike.
    """

    own: Times
    other: Times

    @classmethod
    def through(cls, own: Any, other: Any) -> Self:
        """The line through these points. A point that is not later than the one before it on both clocks is left out.

        Raises:
            ValueError: There is no point.
        """
        pairs = sorted(zip(np.asarray(own, np.int64).tolist(), np.asarray(other, np.int64).tolist(), strict=True))
        if not pairs:
            raise ValueError("a line needs a point")
        rising = pairs[:1]
        for first, second in pairs[1:]:
            if first > rising[-1][0] and second > rising[-1][1]:
                rising.append((first, second))
        return cls(
            np.array([first for first, _ in rising], np.int64), np.array([second for _, second in rising], np.int64)
        )

    def at(self, times: Any) -> Times:
        """Times of the other clock."""
        wanted = np.asarray(times, np.int64)
        if len(self.own) == 1:
            alike: Times = wanted + (self.other[0] - self.own[0])
            return alike
        first = np.clip(np.searchsorted(self.own, wanted, "right") - 1, 0, len(self.own) - 2)
        length, own = np.diff(self.own), wanted - self.own[first]
        gain = (np.diff(self.other) - length) / length
        found: Times = self.other[first] + own + np.rint(gain[first] * own).astype(np.int64)
        return found

    def inverted(self) -> Line:
        """The line from the other clock to this one."""
        return Line(self.other, self.own)

    def bend_ns(self) -> float:
        """How far the truth may be from the line, if the clocks' rates change at most once within a segment.

        If the rate changes by g within a segment of length t, the truth bends by g t / 4 at most. For an inner segment,
        g is the difference between the rates of its two neighbours. The first and the last segment have one neighbour
        each. For them, g is the difference from that neighbour's rate, and the bound is g t.
        """
        if len(self.own) < 3:  # noqa: PLR2004 - two segments
            return 0.0
        length = np.diff(self.own)
        gain = (np.diff(self.other) - length) / length
        ends = (abs(gain[1] - gain[0]) * length[0], abs(gain[-1] - gain[-2]) * length[-1])
        inner = np.abs(gain[2:] - gain[:-2]) * length[1:-1] / 4
        return float(max(*ends, inner.max(initial=0)))


def simplify(times: Times, offsets: Times, tolerance_ns: int) -> list[tuple[int, int]]:
    """Points of a broken line that is nowhere further from the given one than the tolerance.

    Args:
        times: The given points' times, which rise.
        offsets: The given points' offsets.
        tolerance_ns: The most by which a left-out point may lie off the line.

    Returns:
        Some of the given points: the first and the last are among them.
    """
    points = list(zip(times.tolist(), offsets.tolist(), strict=True))
    kept = points[:1]
    low, high = -np.inf, np.inf
    for before, (time, offset) in itertools.pairwise(points):
        slope = (offset - kept[-1][1]) / (time - kept[-1][0])
        if not low <= slope <= high:
            kept.append(before)
            low, high = -np.inf, np.inf
        length, rise = time - kept[-1][0], offset - kept[-1][1]
        low, high = max(low, (rise - tolerance_ns) / length), min(high, (rise + tolerance_ns) / length)
    if len(points) > 1:
        kept.append(points[-1])
    return kept
