"""The calls that lo2io's programs in the kernel leave out of a recording."""

from __future__ import annotations

from lo2io.frozen import dataclass


@dataclass(frozen=True, slots=True)
class CallFilter:
    """The limits below which the programs leave calls out. A limit that is 0 or empty, as by default, has no effect.

    Attributes:
        min_latency_ns: Leave out calls that took less.
        min_bytes: Leave out calls that asked for less.
        devices: Kernel numbers. Leave out calls about regular files and directories on other block devices.
        droppable: Leave out only calls with these names.
    """

    min_latency_ns: int = 0
    min_bytes: int = 0
    devices: tuple[int, ...] = ()
    droppable: frozenset[str] = frozenset()

    def __bool__(self) -> bool:
        return bool(self.droppable) and bool(self.min_latency_ns or self.min_bytes or self.devices)
