"""``verify`` on the parts of calls without a CPU."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from build.otf2_builder import Breakage
from build.otf2_rings import BLOCKED, RUN_QUEUE, WORKED, RingTrace, number, rings

from lo2io.model import UNKNOWN_I64
from lo2io.verify import verify

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

breaks = Breakage()


def waiting() -> RingTrace:
    """A trace whose first call has two stretches without a CPU."""
    trace = rings()
    trace.meta["layers"] = ("waits",)
    call = trace.row("operations")
    begin, task = 1_000, call.setdefault("task", 0)
    call.update(begin_time_ns=begin, end_time_ns=begin + 100, run_queue_ns=7, blocked_ns=50)
    times = [(begin + 10, begin + 30, begin + 35), (begin + 40, begin + 70, begin + 72)]
    trace.tables["off_cpu"] = [
        {"before": 0, "task": task, "begin_time_ns": out, "wake_time_ns": wake, "end_time_ns": end, "state": 2}
        for out, wake, end in times
    ]
    return trace


@breaks("table.waits")
def _another_sum(trace: RingTrace) -> None:
    trace.row("operations")["blocked_ns"] = 49


@breaks("table.waits")
def _more_than_the_call(trace: RingTrace) -> None:
    trace.row("operations")["end_time_ns"] = 1_056


@breaks("table.waits")
def _before_the_call(trace: RingTrace) -> None:
    trace.row("operations")["begin_time_ns"] = 1_015


@breaks("table.waits")
def _they_overlap(trace: RingTrace) -> None:
    trace.row("off_cpu", 1).update(begin_time_ns=1_032, wake_time_ns=1_062, end_time_ns=1_064)  # as long as before


@breaks("table.waits")
def _woken_after_the_end(trace: RingTrace) -> None:
    trace.row("off_cpu", 1)["wake_time_ns"] = 1_080


def working() -> RingTrace:
    """A trace whose second request of a ring has two stretches in its execution by a worker, and one before it."""
    trace = rings()
    trace.meta["layers"] = ("waits", "workers")
    begin = trace.row("ring_works")["begin_time_ns"]
    trace.row("ring_requests", 1).update(run_queue_ns=3, blocked_ns=9)
    request = trace.row("ring_requests", 1)["id"]
    times = [(begin - 4, begin - 3, begin - 1), (begin, begin + 5, begin + 7), (begin + 10, begin + 14, begin + 15)]
    trace.tables["off_cpu"] = [
        {"task": 1, "begin_time_ns": out, "wake_time_ns": wake, "end_time_ns": end, "state": 2, "request": request}
        for out, wake, end in times
    ]
    _attributes(trace).update({RUN_QUEUE: number(3), BLOCKED: number(9)})
    return trace


def _attributes(trace: RingTrace) -> dict[int, Any]:
    """Attributes of the end of the request that a worker executed."""
    ends = [event for event in trace.events[0] if event[0] == "IoOperationComplete" and WORKED in event]
    attributes: dict[int, Any] = next(event[-1] for event in ends if isinstance(event[-1], dict))
    return attributes


works = Breakage()


@works("table.waits")
def _another_sum_of_a_request(trace: RingTrace) -> None:
    trace.row("ring_requests", 1)["run_queue_ns"] = 4
    _attributes(trace)[RUN_QUEUE] = number(4)


@works("table.waits")
def _of_another_request(trace: RingTrace) -> None:
    trace.row("off_cpu", 1)["request"] = trace.row("ring_requests", 0)["id"]


@works("table.waits")
def _behind_the_execution(trace: RingTrace) -> None:
    trace.row("off_cpu", 2)["end_time_ns"] += 100


@works("table.waits")
def _longer_than_the_execution(trace: RingTrace) -> None:
    trace.row("ring_requests", 1)["blocked_ns"] = 900
    _attributes(trace)[BLOCKED] = number(900)


@works("ring.told")
def _another_time_in_the_archive(trace: RingTrace) -> None:
    _attributes(trace)[BLOCKED] = number(8)


@works("ring.told")
def _no_time_in_the_archive(trace: RingTrace) -> None:
    del _attributes(trace)[RUN_QUEUE], _attributes(trace)[BLOCKED]


@works("ring.told")
def _no_time_in_the_table(trace: RingTrace) -> None:
    trace.row("ring_requests", 1).update(run_queue_ns=UNKNOWN_I64, blocked_ns=UNKNOWN_I64)


@pytest.mark.parametrize(("rule", "change"), works.changes, ids=works.ids)
def test_a_request_broken_in_exactly_one_way(rule: str, change: Callable[[Any], object], tmp_path: Path) -> None:
    """Only that rule is reported."""
    works.check(rule, change, working(), tmp_path / "T")


def test_the_right_request(tmp_path: Path) -> None:
    """Nothing is reported."""
    assert not verify(working().write(tmp_path / "T")).broken


def test_a_request_whose_executions_have_no_known_length(tmp_path: Path) -> None:
    """It was also executed at a moment that is not known. The parts of its executions by workers are known."""
    trace = working()
    trace.row("ring_requests", 1).update(executing_ns=UNKNOWN_I64, queued_ns=UNKNOWN_I64, waiting_ns=UNKNOWN_I64)
    assert "table.waits" not in verify(trace.write(tmp_path / "T")).broken


def test_archives_that_tell_nothing_of_workers(tmp_path: Path) -> None:
    """An older lo2io has written it, without the attributes: nothing is compared."""
    trace = working()
    del _attributes(trace)[RUN_QUEUE], _attributes(trace)[BLOCKED]
    del trace.definitions["Attribute", RUN_QUEUE], trace.definitions["Attribute", BLOCKED]
    assert not verify(trace.write(tmp_path / "T")).broken


@pytest.mark.parametrize(("rule", "change"), breaks.changes, ids=breaks.ids)
def test_broken_in_exactly_one_way(rule: str, change: Callable[[Any], object], tmp_path: Path) -> None:
    """Only that rule is reported."""
    breaks.check(rule, change, waiting(), tmp_path / "T")


def test_the_right_one(tmp_path: Path) -> None:
    """Nothing is reported, also if the parts of another call are not known."""
    assert not verify(waiting().write(tmp_path / "T")).broken
