r"""Tables as CSV (RFC 4180): one file for each table, with a line of names. ``columns.csv`` says what columns mean.

An unknown value is an empty field without quotes. Texts stand in quotes, so an empty text differs. Bytes are
hexadecimal.

Whoever names a file or a process chooses text that ends up here. So control characters other than tab and newline are
written as ``\x1b``, for terminals obey them, and text that a spreadsheet would take for a formula has an apostrophe in
front. With ``-O text=raw`` texts stay as they were recorded.
"""

from __future__ import annotations

import os
import re
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from typing import IO, TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from lo2io.exports.tables.tabular import choose_tables, describe, export_schema, export_tables

if TYPE_CHECKING:
    from collections.abc import Iterator
    from concurrent.futures import Future
    from pathlib import Path

    from lo2io.exports.target import ExportSummary, Progress
    from lo2io.trace.reader import Trace


_WORKERS: Final = 4
"""Threads that make text. One thread writes all text. With more makers, that thread would be the slower side."""
_PART_ROWS: Final = 65536
"""Rows that a thread makes into text at a time: some 10 MB."""
_TEXT_ROWS: Final = 4096
"""Rows that Arrow formats at a time. Its default, 1024, takes a sixth longer."""
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
    safe = text != "raw"

    def write(trace: Trace, name: str, pieces: Iterator[pa.Table]) -> None:
        schema = _shown_schema(export_schema(trace, name), safe=safe)
        with (target / f"{name}.csv").open("wb") as file:
            for rendered in _rendered(pieces, schema, safe=safe):
                file.write(rendered)

    summary = export_tables(trace, target, progress, names, write)
    rows = [{"table": name, **column} for name in names for column in describe(export_schema(trace, name))]
    described = pa.Table.from_pylist(rows)
    csv.write_csv(_shown(described, described.schema, safe=safe), target / "columns.csv")
    return summary


def write_rows(rows: pa.RecordBatchReader, sink: IO[bytes]) -> None:
    """Write batches of any columns, with texts as in an export: no control characters, no formulas."""
    schema = _shown_schema(rows.schema, safe=True)
    with csv.CSVWriter(sink, schema, write_options=csv.WriteOptions(batch_size=_TEXT_ROWS)) as writer:
        for batch in rows:
            writer.write_table(_shown(pa.Table.from_batches([batch]), schema, safe=True))


def _rendered(pieces: Iterator[pa.Table], schema: pa.Schema, *, safe: bool) -> Iterator[pa.Buffer]:
    """The file's text, part by part and in order: a line of names, then the rows. Several threads make the parts."""
    yield _text(schema.empty_table(), schema, safe=safe, names=True)
    workers = min(_WORKERS, len(os.sched_getaffinity(0)))
    with ThreadPoolExecutor(workers, "lo2io-csv") as pool:
        coming: deque[Future[pa.Buffer]] = deque()
        for piece in pieces:
            for start in range(0, piece.num_rows, _PART_ROWS):
                part = piece.slice(start, _PART_ROWS)
                coming.append(pool.submit(_text, part, schema, safe=safe))
                if len(coming) > workers:
                    yield coming.popleft().result()
        for last in coming:
            yield last.result()


def _text(rows: pa.Table, schema: pa.Schema, *, safe: bool, names: bool = False) -> pa.Buffer:
    sink = pa.BufferOutputStream()
    options = csv.WriteOptions(include_header=names, batch_size=_TEXT_ROWS)
    csv.write_csv(_shown(rows, schema, safe=safe), sink, options)
    return sink.getvalue()


def neutral(text: str) -> str:
    """The text without control characters, and with an apostrophe in front of what looks like a formula."""
    shown = _PYTHON_CONTROLS.sub(lambda found: f"\\x{ord(found[0]):02x}", text)
    return f"'{shown}" if _PYTHON_FORMULA.match(text) else shown


def _shown_schema(schema: pa.Schema, *, safe: bool) -> pa.Schema:
    """The columns of a file: their names, and types that CSV can hold."""
    return pa.schema([pa.field(neutral(each.name) if safe else each.name, _plain(each.type)) for each in schema])


def _shown(rows: pa.Table, schema: pa.Schema, *, safe: bool) -> pa.Table:
    return pa.Table.from_arrays([_shown_column(column, safe=safe) for column in rows.columns], schema=schema)


def _shown_column(column: pa.ChunkedArray, *, safe: bool) -> pa.ChunkedArray:
    """The column in a form that CSV can hold: names in place of codes, hexadecimal numbers in place of bytes."""
    kind = _plain(column.type)
    if pa.types.is_dictionary(column.type):  # each name is made neutral once, however many rows have it
        texts = ((_neutral_texts(chunk.dictionary.cast(kind)) if safe else chunk.dictionary) for chunk in column.chunks)
        return pa.chunked_array(
            [text.take(chunk.indices) for text, chunk in zip(texts, column.chunks, strict=True)], kind
        )
    if pa.types.is_binary(column.type):
        return pa.chunked_array([[None if v is None else v.hex() for v in column.to_pylist()]], kind)
    if safe and pa.types.is_string(column.type):
        return pa.chunked_array([_neutral_texts(chunk) for chunk in column.chunks], kind)
    return column


def _neutral_texts(texts: pa.Array) -> pa.Array:
    if not pc.any(pc.match_substring_regex(texts, f"{_CONTROLS}|{_FORMULA}")).as_py():
        return texts
    return pa.array([None if each is None else neutral(each) for each in texts.to_pylist()], texts.type)


def _plain(kind: pa.DataType) -> pa.DataType:
    return pa.utf8() if pa.types.is_dictionary(kind) or pa.types.is_binary(kind) else kind
