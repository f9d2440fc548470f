"""The kernel's counts at a place in the ring, without a kernel."""

from __future__ import annotations

import pytest
from build.flightrig import EVENTS, LAYOUT, FakeRing

from lo2io.capture.flight.border import BorderReader, Reading, _from_afar, subtract


def border_reader() -> BorderReader:
    """Without events."""
    reader = BorderReader.__new__(BorderReader)
    reader._ids, reader._names = [event.type for event in LAYOUT.events], EVENTS
    reader._type_at, reader._tid_at = 20 + LAYOUT.type_offset, 20 + LAYOUT.pid_offset
    return reader


def test_counts_are_carried_to_the_border() -> None:
    """Samples after the reading are added. Those during it are uncertain, except for the reader's own call."""
    ring = FakeRing()
    own = 77
    for serial, (event, tid) in enumerate([(0, 5), (0, own), (1, own), (1, 5), (0, 5), (1, 5)]):
        ring.write(serial, event=event, tid=tid)
    reader = border_reader()
    samples = reader._list_samples(ring, ring.head)  # type: ignore[arg-type]
    enter, exit_ = LAYOUT.events[0].type, LAYOUT.events[1].type
    assert samples == {enter: [(0, 5), (40, own), (160, 5)], exit_: [(80, own), (120, 5), (200, 5)]}
    # Both were read while the ring's head went from 40 to 160.
    results = reader._judge([(40, 160, 1000, 3), (40, 160, 2000, 0)], samples, own)
    assert results == [Reading(1001, 0, 3), Reading(2002, 1, 0)]
    assert _from_afar(EVENTS[0], Reading(1000, 2, 3)) == Reading(999, 3, 3)
    assert _from_afar("block:block_rq_issue", Reading(1000, 2, 3)) == Reading(997, 5, 3)
    assert _from_afar(EVENTS[0], Reading(0)) == Reading(0)


@pytest.mark.parametrize(
    ("start", "end", "between"),
    [
        (Reading(10), Reading(25), Reading(15)),
        (Reading(10, 2, 1), Reading(25, 3, 4), Reading(13, 5, 3)),
        (Reading(10, 2), Reading(11, 0), Reading(0, 1)),
    ],
)
def test_bounds_are_subtracted_as_bounds(start: Reading, end: Reading, between: Reading) -> None:
    """The least is the end's least minus the start's most; certain counts stay certain."""
    assert subtract(end, start) == between
