"""Clocks of nodes as a model has them, and the times of node 0 that their corrections give: the truth is known.

A node's RAW runs at a rate of its own. Its CLOCK_MONOTONIC is RAW turned by NTP. Its REALTIME is the true time, but for
an error. The model's recorder and comparison read them with errors as large as the readings' widths allow.
"""

from __future__ import annotations

import random
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from lo2io.cluster.alignment import (
    ONE_PING,
    PINGS,
    REALTIME,
    REFERENCE,
    SAME,
    UNKNOWN,
    Alignment,
    NodeClock,
    align,
    tight,
)
from lo2io.cluster.comparison import Comparison, Ping
from lo2io.model import UNKNOWN_I64

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

S = 10**9
WIDTH_NS = 200
RTT_NS = 6_000
PERIOD_S = 300.0
"""NTP turns the clock at the beginning of each such time …"""
SLEWING_S = 30.0
"""… for so long."""


class Clock:
    """A node's clocks, as functions of true time in seconds."""

    def __init__(self, name: str, offset_s: float = 0, ppm: float = 0, slew_ppm: float = 0, wrong_ns: int = 0) -> None:
        self.name = name
        self.offset_ns = round(offset_s * S)
        self.ppm = ppm
        self.slew_ppm = slew_ppm
        self.wrong_ns = wrong_ns

    def raw(self, t: NDArray[np.float64]) -> NDArray[np.int64]:
        """CLOCK_MONOTONIC_RAW."""
        return self.offset_ns + np.rint(t * S).astype(np.int64) + np.rint(t * self.ppm * 1e3).astype(np.int64)

    def mono(self, t: NDArray[np.float64]) -> NDArray[np.int64]:
        """CLOCK_MONOTONIC: NTP turns it now and then."""
        periods, rest = np.divmod(t + 0.37, PERIOD_S)  # a change of rate lies amid two readings
        slewed_s = periods * SLEWING_S + np.minimum(rest, SLEWING_S)
        return 7 * S + self.raw(t) + np.rint(slewed_s * self.slew_ppm * 1e3).astype(np.int64)

    def real(self, t: NDArray[np.float64]) -> NDArray[np.int64]:
        """CLOCK_REALTIME."""
        return 1_700_000_000 * S + np.rint(t * S).astype(np.int64) + self.wrong_ns

    def node(self, seconds: float, *, max_error_us: int = 100, synchronised: bool = True, seed: int = 1) -> NodeClock:
        """What a recording of this length tells: readings once a second, of which some took long."""
        chance = random.Random(seed)  # noqa: S311
        t = np.append(np.arange(10.0, 10 + seconds), 10 + seconds)
        width = np.array([WIDTH_NS if chance.random() < 0.95 else 40_000 for _ in t])
        error = np.array([chance.uniform(-0.5, 0.5) * each for each in width]).round().astype(np.int64)
        readings = {
            "monotonic_ns": self.mono(t),
            "raw_ns": self.raw(t) + error,
            "realtime_ns": self.real(t) + error,
            "width_ns": width,
            "max_error_us": np.full(len(t), max_error_us),
            "is_synchronised": np.full(len(t), synchronised),
        }
        start, stop = self.mono(np.array([10.0, 10 + seconds])).tolist()
        return NodeClock(self.name, self.name, start, stop, readings)


def compare(clocks: Sequence[Clock], t: float, seed: int = 1) -> Comparison:
    """A comparison at this time, with answers that come back as unevenly as a round trip allows."""
    chance = random.Random(seed)  # noqa: S311
    first, *others = clocks
    now = int(first.raw(np.array([t]))[0])
    pings = [Ping(first.name, first.name, now, now, 0)]
    for number, clock in enumerate(others):
        when = t + number / 1_000
        wrong = round(chance.uniform(-0.5, 0.5) * RTT_NS)
        theirs, ours = (int(each.raw(np.array([when]))[0]) for each in (clock, first))
        pings.append(Ping(clock.name, clock.name, theirs, ours + wrong, RTT_NS))
    return Comparison(first.name, tuple(pings))


def corrected(alignment: Alignment, times: NDArray[np.int64]) -> NDArray[np.int64]:
    """By the formula of libotf2: the offset of the last point, and the slope to the next one."""
    own = np.array([time for time, _ in alignment.points], np.int64)
    offset = np.array([offset for _, offset in alignment.points], np.int64)
    at = np.clip(np.searchsorted(own, times, "right") - 1, 0, len(own) - 2)
    slope = (offset[at + 1] - offset[at]) / (own[at + 1] - own[at])
    return times + offset[at] + np.rint(slope * (times - own[at])).astype(np.int64)


def worst(alignment: Alignment, clock: Clock, first: Clock, seconds: float) -> int:
    """How far the corrected times of the recording are from those of node 0 at the most."""
    t = np.linspace(10.0, 10 + seconds, 20_001)
    return int(np.abs(corrected(alignment, clock.mono(t)) - first.mono(t)).max())


@pytest.mark.parametrize("offset_s", [1_000, -1_000])
@pytest.mark.parametrize("ppm", [50, -50])
@pytest.mark.parametrize("slew_ppm", [0, 10, -10])
def test_two_comparisons_align_within_5_us(offset_s: float, ppm: float, slew_ppm: float) -> None:
    """An hour between two comparisons. NTP turns both clocks; what is stated holds, and is no guess into the blue."""
    first, other = Clock("a", 0, -20, -slew_ppm / 2), Clock("b", offset_s, ppm, slew_ppm)
    comparisons = [compare([first, other], 0, 3), compare([first, other], 3_620, 4)]
    reference, found = align([first.node(3_600), other.node(3_600, seed=2)], comparisons)
    assert (reference.method, reference.error_ns, found.method) == (REFERENCE, 0, PINGS)
    error = worst(found, other, first, 3_600)
    assert found.error_ns is not None
    assert error <= found.error_ns <= 15_000
    assert error <= 5_000 + 3_000 * (slew_ppm != 0)  # two turned clocks: 2.5 µs of one, 1.25 µs of the other
    assert len(found.points) < 400
    assert not found.notices


def test_node_0_needs_not_be_the_reference() -> None:
    """A job's first node may be another than that of rank 0 of the comparison."""
    head, first, other = Clock("h"), Clock("a", 5, 20), Clock("b", -300, -30)
    comparisons = [compare([head, first, other], t, int(t)) for t in (0, 120)]
    _, found = align([first.node(100), other.node(100)], comparisons)
    assert found.method == PINGS
    assert worst(found, other, first, 100) <= (found.error_ns or 0)


def test_a_third_comparison_bends_the_line() -> None:
    """Quartzes wander. A comparison in the middle is used."""
    first, early, late = Clock("a"), Clock("b", 1, 10), Clock("b", 1, 30)
    late.offset_ns -= round(60 * 20e-6 * S)  # the same clock up to second 60
    comparisons = [compare([first, early], 0), compare([first, early], 60), compare([first, late], 120)]
    _, found = align([first.node(100), early.node(50)], comparisons)
    assert worst(found, early, first, 50) <= (found.error_ns or 0)


def test_one_comparison_states_the_unknown_drift() -> None:
    """Within 100 ppm the statement holds, and it says why it is so wide."""
    first, other = Clock("a", 0, -50), Clock("b", 3, 49)
    _, found = align([first.node(20), other.node(20)], [compare([first, other], 0)])
    assert found.method == ONE_PING
    assert 1_000_000 < worst(found, other, first, 20) <= (found.error_ns or 0)
    assert any("drift" in notice for notice in found.notices)


def test_a_recording_outside_of_the_comparisons_is_told() -> None:
    """The line goes on, and its error grows with it."""
    first, other = Clock("a"), Clock("b", 3, 49)
    comparisons = [compare([first, other], 0, 1), compare([first, other], 5, 2)]
    _, found = align([first.node(50), other.node(50)], comparisons)
    assert worst(found, other, first, 50) <= (found.error_ns or 0)
    assert any("outside" in notice for notice in found.notices)


def test_other_boots_comparisons_say_nothing() -> None:
    """After a reboot the clocks began anew. Only the last comparison's reference counts."""
    first, other, rebooted = Clock("a"), Clock("b", 10), Clock("a2")
    comparisons = [compare([first, other], 0), compare([rebooted, other], 100)]
    _, found = align([rebooted.node(20), other.node(20)], comparisons)
    assert found.method == ONE_PING
    _, found = align([first.node(20), other.node(20)], comparisons)
    assert found.method == REALTIME


def test_one_machine_has_one_clock() -> None:
    """Several recorders of one boot need no comparison."""
    clock = Clock("a", 9, 9, 9)
    _, found = align([clock.node(20), replace(clock.node(20), host="a (2)")], [])
    assert (found.method, found.error_ns) == (SAME, 0)
    assert [offset for _, offset in found.points] == [0, 0]


@pytest.mark.parametrize("step_ns", [0, 3 * S, -S // 5])
def test_realtime_aligns_within_its_doubt(step_ns: int) -> None:
    """Without a comparison. A clock that is set amid the recording was wrong before."""
    first, other = Clock("a", 0, 5, 10, wrong_ns=30_000), Clock("b", 1_000, -50, -10, wrong_ns=-60_000)
    node = other.node(100)
    node.readings["realtime_ns"][:40] -= step_ns
    _, found = align([first.node(100), node], [])
    assert found.method == REALTIME
    error = worst(found, other, first, 100)
    assert error <= 100_000
    assert error <= (found.error_ns or 0)
    assert (found.error_ns or 0) >= 200_000 + abs(step_ns)
    assert bool(step_ns) == any("was set" in notice for notice in found.notices)


def test_realtime_that_nobody_sets_has_no_known_error() -> None:
    """It aligns, and says that nobody knows how well."""
    first, other = Clock("a"), Clock("b", 10)
    _, found = align([first.node(20), other.node(20, synchronised=False)], [])
    assert (found.method, found.error_ns) == (REALTIME, None)
    assert any("b: nothing set" in notice for notice in found.notices)
    assert worst(found, other, first, 20) <= 1_000


def _without_readings(node: NodeClock) -> NodeClock:
    return replace(node, readings={name: column[:0] for name, column in node.readings.items()})


def test_an_old_trace_is_aligned_by_its_syncs() -> None:
    """It has no readings: the trace's ties to CLOCK_REALTIME are there, and their error is not."""
    first, other = Clock("a"), Clock("b", 10, 20)
    old = _without_readings(other.node(20))
    syncs = [
        {
            "time_ns": int(other.mono(t)),
            "monotonic_ns": int(other.mono(t)),
            "realtime_ns": int(other.real(t)),
            "error_ns": 90,
        }
        for t in (np.float64(10), np.float64(30))
    ]
    _, found = align(
        [first.node(20), replace(old, syncs=syncs)], [compare([first, other], 0), compare([first, other], 50)]
    )
    assert (found.method, found.error_ns) == (REALTIME, None)
    assert worst(found, other, first, 20) <= 2_000


def test_times_of_the_perf_clock_are_led_to_monotonic() -> None:
    """A trace's own clock may run apart from CLOCK_MONOTONIC; its syncs tie the two."""
    first, other = Clock("a"), Clock("b", 10, 20)
    node = other.node(20)

    def perf(t: NDArray[np.float64]) -> NDArray[np.int64]:
        return other.mono(t) - 5 * S + np.rint(t * 70.0).astype(np.int64)

    ends = np.array([10.0, 30.0])
    syncs = [
        {"time_ns": time, "monotonic_ns": mono, "realtime_ns": 0, "error_ns": 500}
        for time, mono in zip(perf(ends).tolist(), other.mono(ends).tolist(), strict=True)
    ]
    start, stop = perf(ends).tolist()
    node = replace(node, start_ns=start, stop_ns=stop, is_monotonic=False, syncs=syncs)
    _, found = align([first.node(20), node], [compare([first, other], 0, 1), compare([first, other], 50, 2)])
    t = np.linspace(10, 30, 1_001)
    error = int(np.abs(corrected(found, perf(t)) - first.mono(t)).max())
    assert error <= (found.error_ns or 0) <= 10_000


def test_nothing_known_is_said() -> None:
    """No reading, no sync, no comparison: the times stay, and the trace says that they are not aligned."""
    first, other = Clock("a"), Clock("b", 10)
    _, found = align([first.node(5), _without_readings(other.node(5))], [])
    assert (found.method, found.error_ns) == (UNKNOWN, None)
    assert [offset for _, offset in found.points] == [0, 0]
    assert found.notices


def test_unknown_columns_are_no_readings() -> None:
    """A kernel without a clock tells nothing about it."""
    first, other = Clock("a"), Clock("b", 10)
    node = other.node(5)
    node.readings["raw_ns"][:] = UNKNOWN_I64
    _, found = align([first.node(5), node], [compare([first, other], 0), compare([first, other], 50)])
    assert found.method == UNKNOWN


def test_every_correction_has_two_rising_points() -> None:
    """Libotf2 ignores a single ClockOffset, and wants times that rise: also of recordings without any length."""
    first, other = Clock("a"), Clock("b", 10)
    empty = replace(other.node(1), stop_ns=other.node(1).start_ns)
    for alignment in align([replace(first.node(1), stop_ns=0), empty], [compare([first, other], 0)]):
        times = [time for time, _ in alignment.points]
        assert len(times) >= 2
        assert times == sorted(set(times))


def test_the_widest_of_the_tight_readings_bounds_the_error() -> None:
    """Each of them may be wrong by half of its width, and the line leads through all of them."""
    node = Clock("a").node(4)
    node.readings["raw_ns"][:] = node.readings["monotonic_ns"]
    node.readings["width_ns"][:] = [200, 200, 700, 200, 900_000]
    line, error = tight(node, "raw_ns")
    assert line is not None
    assert error == 350 + line.bend_ns()
