"""Common parts of tests of the engines: every directed test runs on both."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from build.perfwriter import SpoolBuilder

from reference.compare import run_native, run_reference

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from reference.compare import Tables

    Run = Callable[[SpoolBuilder], Tables]

EBADF, EIO = -9, -5
O_RDWR, O_APPEND, O_CLOEXEC = 2, 0o2000, 0o2000000
BEFORE, UNSEEN, INHERITED = 3, 4, 2
"""Origins of handles."""
ENGINES = {"reference": run_reference, "native": run_native}


@pytest.fixture(name="run", params=list(ENGINES))
def each_engine(request: pytest.FixtureRequest) -> Run:
    """An engine, which turns a spool into tables."""
    engine = ENGINES[request.param]
    return lambda builder: engine(builder.write())


@pytest.fixture(name="spool")
def spool_of_a_process(tmp_path: Path) -> SpoolBuilder:
    """A spool in system mode with the process 10; tracepoints on from 50 µs."""
    builder = SpoolBuilder(tmp_path / "spool", start_ns=50_000)
    return builder.fact_task(1_000, 10, 10, ppid=1, comm=b"ten")


def rows(tables: Tables, *columns: str, table: str = "operations") -> list[tuple[Any, ...]]:
    """Some columns of a table."""
    return [tuple(row[column] for column in columns) for row in tables[table]]
