"""lo2io's kernel programs alone, without a recorder: loaded for some calls, records decoded, counts read.

>>> with loaded(["lseek"]) as rig:
...     pid, records = run(rig, lambda: os.lseek(os.open("/", os.O_RDONLY), 0, os.SEEK_SET))
>>> {(record.name, record.tid == pid) for record in records}
{('lseek', True)}
"""

from __future__ import annotations

import contextlib
import itertools
import os
import time
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lo2io.native._lib import ffi
from reference.kernel_records import iter_records

from lo2io.bpf import loader
from lo2io.capture.events.bpf_ring import KernelRing
from lo2io.catalog.call_numbers import call_number
from lo2io.catalog.catalog import load_catalog
from lo2io.kernel import abi, sysfs, tracefs
from lo2io.model import UNKNOWN_I64
from lo2io.native.records import KINDS, record_bytes, unpack

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

RING_BYTES = 1 << 22


@dataclass(frozen=True)
class Record:
    """A record of a call; its kind says which fields have a meaning."""

    kind: str
    """``call``, ``enter`` or ``exit``; ``lost``, with the first event's time and the number of events as arguments."""
    name: str
    cpu: int
    time_ns: int
    tid: int
    args: tuple[int, ...] = ()
    duration_ns: int = 0
    result: int = 0


class Loaded:
    """Programs, their buffers, and the requested calls.

    Attributes:
        programs: Attached, and switched off.
        names: The calls', in the order of their indices.
    """

    def __init__(
        self, programs: loader.Programs, names: Sequence[str], ids: dict[int, str], cpus: Sequence[int]
    ) -> None:
        self.programs = programs
        self.names = names
        self.cpus = cpus
        self._ids = ids
        self._rings = [KernelRing(programs.ring_fd(cpu), programs.ring_bytes) for cpu in cpus]

    def records(self) -> list[Record]:
        """All records in the buffers, CPU by CPU, each in the order of writing. The buffers are empty afterwards."""
        found = []
        for cpu, ring in zip(self.cpus, self._rings, strict=True):
            length = ring.fill_bytes
            parts = ring.peek(length)
            content = b"".join(bytes(part) for part in parts)
            for part in parts:
                part.release()
            ring.release(length)
            records = [(KINDS[unpack("head", record).type], record) for record in iter_records(content)]
            found += [self.decode(cpu, record) for kind, record in records if kind not in {"usage", "exec"}]
        return found

    def decode(self, cpu: int, record: bytes) -> Record:
        """Decode a record, without the buffer's header."""
        head = unpack("head", record)
        kind = KINDS[head.type]
        body = unpack(kind, record)
        if kind == "lost":
            assert (head.tid, head.event, len(record)) == (0, 0, record_bytes(kind))
            return Record(kind, "", cpu, head.time_ns, head.tid, (body.begin_ns, body.lost))
        decoded = Record(kind, self._ids[head.event].split("_", 2)[2], cpu, head.time_ns, head.tid)
        if kind in {"call", "enter"}:
            assert len(record) == record_bytes(kind) + 8 * body.nr_args
            decoded = replace(decoded, args=tuple(body.args)[: body.nr_args])
        if kind == "enter":
            return decoded
        assert body.position == body.value == UNKNOWN_I64
        if kind == "call":
            assert self._ids[body.exit_event] == self._ids[head.event].replace("enter", "exit")
            return replace(decoded, duration_ns=body.duration_ns, result=body.result)
        assert len(record) == record_bytes(kind)
        return replace(decoded, result=body.result)

    def pending(self) -> list[Record]:
        """The calls that have not returned, each the only one on its CPU."""
        return [
            self.decode(cpu, record)
            for cpu, content in self.programs.pending().items()
            for record in iter_records(content)
        ]

    def counts(self, name: str) -> tuple[tuple[int, int, int], tuple[int, int, int]]:
        """Counts of entries and of exits, over all CPUs: count, lost, left out."""
        counts = self.programs.read_counts()
        index = self.names.index(name)
        return _sums(counts[2 * index]), _sums(counts[2 * index + 1])

    def set_of_cpus(self, field: str, value: int) -> None:
        """Write a number into every CPU's memory: ``busy`` (a program works) or ``slot.occupied`` (a call runs)."""
        for cpu in self.cpus:
            ffi.addressof(self.programs._cpu(cpu)[0], *field.split("."))[0] = value

    def close(self) -> None:
        """Unmap the rings, unload the programs."""
        for ring in self._rings:
            ring.close()
        self.programs.close()


def _sums(counts: Sequence[tuple[int, int, int]]) -> tuple[int, int, int]:
    count, lost, left_out = (sum(of_cpu) for of_cpu in zip(*counts, strict=True))
    return count, lost, left_out


@contextlib.contextmanager
def loaded(
    names: Sequence[str],
    *,
    raw: bool = True,
    ring_bytes: int = RING_BYTES,
    extra: dict[str, dict[str, Any]] | None = None,
    cpus: Sequence[int] | None = None,
    **config: Any,
) -> Iterator[Loaded]:
    """Programs that write calls, without facts, for the processes that are selected.

    Args:
        names: Calls.
        raw: They are seen where all calls pass, else each at its own tracepoints, as one of unknown number always is.
        ring_bytes: Of each CPU's ring.
        extra: Call → more about it, as :class:`lo2io.bpf.loader.BpfCall` has it.
        cpus: Those that are recorded; None: all.
        config: As :class:`lo2io.bpf.loader.BpfConfig` has it.
    """
    folder = tracefs.find_tracefs()
    layouts = {
        f"sys_{side}_{name}": tracefs.load_format(folder, f"syscalls:sys_{side}_{name}")[0]
        for name in names
        for side in ("enter", "exit")
    }
    known = {call.name: call for call in load_catalog().calls}
    calls = [
        loader.BpfCall(
            enter_event=layouts[f"sys_enter_{name}"].id,
            exit_event=layouts[f"sys_exit_{name}"].id,
            enter_index=2 * place,
            exit_index=2 * place + 1,
            nr_args=sum(field.offset >= 16 for field in layouts[f"sys_enter_{name}"].fields),
            **{"flags": 0, "number": call_number(known[name]) if name in known else -1, **(extra or {}).get(name, {})},
        )
        for place, name in enumerate(names)
    ]
    settings = {"recorder": os.getpid(), "facts": False, "all_tasks": False, "single": not raw, **config}
    cpus = sysfs.read_online_cpus() if cpus is None else cpus
    programs = loader.load_programs(loader.BpfConfig(**settings), calls, cpus, ring_bytes)
    events = []
    made = Loaded(programs, names, {layout.id: name for name, layout in layouts.items()}, cpus)
    try:
        for place, call in enumerate(calls):
            for number in (call.enter_event, call.exit_event) if programs.needs_event(place) else ():
                attr = abi.EventAttr(type=abi.TYPE_TRACEPOINT, config=number, flags=abi.DISABLED)
                events.append(abi.event_open(attr, -1, cpus[0]))
                programs.attach(events[-1], place, entry=number == call.enter_event)
        programs.attach_raw()
        yield made
    finally:
        made.close()
        for fd in events:
            os.close(fd)


class Child:
    """A forked process that waits in a read, is selected, and then does its work.

    Attributes:
        pid: Its own.
    """

    def __init__(self, rig: Loaded, work: Any, *, is_selected: bool = True) -> None:
        waiting, self._go = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            code = 1
            try:
                os.close(self._go)
                os.read(waiting, 1)
                os.close(waiting)
                code = work() or 0
            finally:
                os._exit(code)
        os.close(waiting)
        while "pipe" not in self.waits_in():
            time.sleep(0.001)
        if is_selected:
            rig.programs.select(self.pid)

    def begin(self) -> None:
        """Let the child work."""
        os.write(self._go, b"g")
        os.close(self._go)

    def end(self) -> int:
        """Wait for its end; its exit code, like that of ``os.waitstatus_to_exitcode``."""
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])

    def waits_in(self) -> str:
        """The function of the kernel in which the child waits; "0" if it runs."""
        return Path(f"/proc/{self.pid}/wchan").read_text(encoding="ascii")


def run(rig: Loaded, work: Any) -> tuple[int, list[Record]]:
    """Let a child do something that ends by itself, alone or with its children. Returns its pid and all records."""
    child = Child(rig, work)
    rig.programs.switch(on=True)
    child.begin()
    assert child.end() == 0
    rig.programs.switch(on=False)
    return child.pid, rig.records()


def kinds(records: Sequence[Record], name: str) -> Counter[str]:
    """How many records of each kind a call has."""
    return Counter(record.kind for record in records if record.name == name)


def assert_in_order(records: Sequence[Record]) -> None:
    """Each CPU's records are in the order of their times, and a call's exit precedes what follows it on its CPU."""
    for before, after in itertools.pairwise(records):
        if before.cpu == after.cpu:
            assert before.time_ns + before.duration_ns <= after.time_ns
