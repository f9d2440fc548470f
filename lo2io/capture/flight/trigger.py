"""Triggers: a threshold in, the block requests that pass it out, while the recording goes on.

The text of a trigger is a filter's (docs/reference/filters.md) of few fields: ``latency``, which it must have, and
``device`` and ``operation``. The latency is the device's: from a request's last issue to its completion. Samples are
looked at by ``native/capture/trigger.c`` as they are drained; without a trigger nothing is.
"""

from __future__ import annotations

import time
import weakref
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lo2io.errors import CaptureError, UsageError
from lo2io.model import RequestOp, Role
from lo2io.native._lib import ffi, lib
from lo2io.units import format_duration

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lo2io.catalog.layouts import Layout
    from lo2io.filter.language import Comparison
    from lo2io.model import BlockDevice

FIELDS = frozenset({"latency", "device", "operation", "kind"})
MAX_HITS = 256
"""So many are found between two looks; more would not change that there is one."""
PERIOD_NS = 100_000_000
MANY = 1 << 15
"""So long, and so many issues and completions, are gathered before they are looked at."""
_EVENTS = {Role.RQ_ISSUE: "block:block_rq_issue", Role.RQ_COMPLETE: "block:block_rq_complete"}


@dataclass(frozen=True, slots=True)
class Trigger:
    """What fires."""

    text: str
    least_ns: int
    """Requests that took so long, or longer."""
    operations: frozenset[RequestOp]
    devices: tuple[BlockDevice, ...] | None
    """Disks; None: all, those that come later, too."""


def parse_trigger(text: str, devices: Sequence[BlockDevice]) -> Trigger:
    """Read ``latency > 100ms and device == vda``.

    Args:
        text: The expression.
        devices: The machine's disks and partitions.

    Raises:
        UsageError: It is none, or says what a trigger cannot look at.
    """
    from lo2io.filter.parser import parse  # noqa: PLC0415 - few recordings have one, and it reads the catalog

    parsed = parse(text)
    tried = f"trigger by {text!r}"
    for comparison in parsed.comparisons:
        if comparison.field not in FIELDS:
            raise UsageError(
                tried, f"a trigger does not look at {comparison.field}", "write 'latency > 100ms and device == vda'"
            )
    limits = parsed.of("latency")
    if not limits or any(limit.operator not in {">", ">="} for limit in limits):
        raise UsageError(tried, "it does not say how slow a request must be", "write 'latency > 100ms'")
    operations = parsed.operations().requests
    if not operations:
        raise UsageError(tried, "no block request is such an operation", "read, write, flush, discard …")
    return Trigger(
        text,
        max(int(limit.values[0]) + (limit.operator == ">") for limit in limits),
        operations,
        _chosen_disks(tried, parsed.of("device"), devices),
    )


def _chosen_disks(
    tried: str, comparisons: Sequence[Comparison], devices: Sequence[BlockDevice]
) -> tuple[BlockDevice, ...] | None:
    if not comparisons:
        return None
    chosen = [
        device
        for device in devices
        if all(comparison.accepts(device.name) is not comparison.negative for comparison in comparisons)
    ]
    disks = tuple(device for device in chosen if device.disk is None)
    if not disks:
        names = ", ".join(device.name for device in devices if device.disk is None)
        answer = "requests name disks, not their partitions" if chosen else "there is no such disk"
        raise UsageError(tried, answer, f"the disks are {names}")
    return disks


class Watcher:
    """Finds the requests that fire a trigger.

    Args:
        trigger: What to look for.
        layout: Of the recorded events.
        nr_rings: How many there are.
        devices: For their names.

    Attributes:
        nr_hits: Requests that were slow enough.
        nr_fired: Dumps that were asked for, and not refused.

    Raises:
        UsageError: The events it needs are not recorded.
        CaptureError: There is no memory for it.
    """

    def __init__(self, trigger: Trigger, layout: Layout, nr_rings: int, devices: Sequence[BlockDevice]) -> None:
        self.trigger = trigger
        self.nr_hits = 0
        self.nr_fired = 0
        self._nr_gathered = 0
        self._looked_ns = 0
        self._names = {device.device: device.name for device in devices}
        by_role = {event.role: event for event in layout.events}
        missing = [name for role, name in _EVENTS.items() if role not in by_role]
        if missing:
            raise UsageError(
                f"trigger by {trigger.text!r}", f"{' and '.join(missing)} are not recorded", "add `-e +block`"
            )
        natives = []
        for role in _EVENTS:
            native = ffi.new("lo2_event *")
            for place, field in enumerate(by_role[role].fields):
                if field is not None:
                    native.fields[place].offset = field.offset
                    native.fields[place].size = field.size
                    native.fields[place].is_signed = field.signed
            natives.append(native)
        disks = ffi.new("uint32_t[]", [disk.device for disk in trigger.devices or ()])
        config = ffi.new(
            "lo2_watch_config *",
            {
                "nr_rings": nr_rings,
                "type_offset": layout.type_offset,
                "issue_type": by_role[Role.RQ_ISSUE].type,
                "complete_type": by_role[Role.RQ_COMPLETE].type,
                "operations": sum(1 << operation for operation in trigger.operations),
                "devices": disks,
                "nr_devices": len(disks),
                "least_ns": trigger.least_ns,
            },
        )
        self._native = lib.lo2_watch_new(config, *natives)
        if self._native == ffi.NULL:
            raise CaptureError(f"trigger by {trigger.text!r}", "out of memory", "free some")
        weakref.finalize(self, lib.lo2_watch_free, self._native)
        self._hits = ffi.new("lo2_hit[]", MAX_HITS)

    def feed(self, index: int, views: Sequence[memoryview]) -> None:
        """Look at bytes just drained from a ring."""
        for view in views:
            with ffi.from_buffer("uint8_t[]", view) as content:
                self._nr_gathered = lib.lo2_watch_feed(self._native, index, content, len(view))

    @property
    def is_due(self) -> bool:
        """Whether it is time to drain all rings and :meth:`take_hits`."""
        late = time.monotonic_ns() - self._looked_ns >= PERIOD_NS
        return self._nr_gathered > 0 and (late or self._nr_gathered >= MANY)

    def take_hits(self) -> list[str]:
        """The slow requests found since the last time, in words; every ring has been drained."""
        count = lib.lo2_watch_hits(self._native, self._hits, MAX_HITS)
        self._nr_gathered = 0
        self._looked_ns = time.monotonic_ns()
        self.nr_hits += count
        return [self._describe(self._hits[index]) for index in range(count)]

    def summary(self) -> str:
        """What came of it, for the end."""
        return (
            f"the trigger {self.trigger.text!r} was met by {self.nr_hits:,} request{'' if self.nr_hits == 1 else 's'} "
            f"and had {self.nr_fired:,} window{'' if self.nr_fired == 1 else 's'} written"
        )

    def _describe(self, hit: Any) -> str:
        device, sector = hit.device, hit.sector
        took = format_duration(hit.complete_time_ns - hit.issue_time_ns)
        name = self._names.get(device, f"{device >> 20}:{device & 0xFFFFF}")
        operation = RequestOp(hit.operation).name.lower()
        return f"a {operation} at sector {sector} of {name} took {took}"
