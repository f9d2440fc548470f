"""What the page says of the places where programs made their slow calls."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from lo2io.reports.summary.stacks import FRAME_POINTERS, StackRow, StacksSummary
from lo2io.reports.text.stacks import ROWS, path_of, render_stacks


def lines_of(stacks: StacksSummary | None) -> list[str]:
    """The page's lines."""
    out = io.StringIO()
    render_stacks(stacks, Console(file=out, width=100, no_color=True, highlight=False))
    return [line.rstrip() for line in out.getvalue().splitlines()]


def summary(nr_stacks: int, **ways: int) -> StacksSummary:
    """Calls by way, and so many stacks."""
    row = StackRow(("main", "load", "read\x1b"), 2, 3_000_000, 4096)
    by = {"unwind tables": 0, FRAME_POINTERS: 0, "cut": 0, "unknown": 0} | ways
    return StacksSummary(6, 9_000_000, by, (row,) * nr_stacks)


@pytest.mark.parametrize(
    ("ways", "words"),
    [
        ({"unwind tables": 6}, "6 by unwind tables."),
        ({FRAME_POINTERS: 4, "unknown": 2}, f"4 by {FRAME_POINTERS}, 2 not known."),
        ({"unwind tables": 6, "cut": 1}, "6 by unwind tables; 1 stacks are cut: they were larger than what is copied."),
    ],
)
def test_the_page_says_how_stacks_were_found(ways: dict[str, int], words: str) -> None:
    """Only what there is."""
    heading, row, said = [line for line in lines_of(summary(1, **ways)) if line]
    assert heading.endswith("bytes")
    assert row.split() == ["main", ">", "load", ">", r"read\x1b", "2", "3", "ms", "4", "KiB"]
    assert said == f"Stacks of 6 calls: {words}"


def test_the_page_counts_what_it_leaves_out() -> None:
    """Without stacks there is no line."""
    assert lines_of(None) == []
    assert any(line.startswith("and 2 more") for line in lines_of(summary(ROWS + 2)))
    assert not any(line.startswith("and ") for line in lines_of(summary(ROWS)))


def test_long_paths_begin_with_an_ellipsis() -> None:
    """The innermost functions stay."""
    row = StackRow(tuple("abcdefg"), 1, 1, 1)
    assert path_of(row) == "… > b > c > d > e > f > g"
    assert path_of(row, 7) == "a > b > c > d > e > f > g"
