"""The held events of ``verify``, in arrival orders that OTF2's own merge need not produce."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from lo2io.otf2.read.definitions import COLUMNS, Definitions
from lo2io.otf2.read.tables import Rows
from lo2io.verify import Verification
from lo2io.verify.operations import IoRules, LocationState

if TYPE_CHECKING:
    from collections.abc import Callable

NONE32 = 2**32 - 1
ORDINARY, ACTIVE = 0, 1
"""Handles that exist: one to be created, one pre-created."""
READ, BLOCKING, NON_BLOCKING = 0, 0, 1


class Run:
    """Rules at one tick, fed event by event, in the way the reader feeds them."""

    def __init__(self) -> None:
        definitions = Definitions()
        handles = Rows(COLUMNS["handle"])
        for ref, flags in ((ORDINARY, 0), (ACTIVE, 1)):
            handles.add(ref, 0, NONE32, 0, flags, NONE32, NONE32)
        definitions.tables["handle"] = handles.table()
        self.verdict = Verification("T")
        self.rules = IoRules(definitions, self.verdict)
        self.locations = [LocationState(ref, 0) for ref in range(3)]

    def __call__(self, location: int, event: str, *arguments: Any) -> None:
        """Let an event of a location arrive."""
        state = self.locations[location]
        state.ordinal = state.events
        state.events += 1
        self.rules.submit(state, 1, getattr(self.rules, event), arguments)

    def broken(self) -> dict[str, int]:
        """Number of findings by rule, once time has moved on."""
        self.rules.settle()
        return dict(self.verdict.broken)


@pytest.fixture
def run() -> Run:
    """No event yet."""
    return Run()


def test_what_follows_a_held_event_waits_with_it(run: Run) -> None:
    """A Begin after a Complete on one location does not put that Complete right."""
    run(0, "complete", ACTIVE, 1, 9)
    run(0, "begin", ACTIVE, READ, BLOCKING, 1, 9)
    assert run.broken() == {"operation.not-begun": 1}


def test_a_held_event_is_applied_as_soon_as_it_is_right(run: Run) -> None:
    """Location 1 waits for a creation; what location 1 does next, location 0 may need at the same tick."""
    run(1, "begin", ORDINARY, READ, BLOCKING, 1, 9)
    run(0, "create", ORDINARY)
    assert not run.rules.held


def test_a_report_lets_the_others_go_on_in_any_order(run: Run) -> None:
    """Location 0's wrong event is reported; that location 1 arrived before the creation is no fault of its own."""
    run(0, "complete", ACTIVE, 1, 9)
    run(1, "use", ORDINARY)
    run(0, "create", ORDINARY)
    assert run.broken() == {"operation.not-begun": 1}


def test_held_events_are_bounded(run: Run) -> None:
    """A clock that stands still does not hold back the whole trace."""
    for _ in range(2_500):
        run(0, "use", ORDINARY)
        assert len(run.rules.held) <= 1_000
    assert run.broken() == {"handle.inactive": 2_500}


def test_a_begin_starts_over(run: Run) -> None:
    """After an id was begun again while in use, the new operation has to be issued itself."""
    run(0, "begin", ACTIVE, READ, NON_BLOCKING, 1, 9)
    run(0, "issued", ACTIVE, 9)
    run(0, "begin", ACTIVE, READ, NON_BLOCKING, 1, 9)
    run(0, "complete", ACTIVE, 1, 9)
    assert run.broken() == {"operation.id-in-use": 1, "operation.order": 1}


@pytest.mark.parametrize("ends", [(0, 1), (1, 0), (0,)])
def test_threads_that_use_one_id_at_once(run: Run, ends: tuple[int, ...]) -> None:
    """Only that is reported: each location ends its own, and one without an end is in flight."""
    run(0, "begin", ACTIVE, READ, BLOCKING, 1, 9)
    run(1, "begin", ACTIVE, READ, BLOCKING, 2, 9)
    run.rules.settle()
    for location in ends:
        run(location, "complete", ACTIVE, location + 1, 9)
    assert run.broken() == {"operation.id-in-use": 1}
    run.rules.finish()
    assert run.verdict.counts.completed == len(ends)
    assert run.verdict.counts.in_flight == 2 - len(ends)


@pytest.mark.parametrize(
    ("event", "arguments"),
    [("duplicate", (77, ACTIVE)), ("begin", (77, READ, BLOCKING, 1, 9)), ("complete", (77, 1, 9)), ("use", (77,))],
)
def test_a_wrong_reference_is_reported_once(run: Run, event: str, arguments: tuple[int, ...]) -> None:
    """However often a held event is tried again."""
    run(1, "use", ORDINARY)
    run(0, event, *arguments)
    run(2, "create", ORDINARY)
    assert run.broken()["reference.handle"] == 1


EVENTS: tuple[tuple[str, Callable[[Run], None]], ...] = (
    ("create", lambda run: run(0, "create", ORDINARY)),
    ("begin", lambda run: run(1, "begin", ORDINARY, READ, BLOCKING, 1, 9)),
    ("complete", lambda run: run(2, "complete", ORDINARY, 1, 9)),
)


@pytest.mark.parametrize("order", [(0, 1, 2), (0, 2, 1), (1, 0, 2), (1, 2, 0), (2, 0, 1), (2, 1, 0)])
def test_three_locations_in_any_order(run: Run, order: tuple[int, int, int]) -> None:
    """Create, Begin and Complete at one tick on three locations."""
    for index in order:
        EVENTS[index][1](run)
    assert set(run.broken()) == {"operation.elsewhere"}
    assert run.verdict.counts.completed == 1
