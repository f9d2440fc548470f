"""The tables beside the trace: their schema, and the reader of ``T/lo2io/``.

In: a trace directory. Out: Arrow tables, or NumPy columns batch by batch. It does not know how the rows came about;
that is stated in ``lo2io/_native/lo2io.h``, whose column names are used here. ``docs/reference/tables.md`` is the
same for readers in other languages.

Nulls keep what the engine wrote: under a null lies ``INT64_MIN``, ``UINT32_MAX`` or 0, so that a column can be handed
to NumPy as it is. Files written by anyone else are not read here.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from lo2io.errors import TraceError
from lo2io.model import UNKNOWN_I64, UNKNOWN_U32, Columns, Completeness, EventCompleteness

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

DIRECTORY: Final = "lo2io"
"""Where the tables lie in the trace directory."""
METADATA_FILE: Final = "metadata.json"
FORMAT: Final = "lo2io-tables"
SCHEMA_VERSION: Final = 1
"""Grows when a column or key changes its name or meaning; new ones do not count."""


@dataclass(frozen=True, slots=True)
class Column:
    """One column: its type, and what a reader must know.

    ``null`` is the value that means unknown. ``labels`` names the codes of a dictionary-encoded column; ``"calls"``
    stands for the recorded system calls, known when the trace is. ``kind`` is ``number``, ``text`` (from an offset and
    a length into the batch's text), ``bytes`` (the same, where the text is not UTF-8) or ``string`` (a list).
    """

    name: str
    dtype: str
    unit: str
    text: str
    null: int | None = None
    labels: tuple[str, ...] | str | None = None
    kind: str = "number"

    @property
    def arrow_type(self) -> pa.DataType:
        """Codes have signed indices: pandas refuses unsigned ones."""
        if self.kind in ("text", "string"):
            return pa.utf8()
        if self.kind == "bytes":
            return pa.binary()
        if self.labels is not None:
            return pa.dictionary(pa.from_numpy_dtype(np.dtype(self.index_dtype)), pa.utf8())
        return pa.bool_() if self.dtype == "bool" else pa.from_numpy_dtype(np.dtype(self.dtype))

    @property
    def index_dtype(self) -> str:
        """The signed type of the codes' width."""
        return self.dtype.removeprefix("u")

    @property
    def nullable(self) -> bool:
        """Whether the column has a way to say unknown."""
        return self.null is not None or self.kind in ("text", "bytes", "string")


def _time(name: str, text: str, *, known: bool = False) -> Column:
    return Column(name, "int64", "ns", text, None if known else UNKNOWN_I64)


def _size(name: str, text: str) -> Column:
    return Column(name, "int64", "B", text, UNKNOWN_I64)


def _ref(name: str, text: str) -> Column:
    return Column(name, "uint32", "", text, UNKNOWN_U32)


def _id(name: str, text: str) -> Column:
    return Column(name, "uint32", "", text)


STATUS: Final = ("completed", "in flight", "merged")
OFFSET_SOURCE: Final = ("unknown", "explicit", "followed")
ORIGIN: Final = ("opened", "duplicated", "inherited", "open before the trace", "appeared unseen")
NAME_SOURCE: Final = ("unknown", "proc", "call")
REQUEST_OPERATION: Final = ("read", "write", "flush", "discard", "secure erase", "write zeroes", "zone", "other")
OFF_STATE: Final = ("preempted", "waiting for a device", "blocked", "sleeping")

OPERATIONS: Final = (
    Column("id", "uint64", "", "unique in the trace; the OTF2 matching id of the operation"),
    _time("begin_time_ns", "entry of the call", known=True),
    _time("end_time_ns", "exit of the call; null: in flight"),
    _ref("task", "row of threads"),
    _ref("pid", "process"),
    _ref("tid", "thread"),
    Column("call", "uint16", "", "system call, by the name programmers know", labels="calls"),
    Column("status", "uint8", "", "how it ended", labels=STATUS[:2]),
    Column("offset_source", "uint8", "", "where the offset comes from", labels=OFFSET_SOURCE),
    Column("first_use", "uint8", "", "bit 0, 1: first appearance of handle, of handle2, never seen opened"),
    Column("closes", "bool", "", "the handle ended with this call"),
    Column("cpu", "uint16", "", "CPU at entry"),
    _ref("handle", "row of handles: the fd's"),
    _ref("handle2", "row of handles: the new one of a dup, the written one of a copy"),
    Column("fd", "int32", "", "fd argument, or the fd an open returned", -1),
    Column("flags", "uint32", "", "open flags, whence, fcntl or ioctl command, mode, as given; 0: none"),
    _size("offset_bytes", "file offset; of a seek the requested one"),
    _size("bytes_request", "bytes asked for; of truncate the new length, of fallocate and its like the range's"),
    _size("bytes_result", "bytes moved; null: failed, or the call moves none"),
    Column("result", "int64", "", "return value as it was", UNKNOWN_I64),
    Column("error", "int16", "errno", "errno; 0: success"),
)
HANDLES: Final = (
    _id("handle", "what operations refer to"),
    _ref("process", "process instance that holds it, as in threads"),
    _ref("task", "row of threads: opened it, or first used it"),
    Column("fd", "int32", "", "its number"),
    Column("origin", "uint8", "", "how it came to be", labels=ORIGIN),
    Column("name_source", "uint8", "", "who proved the name", labels=NAME_SOURCE),
    Column("close_on_exec", "bool", "", "close-on-exec bit at its end"),
    Column("used", "bool", "", "some operation names it"),
    _ref("parent", "row of handles it was duplicated or inherited from"),
    _ref("description", "open file description: shared by duplicates"),
    _ref("file", "row of files; null: unnamed"),
    _ref("open_flags", "O_*"),
    _time("open_time_ns", "null: before the trace, or unseen"),
    _time("close_time_ns", "null: open at the end"),
)
FILES: Final = (
    _id("file", "what handles refer to"),
    Column("mode", "uint32", "", "st_mode", 0),
    Column("device", "uint64", "", "st_dev, as stat(2) gives it", 0),
    Column("inode", "uint64", "", "st_ino", 0),
    _ref("mount", "mount id, as in the metadata's mounts"),
    Column("path", "", "", "path; bytes that are not UTF-8 stand as \\xNN", kind="text"),
    Column("path_bytes", "", "", "the exact bytes, where path could not hold them", kind="bytes"),
)
THREADS: Final = (
    _id("task", "what operations refer to: one instance of a thread"),
    _id("process", "one instance of a process: pids are used again"),
    _ref("pid", "process id"),
    _ref("tid", "thread id"),
    _ref("ppid", "process id of the parent"),
    _ref("parent_process", "process instance of the parent; null: not recorded"),
    Column("comm", "", "", "last name it bore", kind="text"),
    Column("cgroup", "", "", "last cgroup of its process, as the hierarchy of its controllers names it", kind="text"),
    Column("container", "", "", "id of the container, where the cgroup's name holds one", kind="string"),
    _time("start_time_ns", "null: before the trace"),
    _time("exit_time_ns", "null: alive at the end"),
)
REQUESTS: Final = (
    Column("id", "uint64", "", "unique in the trace, operations included"),
    Column("device", "uint32", "", "kernel dev_t: major << 20 | minor"),
    _ref("task", "row of threads that submitted it; null: no recorded thread"),
    _ref("tid", "submitter, as the kernel named it"),
    _time("insert_time_ns", "queued; null: bypassed the scheduler"),
    _time("issue_time_ns", "last issue to the device"),
    _time("complete_time_ns", "last completion"),
    Column("sector", "uint64", "512 B", "first sector, as issued"),
    _size("bytes_request", "at its begin"),
    _size("bytes_issued", "after merging; null: never issued"),
    _size("bytes_result", "sum of completions"),
    Column("error", "int32", "errno", "errno; 0: success"),
    Column("operation", "uint8", "", "what it does", labels=REQUEST_OPERATION),
    Column("status", "uint8", "", "how it ended", labels=STATUS),
    Column("flags", "uint16", "", "1 preflush, 2 FUA, 4 readahead, 8 sync, 16 metadata"),
    Column("nr_requeues", "uint16", "", "times it went back to the queue"),
    Column("nr_merges", "uint16", "", "queued requests it absorbed"),
    Column("nr_completions", "uint16", "", "completions, partial ones included"),
)
OFF_CPU: Final = (
    _ref("task", "row of threads"),
    _time("begin_time_ns", "it lost its CPU", known=True),
    _time("end_time_ns", "it had one again, or its call ended; null: not seen"),
    Column("state", "uint8", "", "why", labels=OFF_STATE),
)
LOSSES: Final = (
    _id("cpu", "CPU whose ring was full"),
    _time("begin_time_ns", "last record before the gap"),
    _time("end_time_ns", "first record after it"),
    Column("lost", "uint64", "", "records lost in it"),
)
DEVICES: Final = (
    Column("device", "uint32", "", "kernel dev_t: major << 20 | minor"),
    Column("name", "", "", "disk or partition", kind="string"),
    Column("scheduler", "", "", "I/O scheduler", kind="string"),
    Column("rotational", "uint8", "", "1: spinning", 255),
    _size("size_bytes", "capacity"),
    Column("model", "", "", "model", kind="string"),
)
COMPLETENESS: Final = (
    Column("event", "", "", "tracepoint", kind="string"),
    _id("cpu", "CPU"),
    Column("count", "int64", "", "counted by the kernel; null: not known", UNKNOWN_I64),
    Column("lost", "int64", "", "lost, as the kernel reported"),
    Column("samples", "int64", "", "samples read"),
    Column("slack", "int64", "", "the true count is at most count + slack: it was read while events went on"),
    Column("vanished", "int64", "", "count - lost - samples, where that is positive"),
)
TABLES: Final[Mapping[str, tuple[Column, ...]]] = {
    "operations": OPERATIONS,
    "handles": HANDLES,
    "files": FILES,
    "threads": THREADS,
    "requests": REQUESTS,
    "off_cpu": OFF_CPU,
    "losses": LOSSES,
    "devices": DEVICES,
    "completeness": COMPLETENESS,
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
    """A trace directory, opened for reading. Tables are opened when asked for."""

    path: Path
    metadata: Mapping[str, Any] = field(repr=False)

    def table(self, name: str, columns: Sequence[str] | None = None) -> pa.Table:
        """A whole table, decompressed in memory: for long traces prefer :meth:`batches`."""
        with self._open(name, columns) as reader:
            return reader.read_all()

    def batches(self, name: str, columns: Sequence[str]) -> Iterator[Columns]:
        """Columns of a table, batch by batch, in constant memory.

        Args:
            name: One of ``TABLES``.
            columns: Number columns alone; codes come as signed integers, bits as bool.

        Yields:
            Arrays with the values of ``lo2io.h`` for unknown (INT64_MIN, UINT32_MAX), valid as long as they are held.
        """
        with self._open(name, columns) as reader:
            for index in range(reader.num_record_batches):
                batch = reader.get_batch(index)
                yield {column: _as_numpy(batch.column(column)) for column in columns}

    def column(self, name: str, column: str) -> NDArray[Any]:
        """One number column whole, values of ``lo2io.h`` for unknown."""
        parts = [batch[column] for batch in self.batches(name, [column])]
        return np.concatenate(parts) if parts else np.zeros(0, np.int64)

    def texts(self, name: str, key: str, column: str, wanted: Collection[int]) -> dict[int, str | None]:
        """A text column's values for the few rows whose ``key`` column is wanted, in constant memory."""
        found: dict[int, str | None] = {}
        keys = np.fromiter(wanted, np.int64, len(wanted))
        with self._open(name, [key, column]) as reader:
            for index in range(reader.num_record_batches if len(keys) else 0):
                batch = reader.get_batch(index)
                numbers, values = _as_numpy(batch.column(key)), batch.column(column)
                for row in np.flatnonzero(np.isin(numbers, keys)).tolist():
                    found[int(numbers[row])] = values[row].as_py()
        return found

    def rows(self, name: str) -> int:
        """How many rows the table has, as the metadata says."""
        return int(self.metadata["tables"][name]["rows"])

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
        """The four counters and their proof."""
        rows = self.table("completeness").drop_columns(["vanished"]).to_pylist()
        return Completeness(**self.metadata["completeness"], events=tuple(EventCompleteness(**row) for row in rows))

    def _open(self, name: str, columns: Sequence[str] | None) -> pa.RecordBatchFileReader:
        path = self.path / DIRECTORY / f"{name}.arrow"
        try:
            # Not memory-mapped: mapped pages count as resident, and a long trace would fill the memory limit.
            source = pa.OSFile(str(path), "rb")
            reader = pa.ipc.open_file(source)
            if columns is None:
                return reader
            # By the file's own names: a trace of an earlier version may have fewer columns, at other places.
            wanted = sorted(reader.schema.names.index(column) for column in columns)
            return pa.ipc.open_file(source, options=pa.ipc.IpcReadOptions(included_fields=wanted))
        except (OSError, ValueError) as error:  # ArrowInvalid is a ValueError
            raise TraceError(f"cannot read the table {path}", str(error), "convert the spool again") from error


def _as_numpy(array: pa.Array) -> NDArray[Any]:
    if isinstance(array, pa.DictionaryArray):
        array = array.indices
    if pa.types.is_boolean(array.type):
        bits: NDArray[Any] = np.asarray(array.to_numpy(zero_copy_only=False))
        return bits
    dtype = np.dtype(array.type.to_pandas_dtype())
    data = array.buffers()[1]
    if data is None or len(array) == 0:
        return np.zeros(0, dtype)
    return np.frombuffer(data, dtype, len(array), array.offset * dtype.itemsize)


def open_trace(path: Path | str) -> Trace:
    """Open a trace directory, or its ``traces.otf2``.

    Raises:
        TraceError: There is no ``lo2io/metadata.json``, or it is another program's or a newer version's.
    """
    directory = Path(path)
    if directory.name == "traces.otf2":
        directory = directory.parent
    file = directory / DIRECTORY / METADATA_FILE
    tried = f"cannot open {path} as a trace of lo2io"
    try:
        metadata = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise TraceError(
            tried, f"{file}: {error.strerror}", "give the directory that `lo2io record -o` wrote"
        ) from error
    except ValueError as error:
        raise TraceError(tried, f"{file}: {error}", "convert the spool again") from error
    if not isinstance(metadata, dict) or metadata.get("format") != FORMAT:
        raise TraceError(tried, f"{file} is not of lo2io", "give the directory that `lo2io record -o` wrote")
    if metadata.get("schema_version") != SCHEMA_VERSION:
        answer = f"its tables have schema version {metadata.get('schema_version')}, this lo2io reads {SCHEMA_VERSION}"
        raise TraceError(tried, answer, "convert the spool with this lo2io")
    return Trace(directory, metadata)
