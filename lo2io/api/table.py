"""A table of a trace, which nobody reads before its rows are wanted.

In: a function that makes Arrow batches, and one that makes a relation of DuckDB. Out: tables of Arrow, pandas and
Polars, and that relation.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lo2io.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    Batches = Callable[[Sequence[str] | None], Iterator[pa.RecordBatch]]


class Table:
    """A table. Times are in ns on the trace's clock, sizes in bytes; null is unknown.

    Attributes:
        name: Its name, as in docs/reference/tables.md, or that of a view.
        schema: Arrow's schema. The fields' metadata have ``unit`` and ``description``.
    """

    def __init__(
        self, name: str, schema: pa.Schema, rows: Callable[[], int], batches: Batches, relation: Callable[[], Any]
    ) -> None:
        self.name = name
        self.schema = schema
        self._rows = rows
        self._batches = batches
        self._relation = relation

    @property
    def columns(self) -> list[str]:
        """The names of its columns."""
        return list(self.schema.names)

    def __len__(self) -> int:
        """Its number of rows."""
        return self._rows()

    def __repr__(self) -> str:
        """Name, size and columns."""
        return f"<lo2io table {self.name}: {len(self)} rows of {', '.join(self.columns)}>"

    def batches(self, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        """The rows as Arrow batches, in constant memory.

        Args:
            columns: The wanted columns, which keep the table's order; None: all.

        Raises:
            UsageError: The table has no such column.
            TraceError: The table is damaged.
        """
        for column in columns or ():
            if column not in self.schema.names:
                known = ", ".join(self.columns)
                raise UsageError(f"read {column!r} of {self.name}", "no such column", f"one of {known}")
        return self._batches(None if columns is None else [name for name in self.columns if name in columns])

    def to_arrow(self, columns: Sequence[str] | None = None) -> pa.Table:
        """The whole table in memory. Arguments and errors are those of :meth:`batches`."""
        chosen = [field for field in self.schema if columns is None or field.name in columns]
        return pa.Table.from_batches(self.batches(columns), pa.schema(chosen))

    def to_pandas(self, columns: Sequence[str] | None = None) -> Any:
        """A ``pandas.DataFrame`` with Arrow's types, whose integers know null. Needs pandas."""
        pandas = needed("pandas")
        return self.to_arrow(columns).to_pandas(types_mapper=pandas.ArrowDtype)

    def to_polars(self, columns: Sequence[str] | None = None) -> Any:
        """A ``polars.DataFrame``. Needs Polars."""
        return needed("polars").from_arrow(self.to_arrow(columns))

    def duckdb(self) -> Any:
        """A ``duckdb.DuckDBPyRelation``, which reads the rows when it is asked for them. Needs DuckDB.

        Raises:
            UsageError: DuckDB is not installed.
            TraceError: The table is damaged.
        """
        return self._relation()


def needed(package: str) -> Any:
    """A package that lo2io can do without.

    Raises:
        UsageError: It is not installed.
    """
    import importlib  # noqa: PLC0415 - few need it

    try:
        return importlib.import_module(package)
    except ImportError as error:
        raise UsageError(f"import {package}", str(error), f"pip install {package}") from error
