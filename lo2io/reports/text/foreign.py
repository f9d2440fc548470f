"""The head of the report on another tool's archive: its calls and bytes by paradigm, and all that is not known."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lo2io.reports.text.lines import print_line, print_table
from lo2io.reports.words import count_of, printable
from lo2io.units import format_bytes

if TYPE_CHECKING:
    from rich.console import Console

    from lo2io.reports.summary.summary import Foreign


def foreign_lines(foreign: Foreign) -> list[str]:
    """The same facts, one line each, for a page that has a title."""
    lines = [foreign.title] if foreign.own else []
    for row in foreign.paradigms:
        nested = f", {row.nested_calls:,} of them by other calls" if row.nested_calls else ""
        moved = f"{format_bytes(row.bytes_read)} read, {format_bytes(row.bytes_written)} written"
        lines.append(f"{row.name}: {count_of(row.calls, 'call')}{nested}, {moved}")
    lines += [f"counted twice: {foreign.twice}"] if foreign.twice else []
    return [*lines, *(f"not known: {sentence}" for sentence in foreign.unknown)]


def render_foreign(foreign: Foreign, console: Console) -> None:
    """Print the head. What all sums count twice stands before any of the sums."""
    print_line(console, f"{printable(foreign.trace)}: {printable(foreign.title)}", "bold")
    if foreign.paradigms:
        rows = [
            [
                printable(row.name),
                f"{row.calls:,}",
                format_bytes(row.bytes_read),
                format_bytes(row.bytes_written),
                f"{row.nested_calls:,}" if row.nested_calls else "-",
            ]
            for row in foreign.paradigms
        ]
        print_table(console, ["Paradigm", "calls", "read", "written", "by other calls"], "lrrrr", rows)
    if foreign.twice:
        print_line(console, f"counted twice: {foreign.twice}", "bold yellow")
    print_line(console, f"{count_of(foreign.events, 'event')} read. Not known:")
    for sentence in foreign.unknown:
        print_line(console, f"  {sentence}")
    print_line(console, "")
