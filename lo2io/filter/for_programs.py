"""The part of a filter that lo2io's programs in the kernel can apply to calls, beside ``for_events.py``.

As there, a call may be left out only if no other row of the trace depends on it. So the call must change neither
descriptors nor positions. If requests of rings or switches of threads are recorded, no call is left out, because those
are understood by the calls around them. Converting applies the whole filter, so the programs may let too much pass.
They never apply ``path``: the trace names a file by the first name that was proven, the kernel by its present name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lo2io.filter.for_events import device_number, find_device
from lo2io.filter.language import EQUAL, Comparison, Filter
from lo2io.filter.parser import parse_all
from lo2io.kernel.sysfs import read_devices
from lo2io.model import CallFilter, CallKind, CallSpec, Role, TracepointSpec

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from lo2io.catalog.catalog import Catalog
    from lo2io.model import BlockDevice

MAX_DEVICES = 16
"""The most devices that the programs compare with."""
_WITHOUT_EFFECT = frozenset({CallKind.META, CallKind.SYNC})
_TRANSFERS = frozenset({CallKind.READ, CallKind.WRITE})
_TASKS = "process"
"""The group of calls that start and end tasks. They show when the recording of a command begins."""


def call_filter(chosen: Filter, events: Iterable[str], devices: Sequence[BlockDevice], catalog: Catalog) -> CallFilter:
    """The part of a filter that the programs apply.

    Args:
        chosen: The filter.
        events: The recorded events.
        devices: Disks and partitions of this machine.
        catalog: The meaning of the events.
    """
    specs = catalog.specs(events)
    roles = {spec.role for spec in specs if isinstance(spec, TracepointSpec)}
    if any(role is Role.SCHED_SWITCH or role.name.startswith("RING_") for role in roles):
        return CallFilter()
    made = CallFilter(
        min_latency_ns=_least(chosen.of("latency")),
        min_bytes=_least(chosen.of("size")),
        devices=_devices(chosen.of("device"), devices),
        droppable=frozenset(spec.name for spec in specs if isinstance(spec, CallSpec) and _stands_alone(spec)),
    )
    return made or CallFilter()


def choose_calls(texts: Sequence[str], events: Iterable[str], catalog: Catalog) -> CallFilter:
    """As :func:`call_filter`, for this machine.

    Raises:
        UsageError: A text is no filter.
    """
    return call_filter(parse_all(texts), events, read_devices(), catalog)


def _stands_alone(spec: CallSpec) -> bool:
    """True if only the call's own row depends on the call. With flags (preadv2), an offset of -1 moves the position."""
    if spec.kind in _TRANSFERS:
        return "offset" in spec.fields and "flags" not in spec.fields
    return spec.kind in _WITHOUT_EFFECT and spec.group != _TASKS


def _least(comparisons: Sequence[Comparison]) -> int:
    """The least number that fits all comparisons; 0: any number fits."""
    least = 0
    for comparison in comparisons:
        values = [int(value) for value in comparison.values]
        if comparison.operator == ">":
            least = max(least, values[0] + 1)
        elif comparison.operator == ">=":
            least = max(least, values[0])
        elif comparison.operator == EQUAL:
            least = max(least, min(values))
    return least


def _devices(comparisons: Sequence[Comparison], devices: Sequence[BlockDevice]) -> tuple[int, ...]:
    """The devices that can hold files which fit the first comparison with names; empty: any device."""
    for comparison in comparisons:
        if comparison.operator != EQUAL:
            continue
        found = set()
        for name in map(str, comparison.values):
            device = find_device(name, devices)
            number = device_number(name) if device is None else device.device
            if number is not None:
                found |= {number, *(each.device for each in devices if each.disk == number)}
        if 0 < len(found) <= MAX_DEVICES:
            return tuple(sorted(found))
    return ()
