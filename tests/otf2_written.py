"""Batches made by hand for the OTF2 writer, and its traces read back."""

from __future__ import annotations

import itertools
import re
import subprocess
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import otf2
from tablemaker import meta

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
    Cpu,
    Mount,
    OpcodeSpec,
    Returns,
    Totals,
    TraceEnd,
)

if TYPE_CHECKING:
    from pathlib import Path

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
    "execve": (CallKind.META, Returns.ZERO, "none", "file_io_metadata"),
    "io_uring_setup": (CallKind.RING_SETUP, Returns.FD, "none", "file_io_metadata"),
    "io_uring_enter": (CallKind.RING_ENTER, Returns.COUNT, "none", "file_io"),
    "io_submit": (CallKind.AIO_SUBMIT, Returns.COUNT, "none", "file_io"),
    "io_getevents": (CallKind.AIO_COLLECT, Returns.COUNT, "none", "file_io"),
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
    "tasks": {"parent_process": UNKNOWN_U32, "start_time_ns": UNKNOWN_I64, "exit_time_ns": UNKNOWN_I64},
    "request_events": {"insert_time_ns": UNKNOWN_I64, "issue_time_ns": UNKNOWN_I64},
    "off_cpu": {"end_time_ns": UNKNOWN_I64},
    "ring_events": {
        "call_begin_time_ns": UNKNOWN_I64,
        "handle": UNKNOWN_U32,
        "bytes": UNKNOWN_I64,
        "worker_tid": UNKNOWN_U32,
        "queued_ns": UNKNOWN_I64,
        "executing_ns": UNKNOWN_I64,
        "waiting_ns": UNKNOWN_I64,
        "opcode": OPCODE["READ"],
        "pid": 100,
        "tid": 100,
    },
    "ring_works": {"queue_time_ns": UNKNOWN_I64, "end_time_ns": UNKNOWN_I64, "opcode": OPCODE["READ"]},
    "batches": {"submitted": -1, "collected": -1, "sleep_time_ns": UNKNOWN_I64},
    "rings": {"fd": 5, "pid": 100, "flags": UNKNOWN_U32, "poller": UNKNOWN_U32},
}


class BatchMaker:
    """Collects rows of any table as keyword arguments and makes one batch of them.

    ``first_id`` is the first operation's id; ``shift`` is added to the times of calls.
    """

    def __init__(self, first_id: int = 1, shift: int = 0) -> None:
        self._rows: dict[str, list[dict[str, int]]] = {}
        self._text = b""
        self._next_id = first_id
        self._shift = shift
        self.first_operation = 0

    def row(self, table: str, **columns: int) -> None:
        """One row; columns not named are zero, or unknown."""
        self._rows.setdefault(table, []).append({**_DEFAULTS.get(table, {}), **columns})

    def call(self, name: str, begin: int, end: int | None, task: int = 0, **columns: int) -> int:
        """An operation, of task 0 unless said otherwise; its id."""
        number = self._next_id
        self._next_id += 2
        begin += self._shift
        end_columns = {"status": 1} if end is None else {"end_time_ns": end + self._shift}
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

    def task(self, number: int, comm: bytes = b"fio", cgroup: bytes = b"", **columns: int) -> None:
        """A thread of process 0, pid 100, unless said otherwise."""
        offset, length = self._put(comm)
        group_offset, group_length = self._put(cgroup)
        texts = {"comm_offset": offset, "comm_length": length}
        texts |= {"cgroup_offset": group_offset, "cgroup_length": group_length}
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
        """Events of a block request that was inserted, issued and completed at these times, None: never.

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
        """An event of a ring's request; ``call``: when the call began that its thread is inside of.

        Kinds: 0 begin, 1 issued, 2 complete, 3 cancelled.
        """
        before = self.first_operation + len(self._rows.get("operations", ()))
        begin = {} if call is None else {"call_begin_time_ns": call}
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
        return Batch(**views, text=self._text, first_operation=self.first_operation, native=native)


@dataclass
class Written:
    """A trace read back by the otf2 package: events in time order, in file order within a location."""

    path: Path
    events: list[tuple[Any, Any]]
    definitions: Any

    def of(self, location: str) -> list[Any]:
        """The events of the location of that name."""
        return [event for where, event in self.events if where.name == location]

    def shape(self, location: str = "thread fio 100") -> list[tuple[str, int]]:
        """Kind and time of a location's events; regions by name."""
        return [(label(event), event.time) for event in self.of(location)]

    def find(self, kind: str, location: str = "thread fio 100") -> list[Any]:
        """A location's events of one kind."""
        return [event for event in self.of(location) if type(event).__name__ == kind]

    def printed(self, *options: str) -> str:
        """What otf2-print says; it must say it without a warning."""
        return self._said("otf2-print", "-Werror", *options)

    def properties(self) -> dict[str, str]:
        """The trace's own, as otf2-print has them."""
        lines = self.printed("-I").splitlines()
        return {
            name.split()[-1]: value.removeprefix("Property value").strip()
            for name, value in itertools.pairwise(lines)
            if name.startswith("Property name")
        }

    def markers(self) -> list[str]:
        """The lines of otf2-marker: definitions, each with its markers behind it."""
        return self._said("otf2-marker").splitlines()

    def _said(self, *command: str) -> str:
        done = subprocess.run([*command, str(self.path / "traces.otf2")], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        assert not done.stderr, done.stderr
        return done.stdout


def label(event: Any) -> str:
    """``+read`` and ``-read`` for Enter and Leave, ``!vda read`` for a sample, else the event's kind without ``Io``."""
    kind = type(event).__name__
    if kind in ("Enter", "Leave"):
        return ("+" if kind == "Enter" else "-") + event.region.name
    if kind in ("CallingContextEnter", "CallingContextLeave", "CallingContextSample"):
        return {"E": "+", "L": "-", "S": "!"}[kind[len("CallingContext")]] + context_path(event.calling_context)
    return kind.removeprefix("Io")


def context_path(context: Any) -> str:
    """The regions of a calling context, from the outermost in: ``read/preempted``."""
    names = []
    while context is not None:
        names.append(context.region.name)
        context = context.parent
    return "/".join(reversed(names))


def attributes(event: Any) -> dict[str, Any]:
    """An event's attributes by name."""
    return {attribute.name: value for attribute, value in (event.attributes or {}).items()}


def snake(name: str) -> str:
    """``IoOperationBegin`` as otf2-print writes it; one kind it abbreviates."""
    if name == "IoChangeStatusFlags":
        return "IO_CHANGE_FLAGS"
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).upper()


def assert_readers_agree(written: Written) -> None:
    """otf2-print and the otf2 package see the same events, in the same order on each location."""
    printed: dict[int, list[tuple[str, int]]] = {}
    for line in written.printed().splitlines():
        found = re.match(r"([A-Z][A-Z_]+) +(\d+) +(\d+)  ", line)
        if found:
            printed.setdefault(int(found[2]), []).append((found[1], int(found[3])))
    read: dict[int, list[tuple[str, int]]] = {}
    for location, event in written.events:
        read.setdefault(location._ref, []).append((snake(type(event).__name__), event.time))
    assert printed == read


def assert_rules(written: Written) -> None:
    """What readers rely on: counts, clock range, nesting, life of handles, matching."""
    clock = written.definitions.clock_properties
    last: dict[str, int] = {}
    stacks: dict[str, list[str]] = {}
    counts = {location.name: 0 for location in written.definitions.locations}
    active = {h.name + str(h._ref) for h in written.definitions.io_handles if h.io_handle_flags.value & 1}
    pending: set[int] = set()
    styles: set[str] = set()
    for location, event in written.events:
        kind, name = type(event).__name__, location.name
        counts[name] += 1
        assert last.get(name, 0) <= event.time
        last[name] = event.time
        assert clock.global_offset <= event.time <= clock.global_offset + clock.trace_length
        styles.add({"Enter": "plain", "Leave": "plain"}.get(kind, "context" if "Context" in kind else ""))
        if kind == "Enter":
            stacks.setdefault(name, []).append(event.region.name)
        elif kind == "Leave":
            assert stacks[name].pop() == event.region.name
        elif "Context" in kind:
            assert_context(event, kind, stacks.setdefault(name, []))
        if kind in ("IoCreateHandle", "IoDuplicateHandle"):
            fresh = event.handle if kind == "IoCreateHandle" else event.new_handle
            active.add(fresh.name + str(fresh._ref))
        elif hasattr(event, "handle"):
            assert event.handle.name + str(event.handle._ref) in active, (kind, event.time)
            if kind == "IoDestroyHandle":
                active.remove(event.handle.name + str(event.handle._ref))
        if kind == "IoOperationBegin":
            assert event.matching_id not in pending
            pending.add(event.matching_id)
        elif kind in ("IoOperationComplete", "IoOperationCancelled"):
            pending.remove(event.matching_id)
    assert not any(stacks.values())
    assert len(styles - {""}) <= 1
    assert counts == {location.name: location.number_of_events for location in written.definitions.locations}
    names = [d.name for d in (*written.definitions.locations, *written.definitions.location_groups)]
    names += [node.name for node in written.definitions.system_tree_nodes]
    assert len(names) == len(set(names))


def assert_context(event: Any, kind: str, stack: list[str]) -> None:
    """A context lies in what is entered there; one node is new, its parent made progress (2 steps to it)."""
    path = context_path(event.calling_context)
    if kind == "CallingContextLeave":
        assert stack.pop() == path
        return
    assert event.unwind_distance == 2
    parent = event.calling_context.parent
    assert (context_path(parent) if parent is not None else None) == (stack[-1] if stack else None)
    if kind == "CallingContextEnter":
        stack.append(path)


def complete(**columns: int) -> Completeness:
    """A proof with the counters given."""
    counters = {"lost": 0, "vanished": 0, "late": 0, "orphan": 0, "in_flight": 0, "samples": 10, **columns}
    return Completeness(**counters, proven=True)


END = TraceEnd(START, STOP, complete(), Totals())


def read_back(path: Path) -> Written:
    """Read a trace."""
    with otf2.reader.open(str(path / "traces.otf2")) as reader:
        events = list(reader.events)
        return Written(path, events, reader.definitions)


_VOLATILE = re.compile(
    r"^(Trace identifier|Version|Creator)\b.*\n|^(Property name +LO2IO::VERSION)\n.*\n", re.MULTILINE
)
"""What differs from trace to trace and from release to release."""


def whole_text(trace: Path) -> str:
    """Events, definitions, markers and properties, but for what differs from run to run."""
    anchor = str(trace / "traces.otf2")
    commands = (["otf2-print"], ["otf2-print", "-G"], ["otf2-marker"], ["otf2-print", "-I"])
    texts = [
        subprocess.run([*command, anchor], capture_output=True, text=True, check=True).stdout for command in commands
    ]
    text = _VOLATILE.sub("", "".join(texts))
    return "".join(line.rstrip() + "\n" for line in text.splitlines())
