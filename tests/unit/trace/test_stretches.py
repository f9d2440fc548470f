"""Each stretch without a CPU gets the id of its call, also over several batches."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from build.tablemaker import make_batch, write_trace

from lo2io.trace.stretches import NO_OPERATION, Stretches

if TYPE_CHECKING:
    from pathlib import Path

    from lo2io.model import Batch


def batch(first: int, calls: list[tuple[int, int]], stretches: list[tuple[int, int, int]]) -> Batch:
    """Calls are pairs of id and task, stretches have the ordinal of a call, task and begin."""
    made = make_batch(
        operations=[{"id": number, "task": task} for number, task in calls],
        off_cpu=[{"before": before, "task": task, "begin_time_ns": begin} for before, task, begin in stretches],
    )
    made.first_operation = first
    return made


def found(rows: dict[str, Any]) -> list[tuple[int, int]]:
    """Begin and call of each stretch."""
    return list(zip(rows["begin_time_ns"].tolist(), rows["operation"].tolist(), strict=True))


def test_the_next_call_of_the_thread() -> None:
    """Not an earlier one, and not another thread's."""
    rows = Stretches().take(batch(0, [(11, 1), (12, 2), (13, 1)], [(0, 2, 100), (1, 1, 200), (0, 1, 300)]))
    assert found(rows) == [(100, 12), (200, 13), (300, 11)]


def test_a_call_of_a_later_batch() -> None:
    """The stretch waits for it."""
    stretches = Stretches()
    assert found(stretches.take(batch(0, [(11, 1)], [(0, 2, 100), (1, 1, 200)]))) == []
    assert found(stretches.take(batch(1, [], []))) == []
    assert found(stretches.take(batch(1, [(12, 2)], []))) == [(100, 12)]
    assert found(stretches.take(batch(2, [(13, 1), (14, 1)], [(3, 1, 300)]))) == [(200, 13), (300, 14)]
    assert found(stretches.rest()) == []


def test_a_call_that_never_came() -> None:
    """Its stretches have no call."""
    stretches = Stretches()
    stretches.take(batch(0, [(11, 1)], [(0, 2, 100)]))
    assert found(stretches.rest()) == [(100, NO_OPERATION)]


def test_the_table_has_all_of_them(tmp_path: Path) -> None:
    """Those without a call come last."""
    trace = write_trace(tmp_path / "T", [batch(0, [(11, 1)], [(0, 2, 100), (0, 1, 200)])])
    assert trace.table("off_cpu")["operation"].to_pylist() == [11, None]
    assert trace.column("off_cpu", "begin_time_ns").tolist() == np.array([200, 100]).tolist()


def test_one_of_a_worker_waits_for_no_call() -> None:
    """It names its request, and has no call, also if its thread's row comes."""
    made = make_batch(
        operations=[{"id": 11, "task": 1}], off_cpu=[{"before": 0, "task": 1, "begin_time_ns": 100, "request": 7}]
    )
    stretches = Stretches()
    rows = stretches.take(made)
    assert (found(rows), rows["request"].tolist()) == ([(100, NO_OPERATION)], [7])
    alone = make_batch(off_cpu=[{"before": 0, "task": 1, "begin_time_ns": 200, "request": 8}])
    assert found(stretches.take(alone)) == [(200, NO_OPERATION)]
    assert found(stretches.rest()) == []
