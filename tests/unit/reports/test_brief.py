"""The report on one screen: what it keeps, and that it never grows."""

from __future__ import annotations

import dataclasses
import io
from typing import TYPE_CHECKING

import pytest
from build.ringtables import example as rings_example
from build.ringtables import text_of
from build.tablemaker import READ, make_batch, write_trace
from rich.console import Console

from lo2io.reports.summary.answer import Answer, AnswerPart
from lo2io.reports.summary.summary import Summary, summarize
from lo2io.reports.text.brief import render_brief
from lo2io.reports.text.page import ROWS

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

SCREEN = 50
"""Lines."""


def one_file(folder: Path) -> Summary:
    """A trace of one read of one file."""
    batch = make_batch(
        tasks=[{"task": 0, "process": 0, "pid": 7, "tid": 7, "comm": b"dd"}],
        files=[{"file": 0, "path": b"/data/in", "mode": 0o100644}],
        handles=[{"handle": 0, "process": 0, "file": 0, "fd": 3}],
        operations=[{"id": 1, "task": 0, "handle": 0, "call": READ, "begin_time_ns": 1, "end_time_ns": 5}],
    )
    return summarize(write_trace(folder, [batch]))


def lines_of(summary: Summary, width: int = 100) -> list[str]:
    """The screen, a line each."""
    out = io.StringIO()
    render_brief(summary, Console(file=out, width=width, no_color=True, highlight=False, markup=False))
    return out.getvalue().splitlines()


def crowded(tmp_path: Path) -> Summary:
    """A summary in which every section has more rows than fit."""
    found = summarize(rings_example(tmp_path))
    assert found.findings
    assert found.processes
    return dataclasses.replace(
        found,
        findings=found.findings * 5,
        processes=found.processes * 20,
        files=found.files * 30,
        devices=found.devices * 9,
        errors=found.errors * 9,
        answer=Answer("calls", 100, tuple(AnswerPart(f"reason {number}", 14) for number in range(7))),
        living_on={f"daemon {number}": 1 for number in range(9)},
    )


def test_the_screen(tmp_path: Path, golden: Callable[[str, str], None]) -> None:
    """Totals, findings with what helps, the largest rows of each kind, and completeness in the last line."""
    summary = dataclasses.replace(summarize(rings_example(tmp_path)), trace="T")
    golden("summary-brief.txt", "\n".join(lines_of(summary)) + "\n")


def test_a_screen_does_not_grow(tmp_path: Path) -> None:
    """However much a trace has, the screen has at most 50 lines, and says how much more there is."""
    lines = lines_of(crowded(tmp_path))
    assert len(lines) <= SCREEN
    assert "and 12 more that cost less" in lines
    assert any(line.startswith("Process (pid), 3 of ") for line in lines)


def test_narrow_terminals_keep_the_numbers(tmp_path: Path) -> None:
    """On 60 columns names are shortened, numbers are not."""
    summary = crowded(tmp_path)
    narrow, wide = ([line.split()[-1] for line in lines_of(summary, width) if line] for width in (60, 200))
    assert narrow == wide


def test_an_empty_trace_says_why(tmp_path: Path) -> None:
    """Without calls there is no praise, and the hints stand there."""
    summary = dataclasses.replace(
        summarize(rings_example(tmp_path)), findings=(), rings=None, hints=("the command did nothing",)
    )
    summary = dataclasses.replace(summary, activity=dataclasses.replace(summary.activity, calls=0))
    lines = lines_of(summary)
    assert "Nothing stands out by lo2io's rules." not in lines
    assert "nothing was recorded: the command did nothing" in lines


@pytest.mark.parametrize(("files", "heading"), [(2, "File "), (3, "File "), (4, "File, 3 of 9 ")])
def test_files_that_do_not_fit_are_counted(tmp_path: Path, files: int, heading: str) -> None:
    """A summary lists the largest files alone, and knows how many there are."""
    found = one_file(tmp_path)
    (row,) = found.files
    lines = lines_of(dataclasses.replace(found, files=(row,) * files, nr_files=9))
    assert any(line.startswith(heading) for line in lines), lines


def test_the_whole_page_counts_what_it_leaves_out(tmp_path: Path) -> None:
    """Files of storage, and pipes, sockets and devices."""
    found = one_file(tmp_path)
    (row,) = found.files
    pipe = dataclasses.replace(row, type="pipe")
    lines = text_of(dataclasses.replace(found, files=(row,) * (ROWS + 3) + (pipe,) * (ROWS + 7))).splitlines()
    more = [line for line in lines if line.startswith("and ") and "more" in line]
    assert [line.split()[1] for line in more[:2]] == ["3", "7"]


def test_where_the_time_went_has_a_line_for_each_part(tmp_path: Path) -> None:
    """With its share, a bar and its time; the smallest bar can be seen."""
    parts = (AnswerPart("journal", 600), AnswerPart("on a CPU", 399), AnswerPart("lock", 1))
    found = dataclasses.replace(summarize(rings_example(tmp_path)), answer=Answer("calls", 1000, parts))
    lines = lines_of(found)
    begin = next(number for number, line in enumerate(lines) if line.startswith("Where the time went"))
    rows = [line.split() for line in lines[begin + 1 : begin + 4]]
    assert [row[0] for row in rows] == ["journal", "on", "lock"]
    assert [row[-2:] for row in rows] == [["600", "ns"], ["399", "ns"], ["1", "ns"]]
    bars = [row[-3] for row in rows]
    assert len(bars[2]) == 1
    assert len(bars[0]) * 399 == pytest.approx(len(bars[1]) * 600, rel=0.1)
