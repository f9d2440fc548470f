"""The rank of a process: that of its environment, or its parent's; both engines agree."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from build.kernelwriter import KernelSpool
from reference.engines import each_engine  # noqa: F401 - the fixture `run`

from lo2io.model import UNKNOWN_U32

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from build.perfwriter import SpoolBuilder
    from reference.compare import Tables

    Run = Callable[[SpoolBuilder], Tables]


@pytest.fixture
def spool(tmp_path: Path) -> KernelSpool:
    """A spool in system mode with the process 10, rank 7 of a job, and 20, which is none; events on from 50 µs."""
    builder = KernelSpool(tmp_path / "spool", start_ns=50_000)
    builder.fact_task(1_000, 10, 10, comm=b"app").fact_task(1_100, 20, 20, comm=b"mpirun")
    builder.fact_rank(1_500, 10, 7)
    return builder


def ranks(tables: Tables) -> dict[int, int | None]:
    """By thread, the rank of its row; None: none."""
    return {row["tid"]: None if row["rank"] in {None, UNKNOWN_U32} else row["rank"] for row in tables["tasks"]}


def test_threads_and_children_bear_it(run: Run, spool: KernelSpool) -> None:
    """Their environment is the parent's, also after an exec. Who is no rank has no children that are."""
    spool.fork(60_000, 0, 10, 11, 10, 10).fork(60_100, 0, 30, 30, 10, 10).fork(60_200, 0, 40, 40, 20, 20)
    spool.comm(61_000, 0, 30, 30, b"dd", is_exec=True)
    assert ranks(run(spool)) == {10: 7, 11: 7, 20: None, 30: 7, 40: None}


def test_a_launcher_numbers_its_children_anew(run: Run, spool: KernelSpool) -> None:
    """A later look at the child itself counts, and holds for its own children from then on."""
    spool.fork(60_000, 0, 30, 30, 20, 20).fork(60_100, 0, 31, 31, 30, 30).fact_rank(61_000, 30, 0)
    spool.fork(62_000_000, 0, 32, 32, 30, 30)
    assert ranks(run(spool)) == {10: 7, 20: None, 30: 0, 31: None, 32: 0}


def test_an_ended_process_keeps_it(run: Run, spool: KernelSpool) -> None:
    """Another process with its number has none."""
    spool.task_exit(60_000, 0, 10, 10).fork(61_000, 0, 10, 10, 20, 20).task_exit(62_000, 0, 10, 10)
    rows = sorted((row for row in run(spool)["tasks"] if row["tid"] == 10), key=lambda row: row["exit_time_ns"])
    assert [None if row["rank"] in {None, UNKNOWN_U32} else row["rank"] for row in rows] == [7, None]


def test_a_fact_about_nobody_is_left_out(run: Run, spool: KernelSpool) -> None:
    """An unknown process is not made."""
    spool.fact_rank(61_000, 77, 3)
    assert 77 not in ranks(run(spool))
