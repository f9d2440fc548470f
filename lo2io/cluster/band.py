"""All lines that keep within bounds: the ways from one clock to another that agree with the calls that both saw.

A call lies in the region in which the application made it. So the line passes below the call's start at the region's
start, and above the call's end at the region's end. Two heights define a line: those at the two ends of the
application's time. So each line is a point, and all lines within bounds form a convex polygon. Each bound cuts the
polygon along a straight line. The middle of the box around the polygon is one of these lines: a convex set that touches
all four sides of a box contains the middle of the box. Two lines are furthest from each other at one of the ends. So
half of the box's longer side is the error.

Heights are ns above a line of nominal rate, as float64: below 10^14 ns (a day) they are exact to 0.02 ns.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Self

import numpy as np

from lo2io.cluster.lines import Line

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from lo2io.cluster.lines import Times
    from lo2io.trace.correction import Correction

    Floats = NDArray[np.float64]

_EXACT_NS: Final = 0.5
"""Clocks tell whole ns."""


@dataclass(frozen=True, slots=True)
class Pairs:
    """Calls that both clocks saw."""

    number: NDArray[np.intp]
    """The call's place among those of the application's thread."""
    first_tick: Times
    """When the application's region began."""
    last_tick: Times
    begin_ns: Times
    """When the call began."""
    end_ns: Times

    def __len__(self) -> int:
        return len(self.begin_ns)

    def fit(self, line: Line, correction: Correction, error_ns: int) -> bool:
        """True if each call lies in its region, by a line from ticks to corrected times, within an error."""
        begin, end = (correction.apply(times) for times in (self.begin_ns, self.end_ns))
        before, behind = begin - line.at(self.first_tick), line.at(self.last_tick) - end
        return bool((before >= -error_ns).all() and (behind >= -error_ns).all())


class Contradiction(Exception):  # noqa: N818 - it is an answer, which the caller puts into words
    """No line keeps within the bounds.

    Attributes:
        pair: The place of a pair that does not fit: no line meets both this pair and those before it.
        other: The place of one pair that no line can meet together with ``pair``; None: no single pair excludes it.
    """

    def __init__(self, pair: int, other: int | None) -> None:
        self.pair, self.other = pair, other
        super().__init__(pair, other)


@dataclass(frozen=True, slots=True)
class Band:
    """All lines from ticks to ns that keep within the bounds so far.

    Attributes:
        span: First and last tick.
        start_ns: Height 0 at the first tick.
        length_ns: Between the ticks, at the nominal rate.
        corners: Of the polygon, in turn: heights at the first and at the last tick.
    """

    span: tuple[int, int]
    start_ns: int
    length_ns: float
    corners: Floats

    @classmethod
    def of_clock(cls, clock: tuple[int, int, int], around: tuple[int, int], drift: float) -> Self:
        """All lines that put some of a clock's time into a recording.

        Args:
            clock: Its nominal ticks per second, its first and its last tick.
            around: Begin and end of the recording in ns.
            drift: The share by which the true rate differs from the nominal one at most.
        """
        resolution, first, last = clock
        last = max(last, first + 1)
        length = (last - first) * 1e9 / resolution
        turn = drift * length
        low, high = -length - turn, float(around[1] - around[0]) + turn
        corners = [(low, low - turn), (high, high - turn), (high, high + turn), (low, low + turn)]
        return cls((first, last), around[0], length, np.array(corners))

    @property
    def line(self) -> Line:
        """The line in the middle."""
        middle = (self.corners.max(axis=0) + self.corners.min(axis=0)) / 2 + (0.0, self.length_ns)
        return Line(np.array(self.span, np.int64), self.start_ns + np.rint(middle).astype(np.int64))

    @property
    def error_ns(self) -> float:
        """No line of the band is further from the middle one, between the first and the last tick."""
        return float((self.corners.max(axis=0) - self.corners.min(axis=0)).max()) / 2 + _EXACT_NS

    def within(self, pairs: Pairs) -> Band:
        """The lines of the band that meet these pairs, too.

        Raises:
            Contradiction: There is none.
        """
        normals, limits = self._bounds(pairs)
        corners = self.corners
        while len(pairs):
            excess = normals @ corners.T - limits[:, None]
            worst = int(excess.max(axis=1).argmax())
            if excess[worst].max() <= _EXACT_NS:
                break
            if excess[worst].min() > _EXACT_NS:
                raise self._contradiction(worst, normals, limits)
            corners = _cut(corners, excess[worst])
        return replace(self, corners=corners)

    def _bounds(self, pairs: Pairs) -> tuple[Floats, Floats]:
        """Bounds as ``normal · heights <= limit``: first those by the calls' begins, then those by their ends."""
        first, last = self.span
        shares = [(ticks - first) / (last - first) for ticks in (pairs.first_tick, pairs.last_tick)]
        heights = [
            (times - self.start_ns) - share * self.length_ns
            for times, share in zip((pairs.begin_ns, pairs.end_ns), shares, strict=True)
        ]
        below, above = (np.stack([1 - share, share], axis=1) for share in shares)
        return np.concatenate([below, -above]), np.concatenate([heights[0], -heights[1]])

    def _contradiction(self, worst: int, normals: Floats, limits: Floats) -> Contradiction:
        nr_pairs = len(limits) // 2
        excess = self.corners @ normals[worst] - limits[worst]
        if excess.min() > _EXACT_NS:
            return Contradiction(worst % nr_pairs, None)
        left = (normals @ _cut(self.corners, excess).T - limits[:, None]).min(axis=1)
        other = int(left.argmax())
        return Contradiction(worst % nr_pairs, other % nr_pairs if left[other] > _EXACT_NS else None)


def _cut(corners: Floats, excess: Floats) -> Floats:
    """The part of a convex polygon within a bound. If there is none, the part that exceeds the bound least."""
    beyond = excess - max(excess.min(), 0.0)
    kept = []
    for corner, after, here, there in zip(
        corners, np.roll(corners, -1, axis=0), beyond, np.roll(beyond, -1), strict=True
    ):
        if here <= 0:
            kept.append(corner)
        if here * there < 0:
            kept.append(corner + (after - corner) * (here / (here - there)))
    return np.array(kept)
