"""The language of filters: comparisons of a record's fields, the same for recording and for converting.

docs/reference/filters.md has the grammar, the fields and their costs. ``for_events.py`` and ``for_programs.py`` find
the kernel's part of a filter, ``batches.py`` applies the rest. This module knows neither samples nor tables.
"""

from __future__ import annotations

import enum
import re
from functools import cache
from types import MappingProxyType
from typing import TYPE_CHECKING

from lo2io.catalog.catalog import ALL, DEFAULT, SYSCALLS, load_catalog
from lo2io.filter.globs import compile_glob, escape_glob
from lo2io.frozen import dataclass
from lo2io.model import CallKind, RequestOp, RingPath

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lo2io.catalog.catalog import Catalog
    from lo2io.model import CallSpec, OpcodeSpec

EQUAL, DIFFERENT, LIKE, UNLIKE = "==", "!=", "~", "!~"
NEGATIVE = frozenset({DIFFERENT, UNLIKE})
"""Operators that demand that none of the values is the record's. All others demand that one of them is."""
ORDER = ("<", "<=", ">", ">=")
KINDS = ("call", "request", "ring")
PATHS = tuple(path.name.lower() for path in RingPath if path is not RingPath.UNKNOWN)
"""Paths of a ring's request: docs/explanation/rules/ring-requests.md."""


class Kind(enum.Enum):
    """The kind of a field's values, in the words of messages."""

    NUMBER = "a number"
    SIZE = "a size like 4096 or 64KiB"
    DURATION = "a time like 250us or 1.5ms"
    TEXT = "a word or a 'quoted text'"
    PATH = "a path"
    OPERATION = "an operation"
    RECORD = "call, request or ring"
    OPCODE = "an opcode of io_uring"
    WAY = "the way of a ring's request"


FIELDS: Mapping[str, Kind] = MappingProxyType(
    {
        "pid": Kind.NUMBER,
        "tid": Kind.NUMBER,
        "comm": Kind.TEXT,
        "device": Kind.TEXT,
        "path": Kind.PATH,
        "operation": Kind.OPERATION,
        "size": Kind.SIZE,
        "latency": Kind.DURATION,
        "cgroup": Kind.PATH,
        "kind": Kind.RECORD,
        "opcode": Kind.OPCODE,
        "via": Kind.WAY,
    }
)
OPERATORS: Mapping[Kind, tuple[str, ...]] = {
    Kind.NUMBER: (EQUAL, DIFFERENT),
    Kind.SIZE: (EQUAL, DIFFERENT, *ORDER),
    Kind.DURATION: (EQUAL, DIFFERENT, *ORDER),
    Kind.TEXT: (EQUAL, DIFFERENT, LIKE, UNLIKE),
    Kind.PATH: (EQUAL, DIFFERENT, LIKE, UNLIKE),
    Kind.OPERATION: (EQUAL, DIFFERENT, LIKE, UNLIKE),
    Kind.RECORD: (EQUAL, DIFFERENT),
    Kind.OPCODE: (EQUAL, DIFFERENT, LIKE, UNLIKE),
    Kind.WAY: (EQUAL, DIFFERENT),
}


@dataclass(frozen=True, slots=True)
class Comparison:
    """A comparison of one field with one or several values. One value must match, or with ``!=`` and ``!~`` none."""

    field: str
    operator: str
    values: tuple[int | str, ...]
    """Numbers for pid and tid, bytes for size, nanoseconds for latency, texts for all other fields."""

    def __str__(self) -> str:
        return f"{self.field} {self.operator} {', '.join(_render(self.field, value) for value in self.values)}"

    @property
    def negative(self) -> bool:
        """True if none of the values may be the record's."""
        return self.operator in NEGATIVE

    def accepts(self, text: str) -> bool:
        """True if a text matches one of the values, even for ``!=`` and ``!~``: there the caller negates the result."""
        if self.operator in {EQUAL, DIFFERENT}:
            return text in self.values
        slashes = FIELDS[self.field] is Kind.PATH
        return any(compile_glob(str(glob), slashes=slashes).fullmatch(text) for glob in self.values)


@dataclass(frozen=True, slots=True)
class Filter:
    """Comparisons, all of which must hold. A filter without comparisons is false, and everything passes."""

    comparisons: tuple[Comparison, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.comparisons)

    def __str__(self) -> str:
        return " and ".join(map(str, self.comparisons))

    def __and__(self, other: Filter) -> Filter:
        return Filter(tuple(dict.fromkeys((*self.comparisons, *other.comparisons))))

    def of(self, *fields: str) -> tuple[Comparison, ...]:
        """The comparisons of these fields."""
        return tuple(comparison for comparison in self.comparisons if comparison.field in fields)

    def operations(self) -> Operations:
        """The operations that pass all comparisons of ``operation``, ``opcode`` and ``kind``.

        Only requests of rings have an ``opcode`` and a ``via``, so only they pass comparisons of these.
        """
        every = _every_operation(load_catalog())
        chosen = every
        for comparison in self.of("operation"):
            meant = [found for name, found in operation_names().items() if comparison.accepts(name)]
            hit = Operations(
                frozenset[str]().union(*(one.calls for one in meant)),
                frozenset[RequestOp]().union(*(one.requests for one in meant)),
                frozenset[int]().union(*(one.opcodes for one in meant)),
            )
            chosen &= every - hit if comparison.negative else hit
        for comparison in self.of("opcode"):
            fitting = {number for name, number in opcode_numbers().items() if comparison.accepts(name)}
            hit = Operations(opcodes=frozenset(fitting))
            chosen &= Operations(opcodes=every.opcodes) - hit if comparison.negative else hit
        for comparison in self.of("kind"):
            kinds = [kind for kind in KINDS if comparison.accepts(kind) is not comparison.negative]
            chosen &= every.of_kinds(*kinds)
        return chosen.of_kinds("ring") if self.of("via") else chosen


@dataclass(frozen=True, slots=True)
class Operations:
    """A set of calls, block requests and opcodes: the meaning of a name, or all that pass."""

    calls: frozenset[str] = frozenset()
    """Calls, by their tracepoints' names."""
    requests: frozenset[RequestOp] = frozenset()
    """Operations of block requests."""
    opcodes: frozenset[int] = frozenset()
    """Opcodes of rings' requests, if the opcodes have a name."""

    def __and__(self, other: Operations) -> Operations:
        return Operations(self.calls & other.calls, self.requests & other.requests, self.opcodes & other.opcodes)

    def __sub__(self, other: Operations) -> Operations:
        return Operations(self.calls - other.calls, self.requests - other.requests, self.opcodes - other.opcodes)

    def of_kinds(self, *kinds: str) -> Operations:
        """The operations of some kinds of records."""
        return Operations(
            self.calls if "call" in kinds else frozenset(),
            self.requests if "request" in kinds else frozenset(),
            self.opcodes if "ring" in kinds else frozenset(),
        )


def _every_operation(catalog: Catalog) -> Operations:
    return Operations(
        frozenset(call.name for call in catalog.calls),
        frozenset(RequestOp),
        frozenset(opcode.number for opcode in catalog.opcodes),
    )


@cache
def opcode_numbers() -> Mapping[str, int]:
    """Name that ``opcode`` takes → number."""
    return MappingProxyType({opcode.name: opcode.number for opcode in load_catalog().opcodes})


def below_cgroup(path: str) -> Comparison:
    """The comparison that a record belongs to a cgroup or one below it."""
    return Comparison("cgroup", LIKE, (f"{escape_glob(path.rstrip('/'))}/**",))


@cache
def operation_names() -> Mapping[str, Operations]:
    """Name that ``operation`` takes → its operations.

    A class has more calls than the one of the same name. ``sys_read`` names the call alone, as in ``--events``.
    """
    catalog = load_catalog()
    names = {f"sys_{name}": call.name for call in catalog.rows for name in (call.name, call.abi_name)}
    found = {name: Operations(frozenset({call})) for name, call in names.items()}
    found |= {name.removeprefix("sys_"): operations for name, operations in found.items()}
    for group, events in catalog.groups().items():
        if group not in {ALL, DEFAULT, SYSCALLS}:
            calls = frozenset(call.name for call in catalog.calls if call.enter_event in events)
            if calls:
                found[group] = Operations(calls)
    for name, (kinds, io_mode, requests) in CLASSES.items():

        def fits(spec: CallSpec | OpcodeSpec, kinds: tuple[CallKind, ...] = kinds, io_mode: str = io_mode) -> bool:
            return spec.kind in kinds or bool(io_mode and spec.io_mode == io_mode)

        found[name] = Operations(
            frozenset(call.name for call in filter(fits, catalog.rows)),
            frozenset(requests),
            frozenset(opcode.number for opcode in filter(fits, catalog.opcodes)),
        )
    return MappingProxyType(found)


CLASSES: Mapping[str, tuple[tuple[CallKind, ...], str, tuple[RequestOp, ...]]] = {
    "read": ((CallKind.READ, CallKind.COPY), "read", (RequestOp.READ,)),
    "write": ((CallKind.WRITE, CallKind.COPY), "write", (RequestOp.WRITE,)),
    "flush": ((CallKind.SYNC,), "flush", (RequestOp.FLUSH,)),
    "sync": ((CallKind.SYNC,), "flush", ()),
    "open": ((CallKind.OPEN,), "", ()),
    "close": ((CallKind.CLOSE, CallKind.CLOSE_RANGE), "", ()),
    "seek": ((CallKind.SEEK,), "", ()),
    "copy": ((CallKind.COPY,), "", ()),
    "descriptor": ((CallKind.DUP, CallKind.DUP_TO, CallKind.FCNTL, CallKind.IOCTL), "", ()),
    "discard": ((), "", (RequestOp.DISCARD,)),
    "secure_erase": ((), "", (RequestOp.SECURE_ERASE,)),
    "write_zeroes": ((), "", (RequestOp.WRITE_ZEROES,)),
    "zone": ((), "", (RequestOp.ZONE,)),
    "other": ((), "", (RequestOp.OTHER,)),
}
"""Class → kinds of its calls and opcodes, io_mode of its further opcodes, operations of its block requests."""


# ---- text out ----

WORD = r"""[^\s,'"=!<>~()&|]+"""
"""Values that need no quotes, except reserved words:"""
KEYWORDS = frozenset({"and", "or", "not"})
_BARE = re.compile(WORD)
_DURATION_UNITS = (("s", 10**9), ("ms", 10**6), ("us", 1000))
_SIZE_UNITS = (("TiB", 40), ("GiB", 30), ("MiB", 20), ("KiB", 10))


def _render(field: str, value: int | str) -> str:
    """The shortest text that is read as the same value."""
    if isinstance(value, str):
        if _BARE.fullmatch(value) and value.lower() not in KEYWORDS:
            return value
        return "'" + re.sub(r"[\\']", r"\\\g<0>", value) + "'"
    if FIELDS[field] is Kind.DURATION:
        unit, scale = next(((unit, scale) for unit, scale in _DURATION_UNITS if value % scale == 0), ("ns", 1))
        return f"{value // scale}{unit}"
    if FIELDS[field] is Kind.SIZE and value:
        unit, shift = next(((unit, shift) for unit, shift in _SIZE_UNITS if value % (1 << shift) == 0), ("", 0))
        return f"{value >> shift}{unit}"
    return str(value)
