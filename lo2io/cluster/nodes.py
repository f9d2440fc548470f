"""The tables of many nodes as one: rows of all nodes, with a column ``host``, and times by the clock of all.

In: a directory with folders ``host=NAME``, which stay as they are. Out: batches, or a data set of Arrow that DuckDB
reads.

Times are corrected as the archive's are, by :mod:`lo2io.trace.correction`. A data set cannot compute, so the numbers
that correct a host's times are constant columns of its rows, as Hive's partitions are: :meth:`Nodes.in_sql` uses them.
"""

from __future__ import annotations

import functools
import operator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from lo2io.cluster.clocks import align_traces, in_order, load_alignment
from lo2io.cluster.layout import CORRECTION_FILE, host_folders
from lo2io.errors import TraceError, UsageError
from lo2io.trace.correction import Correction, correction_of
from lo2io.trace.names import DIRECTORY, METADATA_FILE, table_file
from lo2io.trace.reader import TABLES, Trace, arrow_schema, open_trace
from lo2io.trace.selection.moments import parse_moment
from lo2io.trace.selection.selection import select

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from lo2io.cluster.alignment import Alignment

HOSTS: Final = "hosts"
"""The table that only many nodes have: a row for each."""


def _field(name: str, kind: pa.DataType, text: str, unit: str = "") -> pa.Field:
    return pa.field(name, kind, metadata={**({"unit": unit} if unit else {}), "description": text})


HOST: Final = _field("host", pa.utf8(), "node, as its folder is named")
_HOSTS_SCHEMA: Final = pa.schema(
    [
        HOST,
        _field("number", pa.int64(), "place among the nodes; null: left out"),
        _field("start_ns", pa.int64(), "start of its recording", "ns"),
        _field("stop_ns", pa.int64(), "its end", "ns"),
        _field("clock", pa.utf8(), "how its times were aligned with those of the first node"),
        _field("error_ns", pa.int64(), "its times are right within this; null: not known", "ns"),
        _field("boot_id", pa.utf8(), "of its kernel"),
        _field("version", pa.utf8(), "of lo2io, that converted"),
        _field("left_out", pa.utf8(), "why its trace is not there; null: it is"),
    ]
)
_MAX_NS: Final = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class Node:
    """The trace of a node, and how its times are corrected."""

    host: str
    trace: Trace
    alignment: Alignment
    correction: Correction

    @property
    def span(self) -> tuple[int, int]:
        """Begin and end by the clock of all nodes."""
        start, stop = self.trace.metadata["start_ns"], self.trace.metadata["stop_ns"]
        return self.correction.one(start), self.correction.one(stop)


@dataclass(frozen=True)
class Nodes:
    """The traces of many nodes, opened for reading as one.

    Attributes:
        path: The directory.
        nodes: The nodes in the order of the job, others after them by name.
        left_out: Host → why its trace is not there.
        metadata: ``start_ns`` and ``stop_ns`` of all nodes; else what the first node's metadata hold.
    """

    path: Path
    nodes: tuple[Node, ...]
    left_out: Mapping[str, str]
    metadata: Mapping[str, Any] = field(repr=False)

    def schema(self, name: str) -> pa.Schema:
        """The columns of a table, with units and descriptions in the fields' metadata."""
        if name == HOSTS:
            return _HOSTS_SCHEMA
        own = arrow_schema(name, self.metadata["clock"])
        return pa.schema([HOST, *(column.with_nullable(True) for column in own)], own.metadata)

    def rows(self, name: str) -> int:
        """The table's number of rows."""
        if name == HOSTS:
            return len(self.nodes) + len(self.left_out)
        return sum(node.trace.rows(name) for node in self.nodes)

    def record_batches(self, name: str, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        """A table as Arrow batches, node by node, in constant memory. Columns have the order of the schema."""
        wanted = pa.schema([each for each in self.schema(name) if columns is None or each.name in columns])
        if name == HOSTS:
            yield from self._hosts().select(wanted.names).to_batches()
            return
        for node in self.nodes:
            if name not in node.trace.metadata["tables"]:
                continue
            there = node.trace.schema(name).names
            for batch in node.trace.record_batches(name, [each for each in wanted.names if each in there]):
                yield _complete(node, name, batch, wanted)

    def table(self, name: str, columns: Sequence[str] | None = None) -> pa.Table:
        """A whole table in memory. For large ones prefer :meth:`dataset`."""
        wanted = pa.schema([each for each in self.schema(name) if columns is None or each.name in columns])
        return pa.Table.from_batches(self.record_batches(name, columns), wanted)

    def dataset(self, name: str) -> Any:
        """A table as a data set of Arrow, which lies on the disk: times as the hosts' clocks have them.

        Beside the table's columns it has the constants that :meth:`in_sql` uses.
        """
        import pyarrow.dataset as ds  # noqa: PLC0415 - few need it
        from pyarrow.fs import LocalFileSystem  # noqa: PLC0415

        from lo2io.cluster.scans import FewAhead  # noqa: PLC0415 - few need it

        form, disk = ds.IpcFileFormat(), LocalFileSystem()
        constants = pa.schema([column for number in range(self._bends) for column in _constants(number)])
        fragments = []
        for node in self.nodes:
            file = node.trace.path / DIRECTORY / table_file(name)
            if name in node.trace.metadata["tables"] and file.exists():
                values = {HOST.name: pa.scalar(node.host), **_values(node.correction, constants)}
                terms = [ds.field(column) == value for column, value in values.items()]
                fragments.append(form.make_fragment(str(file), disk, functools.reduce(operator.and_, terms)))
        return FewAhead(fragments, pa.schema([*self.schema(name), *constants]), form, disk)

    def in_sql(self, name: str, relation: str) -> str:
        """The query that turns the data set of :meth:`dataset` into the table. ``relation``: the data set's name."""
        columns = [f'"{column}"' for column in self.schema(name).names]  # some are words of SQL
        for number, column in enumerate(self.schema(name).names):
            if column in _times(name):
                columns[number] = f"{self._corrected(column)} as {column}"
        return f"select {', '.join(columns)} from {relation}"  # noqa: S608 - names of columns

    def _corrected(self, column: str) -> str:
        """The formula of :class:`~lo2io.trace.correction.Correction`, in SQL."""
        lines = [
            f"{column} + _offset{number} + round_even(_rise{number} * ({column} - _begin{number}), 0)::bigint"
            for number in range(self._bends)
        ]
        cases = [f"when {column} < _begin{number + 1} then {line}" for number, line in enumerate(lines[:-1])]
        return f"case {' '.join(cases)} else {lines[-1]} end" if cases else lines[-1]

    @functools.cached_property
    def _bends(self) -> int:
        """The most lines that a correction has."""
        return max([1, *(len(node.correction) - 1 for node in self.nodes)])

    def part(self, filters: Sequence[str] = (), *, begin: str | None = None, end: str | None = None) -> Nodes:
        """The part that matches all filters and belongs to a span: as :func:`~lo2io.trace.selection.selection.select`.

        The span is one of the clock of all. A node that did not record then is left out.

        Raises:
            UsageError: A filter or time cannot be read, or no node recorded in the span.
            TraceError: A table cannot be read.
        """
        if not filters and begin is None and end is None:
            return self
        first, last = (None if text is None else parse_moment(text, self.metadata) for text in (begin, end))
        nodes, left_out = [], dict(self.left_out)
        for node in self.nodes:
            start, stop = node.span
            if (first is not None and first >= stop) or (last is not None and last <= start):
                left_out[node.host] = "it recorded at another time"
                continue
            span = {"begin": _own(node, first), "end": _own(node, last)}
            nodes.append(replace(node, trace=select(node.trace, filters, **span)))
        if not nodes:
            asked = f"from {begin or 'its start'} until {end or 'its end'}"
            raise UsageError(f"take the part of the trace {asked}", "no node recorded then", "name another span")
        return replace(self, nodes=tuple(nodes), left_out=left_out)

    def _hosts(self) -> pa.Table:
        rows = [
            {
                "host": node.host,
                "number": number,
                "start_ns": node.span[0],
                "stop_ns": node.span[1],
                "clock": node.alignment.method,
                "error_ns": node.alignment.error_ns,
                "boot_id": node.trace.metadata.get("boot_id"),
                "version": node.trace.metadata.get("converted_by"),
            }
            for number, node in enumerate(self.nodes)
        ]
        rows += [{"host": host, "left_out": reason} for host, reason in self.left_out.items()]
        return pa.Table.from_pylist(rows, _HOSTS_SCHEMA)


def is_of_nodes(path: Path) -> bool:
    """True for the directory of a recording on many nodes."""
    return path.is_dir() and not (path / DIRECTORY / METADATA_FILE).exists() and bool(host_folders(path))


def has_tables(directory: Path) -> bool:
    """True if any node's tables are there."""
    return any((folder / DIRECTORY / METADATA_FILE).exists() for folder in host_folders(directory).values())


def open_nodes(directory: Path) -> Nodes:
    """Open the traces of all nodes. Nodes without a readable trace are left out.

    Where merging, or somebody else, wrote each node's ``clock.arrow``, these files correct the times. Else the clocks
    are aligned as merging would, and nothing is written.

    Raises:
        TraceError: There is no trace, or a comparison of clocks is damaged.
    """
    found, left_out = {}, {}
    for host, folder in host_folders(directory).items():
        try:
            found[host] = open_trace(folder)
        except TraceError as error:
            left_out[host] = str(error) if (folder / DIRECTORY / METADATA_FILE).exists() else "it has no trace"
    if not found:
        reasons = "; ".join(list(left_out.values())[:3])
        raise TraceError(f"cannot open {directory}", f"no host has a whole trace: {reasons}", "convert the spools")
    traces = in_order(found)
    if all((trace.path / DIRECTORY / CORRECTION_FILE).exists() for trace in traces.values()):
        alignments = [load_alignment(host, trace.path) for host, trace in traces.items()]
    else:
        alignments = align_traces(directory, traces)
    nodes = tuple(
        Node(host, trace, alignment, correction_of(alignment.points))
        for (host, trace), alignment in zip(traces.items(), alignments, strict=True)
    )
    spans = [node.span for node in nodes]
    ends = {"start_ns": min(start for start, _ in spans), "stop_ns": max(stop for _, stop in spans)}
    return Nodes(directory, nodes, left_out, {**nodes[0].trace.metadata, **ends})


def _times(name: str) -> set[str]:
    """The columns of a table that are times of the host's clock."""
    return {column.name for column in TABLES[name] if column.is_time}


def _constants(number: int) -> list[pa.Field]:
    """Columns for one line of a correction. The line ends where the next one begins."""
    return [
        pa.field(f"_begin{number}", pa.int64()),
        pa.field(f"_offset{number}", pa.int64()),
        pa.field(f"_rise{number}", pa.float64()),
    ]


def _values(correction: Correction, constants: pa.Schema) -> dict[str, pa.Scalar]:
    """The values of the constants. Lines that this correction does not have begin at the end of time."""
    times, offsets = (correction.time_ns, correction.offset_ns) if len(correction) else (np.zeros(2), np.zeros(2))
    values = {column.name: pa.scalar(0, column.type) for column in constants}
    values.update({name: pa.scalar(_MAX_NS) for name in values if name.startswith("_begin")})
    rises = (offsets[1:] - offsets[:-1]) / np.maximum(times[1:] - times[:-1], 1)
    for number, rise in enumerate(rises.tolist()):
        values[f"_begin{number}"] = pa.scalar(int(times[number]))
        values[f"_offset{number}"] = pa.scalar(int(offsets[number]))
        values[f"_rise{number}"] = pa.scalar(rise)
    return values


def _complete(node: Node, name: str, batch: pa.RecordBatch, wanted: pa.Schema) -> pa.RecordBatch:
    """The batch with all wanted columns: the host, corrected times, and null where an earlier lo2io wrote no column."""
    columns = []
    for column in wanted:
        if column.name == HOST.name:
            values = pa.repeat(node.host, batch.num_rows)
        elif column.name not in batch.schema.names:
            values = pa.nulls(batch.num_rows, column.type)
        else:
            values = batch.column(column.name)
            if column.name in _times(name):
                values = _correct(node.correction, values)
        columns.append(values)
    return pa.RecordBatch.from_arrays(columns, schema=wanted)


def _correct(correction: Correction, times: pa.Array) -> pa.Array:
    """Times by the clock of all; an unknown one stays unknown."""
    import pyarrow.compute as pc  # noqa: PLC0415 - 40 ms, and the trace of one node needs none of it

    own = pc.fill_null(times, 0).to_numpy(zero_copy_only=False)
    return pc.if_else(pc.is_valid(times), pa.array(correction.apply(own)), None)


def _own(node: Node, time_ns: int | None) -> str | None:
    """A moment of the clock of all, as the node's own clock has it and a selection reads it."""
    if time_ns is None:
        return None
    points = zip(node.correction.time_ns.tolist(), node.correction.offset_ns.tolist(), strict=True)
    back = correction_of([(time + offset, -offset) for time, offset in points])
    return f"@{max(0, back.one(time_ns))}"
