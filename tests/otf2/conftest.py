"""Batches made by hand, and traces read back."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import otf2
import pytest

from lo2io._native.columns import allocate_batch
from lo2io.model import (
    UNKNOWN_I64,
    UNKNOWN_U32,
    Batch,
    BlockDevice,
    CallKind,
    CallSpec,
    ClockSync,
    Completeness,
    Mount,
    Returns,
    SpoolMeta,
    Totals,
    TraceEnd,
)
from lo2io.writers.otf2 import Otf2Writer

if TYPE_CHECKING:
    from pathlib import Path

START, STOP = 1_000_000, 9_000_000
REALTIME = 1_790_000_000_000_000_000

META = SpoolMeta(
    lo2io_version="0.1",
    complete=True,
    mode="process",
    command=("fio", "--name=x\ny"),
    roots=(100,),
    recorder_pid=1,
    hostname="node7",
    kernel="6.18.0",
    machine="x86_64",
    cpus=(),
    events=(),
    formats=(),
    header_page="",
    clock="perf",
    syncs=(ClockSync(0, 0, REALTIME, 100), ClockSync(10_000_000, 0, REALTIME + 20_000_000, 100)),
    start_ns=START,
    stop_ns=STOP,
    ring_bytes=0,
    ring_bytes_wanted=0,
    opener="native",
    scope="system",
    counts=(),
    mounts=(Mount(31, 0x800, "/home", "ext4", "/dev/vda1"),),
    devices=(BlockDevice(254 << 20, "vda", "mq-deadline", rotational=False, size_bytes=1 << 30, model="virtio"),),
)

_SPECS: dict[str, tuple[CallKind, Returns, str, str]] = {
    "read": (CallKind.READ, Returns.BYTES, "read", "file_io"),
    "write": (CallKind.WRITE, Returns.BYTES, "write", "file_io"),
    "openat": (CallKind.OPEN, Returns.FD, "none", "file_io_metadata"),
    "creat": (CallKind.OPEN, Returns.FD, "none", "file_io_metadata"),
    "openat2": (CallKind.OPEN, Returns.FD, "none", "file_io_metadata"),
    "close": (CallKind.CLOSE, Returns.ZERO, "none", "file_io_metadata"),
    "lseek": (CallKind.SEEK, Returns.OFFSET, "none", "file_io_metadata"),
    "fsync": (CallKind.SYNC, Returns.ZERO, "flush", "file_io"),
    "sync": (CallKind.SYNC, Returns.ZERO, "flush", "file_io"),
    "dup": (CallKind.DUP, Returns.FD, "none", "file_io_metadata"),
    "dup3": (CallKind.DUP_TO, Returns.FD, "none", "file_io_metadata"),
    "fcntl": (CallKind.FCNTL, Returns.VALUE, "none", "file_io_metadata"),
    "copy_file_range": (CallKind.COPY, Returns.BYTES, "read", "file_io"),
    "newfstat": (CallKind.META, Returns.ZERO, "none", "file_io_metadata"),
    "execve": (CallKind.META, Returns.ZERO, "none", "file_io_metadata"),
}
_FIELDS = {"openat": {"flags": "flags"}, "creat": {}, "openat2": {}}
CALLS = tuple(
    CallSpec(
        name=name,
        abi_name=name.removeprefix("new"),
        group="test",
        core=True,
        kind=kind,
        returns=returns,
        io_mode=mode,
        region_role=role,
        fields=_FIELDS.get(name, {}),
        fixed_flags=0o1101 if name == "creat" else None,
        summary=f"what {name} does",
    )
    for name, (kind, returns, mode, role) in _SPECS.items()
)
CALL = {spec.name: code for code, spec in enumerate(CALLS)}

_DEFAULTS: dict[str, dict[str, int]] = {
    "operations": {
        "end_time_ns": UNKNOWN_I64,
        "handle": UNKNOWN_U32,
        "handle2": UNKNOWN_U32,
        "fd": -1,
        "offset_bytes": UNKNOWN_I64,
        "bytes_request": UNKNOWN_I64,
        "bytes_result": UNKNOWN_I64,
        "result": UNKNOWN_I64,
    },
    "handles": {
        "parent": UNKNOWN_U32,
        "file": UNKNOWN_U32,
        "open_flags": UNKNOWN_U32,
        "used": 1,
        "open_time_ns": UNKNOWN_I64,
        "close_time_ns": UNKNOWN_I64,
    },
    "files": {"mode": 0o100644, "mount": UNKNOWN_U32},
    "tasks": {"parent_process": UNKNOWN_U32, "start_time_ns": UNKNOWN_I64, "exit_time_ns": UNKNOWN_I64},
}


class BatchMaker:
    """Collects rows of any table as keyword arguments and makes one batch of them."""

    def __init__(self) -> None:
        self._rows: dict[str, list[dict[str, int]]] = {}
        self._text = b""
        self._next_id = 1
        self.first_operation = 0

    def row(self, table: str, **columns: int) -> None:
        """One row; columns not named are zero, or unknown."""
        self._rows.setdefault(table, []).append({**_DEFAULTS.get(table, {}), **columns})

    def call(self, name: str, begin: int, end: int | None, task: int = 0, **columns: int) -> int:
        """An operation, of task 0 unless said otherwise; its id."""
        number = self._next_id
        self._next_id += 2
        end_columns = {"status": 1} if end is None else {"end_time_ns": end}
        ids = {"pid": 100, "tid": 100 + task, **columns}
        self.row("operations", id=number, call=CALL[name], begin_time_ns=begin, task=task, **{**end_columns, **ids})
        return number

    def _put(self, text: bytes) -> tuple[int, int]:
        offset = len(self._text)
        self._text += text
        return offset, len(text)

    def file(self, number: int, path: bytes, **columns: int) -> None:
        """A file."""
        offset, length = self._put(path)
        self.row("files", file=number, path_offset=offset, path_length=length, **columns)

    def task(self, number: int, comm: bytes = b"fio", **columns: int) -> None:
        """A thread of process 0, pid 100, unless said otherwise."""
        offset, length = self._put(comm)
        ids = {"task": number, "process": 0, "pid": 100, "tid": 100 + number, **columns}
        self.row("tasks", comm_offset=offset, comm_length=length, **ids)

    def make(self) -> Batch:
        """The batch."""
        capacity = max([1, *(len(rows) for rows in self._rows.values())])
        native, tables = allocate_batch(capacity, len(self._text) + 1)
        views = {}
        for table, columns in tables.items():
            rows = self._rows.get(table, [])
            for index, row in enumerate(rows):
                for column, number in row.items():
                    columns[column][index] = number
            setattr(native, f"nr_{table}", len(rows))
            views[table] = {name: array[: len(rows)] for name, array in columns.items()}
        native.first_operation = self.first_operation
        return Batch(**views, text=self._text, first_operation=self.first_operation, native=native)


@dataclass
class Written:
    """A trace read back by the otf2 package: events per location in file order, and the definitions."""

    path: Path
    events: list[tuple[Any, Any]]
    definitions: Any
    markers: list[Any] = field(default_factory=list)

    def of(self, location: str) -> list[Any]:
        """The events of the location of that name."""
        return [event for where, event in self.events if where.name == location]

    def shape(self, location: str) -> list[tuple[str, int]]:
        """Kind and time of a location's events."""
        return [(type(event).__name__, event.time) for event in self.of(location)]

    def printed(self, *options: str) -> str:
        """What otf2-print says; it must say it without a warning."""
        command = ["otf2-print", "-Werror", *options, str(self.path / "traces.otf2")]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        assert not done.stderr, done.stderr
        return done.stdout


def complete(**columns: int) -> Completeness:
    """A proof with the counters given."""
    counters = {"lost": 0, "vanished": 0, "late": 0, "orphan": 0, "in_flight": 0, "samples": 10, **columns}
    return Completeness(**counters, proven=True)


END = TraceEnd(START, STOP, complete(), Totals())


def read_back(path: Path) -> Written:
    """Read a trace."""
    with otf2.reader.open(str(path / "traces.otf2")) as reader:
        events = [(location, event) for location, event in reader.events]
        markers = list(getattr(reader, "markers", []))
        return Written(path, events, reader.definitions, markers)


@pytest.fixture
def maker() -> BatchMaker:
    """An empty batch to be filled."""
    return BatchMaker()


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Written]:
    """Write batches as a trace, have otf2-print find no fault in it, and read it back."""

    def go(*batches: Batch, end: TraceEnd = END, meta: SpoolMeta = META, block_records: bool = True) -> Written:
        with Otf2Writer(tmp_path, meta, CALLS, block_records=block_records) as writer:
            for batch in batches:
                writer.write(batch)
            writer.close(end)
        written = read_back(tmp_path)
        written.printed("-A")
        return written

    return go


__all__ = ["CALL", "CALLS", "END", "META", "BatchMaker", "Sequence", "Written", "complete", "read_back", "replace"]
