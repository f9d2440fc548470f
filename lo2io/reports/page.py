"""The summary as text: a page for a terminal, and the same words, plain, for a pipe.

In: a :class:`~lo2io.reports.summary.Summary`. Out: lines on a rich console. It knows no table of the trace.
"""

from __future__ import annotations

import shlex
import sys
from datetime import UTC, datetime
from io import TextIOWrapper
from typing import IO, TYPE_CHECKING, Final

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from lo2io.units import NS_PER_S, format_bytes, format_duration

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lo2io.reports.histogram import Latency
    from lo2io.reports.summary import Activity, FileRow, Summary

PIPE_WIDTH: Final = 100
ROWS: Final = 12
"""Rows of each table on the page; JSON has more."""
_CALLS_OF_AN_ERROR: Final = 2
_GAP: Final = "  "
_NAME_WIDTH: Final = 20
"""Of a first column at least, however narrow the terminal."""


def report_console(file: IO[str] | None = None) -> Console:
    """The console reports are printed on: plain and 100 columns wide unless it is a terminal."""
    stream = sys.stdout if file is None else file
    if isinstance(stream, TextIOWrapper):
        # Names hold any character, and a locale may know few: spelled out is better than a traceback.
        stream.reconfigure(errors="backslashreplace")
    console = Console(file=file, highlight=False, markup=False, emoji=False, soft_wrap=True)
    if not console.is_terminal:
        console.width = PIPE_WIDTH
        console.no_color = True
    return console


def render_page(summary: Summary, console: Console) -> None:
    """Print the page; empty sections are left out."""
    _head(summary, console)
    if summary.activity.calls:
        _processes(summary, console)
        _files(summary, console)
        _calls(summary, console)
    _errors(summary, console)
    _devices(summary, console)
    for notice in summary.notices:
        _line(console, f"note: {printable(notice)}")
    path = printable(summary.trace)
    _line(console, f"\nTrace       {path}")
    _line(console, f"Open it     vampir {printable(shlex.quote(f'{summary.trace}/traces.otf2'))}")
    _line(console, f"Once more   lo2io report {printable(shlex.quote(summary.trace))}")
    style = "green" if summary.completeness_line.startswith("complete") else "bold yellow"
    _line(console, summary.completeness_line, style)


def printable(text: str) -> str:
    """Control characters, other unprintable ones and lone surrogates as escapes: a name must not move the cursor."""
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape", "surrogatepass").decode() for char in text
    )


def shorten(text: str, width: int) -> str:
    """The end of a path says more than its beginning."""
    if cell_len(text) <= width:
        return text
    while cell_len(text) >= width:
        text = text[1:]
    return f"…{text}"


def _head(summary: Summary, console: Console) -> None:
    attached = f"process {', '.join(map(str, summary.roots))}" if summary.mode == "process" else "the whole system"
    command = printable(shlex.join(summary.command)) or attached
    ended = "" if summary.exit_code is None else f" · exit code {summary.exit_code}"
    _line(console, command, "bold")
    _line(console, f"{printable(summary.hostname)} · Linux {printable(summary.kernel)} · {summary.mode} mode{ended}")
    since = ""
    if summary.start_realtime_ns is not None:
        moment = datetime.fromtimestamp(summary.start_realtime_ns / NS_PER_S, UTC)
        since = f" from {moment:%Y-%m-%d %H:%M:%S} UTC"
    total = summary.activity
    _line(
        console,
        f"{format_duration(summary.span_ns)}{since} · {_count(total.calls, 'call')}"
        f" of {_count(summary.nr_processes, 'process')} on {_count(summary.nr_files, 'named file')}",
    )
    _line(
        console,
        f"read {_flow(total.bytes_read, summary.bytes_read_per_s)}"
        f" · written {_flow(total.bytes_written, summary.bytes_written_per_s)}"
        f" · {format_duration(total.time_ns)} in calls · {_count(total.errors, 'error')}",
    )


def _count(number: int, noun: str) -> str:
    plural = "" if number == 1 else "es" if noun.endswith("s") else "s"
    return f"{number:,} {noun}{plural}"


def _flow(size: int, rate: float | None) -> str:
    return format_bytes(size) if rate is None else f"{format_bytes(size)} ({format_bytes(rate)}/s)"


def _print(console: Console, headings: Sequence[str], align: str, rows: Sequence[Sequence[str]]) -> None:
    """Print a table; the first column is shortened to fit, the others never: half a number is a wrong number.

    Args:
        console: Its width decides.
        headings: One a column.
        align: A letter a column: l or r.
        rows: Cells as they are printed.
    """
    widths = [max(cell_len(cell) for cell in column) for column in zip(headings, *rows, strict=True)]
    room = max(_NAME_WIDTH, console.width - sum(widths[1:]) - len(_GAP) * len(widths[1:]))
    widths[0] = min(widths[0], room)

    def line(cells: Sequence[str]) -> str:
        padded = []
        for cell, width, letter in zip([shorten(cells[0], room), *cells[1:]], widths, align, strict=True):
            space = " " * (width - cell_len(cell))
            padded.append(cell + space if letter == "l" else space + cell)
        return _GAP.join(padded).rstrip()

    _line(console, "")
    _line(console, line(headings), "bold")
    for row in rows:
        _line(console, line(row))


def _line(console: Console, text: str, style: str = "") -> None:
    """A line, never folded: what it says is searched for and pasted."""
    console.print(Text(text, style=style), soft_wrap=True)


def _more(console: Console, hidden: int) -> None:
    if hidden > 0:
        _line(console, f"and {hidden:,} more, see lo2io report --json")


def _numbers(activity: Activity) -> list[str]:
    return [
        format_bytes(activity.bytes_read),
        format_bytes(activity.bytes_written),
        format_duration(activity.time_ns),
        f"{activity.errors:,}",
    ]


def _who(pid: int | None, comm: str | None) -> str:
    name = printable(comm) if comm else "unknown"
    return name if pid is None else f"{name} ({pid})"


def _processes(summary: Summary, console: Console) -> None:
    rows = [
        [_who(row.pid, row.comm), f"{row.threads:,}", f"{row.activity.calls:,}", *_numbers(row.activity)]
        for row in summary.processes[:ROWS]
    ]
    _print(console, ["Process (pid)", "threads", "calls", "read", "written", "time", "errors"], "lrrrrrr", rows)
    _more(console, len(summary.processes) - ROWS)


def _files(summary: Summary, console: Console) -> None:
    with_file = [row for row in summary.files if row.kind != "none"]
    rows = []
    for row in with_file[:ROWS] + [row for row in summary.files if row.kind == "none"]:
        activity = row.activity
        counts = (f"{number:,}" for number in (activity.reads, activity.writes, activity.calls))
        rows.append([_file_name(row), *counts, *_numbers(activity)])
    _print(console, ["File", "reads", "writes", "calls", "read", "written", "time", "errors"], "lrrrrrrr", rows)
    _more(console, len(with_file) - ROWS)


def _file_name(row: FileRow) -> str:
    if row.kind == "unnamed":
        return f"unnamed fds of {_who(row.pid, row.comm)}"
    if row.kind == "none":
        return "calls without an fd"
    return printable(row.path or "unnamed")


def _calls(summary: Summary, console: Console) -> None:
    rows = []
    for row in summary.calls[:ROWS]:
        lat = row.latency
        moved = max(row.activity.bytes_read, row.activity.bytes_written)
        times = (lat.total_ns, lat.mean_ns, lat.p50_ns, lat.p99_ns, lat.max_ns)
        counts = [f"{row.activity.calls:,}", f"{row.activity.errors:,}", format_bytes(moved)]
        rows.append([row.name, *counts, *(_duration(lat, value) for value in times)])
    _print(console, ["Call", "calls", "errors", "bytes", "time", "mean", "p50", "p99", "max"], "lrrrrrrrr", rows)
    _more(console, len(summary.calls) - ROWS)
    for row in summary.calls:
        if row.in_flight:
            _line(console, f"{row.name}: {row.in_flight:,} in flight")


def _errors(summary: Summary, console: Console) -> None:
    if not summary.errors:
        return
    rows = []
    for row in summary.errors[:ROWS]:
        names = [f"{name} {nr:,}" for name, nr in row.calls.items()]
        rest = len(names) - _CALLS_OF_AN_ERROR
        where = ", ".join(names[:_CALLS_OF_AN_ERROR]) + (f" and {rest} more" if rest > 0 else "")
        rows.append([row.name, f"{row.nr:,}", row.text, where])
    _print(console, ["Error", "times", "meaning", "in"], "lrll", rows)
    _more(console, len(summary.errors) - ROWS)


def _devices(summary: Summary, console: Console) -> None:
    if not summary.devices:
        return
    rows, notes = [], []
    for row in summary.devices[: 2 * ROWS]:
        name = printable(row.name)
        first = [name, row.operation, f"{row.requests:,}", format_bytes(row.bytes)]
        rows.append([*first, "queue", *_percentiles(row.queue)])
        rows.append(["", "", "", "", "device", *_percentiles(row.device)])
        counts = {"failed": row.errors, "in flight": row.in_flight, "merged": row.merged, "requeued": row.requeues}
        extra = ", ".join(f"{number:,} {what}" for what, number in counts.items() if number)
        notes += [f"{name} {row.operation}: {extra}"] if extra else []
    headings = ["Device", "operation", "requests", "bytes", "latency", "p50", "p95", "p99", "max"]
    _print(console, headings, "llrrlrrrr", rows)
    for note in notes:
        _line(console, note)
    _more(console, len(summary.devices) - 2 * ROWS)


def _percentiles(latency: Latency) -> list[str]:
    return [_duration(latency, value) for value in (latency.p50_ns, latency.p95_ns, latency.p99_ns, latency.max_ns)]


def _duration(latency: Latency, value_ns: int) -> str:
    """A dash for the latency of nothing: it is not 0."""
    return format_duration(value_ns) if latency.nr else "-"
