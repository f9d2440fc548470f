"""The options of the commands, each declared once, and the messages around a command's work."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import click
import typer

from lo2io.errors import UsageError
from lo2io.libraries import prepare_libraries

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lo2io.cli.status_line import StatusLine

Json = Annotated[bool, typer.Option("--json", help="Print JSON on stdout.")]
Force = Annotated[bool, typer.Option("--force", help="Replace a trace that is there.")]
Events = Annotated[
    list[str] | None,
    typer.Option(
        "-e",
        "--events",
        metavar="EVENTS",
        help="Groups, calls or tracepoints, separated by commas; +NAME adds to the default, -NAME takes away. "
        "`lo2io tracepoints list` names them.",
    ),
]
TraceArgument = Annotated[Path, typer.Argument(metavar="T", help="Directory of the trace.")]
Backend = Annotated[
    str | None,
    typer.Option(
        "--backend",
        click_type=click.Choice(("bpf", "perf")),
        help="Record calls by programs in the kernel (bpf), or by perf events. [default: bpf where allowed]",
    ),
]
Filter = Annotated[
    list[str] | None,
    typer.Option(
        "--filter",
        metavar="EXPR",
        help="Keep only I/O that matches, e.g. 'size >= 64KiB'. With several filters, I/O must match all.",
    ),
]
_MOMENT = "2.5s after the trace's begin, -10s (before its end), a date and time of day, or @NS as in the tables."
SpanBegin = Annotated[
    str | None,
    typer.Option("--from", metavar="TIME", help=f"Only I/O that was under way at this moment or later: {_MOMENT}"),
]
SpanEnd = Annotated[
    str | None,
    typer.Option("--until", metavar="TIME", help="Only I/O that began before this moment; written like --from."),
]
SpanEndTo = Annotated[
    str | None,
    typer.Option(
        "--until", "--to", metavar="TIME", help="Only I/O that began before this moment; written like --from."
    ),
]
BlockRecords = Annotated[
    str | None,
    typer.Option(
        "--block-records",
        click_type=click.Choice(("samples", "begin-end", "both")),
        help="Write block requests as samples of the CPUs, as begin-end of the devices, or both. "
        "[default: samples for a whole machine, else begin-end]",
    ),
]
Sample = Annotated[
    str | None,
    typer.Option(
        "--sample",
        metavar="1/N",
        help="Write one in N requests of io_uring, chosen by a hash of their numbers. Totals stay exact.",
    ),
]
Cpus = Annotated[str | None, typer.Option("--cpus", metavar="LIST", help="Record these CPUs only, e.g. 0-3,6.")]
Cgroup = Annotated[
    str | None,
    typer.Option("--cgroup", metavar="PATH", help="Record only this cgroup and those below it."),
]


def parse_size(text: str | None) -> int | None:
    """Bytes, or None without a text.

    Raises:
        UsageError: The text is no size.
    """
    from lo2io.units import parse_bytes

    return None if text is None else parse_bytes(text)


def parse_seconds(text: str | None) -> float | None:
    """Seconds, or None without a text.

    Raises:
        UsageError: The text is no length of time, or the length is 0.
    """
    from lo2io.units import NS_PER_S, parse_duration

    if text is None:
        return None
    time_ns = parse_duration(text)
    if time_ns == 0:
        raise UsageError(
            f"read the time {text!r}", "recording would end at once", "write it like 500ms, 30s, 5min or 1h"
        )
    return time_ns / NS_PER_S


def parse_rate(text: str | None) -> int | None:
    """N of ``1/N``, or None without a text.

    Raises:
        UsageError: The text is not of the form ``1/N``.
    """
    from lo2io.units import parse_share

    return None if text is None else parse_share(text)


def status_line(*, quiet: bool) -> StatusLine | None:
    """The status line of a recording; None if messages do not go to a terminal, or with ``--quiet``."""
    from lo2io.cli.status_line import StatusLine

    return StatusLine() if sys.stderr.isatty() and not quiet else None


def say(*, quiet: bool, line: StatusLine | None = None) -> Callable[[str], None]:
    """A function that takes messages for the user; ``line`` makes way for them."""

    def tell(message: str) -> None:
        if not quiet:
            if line:
                line.clear()
            print(f"lo2io: {message}", file=sys.stderr)

    return tell


def import_summary() -> None:
    """Import what :func:`print_summary` imports."""
    for module in ("lo2io.otf2.foreign.opening", "lo2io.reports.summary.summary", "lo2io.reports.text.page"):
        importlib.import_module(module)


def print_summary(
    trace: Path,
    *,
    as_json: bool,
    to_stdout: bool,
    filters: Sequence[str] = (),
    begin: str | None = None,
    end: str | None = None,
) -> None:
    """The report of a trace, or of the part of it that passes the filters within a span.

    Raises:
        UsageError: A filter or a time cannot be understood.
        TraceError: The trace cannot be read.
    """
    prepare_libraries()

    from lo2io.otf2.foreign.opening import open_any
    from lo2io.reports.summary import summary
    from lo2io.signals import ended_by_signals
    from lo2io.trace.selection.selection import select

    with ended_by_signals(), open_any(trace) as opened:  # another tool's trace gets temporary tables
        found = summary.summarize(select(opened, filters, begin=begin, end=end))
    if as_json:
        print(summary.to_json(found))
        return
    from lo2io.reports.text.page import report_console

    summary.render(found, report_console(sys.stdout if to_stdout else sys.stderr))


def print_completeness(converted: Any) -> None:
    """The last line of a command that made a trace."""
    from lo2io.reports.summary.losses import completeness_line

    words = (converted.reconciliation, converted.filtered, converted.sampled, converted.shortfall)
    print(completeness_line(converted.completeness, *words), file=sys.stderr)


def progress_bar(spool: Path) -> Any:
    """The context that shows how far converting is."""
    from lo2io.cli.progress import conversion_progress

    return conversion_progress(spool)
