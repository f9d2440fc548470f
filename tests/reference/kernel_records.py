"""Records of BPF programs, read by the slow engine: as samples, with a call as its entry and its exit."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lo2io.native._lib import ffi, lib

from lo2io.model import UNKNOWN_I64, Role
from lo2io.native.records import DISCARDED, FRAME_BYTES, KINDS, UNFINISHED, record_bytes, unpack
from reference.records import Record, Stream

if TYPE_CHECKING:
    from collections.abc import Iterator

    from reference.records import Decoder, Meaning

TEXTS = {"file": ("names_length",), "path": ("path_length", "names_length"), "exec": ("length",)}
"""Lengths of the texts that follow a record."""


def read_stream(decoder: Decoder, data: bytes) -> Stream:
    """The file of one CPU."""
    stream, at, newest, exited = Stream(), 0, None, None
    for end, body in frames(data):
        at = end
        if not body:
            continue
        head = unpack("head", body)
        kind, tid, time = KINDS.get(head.type), head.tid, head.time_ns
        told = kind in {"file", "path", "events"} and exited == (tid, time)
        for record in _records(decoder, body):
            if newest is not None and record.time < newest:
                stream.reordered += 1
            newest = record.time if newest is None else max(newest, record.time)
            # A fact about a call lies after the call's exit, and comes before it.
            stream.records.insert(len(stream.records) - told, record)
            if record.kind == "lost":
                stream.losses.append((record.values["begin"], record.time, record.values["lost"]))
                stream.lost_rows += record.values["rows"]
        if not told:
            exits = kind == "exit" or (kind == "call" and len(body) >= record_bytes("call"))
            exited = (tid, stream.records[-1].time) if exits else None
    stream.truncated = len(data) - at
    stream.records.sort(key=lambda record: record.time)
    return stream


def iter_records(data: bytes) -> Iterator[bytes]:
    """The records of a buffer or of a file, without discarded ones."""
    return (body for _, body in frames(data) if body)


def frames(data: bytes) -> Iterator[tuple[int, bytes]]:
    """The end of each record, and its content; None for a discarded one."""
    at = 0
    while len(data) - at >= FRAME_BYTES:
        length = int.from_bytes(data[at : at + 4], "little")
        size = length & ~(UNFINISHED | DISCARDED)
        end = at + FRAME_BYTES + size + -size % 8
        if length & UNFINISHED or end > len(data) or (size < record_bytes("head") and not length & DISCARDED):
            return
        yield end, b"" if length & DISCARDED else data[at + FRAME_BYTES : at + FRAME_BYTES + size]
        at = end


def _records(  # noqa: C901, PLR0912 - one case per kind of record
    decoder: Decoder, body: bytes
) -> Iterator[Record]:
    if not body:
        return
    head = unpack("head", body)
    time, tid, kind = head.time_ns, head.tid, KINDS.get(head.type, "")
    half = _Half(decoder, time, tid, head.event)
    if kind in {"call", "enter"}:
        call, at = unpack(kind, body), record_bytes(kind)
        whole = len(body) >= at
        entered = half.entered(call.nr_args, body[at:] if whole else None)
        if kind == "enter" and whole and entered.values["meaning"]:
            entered.values["unfollowed"] = call.unfollowed
        yield entered
        if kind == "call" and whole:
            yield _Half(decoder, time + call.duration_ns, tid, call.exit_event).left(call)
    elif kind == "exit":
        yield half.left(unpack("exit", body) if len(body) >= record_bytes("exit") else None)
    elif kind == "sample":
        # The fields lie after the head as they lie after the common fields in raw data.
        raw = struct.pack("<HBBi", head.event, 0, 0, tid) + body[record_bytes("head") :]
        yield Record(time, 0, "sample", decoder.sample(raw))
    elif kind == "value" and len(body) >= record_bytes(kind):
        yield Record(time, 0, "value", {"tid": tid} | _told(unpack(kind, body)))
    elif kind == "lost" and len(body) >= record_bytes(kind):
        lost = unpack(kind, body)
        begin, of_rows = min(lost.begin_ns, time), head.event == lib.LO2_LOST_ROWS or not lost.lost
        rows = max(lost.lost, 1) if of_rows else 0
        yield Record(time, 0, "lost", {"begin": begin, "lost": 0 if of_rows else lost.lost, "rows": rows})
    elif len(body) < _least(kind, body):
        yield Record(time, 0, "broken", {})
    elif kind in {"fill", "evict"}:
        yield Record(time, 0, "pages" if unpack(kind, body).pages else "broken", _pages(kind, body))
    elif kind == "iowait":
        yield Record(time, 0, "iowait", {"tid": tid, "ends": unpack(kind, body).ends})
    elif kind == "commit":
        told = {name: getattr(unpack(kind, body), name) for name in ("device", "transaction", "moment")}
        yield Record(time, 0, kind if told["moment"] < lib.LO2_COMMIT_MOMENTS else "broken", {"tid": tid} | told)
    elif kind in {"usage", "sleep"}:
        read = _usage if kind == "usage" else _sleep
        yield Record(time, 0, kind, {"tid": tid} | read(unpack(kind, body)))
    elif kind == "file":
        yield Record(time, 0, "file", {"tid": tid, "time": time} | _file(body))
    elif kind == "exec":
        told, at = unpack(kind, body), record_bytes(kind)
        yield Record(time, 0, "exec", {"tid": tid, "cut": told.cut, "command": body[at : at + told.length]})


def _pages(kind: str, body: bytes) -> dict[str, Any]:
    run = unpack(kind, body)
    values = {name: getattr(run, name) for name in ("generation", "mode", "pages", "page_bytes")}
    where = {"begin": run.begin_ns, "key": (run.device, run.inode), "first": run.first_page}
    return values | where | {"tid": run.head.tid, "evicts": kind == "evict"}


def _sleep(told: Any) -> dict[str, int]:
    return {name: getattr(told, name) for name, _ in ffi.typeof("lo2_kernel_sleep").fields if name != "head"}


def _usage(used: Any) -> dict[str, int | None]:
    """What a thread has used: its CPU time, divided in proportion to the ticks."""
    system = user = cpu = _known(used.cpu_ns)
    if cpu is not None:
        ticks = float(used.user) + float(used.system)
        part = float(cpu) * (float(used.system) / ticks) if ticks else 0.0
        system = int(part) if part < float(cpu) else cpu
        user = cpu - system
    return {
        "cpu_ns": cpu,
        "user_ns": user,
        "system_ns": system,
        "block_delay_ns": _known(used.block_delay_ns),
        "major_faults": _known(used.major_faults),
        "minor_faults": _known(used.minor_faults),
        "voluntary_switches": _known(used.voluntary),
        "involuntary_switches": _known(used.involuntary),
    }


def _known(number: int) -> int | None:
    return None if number >= 1 << 63 else number


NO_USAGE = _usage(unpack("usage", b"\xff" * record_bytes("usage")))
"""A thread without a ``USAGE`` record."""


def _least(kind: str, body: bytes) -> int:
    """The least size of such a record, with all that it announces."""
    if not kind or len(body) < record_bytes(kind):
        return 1 << 30
    record = unpack(kind, body)
    if kind == "events":
        return record_bytes(kind) + 32 * int(record.count)
    return record_bytes(kind) + sum(getattr(record, name) for name in TEXTS.get(kind, ()))


@dataclass
class _Half:
    """The entry or the exit of a call, as a sample."""

    decoder: Decoder
    time: int
    tid: int
    event: int

    def entered(self, nr_args: int, args: bytes | None) -> Record:
        values: dict[str, Any] = {"meaning": None}
        meaning = self._meaning(Role.ENTER)
        if meaning is not None and args is not None and nr_args <= 6 and len(args) >= 8 * nr_args:
            raw = bytes(16) + args[: 8 * nr_args]
            # The string of a path is not an argument.
            places = {role: place for role, place in meaning.fields.items() if not place[3]}
            if all(offset + size <= len(raw) for offset, size, _, _ in places.values()):
                values = {"meaning": meaning, "common_pid": self.tid}
                for role, (offset, size, signed, _) in places.items():
                    values[role] = int.from_bytes(raw[offset : offset + size], "little", signed=signed)
        return Record(self.time, 0, "sample", values)

    def left(self, record: Any) -> Record:
        """What a ``CALL`` or an ``EXIT`` says of the exit; None: too little of it is there."""
        meaning = self._meaning(Role.EXIT)
        if meaning is None or record is None:
            return Record(self.time, 0, "sample", {"meaning": None})
        values = {"meaning": meaning, "common_pid": self.tid, "ret": record.result}
        return Record(self.time, 0, "sample", values | _told(record))

    def _meaning(self, role: Role) -> Meaning | None:
        meaning = self.decoder.by_type.get(self.event)
        return meaning if meaning is not None and meaning.role is role else None


def _file(body: bytes) -> dict[str, Any]:
    file, at = unpack("file", body), record_bytes("file")
    members = [name for name, _ in ffi.typeof("lo2_kernel_file").fields if name not in {"head", "names_length"}]
    values = {name: getattr(file, name) for name in members} | {"names": body[at : at + file.names_length]}
    return values | {"position": None if file.position == UNKNOWN_I64 else file.position}


def _told(record: Any) -> dict[str, int | None]:
    return {
        "told_position": None if record.position == UNKNOWN_I64 else record.position,
        "told_value": None if record.value == UNKNOWN_I64 else record.value,
    }
