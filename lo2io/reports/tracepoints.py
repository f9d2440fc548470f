"""lo2io's knowledge of each tracepoint, as text or JSON, and a comparison with a kernel.

In: the catalog, and for :func:`check` a tracefs. Out: text for stdout.
"""

from __future__ import annotations

import json as json_format
from dataclasses import asdict, dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any

from lo2io.catalog.catalog import ALL, DEFAULT
from lo2io.catalog.files import DECODERS, EXIT_FIELD, ROLE_NAMES
from lo2io.catalog.layouts import field_name
from lo2io.catalog.rings import RING_ROLE_FIELDS
from lo2io.kernel.tracefs import event_exists, load_format
from lo2io.model import CallSpec, OpcodeSpec, Role, TracepointSpec

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from lo2io.catalog.catalog import Catalog
    from lo2io.model import EventFormat, FieldLayout

Spec = CallSpec | TracepointSpec
OPCODES = "opcodes"
"""The name of all opcodes of io_uring for `lo2io tracepoints show`."""
OPCODE_PREFIX = "IORING_OP_"
"""The beginning of an opcode's name in programs. The kernel prints names without it."""


@dataclass(frozen=True, slots=True)
class Expected:
    """The expected layout of a field: sizes in bytes, and whether negative numbers occur."""

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
"""Field role of a block tracepoint → its layout in include/trace/events/block.h. char is signed before Linux 6.2."""
CGROUP_FIELDS = {
    "tid": Expected(sizes=(4,), signed=True),
    "path": Expected(sizes=(4,), signed=None, is_data_loc=True),
    "hierarchy": Expected(sizes=(4,), signed=True),
}
"""The same for include/trace/events/cgroup.h."""
SWITCH_FIELDS = {
    "prev_tid": Expected(sizes=(4,), signed=True),
    "prev_state": Expected(sizes=(4, 8), signed=True),
    "next_tid": Expected(sizes=(4,), signed=True),
}
"""The same for include/trace/events/sched.h: pid_t, and a long."""
_POINTER, _WORD = Expected(sizes=(4, 8)), Expected(sizes=(4,), signed=None)
RING_FIELD_SIZES = {
    "ctx": _POINTER,
    "req": _POINTER,
    "user_data": Expected(sizes=(8,)),
    "opcode": Expected(sizes=(1, 4)),
    "flags": Expected(sizes=(4, 8, 1)),
    "fd": Expected(sizes=(4,), signed=True),
    "result": Expected(sizes=(4, 8), signed=True),
    "other": _POINTER,
    "count": _WORD,
    "count2": Expected(sizes=(4, 1), signed=None),
    "length": Expected(sizes=(4, 8)),
    "offset": Expected(sizes=(8,)),
}
"""The same for include/trace/events/io_uring.h, over all kernels."""
LONE_FIELDS: Mapping[Role, Mapping[str, Expected]] = {
    Role.CGROUP_ATTACH: CGROUP_FIELDS,
    Role.SCHED_SWITCH: SWITCH_FIELDS,
    **{role: {name: RING_FIELD_SIZES[name] for name in fields} for role, fields in RING_ROLE_FIELDS.items()},
}
"""Roles of tracepoints that are not about block requests."""
BYTES_WRITTEN = Expected(sizes=(8,))
"""The result of short_write is a length, never an errno."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One difference between a kernel and the catalog."""

    event: str
    field: str | None
    is_error: bool
    """True if samples would be misread. False if the kernel only lacks something optional."""
    what: str


def check(catalog: Catalog, tracefs: Path) -> list[Finding]:
    """Compare every field that the catalog names with the kernel's formats.

    Args:
        catalog: All of it is compared, also what is off by default.
        tracefs: As ``find_tracefs`` found it.

    Raises:
        AccessError: tracefs may not be read.
        FormatError: A format file has a content that no known kernel has.
    """
    findings: list[Finding] = []
    if catalog.calls and not any(event_exists(tracefs, call.enter_event) for call in catalog.calls):
        what = "this kernel traces no system calls: it needs CONFIG_FTRACE_SYSCALLS"
        findings.append(Finding("syscalls:*", None, is_error=True, what=what))
    else:
        for call in catalog.calls:
            findings += _check_call(call, tracefs)
    there = {spec.event for spec in catalog.tracepoints if event_exists(tracefs, spec.event)}
    replaced = {spec.newer: spec.event for spec in catalog.tracepoints if spec.newer}
    for spec in catalog.tracepoints:
        if spec.event in there:
            findings += _check_tracepoint(spec, tracefs)
        elif spec.newer not in there and replaced.get(spec.event) not in there:
            findings.append(Finding(spec.event, None, not spec.optional, "this kernel does not have it"))
    return findings


def _check_tracepoint(spec: TracepointSpec, tracefs: Path) -> Iterator[Finding]:
    """For io_uring, a kernel may lack any tracepoint. But submissions and completions must name their ring."""
    layout, _ = load_format(tracefs, spec.event)
    expected = LONE_FIELDS.get(spec.role, REQUEST_FIELDS)
    if spec.role is Role.RING_SHORT_WRITE:
        expected = {**expected, "result": BYTES_WRITTEN}
    fields = [(role, field_name(layout, spec, role), expected[role]) for role in spec.fields]
    if spec.role in RING_ROLE_FIELDS:
        absent = [(role, name) for role, name, _ in fields if layout.field(name) is None]
        for role, name in absent:
            is_error = role == "ctx" and spec.role in {Role.RING_SUBMIT, Role.RING_COMPLETE}
            yield Finding(spec.event, name, is_error, "the format has no such field")
        fields = [field for field in fields if field[:2] not in absent]
    yield from _compare(layout, [(name, sizes) for _, name, sizes in fields])


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
    absent = len([finding for finding in findings if not finding.is_error and finding.field is None])
    silent = len(findings) - errors - absent
    if absent == 1:
        verdict += "; 1 call or tracepoint is not in this kernel"
    elif absent:
        verdict += f"; {absent} calls or tracepoints are not in this kernel"
    if silent:
        verdict += f"; {silent} field{'s are' if silent > 1 else ' is'} not in its formats: what they say is unknown"
    return "\n".join([*lines, verdict])


def render_list(catalog: Catalog, events: Sequence[str] = (), *, json: bool = False) -> str:
    """Every call and tracepoint by group, or those that ``--events`` would choose.

    Raises:
        UsageError: An entry of ``events`` is unknown.
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
    opcodes = f"{len(catalog.opcodes)} opcodes of io_uring: `lo2io tracepoints show {OPCODES}`"
    return "\n".join([*lines, "", opcodes, f"* in the group {DEFAULT}. Groups of groups: {', '.join(sizes)}"])


def render_show(catalog: Catalog, name: str, *, json: bool = False) -> str:
    """All facts about a group, call, tracepoint or opcode (``READ_FIXED``), or about all ``opcodes``.

    Raises:
        UsageError: The name is unknown.
    """
    opcodes = [opcode for opcode in catalog.opcodes if name in {OPCODES, opcode.name, OPCODE_PREFIX + opcode.name}]
    if opcodes and json:
        return json_format.dumps([_opcode_facts(opcode) for opcode in opcodes], indent=1)
    if opcodes:
        return "\n".join(_opcode_lines(opcodes))
    specs = catalog.find(name)
    if json:
        return json_format.dumps([_facts(spec) for spec in specs], indent=1)
    return "\n\n".join(_paragraph(catalog, spec) for spec in specs)


def _name(spec: Spec) -> str:
    return spec.abi_name if isinstance(spec, CallSpec) else spec.event


def _facts(spec: Spec) -> dict[str, Any]:
    """One call or tracepoint as it stands in the JSON."""
    common = {"group": spec.group, "default": spec.core, "fields": dict(spec.fields), "summary": spec.summary}
    if isinstance(spec, TracepointSpec):
        own = {
            "event": spec.event,
            "operation": spec.operation or None,
            "role": ROLE_NAMES[spec.role],
            "optional": spec.optional,
            "newer": spec.newer or None,
            "filter": spec.filter or None,
            "other_names": {role: list(names) for role, names in spec.other_names.items()},
        }
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
        "fd_unless": spec.fd_unless,
        "class": spec.report_class.name.lower(),
        "waits": spec.waits,
        "waits_if": spec.waits_if,
        "synced_if": spec.synced_if,
        "accounts": list(spec.accounts),
        "reads_first": spec.reads_first,
        "ends_many": spec.ends_many,
        "only_slept": spec.only_slept,
        **common,
    }


def _opcode_facts(opcode: OpcodeSpec) -> dict[str, Any]:
    names = {"kind": opcode.kind.name.lower(), "returns": opcode.returns.name.lower()}
    facts = asdict(opcode) | names | {"traits": [str(trait.name).lower() for trait in opcode.traits]}
    return {key: value for key, value in facts.items() if key != "iocbs"}


def _opcode_lines(opcodes: Sequence[OpcodeSpec]) -> Iterator[str]:
    """One line for each opcode: number, name, kind, result."""
    width = max(len(opcode.name) for opcode in opcodes)
    for opcode in opcodes:
        kind = f"{opcode.kind.name.lower()}, returns {opcode.returns.name.lower()}"
        yield f"{opcode.number:3}  {opcode.name:{width}}  {kind:21}  {opcode.summary}"


def _trait_rows(spec: CallSpec) -> Iterator[tuple[str, str]]:
    """Further facts about a call, if they apply to it."""
    waits = (
        ", waits for others" if spec.waits else f", waits if flags have 0x{spec.waits_if:x}" if spec.waits_if else ""
    )
    yield "in reports", f"class {spec.report_class.name.lower()}{waits}"
    if spec.synced_if:
        yield "synced", f"if flags have any of 0x{spec.synced_if:x}"
    if spec.accounts:
        yield "in /proc", f"adds to what /proc/PID/io counts of {' and '.join(spec.accounts)}"
    if spec.reads_first:
        yield "paths", "read when the call begins"
    if spec.ends_many:
        yield "ends", "descriptors that it does not name one by one"
    if spec.only_slept:
        yield "recorded", "by programs in the kernel, only if the thread lost its CPU meanwhile"


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
        if spec.fd_unless:
            rows.append(("no fd", f"if flags have 0x{spec.fd_unless:x}"))
        rows += _trait_rows(spec)
    else:
        operation = next((o for o in catalog.operations if o.name == spec.operation), None)
        units = {role: DECODERS[decoder] for role, decoder in operation.decode.items()} if operation else {}
        of = f" of a {operation.name}" if operation else ""
        rows.append(("role", f"{ROLE_NAMES[spec.role]}{of}{', optional' if spec.optional else ''}"))
        if spec.newer:
            rows.append(("newer name", spec.newer))
        if spec.filter:
            rows.append(("filter", f"{spec.filter}, applied by the kernel"))
    for role, field in spec.fields.items():
        note = units.get(role, "")
        if role == "count" and isinstance(spec, CallSpec) and spec.vectored:
            note = f"a number of {'requests' if spec.group in {'io_uring', 'aio'} else 'vectors'}, not bytes"
        others = spec.other_names.get(role, ()) if isinstance(spec, TracepointSpec) else ()
        rows.append((role, f"field {' or '.join((field, *others))}{f': {note}' if note else ''}"))
    width = max(len(label) for label, _ in rows)
    return "\n".join([_name(spec), f"  {spec.summary}", *(f"  {label:{width}}  {text}" for label, text in rows)])
