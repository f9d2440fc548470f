"""Waits for a journal are divided by the phases of its commits, and the parts add up."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from build.tablemaker import WRITE, make_batch, meta, write_trace
from hypothesis import given
from hypothesis import strategies as st

from lo2io.catalog.wait_reasons import load_reasons
from lo2io.model import UNKNOWN_I64, UNKNOWN_U32
from lo2io.model.recording import KernelStack
from lo2io.reports.summary.journal import PHASES, Commits, Timeline
from lo2io.reports.summary.summary import summarize
from lo2io.reports.text.io import phases_of
from lo2io.reports.why.chain import explain

if TYPE_CHECKING:
    from pathlib import Path

JOURNAL, OTHER = 500, 501
LAYERS = ("waits", "journal")


def commit(transaction: int, *moments: int | None, tid: int = JOURNAL) -> dict[str, Any]:
    """A row of commits."""
    names = ("begin_time_ns", "locking_time_ns", "flushing_time_ns", "logging_time_ns", "end_time_ns")
    known = {name: UNKNOWN_I64 if time is None else time for name, time in zip(names, moments, strict=True)}
    return {"device": 9, "transaction": transaction, "tid": tid, **known}


FIRST = commit(7, 100, 101, 110, 130, 190)
SECOND = commit(8, 300, 302, 320, 350, 400)


def divided(folder: Path, commits: list[dict[str, Any]], *waits: tuple[int, int, int], **more: Any) -> list[list[int]]:
    """The phases of waits: begin, wakeup, tid of the waker."""
    trace = write_trace(folder, [make_batch(commits=commits, **more)], spool=meta(layers=LAYERS))
    begin, wake, waker = (np.array(column) for column in zip(*waits, strict=True))
    stack = np.full(len(begin), UNKNOWN_U32, np.uint32)
    return Commits(trace).divide(begin, wake, waker.astype(np.uint32), stack).tolist()


@pytest.mark.parametrize(
    ("wait", "phases"),
    [
        ((90, 195, JOURNAL), [15, 10, 20, 60, 0]),
        ((105, 106, JOURNAL), [0, 1, 0, 0, 0]),
        ((195, 290, JOURNAL), [95, 0, 0, 0, 0]),
        ((120, 360, JOURNAL), [110, 20, 40, 70, 0]),
        ((390, 500, JOURNAL), [100, 0, 0, 10, 0]),
        ((90, 195, OTHER), [0, 0, 0, 0, 105]),
        ((90, UNKNOWN_I64, JOURNAL), [0, 0, 0, 0, 0]),
    ],
)
def test_what_the_journals_thread_did_meanwhile(tmp_path: Path, wait: tuple[int, int, int], phases: list[int]) -> None:
    """Only the thread that woke the waiter tells."""
    assert divided(tmp_path, [SECOND, FIRST], wait) == [phases]


@pytest.mark.parametrize(
    ("between", "phases"),
    [
        ([commit(8, None, None, 320, 350, 400)], [5, 0, 0, 60, 215]),
        ([commit(8, 300, 302, None, 350, 400)], [5, 0, 0, 60, 215]),
        ([commit(9, 300, 302, 320, 350, 400)], [10, 20, 30, 110, 110]),
    ],
    ids=["begin not seen", "a moment lost", "a commit lost"],
)
def test_what_was_not_seen(tmp_path: Path, between: list[dict[str, Any]], phases: list[int]) -> None:
    """From the end of the commit before to the start of the next one that is whole, the phase is not known."""
    last = commit(between[0]["transaction"] + 1, 405, 405, 405, 405, 405)
    assert divided(tmp_path, [FIRST, *between, last], (130, 410, JOURNAL)) == [phases]


def test_a_loss_makes_the_wait_unknown(tmp_path: Path) -> None:
    """A commit may be missing wholly."""
    losses = [{"cpu": 0, "begin_time_ns": 191, "end_time_ns": 192, "lost": 1}]
    waits = (120, 195, JOURNAL), (100, 190, JOURNAL)
    assert divided(tmp_path, [FIRST], *waits, losses=losses) == [[0, 0, 0, 0, 75], [0, 10, 20, 60, 0]]


def test_a_stack_tells_of_the_log(tmp_path: Path) -> None:
    """The end of a write woke a call that wants to change a block of metadata. The journal's own wakeups tell more."""
    functions = ("do_get_write_access.part.0", "ext4_setattr"), ("do_get_write_accesses",)
    stacks = tuple(KernelStack(number, names) for number, names in enumerate(functions))
    trace = write_trace(tmp_path, [make_batch(commits=[FIRST])], spool=meta(layers=LAYERS, kernel_stacks=stacks))
    tids, numbers = np.array([OTHER, OTHER, JOURNAL], np.uint32), np.array([0, 1, 0], np.uint32)
    found = Commits(trace).divide(np.full(3, 90), np.full(3, 195), tids, numbers).tolist()
    assert found == [[0, 0, 0, 105, 0], [0, 0, 0, 0, 105], [15, 10, 20, 60, 0]]


NUMBERS = st.lists(st.integers(0, 60), min_size=5, max_size=5).map(sorted)


@given(st.lists(st.tuples(NUMBERS, st.integers(0, 5)), max_size=5), st.integers(0, 400), st.integers(0, 200))
def test_the_parts_add_up(commits: list[tuple[list[int], int]], begin: int, lasts: int) -> None:
    """Whatever was seen of the commits, by counting each nanosecond."""
    rows, at, phase = [], 0, {}
    for moments, missing in commits:
        times = [at + moment for moment in moments]
        at = times[-1] + 1
        rows.append([UNKNOWN_I64 if n == missing else time for n, time in enumerate(times)])
        if missing == 5:
            edges = zip(range(1, 4), (times[0], times[2], times[3]), (times[2], times[3], times[4]), strict=True)
            phase |= {ns: what for what, first, end in edges for ns in range(first, end)}
    timeline = Timeline(np.array(rows, np.int64).reshape(-1, 5), np.arange(len(rows), dtype=np.uint32))
    found = np.diff(timeline.before(np.array([begin, begin + lasts])), axis=0)[0].tolist()
    assert sum(found) == lasts
    assert found[1:4] == [sum(phase.get(ns) == what for ns in range(begin, begin + lasts)) for what in (1, 2, 3)]


def test_reports_tell(tmp_path: Path) -> None:
    """The report has a line, the chain of a call the phases of its wait. Other reasons have none."""
    thread = {"task": 0, "process": 7, "pid": 100, "tid": 101, "comm": b"app"}
    call = {"id": 5, "task": 0, "pid": 100, "tid": 101, "call": WRITE, "begin_time_ns": 80, "end_time_ns": 1_000}
    shares = {"run_queue_ns": 10, "blocked_ns": 115}
    names = load_reasons().names
    stretch = {"task": 0, "state": 2, "waker_tid": JOURNAL}
    waits = [
        {**stretch, "reason": names.index("journal"), "begin_time_ns": 90, "wake_time_ns": 195, "end_time_ns": 200},
        {**stretch, "reason": names.index("lock"), "begin_time_ns": 210, "wake_time_ns": 220, "end_time_ns": 225},
    ]
    batch = make_batch(tasks=[thread], operations=[call | shares], off_cpu=waits, commits=[FIRST])
    trace = write_trace(tmp_path, [batch], spool=meta(layers=LAYERS))
    total = summarize(trace).io.time.waits[0]
    reasons = {row.reason: [(part.phase, part.time_ns) for part in row.phases] for row in total.reasons}
    told = [("before the commit", 15), ("open transaction", 10), ("data", 20), ("log", 60)]
    assert reasons == {"journal": told, "lock": []}
    parts = "before the commit 14.3 %, open transaction 9.5 %, data 19.0 %, log 57.1 %"
    assert phases_of(total) == [f"waited for the journal: {parts}"]
    (chain,) = explain(trace, [5])
    (step,) = (step.text for step in chain.steps if "journal" in step.text)
    assert "waits: journal (before the commit 15 ns, open transaction 10 ns, data 20 ns, log 60 ns), woken" in step
    assert set(PHASES) > dict(told).keys()
