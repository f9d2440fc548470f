"""The equation ``count - lost = samples`` of one event on one CPU."""

from __future__ import annotations

import pytest

from lo2io.model.trace import EventCompleteness


@pytest.mark.parametrize(
    ("count", "samples", "slack", "vanished", "surplus"),
    [(10, 8, 0, 0, 0), (10, 7, 0, 1, 0), (10, 9, 0, 0, 1), (10, 11, 3, 0, 0), (10, 12, 3, 0, 1), (None, 8, 0, 0, 0)],
)
def test_what_vanished_and_what_is_too_much(
    count: int | None, samples: int, slack: int, vanished: int, surplus: int
) -> None:
    """Two samples are lost. Within the slack of a count nothing is too much. Without a count nothing is known."""
    found = EventCompleteness("a:b", 0, count, 2, samples, slack)
    assert (found.vanished, found.surplus) == (vanished, surplus)
