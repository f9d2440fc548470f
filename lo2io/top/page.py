"""A window of ``lo2io top`` as a page. On a terminal the page has the terminal's height; in a pipe it has all rows.

In: a :class:`~lo2io.top.window.Window`. Out: a page that rich prints. This module reads no table and no terminal.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rich.cells import cell_len
from rich.console import Group
from rich.table import Table
from rich.text import Text

from lo2io.reports.text.lines import shorten
from lo2io.reports.words import count_of, printable
from lo2io.top.look import rows_of
from lo2io.top.window import Activity
from lo2io.units import NS_PER_S, format_bytes, format_duration

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lo2io.top.look import Look, Row
    from lo2io.top.window import DeviceNow, Spread, Window

KEYS: Final = "p f d lists · s sort · / find · ↑↓ Enter open · Esc back · space pause · q quit"
REDRAW: Final = "\x0c"
"""Ctrl-L: the key that draws the view again."""
_FRAME: Final = 7
"""Lines beside the rows: two of the head, an empty one, a heading with its rule, two of the foot."""
_NAME_WIDTH: Final = 20
"""The first column keeps at least this width as long as other columns can be left out."""
_GAP: Final = 2
_FIRST_TO_GO: Final = ("in flight", "queue p99", "failed", "p50", "max", "in calls", "busy", "ops/s", "req/s", "p99")
"""Columns that a narrow terminal leaves out, in this order. A column is never cut: half a number is a wrong number."""


def render_top(window: Window, look: Look, width: int, height: int | None = None) -> Group:
    """The page. With ``height`` None the page has all rows."""
    rows = [_line(row, window.span_ns) for row in rows_of(window, look)]
    selected = None if height is None else min(look.row, len(rows) - 1)
    unlisted = window.unlisted_pairs if look.of else 0
    room = len(rows) if height is None else max(1, height - _FRAME - bool(unlisted))
    first = 0 if selected is None else max(0, selected - room + 1)
    shown = rows[first : first + room]
    headings = (look.kind.capitalize(), *(_DEVICE_HEADINGS if look.kind == "device" else _HEADINGS))
    places, widths = _fitting(headings, shown, width)
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, _GAP, 0, 0))
    for place in places:
        table.add_column(headings[place], justify="right" if place else "left", no_wrap=True, width=widths[place])
    for number, row in enumerate(shown, first):
        cells = (shorten(row[0], widths[0]), *row[1:])
        table.add_row(*(Text(cells[place]) for place in places), style="reverse" if number == selected else "")
    hidden = len(rows) - len(shown)
    foot = [Text(f"and {hidden:,} more")] if hidden else []
    if unlisted:
        told = f"{count_of(unlisted, 'pair')} of process and file that did less are in no list"
        foot.append(Text(told, no_wrap=True, overflow="ellipsis"))
    if height is not None:
        foot.append(Text(KEYS, style="dim", no_wrap=True, overflow="ellipsis"))
    if look.notice:
        foot.append(Text(printable(look.notice), style="yellow", no_wrap=True, overflow="ellipsis"))
    return Group(*_head(window, look, width), Text(""), table, *foot)


def _head(window: Window, look: Look, width: int) -> list[Text]:
    """The page's first two lines. Parts of the first line that do not fit are left out whole."""
    total, span = window.total, window.span_ns
    parts = [
        f" · {_rate(total.operations, span)} operations/s",
        f" · read {_flow(total.bytes_read, span)}",
        f" · written {_flow(total.bytes_written, span)}",
        f" · {total.errors:,} failed",
    ]
    first = f"lo2io top · the last {format_duration(span)}"
    for part in parts:
        if cell_len(first + part) > width:
            break
        first += part
    paused = "paused · " if look.paused else ""
    missing = [f"{window.lost:,} lost"] if window.lost else []
    missing += [f"{window.vanished:,} vanished"] if window.vanished else []
    complete = "complete" if window.proven and not missing else ", ".join(missing) or "not proven complete"
    style = "green" if complete == "complete" else "bold yellow"
    second = Text.assemble(paused, (complete, style), f" · {look.heading}", no_wrap=True, overflow="ellipsis")
    return [Text(first, style="bold"), second]


_HEADINGS: Final = ("ops/s", "read/s", "written/s", "failed", "in calls", "p50", "p99", "max")
_DEVICE_HEADINGS: Final = (
    "req/s",
    "read/s",
    "written/s",
    "busy",
    "in flight",
    "queue p99",
    "p50",
    "p99",
    "max",
)


def _fitting(headings: Sequence[str], rows: Sequence[Sequence[str]], width: int) -> tuple[list[int], list[int]]:
    """The columns that fit, and each column's width. The first column gets the rest of the line."""
    widths = [max(cell_len(cell) for cell in column) for column in zip(headings, *rows, strict=True)]
    places = list(range(len(headings)))
    for name in ("", *_FIRST_TO_GO):
        if name in headings:
            places.remove(headings.index(name))
        rest = width - sum(widths[place] + _GAP for place in places[1:])
        if rest >= min(widths[0], _NAME_WIDTH):
            break
    widths[0] = max(1, min(widths[0], rest))
    return places, widths


def _line(row: Row, span: int) -> list[str]:
    """The cells of a row."""
    return [row.name, *(_cells(row.facts, span) if isinstance(row.facts, Activity) else _device_cells(row.facts, span))]


def _cells(activity: Activity, span: int) -> list[str]:
    return [
        _rate(activity.operations, span),
        _flow(activity.bytes_read, span),
        _flow(activity.bytes_written, span),
        f"{activity.errors:,}",
        _share(activity.time_ns, span),
        *_latencies(activity.latency),
    ]


def _device_cells(row: DeviceNow, span: int) -> list[str]:
    return [
        _rate(row.requests, span),
        _flow(row.bytes_read, span),
        _flow(row.bytes_written, span),
        _share(row.busy_ns, span),
        f"{row.in_flight:,}",
        format_duration(row.queue.p99_ns) if row.queue.nr else "-",
        *_latencies(row.device),
    ]


def _latencies(spread: Spread) -> list[str]:
    if not spread.nr:
        return ["-", "-", "-"]
    return [format_duration(value) for value in (spread.p50_ns, spread.p99_ns, spread.max_ns)]


def _per_second(amount: int, span: int) -> float:
    return amount * NS_PER_S / span if span else 0.0


def _rate(number: int, span: int) -> str:
    rate = _per_second(number, span)
    return f"{rate:,.0f}" if rate >= 10 or not rate else f"{rate:.1f}"  # noqa: PLR2004 - two digits


def _flow(size: int, span: int) -> str:
    return f"{format_bytes(_per_second(size, span))}/s"


def _share(part: int, span: int) -> str:
    """Time as a part of the span. Times of several threads add up, so the part may exceed 100 %."""
    return f"{part / span:.0%}" if span else "-"
