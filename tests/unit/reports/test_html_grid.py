"""Sums over time against the same sums made one by one."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lo2io.reports.html.grid import PointSums, Presence, Smallest, TimeGrid, scatter_keys, time_grid

GRIDS = st.builds(TimeGrid, st.integers(0, 50), st.integers(1, 30), st.integers(1, 12))
INTERVALS = st.lists(st.tuples(st.integers(0, 2), st.integers(-20, 500), st.integers(0, 400)), max_size=30)


def numbers(values: list[int]) -> np.ndarray:
    """In a column's form."""
    return np.array(values, np.int64)


@given(GRIDS, INTERVALS)
def test_presence_is_the_overlap(grid: TimeGrid, intervals: list[tuple[int, int, int]]) -> None:
    """The time of each lane and bin is the sum of what each interval has in common with it."""
    presence = Presence(grid, 3)
    lanes, begins, lasts = (numbers([row[part] for row in intervals]) for part in range(3))
    presence.add(lanes, begins, begins + lasts)
    expected = np.zeros((3, grid.bins), np.int64)
    for lane, begin, last in intervals:
        for index in range(grid.bins):
            low = grid.start_ns + index * grid.bin_ns
            expected[lane, index] += max(0, min(begin + last, low + grid.bin_ns) - max(begin, low))
    assert presence.time_ns.tolist() == expected.tolist()
    assert presence.mean == pytest.approx(expected / grid.bin_ns)


@given(GRIDS, INTERVALS)
def test_points_add_up(grid: TimeGrid, points: list[tuple[int, int, int]]) -> None:
    """Each lane's bins sum to the added amounts, each in the bin of its time."""
    sums = PointSums(grid, 3)
    lanes, times, amounts = (numbers([row[part] for row in points]) for part in range(3))
    sums.add(lanes, times, amounts)
    expected = np.zeros((3, grid.bins), np.int64)
    for lane, time, amount in points:
        expected[lane, min(max((time - grid.start_ns) // grid.bin_ns, 0), grid.bins - 1)] += amount
    assert sums.sums.tolist() == expected.tolist()


@given(st.integers(0, 10**12), st.integers(0, 10**12), st.integers(1, 3000))
def test_grid_spans_all(start: int, span: int, bins: int) -> None:
    """The grid has no more bins than allowed, reaches the stop, and would not with one bin less."""
    grid = time_grid(start, start + span, bins)
    assert grid.bins <= bins
    assert grid.start_ns + grid.bins * grid.bin_ns >= start + span
    assert (grid.bins - 1) * grid.bin_ns < max(1, span)


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 99)), max_size=200), st.integers(1, 5), st.integers(1, 40))
def test_smallest_are_kept(rows: list[tuple[int, int]], limit: int, step: int) -> None:
    """Of each lane, the rows with the smallest keys, in any batches; and how many there were in all."""
    chosen = Smallest(4, limit)
    for start in range(0, len(rows), step):
        part = rows[start : start + step]
        keys = np.array([key for _, key in part], np.uint64)
        chosen.add(numbers([lane for lane, _ in part]), keys, {"twice": keys * np.uint64(2)})
    found = chosen.rows()
    for lane in range(4):
        keys = sorted(key for each, key in rows if each == lane)
        assert chosen.seen[lane] == len(keys)
        mine = found["lane"] == lane if found else np.zeros(0, np.bool_)
        assert (found["key"][mine].tolist() if found else []) == keys[:limit]
        assert (found["twice"][mine].tolist() if found else []) == [2 * key for key in keys[:limit]]


def test_of_equal_keys_the_earlier_rows_are_kept() -> None:
    """So a page does not change with the size of batches."""
    chosen = Smallest(1, 3)
    kept = []
    for keys in ([7, 5, 7], [7, 5], [9, 5, 5]):
        first = int(chosen.seen[0])
        rows = {"number": numbers(list(range(first, first + len(keys))))}
        chosen.add(numbers([0] * len(keys)), np.array(keys, np.uint64), rows)
        kept.append(chosen.rows()["number"].tolist())
    assert kept == [[1, 0, 2], [1, 4, 0], [1, 4, 6]]


@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 4)), max_size=60),
    st.lists(st.integers(-1, 2), min_size=4, max_size=4),
    st.integers(1, 4),
)
def test_regrouped_rows_are_those_of_the_new_lanes(rows: list[tuple[int, int]], to: list[int], limit: int) -> None:
    """As if each row had come to its new lane; -1: as if it had not come. Of equal keys the earlier rows are kept."""
    old, new = Smallest(4, limit), Smallest(3, limit)
    moved = [(number, key, to[lane]) for number, (lane, key) in enumerate(rows)]
    left = [row for row in moved if row[2] >= 0]
    for chosen, part in ((old, [(n, key, rows[n][0]) for n, key, _ in moved]), (new, left)):
        numbers_of, keys, lanes = (numbers([row[place] for row in part]) for place in range(3))
        chosen.add(lanes, keys.astype(np.uint64), {"number": numbers_of})
    found, expected = old.regrouped(numbers(to), 3), new
    assert found.seen.tolist() == expected.seen.tolist()
    for chosen in (found, expected):  # later rows meet the same heaps
        chosen.add(numbers([0, 2]), np.array([1, 0], np.uint64), {"number": numbers([100, 101])})
    ours, theirs = ({name: values.tolist() for name, values in each.rows().items()} for each in (found, expected))
    assert ours == theirs


@pytest.mark.parametrize("lane", [-1, 3])
def test_a_lane_that_is_not_there_is_refused(lane: int) -> None:
    """Nothing is written beside the lanes."""
    grid, lanes, one = TimeGrid(0, 10, 5), numbers([0, lane]), numbers([1, 1])
    with pytest.raises(IndexError):
        PointSums(grid, 3).add(lanes, one, one)
    with pytest.raises(IndexError):
        Presence(grid, 3).add(lanes, one, one)
    with pytest.raises(IndexError):
        Smallest(3, 2).add(lanes, one.view(np.uint64), {})


def test_times_far_from_the_grid_are_at_its_ends() -> None:
    """Also if the distance is more than an int64."""
    grid, far = TimeGrid(-5, 10, 5), numbers([-(2**63), 2**63 - 1])
    sums, presence = PointSums(grid, 1), Presence(grid, 1)
    sums.add(numbers([0, 0]), far, numbers([1, 2]))
    assert sums.sums.tolist() == [[1, 0, 0, 0, 2]]
    presence.add(numbers([0]), far[:1], far[1:])
    assert presence.time_ns.tolist() == [[10] * 5]


def test_a_sample_is_fair() -> None:
    """Of consecutive ids, those with the smallest keys lie all over: each tenth has about a tenth of them."""
    ids = np.arange(1, 100_001, dtype=np.uint64)
    keys = scatter_keys(ids)
    assert len(np.unique(keys)) == len(ids)
    chosen = np.sort(np.argsort(keys)[:10_000])
    counts, _ = np.histogram(chosen, bins=10, range=(0, 100_000))
    assert counts.min() > 850
    assert counts.max() < 1150
