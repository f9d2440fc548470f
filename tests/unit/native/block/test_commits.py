"""docs/explanation/rules/waits.md: commits of journals. Both engines."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from build.kernelwriter import KernelSpool
from hypothesis import given
from hypothesis import strategies as st
from lo2io.native._lib import lib
from reference.compare import run_native, run_reference
from reference.engines import each_engine  # noqa: F401 - the fixture `run`

from lo2io.native.records import framed, pack

if TYPE_CHECKING:
    from collections.abc import Callable

    from build.perfwriter import SpoolBuilder
    from reference.compare import Tables

    Run = Callable[[SpoolBuilder], Tables]

STARTS, LOCKS, FLUSHES, LOGS, ENDS = range(lib.LO2_COMMIT_MOMENTS)
MOMENTS = ("begin_time_ns", "locking_time_ns", "flushing_time_ns", "logging_time_ns", "end_time_ns")
JOURNAL, OTHER = 500, 501
LAYERS = ("waits", "journal")


@pytest.fixture
def spool(tmp_path: Path) -> KernelSpool:
    """The whole machine."""
    return KernelSpool(tmp_path / "spool", sampled=("block",), layers=LAYERS).fact_task(1_000, 10, 10)


def commit(spool: KernelSpool, t: int, moment: int, transaction: int = 7, **whose: int) -> None:
    """A record ``COMMIT`` on CPU 0."""
    told = {"device": 9, "tid": JOURNAL, **whose}
    spool.events[0].append(framed(pack("commit", t, told.pop("tid"), transaction=transaction, moment=moment, **told)))


def met(tables: Tables) -> list[tuple[Any, ...]]:
    """Transaction and moments of each row."""
    return [(row["transaction"], *(row[moment] for moment in MOMENTS)) for row in tables["commits"]]


def test_a_commit_is_a_row(run: Run, spool: KernelSpool) -> None:
    """It has its moments, and whose it is. Another thread's commit goes on beside it."""
    for n, moment in enumerate((STARTS, LOCKS, FLUSHES, LOGS, ENDS)):
        commit(spool, 60_000 + 10 * n, moment)
        commit(spool, 60_001 + 10 * n, moment, 3, tid=OTHER, device=8)
    tables = run(spool)
    assert met(tables) == [(7, *range(60_000, 60_050, 10)), (3, *range(60_001, 60_051, 10))]
    assert [(row["device"], row["tid"]) for row in tables["commits"]] == [(9, JOURNAL), (8, OTHER)]


def test_moments_that_were_not_seen(run: Run, spool: KernelSpool) -> None:
    """The recording begins and ends amid a commit; a record was lost."""
    for t, moment, transaction in (
        (60_000, LOGS, 7),
        (60_001, ENDS, 7),
        (60_002, STARTS, 8),
        (60_003, FLUSHES, 8),
        (60_004, STARTS, 9),
        (60_005, LOCKS, 10),
        (60_006, LOCKS, 10),
    ):
        commit(spool, t, moment, transaction)
    assert met(run(spool)) == [
        (7, None, None, None, 60_000, 60_001),
        (8, 60_002, None, 60_003, None, None),
        (9, 60_004, None, None, None, None),
        (10, None, 60_005, None, None, None),
        (10, None, 60_006, None, None, None),
    ]


def test_damaged_records(run: Run, spool: KernelSpool) -> None:
    """A record that is too short, or of a moment that there is not, is undecoded."""
    commit(spool, 60_000, ENDS + 1)
    spool.events[0].append(framed(pack("commit", 60_001, JOURNAL, moment=ENDS)[:24]))
    tables = run(spool)
    assert (tables["commits"], tables["totals"]["nr_undecoded"]) == ([], 2)


@given(
    st.lists(st.tuples(st.integers(0, 5), st.sampled_from((0, 1)), st.integers(0, 2), st.integers(0, 1)), max_size=25)
)
def test_engines_agree(told: list[tuple[int, int, int, int]]) -> None:
    """Whatever threads tell, in whatever order."""
    with tempfile.TemporaryDirectory() as folder:
        spool = KernelSpool(Path(folder) / "spool", sampled=("block",), layers=LAYERS).fact_task(1_000, 10, 10)
        for n, (moment, thread, transaction, device) in enumerate(told):
            commit(spool, 60_000 + n, moment, transaction, tid=JOURNAL + thread, device=device)
        path = spool.write()
        assert run_native(path) == run_reference(path)
