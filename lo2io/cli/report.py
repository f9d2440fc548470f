"""`lo2io report`: what happened, as text, as JSON, or as a page with pictures."""

from __future__ import annotations

import sys
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lo2io.cli.messages import print_summary
from lo2io.cli.options import Filter, Json, SpanBegin, SpanEndTo, TraceArgument
from lo2io.errors import UsageError
from lo2io.libraries import prepare_libraries
from lo2io.rights import confine
from lo2io.signals import ended_by_signals
from lo2io.units import format_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import AbstractContextManager

Html = Annotated[
    Path | None,
    typer.Option(
        "--html", metavar="F", help="Write a page with pictures to this file. Browsers show the page without a network."
    ),
]
Full = Annotated[bool, typer.Option("--full", help="Print everything, not the one screen with the answer.")]
Open = Annotated[bool, typer.Option("--open", help="With --html: show the page in a browser.")]
HtmlForce = Annotated[bool, typer.Option("--force", help="With --html: replace an existing page.")]


def report(
    trace: TraceArgument,
    filters: Filter = None,
    begin: SpanBegin = None,
    until: SpanEndTo = None,
    full: Full = False,
    as_json: Json = False,
    html: Html = None,
    show: Open = False,
    force: HtmlForce = False,
) -> None:
    """Report what happened: processes, files, devices, latencies.

    One screen answers: findings, and the largest processes, files and devices. --full has all of it, such as a table of
    system calls like that of strace -c, the slowest calls, access patterns, errors and losses.

    T may also be another tool's OTF2 archive, or a log of Darshan, to compare with a trace of the same program.
    """
    if trace.suffix == ".darshan":
        narrowed = filters or begin or until or full or html or show or force
        _print_darshan(trace, as_json=as_json, narrowed=bool(narrowed))
        return
    prepare_libraries()

    from lo2io.otf2.foreign.opening import scratch_folders

    if html is None:
        if force:
            raise UsageError("report --force", "only a page can be replaced", "add --html F, or leave --force away")
        if show:
            raise UsageError("report --open", "a browser shows pages alone", "add --html F, or leave --open away")
        confine([trace], scratch_folders(trace))
        print_summary(trace, as_json=as_json, to_stdout=True, filters=filters or (), begin=begin, end=until, full=full)
        return
    if as_json:
        remedy = "run the command twice: once with --html F, once with --json"
        raise UsageError("report --html", "--html writes a page, and --json prints JSON: choose one", remedy)
    with _browser(html) if show else nullcontext() as open_page:
        confine([trace], [html.parent, *scratch_folders(trace)])
        size_bytes = _write_page(trace, html, filters or (), (begin, until), force=force)
        print(html)
        print(f"lo2io: {format_bytes(size_bytes)}", file=sys.stderr)
        refused = open_page() if open_page else ""
    if refused:
        print(f"lo2io: the page is not shown in a browser: {refused}", file=sys.stderr)


def _print_darshan(log: Path, *, as_json: bool, narrowed: bool) -> None:
    from lo2io.reports.darshan.log import read_log

    if narrowed:
        reason = "a log of Darshan has sums alone: it can neither be narrowed nor drawn"
        raise UsageError(f"report {log}", reason, "leave all options but --json away")
    confine([log], [])
    found = read_log(log)
    if as_json:
        print(found.to_json())
        return
    from lo2io.reports.text.darshan import render_log
    from lo2io.reports.text.page import report_console

    render_log(found, report_console(sys.stdout))


def _browser(page: Path) -> AbstractContextManager[Callable[[], str]]:
    from lo2io.cli.browser import browser_for

    return browser_for(page)


def _write_page(
    trace: Path, target: Path, filters: Sequence[str], span: tuple[str | None, str | None], *, force: bool
) -> int:
    """Write the page of a trace, or of the chosen part of a trace; return its size in bytes."""
    from lo2io.api.trace import open_trace
    from lo2io.cli.progress import share_progress
    from lo2io.exports.target import check_apart, open_output
    from lo2io.reports.html.template import MAGIC

    with ended_by_signals(), open_trace(trace) as whole:
        check_apart(target, whole.path)
        with open_output(target, force=force, magic=MAGIC) as file, share_progress("drawing") as progress:
            page = whole.part(filters, begin=span[0], end=span[1]).html(progress)
            file.write_text(page, encoding="utf-8", errors="backslashreplace")
            return file.stat().st_size
