"""Batches of the engine to Arrow tables beside the trace.

In: a stream of batches. Out: ``metadata.json`` and one Arrow IPC file for each table, in ``T/lo2io/``. Each file is
written as ``*.part`` and renamed at the end, the metadata last: if the metadata exist, the tables are whole. The schema
is in ``trace/reader.py``. Columns of many rows go to Arrow without a copy; a bitmap marks unknown values as null.
``benchmarks/tables.py`` compares formats and compressions; ``docs/reference/tables.md`` has the figures.
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

import numpy as np
import pyarrow as pa

from lo2io._version import __version__
from lo2io.catalog.fuse_opcodes import load_opcodes
from lo2io.catalog.wait_reasons import load_reasons
from lo2io.errors import TraceError
from lo2io.kernel.procfs import container_id
from lo2io.model import UNKNOWN_I64, Batch, CallSpec, Columns, Completeness, OpcodeSpec, SpoolMeta, Totals
from lo2io.model.command_lines import command_line
from lo2io.model.layers import STACKS
from lo2io.spool.format import dump_document, members
from lo2io.trace.clock_readings import read_readings
from lo2io.trace.names import DIRECTORY, METADATA_FILE, PART, table_file
from lo2io.trace.reader import (
    EARLIEST_BEGIN,
    FORMAT,
    LATEST_END,
    SCHEMA_VERSION,
    TABLES,
    Column,
    arrow_schema,
    call_traits,
)
from lo2io.trace.stretches import Stretches
from lo2io.trace.user_stacks import name_frames
from lo2io.unwind.modules import Modules

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from types import TracebackType

    from numpy.typing import NDArray

    from lo2io.model import Frame
    from lo2io.unwind.stacks import Stacks

CHUNK_ROWS: Final = 32768
"""Rows of a record batch: those of an engine's full batch, which then needs no copy. Smaller ones are gathered first:
each one costs about 2 KB of framing."""
CHUNK_BYTES: Final = 1 << 24
"""Bytes of texts of a record batch, about: paths may be long, and command lines longer."""
CODEC: Final = "lz4"

_TEXTS_OF: Final = {"files": ("path",), "paths": ("path", "directory"), "threads": ("comm", "cgroup", "cmdline")}
_SOURCES: Final = tuple(
    table for table in TABLES if table not in {"kernel_stacks", "stacks", "devices", "completeness", "clock_readings"}
)
"""Tables whose rows come from the engine."""
NR_OPCODES: Final = 256
"""An opcode is a byte. The last number means unknown."""
_NOT_IN_METADATA: Final = (
    "formats",
    "header_page",
    "counts",
    "lo2io_version",
    "start_ns",
    "stop_ns",
    "kernel_stacks",
    "user_stacks",
    "nr_bytes",
)


class TableWriter:
    """Writes the tables of one trace. As a context manager, it leaves no half-written table behind.

    Args:
        directory: The trace's directory. ``lo2io/`` is made in it.
        meta: The recording's metadata.
        calls: The calls, indexed by the codes of ``operations.call``.
        opcodes: io_uring's opcodes, indexed by number. Opcodes beyond these are named by their number.
        clocks: The spool's file of readings of the machine's clocks; None: there is none.
        codec: ``lz4``, ``zstd`` or None.
        threads: Compress the columns of a batch in Arrow's thread pool.

    Raises:
        TraceError: The files cannot be written.
    """

    def __init__(
        self,
        directory: Path,
        meta: SpoolMeta,
        calls: Sequence[CallSpec],
        opcodes: Sequence[OpcodeSpec] = (),
        *,
        clocks: Path | None = None,
        codec: str | None = CODEC,
        threads: bool = False,
    ) -> None:
        self._directory = Path(directory) / DIRECTORY
        self._meta = meta
        self._calls = tuple(calls)
        self._opcodes = tuple(opcodes)
        self._open: dict[str, _TableFile] = {}
        self._stretches = Stretches()
        self._modules = Modules()
        self._clocks = clocks
        with _writing(self._directory):
            self._directory.mkdir(parents=True, exist_ok=True)
            (self._directory / METADATA_FILE).unlink(missing_ok=True)
            labels = {
                "calls": call_labels(self._calls),
                "opcodes": opcode_labels(self._opcodes),
                "reasons": load_reasons().names,
                "fuse_opcodes": load_opcodes(),
            }
            options = pa.ipc.IpcWriteOptions(compression=codec, use_threads=threads)
            for table in TABLES:
                self._open[table] = _TableFile(self._directory, table, meta.clock, labels, options)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for table in self._open.values():
            table.discard()

    def write(self, batch: Batch) -> None:
        """Write a batch's rows. Afterwards the batch may be filled again."""
        with _writing(self._directory):
            for table in _SOURCES:
                columns: Columns = getattr(batch, "tasks" if table == "threads" else table)
                if columns and table == "off_cpu":
                    self._open[table].append(self._stretches.take(batch))
                elif columns:
                    strings = _strings(table, columns, batch.text)
                    self._open[table].append(columns, strings)
                    if STACKS in self._meta.layers:
                        self._modules.see(_programs(table, strings))

    def close(
        self,
        totals: Totals,
        completeness: Completeness,
        start_ns: int,
        stop_ns: int,
        extra: Mapping[str, Any] | None = None,
    ) -> None:
        """Write the tables and metadata that are known only at the end, and give the files their names.

        Args:
            totals: The engine's counters.
            completeness: The proof, with the counts of each event.
            start_ns: Begin of the trace on the spool's clock.
            stop_ns: End of the trace on the same clock.
            extra: Further keys of the metadata, as values for JSON.
        """
        with _writing(self._directory):
            if rest := self._stretches.rest():
                self._open["off_cpu"].append(rest)
            self._write_kernel_stacks()
            self._write_devices()
            self._write_completeness(completeness)
            if self._clocks is not None:
                self._open["clock_readings"].append(read_readings(self._clocks))
            for table in self._open.values():
                table.finish()
            rows = {name: {"file": table_file(name), "rows": table.rows} for name, table in self._open.items()}
            metadata = {
                **_metadata(self._meta, self._calls, self._opcodes, totals, completeness),
                "start_ns": start_ns,
                "stop_ns": stop_ns,
                "tables": rows,
                **(extra or {}),
            }
            part = self._directory / f"{METADATA_FILE}{PART}"
            part.write_bytes(dump_document(metadata))
            for table in self._open.values():
                table.rename()
            part.rename(self._directory / METADATA_FILE)
        self._open.clear()

    def _write_kernel_stacks(self) -> None:
        stacks, reasons = self._meta.kernel_stacks, load_reasons()
        numbers: Columns = {
            "stack": np.array([stack.stack for stack in stacks], np.uint32),
            "reason": np.array([reasons.number_of(stack.functions) for stack in stacks], np.uint8),
        }
        functions = [";".join(name or "?" for name in reversed(stack.functions)) for stack in stacks]
        self._open["kernel_stacks"].append(numbers, {"functions": functions})

    def write_program_stacks(self, stacks: Stacks) -> list[Frame]:
        """Write the frames of all stacks that calls have, with the names of their functions, and return them."""
        self._modules.see(stacks.paths)
        frames = name_frames(stacks.by_frame_pointers(), list(stacks.unwound()), self._modules)
        numbers: Columns = {
            "stack": np.array([frame.stack for frame in frames], np.uint32),
            "frame": np.array([frame.frame for frame in frames], np.uint16),
            "offset": np.array([frame.offset for frame in frames], np.uint64),
            "way": np.array([frame.way for frame in frames], np.uint8),
            "end": np.array([frame.end for frame in frames], np.uint8),
        }
        strings = {name: [getattr(frame, name) for frame in frames] for name in ("build_id", "file", "function")}
        self._open["stacks"].append(numbers, strings)
        return frames

    def _write_devices(self) -> None:
        devices = self._meta.devices
        numbers: Columns = {
            "device": np.array([d.device for d in devices], np.uint32),
            "rotational": np.array([255 if d.rotational is None else d.rotational for d in devices], np.uint8),
            "size_bytes": np.array([UNKNOWN_I64 if d.size_bytes is None else d.size_bytes for d in devices], np.int64),
        }
        strings = {key: [getattr(d, key) for d in devices] for key in ("name", "scheduler", "model")}
        self._open["devices"].append(numbers, strings)

    def _write_completeness(self, completeness: Completeness) -> None:
        events = completeness.events
        numbers: Columns = {
            "cpu": np.array([e.cpu for e in events], np.uint32),
            "count": np.array([UNKNOWN_I64 if e.count is None else e.count for e in events], np.int64),
            **{
                key: np.array([getattr(e, key) for e in events], np.int64)
                for key in ("lost", "samples", "slack", "vanished")
            },
        }
        self._open["completeness"].append(numbers, {"event": [e.event for e in events]})


Strings = dict[str, list[Any]]
"""Column → one str, bytes or None for each row."""


class _TableFile:
    """The file of one table. Gathers small batches into chunks."""

    def __init__(
        self,
        directory: Path,
        table: str,
        clock: str,
        labels: Mapping[str, Sequence[str]],
        options: pa.ipc.IpcWriteOptions,
    ) -> None:
        self.rows = 0
        self._columns = TABLES[table]
        self._bounded = table == "operations"
        self._schema = arrow_schema(table, clock)
        # All batches share one dictionary object, so Arrow need not compare dictionaries.
        self._labels = {
            c.name: _text_array(labels[c.labels] if isinstance(c.labels, str) else c.labels)
            for c in self._columns
            if c.labels
        }
        self._pending: list[tuple[Columns, Strings]] = []
        self._pending_rows = self._pending_bytes = 0
        self._path = directory / table_file(table)
        self._part = directory / f"{table_file(table)}{PART}"
        self._sink: pa.NativeFile = pa.OSFile(str(self._part), "wb")
        self._writer = pa.ipc.new_file(self._sink, self._schema, options=options)

    def append(self, columns: Columns, strings: Strings | None = None) -> None:
        rows = len(columns[next(c.name for c in self._columns if c.kind == "number")])
        if not rows:
            return
        self.rows += rows
        if rows >= CHUNK_ROWS // 2 and not self._pending:
            self._write(columns, strings or {})
            return
        names = [c.name for c in self._columns if c.kind == "number"]
        self._pending.append(({name: columns[name].copy() for name in names}, strings or {}))
        self._pending_rows += rows
        self._pending_bytes += sum(len(text) for texts in (strings or {}).values() for text in texts if text)
        if self._pending_rows >= CHUNK_ROWS or self._pending_bytes >= CHUNK_BYTES:
            self._flush()

    def finish(self) -> None:
        self._flush()
        self._writer.close()
        self._sink.close()

    def rename(self) -> None:
        self._part.rename(self._path)

    def discard(self) -> None:
        """Close and remove the file. An error here must not hide the error that led here."""
        with contextlib.suppress(OSError):
            self._sink.close()
            self._part.unlink(missing_ok=True)

    def _flush(self) -> None:
        if not self._pending:
            return
        numbers = [columns for columns, _ in self._pending]
        texts = [strings for _, strings in self._pending]
        self._write(
            {name: np.concatenate([part[name] for part in numbers]) for name in numbers[0]},
            {name: [value for part in texts for value in part[name]] for name in texts[0]},
        )
        self._pending = []
        self._pending_rows = self._pending_bytes = 0

    def _write(self, columns: Columns, strings: Strings) -> None:
        arrays = [
            self._arrow(column, columns[column.name])
            if column.kind == "number"
            else _text_array(strings[column.name], column.arrow_type)
            for column in self._columns
        ]
        batch = pa.RecordBatch.from_arrays(arrays, schema=self._schema)
        self._writer.write_batch(batch, _bounds(columns) if self._bounded else None)

    def _arrow(self, column: Column, values: NDArray[Any]) -> pa.Array:
        values = np.ascontiguousarray(values)
        if column.dtype == "bool":
            return pa.Array.from_buffers(pa.bool_(), len(values), [None, _bits(values != 0)])
        known = None if column.null is None else values != column.null
        valid = None if known is None or known.all() else _bits(known)
        if column.name in self._labels:
            same_width = values.itemsize == np.dtype(column.index_dtype).itemsize
            codes = values.view(column.index_dtype) if same_width else values.astype(column.index_dtype)
            return pa.DictionaryArray.from_arrays(_number_array(codes, valid), self._labels[column.name])
        return _number_array(values, valid)


# Arrays are made of buffers, because pyarrow.array() imports pandas if installed. The import takes 250 ms.


def _bounds(operations: Columns) -> dict[str, str]:
    """The batch's metadata, by which reports find calls that last long without reading all times."""
    begin, end = operations["begin_time_ns"].min(), operations["end_time_ns"].max()
    return {EARLIEST_BEGIN: str(begin), LATEST_END: str(end)}


def _number_array(values: NDArray[Any], valid: pa.Buffer | None = None) -> pa.Array:
    return pa.Array.from_buffers(pa.from_numpy_dtype(values.dtype), len(values), [valid, pa.py_buffer(values)])


def _text_array(texts: Sequence[str | bytes | None], arrow_type: pa.DataType | None = None) -> pa.Array:
    parts = [_encoded(text) if isinstance(text, str) else text or b"" for text in texts]
    ends = np.zeros(len(parts) + 1, np.int32)
    np.cumsum([len(part) for part in parts], out=ends[1:])
    known = np.array([text is not None for text in texts], np.bool_)
    valid = None if known.all() else _bits(known)
    buffers = [valid, pa.py_buffer(ends), pa.py_buffer(b"".join(parts))]
    return pa.Array.from_buffers(arrow_type or pa.utf8(), len(parts), buffers)


def _encoded(text: str) -> bytes:
    """The text in UTF-8. Bytes that are none, as in a file's name, are escaped as in other tables."""
    if text.isascii():
        return text.encode()
    return text.encode(errors="surrogateescape").decode(errors="backslashreplace").encode()


def _bits(flags: NDArray[np.bool_]) -> pa.Buffer:
    return pa.py_buffer(np.packbits(flags, bitorder="little"))


def call_labels(calls: Sequence[CallSpec]) -> tuple[str, ...]:
    """The calls' ABI names. Calls that share an ABI name have the tracepoint's name: a dictionary's entries differ."""
    names = [call.abi_name for call in calls]
    return tuple(call.name if names.count(call.abi_name) > 1 else call.abi_name for call in calls)


def opcode_labels(opcodes: Sequence[OpcodeSpec]) -> tuple[str, ...]:
    """A name for each number that an opcode can have."""
    named = tuple(opcode.name for opcode in opcodes)
    return (*named, *(f"opcode {number}" for number in range(len(named), NR_OPCODES - 1)), "unknown")


def _programs(table: str, strings: Strings) -> Iterator[str | None]:
    """Names of files among a table's texts that may be programs or libraries."""
    yield from strings.get("path", ()) if table in {"files", "paths"} else ()
    yield from (line.partition(" ")[0] for line in strings.get("cmdline", ()) if line)


def _strings(table: str, columns: Columns, text: bytes) -> Strings:
    """The values of a table's columns of texts and bytes."""
    strings: Strings = {}
    for name in _TEXTS_OF.get(table, ()):
        strings |= _texts(columns, name, text)
    if table == "paths":  # an empty path is not an unknown one: it means the directory itself
        read = (columns["source"] != 0).tolist()
        strings["path"] = [
            "" if known and path is None else path for path, known in zip(strings["path"], read, strict=True)
        ]
    if "cgroup" in strings:
        strings["container"] = [None if path is None else container_id(path) for path in strings["cgroup"]]
    if "cmdline" in strings:
        strings["cmdline"] = [command_line(raw or "") or None for raw in strings["cmdline"]]
    return strings


def _texts(columns: Columns, name: str, text: bytes) -> Strings:
    """The text of each row, and for paths the exact bytes if the text cannot hold them. An empty text is unknown."""
    starts = columns[f"{name}_offset"].tolist()
    lengths = columns[f"{name}_length"].tolist()
    raw = [text[start : start + length] for start, length in zip(starts, lengths, strict=True)]
    shown: list[str | None] = []
    exact: list[bytes | None] = []
    for value in raw:
        try:
            shown.append(value.decode() if value else None)
            exact.append(None)
        except UnicodeDecodeError:
            shown.append(value.decode(errors="backslashreplace"))
            exact.append(value)
    return {name: shown, f"{name}_bytes": exact}


def _metadata(
    meta: SpoolMeta,
    calls: Sequence[CallSpec],
    opcodes: Sequence[OpcodeSpec],
    totals: Totals,
    completeness: Completeness,
) -> dict[str, Any]:
    recorded = {key: value for key, value in members(meta).items() if key not in _NOT_IN_METADATA}
    labels = call_labels(calls)
    return {
        "format": FORMAT,
        "schema_version": SCHEMA_VERSION,
        "converted_by": __version__,
        "recorded_by": meta.lo2io_version,
        **recorded,
        "calls": [
            {
                "name": label,
                "tracepoint": call.name,
                "group": call.group,
                "kind": call.kind.name.lower(),
                **call_traits(call),
            }
            for label, call in zip(labels, calls, strict=True)
        ],
        "opcodes": [
            {"number": opcode.number, "name": opcode.name, "kind": opcode.kind.name.lower(), "io_mode": opcode.io_mode}
            for opcode in opcodes
        ],
        "wait_reasons": list(load_reasons().names),
        "totals": totals,
        "completeness": {key: value for key, value in members(completeness).items() if key != "events"},
    }


@contextlib.contextmanager
def _writing(directory: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise TraceError(
            f"cannot write the tables to {directory}",
            error.strerror or str(error),
            "free space or choose another place with -o, then run `lo2io convert` on the spool",
        ) from error
