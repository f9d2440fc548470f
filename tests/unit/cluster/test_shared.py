"""Calls that two tools saw; the truth is known."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from build.made_hosts import host_with
from build.tablemaker import CALLS as CATALOG
from build.tablemaker import make_batch, write_trace

from lo2io.cluster.band import Band
from lo2io.cluster.shared import Settled, Thread, pairs_of, possible_threads, recorded_calls, recorded_threads, settle
from lo2io.errors import UsageError
from lo2io.otf2.merge.told import CALLS, UNKNOWN, Calls
from lo2io.trace.reader import open_trace

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

MS, S = 10**6, 10**9
READ, WRITE, FSYNC = (CALLS.index(name) for name in ("read", "write", "fsync"))
START, STOP = 500 * S, 502 * S
AHEAD, PPM = 17 * S, 50
"""The application's clock is ahead at first, and then slower."""
RATE = 2_400_000_000
ONE, TWO = Thread(0, 10, 10, None), Thread(1, 10, 11, None)

Own = list[tuple[int, int, int, int, int]]
"""Call, bytes asked for and moved, start and end in ns."""


def calls(rows: Own) -> Calls:
    """As lo2io has them."""
    table = np.array(rows, np.int64).reshape(-1, 5)
    return Calls(table[:, 3], table[:, 4], table[:, :3])


def ticks(times: np.ndarray) -> np.ndarray:
    """The application's clock."""
    since = times - START
    return ((since + AHEAD - since * PPM // 1_000_000) * (RATE // 10**6)) // 1_000


def seen(rows: Own, around_ns: int = 1_000) -> Calls:
    """The same calls as the application has them."""
    found = calls(rows)
    return Calls(ticks(found.begin - around_ns), ticks(found.end + around_ns), found.keys)


def work(number: int, begin: int = START, step: int = 20 * MS, first_bytes: int = 100) -> Own:
    """Writes of different sizes, one after the other, each of 30 µs."""
    times = [begin + step * at for at in range(number)]
    return [(WRITE, first_bytes + at, first_bytes + at, time, time + 30_000) for at, time in enumerate(times)]


def settled(own: dict[int, Calls], recorded: dict[int, Calls], threads: Sequence[Thread] = (ONE, TWO)) -> Settled:
    """What is told, if any thread may be any location."""
    start, stop = (int(ticks(np.array(time))) for time in (START, STOP))
    possible = possible_threads(own, dict.fromkeys(own, threads), recorded)
    return settle(Band.of_clock((RATE, start, stop), (START, STOP), 1e-3), own, possible, tried="align")


def test_the_clock_is_told_within_the_error() -> None:
    """An offset and a drift that nobody knows: all times are right within the error, and the thread is found."""
    one, two = work(40), work(60, START + 3 * MS, first_bytes=90)
    found = settled({7: seen(one), 8: seen(two)}, {0: calls(one), 1: calls(two)})
    assert found.threads == {7: ONE, 8: TWO}
    assert found.nr_pairs == 100
    times = np.linspace(START, STOP, 50).astype(np.int64)
    off = np.abs(found.band.line.at(ticks(times)) - times).max()
    assert off <= found.band.error_ns + 1
    assert found.band.error_ns < 3_000


def test_a_region_ends_amid_a_tick() -> None:
    """Coarse clocks tell ticks that are over: a region that is no longer than its call seems to be shorter."""
    one = work(40)
    coarse = 10_000
    found = seen(one, around_ns=0)
    own = Calls(found.begin // coarse, found.end // coarse, found.keys)
    start, stop = (int(ticks(np.array(time))) // coarse for time in (START, STOP))
    band = Band.of_clock((RATE // coarse, start, stop), (START, STOP), 1e-3)
    told = settle(band, {7: own}, possible_threads({7: own}, {7: [ONE]}, {0: calls(one)}), tried="align").band
    times = np.linspace(START, STOP, 50).astype(np.int64)
    off = told.line.at(ticks(times) // coarse) - times
    assert np.abs(off).max() <= told.error_ns + coarse * 1e9 / RATE


def test_calls_that_either_tool_counts_otherwise_are_not_used() -> None:
    """Where lo2io has more calls of a kind, any of them may be meant: the others tell the clock."""
    own = [*work(10), (READ, 4096, 4096, START + 300 * MS, START + 301 * MS)]
    more = [(READ, 4096, 4096, START + at * MS, START + at * MS + 500_000) for at in (100, 300)]
    found = settled({7: seen(own)}, {0: calls(sorted(work(10) + more, key=lambda row: row[3]))}, [ONE])
    assert found.nr_pairs == 10
    with pytest.raises(UsageError, match="0 of its 1 calls are the same as lo2io's beyond doubt, and 4 have to be"):
        settled({7: seen(own[-1:])}, {0: calls(more)}, [ONE])
    with pytest.raises(UsageError, match=r"3 of its 3 calls .* and 4 have to be"):
        settled({7: seen(work(3))}, {0: calls(work(3))}, [ONE])


def test_bytes_count_where_both_tell_them() -> None:
    """A call with other bytes is another one. A region without an operation tells none, nor does a flush."""
    rows: Own = [(WRITE, 8, 8, 0, 1), (WRITE, 9, UNKNOWN, 2, 3), (FSYNC, UNKNOWN, UNKNOWN, 4, 5)]
    own = calls(rows)
    assert len(pairs_of(own, own) or ()) == 3
    for place, wrong in ((1, 7), (2, 7)):
        other = [row if row[0] == FSYNC else (*row[:place], wrong, *row[place + 1 :]) for row in rows]
        assert pairs_of(own, calls(other)) is None
    assert len(pairs_of(own, calls([*rows[:2], (FSYNC, 0, 0, 4, 5)])) or ()) == 3
    silent = calls([(WRITE, UNKNOWN, UNKNOWN, 0, 1), (WRITE, UNKNOWN, UNKNOWN, 2, 3)])
    found = pairs_of(silent, calls(rows[:2]))
    assert found is not None
    assert found.begin_ns.tolist() == [0, 2]
    assert pairs_of(silent, calls(rows[:1])) is None


def test_threads_that_cannot_be_told_apart_are_refused() -> None:
    """Two threads made the same calls at the same time: both fit. At different times, one of them does not."""
    one, late = work(12), work(12, START + 5 * MS, step=23 * MS)
    with pytest.raises(UsageError, match=r"0 of its 12 calls .* 2 threads made all calls of one of its threads"):
        settled({7: seen(one)}, {0: calls(one), 1: calls(one)})
    assert settled({7: seen(one)}, {0: calls(one), 1: calls(late)}).threads == {7: ONE}
    other = work(9, first_bytes=5_000)
    recorded = {0: calls(sorted(one + other, key=lambda row: row[3])), 1: calls(one)}
    found = settled({7: seen(one), 8: seen(other)}, recorded)
    assert found.threads == {8: ONE}, "the other's clock is known, but not its thread"


def test_contradictions_are_refused() -> None:
    """The answer names the calls. A thread that did not do all of them is another one."""
    one = work(8)
    bent = [*one[:7], (*one[7][:3], one[7][3] + 5 * MS, one[7][4] + 5 * MS)]
    with pytest.raises(UsageError, match=r"no clock that runs evenly puts .*the write of 107 bytes at tick") as raised:
        settled({7: seen(one)}, {0: calls(bent)}, [ONE])
    assert "--offset" in raised.value.remedy
    short = [(*row[:4], row[4] + 9_000) for row in one]
    with pytest.raises(UsageError, match=r"the write of 10\d bytes at tick .* took less time than lo2io's call"):
        settled({7: seen(one)}, {0: calls(short)}, [ONE])
    with pytest.raises(UsageError, match="no recorded thread made all calls of one of its threads, such as 8 calls"):
        settled({7: seen(one)}, {0: calls(one[:7])}, [ONE])
    with pytest.raises(UsageError, match="none of its regions is called read, write, pread"):
        settled({}, {0: calls(one)})


def test_calls_of_a_trace(tmp_path: Path) -> None:
    """In the order of their start, by thread; system calls by the functions' names; none that has not ended."""
    names = [call.abi_name for call in CATALOG]
    rows = [
        ("write", 0, 30, 40, 9, 9), ("read", 0, 10, 20, 8, None), ("close", 0, 50, 60, None, None),
        ("write", 1, 15, None, 8, None), ("write", 1, 25, 35, 7, 6),
    ]  # fmt: skip
    keys = ("task", "begin_time_ns", "end_time_ns", "bytes_request", "bytes_result")
    operations = [
        {
            "id": at,
            "call": names.index(name),
            "pid": 5,
            "tid": 5,
            **{key: value for key, value in zip(keys, values, strict=True) if value is not None},
        }
        for at, (name, *values) in enumerate(rows)
    ]
    tasks = [{"task": task, "process": 0, "pid": 5, "tid": 5 + task} for task in range(2)]
    found = recorded_calls(write_trace(tmp_path / "T", [make_batch(tasks=tasks, operations=operations)]))
    assert {task: each.keys.tolist() for task, each in found.items()} == {
        0: [[READ, 8, UNKNOWN], [WRITE, 9, 9]],
        1: [[WRITE, 7, 6]],
    }
    assert found[0].begin.tolist() == [10, 30]
    assert found[0].end.tolist() == [20, 40]


def test_threads_of_a_trace(tmp_path: Path) -> None:
    """With the rank of their process, where there is one."""
    host_with(tmp_path, "n1", [("/a", 1, 1)], rank=3)
    host_with(tmp_path, "n2", [("/a", 1, 1)])
    assert recorded_threads(open_trace(tmp_path / "host=n1")) == [Thread(0, 100, 100, 3)]
    assert recorded_threads(open_trace(tmp_path / "host=n2"))[0].pid == 100
