"""The part of the page about what block requests carried.

In: a :class:`~lo2io.reports.summary.parts.PartsSummary`. Out: lines on a rich console.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lo2io.reports.text.lines import print_line, print_more, print_table
from lo2io.reports.words import count_of, printable
from lo2io.units import format_bytes

if TYPE_CHECKING:
    from rich.console import Console

    from lo2io.reports.summary.parts import PartsRow, PartsSummary

ROWS: Final = 8
"""Files of the table; the JSON has more."""
_HEADINGS: Final = ("What block requests carried", "parts", "read", "written")


def render_parts(parts: PartsSummary, console: Console) -> None:
    """Print the bytes of each file, and then those of all other kinds."""
    others = [row for row in parts.kinds if row.kind != "file"]
    rows = [
        [
            text_of(row),
            f"{row.parts:,}",
            *(format_bytes(size) if size else "-" for size in (row.bytes_read, row.bytes_written)),
        ]
        for row in (*parts.files[:ROWS], *others)
    ]
    print_table(console, _HEADINGS, "lrrr", rows)
    print_more(console, len(parts.files) - ROWS)
    if parts.cut:
        print_line(console, f"of {count_of(parts.cut, 'request')} not all parts are known")


def text_of(row: PartsRow) -> str:
    """The file, or the kind in words."""
    if row.kind == "file":
        return printable(row.path or "files that nobody recorded had opened")
    return f"({row.kind})"
