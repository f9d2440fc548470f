"""What lo2io knows of each tracepoint, as text or JSON, and whether a kernel agrees.

Goes in: the catalog, and for :func:`check` a tracefs. Comes out: text for stdout.
"""

from __future__ import annotations

import json as json_format
from dataclasses import asdict, dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any

from lo2io.catalog import ALL, DEFAULT
from lo2io.catalog_files import DECODERS, EVENT_ROLES, EXIT_FIELD
from lo2io.kernel.tracefs import event_exists, load_format
from lo2io.model import CallSpec, Role, TracepointSpec

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from lo2io.catalog import Catalog
    from lo2io.model import EventFormat, FieldLayout

Spec = CallSpec | TracepointSpec


@dataclass(frozen=True, slots=True)
class Expected:
    """What samples are read by: sizes in bytes, and whether negative numbers occur."""

    sizes: tuple[int, ...]
    signed: bool | None = False
    is_array: bool = False
    is_data_loc: bool = False


ARGUMENT = Expected(sizes=(4, 8))
"""Every argument of a call is an unsigned long of the kernel (kernel/trace/trace_syscalls.c), whatever its type."""
RESULT = Expected(sizes=(4, 8), signed=True)
REQUEST_FIELDS = {
    "dev": Expected(sizes=(4,)),
    "sector": Expected(sizes=(8,)),
    "nr_sector": Expected(sizes=(4,)),
    "bytes": Expected(sizes=(4,)),
    "rwbs": Expected(sizes=tuple(range(4, 33)), signed=None, is_array=True),
    "error": Expected(sizes=(4,), signed=True),
}
"""Field role of a block tracepoint → what include/trace/events/block.h declares. char is signed before Linux 6.2."""
CGROUP_FIELDS = {
    "tid": Expected(sizes=(4,), signed=True),
    "path": Expected(sizes=(4,), signed=None, is_data_loc=True),
    "hierarchy": Expected(sizes=(4,), signed=True),
}
"""The same of include/trace/events/cgroup.h."""
SWITCH_FIELDS = {
    "prev_tid": Expected(sizes=(4,), signed=True),
    "prev_state": Expected(sizes=(4, 8), signed=True),
    "next_tid": Expected(sizes=(4,), signed=True),
}
"""The same of include/trace/events/sched.h: pid_t, and a long."""
LONE_FIELDS: Mapping[Role, Mapping[str, Expected]] = {
    Role.CGROUP_ATTACH: CGROUP_FIELDS,
    Role.SCHED_SWITCH: SWITCH_FIELDS,
}
"""Roles of tracepoints that take part in no operation."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One way in which a kernel differs from the catalog."""

    event: str
    field: str | None
    is_error: bool
    """Samples would be misread; else the kernel merely lacks what it may lack."""
    what: str


def check(catalog: Catalog, tracefs: Path) -> list[Finding]:
    """Compare every field the catalog names with the kernel's formats.

    Args:
        catalog: All of it is compared, whatever is recorded by default.
        tracefs: As ``find_tracefs`` found it.

    Raises:
        AccessError: tracefs may not be read.
        FormatError: A format file says what no known kernel says.
    """
    findings: list[Finding] = []
    if catalog.calls and not any(event_exists(tracefs, call.enter_event) for call in catalog.calls):
        what = "this kernel traces no system calls: it needs CONFIG_FTRACE_SYSCALLS"
        findings.append(Finding("syscalls:*", None, is_error=True, what=what))
    else:
        for call in catalog.calls:
            findings += _check_call(call, tracefs)
    for spec in catalog.tracepoints:
        if not event_exists(tracefs, spec.event):
            findings.append(Finding(spec.event, None, not spec.optional, "this kernel does not have it"))
            continue
        layout, _ = load_format(tracefs, spec.event)
        expected = LONE_FIELDS.get(spec.role, REQUEST_FIELDS)
        findings += _compare(layout, [(name, expected[role]) for role, name in spec.fields.items()])
    return findings


def _check_call(call: CallSpec, tracefs: Path) -> Iterator[Finding]:
    missing = [event for event in (call.enter_event, call.exit_event) if not event_exists(tracefs, event)]
    for event in missing:
        half = len(missing) == 1
        what = "this kernel has only the other half of the call" if half else "this kernel does not have the call"
        if half or event == call.enter_event:
            yield Finding(event, None, is_error=half, what=what)
    if not missing:
        enter, _ = load_format(tracefs, call.enter_event)
        leave, _ = load_format(tracefs, call.exit_event)
        yield from _compare(enter, [(name, ARGUMENT) for name in dict.fromkeys(call.fields.values())])
        yield from _compare(leave, [(EXIT_FIELD, RESULT)])


def _compare(layout: EventFormat, wanted: Iterable[tuple[str, Expected]]) -> Iterator[Finding]:
    for name, expected in wanted:
        found = layout.field(name)
        for what in ["the format has no such field"] if found is None else _differences(found, expected):
            yield Finding(layout.name, name, is_error=True, what=what)


def _differences(found: FieldLayout, expected: Expected) -> Iterator[str]:
    if expected.is_data_loc and not found.is_data_loc:
        yield f"{found.ctype} is no __data_loc"
    elif found.is_data_loc != expected.is_data_loc or found.is_array != expected.is_array:
        yield f"{found.ctype} is {'no' if expected.is_array else 'an'} array"
    if found.size not in expected.sizes:
        yield f"{found.size} bytes, not {' or '.join(map(str, expected.sizes[:2]))}"
    if expected.signed is not None and found.signed != expected.signed:
        yield f"{'signed' if found.signed else 'unsigned'}, not {'signed' if expected.signed else 'unsigned'}"


def render_check(findings: Sequence[Finding], *, json: bool = False) -> str:
    """The findings of :func:`check`, errors first, and a last line that says whether the kernel agrees."""
    if json:
        return json_format.dumps([asdict(finding) for finding in findings], indent=1)
    ordered = sorted(findings, key=lambda finding: not finding.is_error)
    lines = [
        f"{'error' if f.is_error else 'note '}  {f.event}{f' field {f.field}' if f.field else ''}: {f.what}"
        for f in ordered
    ]
    errors = sum(finding.is_error for finding in findings)
    verdict = (
        f"{errors} difference{'' if errors == 1 else 's'}: samples would be misread"
        if errors
        else "every format agrees"
    )
    absent = len(findings) - errors
    if absent == 1:
        verdict += "; 1 call or tracepoint is not in this kernel"
    elif absent:
        verdict += f"; {absent} calls or tracepoints are not in this kernel"
    return "\n".join([*lines, verdict])


def render_list(catalog: Catalog, events: Sequence[str] = (), *, json: bool = False) -> str:
    """Every call and tracepoint by group, or those that ``--events`` would choose.

    Raises:
        UsageError: Nobody knows one of ``events``.
    """
    specs = catalog.specs(catalog.select(events or (ALL,)).events)
    if json:
        return json_format.dumps([_facts(spec) for spec in specs], indent=1)
    width = max(len(_name(spec)) for spec in specs)
    lines: list[str] = []
    for group, members in groupby(specs, key=lambda spec: spec.group):
        lines.append(group)
        lines += [f"  {'*' if spec.core else ' '} {_name(spec):{width}}  {spec.summary}" for spec in members]
    composed = [name for name in catalog.groups() if name not in {spec.group for spec in catalog.by_event.values()}]
    sizes = [f"{name} ({len(catalog.groups()[name])} tracepoints)" for name in composed]
    return "\n".join([*lines, "", f"* in the group {DEFAULT}. Groups of groups: {', '.join(sizes)}"])


def render_show(catalog: Catalog, name: str, *, json: bool = False) -> str:
    """All that is known of a group, call or tracepoint.

    Raises:
        UsageError: Nothing bears that name.
    """
    specs = catalog.find(name)
    if json:
        return json_format.dumps([_facts(spec) for spec in specs], indent=1)
    return "\n\n".join(_paragraph(catalog, spec) for spec in specs)


def _name(spec: Spec) -> str:
    return spec.abi_name if isinstance(spec, CallSpec) else spec.event


def _facts(spec: Spec) -> dict[str, Any]:
    """One call or tracepoint as JSON says it."""
    common = {"group": spec.group, "default": spec.core, "fields": dict(spec.fields), "summary": spec.summary}
    if isinstance(spec, TracepointSpec):
        own = {"event": spec.event, "role": _role_name(spec), "optional": spec.optional, "filter": spec.filter or None}
        return own | common
    return {
        "name": spec.name,
        "abi_name": spec.abi_name,
        "events": [spec.enter_event, spec.exit_event],
        "kind": spec.kind.name.lower(),
        "returns": spec.returns.name.lower(),
        "io_mode": spec.io_mode,
        "region_role": spec.region_role,
        "vectored": spec.vectored,
        "fixed_flags": spec.fixed_flags,
        **common,
    }


def _role_name(spec: TracepointSpec) -> str:
    return next(name for name, role in EVENT_ROLES.items() if role is spec.role)


def _paragraph(catalog: Catalog, spec: Spec) -> str:
    """One call or tracepoint in full."""
    rows = [("group", f"{spec.group}{', recorded by default' if spec.core else ''}")]
    units: Mapping[str, str] = {}
    if isinstance(spec, CallSpec):
        rows += [
            ("tracepoints", f"{spec.enter_event}, {spec.exit_event}"),
            ("kind", f"{spec.kind.name.lower()}, returns {spec.returns.name.lower()}"),
            ("in the trace", f"region role {spec.region_role}, I/O mode {spec.io_mode}"),
        ]
        if spec.fixed_flags is not None:
            rows.append(("flags", f"always 0o{spec.fixed_flags:o}"))
    else:
        operation = next((o for o in catalog.operations if _role_name(spec) in o.roles), None)
        units = {role: DECODERS[decoder] for role, decoder in operation.decode.items()} if operation else {}
        of = f" of a {operation.name}" if operation else ""
        rows.append(("role", f"{_role_name(spec)}{of}{', optional' if spec.optional else ''}"))
        if spec.filter:
            rows.append(("filter", f"{spec.filter}, applied by the kernel"))
    for role, field in spec.fields.items():
        note = units.get(role, "")
        if role == "count" and isinstance(spec, CallSpec) and spec.vectored:
            note = "a number of vectors, not bytes"
        rows.append((role, f"field {field}{f': {note}' if note else ''}"))
    width = max(len(label) for label, _ in rows)
    return "\n".join([_name(spec), f"  {spec.summary}", *(f"  {label:{width}}  {text}" for label, text in rows)])
