"""Tables as CSV (RFC 4180): one file for each table, with a line of names. ``columns.csv`` says what columns mean.

An unknown value is an empty field without quotes. Texts stand in quotes, so an empty text differs. Bytes are
hexadecimal.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
from pyarrow import csv

from lo2io.exports.tables.tabular import choose_tables, describe, export_schema, export_tables

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from lo2io.exports.target import ExportSummary, Progress
    from lo2io.trace.reader import Trace


def export(trace: Trace, target: Path, progress: Progress, *, tables: str = "") -> ExportSummary:
    """Write ``TABLE.csv`` for each table, ``columns.csv`` and ``metadata.json``.

    Args:
        trace: The trace to write.
        target: An empty folder.
        progress: Called with the finished share.
        tables: Names separated by colons; empty: all.

    Raises:
        UsageError: There is no such table.
        TraceError: A table cannot be read.
    """
    names = choose_tables(tables)

    def write(trace: Trace, name: str, pieces: Iterator[pa.Table]) -> None:
        schema = pa.schema([pa.field(field.name, _plain(field.type)) for field in export_schema(trace, name)])
        with csv.CSVWriter(target / f"{name}.csv", schema) as writer:
            for piece in pieces:
                writer.write_table(pa.Table.from_arrays([_as_plain(column) for column in piece.columns], schema=schema))

    summary = export_tables(trace, target, progress, names, write)
    rows = [{"table": name, **column} for name in names for column in describe(export_schema(trace, name))]
    csv.write_csv(pa.Table.from_pylist(rows), target / "columns.csv")
    return summary


def _plain(kind: pa.DataType) -> pa.DataType:
    return pa.utf8() if pa.types.is_dictionary(kind) or pa.types.is_binary(kind) else kind


def _as_plain(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """The column in a form that CSV can hold: names in place of codes, hexadecimal numbers in place of bytes."""
    if pa.types.is_dictionary(column.type):
        return column.cast(pa.utf8())
    if pa.types.is_binary(column.type):
        return pa.chunked_array([[None if v is None else v.hex() for v in column.to_pylist()]], pa.utf8())
    return column
