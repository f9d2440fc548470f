"""`lo2io query`: SQL over the tables of a trace."""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import click
import typer

from lo2io.cli.options import Filter, SpanBegin, SpanEnd, TraceArgument
from lo2io.libraries import prepare_libraries
from lo2io.rights import confine
from lo2io.signals import ended_by_signals

if TYPE_CHECKING:
    from lo2io.api.trace import Trace

FORMS = ("table", "csv", "json")
Sql = Annotated[str | None, typer.Argument(metavar="[SQL]", help="The query; - reads it from stdin.")]
To = Annotated[
    str,
    typer.Option(
        "--to",
        click_type=click.Choice(FORMS),
        help="table: the first rows, for people; csv, json (an object a line): all rows, for programs.",
    ),
]


def query(
    trace: TraceArgument,
    sql: Sql = None,
    to: To = "table",
    filters: Filter = None,
    begin: SpanBegin = None,
    until: SpanEnd = None,
) -> None:
    """Ask the tables of a trace in SQL, by DuckDB.

    Beside the tables there are the views calls, block_io and ring_io, whose rows have the names of files, processes and
    devices. Without SQL, list all tables and views with their columns. The tables of a recording on many nodes have the
    rows of all nodes, with a column host.
    """
    prepare_libraries()
    _read_few_batches()

    from lo2io.api.trace import open_trace
    from lo2io.otf2.foreign.opening import scratch_folders

    text = sys.stdin.read() if sql == "-" else sql
    confine([trace], [Path(), Path(tempfile.gettempdir()), *scratch_folders(trace)])
    with ended_by_signals(), open_trace(trace) as opened:
        part = opened.part(filters or (), begin=begin, end=until)
        if text is None:
            _list(part)
        else:
            from lo2io.api.queries import answered

            with answered():
                _print(part.query(text), to)


def _read_few_batches() -> None:
    """Let Arrow read with one thread: with more, tables lie in memory before DuckDB takes their rows."""
    import pyarrow as pa

    pa.set_cpu_count(1)
    pa.set_io_thread_count(1)


def _list(trace: Trace) -> None:
    """Print each table that has rows."""
    from lo2io.reports.words import printable

    for name in trace.tables:
        table = getattr(trace, name)
        if len(table):
            print(f"{name}: {len(table):,} rows\n    {printable(', '.join(table.columns))}")


def _print(relation: Any, to: str) -> None:
    """Print the rows of a relation. None: a statement that has no rows, such as ``copy``."""
    if relation is None:
        return
    if to == "table":
        from lo2io.reports.words import printable

        for line in str(relation).rstrip().split("\n"):
            print(printable(line))
        return
    import pyarrow as pa

    from lo2io.exports.tables.csv import write_rows

    reader = pa.RecordBatchReader.from_stream(relation)
    if to == "csv":
        write_rows(reader, sys.stdout.buffer)
        return
    for batch in reader:
        for row in batch.to_pylist():
            print(json.dumps(row, default=str, ensure_ascii=True))
