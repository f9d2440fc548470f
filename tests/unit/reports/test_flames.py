"""Flame graphs: each box lies below its caller's, within it, and is as wide as its share."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from lo2io.reports.html.flames import LEAST_PERCENT, Box, flames
from lo2io.reports.summary.stacks import StackRow, StacksSummary

NAMES = st.lists(st.sampled_from(["main", "run", "read", "<&>", "\x1b[2J"]), min_size=1, max_size=5).map(tuple)
ROWS = st.lists(st.builds(StackRow, NAMES, st.just(1), st.integers(0, 10**12), st.integers(0, 10**9)), max_size=12)
ERROR_PERCENT = 0.01


def summary(rows: list[StackRow]) -> StacksSummary:
    """The rows, with their sums."""
    ways = {"unwind tables": len(rows), "frame pointers": 0, "cut": 0, "unknown": 0}
    return StacksSummary(len(rows), sum(row.time_ns for row in rows), ways, tuple(rows))


def holder(boxes: list[Box], box: Box) -> Box:
    """The box above, in which it lies."""
    (found,) = [
        each
        for each in boxes
        if each.row == box.row - 1
        and each.left <= box.left + ERROR_PERCENT
        and box.left + box.width <= each.left + each.width + ERROR_PERCENT
    ][:1]
    return found


@given(ROWS)
def test_boxes_lie_below_their_callers(rows: list[StackRow]) -> None:
    """And those of one row lie side by side."""
    for graph in flames(summary(rows)):
        boxes = list(graph.boxes)
        assert graph.nr_rows == 1 + max(box.row for box in boxes) <= max(len(row.functions) for row in rows)
        assert all("\x1b" not in box.name for box in boxes)
        for box in boxes:
            assert box.width >= LEAST_PERCENT - ERROR_PERCENT
            assert box.row == 0 or holder(boxes, box)
        for number in range(graph.nr_rows):
            side_by_side = sorted((box.left, box.width) for box in boxes if box.row == number)
            assert all(a + wide <= b + ERROR_PERCENT for (a, wide), (b, _) in itertools.pairwise(side_by_side))
        if graph.caption.startswith("time"):
            shares = {row.functions[0]: 0.0 for row in rows}
            for row in rows:
                shares[row.functions[0]] += 100 * row.time_ns / summary(rows).time_ns
            outermost = sorted(box.width for box in boxes if box.row == 0)
            wanted = sorted(share for share in shares.values() if share >= LEAST_PERCENT)
            assert all(abs(a - b) < ERROR_PERCENT for a, b in zip(outermost, wanted, strict=True))


def test_nothing_slow_is_no_graph() -> None:
    """Nor calls that moved no bytes."""
    assert flames(None) == flames(summary([])) == []
    (only,) = flames(summary([StackRow(("main", "fsync"), 1, 5_000_000, 0)]))
    assert (only.caption, [box.name for box in only.boxes]) == ("time in slow calls: 5 ms in all", ["main", "fsync"])
