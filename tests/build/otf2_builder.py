"""Writes small OTF2 traces, right or wrong, through the lowest level of the OTF2 library.

``correct()`` is a trace that keeps every rule; a test changes one thing and writes it. Definitions are a dict from
(record, id) to arguments as ``_otf2.GlobalDefWriter_Write<Record>`` takes them. Events are one list per location, of
``(event, time, *arguments)``. A dict as the last argument holds attributes: id → (type, value).

>>> trace = correct()
>>> trace.events[1].append(complete(START + 120, DISK, 99))
>>> sorted(verify(trace.write(folder)).broken)
['operation.not-begun']
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import _otf2
import numpy as np
import pytest

from lo2io.verify import RULES, Severity, Verification, verify
from lo2io.verify.plain import Screen

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

START, LENGTH, NONE32, NONE64 = 1_000_000, 1_000_000, 2**32 - 1, 2**64 - 1
UNDEFINED = 77
"""A reference that no definition of a correct trace has."""
READ, WRITE, FLUSH = _otf2.IO_OPERATION_MODE_READ, _otf2.IO_OPERATION_MODE_WRITE, _otf2.IO_OPERATION_MODE_FLUSH
BLOCKING, NON_BLOCKING = _otf2.IO_OPERATION_FLAG_NONE, _otf2.IO_OPERATION_FLAG_NON_BLOCKING
NO_FLAGS = _otf2.IO_STATUS_FLAG_NONE
READ_FD, WRITE_FD, DISK = 0, 1, 2
"""Handles of the correct trace: created, duplicated of it, pre-created."""

_STRINGS = (
    *("", "host", "machine", "process 10", "thread 10", "thread 11", "disk vda", "vda", "read", "open", "POSIX"),
    *("POSIX I/O", "block_io", "block requests", "/tmp/file", "vda requests", "Offset", "offset in the file"),
    *("I/O regions", "Mount Point", "/tmp"),
)
S = {text: ref for ref, text in enumerate(_STRINGS)}
"""Text → string reference."""


@dataclass
class Trace:
    """A trace to be written."""

    clock: tuple[int, int, int, int] | None = (1_000_000_000, START, LENGTH, 1_700_000_000_000_000_000)
    definitions: dict[tuple[str, int], tuple[Any, ...]] = field(default_factory=dict)
    more: list[tuple[str, tuple[Any, ...]]] = field(default_factory=list)
    """Records without an id, and those that are written twice."""
    events: dict[int, list[tuple[Any, ...]]] = field(default_factory=dict)
    counts: dict[int, int] = field(default_factory=dict)
    """Location → the count in its definition, if that is a wrong one."""
    markers: list[tuple[Any, ...]] = field(default_factory=list)
    """Arguments of ``MarkerWriter_WriteMarker``; group 0 is defined."""
    properties: dict[str, str] = field(default_factory=dict)
    creator: str = "lo2io's tests"
    clock_offsets: dict[int, int] = field(default_factory=dict)
    """Location → ticks that its local definitions add to its clock."""
    chunk_bytes: int = 256 * 1024
    """Of events."""

    def write(self, path: Path) -> Path:
        """Write the archive into ``path`` and return it."""
        archive = _otf2.Archive_Open(
            str(path),
            "traces",
            _otf2.FILEMODE_WRITE,
            self.chunk_bytes,
            4 * 1024 * 1024,
            _otf2.SUBSTRATE_POSIX,
            _otf2.COMPRESSION_NONE,
        )
        flush = _otf2.FlushCallbacks(pre_flush=lambda *_: _otf2.FLUSH, post_flush=None)
        _otf2.Archive_SetFlushCallbacks(archive, flush, None)
        _otf2.Archive_SetSerialCollectiveCallbacks(archive)
        _otf2.Archive_SetCreator(archive, self.creator)
        for name, value in self.properties.items():
            _otf2.Archive_SetProperty(archive, name, value, True)
        _otf2.Archive_OpenEvtFiles(archive)
        for location, events in self.events.items():
            self._write_events(archive, location, events)
        _otf2.Archive_CloseEvtFiles(archive)
        if self.clock_offsets:
            self._write_local_definitions(archive)
        self._write_definitions(archive)
        _otf2.Archive_Close(archive)
        if self.markers:
            self._write_markers(path)
        return path

    @staticmethod
    def _write_events(archive: Any, location: int, events: list[tuple[Any, ...]]) -> None:
        writer = _otf2.Archive_GetEvtWriter(archive, location)
        for event, time, *arguments in events:
            attributes = None
            if arguments and isinstance(arguments[-1], dict):
                attributes = _otf2.AttributeList_New()
                for ref, (kind, value) in arguments.pop().items():
                    union = _otf2.AttributeValue()
                    union.uint64 = value
                    _otf2.AttributeList_AddAttribute(attributes, ref, kind, union)
            getattr(_otf2, f"EvtWriter_{event}")(writer, attributes, time, *arguments)
        _otf2.Archive_CloseEvtWriter(archive, writer)

    def _write_local_definitions(self, archive: Any) -> None:
        _otf2.Archive_OpenDefFiles(archive)
        for location, offset in self.clock_offsets.items():
            writer = _otf2.Archive_GetDefWriter(archive, location)
            for time in (START, START + LENGTH):
                _otf2.DefWriter_WriteClockOffset(writer, time, offset, 0.0)
            _otf2.Archive_CloseDefWriter(archive, writer)
        _otf2.Archive_CloseDefFiles(archive)

    def _write_definitions(self, archive: Any) -> None:
        writer = _otf2.Archive_GetGlobalDefWriter(archive)
        if self.clock:
            _otf2.GlobalDefWriter_WriteClockProperties(writer, *self.clock)
        records = [(record, (ref, *arguments)) for (record, ref), arguments in self.definitions.items()]
        for record, arguments in records + self.more:
            if record == "Location":
                ref, name, kind, group = arguments
                number = self.counts.get(ref, len(self.events.get(ref, ())))
                arguments = ref, name, kind, number, group  # noqa: PLW2901
            getattr(_otf2, f"GlobalDefWriter_Write{record}")(writer, *arguments)
        _otf2.Archive_CloseGlobalDefWriter(archive, writer)

    def _write_markers(self, path: Path) -> None:
        reader = _otf2.Reader_Open(str(path / "traces.otf2"))
        _otf2.Reader_SetSerialCollectiveCallbacks(reader)
        writer = _otf2.Reader_GetMarkerWriter(reader)
        _otf2.MarkerWriter_WriteDefMarker(writer, 0, "losses", "lost", _otf2.SEVERITY_HIGH)
        for marker in self.markers:
            _otf2.MarkerWriter_WriteMarker(writer, *marker)
        _otf2.Reader_CloseMarkerWriter(reader, writer)
        _otf2.Reader_Close(reader)


def verify_one_by_one(path: Path) -> Verification:
    """The verdict without the fast path for plain events: every event meets the rules."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Screen, "plain", lambda _self, columns, *_: np.zeros(columns.number, np.bool_))
        patch.setattr(Screen, "leaves", lambda _self, columns, *_: np.full(columns.number, -1))
        return verify(path)


class Breakage:
    """Changes of a right trace, each of which breaks one rule; a decorator for them."""

    def __init__(self) -> None:
        self.changes: list[tuple[str, Callable[[Trace], object]]] = []

    def __call__(self, rule: str) -> Callable[[Callable[[Trace], object]], Callable[[Trace], object]]:
        """Mark a change as one that breaks ``rule``."""

        def mark(change: Callable[[Trace], object]) -> Callable[[Trace], object]:
            self.changes.append((rule, change))
            return change

        return mark

    @property
    def ids(self) -> list[str]:
        """A test id for each."""
        return [f"{rule}:{change.__name__[1:]}" for rule, change in self.changes]

    @staticmethod
    def check(rule: str, change: Callable[[Trace], object], trace: Trace, path: Path) -> None:
        """Write the changed trace; assert that it breaks that rule and no other, with and without the fast path."""
        change(trace)
        verdict = verify(trace.write(path))
        assert verdict == verify_one_by_one(path)
        assert set(verdict.broken) == {rule}, verdict.findings
        assert verdict.ok is (RULES[rule].severity is not Severity.ERROR)

    @staticmethod
    def add_event(trace: Trace, *event: object, location: int = 1) -> None:
        """Add an event at the end of a location."""
        trace.events[location].append(event)

    @staticmethod
    def redefine(trace: Trace, key: tuple[str, int], place: int, value: object) -> None:
        """Exchange a value of a definition."""
        values = list(trace.definitions[key])
        values[place] = value
        trace.definitions[key] = tuple(values)


def correct() -> Trace:
    """Two threads of a process that share a file, and a disk: layouts (i) and (ii)."""
    trace = Trace()
    trace.definitions = _definitions()
    trace.more = [
        ("IoPreCreatedHandleState", (DISK, _otf2.IO_ACCESS_MODE_READ_WRITE, NO_FLAGS)),
        ("IoFileProperty", (0, S["Mount Point"], _otf2.TYPE_STRING, _string(S["/tmp"]))),
    ]
    time = START
    offset = {0: (_otf2.TYPE_UINT64, 4096)}
    trace.events[0] = [
        ("Enter", time, 1),
        created(time + 10),
        ("Leave", time + 10, 1),
        ("Enter", time + 20, 0),
        ("IoOperationBegin", time + 20, READ_FD, READ, BLOCKING, 512, 1, offset),
        complete(time + 30, READ_FD, 1, 512),
        ("Leave", time + 30, 0),
        ("IoDuplicateHandle", time + 40, READ_FD, WRITE_FD, NO_FLAGS),
        ("IoDestroyHandle", time + 200, READ_FD),
    ]
    trace.events[1] = [
        begin(time + 50, WRITE_FD, 2, mode=WRITE),
        complete(time + 60, WRITE_FD, 2),
        ("IoSeek", time + 70, WRITE_FD, 0, _otf2.IO_SEEK_FROM_START, 0),
        begin(time + 80, WRITE_FD, 3, mode=FLUSH, size=NONE64),
        complete(time + 90, WRITE_FD, 3, NONE64),
        ("IoDestroyHandle", time + 100, WRITE_FD),
        ("IoDeleteFile", time + 110, 0, 0),
    ]
    trace.events[2] = [
        begin(time + 300, DISK, 4, flags=NON_BLOCKING),
        ("IoOperationIssued", time + 310, DISK, 4),
        ("IoOperationTest", time + 320, DISK, 4),
        complete(time + 330, DISK, 4),
        begin(time + 340, DISK, 5, flags=NON_BLOCKING),
        ("IoOperationIssued", time + 340, DISK, 5),
        ("IoOperationCancelled", time + LENGTH, DISK, 5),
    ]
    trace.markers = [(time + 500, 100, 0, _otf2.MARKER_SCOPE_LOCATION, 1, "3 lost")]
    return trace


def _definitions() -> dict[tuple[str, int], tuple[Any, ...]]:
    return {("String", ref): (text,) for ref, text in enumerate(_STRINGS)} | {
        ("Attribute", 0): (S["Offset"], S["offset in the file"], _otf2.TYPE_UINT64),
        ("SystemTreeNode", 0): (S["host"], S["machine"], NONE32),
        ("LocationGroup", 0): (S["process 10"], _otf2.LOCATION_GROUP_TYPE_PROCESS, 0, NONE32),
        ("LocationGroup", 1): (S["disk vda"], _otf2.LOCATION_GROUP_TYPE_PROCESS, 0, NONE32),
        ("Location", 0): (S["thread 10"], _otf2.LOCATION_TYPE_CPU_THREAD, 0),
        ("Location", 1): (S["thread 11"], _otf2.LOCATION_TYPE_CPU_THREAD, 0),
        ("Location", 2): (S["vda"], _otf2.LOCATION_TYPE_CPU_THREAD, 1),
        ("Region", 0): _region("read", _otf2.REGION_ROLE_FILE_IO),
        ("Region", 1): _region("open", _otf2.REGION_ROLE_FILE_IO_METADATA),
        ("Group", 0): (
            *(S["I/O regions"], _otf2.GROUP_TYPE_REGIONS, _otf2.PARADIGM_USER, _otf2.GROUP_FLAG_NONE, [0, 1]),
        ),
        ("IoParadigm", 0): _paradigm("POSIX", "POSIX I/O"),
        ("IoParadigm", 1): _paradigm("block_io", "block requests"),
        ("IoRegularFile", 0): (S["/tmp/file"], 0),
        ("IoRegularFile", 1): (S["vda requests"], 0),
        ("IoHandle", READ_FD): (S[""], 0, 0, _otf2.IO_HANDLE_FLAG_NONE, NONE32, NONE32),
        ("IoHandle", WRITE_FD): (S[""], 0, 0, _otf2.IO_HANDLE_FLAG_NONE, NONE32, NONE32),
        ("IoHandle", DISK): (S[""], 1, 1, _otf2.IO_HANDLE_FLAG_PRE_CREATED, NONE32, NONE32),
    }


def created(time: int, handle: int = READ_FD) -> tuple[Any, ...]:
    """IoCreateHandle."""
    flags = _otf2.IO_CREATION_FLAG_NONE
    return "IoCreateHandle", time, handle, _otf2.IO_ACCESS_MODE_READ_WRITE, flags, NO_FLAGS


def begin(
    time: int, handle: int, ident: int, *, mode: Any = READ, flags: Any = BLOCKING, size: int = 512
) -> tuple[Any, ...]:
    """IoOperationBegin."""
    return "IoOperationBegin", time, handle, mode, flags, size, ident


def complete(time: int, handle: int, ident: int, size: int = 512) -> tuple[Any, ...]:
    """IoOperationComplete."""
    return "IoOperationComplete", time, handle, size, ident


def _region(name: str, role: Any) -> tuple[Any, ...]:
    return (S[name], S[name], S[""], role, _otf2.PARADIGM_USER, _otf2.REGION_FLAG_NONE, NONE32, 0, 0)


def _paradigm(ident: str, name: str) -> tuple[Any, ...]:
    return (S[ident], S[name], _otf2.IO_PARADIGM_CLASS_SERIAL, _otf2.IO_PARADIGM_FLAG_OS, [], [], [])


def _string(ref: int) -> Any:
    value = _otf2.AttributeValue()
    value.stringRef = ref
    return value
