"""A trace, or a part of one, as tables, sums and findings."""

from __future__ import annotations

import contextlib
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from lo2io.libraries import prepare_libraries

prepare_libraries()

import pyarrow as pa  # noqa: E402 - the line above chooses how NumPy and Arrow behave

from lo2io.api.queries import VIEWS, Queries  # noqa: E402
from lo2io.api.table import Table  # noqa: E402
from lo2io.otf2.foreign.opening import open_any  # noqa: E402
from lo2io.reports.summary.summary import summarize  # noqa: E402
from lo2io.trace.reader import TABLES  # noqa: E402
from lo2io.trace.selection.selection import select  # noqa: E402

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator, Mapping, Sequence

    from lo2io.model import Completeness
    from lo2io.reports.findings.finding import Finding
    from lo2io.reports.summary.summary import Summary
    from lo2io.trace.reader import Trace as TraceReader


class Trace:
    """A trace, opened for reading. Its tables and views are attributes: ``trace.operations``, ``trace.calls``.

    As a context manager it is closed at the end: another tool's archive has temporary tables, which closing removes.

    Attributes:
        path: The directory.
        metadata: What ``lo2io/metadata.json`` holds; docs/reference/tables.md names the keys.
    """

    def __init__(self, reader: TraceReader, closing: contextlib.ExitStack | None = None) -> None:
        self._reader = reader
        self._closing = closing or contextlib.ExitStack()
        self.path: Path = reader.path
        self.metadata: Mapping[str, Any] = reader.metadata

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Remove temporary tables. A second call does nothing."""
        self._closing.close()

    def __repr__(self) -> str:
        """Its place and command."""
        return f"<lo2io trace {self.path}: {' '.join(self.metadata.get('command', ())) or self.metadata['mode']}>"

    @property
    def tables(self) -> tuple[str, ...]:
        """The names of all tables and views."""
        return (*TABLES, *VIEWS)

    def __dir__(self) -> list[str]:
        """Attributes, tables and views, for completion."""
        return [*super().__dir__(), *self.tables]

    def __getattr__(self, name: str) -> Table:
        """A table or view.

        Raises:
            AttributeError: There is none of this name.
            UsageError: A view needs DuckDB.
        """
        if name in TABLES:
            reader = self._reader
            return Table(
                name, reader.schema(name), lambda: reader.rows(name), lambda some: reader.record_batches(name, some)
            )
        if name in VIEWS:
            return self._view(name)
        raise AttributeError(f"a trace has no {name!r}; its tables and views are {', '.join(self.tables)}")

    def _view(self, name: str) -> Table:
        def read(chosen: str) -> pa.RecordBatchReader:
            sql = f"select {chosen} from {name}"  # noqa: S608 - names of VIEWS and of their columns
            return pa.RecordBatchReader.from_stream(self.query(sql))

        def batches(columns: Sequence[str] | None) -> Iterator[pa.RecordBatch]:
            yield from read("*" if columns is None else ", ".join(columns))

        def rows() -> int:
            return int(self.query(f"select count(*) from {name}").fetchall()[0][0])  # noqa: S608 - as above

        with read("*") as reader:
            return Table(name, reader.schema, rows, batches)

    def query(self, sql: str) -> Any:
        """The relation of a query over tables and views: ``.show()``, ``.df()``, ``.pl()``, ``.arrow()``. Needs DuckDB.

        Raises:
            UsageError: DuckDB is not installed, or cannot answer.
            TraceError: A table is damaged.
        """
        return self._queries.sql(sql)

    @cached_property
    def _queries(self) -> Queries:
        return Queries(self._reader)

    # ---- parts ----

    def filter(self, *expressions: str) -> Trace:
        """The part that matches all expressions, as ``--filter`` has them: ``"latency > 10ms"``.

        Raises:
            UsageError: An expression cannot be understood.
            TraceError: A table is damaged.
        """
        return Trace(select(self._reader, expressions))

    def between(self, begin: str | None = None, end: str | None = None) -> Trace:
        """The part in a span of time, as ``--from`` and ``--until`` have it: ``"2.5s"`` from the begin, ``"-1s"``.

        Raises:
            UsageError: A moment cannot be understood, or the span lies outside of the trace.
            TraceError: A table is damaged.
        """
        return Trace(select(self._reader, begin=begin, end=end))

    # ---- results ----

    def summary(self) -> Summary:
        """The numbers of ``lo2io report``.

        Raises:
            TraceError: A table is damaged.
        """
        return self._summary

    @cached_property
    def _summary(self) -> Summary:
        return summarize(self._reader)

    def findings(self) -> tuple[Finding, ...]:
        """What ``lo2io report`` found, the most expensive first. Errors are those of :meth:`summary`."""
        return self._summary.findings

    @property
    def proof(self) -> Completeness:
        """How complete the recording is: what the kernel counted, and what was read."""
        return self._reader.completeness


def open_trace(path: str | os.PathLike[str]) -> Trace:
    """Open a trace of lo2io, or any other OTF2 archive: a directory, or its ``.otf2`` file.

    Raises:
        TraceError: The path is neither of them, or the trace is damaged.
    """
    with contextlib.ExitStack() as closing:
        reader = closing.enter_context(open_any(Path(path)))
        return Trace(reader, closing.pop_all())
