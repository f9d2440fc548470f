"""``verify`` on traces of whole machines: right ones, the system tree, properties."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

import _otf2
import otf2
import pytest
from build.otf2_builder import NONE32, START, UNDEFINED, Breakage, S, Trace
from build.otf2_system import (
    CORE,
    DISK_NODE,
    HOST,
    PACKAGE,
    THREAD,
    system,
)

from lo2io.verify import render, verify

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

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
    """A recording of block events alone has no I/O records; one with other samples has no I/O."""
    trace = system()
    del trace.events[THREAD]
    trace.more = [record for record in trace.more if record[0] != "MetricClassRecorder"]
    assert not verify(trace.write(tmp_path / "io")).broken
    role = 3
    breaks.redefine(trace, ("Region", 3), role, _otf2.REGION_ROLE_CODE)
    assert set(verify(trace.write(tmp_path / "code")).broken) == {"trace.no-io"}


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
    """Only that rule is reported, and the trace is ok unless it is an error."""
    breaks.check(rule, change, system(), tmp_path / "T")
