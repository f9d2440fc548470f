"""Broken lines between clocks, against exact fractions; and what simplifying may move."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lo2io.cluster.lines import Line, simplify

S = 10**9


def test_times_of_years_keep_their_nanoseconds() -> None:
    """CLOCK_REALTIME as float64 would lose 256 ns."""
    line = Line.through([0, 100 * S], [1_795_579_167 * S, 1_795_579_267 * S + 5_000])
    assert line.at([50 * S + 1]).tolist() == [1_795_579_217 * S + 2_501]
    assert line.inverted().at([1_795_579_217 * S + 2_501]).tolist() == [50 * S + 1]


def test_one_point_is_an_offset() -> None:
    """Nothing is known of a drift then."""
    assert Line.through([5], [7]).at([5, 1_000]).tolist() == [7, 1_002]


def test_no_point_is_no_line() -> None:
    """There is nothing to say about such clocks."""
    with pytest.raises(ValueError, match="needs a point"):
        Line.through([], [])


def test_points_that_do_not_rise_are_left_out() -> None:
    """A clock that stood or was set back gives no line in both directions."""
    line = Line.through([0, 10, 20, 30], [0, 12, 12, 33])
    assert (line.own.tolist(), line.other.tolist()) == ([0, 10, 30], [0, 12, 33])


@given(
    st.lists(st.tuples(st.integers(1, 10 * S), st.integers(-500, 500)), min_size=1, max_size=6),
    st.integers(-10 * S, 70 * S),
)
def test_every_time_lies_on_the_line(parts: list[tuple[int, int]], time: int) -> None:
    """Segments have any length, and rates within 500 ppm; beyond both ends the last segment goes on."""
    own, other = [0], [1_000 * S]
    for length, ppm in parts:
        own.append(own[-1] + length)
        other.append(other[-1] + length + length * ppm // 1_000_000)
    if other[-1] <= other[-2]:
        return
    line = Line.through(own, other)
    place = min(max(np.searchsorted(line.own, time, "right") - 1, 0), len(line.own) - 2)
    (x0, x1), (y0, y1) = line.own[place : place + 2].tolist(), line.other[place : place + 2].tolist()
    exact = y0 + Fraction(y1 - y0, x1 - x0) * (time - x0)
    slack = 1 + abs(Fraction(time - x0)) / 10**15  # a float64 has 53 bits
    assert abs(int(line.at([time])[0]) - exact) <= slack


@given(st.lists(st.tuples(st.integers(1, 100), st.integers(-3_000, 3_000)), min_size=1, max_size=40))
def test_simplifying_moves_nothing_by_more_than_asked(steps: list[tuple[int, int]]) -> None:
    """Each given point is within the tolerance of the simple line, which has points of the given one only."""
    times = np.cumsum([0, *(length for length, _ in steps)])
    offsets = np.cumsum([0, *(rise for _, rise in steps)])
    simple = simplify(times, offsets, 1_000)
    assert set(simple) <= set(zip(times.tolist(), offsets.tolist(), strict=True))
    assert (simple[0], simple[-1]) == ((times[0], offsets[0]), (times[-1], offsets[-1]))
    lies = np.interp(times, [time for time, _ in simple], [offset for _, offset in simple])
    assert np.abs(lies - offsets).max() <= 1_000 + 1e-6


def test_a_straight_line_needs_two_points() -> None:
    """However many points it was given."""
    times = np.arange(0, 3_600 * S, S)
    assert len(simplify(times, times // 20_000, 1_000)) == 2
