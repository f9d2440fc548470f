"""A trace, or a part of one, as tables, sums and findings."""

from __future__ import annotations

import contextlib
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import pyarrow as pa

from lo2io.api.queries import VIEWS, Queries
from lo2io.api.table import Table
from lo2io.otf2.foreign.opening import open_any
from lo2io.reports.summary.summary import summarize
from lo2io.trace.reader import TABLES
from lo2io.trace.selection.selection import select

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from lo2io.model import Completeness
    from lo2io.reports.findings.finding import Finding
    from lo2io.reports.summary.summary import Summary
    from lo2io.trace.reader import Trace as TraceReader

    Moment = str | float


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
                name,
                reader.schema(name),
                lambda: reader.rows(name),
                lambda some: reader.record_batches(name, some),
                lambda: self._relation(name),
            )
        if name in VIEWS:
            return self._view(name)
        raise AttributeError(f"a trace has no {name!r}; its tables and views are {', '.join(self.tables)}")

    def _view(self, name: str) -> Table:
        def read(columns: Sequence[str] | None) -> pa.RecordBatchReader:
            chosen = "*" if columns is None else ", ".join(columns)
            return pa.RecordBatchReader.from_stream(self._relation(name, chosen))

        def batches(columns: Sequence[str] | None) -> Iterator[pa.RecordBatch]:
            yield from read(columns)

        def rows() -> int:
            return int(self._relation(name, "count(*)").fetchall()[0][0])

        with read(None) as reader:
            return Table(name, reader.schema, rows, batches, lambda: self._relation(name))

    def _relation(self, name: str, chosen: str = "*") -> Any:
        return self.query(f"select {chosen} from {name}")  # noqa: S608 - names of tables, views and their columns

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
        return self.part(expressions)

    def between(self, begin: Moment | None = None, end: Moment | None = None) -> Trace:
        """The part in a span of time, as ``--from`` and ``--until`` have it.

        Args:
            begin: A number: seconds after the trace's begin; before its end, if negative. A text: ``"2.5s"``,
                ``"-1s"``, ``"@NS"`` as in the tables, or a date and time of day. None: the trace's begin.
            end: The same, of the first moment after the part. None: the trace's end.

        Raises:
            UsageError: A moment cannot be understood, or the span lies outside of the trace.
            TraceError: A table is damaged.
        """
        return self.part(begin=begin, end=end)

    def part(self, filters: Sequence[str] = (), *, begin: Moment | None = None, end: Moment | None = None) -> Trace:
        """The part that :meth:`filter` and :meth:`between` leave, chosen at once. Their errors are this one's."""
        return Trace(select(self._reader, filters, begin=_text(begin), end=_text(end)), self._closing)

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

    def html(self, progress: Callable[[float], None] = lambda _: None) -> str:
        """The page of ``lo2io report --html``: one file, some 2 MB, which loads nothing.

        Args:
            progress: Called now and then with the share that is done, from 0 to 1.

        Raises:
            TraceError: A table is damaged.
        """
        from lo2io.reports.html.page import make_page  # noqa: PLC0415 - few need it

        return make_page(self._reader, progress)


def _text(moment: Moment | None) -> str | None:
    """A moment as the command line has it."""
    return moment if moment is None or isinstance(moment, str) else f"{moment:.9f}s"


def open_trace(path: str | os.PathLike[str]) -> Trace:
    """Open a trace of lo2io, or any other OTF2 archive: a directory, or its ``.otf2`` file.

    Raises:
        TraceError: The path is neither of them, or the trace is damaged.
    """
    with contextlib.ExitStack() as closing:
        reader = closing.enter_context(open_any(Path(path)))
        return Trace(reader, closing.pop_all())
