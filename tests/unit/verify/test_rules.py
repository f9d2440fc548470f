"""Each rule of ``lo2io verify``: a trace broken in exactly that way breaks that rule and no other."""

from __future__ import annotations

import re
import struct
from pathlib import Path
from typing import TYPE_CHECKING

import _otf2
import pytest
from build.otf2_builder import (
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
    UNDEFINED,
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

breaks = Breakage()


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


# ---- regions ----


@breaks("region.order")
def _crossed(trace: Trace) -> None:
    for event, region in (("Enter", 0), ("Enter", 1), ("Leave", 0)):
        breaks.add_event(trace, event, START + 400, region)


@breaks("region.not-entered")
def _left_without_entering(trace: Trace) -> None:
    breaks.add_event(trace, "Leave", START + 400, 0)


@breaks("region.not-entered")
def _context_left_without_entering(trace: Trace) -> None:
    trace.definitions["CallingContext", 0] = (0, NONE32, NONE32)
    trace.events[0] = [e for e in trace.events[0] if e[0] not in ("Enter", "Leave")]
    breaks.add_event(trace, "CallingContextLeave", START + 400, 0)


@breaks("region.left-open")
def _never_left(trace: Trace) -> None:
    breaks.add_event(trace, "Enter", START + 400, 0)


@breaks("region.mixed-styles")
def _both_styles(trace: Trace) -> None:
    trace.definitions["CallingContext", 0] = (0, NONE32, NONE32)
    breaks.add_event(trace, "CallingContextEnter", START + 400, 0, 2)
    breaks.add_event(trace, "CallingContextLeave", START + 410, 0)


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


@breaks("paradigm.definition")
def _gap_before_a_paradigm(trace: Trace) -> None:
    _, *others = trace.definitions["IoParadigm", 1]
    trace.definitions["IoParadigm", 3] = (S["disk vda"], *others)


@breaks("handle.state")
def _no_state(trace: Trace) -> None:
    trace.more = [record for record in trace.more if record[0] != "IoPreCreatedHandleState"]


@breaks("handle.state")
def _state_of_an_ordinary_handle(trace: Trace) -> None:
    trace.more.append(("IoPreCreatedHandleState", (READ_FD, _otf2.IO_ACCESS_MODE_READ_ONLY, NO_FLAGS)))


@breaks("handle.parent")
def _parent_of_the_same_paradigm(trace: Trace) -> None:
    another = DISK + 1
    trace.definitions["IoHandle", another] = trace.definitions["IoHandle", READ_FD]
    for handle in (READ_FD, WRITE_FD):
        breaks.redefine(trace, ("IoHandle", handle), 5, another)


@breaks("handle.parent")
def _duplicate_with_a_parent_of_its_own(trace: Trace) -> None:
    breaks.redefine(trace, ("IoHandle", WRITE_FD), 5, DISK)


@breaks("handle.inactive")
def _used_after_destruction(trace: Trace) -> None:
    breaks.add_event(trace, *begin(START + 400, READ_FD, 9))
    breaks.add_event(trace, *complete(START + 400, READ_FD, 9))


@breaks("handle.inactive")
def _used_before_creation(trace: Trace) -> None:
    trace.events[1].insert(0, ("IoSeek", START, READ_FD, 0, _otf2.IO_SEEK_FROM_START, 0))


@breaks("handle.inactive")
def _duplicate_of_nothing(trace: Trace) -> None:
    breaks.add_event(trace, "IoDuplicateHandle", START + 400, READ_FD, WRITE_FD, NO_FLAGS)


@breaks("handle.inactive")
def _flags_of_nothing(trace: Trace) -> None:
    breaks.add_event(trace, "IoChangeStatusFlags", START + 400, WRITE_FD, NO_FLAGS)


@breaks("handle.inactive")
def _lock_of_nothing(trace: Trace) -> None:
    breaks.add_event(trace, "IoAcquireLock", START + 400, WRITE_FD, _otf2.LOCK_EXCLUSIVE)


@breaks("handle.inactive")
def _completed_after_destruction(trace: Trace) -> None:
    trace.events[1][-2:] = [
        begin(START + 95, WRITE_FD, 9),
        ("IoDestroyHandle", START + 100, WRITE_FD),
        complete(START + 101, WRITE_FD, 9),
    ]


def test_a_non_blocking_operation_outlives_its_descriptor(tmp_path: Path) -> None:
    """The thread that began it may destroy the handle before the operation ends."""
    trace = correct()
    trace.events[1][-2:] = [
        begin(START + 95, WRITE_FD, 9, flags=NON_BLOCKING),
        ("IoOperationIssued", START + 96, WRITE_FD, 9),
        ("IoDestroyHandle", START + 100, WRITE_FD),
        complete(START + 101, WRITE_FD, 9),
    ]
    assert not verify(trace.write(tmp_path / "T")).broken


@breaks("handle.created-twice")
def _created_again(trace: Trace) -> None:
    trace.events[0].insert(-1, created(START + 60))


@breaks("handle.created-twice")
def _duplicated_onto_an_active_one(trace: Trace) -> None:
    trace.events[0].insert(-1, ("IoDuplicateHandle", START + 60, READ_FD, WRITE_FD, NO_FLAGS))


@breaks("handle.destroyed-twice")
def _destroyed_again(trace: Trace) -> None:
    breaks.add_event(trace, "IoDestroyHandle", START + 400, WRITE_FD)


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
    """A record that must follow a Begin is reported without one."""
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
    """Only that rule is reported, and the trace is ok unless it is an error."""
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
    patched = {"time.order", "event.unknown", "count.locations", "count.definitions", "count.tables"}
    files = Path(__file__).parent.glob("test_*.py")
    broken = {
        rule for file in files for rule in re.findall(r'^@\w+\("([^"]+)"\)', file.read_text("utf-8"), re.MULTILINE)
    }
    assert broken | patched == set(RULES)
