"""Moments as people write them."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from lo2io.errors import UsageError
from lo2io.trace.selection.moments import parse_moment

if TYPE_CHECKING:
    from collections.abc import Iterator

NOON = 1_767_268_800_000_000_000
"""2026-01-01T12:00:00Z."""
META = {
    "start_ns": 5_000_000_000,
    "stop_ns": 65_000_000_000,
    "syncs": [
        {"time_ns": 5_000_000_000, "realtime_ns": NOON},
        {"time_ns": 65_000_000_000, "realtime_ns": NOON + 60_000_000_100},
    ],
}


@pytest.fixture(autouse=True)
def _two_hours_east(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "UTC-2")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("0s", 5_000_000_000),
        ("1.5ms", 5_001_500_000),
        ("2", 7_000_000_000),
        ("-10s", 55_000_000_000),
        ("@123", 123),
        ("2026-01-01T12:00:00Z", 5_000_000_000),
        ("2026-01-01T12:00:00.000001+00:00", 5_000_001_000),
        ("2026-01-01T14:00:01", 6_000_000_000),
        ("2026-01-01 14:00:59", 63_999_999_900),
        ("2026-01-01", 5_000_000_000 - 14 * 3_600_000_000_000),
    ],
)
def test_moments(text: str, moment: int) -> None:
    """From the start, from the end, on the clock itself, or by the nearest tie to the time of day."""
    assert parse_moment(text, META) == moment


@pytest.mark.parametrize("text", ["", "x", "--1s", "@", "@1s", "2026-13-01", "2026-01-01T25:00", "1 year"])
def test_no_moments(text: str) -> None:
    """The error shows the forms there are."""
    with pytest.raises(UsageError, match="read the moment") as caught:
        parse_moment(text, META)
    assert "before the end" in caught.value.remedy


def test_a_trace_without_the_time_of_day() -> None:
    """It accepts no time of day."""
    with pytest.raises(UsageError, match="does not say what time of day"):
        parse_moment("2026-01-01", {**META, "syncs": []})
