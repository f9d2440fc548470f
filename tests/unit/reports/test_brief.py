"""The report on one screen: what it keeps, and that it never grows."""

from __future__ import annotations

import dataclasses
import io
import re
from typing import TYPE_CHECKING

import pytest
from build.ringtables import example as rings_example
from build.ringtables import text_of
from build.tablemaker import READ, make_batch, write_trace
from rich.console import Console

from lo2io.reports.summary.answer import Answer, AnswerPart
from lo2io.reports.summary.histogram import Latency
from lo2io.reports.summary.summary import CpuLosses, DeviceRow, ErrorRow, FileRow, Summary, summarize
from lo2io.reports.text.brief import render_brief
from lo2io.reports.text.page import ROWS, report_console

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

FIRST_WORDS = ("Findings", "Where the time went", "Process (pid)", "File", "Device")
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


class Terminal(io.StringIO):
    """A file that says it is a terminal."""

    def isatty(self) -> bool:
        """It says so."""
        return True


def lines_of(summary: Summary, width: int = 100, *, terminal: bool = False) -> list[str]:
    """The screen, a line each, without colours."""
    out = io.StringIO()
    console = Console(file=out, width=width, color_system=None, force_terminal=terminal, highlight=False, markup=False)
    render_brief(summary, console)
    return out.getvalue().splitlines()


def crowded(tmp_path: Path, times: int = 20) -> Summary:
    """A summary whose sections have so many rows each, and whose lines are long."""
    found = summarize(rings_example(tmp_path))
    assert found.findings
    assert found.processes
    took = Latency(9, 3_000_000, 1_000, 2_000, 500_000, 9_000_000, 900_000_000, 9_000_000_000)
    file = FileRow("named", "/data" * 30, None, None, found.processes[0].activity, 1, "storage")
    return dataclasses.replace(
        found,
        findings=[dataclasses.replace(found.findings[0], subject="/deep" * 30)] * times,
        processes=found.processes * times,
        files=[file] * times,
        devices=[DeviceRow("sda", "write", 123_456, 1 << 33, 0, 0, 0, 0, took, took)] * times,
        errors=[ErrorRow("ENOENT", 2, "no such file", 1_234, {"openat": 1_234})] * times,
        answer=Answer("calls", 100, tuple(AnswerPart(f"reason {number}", 14) for number in range(min(times, 7)))),
        living_on={f"daemon {number}": 1 for number in range(times)},
        command=("/a/command", *(f"--option-{number}=value" for number in range(99))),
        verdict="short",
        losses=[CpuLosses(number, 1_000, 10, 1_000_000, 5) for number in range(times)],
        notices=("a notice with so many words that it takes more than one line of most terminals, one would say",)
        * times,
        trace="T",
    )


def test_the_screen(tmp_path: Path, golden: Callable[[str, str], None]) -> None:
    """Totals, findings with what helps, the largest rows of each kind, and completeness in the last line."""
    summary = dataclasses.replace(summarize(rings_example(tmp_path)), trace="T")
    golden("summary-brief.txt", "\n".join(lines_of(summary)) + "\n")


@pytest.mark.parametrize("width", [80, 100, 200])
def test_a_screen_does_not_grow(tmp_path: Path, width: int) -> None:
    """However much a trace has, the screen has at most 50 lines, and says how much more there is."""
    lines = lines_of(crowded(tmp_path), width, terminal=True)
    assert len(lines) <= SCREEN
    assert max(map(len, lines)) <= width
    findings = sum(line.startswith("one-request-batches: ") for line in lines)
    notes = sum(line.startswith("note: ") for line in lines)
    assert findings
    assert notes
    assert f"and {20 - findings} more that cost less" in lines
    assert f"and {20 - notes} further notes" in lines
    assert any(re.match(r"Process \(pid\), [123] of 20 ", line) for line in lines)


def test_narrow_terminals_keep_the_numbers(tmp_path: Path) -> None:
    """On 60 columns names are shortened and lines folded, and each number is there."""
    summary = crowded(tmp_path, times=1)
    narrow, wide = (lines_of(summary, width, terminal=True) for width in (60, 200))
    assert max(map(len, narrow)) <= 60 < max(map(len, wide))
    numbers = [
        [word for line in lines[1:] for word in re.findall(r"[\d,.]+(?: [a-zµ]?[sB]| [KMG]iB)?\b", line)]
        for lines in (narrow, wide)
    ]
    assert numbers[0] == numbers[1]


def test_a_pipe_gets_whole_lines(tmp_path: Path) -> None:
    """Readers of pipes search lines: none is folded, however narrow."""
    summary = crowded(tmp_path)
    assert f"note: {summary.notices[0]}" in lines_of(summary, 60)
    assert f"note: {summary.notices[0]}" not in lines_of(summary, 60, terminal=True)


@pytest.mark.parametrize(("no_color", "coloured"), [("", True), ("1", False)])
def test_no_color(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, no_color: str, *, coloured: bool) -> None:
    """The user's NO_COLOR takes the colours away on a terminal (no-color.org)."""
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("NO_COLOR", no_color)
    out = Terminal()
    render_brief(crowded(tmp_path), report_console(out))
    assert bool(re.search(r"\x1b\[(\d+;)*[349]\d", out.getvalue())) == coloured


def test_findings_come_first(tmp_path: Path) -> None:
    """They stand before where the time went, and before all tables."""
    lines = lines_of(crowded(tmp_path))
    starts = [next(index for index, line in enumerate(lines) if line.startswith(word)) for word in FIRST_WORDS]
    assert starts == sorted(starts)


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


def test_each_part_of_the_screen_is_there(tmp_path: Path) -> None:
    """Processes, files and devices, each with its heading."""
    batch = make_batch(
        tasks=[{"task": 0, "process": 0, "pid": 7, "tid": 7, "comm": b"dd"}],
        files=[{"file": 0, "path": b"/data/in", "mode": 0o100644}],
        handles=[{"handle": 0, "process": 0, "file": 0, "fd": 3}],
        operations=[{"id": 1, "task": 0, "handle": 0, "call": READ, "begin_time_ns": 1, "end_time_ns": 5}],
        requests=[{"id": 2, "device": 8 << 20, "task": 0, "issue_time_ns": 2, "complete_time_ns": 4}],
    )
    firsts = [line.partition(" ")[0] for line in lines_of(summarize(write_trace(tmp_path, [batch])))]
    assert [word for word in firsts if word in {"Process", "File", "Device"}] == ["Process", "File", "Device"]
