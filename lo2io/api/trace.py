"""A trace, or a part of one, as tables, sums and findings. The traces of many nodes have tables together."""

from __future__ import annotations

import contextlib
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import pyarrow as pa

from lo2io.api.queries import VIEWS, Queries
from lo2io.api.table import Table
from lo2io.cluster.nodes import HOSTS, Nodes, has_tables, is_of_nodes, open_nodes
from lo2io.errors import UsageError
from lo2io.otf2.foreign.opening import open_any
from lo2io.reports.summary.summary import summarize
from lo2io.trace.names import ANCHOR
from lo2io.trace.reader import TABLES
from lo2io.trace.selection.selection import select

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from lo2io.model import Completeness
    from lo2io.reports.findings.finding import Finding
    from lo2io.reports.nodes.summary import NodesSummary
    from lo2io.reports.summary.summary import Summary
    from lo2io.trace.reader import Trace as TraceReader

    Moment = str | float


class Trace:
    """A trace, opened for reading. Its tables and views are attributes: ``trace.operations``, ``trace.calls``.

    Tables of many nodes have a column ``host``, and times by the clock of the first node.

    As a context manager it is closed at the end: another tool's archive has temporary tables, which closing removes.

    Attributes:
        path: The directory.
        metadata: What ``lo2io/metadata.json`` holds; docs/reference/tables.md names the keys. Of many nodes: that of
            the first node, with start and end of all.
    """

    def __init__(self, reader: TraceReader | Nodes, closing: contextlib.ExitStack | None = None) -> None:
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
        return (*((HOSTS,) if isinstance(self._reader, Nodes) else ()), *TABLES, *VIEWS)

    def __dir__(self) -> list[str]:
        """Attributes, tables and views, for completion."""
        return [*super().__dir__(), *self.tables]

    def __getattr__(self, name: str) -> Table:
        """A table or view.

        Raises:
            AttributeError: There is none of this name.
            UsageError: A view needs DuckDB.
        """
        if name in self.tables and name not in VIEWS:
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
        if hasattr(type(self), name):  # Python also calls this after an AttributeError inside a property
            return object.__getattribute__(self, name)  # type: ignore[no-any-return]
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
            begin: A number: seconds after the trace's start; before its end, if negative. A text: ``"2.5s"``,
                ``"-1s"``, ``"@NS"`` as in the tables, or a date and time of day. None: the trace's start.
            end: The same, of the first moment after the part. None: the trace's end.

        Raises:
            UsageError: A moment cannot be understood, or the span lies outside of the trace.
            TraceError: A table is damaged.
        """
        return self.part(begin=begin, end=end)

    def part(self, filters: Sequence[str] = (), *, begin: Moment | None = None, end: Moment | None = None) -> Trace:
        """The part that :meth:`filter` and :meth:`between` leave, chosen at once. Their errors are this one's."""
        span = {"begin": _text(begin), "end": _text(end)}
        if isinstance(self._reader, Nodes):
            return Trace(self._reader.part(filters, **span), self._closing)
        return Trace(select(self._reader, filters, **span), self._closing)

    def host(self, name: str) -> Trace:
        """The trace of one of many nodes, or the part of it that belongs to this one. Its times are the node's own.

        Raises:
            UsageError: There is no such node.
        """
        nodes = self._reader.nodes if isinstance(self._reader, Nodes) else ()
        found = [node.trace for node in nodes if node.host == name]
        if not found:
            raise UsageError(f"read the host {name!r}", "the trace has no such host", "the table hosts names them")
        return Trace(found[0], self._closing)

    # ---- results ----

    def summary(self) -> Summary:
        """The numbers of ``lo2io report``.

        Raises:
            TraceError: A table is damaged.
        """
        return self._summary

    @cached_property
    def _summary(self) -> Summary:
        return summarize(self._one)

    @property
    def _one(self) -> TraceReader:
        """The trace, if it is of one machine.

        Raises:
            UsageError: It is of many nodes.
        """
        if isinstance(self._reader, Nodes):
            hosts = ", ".join(node.host for node in self._reader.nodes[:3])
            remedy = "choose one: T/host=NAME, or trace.host(NAME)"
            raise UsageError(f"report about {self.path} as of one machine", f"it has many hosts: {hosts} …", remedy)
        return self._reader

    @property
    def has_hosts(self) -> bool:
        """True for the traces of many nodes."""
        return isinstance(self._reader, Nodes)

    def hosts_summary(self) -> NodesSummary:
        """The numbers of ``lo2io report`` about many nodes.

        Raises:
            UsageError: The trace is of one machine.
            TraceError: A table is damaged.
        """
        from lo2io.cluster.sums import summarize_nodes  # noqa: PLC0415 - few need it

        if not isinstance(self._reader, Nodes):
            raise UsageError(f"report about the hosts of {self.path}", "it is of one machine", "use trace.summary()")
        return summarize_nodes(self._reader)

    def findings(self) -> tuple[Finding, ...]:
        """What ``lo2io report`` found, the most expensive first. Errors are those of :meth:`summary`."""
        return self._summary.findings

    @property
    def proof(self) -> Completeness:
        """How complete the recording is: what the kernel counted, and what was read."""
        return self._one.completeness

    def html(self, progress: Callable[[float], None] = lambda _: None) -> str:
        """The page of ``lo2io report --html``: one file, some 1 MB, which loads nothing.

        The page of many nodes has tables alone.

        Args:
            progress: Called now and then with the share that is done, from 0 to 1.

        Raises:
            TraceError: A table is damaged.
        """
        if self.has_hosts:
            from lo2io.reports.html.nodes_page import render_nodes_html  # noqa: PLC0415 - few need it

            page = render_nodes_html(self.hosts_summary())
            progress(1.0)
            return page
        from lo2io.reports.html.page import make_page  # noqa: PLC0415 - few need it

        return make_page(self._one, progress)


def _text(moment: Moment | None) -> str | None:
    """A moment as the command line has it."""
    return moment if moment is None or isinstance(moment, str) else f"{moment:.9f}s"


def open_trace(path: str | os.PathLike[str]) -> Trace:
    """Open a trace of lo2io, or any other OTF2 archive: a directory, or its ``.otf2`` file.

    The directory of a recording on many nodes, or the merged archive in it, has the tables of all nodes. Without them,
    the merged archive is read.

    Raises:
        TraceError: The path is neither of them, or the trace is damaged.
    """
    directory = Path(path).parent if Path(path).name == ANCHOR else Path(path)
    if is_of_nodes(directory) and (has_tables(directory) or not (directory / ANCHOR).exists()):
        return Trace(open_nodes(directory))
    with contextlib.ExitStack() as closing:
        reader = closing.enter_context(open_any(Path(path)))
        return Trace(reader, closing.pop_all())
