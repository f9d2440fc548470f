"""Shared by all definitions of a trace: the facts behind them, unique names, counters of references."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lo2io.native._lib import lib
from lo2io.otf2.library import UNDEFINED_U32
from lo2io.otf2.values import value
from lo2io.units import split_kernel_dev

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lo2io.model import CallSpec, OpcodeSpec, SpoolMeta
    from lo2io.otf2.write.archive import Definitions
    from lo2io.otf2.write.layout import Layout
    from lo2io.otf2.write.rows import Rows

MACHINE_NODE, HOST_NODE = 0, 1
"""References of the system tree's root, and of the recorded host below it.

Score-P's trees begin so, and otf-profiler counts hosts as nodes of class ``node``.
"""
NO_OPCODE = 255
"""The opcode of a request if the kernel did not tell it."""


@dataclass(slots=True)
class Trace:
    """All facts that definitions are made of."""

    meta: SpoolMeta
    layout: Layout
    calls: Sequence[CallSpec]
    opcodes: Mapping[int, OpcodeSpec]
    """Number → opcode."""
    rows: Rows
    native: Any
    """``lo2_otf2_writer *``."""
    start_ns: int
    stop_ns: int
    stacks: Mapping[int, str]
    """Number of a program's stack → its functions."""

    @property
    def view(self) -> Any:
        """``lo2_otf2_view *``. Each access reads it anew, since more references may have been given out."""
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
    """Writes nodes, groups and locations of one trace. Each gets a unique name."""

    def __init__(self, definitions: Definitions, trace: Trace) -> None:
        self.out = definitions
        self.trace = trace
        self.scopes: dict[int, tuple[str, int]] = {}
        """Metric location → scope of its metrics (``LOCATION_GROUP`` …), and the scope's reference."""
        self._names: dict[str, int] = {}
        """Name → how many locations and groups have asked for it."""
        self._next_node = MACHINE_NODE
        self._next_group = 0
        self._string_type = value("TYPE_STRING")

    def unique(self, name: str) -> int:
        """A string for a unique name of a node, group or location: ViTE aborts if two names are equal."""
        candidate, count = name, self._names.get(name, 0) + 1
        while candidate in self._names:
            candidate, count = f"{name} ({count})", count + 1
        self._names[name] = max(1, count - 1)
        self._names[candidate] = self._names.get(candidate, 1)
        return self.out.string(candidate)

    def node(self, name: str, class_name: str, parent: int, domains: Sequence[str] = ()) -> int:
        """Write a node of the system tree; return its reference."""
        ref, self._next_node = self._next_node, self._next_node + 1
        self.out.write("SystemTreeNode", ref, self.unique(name), self.out.string(class_name), parent)
        for domain in domains:
            self.out.write("SystemTreeNodeDomain", ref, value(f"SYSTEM_TREE_DOMAIN_{domain}"))
        return ref

    def group(self, name: str, node: int, creator: int = UNDEFINED_U32, kind: str = "PROCESS") -> int:
        """Write a location group; return its reference."""
        ref, self._next_group = self._next_group, self._next_group + 1
        group_type = value(f"LOCATION_GROUP_TYPE_{kind}")
        self.out.write("LocationGroup", ref, self.unique(name), group_type, node, creator)
        return ref

    def location(self, ref: int, name: str, group: int, kind: str = "CPU_THREAD") -> None:
        """Write a location with the reference that the native loop gave it."""
        count = self.trace.view.locations[ref].nr_events
        self.out.write("Location", ref, self.unique(name), value(f"LOCATION_TYPE_{kind}"), count, group)

    def text_property(self, record: str, ref: int, name: str, text: str) -> None:
        """Write a property with a text."""
        self.out.write(record, ref, self.out.string(name), self._string_type, self.out.string(text))

    def number_property(self, record: str, ref: int, name: str, number: int) -> None:
        """Write a property with a number."""
        self.out.write(record, ref, self.out.string(name), value("TYPE_UINT64"), number)
