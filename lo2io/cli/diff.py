"""`lo2io diff`: what changed from one trace to another."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lo2io.cli.options import Filter, Json
from lo2io.libraries import prepare_libraries
from lo2io.rights import confine
from lo2io.signals import ended_by_signals

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lo2io.reports.summary.summary import Summary

Before = Annotated[Path, typer.Argument(metavar="A", help="Directory of the first trace.")]
After = Annotated[Path, typer.Argument(metavar="B", help="Directory of the trace to compare with it.")]


def diff(before: Before, after: After, filters: Filter = None, as_json: Json = False) -> None:
    """Compare two traces: did a change of the program help?

    The page has totals, findings, and what changed by call, file, program and device. The row whose time changed most
    comes first. Latencies are shown as median and 95th percentile.
    """
    prepare_libraries()

    from lo2io.otf2.foreign.opening import scratch_folders

    confine([before, after], [*scratch_folders(before), *scratch_folders(after)])

    from lo2io.reports.diff.compare import compare, to_json
    from lo2io.reports.text.diff import render_diff
    from lo2io.reports.text.page import report_console

    with ended_by_signals():
        found = compare(*(_summarize(trace, filters or ()) for trace in (before, after)))
        if as_json:
            print(to_json(found))
        else:
            render_diff(found, report_console())


def _summarize(trace: Path, filters: Sequence[str]) -> Summary:
    from lo2io.api.trace import open_trace

    with open_trace(trace) as whole:
        return whole.part(filters).summary()
