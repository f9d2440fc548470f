"""The tables beside the trace: their schema, and the reader of ``T/lo2io/``.

In: a trace directory. Out: Arrow tables, or NumPy columns batch by batch. ``lo2io/native/api/columns.h`` says what the
columns mean. ``docs/reference/tables.md`` says the same for readers in other languages.

Under a null lies the engine's own value for unknown, ``INT64_MIN``, ``UINT32_MAX``, -1 or 0. So NumPy can take a column
as it is. The reader takes only files that lo2io wrote. A trace of an earlier version may lack tables and columns: a
missing table reads as one without rows, and a missing column that may hold nulls reads as all nulls.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from lo2io.catalog.catalog import load_catalog
from lo2io.errors import TraceError
from lo2io.folder import check_regular, read_regular
from lo2io.model import CallClass, Columns, Completeness, EventCompleteness
from lo2io.spool.format import MAX_TIME_NS
from lo2io.trace.columns import (
    CALL_STACKS,
    CLOCK_READINGS,
    COMMITS,
    COMPLETENESS,
    DEVICES,
    EVICTIONS,
    FAULTS,
    FILES,
    FILLS,
    FUSE_REQUESTS,
    FUTEXES,
    HANDLES,
    KERNEL_STACKS,
    LOSSES,
    OFF_CPU,
    OPERATIONS,
    PATHS,
    REQUEST_OPERATION,
    REQUEST_PARTS,
    REQUESTS,
    STACKS,
    THREADS,
    WRITE_BACKS,
    Column,
)
from lo2io.trace.names import ANCHOR, DIRECTORY, METADATA_FILE, table_file
from lo2io.trace.ring_columns import BATCHES, IOCBS, RING_REQUESTS, RING_STATES, RING_WORKS, RINGS

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from lo2io.model import CallSpec

__all__ = [
    "FORMAT",
    "OPERATIONS",
    "REQUEST_OPERATION",
    "SCHEMA_VERSION",
    "TABLES",
    "Column",
    "Trace",
    "arrow_schema",
    "as_numpy",
    "call_traits",
    "open_trace",
]

FORMAT: Final = "lo2io-tables"
SCHEMA_VERSION: Final = 1
"""Grows when a column or key changes its name or meaning. New columns, keys and tables do not count."""

MAX_METADATA_BYTES: Final = 256 << 20
"""The largest ``metadata.json`` that is read."""
_KINDS: Final[Mapping[str, type]] = {
    **dict.fromkeys(("mode", "machine", "clock", "hostname", "kernel", "filter"), str),
    **dict.fromkeys(("calls", "opcodes", "devices", "mounts", "syncs", "roots", "command"), list),
    **dict.fromkeys(("tables", "completeness"), dict),
    "sample_rate": int,
}
EARLIEST_BEGIN, LATEST_END = "earliest_begin_ns", "latest_end_ns"
"""Keys of the metadata that each batch of operations has: decimal numbers. Earlier versions wrote none."""
_NARROW: Final = "closes"
"""The column of operations that takes least time to read."""
NUMBERS_FREE: Final = 1 << 24
"""Arrays that find rows are as long as the highest number of a row. A damaged table must not ask for memory without
bound. So each number is below this bound, plus one for each byte on disk of the trace's tables."""
_THREADS: Final = {"task", "worker", "waker", "holder", "poller", "process", "parent_process"}
ROW_NUMBERS: Final = _THREADS | {"handle", "handle2", "parent", "description", "file", "ring", "stack"}
"""Columns with numbers of rows."""
_CLASSES: Final = tuple(each.name.lower() for each in CallClass)
_LISTS_OF_OBJECTS: Final = ("calls", "opcodes", "devices", "mounts", "syncs")

TABLES: Final[Mapping[str, tuple[Column, ...]]] = {
    "operations": OPERATIONS,
    "handles": HANDLES,
    "files": FILES,
    "paths": PATHS,
    "threads": THREADS,
    "requests": REQUESTS,
    "ring_requests": RING_REQUESTS,
    "ring_works": RING_WORKS,
    "ring_states": RING_STATES,
    "batches": BATCHES,
    "iocbs": IOCBS,
    "rings": RINGS,
    "off_cpu": OFF_CPU,
    "request_parts": REQUEST_PARTS,
    "write_backs": WRITE_BACKS,
    "commits": COMMITS,
    "faults": FAULTS,
    "fuse_requests": FUSE_REQUESTS,
    "call_stacks": CALL_STACKS,
    "futexes": FUTEXES,
    "stacks": STACKS,
    "fills": FILLS,
    "evictions": EVICTIONS,
    "kernel_stacks": KERNEL_STACKS,
    "losses": LOSSES,
    "devices": DEVICES,
    "completeness": COMPLETENESS,
    "clock_readings": CLOCK_READINGS,
}


def arrow_schema(table: str, clock: str) -> pa.Schema:
    """The table's schema, with the units and the clock in its metadata."""
    fields = [
        pa.field(column.name, column.arrow_type, nullable=column.nullable, metadata=_field_metadata(column))
        for column in TABLES[table]
    ]
    return pa.schema(fields, {"format": FORMAT, "schema_version": str(SCHEMA_VERSION), "table": table, "clock": clock})


def _field_metadata(column: Column) -> dict[str, str]:
    unit = {"unit": column.unit} if column.unit else {}
    return {**unit, "description": column.text}


@dataclass(frozen=True)
class Trace:
    """A trace directory, opened for reading. A table's file is opened when the table is read."""

    path: Path
    metadata: Mapping[str, Any] = field(repr=False)

    def schema(self, name: str) -> pa.Schema:
        """The columns that a table of this trace has, with units and descriptions in the fields' metadata."""
        with self._open(name, None) as reader:
            return reader.schema

    def record_batches(self, name: str, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        """A table as Arrow batches, in constant memory. Columns have the order of the file."""
        with self._open(name, columns) as reader:
            for index in range(reader.num_record_batches):
                yield self._read(name, reader, index)

    def table(self, name: str, columns: Sequence[str] | None = None) -> pa.Table:
        """A whole table, decompressed in memory. For long traces prefer :meth:`batches`."""
        with self._open(name, columns) as reader:
            schema = reader.schema
        return pa.Table.from_batches(self.record_batches(name, columns), schema)

    def batches(self, name: str, columns: Sequence[str]) -> Iterator[Columns]:
        """Columns of a table, batch by batch, in constant memory.

        Args:
            name: One of ``TABLES``.
            columns: Columns of numbers only. Codes come as signed integers, bits as bool.

        Yields:
            Arrays. Unknown values are those of ``columns.h`` (INT64_MIN, UINT32_MAX).
        """
        lacking = self._lacking(name, columns)
        for batch in self.record_batches(name, [column for column in columns if column not in lacking]):
            yield _with_unknown(batch, columns, lacking)

    def batches_at(self, name: str, columns: Sequence[str], numbers: Iterable[int]) -> Iterator[Columns]:
        """As :meth:`batches`, but only the batches of the file that have these numbers. A selection has others."""
        lacking = self._lacking(name, columns)
        with self._open(name, [column for column in columns if column not in lacking]) as reader:
            for index in numbers:
                yield _with_unknown(self._read(name, reader, index), columns, lacking)

    def operation_bounds(self) -> list[tuple[int, int]] | None:
        """Earliest start and latest end of each batch of the file of operations, in ns, as the file tells them.

        A selection has other batches. None: an earlier version wrote the file, which does not tell.

        Raises:
            TraceError: The table is missing or damaged.
        """
        with self._open("operations", [_NARROW]) as reader:
            try:
                told = [reader.get_batch_with_custom_metadata(i)[1] for i in range(reader.num_record_batches)]
                bounds = [(int(each[EARLIEST_BEGIN]), int(each[LATEST_END])) for each in told if each]
                np.array(bounds, np.int64)  # more than 64 bits overflow
            except (OSError, ValueError, OverflowError, KeyError, pa.ArrowException) as error:
                raise _unreadable(self.path / DIRECTORY / table_file("operations"), error) from error
        return bounds if len(bounds) == len(told) else None

    def text_batches(self, name: str, columns: Sequence[str]) -> Iterator[list[list[Any]]]:
        """Columns of any kind, batch by batch, as Python values; None: unknown. The table must have all the columns."""
        for batch in self.record_batches(name, columns):
            yield [batch.column(column).to_pylist() for column in columns]

    def column(self, name: str, column: str) -> NDArray[Any]:
        """One whole column of numbers. Unknown values are those of ``columns.h``."""
        parts = [batch[column] for batch in self.batches(name, [column])]
        return np.concatenate(parts) if parts else np.zeros(0, np.int64)

    def texts(self, name: str, key: str, column: str, wanted: Collection[int]) -> dict[int, str | None]:
        """The texts of a few rows, chosen by the value of their ``key`` column, in constant memory."""
        found: dict[int, str | None] = {}
        keys = np.fromiter(wanted, np.int64, len(wanted))
        for batch in self.record_batches(name, [key, column]) if len(keys) else ():
            numbers, values = as_numpy(batch.column(key)), batch.column(column)
            for row in np.flatnonzero(np.isin(numbers, keys)).tolist():
                found[int(numbers[row])] = values[row].as_py()
        return found

    def rows(self, name: str) -> int:
        """The table's number of rows, from the metadata."""
        return int(self.metadata["tables"].get(name, {"rows": 0})["rows"])

    @cached_property
    def operations(self) -> pa.Table:
        """One row per system call."""
        return self.table("operations")

    @cached_property
    def handles(self) -> pa.Table:
        """One row per file descriptor's life."""
        return self.table("handles")

    @cached_property
    def files(self) -> pa.Table:
        """One row per named file."""
        return self.table("files")

    @cached_property
    def threads(self) -> pa.Table:
        """One row per thread."""
        return self.table("threads")

    @cached_property
    def requests(self) -> pa.Table:
        """One row per block request."""
        return self.table("requests")

    @cached_property
    def losses(self) -> pa.Table:
        """One row per gap the kernel reported."""
        return self.table("losses")

    @cached_property
    def devices(self) -> pa.Table:
        """One row per disk or partition of the machine."""
        return self.table("devices")

    @cached_property
    def completeness(self) -> Completeness:
        """The counters lost, late, orphan and in flight, and their proof."""
        names = [column.name for column in COMPLETENESS if column.name != "vanished"]
        rows = self.table("completeness", names).to_pylist()
        events = tuple(EventCompleteness(**row) for row in rows)
        try:
            return Completeness(**self.metadata["completeness"], events=events)
        except TypeError as error:  # a member is missing, or nobody knows it
            answer = f"'completeness': {error}"
            raise TraceError(f"read the trace's {METADATA_FILE}", answer, "convert the spool again") from error

    @cached_property
    def ring_requests(self) -> pa.Table:
        """One row per request of io_uring."""
        return self.table("ring_requests")

    @cached_property
    def rings(self) -> pa.Table:
        """One row per ring: an instance of io_uring or a context of libaio."""
        return self.table("rings")

    def _lacking(self, name: str, columns: Sequence[str]) -> Mapping[str, Column]:
        """The columns among these that lo2io knows and that the trace, written by an earlier version, does not have."""
        known = {column.name: column for column in TABLES[name] if column.null is not None}
        if name not in self.metadata["tables"] or known.keys().isdisjoint(columns):
            return {}
        return {column: known[column] for column in columns if column in known and column not in self._names(name)}

    @cached_property
    def _found(self) -> dict[str, list[str]]:
        return {}

    def _names(self, name: str) -> list[str]:
        """The table's columns in the order of its file, which is opened for that only once."""
        if name not in self._found:
            with self._open(name, None) as reader:
                try:
                    self._found[name] = reader.schema.names
                except UnicodeDecodeError as error:
                    raise _unreadable(self.path / DIRECTORY / table_file(name), error) from error
        return self._found[name]

    def _open(self, name: str, columns: Sequence[str] | None) -> pa.RecordBatchFileReader:
        if name in TABLES and name not in self.metadata.get("tables", TABLES):
            return _without_rows(arrow_schema(name, self.metadata["clock"]), columns)
        path = self.path / DIRECTORY / table_file(name)
        try:
            check_regular(path)
            # Columns are found by the file's own names: in an earlier version's trace they have other places.
            wanted = [] if columns is None else sorted(self._names(name).index(column) for column in columns)
            # Not memory-mapped: mapped pages count as resident, and a long trace would fill the memory limit.
            # A reader of some columns has other work for the other CPUs meanwhile.
            options = pa.ipc.IpcReadOptions(use_threads=columns is None, included_fields=wanted)
            reader = pa.ipc.open_file(pa.OSFile(str(path), "rb"), options=options)
            _check_types(name, reader.schema)
        except (OSError, ValueError, pa.ArrowException) as error:
            raise _unreadable(path, error) from error
        return reader

    def _read(self, name: str, reader: pa.RecordBatchFileReader, index: int) -> pa.RecordBatch:
        try:
            batch = reader.get_batch(index)
            batch.validate(full=True)  # also offsets of texts, UTF-8, and codes without a name
            for column in batch.columns:
                if isinstance(column, pa.DictionaryArray):
                    column.dictionary.validate(full=True)
            self._check_numbers(name, batch)
            self._check_codes(name, batch)
        except (OSError, ValueError, pa.ArrowException) as error:  # also ArrowMemoryError
            raise _unreadable(self.path / DIRECTORY / table_file(name), error, index) from error
        return batch

    def _check_numbers(self, name: str, batch: pa.RecordBatch) -> None:
        """Refuse numbers of rows for which the trace is too small.

        Raises:
            ValueError: The message names the column and the first wrong row of the batch.
        """
        unknown = {column.name: column.null for column in TABLES[name]}
        for column, array in zip(batch.schema.names, batch.columns, strict=True):
            if column not in ROW_NUMBERS or not pa.types.is_uint32(array.type):
                continue
            numbers = as_numpy(array)
            wrong = numbers >= self._most_rows
            if unknown.get(column) is not None:
                wrong &= numbers != unknown[column]
            if wrong.any():
                row = int(wrong.argmax())
                raise ValueError(f"row {row}: {column} {numbers[row]} is beyond the {self._most_rows} that fit")

    def _check_codes(self, name: str, batch: pa.RecordBatch) -> None:
        """Refuse codes beyond the labels that lo2io knows: they index arrays. The file's own labels prove nothing.

        Raises:
            ValueError: The message names the column and the first wrong row of the batch.
        """
        for column in TABLES[name]:
            if column.labels is None or column.name not in batch.schema.names:
                continue
            nr = len(column.labels) if isinstance(column.labels, tuple) else self._nr_labels[column.labels]
            codes = as_numpy(batch.column(column.name))  # of nulls, too, for the arrays' users do not ask for nulls
            wrong = (codes < 0) | (codes >= nr)
            if wrong.any():
                row = int(wrong.argmax())
                raise ValueError(f"row {row}: {column.name} has the code {codes[row]}, and there are {nr}")

    @cached_property
    def _nr_labels(self) -> dict[str, int]:
        """The number of labels of each set of them that is known once the trace is."""
        return {"calls": len(self.metadata["calls"]), **dict.fromkeys(("opcodes", "reasons", "fuse_opcodes"), 256)}

    @cached_property
    def _most_rows(self) -> int:
        """The bound of all numbers of rows."""
        files = (self.path / DIRECTORY / table_file(name) for name in TABLES)
        return NUMBERS_FREE + sum(file.stat().st_blocks * 512 for file in files if file.is_file())


def _check_types(name: str, schema: pa.Schema) -> None:
    """Refuse columns of other types than lo2io writes: native code takes a column's memory as it is.

    Raises:
        ValueError: The message names the first wrong column.
    """
    if len({*schema.names}) != len(schema.names):
        raise ValueError("two columns have the same name")
    known = _types(name)
    for found in schema:
        wanted = known.get(found.name, found.type)  # a later version may have more columns
        is_coded = pa.types.is_dictionary(wanted) and pa.types.is_dictionary(found.type)
        if is_coded:  # versions differ in how wide codes are
            is_coded = pa.types.is_signed_integer(found.type.index_type) and found.type.value_type == wanted.value_type
        if found.type != wanted and not is_coded:
            raise ValueError(f"the column {found.name} has the type {found.type} instead of {wanted}")


@cache
def _types(name: str) -> dict[str, pa.DataType]:
    return {column.name: column.arrow_type for column in TABLES[name]}


def _unreadable(path: Path, error: Exception, batch: int | None = None) -> TraceError:
    where = "" if batch is None else f"batch {batch}: "
    return TraceError(f"cannot read the table {path}", f"{where}{error}", "convert the spool again")


def _without_rows(schema: pa.Schema, columns: Sequence[str] | None) -> pa.RecordBatchFileReader:
    chosen = schema if columns is None else pa.schema([f for f in schema if f.name in columns], schema.metadata)
    sink = pa.BufferOutputStream()
    pa.ipc.new_file(sink, chosen).close()
    return pa.ipc.open_file(sink.getvalue())


def _with_unknown(batch: pa.RecordBatch, columns: Sequence[str], lacking: Mapping[str, Column]) -> Columns:
    """The columns of a batch; those that the file lacks are unknown."""
    return {
        column: lacking[column].unknown(batch.num_rows) if column in lacking else as_numpy(batch.column(column))
        for column in columns
    }


def as_numpy(array: pa.Array) -> NDArray[Any]:
    """A column of numbers without a copy. Codes are signed integers, bits bool, unknown values as in ``columns.h``."""
    if isinstance(array, pa.DictionaryArray):
        array = array.indices
    is_bits = pa.types.is_boolean(array.type)
    dtype = np.dtype(np.bool_ if is_bits else array.type.to_pandas_dtype())
    data = array.buffers()[1]
    if data is None or len(array) == 0:
        return np.zeros(0, dtype)
    if is_bits:  # by hand: to_numpy imports pandas where that is installed, which takes 230 ms
        bits = np.unpackbits(np.frombuffer(data, np.uint8), count=array.offset + len(array), bitorder="little")
        return bits[array.offset :].astype(np.bool_)
    return np.frombuffer(data, dtype, len(array), array.offset * dtype.itemsize)


def open_trace(path: Path | str) -> Trace:
    """Open a trace directory, or its ``traces.otf2``.

    Raises:
        TraceError: ``lo2io/metadata.json`` does not exist, or another program or a newer version wrote it.
    """
    directory = Path(path)
    if directory.name == ANCHOR:
        directory = directory.parent
    file = directory / DIRECTORY / METADATA_FILE
    tried = f"cannot open {path} as a trace of lo2io"
    try:
        metadata = json.loads(read_regular(file, MAX_METADATA_BYTES), object_hook=_checked)
    except OSError as error:
        raise TraceError(
            tried, f"{file}: {error.strerror}", "give the directory that `lo2io record -o` wrote"
        ) from error
    except (ValueError, RecursionError) as error:
        raise TraceError(tried, f"{file}: {error}", "convert the spool again") from error
    if not isinstance(metadata, dict) or metadata.get("format") != FORMAT:
        raise TraceError(tried, f"lo2io did not write {file}", "give the directory that `lo2io record -o` wrote")
    if metadata.get("schema_version") != SCHEMA_VERSION:
        answer = f"its tables have schema version {metadata.get('schema_version')}, this lo2io reads {SCHEMA_VERSION}"
        raise TraceError(tried, answer, "convert the spool with this lo2io")
    problem = next(_wrong(metadata), "")
    if problem:
        raise TraceError(tried, f"{file}: {problem}", "convert the spool again")
    _add_traits(metadata.get("calls", ()))
    return Trace(directory, metadata)


class _Object(dict[str, Any]):
    """An object of ``metadata.json``. A key that somebody needs and that is missing makes the trace unreadable."""

    def __missing__(self, key: str) -> Any:
        raise TraceError(f"read the trace's {METADATA_FILE}", f"{key!r} is missing", "convert the spool again")


def _checked(members: dict[str, Any]) -> _Object:
    """The object, if others can compute with its values.

    Raises:
        ValueError: A number beyond 64 bits with sign, or text that no bytes of a path can be.
    """
    for key, value in members.items():
        for each in value if isinstance(value, list) else (value,):
            if isinstance(each, int) and not -(1 << 63) <= each < 1 << 63:
                raise ValueError(f"{key!r}: {each} does not fit into 64 bits")
            if isinstance(each, str):
                each.encode("utf-8", "surrogateescape")
    return _Object(members)


def _wrong(metadata: Mapping[str, Any]) -> Iterator[str]:
    """What is wrong with the kinds of the metadata's values. Missing keys are told of where they are needed."""
    for key, kind in _KINDS.items():
        if not isinstance(metadata.get(key), kind | None):
            yield f"{key!r} is no {kind.__name__}"
    for key in ("start_ns", "stop_ns"):
        if not isinstance(metadata.get(key, 0), int) or not abs(metadata.get(key, 0)) < MAX_TIME_NS:
            yield f"{key!r} is no time"
    for key in _LISTS_OF_OBJECTS:
        if not all(isinstance(each, dict) for each in metadata.get(key) or ()):
            yield f"{key!r} holds something else than objects"
            return
    for call in metadata.get("calls") or ():
        yield from _wrong_traits(call)
    for name, table in (metadata.get("tables") or {}).items():
        rows = table.get("rows") if isinstance(table, dict) else None
        if not isinstance(rows, int) or rows < 0:
            yield f"the table {name!r} has no number of rows"


def _wrong_traits(call: Mapping[str, Any]) -> Iterator[str]:
    if call.get("class", "other") not in _CLASSES:
        yield f"a call's 'class' is {call['class']!r}"
    for key in ("waits", "waits_if", "synced_if"):
        value = call.get(key, 0)
        if not isinstance(value, int) or not 0 <= value < 1 << 32:
            yield f"a call's {key!r} is {value!r}"


def call_traits(call: CallSpec) -> dict[str, Any]:
    """The traits of a call that reports need: its entry of ``calls`` in the metadata.

    Traits without value are left out.
    """
    traits = {"waits": call.waits, "waits_if": call.waits_if, "synced_if": call.synced_if}
    return {"class": call.report_class.name.lower(), **{key: value for key, value in traits.items() if value}}


def _add_traits(calls: Iterable[dict[str, Any]]) -> None:
    """Complete the calls of a trace that was written before its metadata held them."""
    known = {call.name: call for call in load_catalog().rows}
    for call in calls:
        if "class" not in call:
            spec = known.get(call["tracepoint"])
            call.update({"class": "other"} if spec is None else call_traits(spec))
