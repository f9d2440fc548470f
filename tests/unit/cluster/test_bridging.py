"""The clock of an application's archive, found among those that lo2io reads; the truth is known."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from lo2io.cluster.alignment import NodeClock
from lo2io.cluster.bridging import OtherRunError, bridge, by_offset, onwards
from lo2io.errors import UsageError
from lo2io.trace.correction import Correction, correction_of

if TYPE_CHECKING:
    from pathlib import Path

S = 10**9
BOOT, LENGTH = 500 * S, 20
REALTIME, RAW, TSC_HZ = 1_700_000_000 * S, -3 * S, 2_399_987_654
RAW_PPM = 20
"""CLOCK_MONOTONIC_RAW runs slower than the turned CLOCK_MONOTONIC."""
WIDTH_NS = 200


def clocks(monotonic: np.ndarray) -> dict[str, np.ndarray]:
    """All clocks at these times of CLOCK_MONOTONIC."""
    since = monotonic - BOOT
    return {
        "monotonic_ns": monotonic,
        "raw_ns": monotonic + RAW - since * RAW_PPM // 1_000_000,
        "realtime_ns": monotonic + REALTIME,
        "tai_ns": monotonic + REALTIME + 37 * S,
        "tsc": np.array([int(time) * TSC_HZ // S for time in monotonic], np.uint64),
        "tsc_ns": monotonic,
    }


def node() -> NodeClock:
    """A recording of 20 s with a reading a second."""
    times = np.arange(LENGTH + 1) * S + BOOT
    readings = clocks(times) | {"width_ns": np.full(len(times), WIDTH_NS)}
    return NodeClock("here", "boot", BOOT, BOOT + LENGTH * S, readings)


EVENTS = np.array([BOOT + S // 3, BOOT + 7 * S + 11, BOOT + 19 * S])
"""Times of events of the application, by CLOCK_MONOTONIC."""


@pytest.mark.parametrize(
    ("column", "resolution", "said"),
    [
        ("tsc", TSC_HZ + 100_000, ""),
        ("tsc", TSC_HZ, "SCOREP_TIMER=tsc"),
        ("monotonic_ns", S, "SCOREP_TIMER=clock_gettime"),
        ("raw_ns", S, "raw"),
        ("realtime_ns", S, ""),
        ("realtime_ns", 1_000_000, "SCOREP_TIMER='gettimeofday'"),
        ("tai_ns", S, ""),
    ],
)
@pytest.mark.parametrize("split", [0, 3])
def test_times_are_right_within_the_error(tmp_path: Path, column: str, resolution: int, said: str, split: int) -> None:
    """Whatever the clock: its ticks become CLOCK_MONOTONIC, as exactly as it says. A location's own offsets count."""
    configured = said.startswith("SCOREP_TIMER")
    if configured:
        (tmp_path / "scorep.cfg").write_text(f"SCOREP_ENABLE_TRACING=true\n{said}\n", encoding="utf-8")
    per_tick = 1_000 if resolution < S else 1
    ticks = clocks(EVENTS)[column].astype(np.int64) // per_tick
    clock = resolution, int(ticks[0]), int(ticks[-1])
    readings = node()
    if column == "monotonic_ns":  # the other clock of clock_gettime began at another time
        readings.readings["raw_ns"] -= 100 * S
    found = bridge(tmp_path / "traces.otf2", clock, readings, named=None if configured else said or None)
    assert found.error_ns is not None
    assert found.error_ns < 3_000
    own = correction_of([(int(ticks[0]), -split), (int(ticks[-1]), split)]) if split else Correction()
    merged = correction_of(found.correct(own)).apply(ticks)
    wanted = EVENTS + np.rint((own.apply(ticks) - ticks) * (S / resolution)).astype(np.int64)
    assert np.abs(merged - wanted).max() <= found.error_ns


def test_clocks_that_cannot_be_told_apart(tmp_path: Path) -> None:
    """Two clocks put the events into the recording, and differ: the user has to name one. Else nobody has to."""
    clock = S, int(EVENTS[0]) + S, int(EVENTS[-1])
    with pytest.raises(UsageError, match=r"monotonic or raw, which differ by 3\.0") as raised:
        bridge(tmp_path / "traces.otf2", clock, node())
    assert "--clock" in raised.value.remedy
    alike = node()
    alike.readings["raw_ns"] = alike.readings["monotonic_ns"] + 5_000
    found = bridge(tmp_path / "traces.otf2", clock, alike)
    assert "may also be raw" in found.notices[0]
    assert found.error_ns is not None
    assert found.error_ns > 5_000


def test_another_run_is_refused(tmp_path: Path) -> None:
    """Events that lie after or before the recording are of another run, boot or machine."""
    for start, way in ((BOOT + 100 * S, "80.0 s after"), (BOOT - 100 * S, "9.+ s before")):
        with pytest.raises(OtherRunError, match=way):
            bridge(tmp_path / "traces.otf2", (S, start, start + S // 10), node(), named="monotonic")
    with pytest.raises(UsageError, match=r"80\.0 s after") as raised:
        bridge(tmp_path / "traces.otf2", (S, BOOT + 100 * S, BOOT + 101 * S), node())
    assert not isinstance(raised.value, OtherRunError), "it may be another clock"
    with pytest.raises(UsageError, match="no clock that lo2io reads has its 77 ticks"):
        bridge(tmp_path / "traces.otf2", (77, 1, 2), node())
    (tmp_path / "scorep.cfg").write_text("SCOREP_TIMER=aix\n", encoding="utf-8")
    with pytest.raises(UsageError, match="no clock that lo2io reads"):
        bridge(tmp_path / "traces.otf2", (S, int(EVENTS[0]), int(EVENTS[-1])), node())


def test_the_nodes_own_correction_follows(tmp_path: Path) -> None:
    """The archive lies on the time of all nodes; errors add up; one that nobody knows stays unknown."""
    clock = S, int(EVENTS[0]), int(EVENTS[-1])
    found = bridge(tmp_path / "traces.otf2", clock, node(), named="monotonic")
    correction = correction_of([(BOOT, 5_000), (BOOT + 10 * S, 9_000), (BOOT + 20 * S, 0)])
    further = onwards(found, correction, 700)
    assert found.error_ns is not None
    assert further.error_ns == found.error_ns + 700
    assert onwards(found, correction, None).error_ns is None
    assert onwards(found, Correction(), None).error_ns is None
    assert onwards(found, Correction(), 0) == found
    moved = correction_of(further.correct(Correction())).apply(EVENTS)
    assert np.abs(moved - correction.apply(EVENTS)).max() <= found.error_ns


def test_a_named_offset_is_added() -> None:
    """Ticks become nanoseconds, then the offset is added. Nobody knows how right that is."""
    found = by_offset((1_000_000, 2_000_000, 5_000_000), 0.25)
    times = correction_of(found.correct(Correction())).apply([2_000_000, 3_000_000])
    assert times.tolist() == [2_250_000_000, 3_250_000_000]
    assert found.error_ns is None
