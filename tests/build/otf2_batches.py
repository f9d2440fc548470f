"""Batches made by hand for the OTF2 writer.

>>> maker = BatchMaker()
>>> maker.task(0)
>>> maker.call("read", 2_000_000, 3_000_000, fd=3, bytes_result=512)  # returns its id
1
>>> maker.make().operations["bytes_result"].tolist()
[512]
"""

from __future__ import annotations

from dataclasses import replace

from lo2io.native._lib import ffi

from build.tablemaker import meta
from lo2io.model import (
    UNKNOWN_I64,
    UNKNOWN_U32,
    Batch,
    BlockDevice,
    CallKind,
    CallSpec,
    ClockSync,
    Completeness,
    Cpu,
    Mount,
    OpcodeSpec,
    Returns,
    Totals,
    TraceEnd,
)
from lo2io.native.columns import allocate_batch

START, STOP = 1_000_000, 9_000_000
REALTIME = 1_790_000_000_000_000_000

META = meta(
    command=("fio", "--name=x\ny"),
    hostname="node7",
    cpus=(),
    events=(),
    formats=(),
    syncs=(ClockSync(0, 0, REALTIME, 100), ClockSync(10_000_000, 0, REALTIME + 10_005_000, 100)),
    start_ns=START,
    stop_ns=STOP,
    mounts=(Mount(31, 0x800, "/home", "ext4", "/dev/vda1"),),
    devices=(BlockDevice(254 << 20, "vda", "mq-deadline", rotational=False, size_bytes=1 << 30, model="virtio"),),
)

SYSTEM = replace(META, mode="system", cpus=(Cpu(0, 0, 0), Cpu(1, 1, 0), Cpu(2, 0, 1)))
"""A whole machine: three CPUs in two packages."""

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
    "newstat": (CallKind.META, Returns.ZERO, "none", "file_io_metadata"),
    "rename": (CallKind.META, Returns.ZERO, "none", "file_io_metadata"),
    "execve": (CallKind.META, Returns.ZERO, "none", "file_io_metadata"),
    "io_uring_setup": (CallKind.RING_SETUP, Returns.FD, "none", "file_io_metadata"),
    "io_uring_enter": (CallKind.RING_ENTER, Returns.COUNT, "none", "file_io"),
    "io_submit": (CallKind.AIO_SUBMIT, Returns.COUNT, "none", "file_io"),
    "io_getevents": (CallKind.AIO_COLLECT, Returns.COUNT, "none", "file_io"),
}
_FIELDS = {
    "openat": {"flags": "flags", "path": "filename"},
    "newstat": {"path": "filename"},
    "rename": {"path": "oldname", "path2": "newname"},
}
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

_OPCODES: tuple[tuple[int, str, CallKind, Returns, str], ...] = (
    (0, "NOP", CallKind.META, Returns.ZERO, "none"),
    (3, "FSYNC", CallKind.SYNC, Returns.ZERO, "flush"),
    (6, "POLL_ADD", CallKind.META, Returns.VALUE, "none"),
    (18, "OPENAT", CallKind.OPEN, Returns.FD, "none"),
    (22, "READ", CallKind.READ, Returns.BYTES, "read"),
    (23, "WRITE", CallKind.WRITE, Returns.BYTES, "write"),
    (30, "SPLICE", CallKind.COPY, Returns.BYTES, "read"),
)
OPCODES = tuple(OpcodeSpec(*row) for row in _OPCODES)
OPCODE = {spec.name: spec.number for spec in OPCODES}

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
    "tasks": {
        "parent_process": UNKNOWN_U32,
        "rank": UNKNOWN_U32,
        "start_time_ns": UNKNOWN_I64,
        "exit_time_ns": UNKNOWN_I64,
    },
    "request_events": {"insert_time_ns": UNKNOWN_I64, "issue_time_ns": UNKNOWN_I64},
    "off_cpu": {"end_time_ns": UNKNOWN_I64},
    "ring_events": {
        "call_begin_time_ns": UNKNOWN_I64,
        "handle": UNKNOWN_U32,
        "bytes": UNKNOWN_I64,
        "worker_tid": UNKNOWN_U32,
        "waker_tid": UNKNOWN_U32,
        "queued_ns": UNKNOWN_I64,
        "executing_ns": UNKNOWN_I64,
        "waiting_ns": UNKNOWN_I64,
        "run_queue_ns": UNKNOWN_I64,
        "blocked_ns": UNKNOWN_I64,
        "opcode": OPCODE["READ"],
        "pid": 100,
        "tid": 100,
    },
    "ring_works": {"queue_time_ns": UNKNOWN_I64, "end_time_ns": UNKNOWN_I64, "opcode": OPCODE["READ"], "pid": 100},
    "batches": {"submitted": -1, "collected": -1, "sleep_time_ns": UNKNOWN_I64},
    "rings": {"fd": 5, "pid": 100, "flags": UNKNOWN_U32, "poller": UNKNOWN_U32},
}


class BatchMaker:
    """Collects rows of any table as keyword arguments and makes one batch of them.

    ``first_id`` is the first operation's id. ``shift`` is added to the times of calls.
    """

    def __init__(self, first_id: int = 1, shift: int = 0) -> None:
        self._rows: dict[str, list[dict[str, int]]] = {}
        self._text = b""
        self._next_id = first_id
        self._shift = shift
        self.first_operation = 0

    def row(self, table: str, **columns: int) -> None:
        """One row; columns that are not named are zero, or unknown."""
        self._rows.setdefault(table, []).append({**_DEFAULTS.get(table, {}), **columns})

    def call(self, name: str, begin: int, end: int | None, task: int = 0, **columns: int) -> int:
        """An operation, of task 0 unless said otherwise; its id."""
        number = self._next_id
        self._next_id += 2
        begin += self._shift
        end_columns = {"status": 1} if end is None else {"end_time_ns": end + self._shift}
        ids = {"pid": 100, "tid": 100 + task, **columns}
        ids.setdefault("process", ids["pid"] - 100)
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

    def path(self, call: int, path: bytes | None, directory: bytes = b"", place: int = 0) -> None:
        """A path argument of the call with this id; None: unreadable."""
        offset, length = self._put(path or b"")
        start, size = self._put(directory)
        texts = {"path_offset": offset, "path_length": length, "directory_offset": start, "directory_length": size}
        self.row("paths", operation=call, place=place, source=0 if path is None else 3, **texts)

    def task(
        self, number: int, comm: bytes = b"fio", cgroup: bytes = b"", cmdline: bytes = b"", **columns: int
    ) -> None:
        """A thread of process 0, pid 100, unless said otherwise."""
        offset, length = self._put(comm)
        group_offset, group_length = self._put(cgroup)
        texts = {"comm_offset": offset, "comm_length": length}
        texts |= {"cgroup_offset": group_offset, "cgroup_length": group_length}
        line_offset, line_length = self._put(cmdline)
        texts |= {"cmdline_offset": line_offset, "cmdline_length": line_length}
        ids = {"task": number, "process": 0, "pid": 100, "tid": 100 + number, **columns}
        self.row("tasks", **texts, **ids)

    def request(
        self,
        number: int,
        *times: int | None,
        device: int = 254 << 20,
        operation: int = 1,
        cpus: tuple[int, int, int] = (0, 0, 0),
        **columns: int,
    ) -> None:
        """Events of a block request that was inserted, issued and completed at these times; None: never.

        They must be sorted before the batch is made: see ``sort_requests``.
        """
        insert, issue, complete = times
        known = {
            "device": device,
            "operation": operation,
            "bytes": 4096,
            "sector": 8,
            "pid": 100,
            "tid": 100,
            "task": 0,
        }
        known |= columns

        def event(kind: int, time: int, issued: int | None) -> None:
            seen = {"insert_time_ns": insert, "issue_time_ns": issued}
            unknown = {name: UNKNOWN_I64 if at is None else at for name, at in seen.items()}
            self.row("request_events", id=number, kind=kind, time_ns=time, cpu=cpus[kind], **unknown, **known)

        begin = issue if insert is None else insert
        if begin is not None:
            event(0, begin, None)
        if issue is not None:
            event(1, issue, issue)
        if complete is not None:
            event(2, complete, issue)

    def ring_event(self, number: int, kind: int, time: int, call: int | None = None, **columns: int) -> None:
        """An event of a ring's request; ``call``: start of the call in which its thread is.

        Kinds: 0 begin, 1 issued, 2 complete, 3 cancelled.
        """
        before = self.first_operation + len(self._rows.get("operations", ()))
        begin = {} if call is None else {"call_begin_time_ns": call}
        columns.setdefault("process", columns.get("pid", 100) - 100)
        self.row("ring_events", id=number, kind=kind, time_ns=time, before=before, **{**begin, **columns})

    def sort_requests(self) -> None:
        """Put the events of requests into the order of time, as the engine gives them."""
        self._rows.get("request_events", []).sort(key=lambda row: row["time_ns"])

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
        ffi.memmove(native.text, self._text, len(self._text))
        return Batch(**views, text=self._text, first_operation=self.first_operation, native=native)


def complete(**columns: int) -> Completeness:
    """A proof with these counters."""
    counters = {"lost": 0, "vanished": 0, "late": 0, "orphan": 0, "in_flight": 0, "samples": 10, **columns}
    return Completeness(**counters, proven=True)


END = TraceEnd(START, STOP, complete(), Totals())
