"""Checks the rules of definitions. :mod:`lo2io.verify.rules` has the sentences of all rules."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Any

import numpy as np

from lo2io.otf2.library import UNDEFINED_U32, UNDEFINED_U64
from lo2io.otf2.read.definitions import (
    GROUP_REGIONS,
    HANDLE_PARENT,
    HANDLE_PRE_CREATED,
    LOCATION_CPU_THREAD,
    LOCATION_GROUP_PROCESS,
    RECORDS,
    REFERENCE_TYPES,
    Definitions,
    Record,
    member_kind,
    narrowed,
    undefined,
)
from lo2io.otf2.read.tables import Places, Table, references
from lo2io.verify.metrics import check_metrics

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lo2io.verify.rules import Verification

_CLASSES = {0: "SERIAL", 1: "PARALLEL"}
_FLAG_OS = 1
_KNOWN_PARADIGMS = {"POSIX": (0, _FLAG_OS), "ISOC": (0, None), "MPI-IO": (1, 0), "PnetCDF": (1, 0), "ADIOS": (1, 0)}
"""Identification → class and flags that the OTF2 manual demands ("Known OTF2 I/O paradigms"). None: any flags."""

_TREES = {"node": "parent", "location-group": "creator", "calling-context": "parent", "handle": "parent"}
"""Kinds of definitions that form trees → the field that leads to the parent."""
_DOMAINS = {0: "machine", 1: "shared memory", 2: "NUMA", 3: "socket", 4: "cache", 5: "core", 6: "processing unit"}
_DEVICES = (7, 8)
"""Domains of accelerator and network devices, which may lie anywhere."""
_SIZES = {0: 0, 1: 1, 2: 2, 3: 2, 4: 2, 5: 3, 6: 4}
"""Domain → rank by size, a greater rank for a smaller domain. Sockets, NUMA domains and caches may hold one another."""
_GENERATOR_MODES, _BASES = 2, 2
_ALIKE = "IoDirectory"
"""The record that has the same values as the other one of files, and shares its table."""
_CHUNK = 1 << 20
"""Definitions that are checked at once."""


def check_definitions(found: Definitions, verdict: Verification) -> None:
    """Report every rule that the definitions break by themselves, without events."""
    _check_clock(found, verdict)
    _check_counts(found, verdict)
    for kind, ref in found.duplicates:
        verdict.report("definition.duplicate", f"{_article(kind)} with id {ref} is defined again")
    for rule, text in _references(found):
        verdict.report(rule, text)
    _check_groups(found, verdict)
    _check_names(found, verdict)
    _check_paradigms(found, verdict)
    _check_handles(found, verdict)
    _check_trees(found, verdict)
    _check_properties(found, verdict)
    _check_generators(found, verdict)
    check_metrics(found, verdict)


def _article(kind: str) -> str:
    name = kind.replace("-", " ")
    return f"an {name}" if name[0] in "aeiou" else f"a {name}"


def _check_clock(found: Definitions, verdict: Verification) -> None:
    if len(found.clocks) != 1:
        verdict.report("clock.properties", f"the clock is defined {len(found.clocks)} times")
    for resolution, start, length, realtime in found.clocks[:1]:
        verdict.resolution, verdict.start, verdict.length = resolution, start, length
        if not resolution:
            verdict.report("clock.properties", "the clock has 0 ticks per second")
        if realtime in (0, UNDEFINED_U64):
            verdict.report("clock.realtime", "the real time of the first tick is not given")


def _check_counts(found: Definitions, verdict: Verification) -> None:
    locations = len(found.table("location"))
    if found.anchor_locations != locations:
        verdict.report(
            "count.locations", f"the anchor file counts {found.anchor_locations} locations, {locations} are defined"
        )
    if found.anchor_number != found.number:
        verdict.report(
            "count.definitions", f"the anchor file counts {found.anchor_number} definitions, {found.number} are there"
        )


def _rule(kind: str) -> str:
    return "reference.metric" if kind == "metric-member" else f"reference.{kind}"


def _references(found: Definitions) -> Iterator[tuple[str, str]]:
    """The rule and the finding's text for each reference of a definition to an undefined id."""
    for record in RECORDS.values():
        table = {} if record.kind is None else found.table(record.kind)
        if record.kind is None:
            for values in found.unnamed.get(record.name, ()):
                yield from _record_references(found, record, f"{record.name} of {values[0]}", values)
        elif not isinstance(table, Table):
            names = found.record_of[record.kind]
            for ref, values in table.items():
                if names.get(ref, record.name) == record.name:
                    yield from _record_references(found, record, f"{record.name} {ref}", values)
        elif record.name != _ALIKE:
            yield from _column_references(found, record, table)
    yield from _member_references(found)


def _member_references(found: Definitions) -> Iterator[tuple[str, str]]:
    for (kind, ref), members in found.members.items():
        record_name = found.record_of[kind].get(ref, "Group")
        target = member_kind(record_name, found.table(kind)[ref])
        for member in members if target else ():
            if target and member not in found.table(target):
                yield _rule(target), f"{record_name} {ref}: member {member} is not defined"


def _column_references(found: Definitions, record: Record, table: Table) -> Iterator[tuple[str, str]]:
    odd = np.zeros(len(table), np.bool_)
    for field in record.fields:
        if field.kind is not None:
            values, places = table.column(field.name), Places(references(found.table(field.kind)))
            for first in range(0, len(table), _CHUNK):
                some = values[first : first + _CHUNK]
                unknown = places.of(some) < 0
                odd[first : first + _CHUNK] |= unknown & (field.needed | (some != undefined(field.kind)))
    for place in np.flatnonzero(odd).tolist():
        ref, name = int(table.refs[place]), record.name
        if record.kind == "file" and table[ref][-1]:
            name = _ALIKE
        yield from _record_references(found, record, f"{name} {ref}", table[ref])


def _record_references(
    found: Definitions, record: Record, owner: str, values: tuple[Any, ...]
) -> Iterator[tuple[str, str]]:
    for place, field in enumerate(record.fields):
        kind, value = field.kind, values[place]
        if kind is None and field.name == "value":
            kind = REFERENCE_TYPES.get(values[place - 1])
            value = narrowed(kind, value)
        if kind is None or value in found.table(kind):
            continue
        if field.needed or value != undefined(kind):
            shown = "undefined" if value == undefined(kind) else f"{value}, which is not defined"
            yield _rule(kind), f"{owner}: {field.name} is {shown}"


def _check_groups(found: Definitions, verdict: Verification) -> None:
    with_thread = {values[3] for values in found.table("location").values() if values[1] == LOCATION_CPU_THREAD}
    for ref, values in found.table("location-group").items():
        if values[1] == LOCATION_GROUP_PROCESS and ref not in with_thread:
            verdict.report(
                "group.no-thread", f"process group {ref} ({found.text(values[0])!r}) has no CPU_THREAD location"
            )
    groups = found.table("group").values()
    if found.table("region") and not any(values[1] == GROUP_REGIONS for values in groups):
        verdict.report("region.group", "no group of regions is defined: viewers colour all regions alike")


def _check_names(found: Definitions, verdict: Verification) -> None:
    owners: dict[str, list[str]] = defaultdict(list)
    for kind, shown in (("node", "node"), ("location-group", "group"), ("location", "location")):
        for ref, values in found.table(kind).items():
            owners[found.text(values[0])].append(f"{shown} {ref}")
    for name, which in owners.items():
        if len(which) > 1:
            rest = f" and {len(which) - 3} more" if len(which) > 3 else ""  # noqa: PLR2004 -- three are examples enough
            verdict.report("name.shared", f"{name!r} names {', '.join(which[:3])}{rest}")


def _check_paradigms(found: Definitions, verdict: Verification) -> None:
    paradigms = found.table("paradigm")
    twins = Counter(values[0] for values in paradigms.values())
    for ref, (identification, name, klass, flags) in paradigms.items():
        ident = found.text(identification)
        problems = []
        if klass not in _CLASSES:
            problems.append(f"its class is {klass}")
        if not ident or not found.text(name):
            problems.append("its name or identification is empty")
        if ref >= len(paradigms):  # otf2-print refuses it
            problems.append(f"the {len(paradigms)} paradigms are not numbered from 0 without gaps")
        if twins[identification] > 1:
            problems.append("another paradigm has the same identification")
        wanted_class, wanted_flags = _KNOWN_PARADIGMS.get(ident, (klass, None))
        if klass in _CLASSES and klass != wanted_class:
            problems.append(f"its class is {_CLASSES[klass]}, OTF2 demands {_CLASSES[wanted_class]}")
        if wanted_flags not in (None, flags):
            problems.append(f"its flags are {flags}, OTF2 demands {wanted_flags}")
        for problem in problems:
            verdict.report("paradigm.definition", f"I/O paradigm {ref} ({ident!r}): {problem}")


def _check_handles(found: Definitions, verdict: Verification) -> None:
    stated = {values[0] for values in found.unnamed.get("IoPreCreatedHandleState", ())}
    handles = found.columns("handle")
    flags, parents = handles.column("flags"), handles.column("parent")
    odd = ((flags & HANDLE_PRE_CREATED) != 0) != np.isin(handles.refs, list(stated))
    odd |= parents != UNDEFINED_U32
    for ref in handles.refs[odd].tolist():
        values = handles[ref]
        parent = handles.get(values[HANDLE_PARENT])
        if parent is not None and values[HANDLE_PARENT] != ref and parent[2] == values[2]:
            text = f"handle {ref} has the parent {values[HANDLE_PARENT]}, which is of the same I/O paradigm"
            verdict.report("handle.parent", text)
        flagged = bool(values[3] & HANDLE_PRE_CREATED)
        if flagged and ref not in stated:
            verdict.report("handle.state", f"handle {ref} is flagged PRE_CREATED and has no state")
        elif ref in stated and not flagged:
            verdict.report("handle.state", f"handle {ref} has a pre-created state but not the flag PRE_CREATED")


def _check_trees(found: Definitions, verdict: Verification) -> None:
    for kind, field in _TREES.items():
        record = next(record for record in RECORDS.values() if record.kind == kind)
        place = record.index(field)
        table = found.table(kind)
        if isinstance(table, Table):
            column = table.column(field)
            some = column != UNDEFINED_U32
            parents = dict(zip(table.refs[some].tolist(), column[some].tolist(), strict=True))
        else:
            parents = {ref: values[place] for ref, values in table.items()}
        for ref in _cycles(parents):
            verdict.report(
                "definition.cycle", f"{_article(kind)} with id {ref} is its own {field}, or that of its own {field}s"
            )
    _check_domains(found, verdict)


def _cycles(parents: dict[int, int]) -> Iterator[int]:
    """One member of each cycle."""
    done: set[int] = set()
    for start in parents:
        path: set[int] = set()
        ref = start
        while ref in parents and ref not in done and ref not in path:
            path.add(ref)
            ref = parents[ref]
        if ref in path:
            yield ref
        done |= path


def _check_domains(found: Definitions, verdict: Verification) -> None:
    nodes = found.table("node")
    domains: dict[int, list[int]] = defaultdict(list)
    for node, domain in found.unnamed.get("SystemTreeNodeDomain", ()):
        if domain in _SIZES:
            domains[node].append(domain)
        elif domain not in _DEVICES:
            verdict.report("node.domain", f"node {node} ({found.name('node', node)!r}) has domain {domain}")
    for node, inner in domains.items():
        largest = min(inner, key=_SIZES.__getitem__)
        seen = {node}
        around = nodes[node][2] if node in nodes else node
        while around in nodes and around not in seen:
            seen.add(around)
            smallest = max(domains.get(around, (0,)), key=_SIZES.__getitem__)
            if _SIZES[smallest] > _SIZES[largest]:
                text = f"node {node} ({found.name('node', node)!r}), a {_DOMAINS[largest]}, lies inside"
                verdict.report("node.domain", f"{text} node {around}, a {_DOMAINS[smallest]}")
                break
            around = nodes[around][2]


def _check_properties(found: Definitions, verdict: Verification) -> None:
    for record, rows in found.unnamed.items():
        if record.endswith("Property"):
            times = Counter(values[:2] for values in rows)
            for (owner, name), number in times.items():
                if number > 1:
                    text = f"{record} of {owner}: {found.text(name)!r} is given {number} times"
                    verdict.report("property.twice", text)


def _check_generators(found: Definitions, verdict: Verification) -> None:
    for ref, (name, mode, base, _, period) in found.table("interrupt-generator").items():
        for what, wrong in (
            (f"mode {mode}", mode >= _GENERATOR_MODES),
            (f"base {base}", base >= _BASES),
            ("period 0", not period),
        ):
            if wrong:
                verdict.report("generator.definition", f"interrupt generator {ref} ({found.text(name)!r}) has {what}")
