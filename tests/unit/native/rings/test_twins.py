"""The native engine and the slow one agree on the tables of rings, whatever rings do and whatever is lost of it."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from build.perfwriter import SpoolBuilder, replay
from hypothesis import HealthCheck, given, settings
from reference.compare import Tables, run_native, run_reference
from reference.ring_histories import ring_histories

if TYPE_CHECKING:
    from reference.histories import History

SETTINGS = settings(
    max_examples=int(os.environ.get("LO2IO_EXAMPLES", "50")),
    deadline=None,
    database=None,
    suppress_health_check=list(HealthCheck),
)
"""Always the same histories, unless more are asked for."""
FIRST_PID = 100
"""Of the machine that histories are about."""


def check(history: History, *, era: str = "6.18", **options: object) -> None:
    """Both engines on one history."""
    with tempfile.TemporaryDirectory() as directory:
        builder = SpoolBuilder(Path(directory), rings=era, start_ns=100_500, **options)  # type: ignore[arg-type]
        replay(builder, history)
        path = builder.write()
        assert_same(run_native(path), run_reference(path))


def assert_same(native: Tables, reference: Tables) -> None:
    """Every table, smallest difference first."""
    for name, rows in reference.items():
        assert native[name] == rows, name


@SETTINGS
@given(ring_histories(damage=False))
def test_rings_agree_on_whole_recordings(history: History) -> None:
    """Without loss: requests, their paths and phases, workers, links, states, batches."""
    check(history)


@SETTINGS
@given(ring_histories())
def test_rings_agree_on_damaged_recordings(history: History) -> None:
    """Records dropped, LOST records, inversions."""
    check(history)


@SETTINGS
@given(ring_histories(flags=1))
def test_rings_agree_in_process_mode(history: History) -> None:
    """Only selected threads and their descendants."""
    check(history, mode="process")


@pytest.mark.parametrize("era", ["6.1", "6.12"])
@SETTINGS
@given(history=ring_histories())
def test_rings_agree_on_older_formats(era: str, history: History) -> None:
    """Kernels that lack some fields and events."""
    check(history, era=era)


@SETTINGS
@given(ring_histories())
def test_rings_agree_where_some_are_our_own(history: History) -> None:
    """The whole machine, whose first process is lo2io itself."""
    check(history, recorder_pid=FIRST_PID)


@settings(SETTINGS, max_examples=20)
@given(ring_histories())
def test_batches_of_any_size_hold_the_same_rows_of_rings(history: History) -> None:
    """A batch's size changes nothing."""
    with tempfile.TemporaryDirectory() as directory:
        builder = SpoolBuilder(Path(directory), rings="6.18")
        replay(builder, history)
        path = builder.write()
        assert_same(run_native(path, 8), run_native(path))
