"""Usage of threads, as BPF programs tell it at their exits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from build.kernelwriter import KernelSpool
from reference.engines import each_engine  # noqa: F401 - the fixture `run`

if TYPE_CHECKING:
    from pathlib import Path

    from reference.compare import Tables
    from reference.engines import Run

FIGURES = (
    *("cpu_ns", "user_ns", "system_ns", "block_delay_ns", "major_faults"),
    *("voluntary_switches", "involuntary_switches", "minor_faults"),
)
NOT_TOLD = 2**64 - 1


@pytest.fixture
def spool(tmp_path: Path) -> KernelSpool:
    """The process 10, and its child 11, born in the trace."""
    builder = KernelSpool(tmp_path / "spool", start_ns=50_000)
    builder.fact_task(1_000, 10, 10, ppid=1, comm=b"ten")
    builder.fork(60_000, 0, 11, 11, 10, 10)
    return builder


def figures(tables: Tables, tid: int) -> tuple[Any, ...]:
    """The figures of one thread."""
    (row,) = (row for row in tables["tasks"] if row["tid"] == tid)
    return tuple(row[name] for name in FIGURES)


def test_what_a_thread_had_used_when_it_exited(run: Run, spool: KernelSpool) -> None:
    """Its time on a CPU, divided in proportion to its ticks; threads without a record have no figures."""
    spool.kernel_usage(70_000, 0, 11, 1_000_000, 3, 1, 77, 5, 12, 13, 90).task_exit(70_100, 0, 11, 11)
    tables = run(spool)
    assert figures(tables, 11) == (1_000_000, 750_000, 250_000, 77, 5, 12, 13, 90)
    assert figures(tables, 10) == (None,) * 8


@pytest.mark.parametrize(
    ("told", "expected"),
    [
        ((9, 0, 0, NOT_TOLD, 0, 0, 0, 0), (9, 9, 0, None, 0, 0, 0, 0)),
        ((9, 0, 4, 0, 1, 2, 3, 4), (9, 0, 9, 0, 1, 2, 3, 4)),
        ((2**63 - 1, 1, 2**64 - 1, *[2**63] * 5), (2**63 - 1, 0, 2**63 - 1, *[None] * 5)),
        ((2**63, 1, 1, 0, 0, 0, 0, 0), (None, None, None, 0, 0, 0, 0, 0)),
    ],
)
def test_figures_at_their_borders(
    run: Run, spool: KernelSpool, told: tuple[int, ...], expected: tuple[int | None, ...]
) -> None:
    """Without ticks all is user time, as the kernel has it; what cannot be is not known."""
    spool.kernel_usage(70_000, 0, 11, *told).task_exit(70_100, 0, 11, 11)
    assert figures(run(spool), 11) == expected


def test_a_number_that_comes_again_is_another_thread(run: Run, spool: KernelSpool) -> None:
    """It has its own figures, or none."""
    spool.kernel_usage(70_000, 0, 11, 5, 1, 0, 0, 0, 0, 0, 0).task_exit(70_100, 0, 11, 11)
    spool.fork(80_000, 0, 11, 11, 10, 10).task_exit(80_100, 0, 11, 11)
    tables = run(spool)
    assert [row["cpu_ns"] for row in tables["tasks"] if row["tid"] == 11] == [5, None]
