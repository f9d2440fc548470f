"""Records of BPF programs, written by hand into the spools of :mod:`perfwriter`.

Layouts are those of ``lo2io/bpf/programs/records.h``. :class:`Programs` does to the history of a machine what the
programs do to real calls.

>>> spool = KernelSpool(folder / "spool", 1).kernel_call(60_000, 0, 10, "read", 512, fd=3, count=512)
>>> sorted(path.name for path in spool.write().iterdir())
['cpu-0000.calls', 'cpu-0000.ring', 'facts.ring', 'spool.json']
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from lo2io.native._lib import ffi, lib

from build.perfwriter import SpoolBuilder
from lo2io.model import UNKNOWN_I64
from lo2io.native.records import framed, pack
from lo2io.spool.format import events_name, kernel_name

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence
    from pathlib import Path

    from lo2io.model import SpoolMeta

WHOLE, DELETED, MOVED, SLOT = lib.LO2_FILE_WHOLE, lib.LO2_FILE_DELETED, lib.LO2_FILE_MOVED, lib.LO2_FILE_SLOT
OF_RESULT, OF_ARGUMENT = lib.LO2_FILE_OF_RESULT, lib.LO2_FILE_OF_ARGUMENT
OF_REQUEST = lib.LO2_FILE_OF_REQUEST
EXT4 = 0xEF53
USAGE = tuple(name for name, _ in ffi.typeof("lo2_kernel_usage").fields if name != "head")
"""Members of a ``USAGE``."""


def _number(value: int | None) -> int:
    return UNKNOWN_I64 if value is None else value


def _shortest(asked: bytes) -> bytes:
    """The part of ``lo2_asked`` that the programs write: they leave out its last members if those tell nothing."""
    nothing = bytes(ffi.buffer(ffi.new("lo2_asked *", {"bytes": 2**64 - 1})))
    ends = (ffi.offsetof("lo2_asked", "offset"), ffi.offsetof("lo2_asked", "buf_index"))
    return next((asked[:end] for end in ends if asked[end:] == nothing[end:]), asked)


class KernelSpool(SpoolBuilder):
    """Like the spools of perf samples, but with records of calls, unless ``backend`` is ``perf``.

    ``sampled`` names the subsystems whose events are records, too.
    """

    def __init__(
        self, path: Path, cpus: int = 2, *, backend: str = "bpf", sampled: Collection[str] = (), **options: Any
    ) -> None:
        super().__init__(path, cpus, **options)
        self.backend = backend
        self.calls: list[list[bytes]] = [[] for _ in range(cpus)]
        self.events: list[list[bytes]] = [[] for _ in range(cpus)]
        self.asked = b""
        """``lo2_asked`` of the request whose submission is the next ``SAMPLE``."""
        self._sampled = tuple(name for name in self.layouts if name.partition(":")[0] in sampled)

    def event(self, t: int, cpu: int, tid: int, name: str, **fields: int | bytes) -> KernelSpool:
        """An event: a ``SAMPLE`` if its subsystem is ``sampled``, else a sample of perf."""
        if name not in self._sampled:
            super().event(t, cpu, tid, name, **fields)
            return self
        raw = self.layouts[name].pack(0, 0, fields)
        tail = raw[lib.LO2_FIELDS_AT :]
        if self.asked:
            length = ffi.sizeof("lo2_fields_io_uring_submit_req")
            tail, self.asked = tail[:length].ljust(length, b"\0") + _shortest(self.asked), b""
        record = pack("sample", t, tid, event=self._counted(cpu, name), tail=tail)
        self.events[cpu].append(framed(record))
        return self

    def events_lost(self, t: int, cpu: int, lost: int, begin: int, *, rows: bool = False) -> KernelSpool:
        """``LOST`` among the events: from ``begin`` to ``t``, so many found their buffer full, or so many rows."""
        self.events[cpu].append(framed(pack("lost", t, 0, event=int(rows), begin_ns=begin, lost=lost)))
        return self

    def interrupted(self, cpu: int, by: int) -> KernelSpool:
        """So many events of an interrupt came between the time of the last event and its place in the buffer."""
        events = self.events[cpu]
        if len(events) > by:
            events.append(events.pop(-1 - by))
        return self

    def kernel(self, cpu: int, body: bytes, flags: int = 0) -> KernelSpool:
        """Any record."""
        self.calls[cpu].append(framed(body, flags))
        return self

    def record(self, kind: str, t: int, cpu: int, tid: int, **members: Any) -> KernelSpool:
        """A record of a kind, made by :func:`lo2io.native.records.pack`."""
        return self.kernel(cpu, pack(kind, t, tid, **members))

    def arguments(self, call: str, values: Mapping[str, int | bytes]) -> bytes:
        """The call's arguments, 8 bytes each, without the strings that a kernel of this era would copy."""
        layout = self.layouts[f"syscalls:sys_enter_{call}"]
        raw = layout.pack(0, 0, values)
        return raw[16 : 16 + 8 * sum(size == 8 and offset >= 16 for _, offset, size, _ in layout.fields)]

    def _counted(self, cpu: int, name: str) -> int:
        self.samples[name][cpu] += 1
        return self.ids[name]

    def kernel_call(
        self,
        t: int,
        cpu: int,
        tid: int,
        call: str,
        ret: int = 0,
        *,
        duration: int = 1,
        position: int | None = None,
        value: int | None = None,
        **args: int | bytes,
    ) -> KernelSpool:
        """``CALL``: from ``t`` to ``t + duration``, on one CPU."""
        entry, exit_ = (self._counted(cpu, f"syscalls:sys_{half}_{call}") for half in ("enter", "exit"))
        packed = self.arguments(call, args)
        return self.record(
            "call",
            t,
            cpu,
            tid,
            event=entry,
            exit_event=exit_,
            nr_args=len(packed) // 8,
            duration_ns=duration,
            result=ret,
            position=_number(position),
            value=_number(value),
            tail=packed,
        )

    def kernel_enter(self, t: int, cpu: int, tid: int, call: str, **args: int | bytes) -> KernelSpool:
        """``ENTER``: the thread left the CPU inside of its call."""
        packed = self.arguments(call, args)
        entry = self._counted(cpu, f"syscalls:sys_enter_{call}")
        return self.record("enter", t, cpu, tid, event=entry, nr_args=len(packed) // 8, tail=packed)

    def kernel_exit(
        self,
        t: int,
        cpu: int,
        tid: int,
        call: str,
        ret: int = 0,
        *,
        position: int | None = None,
        value: int | None = None,
    ) -> KernelSpool:
        """``EXIT`` of a call whose entry was an ``ENTER``, or was not seen."""
        event = self._counted(cpu, f"syscalls:sys_exit_{call}")
        told = {"position": _number(position), "value": _number(value)}
        return self.record("exit", t, cpu, tid, event=event, result=ret, **told)

    def kernel_value(
        self, t: int, cpu: int, tid: int, *, position: int | None = None, value: int | None = None
    ) -> KernelSpool:
        """``VALUE``, just before the sample of an exit."""
        return self.record("value", t, cpu, tid, position=_number(position), value=_number(value))

    def kernel_usage(self, t: int, cpu: int, tid: int, *numbers: int) -> KernelSpool:
        """``USAGE``: the numbers in the order of ``lo2_kernel_usage``."""
        return self.kernel(cpu, pack("usage", t, tid, **dict(zip(USAGE, numbers, strict=True))))

    def kernel_lost(self, t: int, cpu: int, lost: int, begin: int) -> KernelSpool:
        """``LOST``: from ``begin`` to ``t``, so many entries and exits found the buffer full."""
        return self.record("lost", t, cpu, 0, begin_ns=begin, lost=lost)

    def kernel_file(
        self,
        t: int,
        cpu: int,
        tid: int,
        fd: int,
        names: Sequence[bytes] = (),
        *,
        file: int = 0xFFFF_8880_0000_0000,
        inode: int = 1,
        device: int = 8 << 20 | 1,
        position: int | None = None,
        generation: int = 0,
        mode: int = 0o100644,
        links: int = 1,
        open_flags: int = 0,
        mount: int = 25,
        magic: int = EXT4,
        of: int = OF_RESULT,
        flags: int = WHOLE,
        table: int = 0,
    ) -> KernelSpool:
        """``FILE``; the names go from the file upwards."""
        text = b"".join(name + b"\0" for name in names)
        return self.record(
            "file",
            t,
            cpu,
            tid,
            file=file,
            inode=inode,
            device=device,
            position=_number(position),
            table=table,
            fd=fd,
            generation=generation,
            mode=mode,
            links=links,
            open_flags=open_flags,
            mount=mount,
            magic=magic,
            of=of,
            flags=flags,
            names_length=len(text),
            tail=text,
        )

    def kernel_path(
        self,
        t: int,
        cpu: int,
        tid: int,
        path: bytes,
        names: Sequence[bytes] = (),
        *,
        place: int = 0,
        flags: int = WHOLE,
    ) -> KernelSpool:
        """``PATH``; the names are those of the path's directory, upwards."""
        text = b"".join(name + b"\0" for name in names)
        lengths = {"path_length": len(path), "names_length": len(text)}
        return self.record("path", t, cpu, tid, place=place, flags=flags, **lengths, tail=path + text)

    def exec(self, t: int, cpu: int, tid: int, command: bytes, *, cut: bool = False) -> KernelSpool:
        """``EXEC``: the arguments of a new program."""
        return self.record("exec", t, cpu, tid, length=len(command), cut=cut, tail=command)

    def meta(self) -> SpoolMeta:
        """The content of ``spool.json``."""
        told = {"backend": self.backend, "kernel_facts": True, "kernel_events": self._sampled}
        return dataclasses.replace(super().meta(), clock="monotonic", **told)  # type: ignore[arg-type]

    def write(self, **changes: object) -> Path:
        """Write all files; ``changes`` replace values of ``spool.json``."""
        path = super().write(**changes)
        for cpu, records in enumerate(self.calls):
            (path / kernel_name(cpu)).write_bytes(b"".join(records))
        for cpu, records in enumerate(self.events if self._sampled else ()):
            (path / events_name(cpu)).write_bytes(b"".join(records))
        return path


@dataclasses.dataclass
class _Slot:
    """The call on a CPU."""

    t: int
    tid: int
    call: str
    args: dict[str, int | bytes]


class Programs:
    """Turns a machine's entries and exits into the records that the programs write.

    Args:
        builder: Takes the records.
        leaves: For each step, whether the thread in a call on that step's CPU has left it, unseen by the history.
        told: For each exit, the position and the value that a program tells.
    """

    def __init__(
        self, builder: KernelSpool, leaves: Iterator[bool], told: Iterator[tuple[int | None, int | None]]
    ) -> None:
        self.builder = builder
        self.leaves = leaves
        self.told = told
        self.slots: dict[int, _Slot] = {}

    def replay(self, history: Sequence[tuple[str, tuple[Any, ...], dict[str, Any]]], *, whole: bool = True) -> None:
        """Write the whole history, or a part of it, and at last the content of the slots."""
        for method, args, options in history:
            if not method.startswith("fact") and next(self.leaves):
                self.leave(args[1])
            if method in ("enter", "exit"):
                getattr(self, method)(*args, **options)
            else:
                getattr(self.builder, method)(*args, **options)
        if whole:
            self.end()

    def end(self) -> None:
        """Write the content of the slots."""
        for cpu in list(self.slots):
            self.leave(cpu)

    def leave(self, cpu: int) -> None:
        """Another thread gets the CPU."""
        slot = self.slots.pop(cpu, None)
        if slot is not None:
            self.builder.kernel_enter(slot.t, cpu, slot.tid, slot.call, **slot.args)

    def enter(self, t: int, cpu: int, tid: int, call: str, **args: int | bytes) -> None:
        """An entry waits in the slot. The slot's old call left the CPU, or its exit was lost."""
        self.leave(cpu)
        self.slots[cpu] = _Slot(t, tid, call, args)

    def exit(self, t: int, cpu: int, tid: int, call: str, ret: int = 0) -> None:
        """An exit that finds its entry in the slot becomes one record with it."""
        position, value = next(self.told)
        slot = self.slots.get(cpu)
        if slot is not None and (slot.tid, slot.call) == (tid, call):
            del self.slots[cpu]
            told: dict[str, Any] = {"position": position, "value": value}
            self.builder.kernel_call(slot.t, cpu, tid, call, ret, duration=t - slot.t, **told, **slot.args)
        else:
            self.leave(cpu)
            self.builder.kernel_exit(t, cpu, tid, call, ret, position=position, value=value)
