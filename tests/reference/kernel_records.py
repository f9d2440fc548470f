"""What the kernel's own programs wrote, as the slow engine reads it: calls become samples of their entry and exit."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lo2io.model import UNKNOWN_I64, Role
from reference.records import Record, Stream

if TYPE_CHECKING:
    from collections.abc import Iterator

    from reference.records import Decoder, Meaning

CALL, ENTER, EXIT, FILE, PATH, VALUE, SQE, IOCB, LOST, EVENTS, USAGE, EXEC = range(1, 13)
FACT_BYTES = {FILE: 88, PATH: 24, VALUE: 32, SQE: 96, IOCB: 64, LOST: 32, EVENTS: 32, USAGE: 72, EXEC: 24}
LENGTHS = {FILE: (86,), PATH: (18, 20), EXEC: (16,)}
"""Where the lengths of texts stand that follow."""
CALL_BYTES, ENTER_BYTES = 56, 24
NUMBERS = [
    *("file", "inode", "device", "position", "table", "fd"),
    *("generation", "mode", "links", "open_flags", "mount", "magic"),
]
"""Of a `FILE`, in their order."""
UNFINISHED, DISCARDED = 1 << 31, 1 << 30


def read_stream(decoder: Decoder, data: bytes) -> Stream:
    """One CPU's file."""
    stream, at, newest, exited = Stream(), 0, None, None
    for end, body in _frames(data):
        at = end
        if not body:
            continue
        time, tid, kind = struct.unpack_from("<QIH", body)
        told = kind in (FILE, PATH, EVENTS) and exited == (tid, time)
        for record in _records(decoder, body):
            if newest is not None and record.time < newest:
                stream.reordered += 1
            newest = record.time if newest is None else max(newest, record.time)
            # What is told of a call lies behind its exit, and takes the place before it.
            stream.records.insert(len(stream.records) - told, record)
        if not told:
            exits = kind == EXIT or (kind == CALL and len(body) >= CALL_BYTES)
            exited = (tid, stream.records[-1].time) if exits else None
            if record.kind == "lost":
                stream.losses.append((record.values["begin"], record.time, record.values["lost"]))
    stream.truncated = len(data) - at
    stream.records.sort(key=lambda record: record.time)
    return stream


def _frames(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Where each record ends, and what it holds; nothing of one that was discarded."""
    at = 0
    while len(data) - at >= 8:
        (length,) = struct.unpack_from("<I", data, at)
        size = length & ~(UNFINISHED | DISCARDED)
        end = at + 8 + size + -size % 8
        if length & UNFINISHED or end > len(data) or (size < 16 and not length & DISCARDED):
            return
        yield end, b"" if length & DISCARDED else data[at + 8 : at + 8 + size]
        at = end


def _records(  # noqa: C901 - one case per kind of record
    decoder: Decoder, body: bytes
) -> Iterator[Record]:
    if not body:
        return
    time, tid, kind, event = struct.unpack_from("<QIHH", body)
    entry, exit_ = _Half(decoder, time, tid, event), _Half(decoder, time, tid, event)
    if kind == CALL:
        exit_event, nr_args = struct.unpack_from("<HH", body.ljust(20, b"\0"), 16)
        yield entry.entered(nr_args, body[CALL_BYTES:] if len(body) >= CALL_BYTES else None)
        if len(body) >= CALL_BYTES:
            (duration,) = struct.unpack_from("<Q", body, 24)
            yield _Half(decoder, time + duration, tid, exit_event).left(body[32:])
    elif kind == ENTER:
        (nr_args,) = struct.unpack_from("<H", body.ljust(18, b"\0"), 16)
        yield entry.entered(nr_args, body[ENTER_BYTES:] if len(body) >= ENTER_BYTES else None)
    elif kind == EXIT:
        yield exit_.left(body[16:])
    elif kind == VALUE and len(body) >= FACT_BYTES[VALUE]:
        yield Record(time, 0, "value", {"tid": tid} | _told(*struct.unpack_from("<qq", body, 16)))
    elif kind == LOST and len(body) >= FACT_BYTES[LOST]:
        begin, lost = struct.unpack_from("<QQ", body, 16)
        yield Record(time, 0, "lost", {"begin": min(begin, time), "lost": lost})
    elif len(body) < _least(kind, body):
        yield Record(time, 0, "broken", {})
    elif kind == USAGE:
        yield Record(time, 0, "usage", {"tid": tid} | _usage(*struct.unpack_from("<7Q", body, 16)))
    elif kind in (EXEC, FILE):
        yield _fact(time, tid, kind, body)


def _fact(time: int, tid: int, kind: int, body: bytes) -> Record:
    if kind == FILE:
        return Record(time, 0, "file", {"tid": tid, "time": time} | _file(body))
    length, cut = struct.unpack_from("<HB", body, 16)
    return Record(time, 0, "exec", {"tid": tid, "cut": cut, "command": body[24 : 24 + length]})


def _usage(*numbers: int) -> dict[str, int | None]:
    """What a thread has used: the time on its CPU divided as the ticks are."""
    cpu, _, _, *others = (None if number >= 1 << 63 else number for number in numbers)
    ticks = float(numbers[1]) + float(numbers[2])
    system = user = None
    if cpu is not None:
        part = float(cpu) * (float(numbers[2]) / ticks) if ticks else 0.0
        system = int(part) if part < float(cpu) else cpu
        user = cpu - system
    names = ("block_delay_ns", "major_faults", "voluntary_switches", "involuntary_switches")
    return {"cpu_ns": cpu, "user_ns": user, "system_ns": system, **dict(zip(names, others, strict=True))}


def _least(kind: int, body: bytes) -> int:
    """Bytes that such a record has, with all names that it announces."""
    least = FACT_BYTES.get(kind, 1 << 30)
    if len(body) >= least and kind == EVENTS:
        return least + 32 * int(struct.unpack_from("<I", body, 24)[0])
    if len(body) < least or kind not in LENGTHS:
        return least
    return least + sum(struct.unpack_from("<H", body, at)[0] for at in LENGTHS[kind])


@dataclass
class _Half:
    """The entry or the exit of a call, which becomes a sample."""

    decoder: Decoder
    time: int
    tid: int
    event: int

    def entered(self, nr_args: int, args: bytes | None) -> Record:
        values: dict[str, Any] = {"meaning": None}
        meaning = self._meaning(Role.ENTER)
        if meaning is not None and args is not None and nr_args <= 6 and len(args) >= 8 * nr_args:
            raw = bytes(16) + args[: 8 * nr_args]
            # The string of a path is no argument.
            places = {role: place for role, place in meaning.fields.items() if not place[3]}
            if all(offset + size <= len(raw) for offset, size, _, _ in places.values()):
                values = {"meaning": meaning, "common_pid": self.tid}
                for role, (offset, size, signed, _) in places.items():
                    values[role] = int.from_bytes(raw[offset : offset + size], "little", signed=signed)
        return Record(self.time, 0, "sample", values)

    def left(self, result: bytes) -> Record:
        meaning = self._meaning(Role.EXIT)
        if meaning is None or len(result) < 24:
            return Record(self.time, 0, "sample", {"meaning": None})
        ret, *told = struct.unpack_from("<qqq", result)
        values = {"meaning": meaning, "common_pid": self.tid, "ret": ret}
        return Record(self.time, 0, "sample", values | _told(*told))

    def _meaning(self, role: Role) -> Meaning | None:
        meaning = self.decoder.by_type.get(self.event)
        return meaning if meaning is not None and meaning.role is role else None


def _file(body: bytes) -> dict[str, Any]:
    *numbers, of, flags, length = struct.unpack_from("<QQQqQiIIIIIIBBH", body, 16)
    values = dict(zip(NUMBERS, numbers, strict=True)) | {"of": of, "flags": flags, "names": body[88 : 88 + length]}
    return values | {"position": None if values["position"] == UNKNOWN_I64 else values["position"]}


def _told(position: int, value: int) -> dict[str, int | None]:
    return {
        "told_position": None if position == UNKNOWN_I64 else position,
        "told_value": None if value == UNKNOWN_I64 else value,
    }
