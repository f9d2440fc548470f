"""A view of many nodes, as DuckDB reads it: the view of each node, one node after the other.

Rows of different nodes never join. So memory has the hash tables of one node at a time, however many nodes there are.

In: the nodes, and a function that reads the view of one of them. Out: a data set for DuckDB. DuckDB asks it for columns
and hands over a condition; it takes the rows as a stream.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.dataset as ds
from pyarrow.fs import LocalFileSystem

from lo2io.cluster.nodes import HOST

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from lo2io.cluster.nodes import Node, Nodes

    Read = Callable[[Node, Sequence[str]], pa.RecordBatchReader]

_WORD = re.compile(r"\w+")


class JoinedView(ds.InMemoryDataset):  # type: ignore[misc]  # Arrow has no types
    """The rows of a view of all nodes.

    Args:
        nodes: The nodes.
        schema: The columns of the view.
        reading: Makes, for each scan, a function that reads columns of the view of one node.
    """

    def __init__(self, nodes: Nodes, schema: pa.Schema, reading: Callable[[], Read]) -> None:
        super().__init__(schema.empty_table())
        self._nodes = nodes
        self._reading = reading
        form, disk = ds.IpcFileFormat(), LocalFileSystem()
        hosts = [form.make_fragment(node.host, disk, ds.field(HOST.name) == node.host) for node in nodes.nodes]
        self._hosts = ds.FileSystemDataset(hosts, schema, form, disk)

    def scanner(self, columns: Sequence[str] | None = None, filter: Any = None, **_: Any) -> _Scan:  # noqa: A002 - Arrow's name
        """What DuckDB calls: the rows that match a condition, with these columns."""
        chosen = self.schema.names if columns is None else list(columns)
        return _Scan(pa.schema([self.schema.field(name) for name in chosen]), self._batches(chosen, filter))

    def _batches(self, columns: Sequence[str], condition: Any) -> Iterator[pa.RecordBatch]:
        hosts = {fragment.path for fragment in self._hosts.get_fragments(condition)}
        words = set() if condition is None else set(_WORD.findall(str(condition)))
        needed = [name for name in self.schema.names if name in columns or name in words]
        read = self._reading()
        for node in self._nodes.nodes:
            if node.host not in hosts:
                continue
            for batch in read(node, needed):
                yield (batch if condition is None else batch.filter(condition)).select(list(columns))


class _Scan:
    """A scan of the view: what DuckDB takes in place of Arrow's scanner, which reads ahead."""

    def __init__(self, schema: pa.Schema, batches: Iterator[pa.RecordBatch]) -> None:
        self._schema = schema
        self._batches = batches

    def to_reader(self) -> pa.RecordBatchReader:
        return pa.RecordBatchReader.from_batches(self._schema, self._batches)
