"""The options of :mod:`lo2io.cli.declared` for Typer, and those that only commands without recording have."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import click
import typer

from lo2io.cli import declared


def option(of: declared.Declared) -> Any:
    """An option, or arguments, as Typer has it in ``Annotated``."""
    if not of.flags:
        return typer.Argument(metavar=of.metavar, help=of.help)
    choice = click.Choice(of.choices) if of.choices else None
    return typer.Option(*of.flags, metavar=of.metavar, help=of.help, click_type=choice)


Json = Annotated[bool, option(declared.JSON)]
Force = Annotated[bool, option(declared.FORCE)]
Events = Annotated[list[str] | None, option(declared.EVENTS)]
TraceArgument = Annotated[Path, typer.Argument(metavar="T", help="Directory of the trace.")]
Backend = Annotated[str | None, option(declared.BACKEND)]
Filter = Annotated[list[str] | None, option(declared.FILTER)]
_MOMENT = "2.5s after the trace's start, -10s (before its end), a date and time of day, or @NS as in the tables."
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
BlockRecords = Annotated[str | None, option(declared.BLOCK_RECORDS)]
Sample = Annotated[str | None, option(declared.SAMPLE)]
Cpus = Annotated[str | None, option(declared.CPUS)]
Cgroup = Annotated[str | None, option(declared.CGROUP)]
