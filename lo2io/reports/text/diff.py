"""The differences of two traces as text. In: a :class:`~lo2io.reports.diff.compare.Diff`. Out: lines on a console."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Final

from lo2io.reports.text.lines import ROWS, print_line, print_table, shorten
from lo2io.reports.words import printable
from lo2io.units import format_bytes, format_duration

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rich.console import Console

    from lo2io.reports.diff.compare import Change, Diff, FindingChange, Numbers, Whole

_LEAST_SHARE: Final = 0.005
"""Smaller changes are shown as none."""
_NAME_WIDTH: Final = 44


def render_diff(diff: Diff, console: Console) -> None:
    """Print what changed: the whole, findings, then calls, files, programs and devices, the largest change first."""
    before, after = diff.before, diff.after
    for side, whole in (("A", before), ("B", after)):
        command = printable(shlex.join(whole.command)) or "the whole system, or running processes"
        print_line(console, f"{side}: {printable(whole.trace)} · {command}", "bold")
        if whole.verdict != "complete":
            print_line(console, f"   {whole.verdict}: see lo2io report {printable(shlex.quote(whole.trace))}", "yellow")
    print_table(console, ["", "A", "B", "change"], "lrrr", _totals(before, after))
    _findings(diff.findings, console)
    _table("By system call", "calls", diff.calls, console)
    _table("By file", "calls", diff.files, console)
    _table("By program", "calls", diff.programs, console)
    _table("By device", "requests", diff.devices, console)


def _totals(before: Whole, after: Whole) -> list[list[str]]:
    def row(name: str, show: Callable[[float], str], a: float, b: float) -> list[str]:
        return [name, show(a), show(b), _change(a, b)]

    def rate(value: float) -> str:
        return f"{format_bytes(round(value))}/s"

    def time(value: float) -> str:
        return format_duration(round(value))

    def size(value: float) -> str:
        return format_bytes(round(value))

    return [
        row("length", time, before.span_ns, after.span_ns),
        row("time in calls", time, before.time_ns, after.time_ns),
        row("calls", "{:,.0f}".format, before.calls, after.calls),
        row("errors", "{:,.0f}".format, before.errors, after.errors),
        row("read", size, before.bytes_read, after.bytes_read),
        row("written", size, before.bytes_written, after.bytes_written),
        row("read a second", rate, before.read_per_s, after.read_per_s),
        row("written a second", rate, before.written_per_s, after.written_per_s),
    ]


def _change(a: float, b: float) -> str:
    """How much larger ``b`` is than ``a``: in percent, or as a factor where that says more."""
    if a == b or (a and abs(b / a - 1) < _LEAST_SHARE):
        return "="
    if not a:
        return "new"
    if not b:
        return "gone"
    factor = b / a
    return f"{factor:.1f}x" if factor >= 2 else f"{100 * (factor - 1):+.3g} %"  # noqa: PLR2004 - twice as much


def _findings(changes: Sequence[FindingChange], console: Console) -> None:
    """One line a finding. Those that A alone has are gone, those that B alone has are new."""
    if not changes:
        return
    print_line(console, "\nFindings", "bold")
    for each in changes:
        costs = [
            format_duration(cost) if cost is not None else "found" if there else "not found"
            for cost, there in ((each.before_ns, each.before), (each.after_ns, each.after))
        ]
        state, style = ("gone", "green") if each.before else ("new", "yellow")
        if each.before and each.after:
            state, style = "stays", ""
        print_line(console, f"{state}: {each.rule}: {printable(each.subject)}: {costs[0]} → {costs[1]}", style)


def _table(heading: str, counted: str, changes: Sequence[Change], console: Console) -> None:
    """Print the rows whose time, number or bytes changed. Latencies are shown as median and 95th percentile."""
    changed = [each for each in changes if each.before != each.after]
    if not changed:
        return
    has_latency = any(side.p50_ns is not None for each in changed for side in (each.before, each.after))
    rows = []
    for each in changed[:ROWS]:
        a, b = each.before, each.after
        row = [
            shorten(printable(each.name), _NAME_WIDTH),
            *(f"{side.count:,}" for side in (a, b)),
            *(format_bytes(side.bytes_read + side.bytes_written) for side in (a, b)),
            *(format_duration(side.time_ns) for side in (a, b)),
            _change(a.time_ns, b.time_ns),
        ]
        rows.append(row + ([_spread(side) for side in (a, b)] if has_latency else []))
    headings = [heading, f"{counted} A", "B", "bytes A", "B", "time A", "B", "change"]
    headings += ["p50 to p95 A", "B"] if has_latency else []
    print_table(console, headings, "l" + "r" * (len(headings) - 1), rows)
    if len(changed) > ROWS:
        print_line(console, f"and {len(changed) - ROWS:,} more that changed less, see lo2io diff --json")


def _spread(side: Numbers) -> str:
    if side.p50_ns is None or side.p95_ns is None:
        return "-"
    return f"{format_duration(side.p50_ns)} to {format_duration(side.p95_ns)}"
