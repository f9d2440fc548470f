"""The part of a filter that the kernel can apply: fewer events, and filters of the block tracepoints.

A sample may be left out only if no row of the trace depends on it. Two rules follow from this. First, all tracepoints
of a block request pass, or none does. So filters use only the device's number and the letter of the operation, which
are the same in all of them; size and flags change on the way. Second, if any calls or requests of rings can pass,
calls that open, close, read, write or seek are recorded, because later ones depend on their descriptors and positions.
"""

from __future__ import annotations

import difflib
import re
from dataclasses import replace
from typing import TYPE_CHECKING

from lo2io.errors import UsageError
from lo2io.filter.language import DIFFERENT, EQUAL, Comparison, Filter
from lo2io.filter.parser import parse_all
from lo2io.kernel.sysfs import read_devices
from lo2io.model import CallKind, CallSpec, RequestOp, Role, TracepointSpec
from lo2io.units import kernel_dev

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from lo2io.catalog.catalog import Catalog, Selection
    from lo2io.model import BlockDevice

_BIO_ROLES = frozenset({Role.BIO_FRONTMERGE, Role.BIO_FLUSH})
"""Roles of bios. A bio names the partition that it was sent to; a request names the disk."""
_REQUEST_ROLES = _BIO_ROLES | {
    Role.RQ_INSERT,
    Role.RQ_ISSUE,
    Role.RQ_COMPLETE,
    Role.RQ_REQUEUE,
    Role.RQ_MERGE,
}
_RING_ROLES = frozenset(role for role in Role if role.name.startswith("RING_"))
_WITHOUT_EFFECT = frozenset({CallKind.META, CallKind.SYNC})
"""Kinds of calls that change neither descriptors nor positions."""
_LETTERS = {
    RequestOp.READ: "R",
    RequestOp.WRITE: "W",
    RequestOp.DISCARD: "D",
    RequestOp.SECURE_ERASE: "DE",
    RequestOp.WRITE_ZEROES: "WZ",
    RequestOp.ZONE: "Z",
}
"""Operation → first letters of rwbs, after an F for a preflush. WZ also begins with W (blk_fill_rwbs in
kernel/trace/blktrace.c)."""
_NUMBERS = re.compile(r"([0-9]{1,4}):([0-9]{1,7})")


def kernel_filters(chosen: Filter, selection: Selection, devices: Sequence[BlockDevice], catalog: Catalog) -> Selection:
    """Give the kernel the part of a filter that it can apply. Converting applies the whole filter.

    Args:
        chosen: The filter.
        selection: The choice of ``--events``.
        devices: Disks and partitions of this machine.
        catalog: The meaning of the events.

    Returns:
        The events that are still needed, and their filters in the kernel, which include the events' own filters.

    Raises:
        UsageError: A device does not exist, or no record of the chosen events can pass the filter.
    """
    if not chosen:
        return selection
    check_devices(chosen, devices)
    specs = {event: catalog.by_event[event] for event in selection.events}
    operations = chosen.operations()
    calls = {spec.name for spec in specs.values() if isinstance(spec, CallSpec)} & operations.calls
    requests = frozenset[RequestOp]() if chosen.of("path") else operations.requests
    if not any(_role(spec) in _REQUEST_ROLES for spec in specs.values()):
        requests = frozenset()
    # Rings' requests use descriptors that calls opened, and calls use descriptors that rings' requests opened.
    rings = operations.opcodes and any(_role(spec) in _RING_ROLES for spec in specs.values())
    descriptors = bool(calls or rings)
    if not descriptors and not requests:
        raise UsageError(
            f"record what passes `{chosen}`",
            "none of the chosen events can pass",
            "leave a comparison out, or choose other events with -e",
        )
    watched = any(_role(spec) is Role.SCHED_SWITCH for spec in specs.values())
    kept = tuple(
        event
        for event, spec in specs.items()
        if _needed(spec, calls, requests, descriptors=descriptors) or (watched and _role(spec) in _REQUEST_ROLES)
    )
    filters = {event: text for event, text in selection.filters.items() if event in kept}
    if not watched:  # all requests of a thread tell when it waits for a device
        for event in kept:
            text = _block_filter(specs[event], chosen, requests, devices)
            if text:
                filters[event] = f"({filters[event]}) && ({text})" if event in filters else text
    return replace(selection, events=kept, optional=selection.optional & set(kept), filters=filters)


def choose(texts: Sequence[str], selection: Selection, catalog: Catalog) -> tuple[Selection, str]:
    """The events to record on this machine under filters, and the filters as one text.

    Raises:
        UsageError: As for :func:`kernel_filters` and :func:`lo2io.filter.parser.parse`.
    """
    chosen = parse_all(texts)
    return kernel_filters(chosen, selection, read_devices(), catalog), str(chosen)


def check_devices(chosen: Filter, devices: Sequence[BlockDevice]) -> None:
    """Refuse names of devices that do not exist, and partitions with an unknown place on their disk.

    Raises:
        UsageError: There is such a name. The remedy has similar names.
    """
    for comparison in chosen.of("device"):
        if comparison.operator not in {EQUAL, DIFFERENT}:
            continue
        for name in comparison.values:
            device = find_device(str(name), devices)
            if device is None and not _NUMBERS.fullmatch(str(name)):
                known = [one.name for one in devices]
                close = difflib.get_close_matches(str(name), known, n=3, cutoff=0.5) or sorted(known)[:8]
                raise UsageError(
                    f"apply `{comparison}`",
                    f"no block device is called {name}",
                    f"there are {', '.join(close)}; MAJOR:MINOR works, too" if close else "`lsblk` lists all devices",
                )
            if device is not None and device.disk is not None and device.start_sector is None:
                raise UsageError(
                    f"apply `{comparison}`",
                    f"the place of {name} on its disk is not known, and requests name disks",
                    "name the disk",
                )


def find_device(name: str, devices: Sequence[BlockDevice]) -> BlockDevice | None:
    """The device with this name, or with this ``MAJOR:MINOR``."""
    return next((one for one in devices if one.name == name or one.device == device_number(name)), None)


def device_number(text: str) -> int | None:
    """The kernel's number of ``MAJOR:MINOR``; None: the text is a name."""
    numbers = _NUMBERS.fullmatch(text)
    return kernel_dev(int(numbers[1]), int(numbers[2])) if numbers else None


def _role(spec: CallSpec | TracepointSpec) -> Role | None:
    return spec.role if isinstance(spec, TracepointSpec) else None


def _needed(
    spec: CallSpec | TracepointSpec, calls: Collection[str], requests: Collection[RequestOp], *, descriptors: bool
) -> bool:
    """True if a row that can pass depends on an event. ``descriptors``: rows depend on descriptors and positions."""
    if isinstance(spec, CallSpec):
        return descriptors and (spec.name in calls or spec.kind not in _WITHOUT_EFFECT)
    if spec.role in _RING_ROLES:
        return descriptors
    if spec.role is Role.BIO_FLUSH:
        return RequestOp.FLUSH in requests
    return bool(requests) or spec.role not in _REQUEST_ROLES


def _block_filter(
    spec: CallSpec | TracepointSpec, chosen: Filter, requests: Collection[RequestOp], devices: Sequence[BlockDevice]
) -> str:
    """The filter in the kernel's syntax (Documentation/trace/events.rst); empty: everything passes."""
    if isinstance(spec, CallSpec) or spec.role not in _REQUEST_ROLES:
        return ""
    parts = [*_device_parts(spec, chosen, devices)]
    if spec.role is not Role.BIO_FLUSH:  # a flush bio has a filter of its own, and only flushes need it
        parts += [*_operation_parts(spec, requests)]
    return " && ".join(f"({part})" for part in parts) if len(parts) > 1 else "".join(parts)


def _device_parts(spec: TracepointSpec, chosen: Filter, devices: Sequence[BlockDevice]) -> Iterator[str]:
    field = spec.fields["dev"]
    for comparison in chosen.of("device"):
        numbers = _numbers(comparison, devices)
        if spec.role in _BIO_ROLES:
            numbers |= {device.device for device in devices if device.disk in numbers}
        if comparison.operator == EQUAL:
            yield " || ".join(f"{field} == {number}" for number in sorted(numbers))
        elif numbers:
            yield " && ".join(f"{field} != {number}" for number in sorted(numbers))


def _numbers(comparison: Comparison, devices: Sequence[BlockDevice]) -> set[int]:
    """The numbers of the disks in a comparison. Empty for patterns, which may match devices that come later."""
    if comparison.operator not in {EQUAL, DIFFERENT}:
        return set()
    found = set()
    for name in map(str, comparison.values):
        device = find_device(name, devices)
        number = device_number(name) if device is None else device.device
        if device is not None and device.disk is not None:
            # Only some requests of a partition's disk pass. Converting tells them apart by their sectors.
            number = None if comparison.negative else device.disk
        if number is not None:
            found.add(number)
    return found


def _operation_parts(spec: TracepointSpec, requests: Collection[RequestOp]) -> Iterator[str]:
    """The parts of a filter that the operations pass, and also others with the same letters."""
    if RequestOp.OTHER in requests:  # OTHER has letters that are not known here
        return
    rwbs = spec.fields["rwbs"]
    letters = [letter for one, letter in _LETTERS.items() if one in requests]
    tests = [f'{rwbs} ~ "{before}{letter}*"' for letter in letters for before in ("", "F")]
    if RequestOp.FLUSH in requests:
        tests += [f'{rwbs} == "F"', f'{rwbs} ~ "FF*"']
        # A write without sectors is a flush, too: see docs/explanation/rules/block.md.
        empty = " || ".join(f'{rwbs} ~ "{before}{letter}*"' for letter in "RWD" for before in ("", "F"))
        tests.append(f"({spec.fields['nr_sector']} == 0 && ({empty}))")
    yield " || ".join(tests)
