"""``verify`` on metrics: locations, definitions, values, who records them and when."""

from __future__ import annotations

from typing import TYPE_CHECKING

import _otf2
import pytest
from build.otf2_builder import START, UNDEFINED, Breakage, S, Trace
from build.otf2_system import (
    COUNTED,
    CPU,
    DEPTH,
    DEPTH_CLASS,
    DISK_DEPTH,
    DISK_METRICS,
    DISK_NODE,
    EACH_BORDER,
    MEASURED,
    PROCESS_RATES,
    RATES_CLASS,
    REQUEST_ALONE,
    THREAD,
    metric,
    sample,
    system,
)

from lo2io.verify import verify

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

breaks = Breakage()


# ---- locations and definitions ----


@breaks("location.metrics-only")
def _sample_on_a_metric_location(trace: Trace) -> None:
    trace.events[DISK_METRICS].insert(0, sample(START, REQUEST_ALONE))


@breaks("location.metrics-only")
def _parameter_on_a_metric_location(trace: Trace) -> None:
    trace.definitions["Parameter", 0] = (S["Offset"], _otf2.PARAMETER_TYPE_INT64)
    trace.events[DISK_METRICS].append(("ParameterInt", START + 200, 0, 1))


@breaks("metric.member")
def _member_of_other_type(trace: Trace) -> None:
    breaks.redefine(trace, ("MetricMember", DEPTH), 4, _otf2.TYPE_UINT32)
    types = [_otf2.TYPE_UINT32, MEASURED]
    for events in trace.events.values():
        for place, event in enumerate(events):
            if event[0] == "Metric":
                events[place] = (*event[:3], [types[kind == MEASURED] for kind in event[3]], event[4])


@breaks("metric.member")
def _member_absolute_since_the_start(trace: Trace) -> None:
    breaks.redefine(trace, ("MetricMember", DEPTH), 3, _otf2.MetricMode(1))


@breaks("metric.member")
def _member_with_a_fourth_property(trace: Trace) -> None:
    breaks.redefine(trace, ("MetricMember", DEPTH), 3, _otf2.MetricMode(16 + 3))


@breaks("metric.member")
def _member_with_a_third_base(trace: Trace) -> None:
    breaks.redefine(trace, ("MetricMember", DEPTH), 5, _otf2.Base(2))


@breaks("metric.class")
def _class_without_members(trace: Trace) -> None:
    trace.definitions["MetricClass", 9] = ([], _otf2.METRIC_ASYNCHRONOUS, _otf2.RECORDER_KIND_CPU)


@breaks("metric.class")
def _class_of_a_fourth_occurrence(trace: Trace) -> None:
    breaks.redefine(trace, ("MetricClass", DEPTH_CLASS), 1, _otf2.MetricOccurrence(3))


@breaks("metric.class")
def _class_of_a_fifth_kind(trace: Trace) -> None:
    trace.definitions["MetricClass", 9] = ([DEPTH], _otf2.METRIC_ASYNCHRONOUS, _otf2.RecorderKind(4))


@breaks("metric.instance")
def _instance_of_a_class_for_cpus(trace: Trace) -> None:
    trace.definitions["MetricInstance", 9] = (EACH_BORDER, DISK_METRICS, _otf2.SCOPE_SYSTEM_TREE_NODE, DISK_NODE)


@breaks("metric.instance")
def _instance_of_an_instance(trace: Trace) -> None:
    trace.definitions["MetricInstance", 9] = (DISK_DEPTH, DISK_METRICS, _otf2.SCOPE_SYSTEM_TREE_NODE, DISK_NODE)


@breaks("metric.instance")
def _instance_about_what(trace: Trace) -> None:
    trace.definitions["MetricInstance", 9] = (DEPTH_CLASS, DISK_METRICS, _otf2.MetricScope(4), 0)


@pytest.mark.parametrize(
    ("scope", "rule"),
    [
        ("LOCATION", "reference.location"),
        ("LOCATION_GROUP", "reference.location-group"),
        ("SYSTEM_TREE_NODE", "reference.node"),
        ("GROUP", "reference.group"),
    ],
)
def test_scope_of_an_instance(scope: str, rule: str, tmp_path: Path) -> None:
    """The scope of a metric is defined, of whatever kind."""
    trace = system()
    where = DISK_METRICS, getattr(_otf2, f"SCOPE_{scope}")
    trace.definitions["MetricInstance", 9] = (DEPTH_CLASS, *where, 0)
    assert not verify(trace.write(tmp_path / "right")).broken
    trace.definitions["MetricInstance", 9] = (DEPTH_CLASS, *where, UNDEFINED)
    assert set(verify(trace.write(tmp_path / "wrong")).broken) == {rule}


@breaks("reference.location")
def _instance_without_recorder(trace: Trace) -> None:
    where = 2**64 - 1, _otf2.SCOPE_SYSTEM_TREE_NODE, DISK_NODE
    trace.definitions["MetricInstance", 9] = (DEPTH_CLASS, *where)


@breaks("reference.location")
def _recorder_of_a_class(trace: Trace) -> None:
    trace.more.append(("MetricClassRecorder", (EACH_BORDER, UNDEFINED)))


@breaks("reference.metric")
def _recorder_of_no_class(trace: Trace) -> None:
    trace.more.append(("MetricClassRecorder", (UNDEFINED, THREAD)))


@breaks("reference.metric")
def _member_of_a_group(trace: Trace) -> None:
    kinds = _otf2.GROUP_TYPE_METRIC, _otf2.PARADIGM_USER, _otf2.GROUP_FLAG_NONE
    trace.definitions["Group", 1] = (S[""], *kinds, [DISK_DEPTH, UNDEFINED])


@breaks("reference.string")
def _unit_of_a_member(trace: Trace) -> None:
    breaks.redefine(trace, ("MetricMember", DEPTH), 7, 999)


# ---- events ----


@breaks("reference.metric")
def _member_in_place_of_a_class(trace: Trace) -> None:
    trace.definitions["MetricMember", 9] = trace.definitions["MetricMember", DEPTH]
    trace.events[DISK_METRICS][0] = metric(START + 100, 9, COUNTED)


@breaks("metric.values")
def _one_value_too_few(trace: Trace) -> None:
    trace.events[DISK_METRICS][1] = metric(START + 100, PROCESS_RATES, MEASURED)


@breaks("metric.values")
def _values_in_another_order(trace: Trace) -> None:
    trace.events[DISK_METRICS][1] = metric(START + 100, PROCESS_RATES, COUNTED, MEASURED)


@breaks("metric.values")
def _no_value(trace: Trace) -> None:
    trace.events[DISK_METRICS][0] = metric(START + 100, DISK_DEPTH)


@breaks("metric.recorder")
def _instance_on_another_location(trace: Trace) -> None:
    trace.events[CPU].insert(0, metric(START, DISK_DEPTH, COUNTED))


@breaks("metric.recorder")
def _abstract_class_itself(trace: Trace) -> None:
    trace.events[DISK_METRICS][1] = metric(START + 100, RATES_CLASS, MEASURED, COUNTED)


@breaks("metric.recorder")
def _class_on_another_location_than_declared(trace: Trace) -> None:
    trace.definitions["MetricClass", EACH_BORDER] = ([DEPTH], _otf2.METRIC_ASYNCHRONOUS, _otf2.RECORDER_KIND_CPU)
    trace.events[CPU].insert(0, metric(START, EACH_BORDER, COUNTED))


@breaks("metric.recorder")
def _class_for_cpus_on_a_metric_location(trace: Trace) -> None:
    trace.definitions["MetricClass", 9] = ([DEPTH], _otf2.METRIC_ASYNCHRONOUS, _otf2.RECORDER_KIND_CPU)
    trace.events[DISK_METRICS].append(metric(START + 100, 9, COUNTED))


@breaks("metric.recorder")
def _declared_for_a_metric_location(trace: Trace) -> None:
    trace.more.append(("MetricClassRecorder", (EACH_BORDER, DISK_METRICS)))


@breaks("metric.recorder")
def _instance_declared_elsewhere(trace: Trace) -> None:
    trace.more.append(("MetricClassRecorder", (DISK_DEPTH, CPU)))


@breaks("metric.synchronous")
def _at_no_border(trace: Trace) -> None:
    trace.events[THREAD].insert(3, metric(START + 6, EACH_BORDER, COUNTED))


@breaks("metric.synchronous")
def _twice_at_one_border(trace: Trace) -> None:
    trace.events[THREAD].insert(0, metric(START, EACH_BORDER, COUNTED))


@breaks("metric.synchronous")
def _with_something_between(trace: Trace) -> None:
    trace.events[THREAD].insert(1, ("IoDeleteFile", START, 0, 0))
    trace.definitions["MetricClass", EACH_BORDER] = ([DEPTH], _otf2.METRIC_SYNCHRONOUS, _otf2.RECORDER_KIND_CPU)


@breaks("metric.strict")
def _one_border_without(trace: Trace) -> None:
    del trace.events[THREAD][0]


@breaks("metric.strict")
def _one_border_without_where_nothing_is_declared(trace: Trace) -> None:
    del trace.events[THREAD][0]
    trace.more.pop()


@breaks("metric.strict")
def _declared_and_never_recorded(trace: Trace) -> None:
    trace.more.append(("MetricClassRecorder", (EACH_BORDER, CPU)))


def test_synchronous_metrics_may_miss_borders_and_lie_at_samples(tmp_path: Path) -> None:
    """Strictness is another thing; and a sample has the values of its moment, as an enter has."""
    trace = system()
    trace.definitions["MetricClass", EACH_BORDER] = ([DEPTH], _otf2.METRIC_SYNCHRONOUS, _otf2.RECORDER_KIND_CPU)
    del trace.events[THREAD][0]
    trace.more.append(("MetricClassRecorder", (EACH_BORDER, CPU)))
    trace.events[CPU].insert(2, metric(START + 10, EACH_BORDER, COUNTED))
    assert not verify(trace.write(tmp_path / "T")).broken


@pytest.mark.parametrize(("rule", "change"), breaks.changes, ids=breaks.ids)
def test_broken_in_exactly_one_way(rule: str, change: Callable[[Trace], object], tmp_path: Path) -> None:
    """Only that rule is reported, and the trace is ok unless it is an error."""
    breaks.check(rule, change, system(), tmp_path / "T")
