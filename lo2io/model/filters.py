"""What lo2io's programs in the kernel leave out of a recording."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CallFilter:
    """What the programs leave out; by default, and if it is false, nothing.

    Attributes:
        min_latency_ns: Calls that took less.
        min_bytes: Calls that asked for less.
        devices: Kernel numbers; calls about regular files and directories on other block devices. Empty: none.
        droppable: Only calls of these names.
    """

    min_latency_ns: int = 0
    min_bytes: int = 0
    devices: tuple[int, ...] = ()
    droppable: frozenset[str] = frozenset()

    def __bool__(self) -> bool:
        return bool(self.droppable) and bool(self.min_latency_ns or self.min_bytes or self.devices)
