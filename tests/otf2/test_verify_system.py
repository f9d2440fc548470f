"""``verify`` on traces of whole machines: calling contexts, samples, metrics, the system tree."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING, Any

import _otf2
import otf2
import pytest
from otf2_builder import LENGTH, NONE32, START, Breakage, S, Trace
from otf2_system import (
    CORE,
    COUNTED,
    CPU,
    DEPTH,
    DEPTH_CLASS,
    DISK_DEPTH,
    DISK_METRICS,
    DISK_NODE,
    EACH_BORDER,
    HOST,
    MEASURED,
    PACKAGE,
    PROCESS_RATES,
    RATES_CLASS,
    REQUEST_ALONE,
    REQUEST_INSIDE,
    RUNNING,
    THREAD,
    enter,
    leave,
    metric,
    sample,
    system,
)

from lo2io.verify import Verification, render, verify
from lo2io.verify.contexts import UNSEEN, ContextRules
from lo2io.verify.definitions import Definitions
from lo2io.verify.operations import LocationState

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

UNDEFINED = 77
"""A reference that no definition has."""
breaks = Breakage()


def test_correct_trace(tmp_path: Path) -> None:
    """Nothing is reported, everything is counted, and the readers agree."""
    trace = system()
    trace.clock_offsets = dict.fromkeys(trace.events, 0)  # otf2-print complains where there are no local definitions
    path = trace.write(tmp_path / "T")
    verdict = verify(path)
    assert not verdict.findings
    counts = verdict.counts
    assert (counts.events, counts.samples, counts.metrics, counts.calling_contexts) == (22, 6, 6, 5)
    assert (counts.operations, counts.completed, counts.locations, counts.markers) == (1, 1, 3, 1)
    assert "22 events, 6 samples, 6 metrics, 1 operation" in render(verdict)
    done = subprocess.run(["otf2-print", path / "traces.otf2"], capture_output=True, text=True, check=True)
    assert not done.stderr
    with otf2.reader.open(str(path / "traces.otf2")) as reader:
        kinds = [type(event).__name__ for _, event in reader.events]
    assert (kinds.count("CallingContextSample"), kinds.count("Metric"), len(kinds)) == (6, 6, 22)


def test_samples_of_io_are_io(tmp_path: Path) -> None:
    """A machine of which block events alone were recorded has no I/O records; one sampled elsewhere has no I/O."""
    trace = system()
    del trace.events[THREAD]
    trace.more = [record for record in trace.more if record[0] != "MetricClassRecorder"]
    assert not verify(trace.write(tmp_path / "io")).broken
    role = 3
    breaks.redefine(trace, ("Region", 3), role, _otf2.REGION_ROLE_CODE)
    assert set(verify(trace.write(tmp_path / "code")).broken) == {"trace.no-io"}


# ---- calling contexts ----


@breaks("context.outside")
def _sample_beside_what_runs(trace: Trace) -> None:
    trace.events[CPU].insert(3, sample(START + 20, REQUEST_ALONE, 1))


@breaks("context.outside")
def _entered_beside_what_was_entered(trace: Trace) -> None:
    inside = enter(START + 20, REQUEST_ALONE), leave(START + 20, REQUEST_ALONE)
    trace.events[CPU] = [enter(START, RUNNING), *inside, leave(START + 30, RUNNING)]


@breaks("context.outside")
def _left_elsewhere(trace: Trace) -> None:
    trace.events[CPU][3:3] = [enter(START + 20, REQUEST_INSIDE), leave(START + 20, REQUEST_ALONE)]
    trace.events[CPU][5] = enter(START + 25, REQUEST_INSIDE)
    trace.events[CPU][6:8] = [leave(START + 25, REQUEST_INSIDE)]


@breaks("context.unwind")
def _distance_above_the_root(trace: Trace) -> None:
    trace.events[CPU][1] = sample(START + 10, REQUEST_ALONE, 3)


@breaks("context.unwind")
def _distance_out_of_what_runs(trace: Trace) -> None:
    trace.events[CPU][5] = sample(START + 30, REQUEST_INSIDE, 3)


@breaks("context.unwind")
def _nothing_in_common(trace: Trace) -> None:
    trace.events[CPU][1] = sample(START + 10, REQUEST_INSIDE, 1)


@breaks("context.progress")
def _other_context_with_distance_0(trace: Trace) -> None:
    trace.definitions["CallingContext", 5] = (3, NONE32, RUNNING)
    trace.events[CPU][4:4] = [sample(START + 25, 5), sample(START + 25, RUNNING, 0), sample(START + 25, REQUEST_INSIDE)]


@breaks("context.progress")
def _progress_in_what_was_not_there(trace: Trace) -> None:
    trace.events[CPU][-1] = sample(START + LENGTH, REQUEST_ALONE, 1)


@breaks("context.progress")
def _entered_without_entering(trace: Trace) -> None:
    trace.events[CPU] = [enter(START, RUNNING, 1), leave(START, RUNNING)]


@breaks("region.order")
def _contexts_crossed(trace: Trace) -> None:
    trace.events[CPU][5:7] = [enter(START + 30, REQUEST_INSIDE), leave(START + 40, RUNNING)]


@breaks("region.left-open")
def _context_never_left(trace: Trace) -> None:
    trace.events[CPU] = [enter(START, RUNNING)]


@breaks("reference.calling-context")
def _enter_and_leave_of_no_context(trace: Trace) -> None:
    trace.events[CPU][3:3] = [enter(START + 20, UNDEFINED), leave(START + 20, UNDEFINED)]


@breaks("reference.calling-context")
def _property_of_no_context(trace: Trace) -> None:
    trace.more.append(("CallingContextProperty", (UNDEFINED, S["/tmp"], _otf2.TYPE_UINT64, _otf2.AttributeValue())))


@breaks("reference.calling-context")
def _parent_of_context(trace: Trace) -> None:
    trace.definitions["CallingContext", 5] = (0, NONE32, UNDEFINED)


@breaks("reference.region")
def _context_of_no_region(trace: Trace) -> None:
    trace.definitions["CallingContext", 5] = (UNDEFINED, NONE32, NONE32)


@breaks("reference.interrupt-generator")
def _sample_of_no_generator(trace: Trace) -> None:
    trace.events[CPU][1] = sample(START + 10, REQUEST_ALONE, 1, generator=UNDEFINED)


@breaks("generator.definition")
def _mode_of_generator(trace: Trace) -> None:
    breaks.redefine(trace, ("InterruptGenerator", 0), 1, _otf2.InterruptGeneratorMode(2))


@breaks("generator.definition")
def _base_of_generator(trace: Trace) -> None:
    breaks.redefine(trace, ("InterruptGenerator", 0), 2, _otf2.Base(2))


@breaks("generator.definition")
def _period_of_generator(trace: Trace) -> None:
    breaks.redefine(trace, ("InterruptGenerator", 0), 4, 0)


@breaks("sample.location")
def _sample_of_who_knows_what(trace: Trace) -> None:
    breaks.redefine(trace, ("Location", CPU), 1, _otf2.LOCATION_TYPE_UNKNOWN)
    breaks.redefine(trace, ("LocationGroup", 1), 1, _otf2.LOCATION_GROUP_TYPE_UNKNOWN)


@breaks("region.mixed-styles")
def _sample_beside_plain_enter(trace: Trace) -> None:
    trace.definitions["Location", 3] = (S["thread 11"], _otf2.LOCATION_TYPE_CPU_THREAD, 0)
    trace.events[3] = [("Enter", START, 0), ("Leave", START, 0)]
    trace.events[CPU] = trace.events[CPU][:1]
    trace.events[THREAD] = [event for event in trace.events[THREAD] if event[0].startswith("Io")]


# ---- metric locations and definitions ----


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
    """What a metric is about is defined, whatever it is."""
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


# ---- metric events ----


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


# ---- trees and properties ----


@breaks("definition.cycle")
def _node_in_itself(trace: Trace) -> None:
    breaks.redefine(trace, ("SystemTreeNode", DISK_NODE), 2, DISK_NODE)


@breaks("definition.cycle")
def _contexts_in_each_other(trace: Trace) -> None:
    trace.definitions["CallingContext", 5] = (0, NONE32, 6)
    trace.definitions["CallingContext", 6] = (0, NONE32, 5)


@breaks("definition.cycle")
def _group_that_created_itself(trace: Trace) -> None:
    breaks.redefine(trace, ("LocationGroup", 0), 3, 0)


@breaks("definition.cycle")
def _handle_in_itself(trace: Trace) -> None:
    breaks.redefine(trace, ("IoHandle", 0), 5, 0)


@breaks("node.domain")
def _socket_in_a_core(trace: Trace) -> None:
    breaks.redefine(trace, ("SystemTreeNode", PACKAGE), 2, CORE)
    breaks.redefine(trace, ("SystemTreeNode", CORE), 2, HOST)


@breaks("node.domain")
def _unknown_domain(trace: Trace) -> None:
    trace.more.append(("SystemTreeNodeDomain", (DISK_NODE, _otf2.SystemTreeDomain(9))))


@breaks("property.twice")
def _property_twice(trace: Trace) -> None:
    for number in (1, 2):
        value = _otf2.AttributeValue()
        value.uint64 = number
        trace.more.append(("LocationProperty", (THREAD, S["Offset"], _otf2.TYPE_UINT64, value)))


@breaks("marker.scope")
def _marker_of_no_location(trace: Trace) -> None:
    trace.markers.append((START, 0, 0, _otf2.MARKER_SCOPE_LOCATION, UNDEFINED, "lost"))


@pytest.mark.parametrize(("rule", "change"), breaks.changes, ids=breaks.ids)
def test_broken_in_exactly_one_way(rule: str, change: Callable[[Trace], object], tmp_path: Path) -> None:
    """That rule is reported, no other is, and the trace is ok unless it is an error."""
    breaks.check(rule, change, system(), tmp_path / "T")


def test_right_steps_hide_no_wrong_ones(tmp_path: Path) -> None:
    """Steps seen before are looked up; wrong ones count every time, whatever was right before."""
    trace = system()
    right = [sample(START, REQUEST_ALONE, 1)] * 5
    strange = sample(START, REQUEST_ALONE, 1, UNDEFINED)
    far = [sample(START, REQUEST_ALONE, 3), *[enter(START, RUNNING, 3), leave(START, RUNNING)] * 2]
    run = [enter(START, RUNNING), leave(START, RUNNING)]
    trace.events[CPU] = [*right, strange, *right, strange, *run, *run, *far, *run, *far]
    verdict = verify(trace.write(tmp_path / "T"))
    assert dict(verdict.broken) == {"reference.interrupt-generator": 2, "context.unwind": 6}
    assert verdict.counts.samples == 14


def test_ring_above_the_sampled_context(tmp_path: Path) -> None:
    """A cycle among contexts that events name is said, and ends."""
    trace = system()
    breaks.redefine(trace, ("CallingContext", RUNNING), 2, REQUEST_INSIDE)
    assert "definition.cycle" in verify(trace.write(tmp_path / "T")).broken


# ---- unwind distances, against the manual's words ----

MAIN, SOLVE, SOLVE_LINE_2, READ, WRITE, OTHER = range(6)
TREE = {
    MAIN: (10, NONE32),
    SOLVE: (11, MAIN),
    SOLVE_LINE_2: (11, MAIN),
    READ: (12, SOLVE),
    WRITE: (13, SOLVE_LINE_2),
    OTHER: (20, NONE32),
}
"""Context → region and parent: main calls solve, at two of whose lines read and write are called; something else."""
OUT, STALE = "context.unwind", "context.progress"
STEPS = [
    # Nothing was left, entered or made progress: the very same context.
    (READ, READ, 0, None),
    (SOLVE, READ, 0, OUT),
    (READ, SOLVE, 0, STALE),
    # Something was left, or nothing; the first node made progress.
    (READ, SOLVE, 1, None),
    (READ, SOLVE_LINE_2, 1, None),
    (SOLVE, SOLVE_LINE_2, 1, None),
    (READ, READ, 1, None),
    (MAIN, OTHER, 1, STALE),
    (READ, WRITE, 1, OUT),
    (MAIN, SOLVE, 1, STALE),
    # The first nodes are new, the next one made progress.
    (SOLVE, READ, 2, None),
    (READ, WRITE, 2, None),
    (MAIN, SOLVE, 2, None),
    (MAIN, WRITE, 2, STALE),
    (MAIN, WRITE, 3, None),
    (OTHER, WRITE, 3, STALE),
    # All is new: one more than the path has nodes, and never more than that.
    (OTHER, WRITE, 4, None),
    (READ, WRITE, 4, None),
    (OTHER, WRITE, 5, OUT),
    (NONE32, OTHER, 2, None),
    (NONE32, OTHER, 1, STALE),
    # Of what came before nothing is known.
    (UNSEEN, WRITE, 0, None),
    (UNSEEN, WRITE, 3, None),
    (UNSEEN, WRITE, 4, None),
    (UNSEEN, WRITE, 5, OUT),
]


@pytest.mark.parametrize(("before", "context", "distance", "rule"), STEPS)
def test_unwind_distances(before: int, context: int, distance: int, rule: str | None) -> None:
    """Of a step from one sample to the next; asked twice, the answer is the same."""
    definitions = Definitions()
    definitions.table("calling-context").update({ref: (region, 0, up) for ref, (region, up) in TREE.items()})
    verdict = Verification("T")
    rules = ContextRules(definitions, verdict)
    for times in (1, 2):
        state = LocationState(0, 0)
        state.context = before
        rules.sample(state, 5, context, distance)
        assert state.context == context
        assert dict(verdict.broken) == ({rule: times} if rule else {})


@pytest.mark.parametrize(
    ("context", "distance", "rule"),
    [
        (SOLVE, 1, None),
        (SOLVE_LINE_2, 1, None),
        (WRITE, 2, None),
        (WRITE, 3, OUT),
        (SOLVE, 2, OUT),
        (MAIN, 1, "context.outside"),
        (OTHER, 2, "context.outside"),
    ],
)
def test_what_was_entered_bounds_the_distance(context: int, distance: int, rule: str | None) -> None:
    """Inside of solve, entered and not left, no sample says that solve was left."""
    definitions = Definitions()
    definitions.table("calling-context").update({ref: (region, 0, up) for ref, (region, up) in TREE.items()})
    verdict: Any = Verification("T")
    state = LocationState(0, 0)
    state.stack.append((11, 0, SOLVE))
    state.context = SOLVE
    ContextRules(definitions, verdict).sample(state, 5, context, distance)
    assert dict(verdict.broken) == ({rule: 1} if rule else {})
