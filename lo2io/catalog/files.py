"""One file of ``tracepoints/``: TOML in, checked specs out. The keys: docs/reference/tracepoint-files.md."""

from __future__ import annotations

import re
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from lo2io.catalog.call_numbers import read_compat, read_numbers
from lo2io.catalog.entry import NAME, Table
from lo2io.catalog.rings import RING_FIELDS, RING_LONE_ROLES, RING_REQUEST_ROLES, RING_ROLE_FIELDS, read_opcodes
from lo2io.errors import CatalogError
from lo2io.frozen import dataclass
from lo2io.model import CallClass, CallKind, CallSpec, OpcodeSpec, Returns, Role, TracepointSpec

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

SCHEMA = 1
SAMPLE_ROLES = ("fd", "fd2", "count", "offset", "flags", "path", "wanted", "context", "address")
"""Roles of a call's arguments that samples tell."""
KERNEL_ROLES = ("path2", "dirfd", "dirfd2", "vector", "how", "iocbs", "events")
"""Roles of arguments that only lo2io's programs in the kernel read: they see the memory behind pointers."""
CALL_ROLES = (*SAMPLE_ROLES, *KERNEL_ROLES)
EXIT_FIELD = "ret"
"""The one field of every call's exit, in every kernel: the call's result."""
REQUEST_ROLES = ("dev", "sector", "nr_sector", "bytes", "rwbs", "error")
REQUIRED_REQUEST_ROLES = ("dev", "sector", "nr_sector", "rwbs")
IO_MODES = ("none", "read", "write", "flush")
ACCOUNTS = ("read", "write")
"""Accounts of ``/proc/PID/io`` that a call can count in: rchar and syscr, wchar and syscw."""
SYNCS = ("file", "data")
"""The part of a file that a call of kind sync writes to the device: all, or the data with the metadata to read it."""
CLASSES = tuple(kind.name.lower() for kind in CallClass if kind <= CallClass.OTHER)
"""Classes that a call can have by itself. The other classes follow from the call's file."""
REGION_ROLES = ("file_io", "file_io_metadata", "function")
BLOCK_ROLES = {
    "insert": Role.RQ_INSERT,
    "issue": Role.RQ_ISSUE,
    "complete": Role.RQ_COMPLETE,
    "requeue": Role.RQ_REQUEUE,
    "merge": Role.RQ_MERGE,
    "frontmerge": Role.BIO_FRONTMERGE,
    "flush_bio": Role.BIO_FLUSH,
}
OPERATION_ROLES: Mapping[str, Mapping[str, Role]] = {"request": BLOCK_ROLES, "ring_request": RING_REQUEST_ROLES}
"""Operation that lo2io can pair → roles that a tracepoint can have in it."""
OPERATION_FIELDS = {"request": REQUEST_ROLES, "ring_request": RING_FIELDS}
"""Operation → the field roles of its tracepoints."""
LONE_ROLES = {"switch": Role.SCHED_SWITCH, "cgroup_attach": Role.CGROUP_ATTACH, **RING_LONE_ROLES}
"""Roles of tracepoints that take part in no operation."""
LONE_FIELDS: Mapping[Role, tuple[str, ...]] = {
    Role.SCHED_SWITCH: ("prev_tid", "prev_state", "next_tid"),
    Role.CGROUP_ATTACH: ("tid", "path", "hierarchy"),
}
"""Role of a tracepoint that is not io_uring's → field roles, all of which are required."""
EVENT_ROLES = tuple(dict.fromkeys((*BLOCK_ROLES, *LONE_ROLES, *RING_REQUEST_ROLES)))
ROLE_NAMES: Mapping[Role, str] = {
    role: name for roles in (*OPERATION_ROLES.values(), LONE_ROLES) for name, role in roles.items()
}
DECODERS = {
    "kernel_dev": "dev_t of the kernel: major << 20 | minor",
    "sectors_512": "sectors of 512 bytes, whatever the device's block size",
    "bytes": "bytes",
    "rwbs": "letters: F if it flushes first, the operation (R W D DE WZ F N …), F FUA, A read ahead, S sync, M meta",
    "negative_errno": "0, or an errno with its sign turned",
    "opcode": "number of an opcode",
    "result": "a result, or an errno with its sign turned",
}
"""Name for an operation's ``decode`` → meaning of the field's numbers."""
_KIND_ROLES: Mapping[CallKind, tuple[str, ...]] = {
    CallKind.CLOSE: ("fd",),
    CallKind.CLOSE_RANGE: ("fd", "fd2", "flags"),
    CallKind.READ: ("fd",),
    CallKind.WRITE: ("fd",),
    CallKind.SEEK: ("fd", "offset", "flags"),
    CallKind.DUP: ("fd",),
    CallKind.DUP_TO: ("fd", "fd2"),
    CallKind.FCNTL: ("fd", "flags", "count"),
    CallKind.COPY: ("fd", "fd2"),
    CallKind.UNSHARE: ("flags",),
    CallKind.IOCTL: ("fd", "flags"),
    CallKind.RING_SETUP: ("count",),
    CallKind.RING_ENTER: ("fd", "count", "wanted", "flags"),
    CallKind.AIO_SETUP: ("count",),
    CallKind.AIO_SUBMIT: ("context", "count"),
    CallKind.AIO_COLLECT: ("context", "wanted", "count"),
    CallKind.AIO_DESTROY: ("context",),
    CallKind.RING_REGISTER: ("fd", "flags"),
}
"""Kind → roles that the kind requires."""
_KIND_IO_MODE = {
    CallKind.READ: "read",
    CallKind.WRITE: "write",
    CallKind.SYNC: "flush",
    CallKind.COPY: "read",
}
_FD2_KINDS = (CallKind.CLOSE_RANGE, CallKind.DUP_TO, CallKind.COPY)
_OPENING_KINDS = (CallKind.OPEN, CallKind.RING_SETUP)
_FD_KINDS = (*_OPENING_KINDS, CallKind.DUP, CallKind.DUP_TO)
_ONLY_KINDS = {
    "wanted": (CallKind.RING_ENTER, CallKind.AIO_COLLECT),
    "context": (CallKind.AIO_SUBMIT, CallKind.AIO_COLLECT, CallKind.AIO_DESTROY),
    "fd2": _FD2_KINDS,
    "how": (CallKind.OPEN,),
    "iocbs": (CallKind.AIO_SUBMIT,),
    "events": (CallKind.AIO_COLLECT,),
}
"""Role → the only kinds for which it has a meaning."""
_LEAN_ON = {"path2": "path", "dirfd": "path", "dirfd2": "path2", "vector": "count", "iocbs": "count", "events": "count"}
"""Role → the role that it describes further, and that it requires."""
_GROUP = re.compile(r"[a-z][a-z0-9_]*(-[a-z0-9_]+)*")
_EVENT = re.compile(r"[a-z_][a-z0-9_]*:[a-z_][a-z0-9_]*")


@dataclass(frozen=True, slots=True)
class OperationSpec:
    """An operation made of several tracepoints: documentation of the pairing, and the units of its fields."""

    name: str
    key: tuple[str, ...]
    """Field roles that tell two operations in flight apart."""
    begins: tuple[str, ...]
    """Names of roles that can begin the operation; likewise below."""
    issues: tuple[str, ...]
    ends: tuple[str, ...]
    changes: tuple[str, ...]
    decode: Mapping[str, str]
    """Field role → a name of :data:`DECODERS`."""
    summary: str

    @property
    def roles(self) -> frozenset[str]:
        """Names of the roles of all tracepoints that take part."""
        return frozenset((*self.begins, *self.issues, *self.ends, *self.changes))


@dataclass(frozen=True, slots=True)
class FileContent:
    """The entries of one file, in its order."""

    calls: tuple[CallSpec, ...]
    tracepoints: tuple[TracepointSpec, ...]
    operations: tuple[OperationSpec, ...]
    opcodes: tuple[OpcodeSpec, ...] = ()
    """Opcodes of io_uring, indexed by number."""


def read_file(file: Path) -> FileContent:
    """Read and check one file.

    Raises:
        CatalogError: The file is no TOML, or breaks a rule. The message names file, entry and key.
    """
    import tomllib  # noqa: PLC0415 - the compiled catalog is read without it

    try:
        document = tomllib.loads(file.read_text("utf-8"))
    except (ValueError, OSError) as error:
        raise CatalogError(f"read {file.name}", str(error)) from error
    _check_top(file.name, document)
    operations = tuple(_operation(table) for table in _tables(file.name, document, "operation"))
    return FileContent(
        tuple(_call(table) for table in _with_defaults(file.name, document)),
        tuple(_tracepoint(table, operations) for table in _tables(file.name, document, "tracepoint")),
        operations,
        read_opcodes(_tables(file.name, document, "opcode")),
    )


def _check_top(file: str, document: dict[str, Any]) -> None:
    top = Table(file, "top", document)
    schema = top.left.pop("schema", None)
    if schema != SCHEMA or isinstance(schema, bool):
        top.fail("schema", f"{schema!r} is not {SCHEMA}")
    for key in ("group", "call", "operation", "tracepoint", "opcode"):
        top.left.pop(key, None)
    top.done()


def _tables(file: str, document: dict[str, Any], key: str) -> list[Table]:
    content = document.get(key, [])
    if not isinstance(content, list) or not all(isinstance(table, dict) for table in content):
        Table(file, "top", {}).fail(key, f"is no list: write [[{key}]]")
    return [
        Table(file, f"{key} {table.get('name') or table.get('event') or f'number {number}'}", table)
        for number, table in enumerate(content, 1)
    ]


def _with_defaults(file: str, document: dict[str, Any]) -> list[Table]:
    """The calls. Each takes the keys of its group that it does not have itself."""
    groups = document.get("group", {})
    if not isinstance(groups, dict) or not all(isinstance(keys, dict) for keys in groups.values()):
        Table(file, "top", {}).fail("group", "is no table of groups: write [group.NAME]")
    tables = _tables(file, document, "call")
    for group, keys in groups.items():
        members = [table for table in tables if table.left.get("group") == group]
        if not members:
            Table(file, f"group {group}", {}).fail("group", "no call is in it")
        for table in members:
            table.left = {**keys, **table.left}
    return tables


def _call(table: Table) -> CallSpec:
    name = table.text("name", None, NAME)
    call = CallSpec(
        name=name,
        abi_name=table.text("abi_name", name, NAME),
        group=table.text("group", None, _GROUP),
        core=table.flag("core"),
        kind=table.member("kind", CallKind, "meta"),
        returns=table.member("returns", Returns),
        io_mode=table.one_of("io_mode", IO_MODES, "none"),
        region_role=table.one_of("region_role", REGION_ROLES),
        fields=table.roles(CALL_ROLES),
        vectored=table.flag("vectored"),
        fixed_flags=_flag_word(table, "fixed_flags"),
        fd_unless=_flag_word(table, "fd_unless") or 0,
        report_class=CallClass[table.one_of("class", CLASSES, "other").upper()],
        waits=table.flag("waits"),
        waits_if=_flag_word(table, "waits_if") or 0,
        synced_if=_flag_word(table, "synced_if") or 0,
        accounts=table.names("accounts", ACCOUNTS) if "accounts" in table.left else (),
        reads_first=table.flag("reads_first"),
        ends_many=table.flag("ends_many"),
        only_slept=table.flag("only_slept"),
        summary=table.text("summary"),
        syncs=table.one_of("syncs", SYNCS) if "syncs" in table.left else "",
        numbers=read_numbers(table),
        compat=read_compat(table),
    )
    table.done()
    _check_kind(table, call)
    return call


def _flag_word(table: Table, key: str) -> int | None:
    value = table.left.pop(key, None)
    if value is not None and (not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 1 << 31):
        table.fail(key, f"{value!r} is no flag word")
    return value


def _check_kind(table: Table, call: CallSpec) -> None:
    """Check the demands of a call's kind on its other keys."""
    kind = call.kind.name.lower()
    for role in _KIND_ROLES.get(call.kind, ()):
        if role not in call.fields:
            table.fail(role, f"is missing: kind {kind} needs it")
    for role, kinds in _ONLY_KINDS.items():
        if role in call.fields and call.kind not in kinds:
            table.fail(role, f"has no meaning for kind {kind}")
    if call.kind in _OPENING_KINDS and "fd" in call.fields:
        table.fail("fd", f"has no meaning for kind {kind}: the call returns the fd")
    if call.kind in _FD_KINDS and call.returns is not Returns.FD:
        table.fail("returns", f"kind {kind} returns fd")
    if call.io_mode != _KIND_IO_MODE.get(call.kind, call.io_mode):
        table.fail("io_mode", f"kind {kind} has {_KIND_IO_MODE[call.kind]}")
    if call.fixed_flags is not None and (call.kind not in _OPENING_KINDS or "flags" in call.fields):
        table.fail("fixed_flags", "is for calls of kind open without flags")
    if call.vectored and "count" not in call.fields:
        table.fail("vectored", "tells the unit of count, but there is no count")
    _check_leaning(table, call)


def _check_leaning(table: Table, call: CallSpec) -> None:
    """Check that a role that describes another role occurs only together with it."""
    for role, other in _LEAN_ON.items():
        if role in call.fields and other not in call.fields:
            table.fail(role, f"describes {other}, but there is no {other}")
    if "vector" in call.fields and not call.vectored:
        table.fail("vector", "is an array of count elements, so the call must be vectored")
    if call.fd_unless and not {"fd", "flags"} <= call.fields.keys():
        table.fail("fd_unless", "is for calls with fd and flags")
    for key, bits in (("waits_if", call.waits_if), ("synced_if", call.synced_if)):
        if bits and "flags" not in call.fields:
            table.fail(key, "is for calls with flags")
    if call.syncs and call.kind is not CallKind.SYNC:
        table.fail("syncs", "is for calls of kind sync")
    if call.reads_first and "path" not in call.fields:
        table.fail("reads_first", "is for calls with a path")


def _operation(table: Table) -> OperationSpec:
    name = table.one_of("name", OPERATION_ROLES)
    roles, fields = OPERATION_ROLES[name], OPERATION_FIELDS[name]
    decode = table.left.pop("decode", {})
    if not isinstance(decode, dict) or any(role not in fields for role in decode):
        table.fail("decode", f"is no table of {', '.join(fields)}")
    for decoder in decode.values():
        if decoder not in DECODERS:
            table.fail("decode", f"{decoder!r} is none of {', '.join(DECODERS)}")
    spec = OperationSpec(
        name=name,
        key=table.names("key", fields),
        begins=table.names("begins", roles),
        issues=table.names("issues", roles),
        ends=table.names("ends", roles),
        changes=table.names("changes", roles),
        decode=MappingProxyType(decode),
        summary=table.text("summary"),
    )
    table.done()
    return spec


def _tracepoint(table: Table, operations: Sequence[OperationSpec]) -> TracepointSpec:
    event = table.text("event", None, _EVENT)
    name = table.one_of("role", EVENT_ROLES)
    operation = "" if name in LONE_ROLES else _operation_of(table, name, operations)
    role = OPERATION_ROLES[operation][name] if operation else LONE_ROLES[name]
    fields, required = _field_roles(role)
    names = table.role_names(fields) if role in RING_ROLE_FIELDS else {r: (n,) for r, n in table.roles(fields).items()}
    spec = TracepointSpec(
        event=event,
        role=role,
        fields=MappingProxyType({role: alternatives[0] for role, alternatives in names.items()}),
        group=table.text("group", None, _GROUP),
        core=table.flag("core"),
        optional=table.flag("optional"),
        interrupts=table.flag("interrupts"),
        filter=table.text("filter") if "filter" in table.left else "",
        summary=table.text("summary"),
        operation=operation,
        newer=table.text("newer", None, _EVENT) if "newer" in table.left else "",
        other_names=MappingProxyType({role: others[1:] for role, others in names.items() if len(others) > 1}),
    )
    for field_role in required:
        if field_role not in spec.fields:
            table.fail(field_role, f"is missing: role {name} needs it")
    table.done()
    return spec


def _field_roles(role: Role) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The field roles that a tracepoint of this role may have, and those that it must have."""
    if role in RING_ROLE_FIELDS:
        return RING_ROLE_FIELDS[role], ("ctx",)
    if role in LONE_FIELDS:
        return LONE_FIELDS[role], LONE_FIELDS[role]
    return REQUEST_ROLES, REQUIRED_REQUEST_ROLES


def _operation_of(table: Table, role: str, operations: Sequence[OperationSpec]) -> str:
    """The operation that a tracepoint takes part in. The operation must list the tracepoint's role."""
    name = table.one_of("operation", [spec.name for spec in operations])
    if role not in next(spec for spec in operations if spec.name == name).roles:
        table.fail("role", f"operation {name} does not list {role!r}")
    return name
