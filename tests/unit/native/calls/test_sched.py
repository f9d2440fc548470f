"""docs/explanation/rules/scheduler.md: the scheduler: one test each, both engines."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from build.perfformats import switch_layout
from build.perfwriter import SpoolBuilder
from reference.compare import run_native
from reference.engines import each_engine  # noqa: F401 - the fixture `run`
from reference.specs import SPECS

from lo2io.catalog.layouts import compile_layout

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from reference.compare import Tables

    Run = Callable[[SpoolBuilder], Tables]

PREEMPTED, DEVICE, BLOCKED, SLEEPING = range(4)
R, R_PLUS, S, D, STOPPED, IDLE = 0, 0x100, 1, 2, 4, 0x80
NOBODY = 0


@pytest.fixture
def spool(tmp_path: Path) -> SpoolBuilder:
    """The whole machine; processes 10 and 20 are known, 30 is lo2io."""
    builder = SpoolBuilder(tmp_path / "spool", recorder_pid=30)
    return builder.fact_task(1_000, 10, 10).fact_task(1_000, 20, 20).fact_task(1_000, 30, 30)


def stretches(tables: Tables) -> list[tuple[Any, ...]]:
    """Begin, end and state of each stretch off the CPU."""
    return [(row["begin_time_ns"], row["end_time_ns"], row["state"]) for row in tables["off_cpu"]]


def ask(spool: SpoolBuilder, t: int, tid: int, event: str = "rq_issue", sector: int = 100) -> SpoolBuilder:
    """A block event about a read."""
    return spool.block(t, 0, tid, event, dev=254 << 20, sector=sector, nr_sector=8, rwbs=b"R")


# ---- switches ----


def test_every_switch_of_every_cpu_is_a_row(run: Run, spool: SpoolBuilder) -> None:
    """In the order of time; who is not recorded has a tid and no task, the idle thread tid 0."""
    spool.fork(59_000, 1, NOBODY, NOBODY, 2, 2)  # of a CPU plugged in: its idle thread is unlike other threads
    spool.switch(60_000, 1, 10, 30, S).switch(60_010, 0, NOBODY, 20, R).switch(60_020, 1, 30, 77, D)
    rows = run(spool)["switches"]
    assert [(row["time_ns"], row["cpu"], row["prev_tid"], row["next_tid"], row["state"]) for row in rows] == [
        (60_000, 1, 10, 30, SLEEPING),
        (60_010, 0, NOBODY, 20, PREEMPTED),
        (60_020, 1, 30, 77, BLOCKED),
    ]
    assert [(row["prev_task"], row["next_task"]) for row in rows] == [
        ("tid 10 from None", None),
        (None, "tid 20 from None"),
        (None, None),
    ]


def test_a_switch_makes_no_thread_known(run: Run, spool: SpoolBuilder) -> None:
    """A thread that only ran has done nothing with storage."""
    spool.switch(60_000, 0, 77, 78, S)
    assert [row["tid"] for row in run(spool)["tasks"]] == [10, 20]


def test_switches_of_a_recording_of_one_process(run: Run, tmp_path: Path) -> None:
    """All switches are rows, whichever threads ran; other threads' calls have no stretches."""
    spool = SpoolBuilder(tmp_path / "one", mode="process").fact_task(1_000, 10, 10, flags=1)
    spool.enter(60_000, 0, 10, "sync").switch(60_010, 0, 10, 20, D).switch(60_020, 0, 20, 10, S)
    spool.exit(60_030, 0, 10, "sync")
    tables = run(spool)
    assert [(row["prev_task"], row["next_task"]) for row in tables["switches"]] == [
        ("tid 10 from None", None),
        (None, "tid 10 from None"),
    ]
    assert stretches(tables) == [(60_010, 60_020, BLOCKED)]


# ---- stretches ----


@pytest.mark.parametrize(
    ("kernel", "state"),
    [(R, PREEMPTED), (R_PLUS, PREEMPTED), (S, SLEEPING), (D, BLOCKED), (STOPPED, SLEEPING), (IDLE, SLEEPING)],
)
def test_a_stretch_lies_between_two_switches_inside_a_call(
    run: Run, spool: SpoolBuilder, kernel: int, state: int
) -> None:
    """The state at the departure gives the reason. The thread may come back on another CPU."""
    spool.enter(60_000, 0, 10, "read", fd=3).switch(60_010, 0, 10, 20, kernel).switch(60_030, 1, NOBODY, 10)
    spool.exit(60_040, 1, 10, "read", 1)
    tables = run(spool)
    assert stretches(tables) == [(60_010, 60_030, state)]
    assert tables["off_cpu"][0]["task"] == "tid 10 from None"


def test_outside_of_calls_there_are_no_stretches(run: Run, spool: SpoolBuilder) -> None:
    """Nor one that began before the call: its thread must have come back unseen to enter it."""
    spool.switch(60_000, 0, 10, NOBODY, S).enter(60_010, 0, 10, "sync").switch(60_020, 0, NOBODY, 10)
    spool.exit(60_030, 0, 10, "sync").switch(60_040, 0, 10, NOBODY, S).switch(60_050, 0, NOBODY, 10)
    assert stretches(run(spool)) == []


def test_stretches_stand_before_the_row_of_their_call(run: Run, spool: SpoolBuilder) -> None:
    """At the place where they ended: other calls may end between them."""
    spool.enter(60_000, 0, 10, "fsync", fd=3).switch(60_010, 0, 10, 20, D).switch(60_020, 0, 20, 10, R)
    spool.call(60_030, 1, 20, "sync").switch(60_040, 0, 10, NOBODY, D).switch(60_050, 0, NOBODY, 10)
    spool.exit(60_060, 0, 10, "fsync")
    tables = run(spool)
    assert [row["call"] for row in tables["operations"]] == ["sync", "fsync"]
    assert [(row["before"], row["begin_time_ns"]) for row in tables["off_cpu"]] == [(0, 60_010), (1, 60_040)]


def test_a_stretch_nobody_saw_the_end_of_ends_with_its_call(run: Run, spool: SpoolBuilder) -> None:
    """The switch that brought the thread back was lost."""
    spool.enter(60_000, 0, 10, "read", fd=3).switch(60_010, 0, 10, NOBODY, S).exit(60_040, 1, 10, "read", 1)
    spool.switch(60_050, 1, NOBODY, 10)
    assert stretches(run(spool)) == [(60_010, 60_040, SLEEPING)]


def test_two_departures_in_a_row_leave_the_first_without_an_end(run: Run, spool: SpoolBuilder) -> None:
    """The thread came back in between, unseen."""
    spool.enter(60_000, 0, 10, "read", fd=3).switch(60_010, 0, 10, NOBODY, S).switch(60_020, 1, 10, NOBODY, D)
    spool.switch(60_030, 1, NOBODY, 10).exit(60_040, 1, 10, "read", 1)
    assert stretches(run(spool)) == [(60_010, None, SLEEPING), (60_020, 60_030, BLOCKED)]


@pytest.mark.parametrize("end", ["end of the trace", "exit of the thread", "another call"])
def test_a_stretch_of_a_call_in_flight_has_no_end(run: Run, spool: SpoolBuilder, end: str) -> None:
    """The call has none, either."""
    spool.enter(60_000, 0, 10, "read", fd=3).switch(60_010, 0, 10, NOBODY, S)
    if end == "exit of the thread":
        spool.task_exit(60_020, 0, 10, 10)
    elif end == "another call":
        spool.call(60_020, 0, 10, "sync")
    tables = run(spool)
    assert stretches(tables) == [(60_010, None, SLEEPING)]
    assert tables["off_cpu"][0]["before"] == 0
    assert tables["operations"][0]["end_time_ns"] is None


def test_own_calls_have_no_stretches(run: Run, spool: SpoolBuilder) -> None:
    """lo2io's switches are rows, as everybody's."""
    spool.enter(60_000, 0, 30, "write", fd=3).switch(60_010, 0, 30, NOBODY, D).switch(60_020, 0, NOBODY, 30)
    spool.exit(60_030, 0, 30, "write", 1)
    tables = run(spool)
    assert stretches(tables) == []
    assert [row["prev_tid"] for row in tables["switches"]] == [30, NOBODY]


def test_of_an_exec_stretches_count_from_the_exec_on(run: Run, tmp_path: Path) -> None:
    """Before, the thread waited as lo2io's."""
    spool = SpoolBuilder(tmp_path / "one", mode="process").fact_task(1_000, 10, 10, flags=3)
    spool.enter(60_000, 0, 10, "execve").switch(60_010, 0, 10, NOBODY, D).switch(60_020, 0, NOBODY, 10)
    spool.comm(60_030, 0, 10, 10, b"cmd", is_exec=True).switch(60_040, 0, 10, NOBODY, S)
    spool.switch(60_050, 0, NOBODY, 10).exit(60_060, 0, 10, "execve")
    assert stretches(run(spool)) == [(60_040, 60_050, SLEEPING)]


def test_batches_of_eight_hold_all_of_them(spool: SpoolBuilder) -> None:
    """One switch may end two stretches: of a thread that leaves twice, and of the one that comes."""
    for tid in range(100, 140):
        spool.enter(60_000 + tid, 0, tid, "read", fd=3).switch(61_000 + tid, 0, tid, NOBODY, S)
    for tid in range(101, 140):
        spool.switch(62_000 + tid, 0, 100, tid, D)
    path = spool.write()
    tables = run_native(path, 8)
    assert tables == run_native(path)
    assert (len(tables["switches"]), len(tables["off_cpu"])) == (79, 79)


# ---- waiting for the device ----


@pytest.mark.parametrize("state", [S, D])
def test_who_waits_while_a_request_of_its_own_is_under_way_waits_for_the_device(
    run: Run, spool: SpoolBuilder, state: int
) -> None:
    """Be it queued or issued; with its completion that is over."""
    spool.enter(60_000, 0, 10, "read", fd=3)
    ask(spool, 60_010, 10, "rq_insert").switch(60_020, 0, 10, NOBODY, state).switch(60_030, 0, NOBODY, 10)
    ask(spool, 60_040, 10).switch(60_050, 0, 10, NOBODY, state).switch(60_060, 0, NOBODY, 10)
    ask(spool, 60_070, 0, "rq_complete").switch(60_080, 0, 10, NOBODY, state).switch(60_090, 0, NOBODY, 10)
    spool.exit(60_100, 0, 10, "read", 1)
    tables = run(spool)
    assert [row["state"] for row in tables["off_cpu"]] == [DEVICE, DEVICE, BLOCKED if state == D else SLEEPING]
    assert [row["state"] for row in tables["switches"]][::2] == [row["state"] for row in tables["off_cpu"]]


def test_it_is_the_state_at_the_departure_that_counts(run: Run, spool: SpoolBuilder) -> None:
    """The thread waits for a completion that comes while it is away."""
    spool.enter(60_000, 0, 10, "read", fd=3)
    ask(spool, 60_010, 10).switch(60_020, 0, 10, NOBODY, D)
    ask(spool, 60_030, 0, "rq_complete").switch(60_040, 0, NOBODY, 10).exit(60_050, 0, 10, "read", 1)
    assert stretches(run(spool)) == [(60_020, 60_040, DEVICE)]


@pytest.mark.parametrize("state", [R, R_PLUS])
def test_who_is_preempted_waits_for_no_device(run: Run, spool: SpoolBuilder, state: int) -> None:
    """Whatever is under way."""
    spool.enter(60_000, 0, 10, "read", fd=3)
    ask(spool, 60_010, 10).switch(60_020, 0, 10, 20, state).switch(60_030, 0, 20, 10)
    spool.exit(60_040, 0, 10, "read", 1)
    assert stretches(run(spool)) == [(60_020, 60_030, PREEMPTED)]


def test_requests_of_others_are_not_waited_for(run: Run, spool: SpoolBuilder) -> None:
    """Nor those of a thread that bore the same tid before."""
    ask(spool, 60_000, 20)
    spool.task_exit(60_010, 0, 20, 20).fork(60_020, 0, 20, 20, 10, 10).enter(60_030, 0, 20, "read", fd=3)
    spool.enter(60_031, 1, 10, "read", fd=3).switch(60_040, 0, 20, NOBODY, D).switch(60_041, 1, 10, NOBODY, D)
    ask(spool, 60_050, 0, "rq_complete")
    ask(spool, 60_060, 20, sector=200).switch(60_070, 0, 20, NOBODY, D)
    assert [row["state"] for row in run(spool)["off_cpu"]] == [BLOCKED, BLOCKED, DEVICE]


def test_a_merged_request_is_under_way_no_longer(run: Run, spool: SpoolBuilder) -> None:
    """The one that absorbed it is another's."""
    ask(spool, 60_000, 20, "rq_insert", 100)
    ask(spool, 60_010, 10, "rq_insert", 108)
    ask(spool, 60_020, 10, "rq_merge", 108).enter(60_030, 0, 10, "read", fd=3).switch(60_040, 0, 10, NOBODY, D)
    assert [row["state"] for row in run(spool)["off_cpu"]] == [BLOCKED]


# ---- the kernel's names of states ----


@pytest.mark.parametrize(
    ("print_fmt", "states"),
    [
        (switch_layout().print_fmt, (0xFF, 2)),
        ('"%s", __print_flags(REC->prev_state & 0x7ff, "|", { 1, "S" }, { 4, "D" }, { 1024, "N" })', (0x405, 4)),
        ('"%d", REC->prev_state', (0xFF, 2)),
    ],
    ids=["6.18", "numbered otherwise", "not listed"],
)
def test_states_are_named_by_the_format(print_fmt: str, states: tuple[int, int]) -> None:
    """So a kernel that numbers them differently is understood."""
    layout = switch_layout(print_fmt)
    compiled = compile_layout([layout.name], [layout.text(5)], SPECS)  # type: ignore[arg-type]
    assert (compiled.sched_waiting, compiled.sched_blocked) == states
