"""The layouts by which the engine reads samples, from the spool's ``format`` texts and the catalog.

In: names of events with their format texts, and the fields' meaning by the catalog. Out: one row for each
``common_type``, with role, call and layouts of fields. This module sees no samples.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from lo2io.catalog.files import EXIT_FIELD, REQUEST_ROLES, REQUIRED_REQUEST_ROLES, SAMPLE_ROLES
from lo2io.catalog.files import LONE_FIELDS as LONE_ROLE_FIELDS
from lo2io.catalog.rings import RING_FIELDS, RING_ROLE_FIELDS
from lo2io.errors import SpoolError
from lo2io.frozen import dataclass
from lo2io.kernel.tracefs import parse_format
from lo2io.model import CallSpec, EventFormat, FieldLayout, Role, TracepointSpec
from lo2io.native._lib import lib

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from lo2io.catalog.catalog import Catalog


def _ids(roles: Iterable[str], prefix: str = "") -> Mapping[str, int]:
    """Field roles → ``enum lo2_field_id`` of ``lo2io/native/api/tracepoints.h``."""
    return {role: getattr(lib, f"LO2_FIELD_{prefix}{role.upper()}") for role in roles}


CALL_FIELDS = _ids((*SAMPLE_ROLES, EXIT_FIELD))
"""Role of a call's field → place among the layouts."""
BLOCK_FIELDS = _ids(REQUEST_ROLES)
LONE_FIELDS: Mapping[Role, Mapping[str, int]] = {
    Role.SCHED_SWITCH: _ids(LONE_ROLE_FIELDS[Role.SCHED_SWITCH]),
    Role.CGROUP_ATTACH: _ids(LONE_ROLE_FIELDS[Role.CGROUP_ATTACH], "CGROUP_"),
}
"""The same for tracepoints that take part in no operation. All fields are required."""
RING_PLACES = _ids(RING_FIELDS, "RING_")
"""The same for io_uring's tracepoints. A kernel may lack any of the fields."""
NR_FIELDS: int = lib.LO2_NR_FIELDS
"""The most fields of an event."""
MAX_FIELD_BYTES, MAX_FIELD_OFFSET = 0xFF, 0xFFFF
"""The greatest values in ``lo2_field`` of ``lo2io/native/api/tracepoints.h``."""
SCHED_WAITING, SCHED_BLOCKED = 0xFF, 0x02
"""Bits of ``prev_state`` in Linux 4.14 to 6.18, if a format does not name them: all states of waiting, and ``D``."""
_STATE = re.compile(r"\{\s*(0x[0-9a-fA-F]{1,8}|\d{1,9}),\s*\"([A-Za-z])\"\s*\}")
ARGUMENTS_AT, ARGUMENT_BYTES, MAX_ARGUMENTS = 16, 8, 6
"""Offset and size of an entry's arguments and of an exit's result in samples of 64 bit kernels (``struct
syscall_trace_enter``, kernel/trace/trace.h). Programs' records have the same, so the same layouts serve both."""


@dataclass(frozen=True, slots=True)
class EventLayout:
    """The layout of one event.

    ``fields[i]`` is the field of ``enum lo2_field_id`` i; None: the event has no such field.
    """

    event: int
    """Index into the spool's events."""
    type: int
    """``common_type`` of the event's samples."""
    role: Role
    call: int
    """Index into the catalog's calls; 0 for tracepoints that are no calls."""
    fields: tuple[FieldLayout | None, ...]


@dataclass(frozen=True, slots=True)
class Layout:
    """The layouts of all samples of a spool."""

    events: tuple[EventLayout, ...]
    type_offset: int
    """Offset of ``common_type`` in the raw data."""
    pid_offset: int
    """Offset of ``common_pid``, which is the kernel's name for a tid."""
    sched_waiting: int = SCHED_WAITING
    """Bits of a switch's ``prev_state`` for waiting. None of them is set if the thread was preempted."""
    sched_blocked: int = SCHED_BLOCKED
    """Bits among them for an uninterruptible wait."""


def compile_layout(
    events: Sequence[str], formats: Sequence[str], catalog: Catalog, *, kernel_records: bool = False
) -> Layout:
    """Combine the places of fields (the kernel's formats) with their meaning (the catalog).

    Args:
        events: Full names (``subsystem:event``), in the spool's order.
        formats: The ``format`` file of each event, from the recorded kernel.
        catalog: The meaning of events. Unknown events are only counted.
        kernel_records: True if calls may be records of lo2io's programs. Their arguments have the places of samples of
            64 bit kernels.

    Raises:
        SpoolError: A format cannot be parsed, or lacks a required field; or with ``kernel_records`` an argument has
            another place.
    """
    enters = {call.enter_event: index for index, call in enumerate(catalog.calls)}
    exits = {call.exit_event: index for index, call in enumerate(catalog.calls)}
    tracepoints = {spec.event: spec for spec in catalog.tracepoints}
    layouts = []
    type_offset, pid_offset, states = 0, 4, (SCHED_WAITING, SCHED_BLOCKED)
    for index, (name, text) in enumerate(zip(events, formats, strict=True)):
        event_format = _parse(name, text)
        type_offset = _required(event_format, "common_type").offset
        pid_offset = _required(event_format, "common_pid").offset
        role, call, fields = Role.IGNORED, 0, _no_fields()
        if name in enters:
            role, call = Role.ENTER, enters[name]
            fields = _entry_fields(event_format, catalog.calls[call])
        elif name in exits:
            role, call = Role.EXIT, exits[name]
            fields = _fields(event_format, {EXIT_FIELD: EXIT_FIELD}, CALL_FIELDS, required=(EXIT_FIELD,))
        elif name in tracepoints:
            role, fields = _tracepoint_fields(event_format, tracepoints[name])
            states = _states(text) if role is Role.SCHED_SWITCH else states
        if kernel_records and role in {Role.ENTER, Role.EXIT}:
            _check_arguments(event_format, fields, 1 if role is Role.EXIT else MAX_ARGUMENTS)
        layouts.append(EventLayout(index, event_format.id, role, call, fields))
    return Layout(tuple(layouts), type_offset, pid_offset, *states)


def _parse(name: str, text: str) -> EventFormat:
    try:
        return parse_format(text)
    except ValueError as error:
        raise SpoolError(f"read the format of {name}", str(error), "the spool is damaged: record again") from error


def _states(text: str) -> tuple[int, int]:
    """Bits of ``prev_state`` from the ``print fmt`` of ``sched_switch``: all, and those of ``D``."""
    bits = [
        (int(value, 16 if value[1:2] == "x" else 10), letter)
        for value, letter in _STATE.findall(text.partition("print fmt:")[2])
    ]
    if not any(letter == "D" for _, letter in bits):
        return SCHED_WAITING, SCHED_BLOCKED
    waiting = blocked = 0
    for value, letter in bits:
        waiting |= value
        blocked |= value if letter == "D" else 0
    return waiting & 0xFFFFFFFF, blocked & 0xFFFFFFFF


def _required(event_format: EventFormat, name: str) -> FieldLayout:
    layout = event_format.field(name)
    if layout is None:
        raise SpoolError(
            f"read the samples of {event_format.name}",
            f"its format has no field {name}",
            "this kernel differs from all that tracepoints/ describes: `lo2io tracepoints check` says where",
        )
    return layout


def _no_fields() -> tuple[FieldLayout | None, ...]:
    return (None,) * NR_FIELDS


def _fields(
    event_format: EventFormat, meanings: Mapping[str, str], places: Mapping[str, int], required: Sequence[str]
) -> tuple[FieldLayout | None, ...]:
    """The fields that the kernel has. A missing field is an error only if it is required."""
    found: list[FieldLayout | None] = list(_no_fields())
    for role, name in meanings.items():
        layout = event_format.field(name)
        if layout is None and role in required:
            layout = _required(event_format, name)
        found[places[role]] = _readable(event_format, layout)
    return tuple(found)


def _readable(event_format: EventFormat, layout: FieldLayout | None) -> FieldLayout | None:
    """The field, after a check that the engine can hold its offset and size. No kernel has a larger field."""
    if layout is not None and (layout.size > MAX_FIELD_BYTES or layout.offset > MAX_FIELD_OFFSET):
        raise SpoolError(
            f"read the samples of {event_format.name}",
            f"its field {layout.name} has {layout.size} bytes at {layout.offset}",
            "the spool is damaged: record again",
        )
    return layout


def _entry_fields(event_format: EventFormat, call: CallSpec) -> tuple[FieldLayout | None, ...]:
    """The fields of an entry. A path's field is its string, if there is one: Linux 6.19 adds ``__filename_val``."""
    numbers = {role: name for role, name in call.fields.items() if role in CALL_FIELDS and role != "path"}
    fields = list(_fields(event_format, numbers, CALL_FIELDS, tuple(numbers)))
    text = event_format.field(f"__{call.fields['path']}_val") if "path" in call.fields else None
    if text is not None and text.is_data_loc:
        fields[CALL_FIELDS["path"]] = _readable(event_format, text)
    return tuple(fields)


def _check_arguments(event_format: EventFormat, fields: Sequence[FieldLayout | None], most: int) -> None:
    """Check that argument i has the offset 16 + 8 * i. A path's string is no argument, and no record has it."""
    for place, field in enumerate(fields):
        if field is None or place == CALL_FIELDS["path"]:
            continue
        index, beside = divmod(field.offset - ARGUMENTS_AT, ARGUMENT_BYTES)
        if not 0 <= index < most or beside or field.size > ARGUMENT_BYTES:
            raise SpoolError(
                f"read the records of {event_format.name}",
                f"its format has {field.name} at {field.offset}, which is no argument's place",
                "record again with --backend perf",
            )


def _tracepoint_fields(event_format: EventFormat, spec: TracepointSpec) -> tuple[Role, tuple[FieldLayout | None, ...]]:
    places = LONE_FIELDS.get(spec.role)
    if places is not None:
        return spec.role, _fields(event_format, spec.fields, places, tuple(places))
    if spec.role in RING_ROLE_FIELDS:
        return _ring_fields(event_format, spec)
    return spec.role, _fields(event_format, spec.fields, BLOCK_FIELDS, REQUIRED_REQUEST_ROLES)


def _ring_fields(event_format: EventFormat, spec: TracepointSpec) -> tuple[Role, tuple[FieldLayout | None, ...]]:
    """The role of io_uring's tracepoint, and the fields that the kernel has.

    A tracepoint without a ring is ignored, such as io_uring_req_failed of Linux 5.17. io_uring_fail_link is read all
    the
    same: up to Linux 5.17 it names no ring, but two known requests.
    """
    names = {role: field_name(event_format, spec, role) for role in spec.fields}
    fields = _fields(event_format, names, RING_PLACES, required=())
    is_read = fields[RING_PLACES["ctx"]] is not None or spec.role is Role.RING_FAIL_LINK
    return (spec.role, fields) if is_read else (Role.IGNORED, _no_fields())


def field_name(event_format: EventFormat, spec: TracepointSpec, role: str) -> str:
    """The kernel's name of the field of a role: the first of the role's names that the format has, else the first."""
    names = (spec.fields[role], *spec.other_names.get(role, ()))
    return next((name for name in names if event_format.field(name) is not None), names[0])
