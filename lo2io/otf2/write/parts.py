"""What all definitions of a trace share: the facts behind them, unique names, counters of references."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lo2io.native._lib import lib
from lo2io.otf2.library import UNDEFINED_U32, value
from lo2io.units import split_kernel_dev

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lo2io.model import CallSpec, OpcodeSpec, SpoolMeta
    from lo2io.otf2.write.archive import Definitions
    from lo2io.otf2.write.layout import Layout
    from lo2io.otf2.write.rows import Rows

HOST_NODE = 0
"""The system tree's root."""
NO_OPCODE = 255
"""A request whose opcode the kernel did not say."""


@dataclass(slots=True)
class Trace:
    """All that definitions are made of."""

    meta: SpoolMeta
    layout: Layout
    calls: Sequence[CallSpec]
    opcodes: Mapping[int, OpcodeSpec]
    """By number."""
    rows: Rows
    native: Any
    """``lo2_otf2_writer *``."""
    start_ns: int
    stop_ns: int

    @property
    def view(self) -> Any:
        """``lo2_otf2_view *``, read anew: references may have been given out since."""
        return lib.lo2_otf2_state(self.native)

    def device_name(self, number: int) -> str:
        """``vda``, or ``dev 254:0`` if the device is not described."""
        found = next((device.name for device in self.meta.devices if device.device == number), "")
        major, minor = split_kernel_dev(number)
        return found or f"dev {major}:{minor}"

    def opcode_name(self, number: int) -> str:
        """``READ_FIXED``, or ``opcode 70`` if the opcode is not described."""
        spec = self.opcodes.get(number)
        return spec.name if spec is not None else f"opcode {number}" if number != NO_OPCODE else "unknown opcode"


class Parts:
    """Writes nodes, groups and locations of one trace. Each gets a name that no other has."""

    def __init__(self, definitions: Definitions, trace: Trace) -> None:
        self.out = definitions
        self.trace = trace
        self.scopes: dict[int, tuple[str, int]] = {}
        """What each metric location is about: the scope (``LOCATION_GROUP`` …) and its reference."""
        self._names: set[str] = set()
        self._next_node = HOST_NODE
        self._next_group = 0
        self._string_type = value("TYPE_STRING")

    def unique(self, name: str) -> int:
        """A string for a node, group or location: ViTE aborts when two of them bear the same name."""
        candidate, count = name, 1
        while candidate in self._names:
            count += 1
            candidate = f"{name} ({count})"
        self._names.add(candidate)
        return self.out.string(candidate)

    def node(self, name: str, class_name: str, parent: int, domains: Sequence[str] = ()) -> int:
        """The reference of a node of the system tree."""
        ref, self._next_node = self._next_node, self._next_node + 1
        self.out.write("SystemTreeNode", ref, self.unique(name), self.out.string(class_name), parent)
        for domain in domains:
            self.out.write("SystemTreeNodeDomain", ref, value(f"SYSTEM_TREE_DOMAIN_{domain}"))
        return ref

    def group(self, name: str, node: int, creator: int = UNDEFINED_U32, kind: str = "PROCESS") -> int:
        """The reference of a location group."""
        ref, self._next_group = self._next_group, self._next_group + 1
        group_type = value(f"LOCATION_GROUP_TYPE_{kind}")
        self.out.write("LocationGroup", ref, self.unique(name), group_type, node, creator)
        return ref

    def location(self, ref: int, name: str, group: int, kind: str = "CPU_THREAD") -> None:
        """A location the native loop has given this reference."""
        count = self.trace.view.locations[ref].nr_events
        self.out.write("Location", ref, self.unique(name), value(f"LOCATION_TYPE_{kind}"), count, group)

    def text_property(self, record: str, ref: int, name: str, text: str) -> None:
        """A property that is a string."""
        self.out.write(record, ref, self.out.string(name), self._string_type, self.out.string(text))

    def number_property(self, record: str, ref: int, name: str, number: int) -> None:
        """A property that is a number."""
        self.out.write(record, ref, self.out.string(name), value("TYPE_UINT64"), number)
