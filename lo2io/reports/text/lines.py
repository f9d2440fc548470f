"""Lines and tables on a rich console, for all parts of the page."""

from __future__ import annotations

import re
import textwrap
from typing import TYPE_CHECKING, Final

from rich.cells import cell_len, set_cell_size
from rich.text import Text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from lo2io.reports.summary.summary import Summary

ROWS: Final = 12
"""Rows of each table on the page; the JSON has more."""
VERDICT_STYLES: Final = {"complete": "green", "short": "bold red"}
"""Colours of the line on completeness, by verdict. All other verdicts are bold yellow."""
_GAP: Final = "  "
_NAME_WIDTH: Final = 20
"""The least width of a first column. Where less is left, names stand above their numbers, if these fit."""
_WITH_NUMBER: Final = re.compile(r"(?<=\d) (?=\S)|(?<=[a-z]) (?=\d+(?: ·|$))")
"""The space in ``5 calls`` and in ``late 0 · …``."""
_BOUND: Final = "\u00a0"
"""Stands for that space while lines are folded. Printed names never have it."""


def shorten(text: str, width: int) -> str:
    """Shorten a path at its beginning: its end says more."""
    if cell_len(text) <= width:
        return text
    text = text[-width:]  # a letter takes a cell at least
    while cell_len(text) >= width:
        text = text[1:]
    return f"…{text}"


def shorten_end(text: str, width: int) -> str:
    """Shorten a command line at its end: its beginning says more."""
    return text if cell_len(text) <= width else f"{set_cell_size(text, width - 1).rstrip()}…"


def print_table(
    console: Console,
    headings: Sequence[str],
    align: str,
    rows: Sequence[Sequence[str]],
    *,
    title: str = "",
    leads: Sequence[str] = (),
) -> None:
    """Print a table. Only the first column is shortened to fit: half a number is a wrong number.

    Args:
        console: Its width is the limit.
        headings: One for each column.
        align: One letter for each column: l or r.
        rows: Cells as they are printed.
        title: A line of its own above the table.
        leads: For each row, the beginning of its first cell, which is never shortened: a number to find the row by.
    """
    widths = [max(cell_len(cell) for cell in column) for column in zip(headings, *rows, strict=True)]
    beside = sum(widths[1:]) + len(_GAP) * len(widths[1:])
    narrow = console.is_terminal and console.width - beside < min(_NAME_WIDTH, widths[0])
    stacked = narrow and align[0] == "l" and beside <= console.width
    room = console.width if stacked else max(_NAME_WIDTH, console.width - beside)
    widths[0] = 0 if stacked else min(widths[0], room)
    gap = _GAP[0] if stacked else _GAP

    def line(cells: Sequence[str], lead: str = "") -> str:
        first = lead + shorten(cells[0].removeprefix(lead), room - cell_len(lead))
        padded = []
        for cell, width, letter in zip(["" if stacked else first, *cells[1:]], widths, align, strict=True):
            space = " " * (width - cell_len(cell))
            padded.append(cell + space if letter == "l" else space + cell)
        numbers = gap.join(padded).rstrip()
        return f"{first}\n{numbers}" if stacked else numbers

    print_line(console, "")
    if title:
        print_line(console, title, "bold")
    print_line(console, line(headings), "bold")
    for index, row in enumerate(rows):
        print_line(console, line(row, leads[index] if leads else ""))


def print_line(console: Console, text: str, style: str = "", *, whole: bool = False) -> None:
    """Print a line. On a terminal it is folded between words; in a pipe it stays whole, so that readers can search.

    Args:
        console: It says whether it is a terminal, and how wide.
        text: The line.
        style: Rich's name of its look.
        whole: Do not fold it: it is there to be pasted.
    """
    if console.is_terminal and not whole:
        text = "\n".join(_folded(line, console.width) for line in text.split("\n"))
    console.print(Text(text, style=style), soft_wrap=True)


def _folded(line: str, width: int) -> str:
    """Lines of at most so many characters. A number and its unit share one, and a word is cut only if it is longer."""
    if cell_len(line) <= width:
        return line
    margin = line[: len(line) - len(line.lstrip())]
    bound = _WITH_NUMBER.sub(_BOUND, line.strip())
    lines = textwrap.wrap(
        bound,
        width,
        initial_indent=margin,
        subsequent_indent=margin + _GAP,
        break_on_hyphens=False,
    )
    return "\n".join(lines).replace(_BOUND, " ")


def print_verdict(console: Console, summary: Summary) -> None:
    """Print the line on completeness in its verdict's colour."""
    print_line(console, summary.completeness_line, VERDICT_STYLES.get(summary.verdict, "bold yellow"))


def print_more(console: Console, hidden: int) -> None:
    """Say how many rows are not shown."""
    if hidden > 0:
        print_line(console, f"and {hidden:,} more, see lo2io report --json")
