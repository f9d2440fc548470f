"""Percentiles of the log-linear histogram against those of the sorted durations."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lo2io.reports.summary.histogram import Latency, LatencyHistograms

DURATIONS = st.lists(st.one_of(st.integers(0, 300), st.integers(0, 2**47)), min_size=1, max_size=60)


def histogram(values: list[int]) -> Latency:
    """A row's figures."""
    histograms = LatencyHistograms(1)
    histograms.add(np.zeros(len(values), np.uint16), np.array(values, np.int64))
    return histograms.latency(0)


@given(DURATIONS)
def test_percentiles_are_within_their_bound(values: list[int]) -> None:
    """0.4 % of the exact nearest-rank percentile, and exact where bins hold one integer; extremes and sum exact."""
    found = histogram(values)
    ordered = sorted(values)
    assert (found.nr, found.total_ns, found.min_ns, found.max_ns) == (len(values), sum(values), ordered[0], ordered[-1])
    assert found.mean_ns == pytest.approx(sum(values) / len(values), abs=0.51, rel=1e-12)
    for percent, value in ((50, found.p50_ns), (95, found.p95_ns), (99, found.p99_ns)):
        exact = ordered[-(-len(values) * percent // 100) - 1]
        assert abs(value - exact) <= (exact * 0.004 if exact >= 256 else 0)


@given(DURATIONS, DURATIONS)
def test_rows_do_not_mix(first: list[int], second: list[int]) -> None:
    """Two rows filled in turns equal those filled alone."""
    histograms = LatencyHistograms(2)
    for row, values in enumerate((first, second)):
        for value in values:
            histograms.add(np.array([row]), np.array([value]))
    assert [histograms.latency(row) for row in (0, 1)] == [histogram(first), histogram(second)]


def test_of_nothing() -> None:
    """An empty row shows that it is empty."""
    assert LatencyHistograms(1).latency(0) == Latency()


@pytest.mark.parametrize("value", [2**48, 2**62, 2**63 - 1])
def test_beyond_the_last_bin(value: int) -> None:
    """Centuries share a bin; alone, they are still exact."""
    assert histogram([value]).p50_ns == value


def test_negative_counts_as_none() -> None:
    """Late samples can make an end precede its start."""
    assert histogram([-5, 3]).min_ns == 0
