"""`lo2io top`: a live view while the whole machine is recorded."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from lo2io.cli.declared import parse_seconds
from lo2io.cli.options import Backend, Cgroup, Cpus, Events, Filter, Json


def top(
    trace: Annotated[
        Path | None,
        typer.Argument(metavar="[T]", help="Directory of a running `system-wide --last`. [default: start a recording]"),
    ] = None,
    interval: Annotated[
        str,
        typer.Option("-d", "--interval", metavar="TIME", help="Time between two views; each view covers this time."),
    ] = "3s",
    count: Annotated[
        int | None, typer.Option("-n", "--count", metavar="N", min=1, help="End after this number of views.")
    ] = None,
    by: Annotated[
        str, typer.Option("--by", metavar="process|file|device", help="Rows of the list; the keys p, f, d change them.")
    ] = "process",
    sort: Annotated[
        str,
        typer.Option(
            "--sort", metavar="bytes|operations|time|latency", help="Order of the rows; the key s changes it."
        ),
    ] = "bytes",
    events: Events = None,
    cpus: Cpus = None,
    cgroup: Cgroup = None,
    filters: Filter = None,
    backend: Backend = None,
    as_json: Json = False,
) -> None:
    """Show live which process, file or device does how much I/O.

    Arrows and Enter list a process' files, or a file's processes; Escape goes back. / finds rows by a text. q ends it.
    """
    from lo2io.top.look import Look, check_look
    from lo2io.top.screen import Pipe, Terminal
    from lo2io.top.session import FIRST_S, TopOptions, watch

    look = check_look(Look(by, sort))
    given = [("--events", value) for value in events or ()] + [("--filter", value) for value in filters or ()]
    given += [
        (name, value) for name, value in (("--cpus", cpus), ("--cgroup", cgroup), ("--backend", backend)) if value
    ]
    arguments = tuple(text for pair in given for text in pair)
    piped = as_json or not sys.stdout.isatty()
    options = TopOptions(trace, parse_seconds(interval) or 0.0, None if piped else FIRST_S, count, arguments)
    with Pipe(as_json=as_json) if piped else Terminal() as screen:
        watch(options, screen, look)
