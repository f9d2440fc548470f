"""Facts on a clock of their own: what they still prove after drift, jumps, and far from readings. Both engines."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from build.perfwriter import SpoolBuilder
from reference.engines import ENGINES

from lo2io.model import ClockSync

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from reference.compare import Tables

SECOND, HOUR = 10**9, 3_600 * 10**9
SELECT, FROM_EXEC = 1, 3
SLACK = 2_000
"""What a fact's margin is besides the error of the readings."""
Readings = list[tuple[int, int, int]]


@pytest.fixture(name="engine", params=list(ENGINES))
def each_engine(request: pytest.FixtureRequest) -> Callable[[Path], Tables]:
    """An engine: a spool's path in, tables out."""
    return ENGINES[request.param]


def written(builder: SpoolBuilder, readings: Readings) -> Path:
    """With readings of the spool's clock, CLOCK_MONOTONIC and their error."""
    return builder.write(syncs=tuple(ClockSync(time, mono, mono, error) for time, mono, error in readings))


def named(tables: Tables) -> list[Any]:
    """The names of the handles that calls used."""
    return [row["file"] and row["file"][-1] for row in tables["handles"]]


def spool_of_one(tmp_path: Path, opened: int, used: int) -> SpoolBuilder:
    """Process 10 opens fd 3 at one time and reads it at another."""
    builder = SpoolBuilder(tmp_path / "spool", 1, stop_ns=10 * HOUR).fact_task(0, 10, 10)
    builder.call(opened - 1, 0, 10, "openat", 3, flags=0)
    return builder.call(used, 0, 10, "read", 5, fd=3, count=5)


@pytest.mark.parametrize("ppm", [400, -400], ids=["fast", "slow"])
@pytest.mark.parametrize(("beside", "proven"), [(SLACK + 100, True), (-200, False)], ids=["inside", "at the border"])
def test_between_two_readings_the_clocks_drift_evenly(
    engine: Callable[[Path], Tables], tmp_path: Path, ppm: int, beside: int, *, proven: bool
) -> None:
    """After half the time, half of it; a look that may have begun before the open proves nothing."""
    opened = 5 * SECOND
    spool = spool_of_one(tmp_path, opened, 9 * SECOND)
    mono = round(opened / (1 + ppm / 1e6))
    spool.fact_fd(mono + 1_000_000, 10, 3, b"/f", begin=mono + beside)
    tables = engine(written(spool, [(0, 0, 0), (10 * SECOND + 10 * ppm * 1_000, 10 * SECOND, 0)]))
    assert named(tables) == [b"/f" if proven else None]
    assert tables["totals"]["nr_names_refused"] == (not proven)


def test_each_part_has_its_own_drift(engine: Callable[[Path], Tables], tmp_path: Path) -> None:
    """Readings in the middle count: NTP changes its mind."""
    spool = spool_of_one(tmp_path, 5 * SECOND, 25 * SECOND)
    spool.fact_fd(5 * SECOND + 10 * SLACK, 10, 3, b"/f", begin=5 * SECOND + 2 * SLACK)
    readings = [(0, 0, 0), (10 * SECOND, 10 * SECOND, 0), (20 * SECOND + 4_000_000, 20 * SECOND, 0)]
    assert named(engine(written(spool, readings))) == [b"/f"]


@pytest.mark.parametrize("jump", [HOUR, -HOUR, 20_000_000], ids=["ahead", "back", "20 ms"])
@pytest.mark.parametrize("near", ["first", "last"])
def test_a_clock_that_jumped_proves_no_name(
    engine: Callable[[Path], Tables], tmp_path: Path, jump: int, near: str
) -> None:
    """A machine was suspended, and one of the clocks went on at an unknown time between the two readings."""
    base = 2 * HOUR
    spool = spool_of_one(tmp_path, base + SECOND, base + 9 * SECOND + max(jump, 0))
    at = base + (3 if near == "first" else 8) * SECOND
    spool.fact_fd(at, 10, 3, b"/f")
    tables = engine(written(spool, [(base, base, 0), (base + 10 * SECOND + jump, base + 10 * SECOND, 0)]))
    assert named(tables) == [None]
    assert (tables["totals"]["nr_names_refused"], tables["totals"]["nr_late"]) == (1, 0)


@pytest.mark.parametrize("jump", [HOUR, -HOUR], ids=["ahead", "back"])
def test_after_a_jump_the_next_readings_count(engine: Callable[[Path], Tables], tmp_path: Path, jump: int) -> None:
    """Between two readings that agree again, facts prove as much as before."""
    base = 2 * HOUR
    spool = spool_of_one(tmp_path, base + 15 * SECOND + jump, base + 19 * SECOND + jump)
    spool.fact_fd(base + 16 * SECOND, 10, 3, b"/f")
    readings = [
        (base, base, 0),
        (base + 10 * SECOND + jump, base + 10 * SECOND, 0),
        (base + 20 * SECOND + jump, base + 20 * SECOND, 0),
    ]
    assert named(engine(written(spool, readings))) == [b"/f"]


@pytest.mark.parametrize("jump", [HOUR, -HOUR], ids=["ahead", "back"])
@pytest.mark.parametrize("near", ["first", "last"])
def test_a_jump_does_not_hide_the_command(
    engine: Callable[[Path], Tables], tmp_path: Path, jump: int, near: str
) -> None:
    """Facts about threads have the time of the nearest reading, whatever the other one is."""
    base = 2 * HOUR
    spool = SpoolBuilder(tmp_path / "spool", 1, mode="process", stop_ns=10 * HOUR)
    look = base + (1 if near == "first" else 8) * SECOND
    at = look + (0 if near == "first" else jump)
    spool.fact_task(look, 10, 10, flags=FROM_EXEC)
    spool.comm(at + SECOND // 2, 0, 10, 10, b"cmd", is_exec=True).call(at + SECOND, 0, 10, "sync")
    tables = engine(written(spool, [(base, base, 0), (base + 10 * SECOND + jump, base + 10 * SECOND, 0)]))
    assert [row["call"] for row in tables["operations"]] == ["sync"]


def test_readings_close_to_each_other_tell_no_drift(engine: Callable[[Path], Tables], tmp_path: Path) -> None:
    """A microsecond apart and 300 ns unsure, they would make hours of a second."""
    spool = spool_of_one(tmp_path, 10 * SECOND, 11 * SECOND).call(12 * SECOND, 0, 10, "close", fd=3)
    spool.fact_fd(11 * SECOND, 10, 3, b"/f")
    assert named(engine(written(spool, [(0, 0, 300), (1_600, 1_000, 300)]))) == [b"/f"]


@pytest.mark.parametrize(("after", "proven"), [(4_000_000, False), (6_000_000, True)])
def test_far_from_the_readings_facts_prove_less(
    engine: Callable[[Path], Tables], tmp_path: Path, after: int, *, proven: bool
) -> None:
    """A recording that was cut off has one reading: after 10 s the clocks may be 5 ms apart."""
    opened = 10 * SECOND
    spool = spool_of_one(tmp_path, opened, 20 * SECOND)
    spool.fact_fd(opened + after, 10, 3, b"/f")
    assert named(engine(written(spool, [(0, 0, 0)]))) == [b"/f" if proven else None]


@pytest.mark.parametrize(("after", "proven"), [(4_000_000, False), (6_000_000, True)])
def test_a_descriptor_must_stay_until_no_doubt_is_left(
    engine: Callable[[Path], Tables], tmp_path: Path, after: int, *, proven: bool
) -> None:
    """Until then, the look may have seen the slot's next file."""
    look = 10 * SECOND
    spool = spool_of_one(tmp_path, SECOND, 2 * SECOND).call(look + after, 0, 10, "close", fd=3)
    spool.fact_fd(look, 10, 3, b"/f")
    assert named(engine(written(spool, [(0, 0, 0)]))) == [b"/f" if proven else None]


@pytest.mark.parametrize("when", ["before", "after"])
def test_long_drift_goes_on_beyond_the_readings(engine: Callable[[Path], Tables], tmp_path: Path, when: str) -> None:
    """By 100 ppm, which 5 s away are 500 µs; the doubt of 500 ppm is less than the 10 ms the look lies inside."""
    opened = HOUR + (-5 * SECOND if when == "before" else 15 * SECOND)
    spool = spool_of_one(tmp_path, opened, HOUR + 30 * SECOND)
    mono = opened + (500_000 if when == "before" else -1_500_000)
    inside, outside = mono + 2_510_000, mono + 2_490_000
    readings = [(HOUR, HOUR, 0), (HOUR + 10 * SECOND + 1_000_000, HOUR + 10 * SECOND, 0)]
    refused = spool_of_one(tmp_path / "other", opened, HOUR + 30 * SECOND).fact_fd(outside, 10, 3, b"/f")
    assert named(engine(written(spool.fact_fd(inside, 10, 3, b"/f"), readings))) == [b"/f"]
    assert named(engine(written(refused, readings))) == [None]


@pytest.mark.parametrize(
    "readings",
    [
        [(SECOND, SECOND, 0), (HOUR, SECOND, 0)],
        [(SECOND, SECOND, 0), (HOUR, 0, 0)],
        [(SECOND, SECOND, 0), (0, 2 * SECOND, 0)],
        [(-(2**63), -(2**63), 0), (2**63 - 1, 2**63 - 1, 0)],
    ],
    ids=["no time between", "in no order", "backwards", "all of time"],
)
def test_readings_that_make_no_sense_do_no_harm(
    engine: Callable[[Path], Tables], tmp_path: Path, readings: Readings
) -> None:
    """The spool is damaged, but calls are not affected."""
    spool = spool_of_one(tmp_path, 10 * SECOND, 20 * SECOND).fact_fd(11 * SECOND, 10, 3, b"/f")
    tables = engine(written(spool, readings))
    assert [(row["tid"], row["fd"]) for row in tables["operations"]] == [(10, 3), (10, 3)]


@pytest.mark.parametrize("errors", [(0, 1_000_000), (1_000_000, 0)], ids=["at the stop", "at the start"])
@pytest.mark.parametrize(("beside", "proven"), [(500_000, False), (1_500_000, True)])
def test_the_most_doubtful_reading_counts(
    engine: Callable[[Path], Tables], tmp_path: Path, errors: tuple[int, int], beside: int, *, proven: bool
) -> None:
    """A look must lie inside of the handle's life by as much as any of the readings may be wrong."""
    spool = spool_of_one(tmp_path, 5 * SECOND, 9 * SECOND)
    spool.fact_fd(5 * SECOND + 3_000_000, 10, 3, b"/f", begin=5 * SECOND + beside)
    tables = engine(written(spool, [(0, 0, errors[0]), (10 * SECOND, 10 * SECOND, errors[1])]))
    assert named(tables) == [b"/f" if proven else None]
