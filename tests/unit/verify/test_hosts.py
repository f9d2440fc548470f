"""Merged archives: ``verify`` reads the events of one host after the other."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from build.otf2_builder import (
    DISK,
    NONE32,
    START,
    WRITE,
    WRITE_FD,
    S,
    Trace,
    begin,
    complete,
    correct,
    verify_one_by_one,
)

from lo2io.verify import verify
from lo2io.verify.events import EventRules

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

NODE, FIRST, SECOND = 90, 91, 92
"""Strings: the class of hosts, and two names."""


def of_two_hosts(*, merged: bool = True) -> Trace:
    """The correct trace, with the process on one host and the disk on another one."""
    trace = correct()
    trace.definitions |= {("String", ref): (text,) for ref, text in ((NODE, "node"), (FIRST, "a"), (SECOND, "b"))}
    trace.definitions |= {("SystemTreeNode", 10): (FIRST, NODE, 0), ("SystemTreeNode", 11): (SECOND, NODE, 0)}
    for group, node in ((0, 10), (1, 11)):
        name, kind, _, creator = trace.definitions["LocationGroup", group]
        trace.definitions["LocationGroup", group] = name, kind, node, creator
    if merged:
        trace.properties["LO2IO::HOSTS"] = "2"
    return trace


@pytest.fixture
def parts(monkeypatch: pytest.MonkeyPatch) -> list[list[int]]:
    """The locations of each part that is read."""
    found: list[list[int]] = []
    start = EventRules.start

    def watched(self: EventRules, locations: Sequence[int]) -> None:
        found.append(list(locations))
        start(self, locations)

    monkeypatch.setattr(EventRules, "start", watched)
    return found


def test_hosts_are_read_apart(parts: list[list[int]], tmp_path: Path) -> None:
    """Each host is a part. All events of all parts are counted, and any other archive is one part."""
    told: list[int] = []
    verdict = verify(of_two_hosts().write(tmp_path / "T"), told.append)
    assert not verdict.broken
    assert parts == [[0, 1], [2]]
    assert told == [16, 23]
    assert (verdict.counts.events, verdict.counts.operations, verdict.counts.locations) == (23, 5, 3)
    parts.clear()
    assert verify(of_two_hosts(merged=False).write(tmp_path / "U")).counts == verdict.counts
    assert parts == [[0, 1, 2]]


def _renumbered(trace: Trace, location: int, was: int, ident: int) -> None:
    """Give an operation another matching id, the last argument but size and attributes."""
    for place, (event, time, *arguments) in enumerate(trace.events[location]):
        if event.startswith("IoOperation"):
            at = max(i for i, value in enumerate(arguments) if not isinstance(value, dict))
            arguments[at] = ident if arguments[at] == was else arguments[at]
            trace.events[location][place] = (event, time, *arguments)


@pytest.mark.parametrize(("merged", "broken"), [(True, set()), (False, {"operation.id-again"})])
def test_ids_of_hosts_are_their_own(merged: bool, broken: set[str], tmp_path: Path) -> None:
    """OTF2 wants a matching id unique for its handle: hosts number alike, and have handles of their own."""
    trace = of_two_hosts(merged=merged)
    _renumbered(trace, 2, 4, 1)
    path = trace.write(tmp_path / "T")
    assert set(verify(path).broken) == set(verify_one_by_one(path).broken) == broken


def test_ids_within_a_host_are_checked(tmp_path: Path) -> None:
    """A host's operations share no id, be it the first host or another one."""
    first, second = of_two_hosts(), of_two_hosts()
    first.events[1][:2] = [
        begin(START + 50, WRITE_FD, 1, mode=WRITE),
        complete(START + 60, WRITE_FD, 1),
    ]
    _renumbered(second, 2, 5, 4)
    for name, trace in (("T", first), ("U", second)):
        path = trace.write(tmp_path / name)
        assert verify(path).broken == verify_one_by_one(path).broken == {"operation.id-again": 1}


def test_rules_hold_across_hosts(tmp_path: Path) -> None:
    """Operations stay open from host to host, handles keep their state, and styles of events must not mix."""
    trace = of_two_hosts()
    last: Any = trace.events[2].pop()
    trace.events[2].append(begin(START + 400, WRITE_FD, 9))
    trace.events[1].pop(-2)  # so that the handle is active to the end
    trace.definitions["CallingContext", 0] = (0, NONE32, NONE32)
    trace.events[2] += [("CallingContextEnter", START + 500, 0, 2), ("CallingContextLeave", START + 510, 0)]
    assert last[2] == DISK
    assert verify(trace.write(tmp_path / "T")).broken == {
        "handle.foreign-group": 1,
        "operation.in-flight": 2,
        "region.mixed-styles": 1,
    }


def test_circles_of_the_tree_end(parts: list[list[int]], tmp_path: Path) -> None:
    """Nodes that are their own ancestors are reported, and locations of unknown groups are read, too."""
    trace = of_two_hosts()
    trace.definitions["SystemTreeNode", 0] = (S["host"], S["machine"], 10)
    trace.definitions["Location", 2] = (*trace.definitions["Location", 2][:2], 77)
    broken = verify(trace.write(tmp_path / "T")).broken
    assert {"definition.cycle", "reference.location-group"} <= set(broken)
    assert parts == [[0, 1], [2]]
