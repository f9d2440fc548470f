"""What lo2io's programs in the kernel tell about a child's calls: their records, decoded.

A test gives the rig a function, and a child calls the function. The test gets the result, and the records of the
child's thread in order.

>>> with loaded(["close"]) as rig:
...     value, records = rig.watch(lambda: os.close(os.dup(1)))
>>> [record.name for record in records if isinstance(record, CallRecord)]
['close']
"""

from __future__ import annotations

import contextlib
import errno
import os
import pickle
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from lo2io.native._lib import ffi, lib

from lo2io.capture.events.programs import Kernel, KernelRequest, open_kernel
from lo2io.catalog.catalog import load_catalog
from lo2io.kernel import tracefs
from lo2io.model.events import Event

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from lo2io.model import CallFilter

T = TypeVar("T")

NONE = -(1 << 63)
"""A position or value that was not read."""
RING_BYTES = 1 << 22
HEADER_BYTES = 8
NO_FD = 999_999


@dataclass(frozen=True)
class FileRecord:
    """``lo2_kernel_file``."""

    time_ns: int
    file: int
    inode: int
    device: int
    position: int
    fd: int
    generation: int
    mode: int
    links: int
    open_flags: int
    mount: int
    magic: int
    of: int
    flags: int
    names: tuple[bytes, ...]


@dataclass(frozen=True)
class PathRecord:
    """``lo2_kernel_path``."""

    time_ns: int
    place: int
    flags: int
    path: bytes
    names: tuple[bytes, ...]


@dataclass(frozen=True)
class CallRecord:
    """``lo2_kernel_call``, or ``lo2_kernel_exit`` of a call that lost its CPU, whose start is unknown then."""

    name: str
    begin_ns: int | None
    end_ns: int
    result: int
    position: int
    value: int


Record = FileRecord | PathRecord | CallRecord


class Rig:
    """Programs that are loaded and attached for some calls.

    Attributes:
        kernel: They, and their rings.
    """

    def __init__(self, kernel: Kernel, events: Sequence[Event]) -> None:
        self.kernel = kernel
        self._names = {event.id: event.name.split("_", 2)[2] for event in events}

    def watch(self, work: Callable[[], T]) -> tuple[T, list[Record]]:
        """Let a child, on one CPU, do something.

        Returns:
            What it returned, and the records of its main thread from the start of ``work`` to its end.
        """
        go, begun = os.pipe()
        answer, answered = os.pipe()
        child = os.fork()
        if child == 0:
            _be_child(work, go, begun, answered)
        for fd in (go, answered):
            os.close(fd)
        self.kernel.select(child)
        self.kernel.switch(on=True)
        os.write(begun, b"g")
        os.close(begun)
        with open(answer, "rb") as file:  # noqa: PTH123 # a descriptor
            content = file.read()
        os.waitpid(child, 0)
        self.kernel.switch(on=False)
        done, value = pickle.loads(content)  # noqa: S301 # the child's own
        assert done, value
        return value, _between_marks(list(self._drain(child)))

    def _drain(self, tid: int) -> Iterator[Record]:
        found = []
        for ring in self.kernel.rings:
            length = ring.fill_bytes
            content = b"".join(bytes(part) for part in ring.peek(length))
            ring.release(length)
            at = 0
            while at < len(content):
                size = int.from_bytes(content[at : at + 4], "little")
                found.append(content[at + HEADER_BYTES :][:size])
                at += HEADER_BYTES + size + 7 & ~7
        for record in sorted(found, key=lambda each: int.from_bytes(each[:8], "little")):
            if int.from_bytes(record[8:12], "little") == tid:
                yield from self._decode(record)

    def _decode(self, record: bytes) -> Iterator[Record]:
        kind = int.from_bytes(record[12:14], "little")
        if kind == lib.LO2_KERNEL_FILE:
            yield decode_file(record)
        elif kind == lib.LO2_KERNEL_PATH:
            yield decode_path(record)
        elif kind == lib.LO2_KERNEL_CALL:
            size = ffi.offsetof("lo2_kernel_call", "args")
            call = ffi.new("lo2_kernel_call *")
            ffi.memmove(call, record, size)
            begin = call.head.time_ns
            end = begin + call.duration_ns
            yield CallRecord(self._names[call.head.event], begin, end, call.result, call.position, call.value)
        elif kind == lib.LO2_KERNEL_EXIT:
            left = ffi.new("lo2_kernel_exit *")
            ffi.memmove(left, record, ffi.sizeof("lo2_kernel_exit"))
            name = self._names[left.head.event]
            yield CallRecord(name, None, left.head.time_ns, left.result, left.position, left.value)


def _be_child(work: Callable[[], object], go: int, begun: int, answered: int) -> None:
    """Work as the test says, and never return."""
    done = False
    try:
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
        os.close(begun)
        os.read(go, 1)
        _mark()
        value: object = work()
        _mark()
        done = True
    except BaseException as error:  # noqa: BLE001 # the parent says it
        value = repr(error)
    content = pickle.dumps((done, value))
    while content:
        content = content[os.write(answered, content) :]
    os._exit(0)


def _mark() -> None:
    """Make a call that nobody else makes. It marks the start or the end of the child's work."""
    with contextlib.suppress(OSError):
        os.close(NO_FD)


def _between_marks(records: list[Record]) -> list[Record]:
    marks = [place for place, record in enumerate(records) if isinstance(record, CallRecord) and is_mark(record)]
    assert len(marks) == 2  # before and after the work
    return records[marks[0] + 1 : marks[1]]


def is_mark(record: CallRecord) -> bool:
    """True if the rig made this call."""
    return record.name == "close" and record.result == -errno.EBADF


def decode_file(record: bytes) -> FileRecord:
    """Decode a ``lo2_kernel_file``, which fills ``record``."""
    size = ffi.sizeof("lo2_kernel_file")
    found = ffi.new("lo2_kernel_file *")
    ffi.memmove(found, record, size)
    assert len(record) == size + found.names_length
    numbers = [getattr(found, name) for name in FileRecord.__dataclass_fields__ if name not in {"time_ns", "names"}]
    return FileRecord(found.head.time_ns, *numbers, _split(record[size:]))


def decode_path(record: bytes) -> PathRecord:
    """Decode a ``lo2_kernel_path``, which fills ``record``."""
    size = ffi.sizeof("lo2_kernel_path")
    found = ffi.new("lo2_kernel_path *")
    ffi.memmove(found, record, size)
    assert len(record) == size + found.path_length + found.names_length
    names = record[size + found.path_length :]
    return PathRecord(found.head.time_ns, found.place, found.flags, record[size:][: found.path_length], _split(names))


def _split(names: bytes) -> tuple[bytes, ...]:
    assert not names or names.endswith(b"\0")
    return tuple(names.split(b"\0")[:-1])


def join(names: Sequence[bytes]) -> bytes:
    """The path whose names come from the file upwards."""
    return b"/" + b"/".join(reversed(names))


@contextlib.contextmanager
def loaded(calls: Sequence[str], left_out: CallFilter | None = None) -> Iterator[Rig]:
    """Load programs for those of these calls that this kernel has."""
    folder = tracefs.find_tracefs()
    events = []
    for name in (f"syscalls:sys_{side}_{call}" for call in calls for side in ("enter", "exit")):
        if tracefs.event_exists(folder, name):
            layout, text = tracefs.load_format(folder, name)
            events.append(Event(name, layout.id, text, layout))
    limits = {} if left_out is None else {"left_out": left_out}
    cpus = tuple(sorted(os.sched_getaffinity(0)))
    request = KernelRequest(tuple(events), load_catalog(), cpus, RING_BYTES, calls=True, all_tasks=False, **limits)
    kernel = open_kernel(request)
    try:
        yield Rig(kernel, events)
    finally:
        kernel.close()
