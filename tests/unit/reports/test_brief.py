"""The report on one screen: what it keeps, and that it never grows."""

from __future__ import annotations

import dataclasses
import io
from typing import TYPE_CHECKING

from build.ringtables import example as rings_example
from rich.console import Console

from lo2io.reports.summary.answer import Answer, AnswerPart
from lo2io.reports.summary.summary import Summary, summarize
from lo2io.reports.text.brief import render_brief

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

SCREEN = 50
"""Lines."""


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
