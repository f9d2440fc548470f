"""The native engine and the slow one agree on every table, whatever is recorded."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest
from build.perfwriter import SpoolBuilder, replay
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from reference.block_histories import block_histories
from reference.compare import Tables, run_native, run_reference
from reference.histories import History, call_histories

from lo2io.model import ClockSync

FIRST_PID = 100
"""Of the machine that histories are about."""
SYNCS = tuple(
    tuple(ClockSync(time, monotonic, 0, error) for time, monotonic, error in readings)
    for readings in (
        [(0, 0, 300), (1_000_400_000, 10**9, 200)],
        [(99_990, 100_000, 5)],
        [(100_000, 100_000, 300), (100_900, 100_001, 300)],
        [(0, 0, 0), (10**12, 130_000, 0), (10**12 + 10**9, 130_000 + 10**9, 0)],
        [(100_000, 100_000, 0), (50_000, 120_000, 0), (10**6, 90_000, 0)],
        [(-(10**13), 0, 100), (-(10**13) + 120_000, 120_000, 100)],
    )
)
"""What both clocks may have been read as."""
SETTINGS = settings(
    max_examples=int(os.environ.get("LO2IO_EXAMPLES", "75")), deadline=None, suppress_health_check=list(HealthCheck)
)


def build(history: History, directory: str, **options: object) -> Path:
    """The spool of a history."""
    options = {"calls": None, **options}
    builder = SpoolBuilder(Path(directory), 2, **{k: v for k, v in options.items() if v is not None})  # type: ignore[arg-type]
    replay(builder, history)
    return builder.write()


def assert_same(native: Tables, reference: Tables) -> None:
    """Every table, smallest difference first."""
    for name, rows in reference.items():
        assert native[name] == rows, name


def check(history: History, **options: object) -> None:
    """Both engines on one history."""
    with tempfile.TemporaryDirectory() as directory:
        path = build(history, directory, **options)
        assert_same(run_native(path), run_reference(path))


@SETTINGS
@given(call_histories(damage=False))
def test_calls_agree_on_whole_recordings(history: History) -> None:
    """Without loss: threads, processes, descriptors, positions, names."""
    check(history, start_ns=100_500)


@SETTINGS
@given(call_histories(), st.sampled_from([0, 500]))
def test_calls_agree_on_damaged_recordings(history: History, error_ns: int) -> None:
    """Records dropped, LOST records, inversions, readings of the clocks that are less sure."""
    check(history, start_ns=100_500, error_ns=error_ns)


@SETTINGS
@given(call_histories(damage=False), st.sampled_from(SYNCS))
def test_calls_agree_whatever_the_clocks_do(history: History, syncs: tuple[ClockSync, ...]) -> None:
    """Drift, jumps, readings close to each other, far away, or in no order."""
    with tempfile.TemporaryDirectory() as directory:
        builder = SpoolBuilder(Path(directory), 2, start_ns=100_500)
        replay(builder, history)
        path = builder.write(syncs=syncs)
        assert_same(run_native(path), run_reference(path))


@SETTINGS
@given(call_histories())
def test_calls_agree_where_counts_tell_of_losses(history: History) -> None:
    """Gaps are known before anything else is read then."""
    with tempfile.TemporaryDirectory() as directory:
        builder = SpoolBuilder(Path(directory), 2, start_ns=100_500)
        replay(builder, history)
        path = builder.count_lost("syscalls:sys_enter_read", (1, 0)).write()
        assert_same(run_native(path), run_reference(path))


@SETTINGS
@given(call_histories(flags=1))
def test_calls_agree_in_process_mode(history: History) -> None:
    """Only selected threads and their descendants."""
    check(history, mode="process")


@SETTINGS
@given(call_histories(flags=3))
def test_calls_agree_from_exec_on(history: History) -> None:
    """Recording that begins with the first exec."""
    check(history, mode="process")


@SETTINGS
@given(call_histories(), st.sampled_from([0, 1, 3]))
def test_calls_agree_where_some_are_our_own(history: History, flags: int) -> None:
    """The whole machine; of its first process lo2io itself, and a fact may select one of its children."""
    mine = [args for method, args, _ in history if method == "fork" and args[4] == FIRST_PID]
    child = [("fact_task", (args[0] + 1, *args[2:4]), {"flags": flags}) for args in mine[:1]]
    check([*history, *child], recorder_pid=FIRST_PID)


@SETTINGS
@given(block_histories(), st.sampled_from(["system", "process"]), st.integers(0, 2), st.sampled_from([0, 55, 100]))
def test_requests_agree(history: History, mode: str, vanished: int, recorder: int) -> None:
    """Block requests, with and without completions the kernel counted and did not deliver, some lo2io's own."""
    with tempfile.TemporaryDirectory() as directory:
        builder = SpoolBuilder(Path(directory), 2, mode=mode, calls=(), recorder_pid=recorder)
        builder.fact_task(1_000, 55, 55)
        replay(builder, history)
        path = builder.count_vanished("block:block_rq_complete", [vanished, 0]).write()
        assert_same(run_native(path), run_reference(path))


@SETTINGS
@given(block_histories(calls=True), st.sampled_from(["system", "process"]), st.sampled_from([8, 4096]))
def test_ends_that_nobody_saw_agree(history: History, mode: str, rows: int) -> None:
    """Requests during calls of their thread, with vanished completions; batches of any size."""
    with tempfile.TemporaryDirectory() as directory:
        builder = SpoolBuilder(Path(directory), 2, mode=mode, calls=("fsync", "io_submit"))
        replay(builder, history)
        path = builder.count_vanished("block:block_rq_complete", [1, 0]).write()
        assert_same(run_native(path, rows), run_reference(path))


@pytest.mark.parametrize("rows", [8, 16, 64])
@settings(max_examples=10, deadline=None, suppress_health_check=list(HealthCheck))
@given(call_histories())
def test_batches_of_any_size_hold_the_same_rows(rows: int, history: History) -> None:
    """A batch's size changes nothing."""
    with tempfile.TemporaryDirectory() as directory:
        path = build(history, directory)
        assert_same(run_native(path, rows), run_native(path))


@settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck))
@given(call_histories(), st.binary(max_size=64), st.integers(0, 200))
def test_garbage_and_cut_tails_end_the_stream_only(history: History, garbage: bytes, cut: int) -> None:
    """Whatever stands at the end of a ring, what stands before it is read."""
    with tempfile.TemporaryDirectory() as directory:
        builder = SpoolBuilder(Path(directory), 2)
        replay(builder, history)
        size = sum(map(len, builder.rings[0]))
        builder.truncate(0, min(cut, size)).raw(1, garbage)
        run_native(builder.write())
