"""The catalog: all files of ``tracepoints/`` together, and the choice of ``--events`` among their events.

The catalog knows names, roles and units. ``lo2io/kernel/tracefs.py`` reads the kernel's formats.
docs/reference/tracepoint-files.md explains the keys of the files.
"""

from __future__ import annotations

import dataclasses
from dataclasses import field
from functools import cache, cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING

from lo2io.catalog import compiled, fuse_opcodes, wait_reasons
from lo2io.errors import CatalogError, UsageError
from lo2io.frozen import dataclass
from lo2io.model import CallClass, CallKind, CallSpec, OpcodeSpec, Returns, TracepointSpec

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Mapping, Sequence
    from pathlib import Path

    from lo2io.catalog.files import OperationSpec

ENDING = frozenset({CallKind.CLOSE, CallKind.CLOSE_RANGE, CallKind.DUP_TO})
"""Kinds of calls that end a descriptor. Unless all of them are recorded, the file of a descriptor is not known."""
MOVING = frozenset({CallKind.READ, CallKind.WRITE, CallKind.SEEK, CallKind.COPY})
"""Kinds of calls that move a position. Unless all of them are recorded, positions cannot be followed."""
DEFAULT = "default"
SYSCALLS = "syscalls"
ALL = "all"


_OTHER_FILES = (fuse_opcodes.FILE, wait_reasons.FILE)
"""Files of the folder that say nothing of tracepoints."""
PAGE_FAULT = CallSpec(
    name="page_fault",
    abi_name="page_fault",
    group="mmap",
    core=False,
    kind=CallKind.READ,
    returns=Returns.BYTES,
    io_mode="read",
    region_role="file_io",
    fields=MappingProxyType({}),
    report_class=CallClass.READ,
    summary="Reads a page of a mapped file that is not in memory. The layer faults tells it.",
)
"""A page fault that needed I/O. It is no call and has no tracepoints of calls, but a row like a read's."""


@dataclass(frozen=True, slots=True)
class Selection:
    """The events that ``--events`` chose, in the catalog's order."""

    events: tuple[str, ...]
    """Full names. A call is its entry and its exit, unless only one of them was chosen."""
    optional: frozenset[str]
    """Events that a kernel may lack, because they were chosen by a group. Events chosen by their own name are
    required."""
    filters: Mapping[str, str] = field(default_factory=dict)
    """Event → the filter that the kernel applies to it."""
    newer: Mapping[str, str] = field(default_factory=dict)
    """Event → the event that replaced it. A kernel has one of the two, so neither counts as missing."""


@dataclasses.dataclass(frozen=True)  # without slots, for the properties that it caches
class Catalog:
    """Every call, tracepoint and opcode that lo2io knows, in the order of the files."""

    calls: tuple[CallSpec, ...]
    tracepoints: tuple[TracepointSpec, ...]
    operations: tuple[OperationSpec, ...] = ()
    opcodes: tuple[OpcodeSpec, ...] = ()
    """Opcodes of io_uring, indexed by number."""

    @cached_property
    def rows(self) -> tuple[CallSpec, ...]:
        """The kinds of rows of ``operations``, by their codes: the calls, and after them page faults."""
        return (*self.calls, PAGE_FAULT)

    @cached_property
    def by_event(self) -> Mapping[str, CallSpec | TracepointSpec]:
        """Full name of a tracepoint → its call, or its own specification."""
        events: dict[str, CallSpec | TracepointSpec] = {}
        for call in self.calls:
            events[call.enter_event] = events[call.exit_event] = call
        events.update((spec.event, spec) for spec in self.tracepoints)
        return MappingProxyType(events)

    @cached_property
    def _calls_by_name(self) -> Mapping[str, CallSpec]:
        names = {call.abi_name: call for call in self.calls} | {call.name: call for call in self.calls}
        return names | {f"sys_{name}": call for name, call in names.items()}

    @cached_property
    def _groups(self) -> Mapping[str, tuple[str, ...]]:
        specs: tuple[CallSpec | TracepointSpec, ...] = (*self.calls, *self.tracepoints)
        named = dict.fromkeys(
            name for spec in specs for name in (spec.group.partition("-")[0], spec.group) if name not in (DEFAULT, ALL)
        )
        groups = {
            DEFAULT: _events(spec for spec in specs if spec.core),
            SYSCALLS: _events(call for call in self.calls if call.core),
        }
        for name in named:
            groups[name] = _events(spec for spec in specs if spec.group == name or spec.group.startswith(f"{name}-"))
        return MappingProxyType(groups | {ALL: tuple(self.by_event)})

    def groups(self) -> Mapping[str, tuple[str, ...]]:
        """Name of a group for ``--events`` → its events.

        ``default`` has the core calls and the core tracepoints, ``syscalls`` the core calls alone, ``all`` everything.
        The other groups are those of the files, and groups of groups with a common beginning: ``metadata`` holds
        ``metadata-stat``, ``metadata-name`` and so on.
        """
        return self._groups

    def find(self, name: str) -> tuple[CallSpec | TracepointSpec, ...]:
        """The calls and tracepoints with the name of a group, call or tracepoint.

        Raises:
            UsageError: The name is unknown.
        """
        return self.specs(self._resolve(name)[0])

    def specs(self, events: Iterable[str]) -> tuple[CallSpec | TracepointSpec, ...]:
        """The calls and tracepoints that events belong to, each once."""
        found = (self.by_event[event] for event in events)
        return tuple({spec.name if isinstance(spec, CallSpec) else spec.event: spec for spec in found}.values())

    def select(self, tokens: Sequence[str]) -> Selection:
        """Choose events.

        Args:
            tokens: Names of groups, calls (``read`` of the group before the call: ``sys_read`` is the call alone) and
                single tracepoints (``subsystem:event``), each possibly several with commas. ``+name`` adds,
                ``-name`` takes away; without a plain name before, they change the default. None: the default.

        Raises:
            UsageError: A name is unknown, or no event is left.
        """
        names = [name for token in tokens for name in (part.strip() for part in token.split(",")) if name]
        plain = any(name[0] not in "+-" for name in names)
        chosen: dict[str, bool] = {} if plain else dict.fromkeys(self._groups[DEFAULT], False)
        for name in names:
            events, required = self._resolve(name.removeprefix("+") if name[0] == "+" else name.removeprefix("-"))
            for event in events:
                if name[0] == "-":
                    chosen.pop(event, None)
                else:
                    chosen[event] = chosen.get(event, False) or required
        if not chosen:
            raise UsageError(
                f"choose events by {','.join(names)!r}", "no event is left", "add a group: `lo2io tracepoints list`"
            )
        return Selection(
            tuple(event for event in self.by_event if event in chosen),
            frozenset(event for event, required in chosen.items() if not required and self._may_lack(event)),
            {spec.event: spec.filter for spec in self.tracepoints if spec.filter and spec.event in chosen},
            {spec.event: spec.newer for spec in self.tracepoints if spec.newer and spec.event in chosen},
        )

    def _may_lack(self, event: str) -> bool:
        spec = self.by_event[event]
        return spec.optional if isinstance(spec, TracepointSpec) else True

    def _resolve(self, name: str) -> tuple[tuple[str, ...], bool]:
        """The events of a name, and True if the name is that of a call or event, not of a group."""
        if name in self._groups:
            return self._groups[name], False
        if name in self._calls_by_name:
            return _events((self._calls_by_name[name],)), True
        if name in self.by_event:
            return (name,), True
        known = dict.fromkeys((*self._groups, *self._calls_by_name, *self.by_event))
        import difflib  # noqa: PLC0415 - only a mistake needs it

        close = difflib.get_close_matches(name, known, n=3, cutoff=0.7)
        remedy = f"did you mean {' or '.join(close)}?" if close else "`lo2io tracepoints list` shows every name"
        raise UsageError(f"find {name!r} among groups, calls and tracepoints", "there is no such name", remedy)


def left_out(calls: Iterable[CallSpec], kinds: frozenset[CallKind], events: Container[str]) -> tuple[str, ...]:
    """ABI names of the default calls of some kinds whose entry or exit is not among the events."""
    core = (call for call in calls if call.core and call.kind in kinds)
    return tuple(call.abi_name for call in core if call.enter_event not in events or call.exit_event not in events)


def _events(specs: Iterable[CallSpec | TracepointSpec]) -> tuple[str, ...]:
    return tuple(
        event
        for spec in specs
        for event in ((spec.enter_event, spec.exit_event) if isinstance(spec, CallSpec) else (spec.event,))
    )


def load_catalog(directory: Path | None = None) -> Catalog:
    """Read every TOML file of a directory, by default of lo2io's own, which are parsed and checked only once.

    Raises:
        CatalogError: A file is no TOML, or breaks a rule. The message names file, entry and key.
    """
    return _load_own() if directory is None else _load(directory)


@cache
def _load_own() -> Catalog:
    return compiled.load("catalog", _load)


def _load(directory: Path) -> Catalog:
    from lo2io.catalog.files import read_file  # noqa: PLC0415 - a start has the catalog compiled

    files = sorted(
        (file for file in directory.iterdir() if file.name.endswith(".toml") and file.name not in _OTHER_FILES),
        key=lambda file: file.name,
    )
    contents = [read_file(file) for file in files]
    catalog = Catalog(
        tuple(call for content in contents for call in content.calls),
        tuple(spec for content in contents for spec in content.tracepoints),
        tuple(spec for content in contents for spec in content.operations),
        tuple(spec for content in contents for spec in content.opcodes),
    )
    _check_unique(catalog)
    return catalog


def _check_unique(catalog: Catalog) -> None:
    """Check that no two entries have the same name."""
    taken: dict[str, str] = {}
    for call in catalog.calls:
        for name in (call.name, call.abi_name):
            if taken.setdefault(name, call.name) != call.name:
                raise CatalogError(f"call {call.name}", f"{name!r} is also a name of {taken[name]}", "keep one entry")
    _check_numbers(catalog.calls)
    specs: tuple[CallSpec | TracepointSpec, ...] = (*catalog.calls, *catalog.tracepoints)
    for each in specs:
        if each.group in (DEFAULT, SYSCALLS, ALL):
            raise CatalogError(f"group {each.group}", "is made of other groups", "give the entry another group")
    events = [*(call.name for call in catalog.calls), *(spec.event for spec in catalog.tracepoints)]
    operations = [f"operation {spec.name}" for spec in catalog.operations]
    opcodes = [f"opcode {opcode.number}" for opcode in catalog.opcodes]
    twice = {name for names in (events, operations, opcodes) for name in names if names.count(name) > 1}
    if twice:
        raise CatalogError("tracepoints/*.toml", f"{', '.join(sorted(twice))} described twice", "keep one entry")
    for spec in catalog.tracepoints:
        if spec.newer and spec.newer not in catalog.by_event:
            raise CatalogError(f"{spec.event}: newer", f"nobody describes {spec.newer}", "describe it, or leave it out")


def _check_numbers(calls: Iterable[CallSpec]) -> None:
    """Check that no number means two calls."""
    taken: dict[tuple[str, int], str] = {}
    for call in calls:
        numbers = [
            *call.numbers.items(),
            *(("socketcall" if c.is_socketcall else "i386", c.number) for c in call.compat),
        ]
        for place in numbers:
            other = taken.setdefault(place, call.name)
            if other != call.name:
                raise CatalogError(f"call {call.name}", f"{place[0]} {place[1]} is also {other}", "look the number up")
