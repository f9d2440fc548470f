"""docs/explanation/rules/tasks.md: cgroups: one test each, both engines."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import pytest
from build.perfwriter import SpoolBuilder, frame
from reference.engines import each_engine  # noqa: F401 - the fixture `run`

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from reference.compare import Tables

    Run = Callable[[SpoolBuilder], Tables]


@pytest.fixture
def spool(tmp_path: Path) -> SpoolBuilder:
    """A spool in system mode with the process 10 in the v2 cgroup ``/a``; tracepoints on from 50 µs."""
    builder = SpoolBuilder(tmp_path / "spool", start_ns=50_000)
    return builder.fact_task(1_000, 10, 10, comm=b"ten", cgroup=(0, b"/a"))


def cgroups(tables: Tables) -> dict[int, bytes]:
    """By thread, the cgroup of its row."""
    return {row["tid"]: row["cgroup"] for row in tables["tasks"]}


def test_a_fact_tells_a_process_cgroup(run: Run, spool: SpoolBuilder) -> None:
    """The cgroup of all its threads; a process without a fact has none."""
    spool.fork(60_000, 0, 10, 11, 10, 10).call(60_010, 0, 20, "sync")
    assert cgroups(run(spool)) == {10: b"/a", 11: b"/a", 20: b""}


def test_a_later_fact_replaces_an_earlier(run: Run, spool: SpoolBuilder) -> None:
    """Also one of another hierarchy, and one about another thread; a fact without a cgroup changes nothing."""
    spool.fork(60_000, 0, 10, 11, 10, 10).fact_task(70_000, 10, 11, cgroup=(4, b"/b")).fact_task(80_000, 10, 10)
    assert cgroups(run(spool)) == {10: b"/b", 11: b"/b"}


def test_children_begin_where_their_parent_is(run: Run, spool: SpoolBuilder) -> None:
    """They stay there when the parent moves on, and so do their children."""
    spool.fork(60_000, 0, 20, 20, 10, 10).attach(61_000, 1, 10, b"/b").fork(62_000, 0, 30, 30, 10, 10)
    spool.fork(63_000, 0, 40, 40, 20, 20).fork(64_000, 0, 50, 50, 99, 99)
    assert cgroups(run(spool)) == {10: b"/b", 20: b"/a", 30: b"/b", 40: b"/a", 50: b""}


def test_a_row_has_the_cgroup_its_thread_ended_in(run: Run, spool: SpoolBuilder) -> None:
    """Later moves of the process are in later rows."""
    spool.fork(60_000, 0, 10, 11, 10, 10).task_exit(61_000, 0, 10, 11).attach(62_000, 0, 10, b"/b")
    assert cgroups(run(spool)) == {10: b"/b", 11: b"/a"}


def test_only_the_leader_takes_its_process_along(run: Run, spool: SpoolBuilder) -> None:
    """If another thread is moved alone, its process stays; unknown threads are not moved."""
    spool.fork(60_000, 0, 10, 11, 10, 10).attach(61_000, 0, 11, b"/b").attach(62_000, 0, 77, b"/c")
    assert cgroups(run(spool)) == {10: b"/a", 11: b"/a"}


@pytest.mark.parametrize(("known", "moved", "cgroup"), [(0, 0, b"/b"), (5, 5, b"/b"), (0, 5, b"/a"), (5, 0, b"/b")])
def test_a_process_is_followed_in_one_hierarchy(
    run: Run, tmp_path: Path, known: int, moved: int, cgroup: bytes
) -> None:
    """The one that its path is known of, or v2's from the time on that it is put below its root."""
    spool = SpoolBuilder(tmp_path / "spool").fact_task(1_000, 10, 10, cgroup=(known, b"/a"))
    assert cgroups(run(spool.attach(60_000, 0, 10, b"/b", moved))) == {10: cgroup}


def test_the_root_of_v2_tells_nothing_of_v1(run: Run, tmp_path: Path) -> None:
    """A process known in v1 that comes into v2's root stays in v1; once below that root, v1 no longer counts."""
    spool = SpoolBuilder(tmp_path / "spool").fact_task(1_000, 10, 10, cgroup=(5, b"/a"))
    spool.attach(60_000, 0, 10, b"/", 0).fork(61_000, 0, 11, 11, 10, 10)
    spool.attach(62_000, 0, 10, b"/b", 0).attach(63_000, 0, 10, b"/c", 5)
    assert cgroups(run(spool)) == {10: b"/b", 11: b"/a"}


@pytest.mark.parametrize(("hierarchy", "cgroup"), [(0, b"/b"), (5, b"")])
def test_an_unknown_cgroup_becomes_known_by_v2_only(run: Run, tmp_path: Path, hierarchy: int, cgroup: bytes) -> None:
    """Only a fact can tell which of several v1 hierarchies to follow."""
    spool = SpoolBuilder(tmp_path / "spool").fact_task(1_000, 10, 10)
    assert cgroups(run(spool.attach(60_000, 0, 10, b"/b", hierarchy))) == {10: cgroup}


@pytest.mark.parametrize(("begin", "cgroup"), [(61_999, b"/b"), (64_000, b"/c"), (70_000, b"/c")])
def test_a_look_that_began_before_the_move_tells_nothing(
    run: Run, spool: SpoolBuilder, begin: int, cgroup: bytes
) -> None:
    """It may have seen the old cgroup; the clock's slack of 2 µs counts as before."""
    spool.attach(62_000, 0, 10, b"/b").fact_task(75_000, 10, 10, begin=begin, cgroup=(0, b"/c"))
    assert cgroups(run(spool)) == {10: cgroup}


@pytest.mark.parametrize(("length", "known"), [(1022, True), (1023, False)])
def test_a_path_that_the_kernel_may_have_cut_is_unknown(
    run: Run, spool: SpoolBuilder, length: int, *, known: bool
) -> None:
    """Half a path names another cgroup; the process is no longer in the old one either."""
    path = b"/".ljust(length, b"x")
    assert cgroups(run(spool.attach(60_000, 0, 10, path))) == {10: path if known else b""}


def test_a_fact_that_claims_more_than_it_holds_tells_no_cgroup(run: Run, spool: SpoolBuilder) -> None:
    """The record is a task's all the same."""
    body = struct.pack("<QQIIII16s", 60_000, 60_000, 20, 20, 1, 0, b"x") + struct.pack("<II", 0, 9) + b"/b".ljust(8)
    spool.facts.append(frame(0x4C01, body))
    assert cgroups(run(spool)) == {10: b"/a", 20: b""}


def test_a_new_process_of_an_old_pid_begins_anew(run: Run, spool: SpoolBuilder) -> None:
    """Facts about the former process are not about the new one."""
    spool.task_exit(60_000, 0, 10, 10).fork(61_000, 0, 10, 10, 99, 99)
    tables = run(spool)
    assert {row["start_time_ns"]: row["cgroup"] for row in tables["tasks"]} == {None: b"/a", 61_000: b""}
