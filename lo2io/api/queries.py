"""SQL over the tables of a trace, or of the traces of many nodes, by DuckDB.

In: a trace or traces, as their reader has them. Out: relations of DuckDB. Tables of a whole trace are read from disk as
far as a query needs them, so a trace may be larger than memory. Of a part of a trace, the tables of a query are in
memory. Of a view of many nodes, one node's part is joined at a time.
"""

from __future__ import annotations

import contextlib
import re
from dataclasses import replace
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from lo2io.api.table import needed
from lo2io.cluster.nodes import HOSTS, Nodes
from lo2io.errors import UsageError
from lo2io.trace.names import DIRECTORY, table_file
from lo2io.trace.reader import TABLES
from lo2io.trace.selection.selection import Selection

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from lo2io.api.joined import Read
    from lo2io.cluster.nodes import Node
    from lo2io.trace.reader import Trace

_VIEW = re.compile(r"^-- (\w+): .*\n((?:(?!--).*\n?)+)", re.MULTILINE)
_WORD = re.compile(r"\w+")
_OF_NODES = re.compile(r"\{(.*?)\} ?")
"""Braces in a view enclose the words that only a trace of many nodes needs."""
_ON_DISK: Final = "_"
"""Before the name of a table of many nodes, as it lies on the disk."""


_BATCH_ROWS: Final = 20_000
"""Rows of a node's view that are in memory at a time."""


def read_views() -> dict[str, str]:
    """Name → SQL of each view, with ``$start`` for the trace's start, and in braces what only many nodes have."""
    text = (files("lo2io.api") / "views.sql").read_text(encoding="utf-8")
    return {match[1]: match[2].strip() for match in _VIEW.finditer(text)}


VIEWS: Final = read_views()


@contextlib.contextmanager
def answered() -> Iterator[None]:
    """DuckDB's errors inside, at a query or while its rows are read, become errors of lo2io.

    Raises:
        UsageError: In place of them.
    """
    duckdb = needed("duckdb")
    try:
        yield
    except duckdb.Error as error:
        raise UsageError("query the trace", str(error).strip(), "`lo2io query T` lists tables and views") from error
    except pa.ArrowInvalid as error:
        raise UsageError("write the rows", str(error).strip(), "choose other columns, or --to json") from error


class Queries:
    """A connection to DuckDB that knows a trace's tables and views."""

    def __init__(self, trace: Trace | Nodes) -> None:
        self._trace = trace
        self._connection = needed("duckdb").connect()
        self._there: set[str] = set()

    def sql(self, query: str) -> Any:
        """The relation of a query.

        Raises:
            UsageError: DuckDB cannot understand the query, or answer it.
            TraceError: A table is damaged.
        """
        self._provide(_WORD.findall(query))
        with answered():
            return self._connection.sql(query)

    def _provide(self, words: Iterable[str]) -> None:
        """Make the tables and views known that a query names. DuckDB ignores the case of names."""
        for word in {word.lower() for word in words} - self._there:
            if word in VIEWS and isinstance(self._trace, Nodes) and len(self._trace.nodes) > 1:
                self._connection.register(word, self._joined(word, self._trace))
            elif word in VIEWS:
                body = self._body(word)
                self._provide(_WORD.findall(body))
                self._connection.execute(f"create view {word} as {body}")
            elif word in TABLES or (word == HOSTS and isinstance(self._trace, Nodes)):
                self._register(word)
            else:
                continue
            self._there.add(word)

    def _joined(self, view: str, nodes: Nodes) -> Any:
        """The view of many nodes: that of each, one after the other."""
        from lo2io.api.joined import JoinedView  # noqa: PLC0415 - few need it

        def reading() -> Read:
            one = Queries(replace(nodes, nodes=nodes.nodes[:1]))
            one._connection.execute("set threads = 1")

            def read(node: Node, columns: Sequence[str]) -> pa.RecordBatchReader:
                one._turn_to(replace(nodes, nodes=(node,)))
                rows = one.sql(f"select {', '.join(columns) or 'null'} from {view}")  # noqa: S608 - names of columns
                fetch = getattr(rows, "to_arrow_reader", None) or rows.fetch_record_batch  # its name before DuckDB 1.5
                found: pa.RecordBatchReader = fetch(_BATCH_ROWS)
                return found

            return read

        with pa.RecordBatchReader.from_stream(
            Queries(replace(nodes, nodes=nodes.nodes[:1])).sql(f"from {view}")
        ) as rows:
            return JoinedView(nodes, rows.schema, reading)

    def _turn_to(self, nodes: Nodes) -> None:
        """Let the tables that are known be those of other nodes. The views stay."""
        self._trace = nodes
        for name in self._there - set(VIEWS):
            self._register(name)

    def _body(self, view: str) -> str:
        body = VIEWS[view].replace("$start", str(int(self._trace.metadata["start_ns"])))
        return _OF_NODES.sub(r"\1 " if isinstance(self._trace, Nodes) else "", body)

    def _register(self, name: str) -> None:
        trace = self._trace
        if not isinstance(trace, Nodes):
            self._connection.register(name, self._source(trace, name))
        elif name == HOSTS or any(isinstance(node.trace, Selection) for node in trace.nodes):
            self._connection.register(name, trace.table(name))
        else:
            self._connection.register(f"{_ON_DISK}{name}", trace.dataset(name))
            self._connection.execute(f"create or replace view {name} as {trace.in_sql(name, f'{_ON_DISK}{name}')}")

    @staticmethod
    def _source(trace: Trace, name: str) -> Any:
        file = trace.path / DIRECTORY / table_file(name)
        if isinstance(trace, Selection) or not file.exists():
            return trace.table(name)
        import pyarrow.dataset as ds  # noqa: PLC0415 - few need it

        return ds.dataset(file, format="ipc")
