"""The command line of a process: that of its last exec, or a later title; both engines agree."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from build.kernelwriter import KernelSpool
from reference.engines import each_engine  # noqa: F401 - the fixture `run`

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from build.perfwriter import SpoolBuilder
    from reference.compare import Tables

    Run = Callable[[SpoolBuilder], Tables]


@pytest.fixture
def spool(tmp_path: Path) -> KernelSpool:
    """A spool in system mode with the process 10, which runs ``ten -x``; events on from 50 µs."""
    builder = KernelSpool(tmp_path / "spool", start_ns=50_000)
    builder.fact_task(1_000, 10, 10, comm=b"ten").fact_command(1_500, 10, b"ten\0-x\0")
    return builder


def commands(tables: Tables) -> dict[int, tuple[bytes, int]]:
    """By thread, the command line of its row, and whether it is cut."""
    return {row["tid"]: (row["cmdline"], row["cmdline_cut"]) for row in tables["tasks"]}


def test_threads_and_children_bear_it(run: Run, spool: KernelSpool) -> None:
    """Children have it until their exec; without a fact it is unknown."""
    spool.fork(60_000, 0, 10, 11, 10, 10).fork(60_100, 0, 20, 20, 10, 10).fork(60_200, 0, 30, 30, 99, 99)
    assert commands(run(spool)) == {10: (b"ten\0-x", 0), 11: (b"ten\0-x", 0), 20: (b"ten\0-x", 0), 30: (b"", 0)}


def test_exec_replaces_it(run: Run, spool: KernelSpool) -> None:
    """By the programs' record; without one, it is unknown from then on."""
    spool.fork(60_000, 0, 20, 20, 10, 10).comm(61_000, 0, 20, 20, b"cat", is_exec=True)
    spool.exec(61_010, 0, 20, b"cat\0f\0", cut=True)
    spool.comm(62_000, 1, 10, 10, b"dd", is_exec=True)
    assert commands(run(spool)) == {10: (b"", 0), 20: (b"cat\0f", 1)}


def test_a_mere_name_changes_nothing(run: Run, spool: KernelSpool) -> None:
    """prctl(PR_SET_NAME) renames a thread."""
    spool.comm(61_000, 0, 10, 10, b"renamed")
    assert commands(run(spool)) == {10: (b"ten\0-x", 0)}


def test_a_title_replaces_it(run: Run, spool: KernelSpool) -> None:
    """As a look at /proc shows; zero bytes at its end are unused room, and an empty one is no title."""
    spool.fact_command(61_000, 10, b"ten: idle\0\0\0\0").fact_command(62_000, 10, b"\0\0")
    assert commands(run(spool)) == {10: (b"ten: idle", 0)}


def test_a_look_before_an_exec_is_of_another_program(run: Run, spool: KernelSpool) -> None:
    """Also if it was over only after the exec; a look that began after the exec counts."""
    spool.comm(61_000, 0, 10, 10, b"cat", is_exec=True).exec(61_010, 0, 10, b"cat\0")
    spool.fact_command(62_000, 10, b"ten\0-x\0", begin=60_990)
    assert commands(run(spool)) == {10: (b"cat", 0)}
    spool.fact_command(64_000_000, 10, b"cat: done", begin=63_000_000)
    assert commands(run(spool)) == {10: (b"cat: done", 0)}


def test_a_fact_about_nobody_is_left_out(run: Run, spool: KernelSpool) -> None:
    """An unknown process is not made."""
    spool.fact_command(61_000, 77, b"ghost\0")
    assert commands(run(spool)) == {10: (b"ten\0-x", 0)}
