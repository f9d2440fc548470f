"""lo2io's own I/O is left out of a recording of the whole machine, and counted: one test a rule, both engines."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from build.perfwriter import SpoolBuilder
from reference.engines import each_engine  # noqa: F401 - the fixture `run`

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from reference.compare import Tables

    Run = Callable[[SpoolBuilder], Tables]

RECORDER = 30
SELECT, FROM_EXEC = 1, 3
VDA = 254 << 20
EBADF = -9


@pytest.fixture
def spool(tmp_path: Path) -> SpoolBuilder:
    """The whole machine: the recorder has two threads, process 10 is a neighbour."""
    builder = SpoolBuilder(tmp_path / "spool", recorder_pid=RECORDER)
    return builder.fact_task(1_000, 30, 30).fact_task(1_000, 30, 31).fact_task(1_000, 10, 10)


def column(tables: Tables, name: str, table: str = "operations") -> list[Any]:
    """A column of a table."""
    return [row[name] for row in tables[table]]


def own(tables: Tables) -> tuple[int, int]:
    """Calls and requests left out."""
    return tables["totals"]["nr_own_calls"], tables["totals"]["nr_own_requests"]


def write(spool: SpoolBuilder, t: int, tid: int, sector: int) -> SpoolBuilder:
    """A request from insert to completion."""
    for step, event in enumerate(("rq_insert", "rq_issue", "rq_complete")):
        spool.block(t + step, 0, tid if step < 2 else 0, event, dev=VDA, sector=sector, nr_sector=8, rwbs=b"W")
    return spool


def test_calls_of_the_recorder_are_counted_only(run: Run, spool: SpoolBuilder) -> None:
    """Completed or in flight; an exit alone is no call, of the recorder no orphan either."""
    spool.exit(59_000, 0, 31, "read", 5).call(60_000, 0, 30, "write", 8, fd=1, count=8)
    spool.call(60_010, 0, 10, "sync").enter(60_020, 0, 31, "fsync", fd=1)
    tables = run(spool)
    assert column(tables, "tid") == [10]
    assert own(tables) == (2, 0)
    assert (tables["totals"]["nr_orphan_exits"], tables["totals"]["nr_in_flight_calls"]) == (0, 0)
    assert column(tables, "tid", "tasks") == [10]


def test_what_it_forks_is_its_own_whatever_it_becomes(run: Run, spool: SpoolBuilder) -> None:
    """Children of any thread of it, theirs, and after an exec; not those of neighbours."""
    spool.fork(60_000, 0, 40, 40, 30, 31).comm(60_001, 0, 40, 40, b"zstd", is_exec=True).fork(60_002, 0, 41, 41, 40, 40)
    spool.fork(60_003, 0, 50, 50, 10, 10)
    for tid in (40, 41, 50):
        spool.call(60_100 + tid, 0, tid, "sync")
    tables = run(spool)
    assert column(tables, "tid") == [50]
    assert own(tables) == (2, 0)


def test_a_child_of_an_unknown_thread_of_the_recorder_is_its_own(run: Run, spool: SpoolBuilder) -> None:
    """A FORK record names the parent's process, too."""
    spool.fork(60_000, 0, 40, 40, RECORDER, 33).call(60_010, 0, 40, "sync")
    tables = run(spool)
    assert not tables["operations"]
    assert own(tables) == (1, 0)


def test_the_recorder_needs_no_fact(run: Run, tmp_path: Path) -> None:
    """The spool has its pid: its forks are lo2io's own, even before a fact about it."""
    spool = SpoolBuilder(tmp_path / "bare", recorder_pid=RECORDER)
    spool.fork(60_000, 0, 40, 40, RECORDER, 33).call(60_010, 0, 40, "sync").call(60_020, 0, RECORDER, "sync")
    tables = run(spool)
    assert not tables["operations"]
    assert own(tables) == (2, 0)


def test_children_it_had_before_are_not_its_own(run: Run, spool: SpoolBuilder) -> None:
    """A shell's background job stays one when the shell has become lo2io."""
    spool.fact_task(1_500, 40, 40, ppid=RECORDER).call(60_000, 0, 40, "sync")
    assert column(run(spool), "tid") == [40]


@pytest.mark.parametrize("seen", [True, False], ids=["forked meanwhile", "forked before"])
def test_the_command_is_recorded_from_its_exec_on(run: Run, spool: SpoolBuilder, *, seen: bool) -> None:
    """So are its descendants; lo2io's calls in it between fork and exec are lo2io's own."""
    if seen:
        spool.fork(40_000, 0, 60, 60, 30, 30)
    spool.fact_task(50_000, 60, 60, ppid=RECORDER, flags=FROM_EXEC)
    spool.call(60_000, 0, 60, "read", 1, fd=0, count=1).enter(60_010, 0, 60, "execve")
    spool.comm(60_011, 0, 60, 60, b"cmd", is_exec=True).exit(60_012, 0, 60, "execve")
    spool.fork(60_020, 0, 61, 61, 60, 60).call(60_030, 0, 61, "sync")
    tables = run(spool)
    assert column(tables, "call") == ["execve", "sync"]
    assert own(tables) == (1, 0)
    assert column(tables, "tid", "tasks") == [10, 60, 61]


def test_a_selected_process_is_recorded_at_once(run: Run, spool: SpoolBuilder) -> None:
    """Also one that the recorder forked."""
    spool.fork(40_000, 0, 60, 60, 30, 30).call(45_000, 0, 60, "sync").fact_task(50_000, 60, 60, flags=SELECT)
    spool.call(60_000, 0, 60, "fsync", EBADF, fd=1)
    tables = run(spool)
    assert column(tables, "call") == ["fsync"]
    assert own(tables) == (1, 0)


def test_requests_of_its_threads_are_followed_and_not_written(run: Run, spool: SpoolBuilder) -> None:
    """They are no orphans, take no other completion, and are in the kernel's accounts."""
    write(spool, 60_000, 31, 100)
    write(spool, 60_010, 10, 200)
    write(spool, 60_020, 2, 300)
    spool.block(60_030, 0, 30, "rq_insert", dev=VDA, sector=400, nr_sector=8, rwbs=b"W")
    tables = run(spool)
    assert column(tables, "sector", "requests") == [200, 300]
    assert column(tables, "sector", "request_events") == [200] * 3 + [300] * 3
    assert column(tables, "sector", "completions") == [100, 200, 300]
    assert own(tables) == (0, 2)
    assert (tables["totals"]["nr_orphan_completions"], tables["totals"]["nr_in_flight_requests"]) == (0, 0)


def test_sightings_of_its_files_tell_nothing(run: Run, spool: SpoolBuilder) -> None:
    """Its calls are not followed, so nothing would end such handles, and no child has them."""
    spool.fact_fd(2_000, RECORDER, 3, b"/spool/cpu-0000.ring").fork(40_000, 0, 60, 60, 30, 30)
    spool.fact_task(50_000, 60, 60, flags=SELECT).call(60_000, 0, 60, "read", 1, fd=3, count=1)
    tables = run(spool)
    assert [(row["origin"], row["name_source"]) for row in tables["handles"]] == [(4, 0)]
    assert not tables["unused"]
    assert (tables["totals"]["nr_names_verified"], tables["totals"]["nr_names_refused"]) == (0, 0)


def test_of_selected_processes_nothing_is_its_own(run: Run, tmp_path: Path) -> None:
    """Process mode leaves everybody else out, and counts nobody."""
    spool = SpoolBuilder(tmp_path / "other", mode="process", recorder_pid=RECORDER)
    spool.fact_task(1_000, 30, 30).fact_task(1_000, 10, 10, flags=SELECT).call(60_000, 0, 30, "sync")
    write(spool, 60_010, 30, 100)
    assert own(run(spool)) == (0, 0)
