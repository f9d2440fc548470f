"""SQL over the tables of a trace, by DuckDB.

In: a trace, as its reader has it. Out: relations of DuckDB. Tables of a whole trace are read from disk as far as a
query needs them, so a trace may be larger than memory. Of a part of a trace, the tables of a query are in memory.
"""

from __future__ import annotations

import contextlib
import re
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from lo2io.api.table import needed
from lo2io.errors import UsageError
from lo2io.trace.names import DIRECTORY, table_file
from lo2io.trace.reader import TABLES
from lo2io.trace.selection.selection import Selection

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from lo2io.trace.reader import Trace

_VIEW = re.compile(r"^-- (\w+): .*\n((?:(?!--).*\n?)+)", re.MULTILINE)
_WORD = re.compile(r"\w+")


def read_views() -> dict[str, str]:
    """Name → SQL of each view, with ``$start`` for the trace's begin."""
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

    def __init__(self, trace: Trace) -> None:
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
            if word in VIEWS:
                body = VIEWS[word].replace("$start", str(int(self._trace.metadata["start_ns"])))
                self._provide(_WORD.findall(body))
                self._connection.execute(f"create view {word} as {body}")
                self._there.add(word)
            elif word in TABLES:
                self._connection.register(word, self._source(word))
                self._there.add(word)

    def _source(self, name: str) -> Any:
        file = self._trace.path / DIRECTORY / table_file(name)
        if isinstance(self._trace, Selection) or not file.exists():
            return self._trace.table(name)
        import pyarrow.dataset as ds  # noqa: PLC0415 - few need it

        return ds.dataset(file, format="ipc")
