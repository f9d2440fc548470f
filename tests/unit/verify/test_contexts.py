"""``verify`` on calling contexts and samples, and possible steps from one to the next."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import _otf2
import pytest
from build.otf2_builder import LENGTH, NONE32, START, UNDEFINED, Breakage, S, Trace
from build.otf2_system import (
    CPU,
    REQUEST_ALONE,
    REQUEST_INSIDE,
    RUNNING,
    THREAD,
    enter,
    leave,
    sample,
    system,
)

from lo2io.otf2.read.definitions import Definitions
from lo2io.verify import Verification, verify
from lo2io.verify.contexts import UNSEEN, ContextRules
from lo2io.verify.operations import LocationState

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

breaks = Breakage()


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


@pytest.mark.parametrize(("rule", "change"), breaks.changes, ids=breaks.ids)
def test_broken_in_exactly_one_way(rule: str, change: Callable[[Trace], object], tmp_path: Path) -> None:
    """Only that rule is reported, and the trace is ok unless it is an error."""
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
    # No context was left or entered, none made progress: it is the very same one.
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
    # The steps before are unknown.
    (UNSEEN, WRITE, 0, None),
    (UNSEEN, WRITE, 3, None),
    (UNSEEN, WRITE, 4, None),
    (UNSEEN, WRITE, 5, OUT),
]


@pytest.mark.parametrize(("before", "context", "distance", "rule"), STEPS)
def test_unwind_distances(before: int, context: int, distance: int, rule: str | None) -> None:
    """For a step from one sample to the next; a second check gives the same."""
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
    """Inside of solve, entered and not left, no sample may show that solve was left."""
    definitions = Definitions()
    definitions.table("calling-context").update({ref: (region, 0, up) for ref, (region, up) in TREE.items()})
    verdict: Any = Verification("T")
    state = LocationState(0, 0)
    state.stack.append((11, 0, SOLVE))
    state.context = SOLVE
    ContextRules(definitions, verdict).sample(state, 5, context, distance)
    assert dict(verdict.broken) == ({rule: 1} if rule else {})
