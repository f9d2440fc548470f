"""Global definitions of a trace, as ids and numbers. References are not resolved."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from lo2io.otf2.library import (
    ADDRESS,
    CONTINUE,
    TEXT,
    U8,
    U32,
    U64,
    UNDEFINED_U32,
    Library,
    definition_type,
    has,
)
from lo2io.otf2.read.tables import Rows, StringRows, repeated

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from lo2io.otf2.read.tables import Table

UNDEFINED = {"paradigm": 0xFF, "location": 2**64 - 1}
"""Kinds whose undefined reference is not 32 bits wide."""

REFERENCE_TYPES = {
    11: "string",
    12: "attribute",
    13: "location",
    14: "region",
    15: "group",
    16: "metric",
    17: "communicator",
    18: "parameter",
    20: "source-code-location",
    21: "calling-context",
    22: "interrupt-generator",
    23: "file",
    24: "handle",
    25: "location-group",
}
"""``OTF2_Type`` of an attribute's value → kind of definition it refers to."""
LOCATION_GROUP_PROCESS = 1
LOCATION_CPU_THREAD = 1
LOCATION_ACCELERATOR_STREAM = 2
LOCATION_METRIC = 3
HANDLE_PRE_CREATED = 1
HANDLE_ALL_PROXY = 2
HANDLE_PARENT = 5
"""The place of a handle's parent among the values of its definition."""
RING_PARADIGMS = ("io_uring", "libaio")
BLOCK_PARADIGM = "block_io"
GROUP_REGIONS = 2
_GROUP_MEMBERS = {1: "location", GROUP_REGIONS: "region", 3: "metric"}


def undefined(kind: str) -> int:
    """The reference that means "undefined" for a kind of definition."""
    return UNDEFINED.get(kind, UNDEFINED_U32)


def narrowed(kind: str | None, value: int) -> int:
    """A reference from a 64 bit value union. Bytes beyond the reference are not defined, so they are cut off."""
    return value if kind is None or kind == "location" else value & UNDEFINED_U32


@dataclass(frozen=True, slots=True)
class Field:
    """One value of a definition record. With ``kind``, the value is a reference; ``needed``: it must be defined."""

    name: str
    ctype: Any
    kind: str | None = None
    needed: bool = False


def _ref(kind: str, name: str = "", *, needed: bool = False) -> Field:
    ctype = {"paradigm": U8, "location": U64}.get(kind, U32)
    return Field(name or kind, ctype, kind, needed)


_NAME = _ref("string", "name", needed=True)
_DESCRIPTION = _ref("string", "description")
_VALUE = (_ref("string", "name", needed=True), Field("type", U8), Field("value", U64))


@dataclass(frozen=True, slots=True)
class Record:
    """A definition record: its callback's name, the kind of id that it defines (None for properties), its values."""

    name: str
    kind: str | None
    fields: tuple[Field, ...]

    def index(self, name: str) -> int:
        """Place of a value among the record's values."""
        return next(i for i, f in enumerate(self.fields) if f.name == name)


RECORDS = {
    record.name: record
    for record in (
        Record("String", "string", (Field("text", TEXT),)),
        Record("Attribute", "attribute", (_NAME, _DESCRIPTION, Field("type", U8))),
        Record("SystemTreeNode", "node", (_NAME, _ref("string", "class"), _ref("node", "parent"))),
        Record("SystemTreeNodeProperty", None, (_ref("node", needed=True), *_VALUE)),
        Record("SystemTreeNodeDomain", None, (_ref("node", needed=True), Field("domain", U8))),
        Record(
            "LocationGroup",
            "location-group",
            (_NAME, Field("type", U8), _ref("node", needed=True), _ref("location-group", "creator")),
        ),
        Record("LocationGroupProperty", None, (_ref("location-group", needed=True), *_VALUE)),
        Record(
            "Location",
            "location",
            (_NAME, Field("type", U8), Field("events", U64), _ref("location-group", "group", needed=True)),
        ),
        Record("LocationProperty", None, (_ref("location", needed=True), *_VALUE)),
        Record(
            "Region",
            "region",
            (
                _NAME,
                _ref("string", "canonical name"),
                _DESCRIPTION,
                *(Field("role", U8), Field("paradigm", U8), Field("flags", U32)),
                _ref("string", "source file"),
                *(Field("first line", U32), Field("last line", U32)),
            ),
        ),
        Record(
            "Group",
            "group",
            (
                _ref("string", "name"),
                *(Field("type", U8), Field("paradigm", U8), Field("flags", U32)),
                *(Field("number", U32), Field("members", ADDRESS)),
            ),
        ),
        Record("Comm", "communicator", (_ref("string", "name"), _ref("group"), _ref("communicator", "parent"))),
        Record(
            "InterComm",
            "communicator",
            (_ref("string", "name"), _ref("group", "first"), _ref("group", "second"), _ref("communicator", "common")),
        ),
        Record("Parameter", "parameter", (_NAME, Field("type", U8))),
        Record("SourceCodeLocation", "source-code-location", (_ref("string", "file"), Field("line", U32))),
        Record(
            "CallingContext",
            "calling-context",
            (
                _ref("region", needed=True),
                _ref("source-code-location"),
                _ref("calling-context", "parent"),
            ),
        ),
        Record("CallingContextProperty", None, (_ref("calling-context", needed=True), *_VALUE)),
        Record(
            "InterruptGenerator",
            "interrupt-generator",
            (_NAME, Field("mode", U8), Field("base", U8), Field("exponent", U64), Field("period", U64)),
        ),
        Record(
            "MetricMember",
            "metric-member",
            (
                *(_NAME, _DESCRIPTION, Field("type", U8), Field("mode", U8), Field("value type", U8)),
                *(Field("base", U8), Field("exponent", U64), _ref("string", "unit")),
            ),
        ),
        Record(
            "MetricClass",
            "metric",
            (Field("number", U8), Field("members", ADDRESS), Field("occurrence", U8), Field("recorder kind", U8)),
        ),
        Record(
            "MetricInstance",
            "metric",
            (
                *(_ref("metric", "class", needed=True), _ref("location", "recorder", needed=True)),
                *(Field("scope type", U8), Field("scope", U64)),
            ),
        ),
        Record(
            "MetricClassRecorder",
            None,
            (_ref("metric", needed=True), _ref("location", "recorder", needed=True)),
        ),
        Record(
            "IoParadigm",
            "paradigm",
            (
                *(_ref("string", "identification", needed=True), _NAME),
                *(Field("class", U8), Field("flags", U32)),
            ),
        ),
        Record("IoRegularFile", "file", (_NAME, _ref("node", "scope"))),
        Record("IoDirectory", "file", (_NAME, _ref("node", "scope"))),
        Record("IoFileProperty", None, (_ref("file", needed=True), *_VALUE)),
        Record(
            "IoHandle",
            "handle",
            (
                *(_ref("string", "name"), _ref("file"), _ref("paradigm", needed=True), Field("flags", U32)),
                *(_ref("communicator"), _ref("handle", "parent")),
            ),
        ),
        Record(
            "IoPreCreatedHandleState",
            None,
            (_ref("handle", needed=True), Field("access mode", U8), Field("status flags", U32)),
        ),
    )
}
"""The records that are read. Trailing arguments without a use are left out: in C ABIs, a function may take fewer
arguments than its caller passes."""


IS_DIRECTORY = "is directory"
"""The value of a file that its record's name tells."""
COLUMNS = {
    "file": (*(f.name for f in RECORDS["IoRegularFile"].fields), IS_DIRECTORY),
    "handle": tuple(f.name for f in RECORDS["IoHandle"].fields),
}
"""Kinds of which an archive may have millions → the columns of their :class:`~lo2io.otf2.read.tables.Table`."""


@dataclass(slots=True)
class Definitions:
    """Tables by kind: id → values in the order of the record's fields; of files, then whether it is a directory."""

    tables: dict[str, Mapping[int, tuple[Any, ...]]] = field(default_factory=dict)
    unnamed: dict[str, list[tuple[Any, ...]]] = field(default_factory=dict)
    """Records that define no id (properties, states), by record name."""
    record_of: dict[str, dict[int, str]] = field(default_factory=dict)
    """For kinds that several records define (metrics, communicators): id → record name. Files tell it themselves."""
    members: dict[tuple[str, int], tuple[int, ...]] = field(default_factory=dict)
    """(kind, id) → members of groups and metric classes."""
    duplicates: list[tuple[str, int]] = field(default_factory=list)
    clocks: list[tuple[int, int, int, int]] = field(default_factory=list)
    """Resolution, global offset, length and realtime of each clock definition."""
    number: int = 0
    anchor_number: int = 0
    anchor_locations: int = 0

    def table(self, kind: str) -> Mapping[int, tuple[Any, ...]]:
        """All definitions of a kind."""
        return self.tables.setdefault(kind, {})

    def columns(self, kind: str) -> Table:
        """All definitions of a kind that has columns: files or handles."""
        return cast("Table", self.tables[kind])

    def text(self, string: int) -> str:
        """The text of a string reference."""
        values = self.table("string").get(string)
        return f"string {string}" if values is None else values[0].decode(errors="replace")

    def name(self, kind: str, ref: int) -> str:
        """The name of a definition whose first value is its name."""
        values = self.table(kind).get(ref)
        return f"{kind} {ref}" if values is None else self.text(values[0])


def handles_of(found: Definitions, *paradigms: str) -> frozenset[int]:
    """The handles of these paradigms, by their identification."""
    meant = [ref for ref, values in found.table("paradigm").items() if found.text(values[0]) in paradigms]
    handles = found.columns("handle")
    refs: list[int] = handles.refs[np.isin(handles.column("paradigm"), meant)].tolist()
    return frozenset(refs)


def read_definitions(library: Library, reader: int) -> Definitions:
    """Read every global definition.

    Raises:
        TraceError: The library cannot read the definitions.
    """
    found = Definitions()
    found.anchor_locations = library.number("Reader_GetNumberOfLocations", reader, tried="reading the anchor file")
    found.anchor_number = library.number("Reader_GetNumberOfGlobalDefinitions", reader, tried="reading the anchor file")
    handle = library.Reader_GetGlobalDefReader(reader)
    if not handle:
        library.check(91, "opening the trace's global definitions (.def)")
    many: dict[str, Rows | StringRows] = {
        "string": StringRows(),
        **{kind: Rows(names) for kind, names in COLUMNS.items()},
    }
    with library.callbacks("GlobalDefReader") as callbacks:
        keep = [_register(library, callbacks, record, found, many) for record in RECORDS.values()]
        keep.append(_register_clock(library, callbacks, found))
        library.check(
            library.Reader_RegisterGlobalDefCallbacks(reader, handle, callbacks, None), "registering for definitions"
        )
    found.number = library.number(
        "Reader_ReadAllGlobalDefinitions", reader, handle, tried="reading the trace's global definitions (.def)"
    )
    library.Reader_CloseGlobalDefReader(reader, handle)
    for kind, rows in many.items():
        found.duplicates += [(kind, ref) for ref in repeated(rows.array())]
        found.tables[kind] = rows.table()
    return found


def _register_clock(library: Library, callbacks: int, found: Definitions) -> Any:
    def clock(_user: int, resolution: int, offset: int, length: int, realtime: int) -> int:
        found.clocks.append((resolution, offset, length, realtime))
        return CONTINUE

    function = definition_type(U64, U64, U64, U64)(clock)
    library.set_callback("GlobalDefReader", callbacks, "ClockProperties", function)
    return function


def _register(
    library: Library, callbacks: int, record: Record, found: Definitions, many: Mapping[str, Rows | StringRows]
) -> Any:
    """Register a callback for one record. The caller must keep the returned C function alive."""
    if not has(f"GlobalDefReaderCallbacks_Set{record.name}Callback"):
        return None
    if record.kind is not None and record.kind in many:
        keep = _keep_row(record, many[record.kind])
    else:
        keep = _keep_unnamed(record, found) if record.kind is None else _keep(record, record.kind, found)
    ids = () if record.kind is None else (_ref(record.kind).ctype,)
    function = definition_type(*ids, *(f.ctype for f in record.fields))(keep)
    library.set_callback("GlobalDefReader", callbacks, record.name, function)
    return function


def _keep_unnamed(record: Record, found: Definitions) -> Callable[..., int]:
    rows = found.unnamed.setdefault(record.name, [])

    def keep(_user: int, *values: Any) -> int:
        rows.append(values)
        return CONTINUE

    return keep


def _keep_row(record: Record, rows: Rows | StringRows) -> Callable[..., int]:
    add = rows.add
    if record.kind != "file":

        def keep(_user: int, *row: Any) -> int:
            add(*row)
            return CONTINUE

        return keep
    is_directory = int(record.name == "IoDirectory")

    def keep_file(_user: int, *row: Any) -> int:
        add(*row, is_directory)
        return CONTINUE

    return keep_file


def _keep(record: Record, kind: str, found: Definitions) -> Callable[..., int]:
    table = cast("dict[int, tuple[Any, ...]]", found.tables.setdefault(kind, {}))
    shared = sum(r.kind == kind for r in RECORDS.values()) > 1
    names = found.record_of.setdefault(kind, {})
    counted = any(f.name == "members" for f in record.fields)

    def keep(_user: int, ref: int, *values: Any) -> int:
        if ref in table:
            found.duplicates.append((kind, ref))
        table[ref] = values
        if shared:
            names[ref] = record.name
        if counted:
            found.members[kind, ref] = _members(record, values)
        return CONTINUE

    return keep


def _members(record: Record, values: tuple[Any, ...]) -> tuple[int, ...]:
    """The members in the array that a record points to. The array is valid only during the callback."""
    number, address = values[record.index("number")], values[record.index("members")]
    if not address:
        return ()
    ctype = U64 if record.name == "Group" else U32
    return tuple((ctype * number).from_address(address))


def member_kind(record: str, values: tuple[Any, ...]) -> str | None:
    """The kind of definition that members of a group or metric class refer to; None: not checked."""
    if record == "MetricClass":
        return "metric-member"
    return _GROUP_MEMBERS.get(values[RECORDS["Group"].index("type")])
