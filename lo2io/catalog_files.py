"""One file of ``tracepoints/``: TOML in, checked specs out. The keys: docs/reference/tracepoint-files.md."""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from lo2io.errors import CatalogError
from lo2io.model import CallKind, CallSpec, Returns, Role, TracepointSpec

if TYPE_CHECKING:
    import enum
    from collections.abc import Iterable, Mapping, Sequence
    from importlib.resources.abc import Traversable

SCHEMA = 1
CALL_ROLES = ("fd", "fd2", "count", "offset", "flags", "path")
EXIT_FIELD = "ret"
"""The one field of every call's exit, in every kernel: what the call returned."""
REQUEST_ROLES = ("dev", "sector", "nr_sector", "bytes", "rwbs", "error")
REQUIRED_REQUEST_ROLES = ("dev", "sector", "nr_sector", "rwbs")
IO_MODES = ("none", "read", "write", "flush")
REGION_ROLES = ("file_io", "file_io_metadata", "function")
EVENT_ROLES = {
    "insert": Role.RQ_INSERT,
    "issue": Role.RQ_ISSUE,
    "complete": Role.RQ_COMPLETE,
    "requeue": Role.RQ_REQUEUE,
    "merge": Role.RQ_MERGE,
    "frontmerge": Role.BIO_FRONTMERGE,
    "flush_bio": Role.BIO_FLUSH,
    "switch": Role.SCHED_SWITCH,
    "cgroup_attach": Role.CGROUP_ATTACH,
}
LONE_ROLES = {
    "switch": ("prev_tid", "prev_state", "next_tid"),
    "cgroup_attach": ("tid", "path", "hierarchy"),
}
"""Roles of tracepoints that take part in no operation → the field roles each needs."""
DECODERS = {
    "kernel_dev": "dev_t of the kernel: major << 20 | minor",
    "sectors_512": "sectors of 512 bytes, whatever the device's block size",
    "bytes": "bytes",
    "rwbs": "letters: F if it flushes first, the operation (R W D DE WZ F N …), F FUA, A read ahead, S sync, M meta",
    "negative_errno": "0, or an errno with its sign turned",
}
"""What an operation's ``decode`` may name, and what each says of the numbers."""
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
}
"""Roles without which the kind means nothing."""
_KIND_IO_MODE = {
    CallKind.READ: "read",
    CallKind.WRITE: "write",
    CallKind.SYNC: "flush",
    CallKind.COPY: "read",
}
_FD2_KINDS = (CallKind.CLOSE_RANGE, CallKind.DUP_TO, CallKind.COPY)
_NAME = re.compile(r"[a-z_][a-z0-9_]*")
_GROUP = re.compile(r"[a-z][a-z0-9_]*(-[a-z0-9_]+)*")
_EVENT = re.compile(r"[a-z_][a-z0-9_]*:[a-z_][a-z0-9_]*")

_EnumT = TypeVar("_EnumT", bound="enum.IntEnum")


@dataclass(frozen=True, slots=True)
class OperationSpec:
    """How several tracepoints make one operation: documentation of the pairing, and the units of its fields."""

    name: str
    key: tuple[str, ...]
    """Field roles that tell two operations in flight apart."""
    begins: tuple[str, ...]
    """Role names that can begin one; likewise below."""
    issues: tuple[str, ...]
    ends: tuple[str, ...]
    changes: tuple[str, ...]
    decode: Mapping[str, str]
    """Field role → a name of :data:`DECODERS`."""
    summary: str

    @property
    def roles(self) -> frozenset[str]:
        """The role names of all tracepoints that take part."""
        return frozenset((*self.begins, *self.issues, *self.ends, *self.changes))


@dataclass(frozen=True, slots=True)
class FileContent:
    """What one file describes, in its order."""

    calls: tuple[CallSpec, ...]
    tracepoints: tuple[TracepointSpec, ...]
    operations: tuple[OperationSpec, ...]


def read_file(file: Traversable) -> FileContent:
    """Read and check one file.

    Raises:
        CatalogError: It is no TOML, or breaks a rule; the message names file, entry and key.
    """
    try:
        document = tomllib.loads(file.read_text("utf-8"))
    except (ValueError, OSError) as error:
        raise CatalogError(f"read {file.name}", str(error)) from error
    _check_top(file.name, document)
    operations = tuple(_operation(table) for table in _tables(file.name, document, "operation"))
    return FileContent(
        tuple(_call(table) for table in _tables(file.name, document, "call")),
        tuple(_tracepoint(table, operations) for table in _tables(file.name, document, "tracepoint")),
        operations,
    )


class _Table:
    """One entry of a file: hands out its keys, checked, and knows which nobody asked for."""

    def __init__(self, file: str, label: str, content: dict[str, Any]) -> None:
        self.file, self.label, self.left = file, label, dict(content)

    def fail(self, key: str, what: str) -> NoReturn:
        raise CatalogError(f"{self.file}: {self.label}: {key}", what, "see docs/reference/tracepoint-files.md")

    def text(self, key: str, default: str | None = None, pattern: re.Pattern[str] | None = None) -> str:
        value = self.left.pop(key, default)
        if value is None:
            self.fail(key, "is missing")
        if not isinstance(value, str) or not value:
            self.fail(key, f"{value!r} is no text")
        if pattern and not pattern.fullmatch(value):
            self.fail(key, f"{value!r} does not fit {pattern.pattern}")
        return value

    def one_of(self, key: str, known: Iterable[str], default: str | None = None) -> str:
        value = self.text(key, default)
        if value not in known:
            self.fail(key, f"{value!r} is none of {', '.join(known)}")
        return value

    def member(self, key: str, kind: type[_EnumT], default: str | None = None) -> _EnumT:
        return kind[self.one_of(key, [member.name.lower() for member in kind], default).upper()]

    def flag(self, key: str) -> bool:
        value = self.left.pop(key, False)
        if not isinstance(value, bool):
            self.fail(key, f"{value!r} is neither true nor false")
        return value

    def names(self, key: str, known: Iterable[str]) -> tuple[str, ...]:
        value = self.left.pop(key, None)
        if not isinstance(value, list) or not value:
            self.fail(key, "is no list of names")
        for name in value:
            if name not in known:
                self.fail(key, f"{name!r} is none of {', '.join(known)}")
        return tuple(value)

    def roles(self, known: Iterable[str]) -> Mapping[str, str]:
        return MappingProxyType({role: self.text(role, None, _NAME) for role in known if role in self.left})

    def done(self) -> None:
        for key in self.left:
            self.fail(key, "nobody knows this key")


def _check_top(file: str, document: dict[str, Any]) -> None:
    top = _Table(file, "top", document)
    schema = top.left.pop("schema", None)
    if schema != SCHEMA or isinstance(schema, bool):
        top.fail("schema", f"{schema!r} is not {SCHEMA}")
    for key in ("call", "operation", "tracepoint"):
        top.left.pop(key, None)
    top.done()


def _tables(file: str, document: dict[str, Any], key: str) -> list[_Table]:
    content = document.get(key, [])
    if not isinstance(content, list) or not all(isinstance(table, dict) for table in content):
        _Table(file, "top", {}).fail(key, f"is no list: write [[{key}]]")
    return [
        _Table(file, f"{key} {table.get('name') or table.get('event') or f'number {number}'}", table)
        for number, table in enumerate(content, 1)
    ]


def _call(table: _Table) -> CallSpec:
    name = table.text("name", None, _NAME)
    call = CallSpec(
        name=name,
        abi_name=table.text("abi_name", name, _NAME),
        group=table.text("group", None, _GROUP),
        core=table.flag("core"),
        kind=table.member("kind", CallKind, "meta"),
        returns=table.member("returns", Returns),
        io_mode=table.one_of("io_mode", IO_MODES, "none"),
        region_role=table.one_of("region_role", REGION_ROLES),
        fields=table.roles(CALL_ROLES),
        vectored=table.flag("vectored"),
        fixed_flags=_fixed_flags(table),
        summary=table.text("summary"),
    )
    table.done()
    _check_kind(table, call)
    return call


def _fixed_flags(table: _Table) -> int | None:
    value = table.left.pop("fixed_flags", None)
    if value is not None and (not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 1 << 31):
        table.fail("fixed_flags", f"{value!r} is no flag word")
    return value


def _check_kind(table: _Table, call: CallSpec) -> None:
    """What a call's kind demands of its other keys."""
    kind = call.kind.name.lower()
    for role in _KIND_ROLES.get(call.kind, ()):
        if role not in call.fields:
            table.fail(role, f"is missing: kind {kind} needs it")
    if "fd2" in call.fields and call.kind not in _FD2_KINDS:
        table.fail("fd2", f"means nothing to kind {kind}")
    if call.kind is CallKind.OPEN and "fd" in call.fields:
        table.fail("fd", "means nothing to kind open: the fd is what it returns")
    if call.kind in (CallKind.OPEN, CallKind.DUP, CallKind.DUP_TO) and call.returns is not Returns.FD:
        table.fail("returns", f"kind {kind} returns fd")
    if call.io_mode != _KIND_IO_MODE.get(call.kind, call.io_mode):
        table.fail("io_mode", f"kind {kind} has {_KIND_IO_MODE[call.kind]}")
    if call.fixed_flags is not None and (call.kind is not CallKind.OPEN or "flags" in call.fields):
        table.fail("fixed_flags", "is for calls of kind open without flags")
    if call.vectored and "count" not in call.fields:
        table.fail("vectored", "says what count counts, and there is no count")


def _operation(table: _Table) -> OperationSpec:
    decode = table.left.pop("decode", {})
    if not isinstance(decode, dict) or any(role not in REQUEST_ROLES for role in decode):
        table.fail("decode", f"is no table of {', '.join(REQUEST_ROLES)}")
    for name in decode.values():
        if name not in DECODERS:
            table.fail("decode", f"{name!r} is none of {', '.join(DECODERS)}")
    known = [role for role in EVENT_ROLES if role not in LONE_ROLES]
    spec = OperationSpec(
        name=table.text("name", None, _NAME),
        key=table.names("key", REQUEST_ROLES),
        begins=table.names("begins", known),
        issues=table.names("issues", known),
        ends=table.names("ends", known),
        changes=table.names("changes", known),
        decode=MappingProxyType(decode),
        summary=table.text("summary"),
    )
    table.done()
    return spec


def _tracepoint(table: _Table, operations: Sequence[OperationSpec]) -> TracepointSpec:
    event = table.text("event", None, _EVENT)
    role = table.one_of("role", EVENT_ROLES)
    if role not in LONE_ROLES:
        _check_operation(table, role, operations)
    spec = TracepointSpec(
        event=event,
        role=EVENT_ROLES[role],
        fields=table.roles(LONE_ROLES.get(role, REQUEST_ROLES)),
        group=table.text("group", None, _GROUP),
        core=table.flag("core"),
        optional=table.flag("optional"),
        filter=table.text("filter") if "filter" in table.left else "",
        summary=table.text("summary"),
    )
    for field_role in LONE_ROLES.get(role, REQUIRED_REQUEST_ROLES):
        if field_role not in spec.fields:
            table.fail(field_role, f"is missing: role {role} needs it")
    table.done()
    return spec


def _check_operation(table: _Table, role: str, operations: Sequence[OperationSpec]) -> None:
    """The operation a tracepoint takes part in knows its role."""
    name = table.one_of("operation", [spec.name for spec in operations])
    if role not in next(spec for spec in operations if spec.name == name).roles:
        table.fail("role", f"operation {name} does not list {role!r}")
