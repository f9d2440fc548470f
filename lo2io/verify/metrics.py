"""Rules of metrics: their definitions, the values of their events, and the locations that may record them.

A metric event names a class, or an instance of a class. An instance holds values that one location records about
another thing. Classes and instances share one space of ids (OTF2_GlobalDefWriter.h and OTF2_Definitions.h, version
3.2).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lo2io.otf2.library import UNDEFINED_U64
from lo2io.otf2.read.definitions import LOCATION_ACCELERATOR_STREAM, LOCATION_CPU_THREAD, Definitions, narrowed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lo2io.verify.operations import LocationState
    from lo2io.verify.rules import Verification

_VALUE_TYPES = {8: "INT64", 4: "UINT64", 10: "DOUBLE"}
_BASES = 2
_OCCURRENCES = 3
_ACCUMULATED_START = 0
_PROPERTIES = 3
_TIMINGS = (16, 32, 48)
"""Timings: point, last, next. The timing ``start`` goes with accumulated values only."""
_ABSTRACT = 1
_KINDS = {0: None, _ABSTRACT: None, 2: LOCATION_CPU_THREAD, 3: LOCATION_ACCELERATOR_STREAM}
"""``OTF2_RecorderKind`` → the type of location that records such classes."""
_SCOPES = {0: "location", 1: "location-group", 2: "node", 3: "group"}
"""``OTF2_MetricScope`` → kind of definition."""
_CLASS = "MetricClass"


@dataclass(frozen=True, slots=True)
class Expected:
    """The values and locations that a metric's events must have."""

    types: bytes | None
    """``OTF2_Type`` of each member. None: members are not defined; another rule reports this."""
    recorders: frozenset[int] | None
    """Locations that may record the metric; None: any."""


def check_metrics(found: Definitions, verdict: Verification) -> None:
    """Report the rules that definitions of metrics break."""
    for ref, values in found.table("metric-member").items():
        for problem in _member_problems(*values[3:6]):
            verdict.report("metric.member", f"metric member {ref} ({found.text(values[0])!r}): {problem}")
    for ref, name in found.record_of["metric"].items():
        problems = _class_problems if name == _CLASS else _instance_problems
        for rule, problem in problems(found, ref):
            verdict.report(rule, f"metric {ref}: {problem}")
    _check_recorders(found, verdict)


def _member_problems(mode: int, value_type: int, base: int) -> Iterator[str]:
    if value_type not in _VALUE_TYPES:
        yield f"values of type {value_type}; OTF2 allows {', '.join(_VALUE_TYPES.values())}"
    if mode != _ACCUMULATED_START and (mode & 15 >= _PROPERTIES or mode & 240 not in _TIMINGS):
        yield f"its mode is {mode}"
    if base >= _BASES:
        yield f"its base is {base}"


def _class_problems(found: Definitions, ref: int) -> Iterator[tuple[str, str]]:
    _, _, occurrence, kind = found.table("metric")[ref]
    if not found.members["metric", ref]:
        yield "metric.class", "it has no members"
    if occurrence >= _OCCURRENCES:
        yield "metric.class", f"its occurrence is {occurrence}"
    if kind not in _KINDS:
        yield "metric.class", f"its recorder kind is {kind}"


def _instance_problems(found: Definitions, ref: int) -> Iterator[tuple[str, str]]:
    owner, _, scope_type, scope = found.table("metric")[ref]
    name = found.record_of["metric"].get(owner)
    if name == _CLASS and found.table("metric")[owner][3] != _ABSTRACT:
        yield "metric.instance", f"its class {owner} is not of kind ABSTRACT"
    elif name is not None and name != _CLASS:
        yield "metric.instance", f"it is an instance of {owner}, which is no class"
    kind = _SCOPES.get(scope_type)
    if kind is None:
        yield "metric.instance", f"the type of its scope is {scope_type}"
    elif (target := narrowed(kind, scope)) not in found.table(kind):
        yield f"reference.{kind}", f"its scope is {kind.replace('-', ' ')} {target}, which is not defined"


def _check_recorders(found: Definitions, verdict: Verification) -> None:
    locations = found.table("location")
    for metric, recorder in found.unnamed.get("MetricClassRecorder", ()):
        name = found.record_of["metric"].get(metric)
        if name is None or recorder not in locations:
            continue
        values = found.table("metric")[metric]
        if name != _CLASS:
            wrong = recorder != values[1]
            text = f"location {recorder} is named as recorder of metric {metric}, but its instance names {values[1]}"
        else:
            kind = _KINDS.get(values[3])
            wrong = kind is not None and locations[recorder][1] != kind
            text = f"location {recorder} is not of the kind that records metric {metric}"
        if wrong:
            verdict.report("metric.recorder", text, location=recorder)


def declared_recorders(found: Definitions) -> dict[int, set[int]]:
    """Metric class → locations that the definitions name as its recorders. Classes without recorders are absent."""
    declared: dict[int, set[int]] = {}
    for metric, recorder in found.unnamed.get("MetricClassRecorder", ()):
        declared.setdefault(metric, set()).add(recorder)
    return declared


class MetricRules:
    """Checks metric events against the definitions that they name."""

    def __init__(self, definitions: Definitions, verdict: Verification) -> None:
        self._verdict = verdict
        declared = declared_recorders(definitions)
        self.expected = {
            ref: Expected(_types(definitions, ref), _recorders(definitions, ref, declared))
            for ref in definitions.table("metric")
        }

    def check(self, state: LocationState, time: int, metric: int, types: bytes) -> None:
        """Check one event. ``types`` holds the ``OTF2_Type`` of each value."""
        expected = self.expected.get(metric)
        if expected is None:
            self._report("reference.metric", state, time, f"metric {metric} is not defined")
            return
        if expected.types not in (None, types):
            text = f"metric {metric} has values of {_names(types)}, its definition says {_names(expected.types)}"
            self._report("metric.values", state, time, text)
        if expected.recorders is not None and state.id not in expected.recorders:
            self._report(
                "metric.recorder", state, time, f"the definitions do not allow metric {metric} on this location"
            )

    def _report(self, rule: str, state: LocationState, time: int, text: str) -> None:
        self._verdict.report(rule, text, location=state.id, time=time, event=state.ordinal)


def _names(types: bytes) -> str:
    return ", ".join(_VALUE_TYPES.get(kind, f"type {kind}") for kind in types) or "no type"


def _class_of(found: Definitions, ref: int) -> int | None:
    """The class of an instance, or the class itself; None if the class is not defined."""
    names = found.record_of["metric"]
    owner = ref if names[ref] == _CLASS else found.table("metric")[ref][0]
    return owner if names.get(owner) == _CLASS else None


def _types(found: Definitions, ref: int) -> bytes | None:
    owner = _class_of(found, ref)
    members = found.table("metric-member")
    if owner is None or any(member not in members for member in found.members["metric", owner]):
        return None
    return bytes(members[member][4] for member in found.members["metric", owner])


def _recorders(found: Definitions, ref: int, declared: dict[int, set[int]]) -> frozenset[int] | None:
    values = found.table("metric")[ref]
    if found.record_of["metric"][ref] != _CLASS:
        return None if values[1] == UNDEFINED_U64 else frozenset((values[1],))
    if values[3] == _ABSTRACT:
        return frozenset()
    kind = _KINDS.get(values[3])
    if ref not in declared and kind is None:
        return None
    locations = found.table("location")
    allowed = declared.get(ref, locations.keys())
    return frozenset(at for at in allowed if at in locations and kind in (None, locations[at][1]))
