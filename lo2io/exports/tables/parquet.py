"""Tables as Parquet: one file for each table, with units and descriptions of its columns.

Names, types and nulls are those of the tables beside the trace. Arrow's readers return each field's metadata (``unit``,
``description``). For other readers, the file's key ``lo2io.columns`` has the same as JSON.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.parquet as pq

from lo2io.exports.tables.tabular import choose_tables, describe, export_schema, export_tables

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from lo2io.exports.target import ExportSummary, Progress
    from lo2io.trace.reader import Trace

COLUMNS_KEY: Final = "lo2io.columns"
_FACTS: Final = ("hostname", "kernel", "command", "mode", "start_ns", "stop_ns", "syncs", "filter", "selection")
"""Keys of the trace's metadata that each file holds, so that a file by itself tells its origin."""


def export(
    trace: Trace, target: Path, progress: Progress, *, tables: str = "", compression: str = "zstd"
) -> ExportSummary:
    """Write ``TABLE.parquet`` for each table, and ``metadata.json``.

    Args:
        trace: The trace to write.
        target: An empty folder.
        progress: Called with the finished share.
        tables: Names separated by colons; empty: all.
        compression: ``zstd``, ``snappy`` or ``none``.

    Raises:
        UsageError: There is no such table.
        TraceError: A table cannot be read.
    """

    def write(trace: Trace, name: str, pieces: Iterator[pa.Table]) -> None:
        schema = _with_facts(trace, export_schema(trace, name))
        coded = [field.name for field in schema if pa.types.is_dictionary(field.type) or pa.types.is_string(field.type)]
        with pq.ParquetWriter(
            target / f"{name}.parquet", schema, compression=compression, use_dictionary=coded
        ) as writer:
            for piece in pieces:
                writer.write_table(piece.replace_schema_metadata(schema.metadata))

    return export_tables(trace, target, progress, choose_tables(tables), write)


def _with_facts(trace: Trace, schema: pa.Schema) -> pa.Schema:
    facts = {f"lo2io.{key}": json.dumps(trace.metadata.get(key)) for key in _FACTS}
    return schema.with_metadata({**(schema.metadata or {}), **facts, COLUMNS_KEY: json.dumps(describe(schema))})
