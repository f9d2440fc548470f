"""Batches and traces written by hand, for tests of the stages after the engine.

>>> trace = write_trace(folder, [make_batch(operations=[{"id": 1, "call": READ, "bytes_result": 512}])])
>>> [(row["call"], row["bytes_result"]) for row in trace.operations.to_pylist()]
[('read', 512)]
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from lo2io.catalog.catalog import load_catalog
from lo2io.model import (
    UNKNOWN_I64,
    UNKNOWN_U32,
    Batch,
    BlockDevice,
    CallClass,
    CallKind,
    CallSpec,
    ClockSync,
    Completeness,
    Cpu,
    OpcodeSpec,
    Returns,
    SpoolMeta,
    Totals,
)
from lo2io.native.columns import allocate_batch
from lo2io.trace.reader import Trace, open_trace
from lo2io.trace.writer import TableWriter
from lo2io.unwind.stacks import Stacks

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

Row = dict[str, Any]


def known_call(name: str) -> CallSpec:
    """The catalog's call, by its usual name."""
    return next(call for call in load_catalog().calls if call.abi_name == name)


CALLS = tuple(
    CallSpec(
        *(name, abi_name, "core", True, kind, returns, mode, "file_io", {}),
        report_class=CallClass.of_kind(kind),
        accounts=known_call(abi_name).accounts,
    )
    for name, abi_name, kind, returns, mode in [
        ("read", "read", CallKind.READ, Returns.BYTES, "read"),
        ("write", "write", CallKind.WRITE, Returns.BYTES, "write"),
        ("openat", "openat", CallKind.OPEN, Returns.FD, "none"),
        ("close", "close", CallKind.CLOSE, Returns.ZERO, "none"),
        ("copy_file_range", "copy_file_range", CallKind.COPY, Returns.BYTES, "none"),
        ("newfstat", "fstat", CallKind.META, Returns.ZERO, "none"),
        ("unlinkat", "unlinkat", CallKind.META, Returns.ZERO, "none"),
    ]
)
READ, WRITE, OPENAT, CLOSE, COPY, FSTAT, UNLINKAT = range(7)
OPCODES = tuple(
    OpcodeSpec(number, name, kind, returns, mode)
    for number, (name, kind, returns, mode) in enumerate(
        [
            ("NOP", CallKind.META, Returns.ZERO, "none"),
            ("READV", CallKind.READ, Returns.BYTES, "read"),
            ("WRITEV", CallKind.WRITE, Returns.BYTES, "write"),
            ("FSYNC", CallKind.SYNC, Returns.ZERO, "flush"),
        ]
    )
)
"""In the kernel's numbering."""
NOP, READV, WRITEV, FSYNC = range(4)

META = SpoolMeta(
    lo2io_version="0.1.0",
    complete=True,
    mode="process",
    command=("dd", "if=/dev/zero"),
    roots=(100,),
    recorder_pid=1,
    hostname="node1",
    kernel="6.18.0",
    machine="x86_64",
    cpus=(Cpu(0, 0, 0), Cpu(1, 1, 0)),
    events=("syscalls:sys_enter_read", "syscalls:sys_exit_read"),
    formats=("", ""),
    header_page="",
    clock="perf",
    syncs=(ClockSync(0, 5_000, 1_700_000_000_000_000_000, 40),),
    start_ns=0,
    stop_ns=1_000_000_000,
    ring_bytes=1 << 20,
    ring_bytes_wanted=1 << 20,
    opener="native",
    scope="system",
    counts=(),
    mounts=(),
    devices=(
        BlockDevice(8 << 20, "sda", "mq-deadline", True, 1 << 30, "Disk 1"),
        BlockDevice(254 << 20, "vda", None, None, None),
    ),
    exit_code=0,
)
COMPLETE = Completeness(0, 0, 0, 0, 0, 8, True)

TABLES = tuple(allocate_batch(1, 1)[1])
_NO_REFERENCE = {
    "operations": {"handle", "handle2", "cache_missed_pages", "cache_ahead_pages"},
    "handles": {"parent", "file", "open_flags"},
    "files": {"mount"},
    "tasks": {"parent_process"},
    "requests": {"task"},
    "off_cpu": {"waker", "waker_tid", "stack", "holder", "holder_tid"},
    "ring_requests": {
        *("handle", "handle2", "worker", "waker", "waker_tid"),
        *("cache_missed_pages", "cache_ahead_pages"),
    },
    "fills": {"task", "file", "used_pages"},
    "evictions": {"task", "file"},
    "ring_events": {"handle", "worker_tid", "waker_tid"},
    "rings": {"task", "handle", "flags", "poller", "nr_files", "nr_buffers"},
}
_MINUS_ONE = {"fd", "submitted", "collected"}
_ZERO = {"begin_time_ns"}


def meta(**changes: Any) -> SpoolMeta:
    """``META`` with other values."""
    return replace(META, **changes)


def make_batch(**tables: Iterable[Row]) -> Batch:
    """A batch of rows given as dicts. A missing column is unknown if the column can be, else zero.

    ``path``, ``directory``, ``comm``, ``cgroup`` and ``cmdline`` (bytes) stand for the offset and length into the text.
    """
    rows = {name: [dict(row) for row in tables.get(name, ())] for name in TABLES}
    native, columns = allocate_batch(max(1, *(len(part) for part in rows.values())), 1)
    text = b""
    for name, part in rows.items():
        for column, array in columns[name].items():
            array[: len(part)] = _default(name, column, str(array.dtype))
        for index, row in enumerate(part):
            for key in ("path", "directory", "comm", "cgroup", "cmdline"):
                if isinstance(value := row.get(key), bytes):
                    del row[key]
                    row |= {f"{key}_offset": len(text), f"{key}_length": len(value)}
                    text += value
            assert row.keys() <= columns[name].keys(), f"no such column in {name}: {sorted(row)}"
            for column, value in row.items():
                columns[name][column][index] = value
        columns[name] = {column: array[: len(part)] for column, array in columns[name].items()}
    return Batch(**columns, text=text, first_operation=0, native=native)


def _default(table: str, column: str, dtype: str) -> int:
    if dtype == "int64" and column not in _ZERO:
        return UNKNOWN_I64
    if column in _NO_REFERENCE.get(table, ()):
        return UNKNOWN_U32
    return -1 if column in _MINUS_ONE else 0


def repeat_operation(row: Row, times: int) -> Batch:
    """A batch of the same operation many times over."""
    batch = make_batch(operations=[row])
    batch.operations = {name: np.repeat(array, times) for name, array in batch.operations.items()}
    return batch


def write_trace(
    directory: Path,
    batches: Sequence[Batch],
    *,
    spool: SpoolMeta = META,
    totals: Totals | None = None,
    completeness: Completeness = COMPLETE,
    span: tuple[int, int] = (0, 1_000_000_000),
) -> Trace:
    """Write the batches as a trace and open it."""
    stacks = Stacks(spool.user_stacks, spool.syncs)
    with TableWriter(directory, spool, CALLS, OPCODES) as writer:
        for batch in batches:
            if batch.call_stacks:
                stacks.take(b"", batch.call_stacks)
            writer.write(batch)
        writer.write_program_stacks(stacks)
        writer.close(totals or Totals(), completeness, *span)
    return open_trace(directory)
