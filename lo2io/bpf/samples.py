"""Chooses the events of tracepoints that lo2io's programs can record. In: events and catalog. Out: the chosen events.

A program writes the fields of an event that ``lo2io/bpf/programs/samples.h`` lists. So it can record an event only if
the running kernel's format has these fields in the same places, and if the catalog wants no other field. The letters of
a block request (rwbs) are an exception: the program writes them where the format has them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lo2io.catalog.layouts import field_name
from lo2io.frozen import dataclass
from lo2io.model import TracepointSpec
from lo2io.native._lib import ffi, lib

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lo2io.catalog.catalog import Catalog
    from lo2io.model import EventFormat
    from lo2io.model.events import Event

PLACES: dict[str, int] = {
    name.removeprefix("LO2_SAMPLED_"): place for place, name in ffi.typeof("enum lo2_sampled").elements.items()
}
"""Tracepoint without its subsystem → its place among the tracepoints that programs record."""
_GAP = "gap"
_LETTERS, _ROOM = "rwbs", "gap_letters"
"""The field with the letters of a block request, and the member of the program's structure in which it lies."""
_LETTER_BYTES = 8
"""The program writes so many bytes there."""
_ALL_OR_NONE = "block"
"""Programs record all events of this subsystem or none. The events of a request find each other by its letters, and the
letters of a program and of the kernel differ for a write of zeroes."""


@dataclass(frozen=True, slots=True)
class BpfSample:
    """An event that a program records."""

    name: str
    """Full name, ``subsystem:event``."""
    type: int
    """The event's ``common_type``."""
    counted: bool = False
    """True if a perf event must count it, because it may happen in an interrupt."""
    letters_at: int = 0
    """Offset of the letters of a block request in the fields; 0: it has none."""

    @property
    def tracepoint(self) -> str:
        """The tracepoint's name in the kernel's functions."""
        return self.name.partition(":")[2]

    @property
    def place(self) -> int:
        """The place of the event's counters."""
        return PLACES[self.tracepoint]

    @property
    def program(self) -> str:
        """The program that records the event."""
        return f"lo2_on_{self.tracepoint}"


def plan_samples(events: Sequence[Event], catalog: Catalog, filters: Mapping[str, str]) -> tuple[BpfSample, ...]:
    """The events that programs can record, provided that tracepoints pass the arguments which the programs expect.

    Args:
        events: The recorded events.
        catalog: The meaning of the events.
        filters: Event → its filter. A program supports only the catalog's own filter.
    """
    found = []
    refused = set[str]()
    for event in events:
        spec = catalog.by_event.get(event.name)
        if not isinstance(spec, TracepointSpec):
            continue
        sample = BpfSample(event.name, event.id, spec.interrupts, _letters_at(event.layout))
        if sample.tracepoint in PLACES and filters.get(event.name, "") == spec.filter and writes(spec, event.layout):
            found.append(sample)
        else:
            refused.add(_subsystem(event.name))
    return tuple(each for each in found if _subsystem(each.name) not in refused & {_ALL_OR_NONE})


def writes(spec: TracepointSpec, layout: EventFormat) -> bool:
    """True if an event's program writes all wanted fields, at the places of the kernel's format."""
    members = ffi.typeof(f"lo2_fields_{spec.event.partition(':')[2]}").fields
    written = {
        name: (field.offset + lib.LO2_FIELDS_AT, ffi.sizeof(field.type))
        for name, field in members
        if not name.startswith(_GAP)
    }
    told = {field.name: (field.offset, field.size) for field in layout.fields}
    for name, field in members:
        room = range(field.offset, field.offset + ffi.sizeof(field.type) - _LETTER_BYTES + 1)
        if name == _ROOM and _letters_at(layout) in room and told[_LETTERS][1] >= _LETTER_BYTES:
            written[_LETTERS] = told[_LETTERS]
    wanted = {field_name(layout, spec, role) for role in spec.fields}
    return all(told.get(name) == place for name, place in written.items()) and wanted & told.keys() <= written.keys()


def _letters_at(layout: EventFormat) -> int:
    field = layout.field(_LETTERS)
    return field.offset - lib.LO2_FIELDS_AT if field else 0


def _subsystem(event: str) -> str:
    return event.partition(":")[0]
