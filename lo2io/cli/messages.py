"""The messages around a command's work: for the user while it runs, and about its result."""

from __future__ import annotations

import contextlib
import importlib
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from lo2io.api.trace import Trace
    from lo2io.cli.status_line import StatusLine


def status_line(*, quiet: bool) -> StatusLine | None:
    """The status line of a recording; None if messages do not go to a terminal, or with ``--quiet``."""
    if quiet or not sys.stderr.isatty():
        return None
    from lo2io.cli.status_line import StatusLine

    return StatusLine()


def say(*, quiet: bool, line: StatusLine | None = None) -> Callable[[str], None]:
    """A function that takes messages for the user; ``line`` makes way for them."""

    def tell(message: str) -> None:
        if not quiet:
            if line:
                line.clear()
            print(f"lo2io: {message}", file=sys.stderr)

    return tell


def import_summary() -> None:
    """Import what :func:`print_summary` imports, while Python can still keep compiled modules."""
    for module in ("lo2io.api.trace", "lo2io.reports.text.brief", "lo2io.reports.text.page"):
        importlib.import_module(module)


def print_summary(
    trace: Path,
    *,
    as_json: bool,
    to_stdout: bool,
    filters: Sequence[str] = (),
    begin: str | None = None,
    end: str | None = None,
    full: bool = False,
) -> None:
    """The report of a trace, or of the traces of many nodes; or of the part that passes the filters within a span.

    On a terminal, the full report comes in a pager.

    Raises:
        UsageError: A filter or a time cannot be understood.
        TraceError: The trace cannot be read.
    """
    from lo2io.libraries import prepare_libraries

    prepare_libraries()

    from lo2io.api.trace import open_trace
    from lo2io.reports.summary.summary import to_json
    from lo2io.signals import ended_by_signals

    with ended_by_signals(), open_trace(trace) as opened:  # another tool's trace gets temporary tables
        part = opened.part(filters, begin=begin, end=end)
        if part.has_hosts:
            _print_hosts(part, as_json=as_json, full=full)
            return
        found = part.summary()
    if as_json:
        print(to_json(found))
        return
    from lo2io.reports.text.brief import render_brief
    from lo2io.reports.text.page import render_page, report_console

    console = report_console(sys.stdout if to_stdout else sys.stderr)
    if not full:
        render_brief(found, console)
        return
    with console.pager(styles=not console.no_color) if console.is_terminal else contextlib.nullcontext():
        render_page(found, console)


def _print_hosts(trace: Trace, *, as_json: bool, full: bool) -> None:
    """The report of many nodes, on stdout."""
    from lo2io.reports.nodes.summary import to_json
    from lo2io.reports.text.nodes import render_nodes
    from lo2io.reports.text.page import report_console

    found = trace.hosts_summary()
    if as_json:
        print(to_json(found))
        return
    render_nodes(found, report_console(), full=full)


def print_completeness(converted: Any, host: str = "") -> None:
    """The last line of a command that made a trace; with ``host``, one of several nodes."""
    from lo2io.reports.summary.losses import completeness_line

    words = (converted.reconciliation, converted.filtered, converted.sampled, converted.shortfall)
    line = completeness_line(converted.completeness, *words)
    print(f"{host}: {line}" if host else line, file=sys.stderr)


def progress_bar(spool: Path) -> Any:
    """The context that shows how far converting is."""
    from lo2io.cli.progress import conversion_progress

    return conversion_progress(spool)
