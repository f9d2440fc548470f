"""Shared by Parquet and CSV: the choice of tables, the rows written at a time, and the metadata beside the tables."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from lo2io.errors import UsageError
from lo2io.exports.target import ExportSummary
from lo2io.trace.names import METADATA_FILE
from lo2io.trace.reader import TABLES, arrow_schema

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from lo2io.exports.target import Progress
    from lo2io.trace.reader import Trace

    WriteTable = Callable[[Trace, str, Iterator[pa.Table]], None]

PIECE_ROWS: Final = 4 * 65536
"""Rows written at a time: a row group of Parquet, made of four batches of ``trace/writer.py``."""
PIECE_BYTES: Final = 1 << 28
"""Fewer rows are written at a time if their texts are long."""


_FROM_METADATA: Final = {
    "calls": (
        ("name", "call", "system call, as in operations"),
        ("tracepoint", "tracepoint", "name of its tracepoints"),
        ("group", "event_group", "group of --events"),
        ("kind", "kind", "what it does to descriptors and positions: read, write, open, close, meta …"),
    ),
    "opcodes": (
        ("name", "opcode", "opcode of io_uring, as in ring_requests"),
        ("kind", "kind", "what it does, as of calls"),
        ("io_mode", "io_mode", "read, write, flush or none"),
    ),
}
"""Lists of the metadata that become tables, so that queries can join them: key, column, description."""
NAMES: Final = (*TABLES, *_FROM_METADATA)


def choose_tables(text: str) -> tuple[str, ...]:
    """Tables by their names, separated by colons; empty: all.

    Raises:
        UsageError: There is no such table.
    """
    names = tuple(dict.fromkeys(text.split(":"))) if text else NAMES
    for name in names:
        if name not in NAMES:
            raise UsageError(f"export the table {name!r}", "there is no such table", f"tables are {', '.join(NAMES)}")
    return names


def export_tables(
    trace: Trace, target: Path, progress: Progress, tables: tuple[str, ...], write: WriteTable
) -> ExportSummary:
    """Write each table by ``write``, and the trace's ``metadata.json``, into the folder ``target``.

    Raises:
        TraceError: A table cannot be read.
    """
    every = sum(trace.rows(name) if name in TABLES else 0 for name in tables)
    done = 0

    def pieces(name: str) -> Iterator[pa.Table]:
        nonlocal done
        for piece in _pieces(trace, name):
            yield piece
            done += piece.num_rows if name in TABLES else 0
            progress(min(1.0, done / every) if every else 1.0)

    for name in tables:
        write(trace, name, pieces(name))
    text = json.dumps(trace.metadata, indent=1, ensure_ascii=True)
    (target / METADATA_FILE).write_text(text + "\n", encoding="utf-8")
    return ExportSummary(done)


def export_schema(trace: Trace, name: str) -> pa.Schema:
    """The columns of an export: first all that this version knows, in its order, then others that the trace has.

    Columns that an earlier version's trace lacks are included; all their values are unknown.
    """
    if name in _FROM_METADATA:
        return pa.schema(
            [
                pa.field(column, pa.utf8(), nullable=False, metadata={"description": text})
                for _, column, text in _FROM_METADATA[name]
            ],
            {"table": name},
        )
    there = trace.schema(name)
    known = arrow_schema(name, trace.metadata["clock"])
    fields = [there.field(each.name) if each.name in there.names else each.with_nullable(True) for each in known]
    more = [each for each in there if each.name not in known.names]
    return pa.schema([*fields, *more], there.metadata)


def _pieces(trace: Trace, name: str) -> Iterator[pa.Table]:
    schema = export_schema(trace, name)
    if name in _FROM_METADATA:
        rows = trace.metadata.get(name, [])
        yield pa.Table.from_arrays(
            [pa.array([row[key] for row in rows], pa.utf8()) for key, *_ in _FROM_METADATA[name]], schema=schema
        )
        return
    for piece in _gathered(trace, name):
        columns = [
            piece.column(field.name) if field.name in piece.schema.names else pa.nulls(piece.num_rows, field.type)
            for field in schema
        ]
        yield pa.Table.from_arrays(columns, schema=schema)


def _gathered(trace: Trace, name: str) -> Iterator[pa.Table]:
    schema = trace.schema(name)
    held: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in trace.record_batches(name):
        held.append(batch)
        rows += batch.num_rows
        size += batch.nbytes
        if rows >= PIECE_ROWS or size >= PIECE_BYTES:
            yield pa.Table.from_batches(held, schema)
            held, rows, size = [], 0, 0
    if rows:
        yield pa.Table.from_batches(held, schema)


def describe(schema: pa.Schema) -> list[dict[str, Any]]:
    """Each column's name, type, unit and description, and whether it may be null."""
    return [
        {
            "column": field.name,
            "type": "text" if pa.types.is_dictionary(field.type) else str(field.type),
            "unit": _said(field, "unit"),
            "null": field.nullable,
            "description": _said(field, "description"),
        }
        for field in schema
    ]


def _said(field: pa.Field, key: str) -> str:
    return str((field.metadata or {}).get(key.encode(), b"").decode(errors="replace"))
