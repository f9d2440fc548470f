"""Perfetto's trace format: packets, and interned names with numbers.

In: descriptions of tracks, and slices and counters as columns. Out: a file. This module does not know what tracks and
slices mean. ``native/perfetto/packets.c`` writes the packets of rows.

A trace is a sequence of protobuf messages. Fields: ``protos/perfetto/trace/{trace_packet,clock_snapshot}.proto``,
``track_event/{track_descriptor,process_descriptor,thread_descriptor,counter_descriptor}.proto`` and
``interned_data/interned_data.proto`` of Perfetto. The trace processor sorts packets by time, and packets of one time by
their order in the file. So columns can be written one after the other.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import IO, TYPE_CHECKING, Any, Final

import numpy as np

from lo2io.native._lib import ffi, lib
from lo2io.native.columns import pointer_to

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

OPEN: Final = -(2**63)
"""In place of a slice's end: the slice has no end."""
INSTANT: Final = 2**63 - 1
"""In place of a slice's end: the row is an instant."""
NUMBER, UNSIGNED, ADDRESS, NAMED, TEXT = range(5)
"""Kinds of notes, as in ``perfetto.h``."""
ROWS_AT_A_TIME: Final = 16384

_SEQUENCE: Final = 1
_STATE_CLEARED, _NEEDS_STATE = 1, 2
_CATEGORIES, _EVENT_NAMES, _NOTE_NAMES, _TEXTS = 1, 2, 3, 29
"""Fields of InternedData."""
_LABELS_FROM: Final = 1 << 32
"""The first number of interned texts of this module. Lower numbers are the caller's, for files."""
_TEXTS_A_PACKET: Final = 1000


def varint(value: int) -> bytes:
    """A number in protobuf's form. Negative numbers have 64 bits."""
    value &= 2**64 - 1
    out = bytearray()
    while value >= 0x80:  # noqa: PLR2004 - seven bits a byte
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def number(key: int, value: int | None) -> bytes:
    """A field with a number; None: no field."""
    return b"" if value is None else varint(key << 3) + varint(value)


def message(key: int, *parts: bytes) -> bytes:
    """A field with a message made of other fields."""
    content = b"".join(parts)
    return varint(key << 3 | 2) + varint(len(content)) + content


def text(key: int, value: str | None) -> bytes:
    """A field with a text; None: no field."""
    return b"" if value is None else message(key, value.encode(errors="replace"))


@dataclass(frozen=True, slots=True)
class Note:
    """A debug annotation for each row: a column of numbers or texts.

    For texts, ``values`` are n + 1 offsets into ``text``. For named values, they are numbers of interned texts.
    """

    name: str
    values: NDArray[Any]
    kind: int = NUMBER
    unknown: int | None = OPEN
    """A row with this value has no note; None: each row has a note."""
    text: bytes = b""

    def rows(self, chosen: NDArray[np.bool_]) -> Note:
        """The note for some of the rows. Notes with texts do not support this."""
        return Note(self.name, self.values[chosen], self.kind, self.unknown)


@dataclass(frozen=True, slots=True)
class Slices:
    """Slices and instants, one for each row. All columns have the same length."""

    category: str
    names: NDArray[np.uint32]
    """Numbers from :meth:`PacketWriter.names`."""
    track: NDArray[np.uint64]
    begin_ns: NDArray[np.int64]
    end_ns: NDArray[np.int64]
    """Ends of slices. ``OPEN``: the slice has no end. ``INSTANT``: the row is an instant."""
    notes: Sequence[Note] = ()
    flows: Sequence[NDArray[np.uint64]] = ()
    """Ids of flows, at most four columns; 0: none."""
    last_flow: NDArray[np.uint64] | None = None
    """Ids of flows that end here; 0: none."""

    def rows(self, chosen: NDArray[np.bool_]) -> Slices:
        """Some of the rows, without notes with texts."""
        return Slices(
            self.category,
            self.names[chosen],
            self.track[chosen],
            self.begin_ns[chosen],
            self.end_ns[chosen],
            [note.rows(chosen) for note in self.notes],
            [flow[chosen] for flow in self.flows],
            None if self.last_flow is None else self.last_flow[chosen],
        )


@dataclass(slots=True)
class PacketWriter:
    """Writes packets of one sequence to a file."""

    file: IO[bytes]
    clock: int
    """Number of the clock of all times (``builtin_clock.proto``)."""
    _interned: dict[tuple[int, str], int] = field(default_factory=dict)
    _buffer: Any = None

    def begin(self, snapshots: Iterable[dict[int, int]]) -> None:
        """Write the first packets: the state that all packets need, and snapshots of the clocks.

        Args:
            snapshots: For each moment, clock → time.
        """
        self.file.write(MAGIC)
        self._packet(number(13, _NEEDS_STATE), message(59, number(58, self.clock)))
        for clocks in snapshots:
            readings = [message(1, number(1, clock), number(2, time)) for clock, time in clocks.items()]
            self._packet(message(6, *readings, number(2, self.clock)))

    def describe(
        self,
        uuid: int,
        *,
        parent: int | None = None,
        name: str | None = None,
        more: bytes = b"",
        time_ns: int | None = None,
    ) -> None:
        """Describe a track, valid from ``time_ns`` on. ``more`` are further fields of its TrackDescriptor."""
        self._packet(number(8, time_ns), message(60, number(1, uuid), number(5, parent), text(2, name), more))

    def name(self, label: str) -> int:
        """The number of a name of slices."""
        return self._intern(_EVENT_NAMES, label)

    def names(self, labels: Sequence[str]) -> NDArray[np.uint32]:
        """The numbers of names of slices."""
        return np.array([self.name(label) for label in labels], np.uint32)

    def labels(self, labels: Sequence[str]) -> NDArray[np.int64]:
        """The numbers of texts of notes."""
        return np.array([self._intern(_TEXTS, label) for label in labels], np.int64)

    def intern_texts(self, first: int, texts: Sequence[tuple[int, str]]) -> None:
        """Write texts of notes under the caller's numbers: ``first`` plus each number, below 2³²."""
        for start in range(0, len(texts), _TEXTS_A_PACKET):
            part = texts[start : start + _TEXTS_A_PACKET]
            entries = [message(_TEXTS, number(1, first + key), text(2, value)) for key, value in part]
            self._packet(number(13, _NEEDS_STATE), message(12, *entries))

    def slices(self, slices: Slices) -> None:
        """Write all slices."""
        parts = (slices.track, slices.begin_ns, slices.end_ns, slices.names)
        columns = [
            np.ascontiguousarray(part, kind)
            for part, kind in zip(parts, (np.uint64, np.int64, np.int64, np.uint32), strict=True)
        ]
        flows = [np.ascontiguousarray(flow, np.uint64) for flow in slices.flows]
        last = None if slices.last_flow is None else np.ascontiguousarray(slices.last_flow, np.uint64)
        values = [np.ascontiguousarray(note.values).astype(np.int64, copy=False) for note in slices.notes]
        native = ffi.new("lo2_perfetto_slices *")
        notes = ffi.new("lo2_perfetto_note[]", len(values))
        native.category = self._intern(_CATEGORIES, slices.category)
        native.notes, native.nr_notes, native.nr_flows = notes, len(values), len(flows)
        texts = [ffi.from_buffer(note.text) for note in slices.notes]
        for index, note in enumerate(slices.notes):
            notes[index].name = self._intern(_NOTE_NAMES, note.name)
            notes[index].kind, notes[index].always = note.kind, note.unknown is None
            notes[index].unknown, notes[index].text = note.unknown or 0, texts[index]
        for begin in range(0, len(slices.track), ROWS_AT_A_TIME):
            native.nr = min(ROWS_AT_A_TIME, len(slices.track) - begin)
            native.track, native.begin_ns, native.end_ns, native.name = (
                _pointer(kind, column, begin)
                for kind, column in zip(("uint64_t", "int64_t", "int64_t", "uint32_t"), columns, strict=True)
            )
            for index, flow in enumerate(flows):
                native.flows[index] = _pointer("uint64_t", flow, begin)
            native.last_flow = ffi.NULL if last is None else _pointer("uint64_t", last, begin)
            room = native.nr * (lib.LO2_PERFETTO_ROW_BYTES + len(values) * lib.LO2_PERFETTO_NOTE_BYTES)
            for index, (note, column) in enumerate(zip(slices.notes, values, strict=True)):
                notes[index].values = _pointer("int64_t", column, begin)
                room += int(column[begin + native.nr] - column[begin]) if note.kind == TEXT else 0
            out = self._room(room)
            self._flush(lib.lo2_perfetto_slices_write(native, out))

    def counters(self, track: NDArray[np.uint64], time_ns: NDArray[np.int64], value: NDArray[np.int64]) -> None:
        """Write values of counters. Each value holds from its time on."""
        numbers = [np.ascontiguousarray(column, np.int64) for column in (time_ns, value)]
        columns = [np.ascontiguousarray(track, np.uint64), *numbers]
        for begin in range(0, len(track), ROWS_AT_A_TIME):
            rows = min(ROWS_AT_A_TIME, len(track) - begin)
            pointers = [
                _pointer(kind, column, begin)
                for kind, column in zip(("uint64_t", "int64_t", "int64_t"), columns, strict=True)
            ]
            out = self._room(rows * lib.LO2_PERFETTO_ROW_BYTES)
            self._flush(lib.lo2_perfetto_counters_write(rows, *pointers, out))

    def _intern(self, kind: int, label: str) -> int:
        found = self._interned.get((kind, label))
        if found is None:
            found = len(self._interned) + 1 + (_LABELS_FROM if kind == _TEXTS else 0)
            self._interned[kind, label] = found
            self._packet(number(13, _NEEDS_STATE), message(12, message(kind, number(1, found), text(2, label))))
        return found

    def _packet(self, *parts: bytes) -> None:
        self.file.write(message(1, number(10, _SEQUENCE), *parts))

    def _room(self, size: int) -> Any:
        if self._buffer is None or len(self._buffer) < size:
            self._buffer = np.empty(size, np.uint8)
        return ffi.from_buffer("uint8_t[]", self._buffer)

    def _flush(self, size: int) -> None:
        self.file.write(self._buffer[:size])


def _pointer(kind: str, column: NDArray[Any], row: int) -> Any:
    """A pointer to a row of a column, which the caller keeps alive."""
    return pointer_to(column[row:], kind)


MAGIC: Final = message(
    1,
    number(10, _SEQUENCE),
    number(13, _STATE_CLEARED),
    message(12, message(_CATEGORIES, number(1, 2**31), text(2, "lo2io"))),
)
"""The first packet of a trace that lo2io wrote. :mod:`lo2io.exports.formats` recognizes such a file by it."""
