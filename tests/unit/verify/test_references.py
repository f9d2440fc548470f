"""``verify`` on references of definitions and events: whatever is named is defined."""

from __future__ import annotations

from typing import TYPE_CHECKING

import _otf2
import pytest
from build.otf2_builder import (
    NONE32,
    READ_FD,
    START,
    UNDEFINED,
    WRITE_FD,
    Breakage,
    S,
    Trace,
    begin,
    complete,
    correct,
)

from lo2io.verify import verify

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

breaks = Breakage()


@breaks("reference.string")
def _region_without_name(trace: Trace) -> None:
    breaks.redefine(trace, ("Region", 0), 0, NONE32)


@breaks("reference.string")
def _property_value(trace: Trace) -> None:
    value = _otf2.AttributeValue()
    value.stringRef = UNDEFINED
    trace.more.append(("IoFileProperty", (1, S["Mount Point"], _otf2.TYPE_STRING, value)))


@breaks("reference.string")
def _attribute_value(trace: Trace) -> None:
    trace.definitions["Attribute", 1] = (S["/tmp"], S[""], _otf2.TYPE_STRING)
    trace.events[0][0] += ({1: (_otf2.TYPE_STRING, UNDEFINED)},)


@breaks("reference.attribute")
def _attribute_of_event(trace: Trace) -> None:
    trace.events[0][0] += ({UNDEFINED: (_otf2.TYPE_UINT64, 1)},)


@breaks("reference.location")
def _file_of_no_location(trace: Trace) -> None:
    trace.events[UNDEFINED] = [("Enter", START, 0), ("Leave", START, 0)]


@breaks("reference.location")
def _metric_recorder(trace: Trace) -> None:
    _add_metric(trace)
    scope = _otf2.SCOPE_LOCATION
    trace.definitions["MetricInstance", 1] = (0, UNDEFINED, scope, 0)


@breaks("reference.location-group")
def _location_without_group(trace: Trace) -> None:
    trace.definitions["Location", 3] = (S["/tmp"], _otf2.LOCATION_TYPE_CPU_THREAD, UNDEFINED)


@breaks("reference.node")
def _file_scope(trace: Trace) -> None:
    breaks.redefine(trace, ("IoRegularFile", 0), 1, UNDEFINED)


@breaks("reference.region")
def _enter_and_leave(trace: Trace) -> None:
    breaks.add_event(trace, "Enter", START + 400, UNDEFINED)
    breaks.add_event(trace, "Leave", START + 400, UNDEFINED)


@breaks("reference.region")
def _group_member(trace: Trace) -> None:
    breaks.redefine(trace, ("Group", 0), 4, [0, 1, UNDEFINED])


@breaks("reference.paradigm")
def _deleted_in_paradigm(trace: Trace) -> None:
    breaks.add_event(trace, "IoDeleteFile", START + 400, UNDEFINED, 0)


@breaks("reference.paradigm")
def _handle_paradigm(trace: Trace) -> None:
    breaks.redefine(trace, ("IoHandle", READ_FD), 2, 255)


@breaks("reference.file")
def _handle_file(trace: Trace) -> None:
    breaks.redefine(trace, ("IoHandle", READ_FD), 1, UNDEFINED)


@breaks("reference.file")
def _deleted_file(trace: Trace) -> None:
    breaks.add_event(trace, "IoDeleteFile", START + 400, 0, UNDEFINED)


@breaks("reference.handle")
def _handle_of_event(trace: Trace) -> None:
    breaks.add_event(trace, *begin(START + 400, UNDEFINED, 9))
    breaks.add_event(trace, *complete(START + 400, UNDEFINED, 9))


@breaks("reference.handle")
def _handle_parent(trace: Trace) -> None:
    breaks.redefine(trace, ("IoHandle", READ_FD), 5, UNDEFINED)


@breaks("reference.metric")
def _metric_of_event(trace: Trace) -> None:
    _add_metric(trace)
    breaks.add_event(trace, "Metric", START + 400, UNDEFINED, [_otf2.TYPE_UINT64], [_metric_value()])


@breaks("reference.metric")
def _metric_member(trace: Trace) -> None:
    _add_metric(trace)
    kinds = _otf2.METRIC_ASYNCHRONOUS, _otf2.RECORDER_KIND_ABSTRACT
    trace.definitions["MetricClass", 1] = ([UNDEFINED], *kinds)


@breaks("reference.calling-context")
def _context_of_sample(trace: Trace) -> None:
    trace.definitions["InterruptGenerator", 0] = _interrupt_generator()
    trace.events[0] = [e for e in trace.events[0] if e[0] not in ("Enter", "Leave")]
    breaks.add_event(trace, "CallingContextSample", START + 400, UNDEFINED, 1, 0)


@breaks("reference.interrupt-generator")
def _generator_of_sample(trace: Trace) -> None:
    trace.definitions["CallingContext", 0] = (0, NONE32, NONE32)
    trace.events[0] = [e for e in trace.events[0] if e[0] not in ("Enter", "Leave")]
    breaks.add_event(trace, "CallingContextSample", START + 400, 0, 1, UNDEFINED)


@breaks("reference.group")
def _group_of_communicator(trace: Trace) -> None:
    trace.definitions["Comm", 0] = (S[""], UNDEFINED, NONE32, _otf2.COMM_FLAG_NONE)


@breaks("reference.communicator")
def _communicator_of_handle(trace: Trace) -> None:
    breaks.redefine(trace, ("IoHandle", WRITE_FD), 4, UNDEFINED)


@breaks("reference.marker")
def _marker_group(trace: Trace) -> None:
    trace.markers.append((START, 0, UNDEFINED, _otf2.MARKER_SCOPE_GLOBAL, 0, "lost"))


@breaks("reference.source-code-location")
def _line_of_context(trace: Trace) -> None:
    trace.definitions["CallingContext", 0] = (0, UNDEFINED, NONE32)


@breaks("reference.parameter")
def _parameter_of_event(trace: Trace) -> None:
    breaks.add_event(trace, "ParameterInt", START + 400, UNDEFINED, 1)


@breaks("attribute.type")
def _attribute_of_other_type(trace: Trace) -> None:
    trace.events[0][0] += ({0: (_otf2.TYPE_INT32, 1)},)


def _add_metric(trace: Trace) -> None:
    trace.definitions["MetricMember", 0] = (
        *(S["vda"], S[""], _otf2.METRIC_TYPE_OTHER, _otf2.METRIC_ABSOLUTE_POINT, _otf2.TYPE_UINT64),
        *(_otf2.BASE_DECIMAL, 0, S[""]),
    )
    trace.definitions["MetricClass", 0] = ([0], _otf2.METRIC_ASYNCHRONOUS, _otf2.RECORDER_KIND_ABSTRACT)


def _metric_value() -> object:
    value = _otf2.MetricValue()
    value.unsigned_int = 1
    return value


def _interrupt_generator() -> tuple[object, ...]:
    return (S["vda"], _otf2.INTERRUPT_GENERATOR_MODE_COUNT, _otf2.BASE_DECIMAL, 0, 1)


@pytest.mark.parametrize(("rule", "change"), breaks.changes, ids=breaks.ids)
def test_broken_in_exactly_one_way(rule: str, change: Callable[[Trace], object], tmp_path: Path) -> None:
    """Only that rule is reported, and the trace is ok unless it is an error."""
    breaks.check(rule, change, correct(), tmp_path / "T")


def test_a_leave_of_an_unknown_region_breaks_two_rules(tmp_path: Path) -> None:
    """It is not defined, and was not entered."""
    trace = correct()
    breaks.add_event(trace, "Leave", START + 400, UNDEFINED)
    verdict = verify(trace.write(tmp_path / "T"))
    assert set(verdict.broken) == {"reference.region", "region.not-entered"}
