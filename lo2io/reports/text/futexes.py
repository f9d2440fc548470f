"""The part of the page about waits on futexes.

In: a :class:`~lo2io.reports.summary.futexes.FutexSummary`. Out: lines on a rich console.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lo2io.reports.summary.stacks import has_name
from lo2io.reports.text.lines import print_more, print_table
from lo2io.reports.text.stacks import names_of
from lo2io.reports.words import printable
from lo2io.units import format_duration

if TYPE_CHECKING:
    from rich.console import Console

    from lo2io.reports.summary.futexes import FutexRow, FutexSummary

TITLE: Final = "Waits on futexes"
ROWS: Final = 8
"""Futexes of the table; the JSON has more."""


def render_futexes(futexes: FutexSummary | None, console: Console) -> None:
    """Print the futexes with most time; nothing without futexes."""
    if futexes is None:
        return
    rows = [
        [place_of(row), f"{row.waits:,}", format_duration(row.time_ns), format_duration(row.longest_ns), wakers_of(row)]
        for row in futexes.futexes[:ROWS]
    ]
    addresses = [_address(row) for row in futexes.futexes[:ROWS]]
    print_table(console, (TITLE, "waits", "time", "longest", "woken by"), "lrrrl", rows, leads=addresses)
    print_more(console, len(futexes.futexes) - ROWS)


def place_of(row: FutexRow) -> str:
    """The futex' address, the place in the program if it is known, and the process."""
    where = names_of(_named(row.functions), 2) + " " if row.functions else ""
    return _address(row) + printable(f"{where}of {row.process or 'a process'} ({row.pid})")


def _address(row: FutexRow) -> str:
    return f"{row.address:#x} "


def _named(functions: tuple[str, ...]) -> tuple[str, ...]:
    """The functions up to the innermost one with a name: frames below it only tell how a library waits."""
    last = max((place for place, function in enumerate(functions, 1) if has_name(function)), default=len(functions))
    return functions[:last]


def wakers_of(row: FutexRow) -> str:
    """The thread that woke most often, and how often; a timeout if that ended most waits."""
    if row.wakers and row.wakers[0].times >= row.timeouts:
        most = row.wakers[0]
        who = printable(f"{most.thread or 'thread'} ({most.tid})") if most.tid else "an idle CPU"
        return f"{who}, {most.times:,}"
    return f"timeout, {row.timeouts:,}" if row.timeouts else ""
