"""All lines that keep within bounds; the truth is one of them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lo2io.cluster.band import Band, Contradiction, Pairs
from lo2io.cluster.lines import Line
from lo2io.trace.correction import Correction

S = 10**9
DRIFT = 1e-3
START, STOP = 500 * S, 520 * S
FIRST, LAST = 7_000, 7_000 + 10 * S
"""Of a clock of nominally 1 GHz."""


def band() -> Band:
    """All lines that are possible."""
    return Band.of_clock((S, FIRST, LAST), (START, STOP), DRIFT)


def pairs(first: list[int], last: list[int], begin: list[int], end: list[int]) -> Pairs:
    """Regions in ticks, and calls in ns."""
    columns = (np.array(column, np.int64) for column in (first, last, begin, end))
    return Pairs(np.arange(len(first)), *columns)


def test_bounds_are_met_exactly() -> None:
    """Two calls, at both ends, leave some room on each side: the middle is the line, and half of the room the error."""
    offset = START + 3 * S - FIRST
    first, last = [FIRST, LAST - 900], [FIRST + 1_000, LAST]
    begin, end = [FIRST + offset + 400, LAST - 900 + offset + 200], [FIRST + offset + 900, LAST + offset - 300]
    found = band().within(pairs(first, last, begin, end))
    assert found.line.at([FIRST, LAST]) - offset == pytest.approx(np.array([FIRST + 150, LAST - 50]), abs=1)
    assert found.error_ns == pytest.approx(250.5, abs=1)


@given(
    offset=st.integers(-9 * S, 19 * S),
    drift=st.floats(-DRIFT, DRIFT),
    calls=st.lists(st.tuples(st.integers(0, 10**10 - 10**6), *[st.integers(0, 10**5)] * 3), min_size=1, max_size=40),
)
def test_the_truth_is_within_the_error(offset: int, drift: float, calls: list[tuple[int, int, int, int]]) -> None:
    """Whatever the clocks and calls: the true line is one of the band, and the one in the middle meets all bounds."""

    def truth(ticks: np.ndarray) -> np.ndarray:
        return START + offset + (ticks - FIRST) + np.rint((ticks - FIRST) * drift).astype(np.int64)

    at, before, length, behind = np.array(calls, np.int64).T
    first, last = FIRST + at, FIRST + at + before + length + behind
    own = pairs(first, last, truth(first + before), truth(first + before + length))
    found = band().within(own)
    ends = np.array([FIRST, LAST])
    assert np.abs(found.line.at(ends) - truth(ends)).max() <= found.error_ns + 1
    assert own.fit(found.line, Correction(), 2)
    others = [
        band().within(pairs(*(column[half] for column in (first, last, own.begin_ns, own.end_ns))))
        for half in (slice(1), slice(1, None))
    ]
    assert found.error_ns <= min(other.error_ns for other in others) + 1, "more calls tell more"


def test_contradictions_are_named() -> None:
    """A call that is longer than its region; one that is too far from another; three of which any two go together."""
    with pytest.raises(Contradiction) as raised:
        band().within(
            pairs([FIRST, FIRST + S], [FIRST + 100, FIRST + S + 100], [START, START + S], [START + 50, START + S + 120])
        )
    assert (raised.value.pair, raised.value.other) == (1, 1)
    far = [START, START + S + S // 500]
    with pytest.raises(Contradiction) as raised:
        band().within(pairs([FIRST, FIRST + S], [FIRST + 9, FIRST + S + 9], far, far))
    assert {raised.value.pair, raised.value.other} == {0, 1}
    with pytest.raises(Contradiction) as raised:
        band().within(pairs([FIRST], [FIRST + 9], [STOP + 2 * S], [STOP + 2 * S]))
    assert raised.value.other is None, "it lies after what the recording allows"
    bent = np.array([FIRST, FIRST + 5 * S, LAST - 9])
    times = bent - FIRST + START + np.array([0, 100, 0])
    with pytest.raises(Contradiction) as raised:
        band().within(pairs(bent, bent + 9, times, times))
    assert raised.value.other is None


def test_calls_fit_a_line_within_an_error() -> None:
    """Either side of a region may be missed by the error, and no more. A node's own correction comes first."""
    line = Line(np.array([FIRST]), np.array([START]))
    own = pairs([FIRST + 100], [FIRST + 200], [START + 90], [START + 205])
    assert own.fit(line, Correction(), 10)
    assert not own.fit(line, Correction(), 9)
    assert not own.fit(line, Correction(np.array([0, S]), np.array([6, 6])), 10)
