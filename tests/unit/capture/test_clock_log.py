"""The machine's clocks, read once a second: what a reading says, when it is due, and how it gets into the tables."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from lo2io.capture import clock_log
from lo2io.capture.clock_log import ClockLog
from lo2io.trace.clock_readings import read_readings

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

CLOCKS = {
    "monotonic_ns": time.CLOCK_MONOTONIC,
    "raw_ns": time.CLOCK_MONOTONIC_RAW,
    "realtime_ns": time.CLOCK_REALTIME,
    "tai_ns": time.CLOCK_TAI,
}


class Memory:
    """A sink in memory."""

    def __init__(self) -> None:
        self.content = b""

    def append(self, views: Sequence[memoryview | bytes]) -> int:
        """Take all bytes."""
        self.content += b"".join(views)
        return sum(map(len, views))


def test_a_reading_lies_between_two_of_the_same_clock(tmp_path: Path) -> None:
    """Python reads each clock before and after; a clock in the place of another one would be years or boots away."""
    sink = Memory()
    before = {name: time.clock_gettime_ns(clock) for name, clock in CLOCKS.items()}
    ClockLog(sink).read()
    after = {name: time.clock_gettime_ns(clock) for name, clock in CLOCKS.items()}
    (tmp_path / "readings").write_bytes(sink.content)
    rows = read_readings(tmp_path / "readings")
    for name in CLOCKS:
        assert before[name] <= rows[name][0] <= after[name], name
    span = after["monotonic_ns"] - before["monotonic_ns"]
    assert 0 <= rows["width_ns"][0] <= span
    if rows["tsc"][0]:
        assert before["monotonic_ns"] <= rows["tsc_ns"][0] <= after["monotonic_ns"]


def test_readings_follow_once_a_period(monkeypatch: pytest.MonkeyPatch) -> None:
    """A reading is due when a period has passed since the last one, whoever asked for that."""
    monkeypatch.setattr(clock_log, "PERIOD_NS", 3_600 * 10**9)
    sink = Memory()
    log = ClockLog(sink)
    log.read_if_due()
    size = len(sink.content)
    log.read_if_due()
    assert len(sink.content) == size > 0
    log.read()
    assert len(sink.content) == 2 * size
    monkeypatch.setattr(clock_log, "PERIOD_NS", 0)
    log.read()
    log.read_if_due()
    assert len(sink.content) == 4 * size


@pytest.mark.parametrize("rest", [1, 79])
def test_a_reading_cut_short_is_left_out(tmp_path: Path, rest: int) -> None:
    """A killed recorder may leave a part of a reading. The whole ones count, in their order."""
    sink = Memory()
    log = ClockLog(sink)
    for _ in range(3):
        log.read()
    (tmp_path / "readings").write_bytes(sink.content + sink.content[:rest])
    rows = read_readings(tmp_path / "readings")
    assert len(rows["raw_ns"]) == 3
    assert (rows["raw_ns"][1:] > rows["raw_ns"][:-1]).all()
