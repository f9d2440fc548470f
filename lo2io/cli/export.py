"""`lo2io export`: a trace in the formats of other programs."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from lo2io.cli.options import Filter, SpanBegin, SpanEnd, TraceArgument
from lo2io.exports.formats import FORMATS
from lo2io.libraries import prepare_libraries
from lo2io.rights import confine
from lo2io.signals import ended_by_signals
from lo2io.units import format_bytes

To = Annotated[
    str,
    typer.Option(
        "--to", metavar="FORMAT", help="; ".join(f"{name}: {found.text}" for name, found in FORMATS.items()) + "."
    ),
]
ExportOutput = Annotated[
    Path | None,
    typer.Option(
        "-o",
        "--output",
        metavar="F",
        help="File or folder to write. [default: the trace's name with the format's suffix]",
    ),
]
ExportForce = Annotated[bool, typer.Option("--force", help="Replace an existing export.")]
FormatOptions = Annotated[
    list[str] | None,
    typer.Option(
        "-O",
        "--option",
        metavar="NAME=VALUE",
        help="An option of the format. "
        + "; ".join(
            f"{name}: "
            + ", ".join(f"{each.name}={'|'.join(each.values) or '…'} ({each.text})" for each in found.options)
            for name, found in FORMATS.items()
            if found.options
        )
        + ".",
    ),
]


def export(
    trace: TraceArgument,
    to: To,
    output: ExportOutput = None,
    options: FormatOptions = None,
    filters: Filter = None,
    begin: SpanBegin = None,
    until: SpanEnd = None,
    force: ExportForce = False,
) -> None:
    """Write a trace in the format of other programs. The trace stays as it is."""
    from lo2io.exports import formats

    found = formats.find_format(to)
    formats.read_options(to, options or ())
    prepare_libraries()

    from lo2io.cli.progress import share_progress
    from lo2io.otf2.foreign.opening import open_any, scratch_folders
    from lo2io.trace.selection.selection import select

    confine([trace], [output.parent if output else Path(), *scratch_folders(trace)])
    with ended_by_signals(), open_any(trace) as whole, share_progress("exporting") as progress:
        formats.check_foreign(to, trace, whole.metadata.get("foreign"))
        opened = select(whole, filters or (), begin=begin, end=until)
        target = output or Path(f"{opened.path.resolve().name}{found.suffix}")
        summary = formats.export(opened, to, target, progress, force=force, options=options or ())
    print(target)
    print(f"lo2io: {summary.rows:,} rows, {format_bytes(summary.size_bytes)}", file=sys.stderr)
    for note in summary.notes:
        print(f"lo2io: {note}", file=sys.stderr)
