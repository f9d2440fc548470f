"""A spool's bytes as one list of records in time order."""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any

from lo2io.model import UNKNOWN_I64, UNKNOWN_U32, Role
from lo2io.spool.reader import SpoolReader

if TYPE_CHECKING:
    from pathlib import Path

    from lo2io.model import CallSpec, ClockSync, SpoolMeta
    from reference.specs import Specs

CLOCK_SLACK_NS = 2_000
MAX_DRIFT, SECOND = 500e-6, 10**9
JUMPED = 10**30
"""A doubt without bound."""
FIELD = re.compile(r"field:(?P<decl>[^;]*);\s*offset:(?P<o>\d+);\s*size:(?P<s>\d+);\s*signed:(?P<n>[01]);")


@dataclass
class Record:
    """One record: its place in the order, what it is, and its values."""

    time: int
    stream: int
    kind: str
    values: dict[str, Any]
    order: int = 0
    """Place in its stream, among records of one time."""


@dataclass
class Meaning:
    """One event of the spool."""

    index: int
    role: Role
    call: int
    fields: dict[str, tuple[int, int, bool, bool]]
    """Role of the field → offset, size, signed, dynamic string."""


@dataclass
class Stream:
    """The records of one file, sorted, and its faults."""

    records: list[Record] = field(default_factory=list)
    reordered: int = 0
    truncated: int = 0
    losses: list[tuple[int | None, int, int]] = field(default_factory=list)
    lost_rows: int = 0
    cpu: int | None = None
    """Index into the spool's CPUs; None: the facts."""


class Decoder:
    """Reads the files of one spool."""

    def __init__(self, path: Path, specs: Specs) -> None:
        self.reader = SpoolReader(path)
        self.meta: SpoolMeta = self.reader.meta
        self.by_type: dict[int, Meaning] = {}
        for index, (name, text) in enumerate(zip(self.meta.events, self.meta.formats, strict=True)):
            event_id = int(re.search(r"^ID: (\d+)", text, re.MULTILINE)[1])  # type: ignore[index]
            self.by_type[event_id] = _meaning(index, name, _fields(text), specs)
        syncs = self.meta.syncs
        self.margin = max(sync.error_ns for sync in syncs) + CLOCK_SLACK_NS

    def streams(self) -> list[Stream]:
        """The records that BPF programs wrote on each CPU, the CPUs' buffers, then the facts."""
        from reference.kernel_records import read_stream  # noqa: PLC0415 - it makes these records

        programs = (self.reader.kernel_streams(), self.reader.event_streams())
        kernel = [(read_stream(self, _read(paths)), cpu) for each in programs for cpu, (paths, _) in enumerate(each)]
        rings = [(self._stream(_read(paths), facts=False), cpu) for cpu, (paths, _) in enumerate(self.reader.streams())]
        facts: tuple[Stream, int | None] = (self._stream(_read(self.reader.facts), facts=True), None)
        for order, (stream, cpu) in enumerate((*kernel, *rings, facts)):
            stream.cpu = cpu
            for record in stream.records:
                record.order, record.stream = order, 0 if cpu is None else cpu
        return [stream for stream, _ in (*kernel, *rings, facts)]

    def _stream(self, data: bytes, *, facts: bool) -> Stream:
        stream, at, newest = Stream(), 0, None
        while len(data) - at >= 8:
            kind, misc, size = struct.unpack_from("<IHH", data, at)
            if size < 8 or at + size > len(data):
                break
            body = data[at + 8 : at + size]
            record = self._fact(kind, body) if facts else self._perf(kind, misc, body)
            at += size
            if record is None:
                continue
            if record.kind == "lost":
                stream.losses.append((newest, record.time, record.values["lost"]))
            if newest is not None and record.time < newest:
                stream.reordered += 1
            newest = record.time if newest is None else max(newest, record.time)
            stream.records.append(record)
        stream.truncated = len(data) - at
        stream.records.sort(key=lambda record: record.time)
        return stream

    def _perf(self, kind: int, misc: int, body: bytes) -> Record | None:
        if kind == 9:
            time, size = struct.unpack_from("<QI", body)
            return Record(time, 0, "sample", self.sample(body[12 : 12 + size]))
        if len(body) < 8:
            return None
        (time,) = struct.unpack_from("<Q", body, len(body) - 8)
        if kind in (4, 7):
            pid, ppid, tid, ptid = struct.unpack_from("<IIII", body)
            values = {"pid": pid, "tid": tid, "ppid": ppid, "ptid": ptid}
            return Record(time, 0, "fork" if kind == 7 else "exit", values)
        if kind == 3:
            pid, tid = struct.unpack_from("<II", body)
            comm = body[8:-8].split(b"\0")[0]
            return Record(time, 0, "comm", {"pid": pid, "tid": tid, "comm": comm, "exec": bool(misc & 1 << 13)})
        if kind == 1:
            _, tid, address = struct.unpack_from("<IIQ", body)
            return Record(time, 0, "mapping", {"tid": tid, "address": address, "name": body[32:-8].split(b"\0")[0]})
        lost = {"lost": struct.unpack_from("<Q", body, 8)[0]} if kind == 2 else {}
        return Record(time, 0, {2: "lost", 5: "throttle"}.get(kind, "other"), lost)

    def sample(self, raw: bytes) -> dict[str, Any]:
        """An event's fields by role, and its meaning; None: it has none."""
        if len(raw) < 8:
            return {"meaning": None}
        common_type, tid = struct.unpack_from("<H2xi", raw)
        meaning = self.by_type.get(common_type)
        if meaning is None:
            return {"meaning": None}
        values: dict[str, Any] = {"meaning": meaning, "common_pid": tid}
        for role, (offset, size, signed, dynamic) in meaning.fields.items():
            part = raw[offset : offset + size]
            if role == "rwbs":
                values[role] = part.split(b"\0")[0].decode()
            elif dynamic:
                place = int.from_bytes(part, "little")
                start = place & 0xFFFF
                values[role] = raw[start : start + (place >> 16)].split(b"\0")[0]
            else:
                values[role] = int.from_bytes(part, "little", signed=signed)
        return values

    def _fact(self, kind: int, body: bytes) -> Record | None:  # noqa: PLR0911 - one for each kind
        (time, doubt), (begin, begin_doubt) = (self._spool_time(t) for t in struct.unpack_from("<QQ", body))
        values: dict[str, Any] = {"begin": begin - self.margin - begin_doubt, "end": time}
        if kind == 0x4C01:
            pid, tid, ppid, flags = struct.unpack_from("<IIII", body, 16)
            values |= {"pid": pid, "tid": tid, "ppid": ppid, "flags": flags, "comm": body[32:48].split(b"\0")[0]}
            if len(body) >= 56:
                hierarchy, length = struct.unpack_from("<II", body, 48)
                values["cgroup"] = (hierarchy, body[56 : 56 + length]) if length <= len(body) - 56 else None
            return Record(time + self.margin, 0, "fact_task", values)
        if kind == 0x4C04:
            pid, cut, length = struct.unpack_from("<III", body, 16)
            if length > len(body) - 32:
                return None
            values |= {"pid": pid, "cut": cut, "command": body[32 : 32 + length]}
            return Record(time + self.margin, 0, "fact_command", values)
        if kind == 0x4C05:
            pid, rank = struct.unpack_from("<II", body, 16)
            return Record(time + self.margin, 0, "fact_rank", values | {"pid": pid, "rank": rank})
        if kind == 0x4C03:
            names = ("pid", "fd", "sq_entries", "cq_entries", "poller", "nr_files", "nr_buffers")
            values |= dict(zip(names, struct.unpack_from("<IiIIiII", body, 16), strict=True))
            values["jumped"] = JUMPED in (doubt, begin_doubt)
            return Record(time + self.margin + (0 if doubt == JUMPED else doubt), 0, "fact_ring", values)
        if kind != 0x4C02:
            return None
        names = ("device", "inode", "position", "pid", "fd", "open_flags", "mode", "mount", "length")
        values |= dict(zip(names, struct.unpack_from("<QQqIiIIII", body, 16), strict=True))
        values["path"] = body[64 : 64 + values["length"]]
        values["position"] = None if values["position"] == UNKNOWN_I64 else values["position"]
        values["open_flags"] = None if values["open_flags"] == UNKNOWN_U32 else values["open_flags"]
        values["jumped"] = JUMPED in (doubt, begin_doubt)
        return Record(time + self.margin + (0 if doubt == JUMPED else doubt), 0, "fact_fd", values)

    def _spool_time(self, monotonic: int) -> tuple[int, int]:
        """The time on the spool's clock, and the doubt beside the margin."""
        syncs = [self.meta.syncs[0]]
        for sync in self.meta.syncs:
            if sync.monotonic_ns > syncs[-1].monotonic_ns:
                syncs.append(sync)
        first, last = syncs[0], syncs[-1]
        if first.monotonic_ns < monotonic <= last.monotonic_ns:
            before = max((s for s in syncs if s.monotonic_ns < monotonic), key=lambda s: s.monotonic_ns)
            after = min((s for s in syncs if s.monotonic_ns >= monotonic), key=lambda s: s.monotonic_ns)
            drift = _drift(before, after)
            if drift is not None:
                return _from(before, monotonic, drift), 0
            late = after.monotonic_ns - monotonic < monotonic - before.monotonic_ns
            return _from(after if late else before, monotonic, 0.0), JUMPED
        nearest, pair = (first, syncs[:2]) if monotonic <= first.monotonic_ns else (last, syncs[-2:])
        drift = None
        if len(pair) > 1 and pair[1].monotonic_ns - pair[0].monotonic_ns >= SECOND:
            drift = _drift(*pair)
        doubt = int(abs(monotonic - nearest.monotonic_ns) * MAX_DRIFT)
        return _from(nearest, monotonic, drift or 0.0), doubt


def _read(paths: tuple[Path, ...]) -> bytes:
    return b"".join(path.read_bytes() for path in paths)


def _drift(before: ClockSync, after: ClockSync) -> float | None:
    """The drift of the spool's clock against that of facts; None if one has jumped."""
    elapsed = after.monotonic_ns - before.monotonic_ns
    parted = after.time_ns - before.time_ns - elapsed
    if abs(parted) > elapsed * MAX_DRIFT + before.error_ns + after.error_ns:
        return None
    return parted / elapsed


def _from(sync: ClockSync, monotonic: int, drift: float) -> int:
    past = monotonic - sync.monotonic_ns
    return sync.time_ns + past + int(past * drift)


@cache
def _fields(text: str) -> dict[str, tuple[int, int, bool, bool]]:
    fields = {}
    for match in FIELD.finditer(text):
        name = match["decl"].split()[-1].split("[")[0].lstrip("*")
        place = int(match["o"]), int(match["s"]), match["n"] == "1", match["decl"].startswith("__data_loc")
        fields[name] = place
    return fields


def _entry_names(call: CallSpec) -> list[tuple[str, str]]:
    """The name of a path's field: not the pointer but the string, which kernels from 6.19 on add as ``__NAME_val``."""
    return [(role, f"__{name}_val" if role == "path" else name) for role, name in call.fields.items()]


def _meaning(index: int, name: str, fields: dict[str, tuple[int, int, bool, bool]], specs: Specs) -> Meaning:
    for number, call in enumerate(specs.calls):
        if name == call.enter_event:
            mapped = {role: fields[field] for role, field in _entry_names(call) if field in fields}
            return Meaning(index, Role.ENTER, number, mapped)
        if name == call.exit_event:
            return Meaning(index, Role.EXIT, number, {"ret": fields["ret"]})
    for spec in specs.tracepoints:
        if name == spec.event:
            names = {role: (field, *spec.other_names.get(role, ())) for role, field in spec.fields.items()}
            mapped = {role: fields[n] for role, each in names.items() for n in each[::-1] if n in fields}
            return Meaning(index, spec.role, 0, mapped)
    return Meaning(index, Role.IGNORED, 0, {})
