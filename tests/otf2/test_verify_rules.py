"""Each rule of ``lo2io verify``: a trace broken in exactly that way breaks that rule and no other."""

from __future__ import annotations

import re
import struct
from pathlib import Path
from typing import TYPE_CHECKING

import _otf2
import pytest
from otf2_builder import (
    BLOCKING,
    DISK,
    FLUSH,
    LENGTH,
    NO_FLAGS,
    NON_BLOCKING,
    NONE32,
    NONE64,
    READ_FD,
    START,
    WRITE_FD,
    Breakage,
    S,
    Trace,
    begin,
    complete,
    correct,
    created,
)

from lo2io.verify import RULES, verify

if TYPE_CHECKING:
    from collections.abc import Callable

UNDEFINED = 77
"""A reference that no definition of the correct trace has."""
breaks = Breakage()


def _extra_event(trace: Trace, *event: object, location: int = 1) -> None:
    trace.events[location].append(event)


# ---- clock, counts, definitions ----


@breaks("clock.properties")
def _no_resolution(trace: Trace) -> None:
    trace.clock = (0, *trace.clock[1:])


@breaks("clock.realtime")
def _no_realtime(trace: Trace) -> None:
    trace.clock = (*trace.clock[:3], NONE64)


@breaks("clock.before-start")
def _too_early(trace: Trace) -> None:
    trace.events[0][0] = ("Enter", START - 1, 1)


@breaks("clock.after-end")
def _too_late(trace: Trace) -> None:
    trace.events[2][-1] = ("IoOperationCancelled", START + LENGTH + 1, DISK, 5)


@breaks("count.events")
def _one_more_counted(trace: Trace) -> None:
    trace.counts[1] = len(trace.events[1]) + 1


@breaks("count.events")
def _none_counted(trace: Trace) -> None:
    trace.counts[1] = 0


@breaks("definition.duplicate")
def _defined_twice(trace: Trace) -> None:
    trace.more.append(("IoRegularFile", (0, S["/tmp/file"], 0)))


@breaks("group.no-thread")
def _metric_location_only(trace: Trace) -> None:
    del trace.events[2]
    breaks.redefine(trace, ("Location", 2), 1, _otf2.LOCATION_TYPE_METRIC)


@breaks("name.shared")
def _same_names(trace: Trace) -> None:
    breaks.redefine(trace, ("Location", 2), 0, S["disk vda"])


@breaks("region.group")
def _no_region_group(trace: Trace) -> None:
    del trace.definitions["Group", 0]


# ---- references: of definitions, of events ----


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
    _extra_event(trace, "Enter", START + 400, UNDEFINED)
    _extra_event(trace, "Leave", START + 400, UNDEFINED)


@breaks("reference.region")
def _group_member(trace: Trace) -> None:
    breaks.redefine(trace, ("Group", 0), 4, [0, 1, UNDEFINED])


@breaks("reference.paradigm")
def _deleted_in_paradigm(trace: Trace) -> None:
    _extra_event(trace, "IoDeleteFile", START + 400, UNDEFINED, 0)


@breaks("reference.paradigm")
def _handle_paradigm(trace: Trace) -> None:
    breaks.redefine(trace, ("IoHandle", READ_FD), 2, 255)


@breaks("reference.file")
def _handle_file(trace: Trace) -> None:
    breaks.redefine(trace, ("IoHandle", READ_FD), 1, UNDEFINED)


@breaks("reference.file")
def _deleted_file(trace: Trace) -> None:
    _extra_event(trace, "IoDeleteFile", START + 400, 0, UNDEFINED)


@breaks("reference.handle")
def _handle_of_event(trace: Trace) -> None:
    _extra_event(trace, *begin(START + 400, UNDEFINED, 9))
    _extra_event(trace, *complete(START + 400, UNDEFINED, 9))


@breaks("reference.handle")
def _handle_parent(trace: Trace) -> None:
    breaks.redefine(trace, ("IoHandle", READ_FD), 5, UNDEFINED)


@breaks("reference.metric")
def _metric_of_event(trace: Trace) -> None:
    _add_metric(trace)
    _extra_event(trace, "Metric", START + 400, UNDEFINED, [_otf2.TYPE_UINT64], [_metric_value()])


@breaks("reference.metric")
def _metric_member(trace: Trace) -> None:
    _add_metric(trace)
    kinds = _otf2.METRIC_ASYNCHRONOUS, _otf2.RECORDER_KIND_ABSTRACT
    trace.definitions["MetricClass", 1] = ([UNDEFINED], *kinds)


@breaks("reference.calling-context")
def _context_of_sample(trace: Trace) -> None:
    trace.definitions["InterruptGenerator", 0] = _interrupt_generator()
    trace.events[0] = [e for e in trace.events[0] if e[0] not in ("Enter", "Leave")]
    _extra_event(trace, "CallingContextSample", START + 400, UNDEFINED, 1, 0)


@breaks("reference.interrupt-generator")
def _generator_of_sample(trace: Trace) -> None:
    trace.definitions["CallingContext", 0] = (0, NONE32, NONE32)
    trace.events[0] = [e for e in trace.events[0] if e[0] not in ("Enter", "Leave")]
    _extra_event(trace, "CallingContextSample", START + 400, 0, 1, UNDEFINED)


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
    _extra_event(trace, "ParameterInt", START + 400, UNDEFINED, 1)


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


# ---- regions ----


@breaks("region.order")
def _crossed(trace: Trace) -> None:
    for event, region in (("Enter", 0), ("Enter", 1), ("Leave", 0)):
        _extra_event(trace, event, START + 400, region)


@breaks("region.not-entered")
def _left_without_entering(trace: Trace) -> None:
    _extra_event(trace, "Leave", START + 400, 0)


@breaks("region.not-entered")
def _context_left_without_entering(trace: Trace) -> None:
    trace.definitions["CallingContext", 0] = (0, NONE32, NONE32)
    trace.events[0] = [e for e in trace.events[0] if e[0] not in ("Enter", "Leave")]
    _extra_event(trace, "CallingContextLeave", START + 400, 0)


@breaks("region.left-open")
def _never_left(trace: Trace) -> None:
    _extra_event(trace, "Enter", START + 400, 0)


@breaks("region.mixed-styles")
def _both_styles(trace: Trace) -> None:
    trace.definitions["CallingContext", 0] = (0, NONE32, NONE32)
    _extra_event(trace, "CallingContextEnter", START + 400, 0, 2)
    _extra_event(trace, "CallingContextLeave", START + 410, 0)


# ---- paradigms and handles ----


@breaks("paradigm.definition")
def _posix_parallel(trace: Trace) -> None:
    breaks.redefine(trace, ("IoParadigm", 0), 2, _otf2.IO_PARADIGM_CLASS_PARALLEL)


@breaks("paradigm.definition")
def _posix_not_of_the_system(trace: Trace) -> None:
    breaks.redefine(trace, ("IoParadigm", 0), 3, _otf2.IO_PARADIGM_FLAG_NONE)


@breaks("paradigm.definition")
def _unnamed_paradigm(trace: Trace) -> None:
    breaks.redefine(trace, ("IoParadigm", 1), 1, S[""])


@breaks("paradigm.definition")
def _twin_paradigms(trace: Trace) -> None:
    trace.definitions["IoParadigm", 2] = trace.definitions["IoParadigm", 1]


@breaks("handle.state")
def _no_state(trace: Trace) -> None:
    trace.more = [record for record in trace.more if record[0] != "IoPreCreatedHandleState"]


@breaks("handle.state")
def _state_of_an_ordinary_handle(trace: Trace) -> None:
    trace.more.append(("IoPreCreatedHandleState", (READ_FD, _otf2.IO_ACCESS_MODE_READ_ONLY, NO_FLAGS)))


@breaks("handle.inactive")
def _used_after_destruction(trace: Trace) -> None:
    _extra_event(trace, *begin(START + 400, READ_FD, 9))
    _extra_event(trace, *complete(START + 400, READ_FD, 9))


@breaks("handle.inactive")
def _used_before_creation(trace: Trace) -> None:
    trace.events[1].insert(0, ("IoSeek", START, READ_FD, 0, _otf2.IO_SEEK_FROM_START, 0))


@breaks("handle.inactive")
def _duplicate_of_nothing(trace: Trace) -> None:
    _extra_event(trace, "IoDuplicateHandle", START + 400, READ_FD, WRITE_FD, NO_FLAGS)


@breaks("handle.inactive")
def _flags_of_nothing(trace: Trace) -> None:
    _extra_event(trace, "IoChangeStatusFlags", START + 400, WRITE_FD, NO_FLAGS)


@breaks("handle.inactive")
def _lock_of_nothing(trace: Trace) -> None:
    _extra_event(trace, "IoAcquireLock", START + 400, WRITE_FD, _otf2.LOCK_EXCLUSIVE)


@breaks("handle.inactive")
def _completed_after_destruction(trace: Trace) -> None:
    trace.events[1][-2:] = [
        begin(START + 95, WRITE_FD, 9),
        ("IoDestroyHandle", START + 100, WRITE_FD),
        complete(START + 101, WRITE_FD, 9),
    ]


@breaks("handle.created-twice")
def _created_again(trace: Trace) -> None:
    trace.events[0].insert(-1, created(START + 60))


@breaks("handle.created-twice")
def _duplicated_onto_an_active_one(trace: Trace) -> None:
    trace.events[0].insert(-1, ("IoDuplicateHandle", START + 60, READ_FD, WRITE_FD, NO_FLAGS))


@breaks("handle.destroyed-twice")
def _destroyed_again(trace: Trace) -> None:
    _extra_event(trace, "IoDestroyHandle", START + 400, WRITE_FD)


@breaks("handle.foreign-group")
def _used_by_the_disk(trace: Trace) -> None:
    trace.events[2].insert(0, ("IoSeek", START + 150, READ_FD, 0, _otf2.IO_SEEK_FROM_START, 0))


# ---- operations ----


@breaks("operation.not-begun")
def _completed_only(trace: Trace) -> None:
    trace.events[2].append(complete(START + LENGTH, DISK, 9))


@breaks("operation.not-begun")
def _completed_twice(trace: Trace) -> None:
    trace.events[2].insert(4, complete(START + 335, DISK, 4))


@pytest.mark.parametrize("event", ["Issued", "Test", "Cancelled"])
def test_follower_without_begin(event: str, tmp_path: Path) -> None:
    """What follows a Begin is reported where there was none."""
    trace = correct()
    trace.events[2].insert(4, (f"IoOperation{event}", START + 335, DISK, 4))
    assert set(verify(trace.write(tmp_path / "T")).broken) == {"operation.not-begun"}


@breaks("operation.id-in-use")
def _begun_twice(trace: Trace) -> None:
    trace.events[2].insert(1, begin(START + 305, DISK, 4, flags=NON_BLOCKING))


@breaks("operation.order")
def _blocking_issued(trace: Trace) -> None:
    trace.events[2][0] = begin(START + 300, DISK, 4, flags=BLOCKING)
    del trace.events[2][2]


@breaks("operation.order")
def _blocking_cancelled(trace: Trace) -> None:
    trace.events[2][4] = begin(START + 340, DISK, 5, flags=BLOCKING)
    del trace.events[2][5]


@breaks("operation.order")
def _tested_before_issued(trace: Trace) -> None:
    trace.events[2][1:3] = [("IoOperationTest", START + 305, DISK, 4), ("IoOperationIssued", START + 310, DISK, 4)]


@breaks("operation.order")
def _issued_twice(trace: Trace) -> None:
    trace.events[2].insert(2, ("IoOperationIssued", START + 311, DISK, 4))


@breaks("operation.order")
def _completed_unissued(trace: Trace) -> None:
    del trace.events[2][1:3]


@breaks("operation.mode")
def _fourth_mode(trace: Trace) -> None:
    trace.events[1][0] = begin(START + 50, WRITE_FD, 2, mode=_otf2.IoOperationMode(3))


@breaks("operation.id-again")
def _same_id_elsewhere(trace: Trace) -> None:
    trace.events[1][:2] = [begin(START + 50, WRITE_FD, 1), complete(START + 60, WRITE_FD, 1)]


@breaks("operation.elsewhere")
def _completed_by_the_other_thread(trace: Trace) -> None:
    trace.events[0].insert(-1, trace.events[1].pop(1))


@breaks("operation.bytes")
def _more_than_asked(trace: Trace) -> None:
    trace.events[1][1] = complete(START + 60, WRITE_FD, 2, 513)


@breaks("operation.flush-bytes")
def _flush_with_size(trace: Trace) -> None:
    trace.events[1][3] = begin(START + 80, WRITE_FD, 3, mode=FLUSH, size=0)


@breaks("operation.in-flight")
def _never_ends(trace: Trace) -> None:
    del trace.events[2][-1]


@breaks("marker.scope")
def _marks_no_location(trace: Trace) -> None:
    trace.markers.append((START, 0, 0, _otf2.MARKER_SCOPE_LOCATION, UNDEFINED, "lost"))


@breaks("marker.scope")
def _marks_what(trace: Trace) -> None:
    trace.markers.append((START, 0, 0, _otf2.MarkerScope(9), 0, "lost"))


@breaks("marker.time")
def _marks_the_future(trace: Trace) -> None:
    trace.markers.append((START + LENGTH, 1, 0, _otf2.MARKER_SCOPE_GLOBAL, 0, "lost"))


@breaks("trace.no-io")
def _regions_only(trace: Trace) -> None:
    trace.events = {0: [("Enter", START, 0), ("Leave", START + 1, 0)]}


@pytest.mark.parametrize(("rule", "change"), breaks.changes, ids=breaks.ids)
def test_broken_in_exactly_one_way(rule: str, change: Callable[[Trace], object], tmp_path: Path) -> None:
    """That rule is reported, no other is, and the trace is ok unless it is an error."""
    breaks.check(rule, change, correct(), tmp_path / "T")


# ---- what no writer would write: bytes exchanged in the files ----


def _patch(path: Path, old: bytes, new: bytes) -> None:
    data = path.read_bytes()
    assert data.count(old) == 1
    path.write_bytes(data.replace(old, new))


def _patched_location(path: Path) -> Path:
    return correct().write(path) / "traces" / "1.evt"


def test_time_order(tmp_path: Path) -> None:
    """A time that decreases within a location is reported, with its place."""
    file = _patched_location(tmp_path / "T")
    _patch(file, struct.pack("<Q", START + 70), struct.pack("<Q", START + 59))
    verdict = verify(tmp_path / "T")
    assert set(verdict.broken) == {"time.order"}
    finding = verdict.findings[0]
    assert (finding.location, finding.event, finding.time) == (1, 2, START + 59)


def test_unknown_event(tmp_path: Path) -> None:
    """A record type of the future is counted as an event, and said."""
    seek, unknown = b"\x48\x05", b"\xee\x05"
    _patch(_patched_location(tmp_path / "T"), seek, unknown)
    verdict = verify(tmp_path / "T")
    assert set(verdict.broken) == {"event.unknown"}


@pytest.mark.parametrize(("rule", "added"), [("count.locations", (1, 0)), ("count.definitions", (0, 1))])
def test_anchor_counts(rule: str, added: tuple[int, int], tmp_path: Path) -> None:
    """The anchor file's own numbers are compared."""
    trace = correct()
    anchor = trace.write(tmp_path / "T") / "traces.otf2"
    locations, definitions = 3, 1 + len(trace.definitions) + len(trace.more)
    old, new = (struct.pack("<QQ", locations + x, definitions + y) for x, y in ((0, 0), added))
    _patch(anchor, old, new)
    assert set(verify(tmp_path / "T").broken) == {rule}


def test_every_rule_has_a_negative_test() -> None:
    """No rule without a trace that breaks it."""
    patched = {"time.order", "event.unknown", "count.locations", "count.definitions"}
    files = Path(__file__).parent.glob("test_verify_*.py")
    broken = {
        rule for file in files for rule in re.findall(r'^@breaks\("([^"]+)"\)', file.read_text("utf-8"), re.MULTILINE)
    }
    assert broken | patched == set(RULES)
