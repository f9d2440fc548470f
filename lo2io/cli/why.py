"""`lo2io why`: why calls took as long as they did."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from lo2io.cli.options import Filter, Json, TraceArgument
from lo2io.errors import UsageError
from lo2io.libraries import prepare_libraries
from lo2io.rights import confine
from lo2io.signals import ended_by_signals

if TYPE_CHECKING:
    from lo2io.trace.reader import Trace

Calls = Annotated[
    list[int] | None,
    typer.Option(
        "--call",
        metavar="ID",
        help="Explain this call, by its id in the table operations, or this request of a ring, by its id in "
        "ring_requests; may be repeated.",
    ),
]
Slowest = Annotated[
    int | None, typer.Option("--slowest", metavar="N", min=1, help="Explain so many of the slowest calls. [default: 3]")
]
File = Annotated[
    str | None, typer.Option("--file", metavar="PATH", help="Only calls on this file; * and ** are allowed.")
]


def why(
    trace: TraceArgument,
    calls: Calls = None,
    slowest: Slowest = None,
    file: File = None,
    filters: Filter = None,
    as_json: Json = False,
) -> None:
    """Explain why calls took so long.

    For each call: where its time went, what happened meanwhile, and who else used its device. Calls that wait by their
    nature, such as polls and reads of pipes, are never among the slowest.
    """
    if calls and (slowest is not None or file is not None or filters):
        raise UsageError("why --call", "the call is chosen already", "leave --slowest, --file and --filter out")
    prepare_libraries()
    confine([trace])

    from lo2io.reports.text.page import report_console
    from lo2io.reports.text.why import render_chain
    from lo2io.reports.why.chain import explain
    from lo2io.trace.reader import open_trace

    with ended_by_signals():
        opened = open_trace(trace)
        chosen = list(filters or ()) + ([_on_file(file)] if file is not None else [])
        chains = explain(opened, calls or _slowest(opened, chosen, 3 if slowest is None else slowest))
    if as_json:
        print(json.dumps([asdict(chain) for chain in chains], indent=2, ensure_ascii=True))
        return
    console = report_console()
    for number, chain in enumerate(chains):
        if number:
            print()
        render_chain(chain, console)


def _on_file(path: str) -> str:
    """The filter of ``--file``. A path without a star is no pattern, whatever other signs it has."""
    quoted = path.replace("\\", r"\\").replace('"', r"\"")
    return f'path {"~" if "*" in path else "=="} "{quoted}"'


def _slowest(trace: Trace, filters: list[str], number: int) -> list[int]:
    from lo2io.reports.summary.sums import gather
    from lo2io.trace.selection.selection import select

    found = [slow.id for slow in gather(select(trace, filters)).slow]
    if not found:
        remedy = "choose other calls, or one by --call" if filters else "record more calls (-e)"
        raise UsageError("look for slow calls", "the trace has no call of the kind", remedy)
    return found[:number]
