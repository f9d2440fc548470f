r"""Tables as CSV (RFC 4180): one file for each table, with a line of names. ``columns.csv`` says what columns mean.

An unknown value is an empty field without quotes. Texts stand in quotes, so an empty text differs. Bytes are
hexadecimal.

Whoever names a file or a process chooses text that ends up here. So control characters other than tab and newline are
written as ``\x1b``, for terminals obey them, and text that a spreadsheet would take for a formula has an apostrophe in
front. With ``-O text=raw`` texts stay as they were recorded.
"""

from __future__ import annotations

import re
from typing import IO, TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from lo2io.exports.tables.tabular import choose_tables, describe, export_schema, export_tables

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from lo2io.exports.target import ExportSummary, Progress
    from lo2io.trace.reader import Trace


_CONTROLS: Final = r"[\x00-\x08\x0b-\x1f\x7f-\x{9f}]"
"""In RE2's language: C0 without tab and newline, DEL, C1."""
_FORMULA: Final = r"^[=+\-@\t\r\n\x{ff1d}\x{ff0b}\x{ff0d}\x{ff20}]"
"""What makes a spreadsheet compute: also the wide forms of the four characters, and white space before them."""
_PYTHON_CONTROLS: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_PYTHON_FORMULA: Final = re.compile("[=+\\-@\t\r\n\uff1d\uff0b\uff0d\uff20]")


def export(trace: Trace, target: Path, progress: Progress, *, tables: str = "", text: str = "safe") -> ExportSummary:
    """Write ``TABLE.csv`` for each table, ``columns.csv`` and ``metadata.json``.

    Args:
        trace: The trace to write.
        target: An empty folder.
        progress: Called with the finished share.
        tables: Names separated by colons; empty: all.
        text: ``safe``: no control characters and no formulas of spreadsheets; ``raw``: texts as they were recorded.

    Raises:
        UsageError: There is no such table.
        TraceError: A table cannot be read.
    """
    names = choose_tables(tables)

    def write(trace: Trace, name: str, pieces: Iterator[pa.Table]) -> None:
        fields = export_schema(trace, name)
        names = [field.name if text == "raw" else neutral(field.name) for field in fields]
        schema = pa.schema([pa.field(shown, _plain(field.type)) for shown, field in zip(names, fields, strict=True)])
        with csv.CSVWriter(target / f"{name}.csv", schema) as writer:
            for piece in pieces:
                columns = [_as_plain(column) for column in piece.columns]
                if text != "raw":
                    columns = [_neutral_column(column) for column in columns]
                writer.write_table(pa.Table.from_arrays(columns, schema=schema))

    summary = export_tables(trace, target, progress, names, write)
    rows = [{"table": name, **column} for name in names for column in describe(export_schema(trace, name))]
    described = pa.Table.from_pylist(rows)
    if text != "raw":
        described = pa.table([_neutral_column(column) for column in described.columns], described.column_names)
    csv.write_csv(described, target / "columns.csv")
    return summary


def write_rows(rows: pa.RecordBatchReader, sink: IO[bytes]) -> None:
    """Write batches of any columns, with texts as in an export: no control characters, no formulas."""
    schema = pa.schema([pa.field(neutral(field.name), _plain(field.type)) for field in rows.schema])
    with csv.CSVWriter(sink, schema) as writer:
        for batch in rows:
            columns = [_neutral_column(_as_plain(pa.chunked_array([column]))) for column in batch.columns]
            writer.write_table(pa.Table.from_arrays(columns, schema=schema))


def neutral(text: str) -> str:
    """The text without control characters, and with an apostrophe in front of what looks like a formula."""
    shown = _PYTHON_CONTROLS.sub(lambda found: f"\\x{ord(found[0]):02x}", text)
    return f"'{shown}" if _PYTHON_FORMULA.match(text) else shown


def _neutral_column(column: pa.ChunkedArray) -> pa.ChunkedArray:
    if (
        not pa.types.is_string(column.type)
        or not pc.any(pc.match_substring_regex(column, f"{_CONTROLS}|{_FORMULA}")).as_py()
    ):
        return column
    return pa.chunked_array([[None if each is None else neutral(each) for each in column.to_pylist()]], column.type)


def _plain(kind: pa.DataType) -> pa.DataType:
    return pa.utf8() if pa.types.is_dictionary(kind) or pa.types.is_binary(kind) else kind


def _as_plain(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """The column in a form that CSV can hold: names in place of codes, hexadecimal numbers in place of bytes."""
    if pa.types.is_dictionary(column.type):
        return column.cast(pa.utf8())
    if pa.types.is_binary(column.type):
        return pa.chunked_array([[None if v is None else v.hex() for v in column.to_pylist()]], pa.utf8())
    return column
