"""Which events of tracepoints lo2io's programs in the kernel can record: catalog and formats in, places out.

A program writes the fields of an event as ``lo2io/bpf/programs/samples.h`` has them. So it serves only where the
running kernel's format has the same fields in the same places, and nothing is wanted that it does not write.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lo2io.catalog.layouts import field_name
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
"""Tracepoint, without its subsystem → its place among those that programs record."""
_GAP = "gap"


@dataclass(frozen=True, slots=True)
class BpfSample:
    """An event that a program records."""

    name: str
    """``subsystem:event``."""
    type: int
    """Its ``common_type``."""

    @property
    def tracepoint(self) -> str:
        """As the kernel's own functions call it."""
        return self.name.partition(":")[2]

    @property
    def place(self) -> int:
        """Of its counters."""
        return PLACES[self.tracepoint]

    @property
    def program(self) -> str:
        """That records it."""
        return f"lo2_on_{self.tracepoint}"


def plan_samples(events: Sequence[Event], catalog: Catalog, filters: Mapping[str, str]) -> tuple[BpfSample, ...]:
    """The events that programs can record, if their tracepoints hand over what the programs expect.

    Args:
        events: What is recorded.
        catalog: What they mean.
        filters: Event → what the kernel is to let pass of it: a program knows the catalog's own filter and no other.
    """
    found = []
    for event in events:
        spec = catalog.by_event.get(event.name)
        if not isinstance(spec, TracepointSpec):
            continue
        sample = BpfSample(event.name, event.id)
        if (
            not spec.interrupts
            and sample.tracepoint in PLACES
            and filters.get(event.name, "") == spec.filter
            and writes(spec, event.layout)
        ):
            found.append(sample)
    return tuple(found)


def writes(spec: TracepointSpec, layout: EventFormat) -> bool:
    """Whether an event's program writes all that is wanted of it, where the kernel's own format has it."""
    written = {
        name: (field.offset + lib.LO2_FIELDS_AT, ffi.sizeof(field.type))
        for name, field in ffi.typeof(f"lo2_fields_{spec.event.partition(':')[2]}").fields
        if not name.startswith(_GAP)
    }
    told = {field.name: (field.offset, field.size) for field in layout.fields}
    wanted = {field_name(layout, spec, role) for role in spec.fields}
    return all(told.get(name) == place for name, place in written.items()) and wanted & told.keys() <= written.keys()
