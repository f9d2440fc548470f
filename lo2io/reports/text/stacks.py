"""The part of the page about the places where programs made their slow calls.

In: a :class:`~lo2io.reports.summary.stacks.StacksSummary`. Out: lines on a rich console.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lo2io.reports.summary.stacks import FRAME_POINTERS
from lo2io.reports.text.lines import print_more, print_table
from lo2io.reports.words import printable
from lo2io.units import format_bytes, format_duration

if TYPE_CHECKING:
    from rich.console import Console

    from lo2io.reports.summary.stacks import StackRow, StacksSummary

TITLE: Final = "Where slow calls came from"
ROWS: Final = 8
"""Stacks of the table; the JSON has more."""
_FRAMES: Final = 6


def render_stacks(stacks: StacksSummary | None, console: Console) -> None:
    """Print the stacks with most time; nothing without stacks."""
    if stacks is None:
        return
    rows = [
        [path_of(row), f"{row.calls:,}", format_duration(row.time_ns), format_bytes(row.bytes)]
        for row in stacks.stacks[:ROWS]
    ]
    print_table(console, (TITLE, "calls", "time", "bytes"), "lrrr", rows)
    print_more(console, len(stacks.stacks) - ROWS)
    console.print(ways_of(stacks), style="dim")


def ways_of(stacks: StacksSummary) -> str:
    """How the stacks of these calls were found, as a sentence."""
    of = stacks.calls_by
    ways = [f"{of[way]:,} by {way}" for way in ("unwind tables", FRAME_POINTERS) if of[way]]
    ways += [f"{of['unknown']:,} not known"] if of["unknown"] else []
    cut = f"; {of['cut']:,} stacks are cut: they were larger than what is copied" if of["cut"] else ""
    return f"Stacks of {stacks.calls:,} calls: {', '.join(ways)}{cut}."


def path_of(row: StackRow, frames: int = _FRAMES) -> str:
    """The innermost functions, each after its caller."""
    return names_of(row.functions, frames)


def names_of(functions: tuple[str, ...], frames: int) -> str:
    """The innermost of these functions, each after its caller."""
    shown = functions[-frames:]
    return printable(("… > " if len(shown) < len(functions) else "") + " > ".join(shown))
