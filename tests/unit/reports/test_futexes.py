"""Waits on futexes in the report: sums that were worked out by hand."""

from __future__ import annotations

import errno
import io
from typing import TYPE_CHECKING, Any

from build.tablemaker import FSTAT, Row, make_batch, meta, write_trace

from lo2io.model.recording import UserStack
from lo2io.reports.html.sheets import sheets
from lo2io.reports.summary.futexes import FutexSummary, WakerRow
from lo2io.reports.summary.summary import summarize
from lo2io.reports.text.page import render_page, report_console

if TYPE_CHECKING:
    from pathlib import Path

    from lo2io.reports.summary.summary import Summary

FUTEX = FSTAT
"""Any call will do: the report knows calls on futexes by the table of futexes."""
LOCK, QUEUE = 0x7F00_0000_1000, 0x7F00_0000_2000


def call(number: int, begin: int, end: int, **more: int) -> Row:
    """A call on a futex by thread 0."""
    return {"id": number, "call": FUTEX, "task": 0, "begin_time_ns": begin, "end_time_ns": end, **more}


def slept(operation: int, begin: int, wake: int, **more: int) -> Row:
    """A stretch of thread 0 in a call. Ids of calls count from 1, and rows from 0."""
    return {
        "before": operation - 1,
        "task": 0,
        "begin_time_ns": begin,
        "wake_time_ns": wake,
        "end_time_ns": wake,
        **more,
    }


def summed(folder: Path, operations: list[Row], futexes: list[Row], off_cpu: list[Row], **more: Any) -> Summary:
    """Process 100 has two threads, main and helper; process 200 has one, whose name is not known."""
    batch = make_batch(
        tasks=[
            {"task": 0, "process": 0, "pid": 100, "tid": 100, "comm": b"main"},
            {"task": 1, "process": 0, "pid": 100, "tid": 101, "comm": b"helper"},
            {"task": 2, "process": 2, "pid": 200, "tid": 200},
        ],
        operations=operations,
        futexes=futexes,
        off_cpu=off_cpu,
        call_stacks=more.pop("call_stacks", []),
    )
    layers = ("waits", "stacks") if "user_stacks" in more else ("waits",)
    return summarize(write_trace(folder, [batch], spool=meta(layers=layers, **more), span=(0, 10_000)))


def three_waits(folder: Path, **more: Any) -> Summary:
    """Two on one futex, one on another; the last one is woken by an idle CPU. And one that was only preempted."""
    operations = [call(1, 0, 1000), call(2, 1000, 2000), call(3, 2000, 9000), call(4, 9000, 9100)]
    futexes = [{"operation": number, "address": QUEUE if number == 3 else LOCK} for number in (1, 2, 3, 4)]
    off_cpu = [
        slept(1, 100, 800, waker=1, waker_tid=101),
        slept(2, 1100, 1500, waker=1, waker_tid=101),
        slept(3, 2100, 8000, waker_tid=0),
        slept(4, 9010, 9010, waker_tid=101),
    ]
    return summed(folder, operations, futexes, off_cpu, **more)


def found(summary: Summary) -> FutexSummary:
    """The part about futexes, which must be there."""
    assert summary.futexes is not None
    return summary.futexes


def test_sums(tmp_path: Path) -> None:
    """By futex, that with most time first. A preempted thread does not wait."""
    futexes = found(three_waits(tmp_path))
    assert (futexes.waits, futexes.time_ns) == (3, 700 + 400 + 5900)
    queue, lock = futexes.futexes
    assert (lock.pid, lock.process, lock.address, lock.waits, lock.time_ns, lock.longest_ns) == (
        100, "main", LOCK, 2, 1100, 700,
    )  # fmt: skip
    assert (lock.threads, lock.wakers, lock.timeouts) == (1, (WakerRow(101, "helper", 2),), 0)
    assert (queue.address, queue.wakers) == (QUEUE, (WakerRow(0, None, 1),))


def test_one_address_in_two_processes_is_two_futexes(tmp_path: Path) -> None:
    """Each process has memory of its own."""
    operations = [call(1, 0, 1000), call(2, 1000, 2000, task=2)]
    futexes = [{"operation": 1, "address": LOCK}, {"operation": 2, "address": LOCK}]
    off_cpu = [slept(1, 100, 800), slept(2, 1100, 1500, task=2)]
    rows = found(summed(tmp_path, operations, futexes, off_cpu)).futexes
    assert [(row.pid, row.waits) for row in rows] == [(100, 1), (200, 1)]


def test_a_timeout_has_no_waker(tmp_path: Path) -> None:
    """The thread that happened to run when the timer ended the wait has not woken anybody."""
    operations = [call(1, 0, 1000, error=errno.ETIMEDOUT)]
    off_cpu = [slept(1, 100, 800, waker=1, waker_tid=101)]
    (row,) = found(summed(tmp_path, operations, [{"operation": 1, "address": LOCK}], off_cpu)).futexes
    assert (row.wakers, row.timeouts) == ((), 1)


def test_the_stack_with_most_time_tells_where(tmp_path: Path) -> None:
    """A futex has the stack in which its slow waits took most time."""
    stacks = tuple(UserStack(number, ("", ""), (0x10 + number, 0x20)) for number in (7, 8))
    calls = [{"operation": 1, "stack": 8}, {"operation": 2, "stack": 7}]
    queue, lock = found(three_waits(tmp_path, user_stacks=stacks, call_stacks=calls)).futexes
    assert (queue.functions, lock.functions) == ((), ("?+0x20", "?+0x18"))


def test_page(tmp_path: Path) -> None:
    """On the terminal and in HTML: place, process and waker."""
    summary = three_waits(tmp_path)
    out = io.StringIO()
    render_page(summary, report_console(out))
    lines = out.getvalue().split("Waits on futexes", 1)[1].splitlines()[1:3]
    assert [line.split() for line in lines] == [
        [f"{QUEUE:#x}", "of", "main", "(100)", "1", "5.9", "µs", "5.9", "µs", "an", "idle", "CPU,", "1"],
        [f"{LOCK:#x}", "of", "main", "(100)", "2", "1.1", "µs", "700", "ns", "helper", "(101),", "2"],
    ]
    (sheet,) = (each for each in sheets(summary) if each.key == "futexes")
    assert [row[0].text for row in sheet.rows] == [f"{QUEUE:#x} of main (100)", f"{LOCK:#x} of main (100)"]


def test_without_the_group_there_is_no_section(tmp_path: Path) -> None:
    """Nor without a single wait."""
    assert summed(tmp_path / "a", [], [], []).futexes is None
    alone = summed(tmp_path / "b", [call(1, 0, 1000)], [{"operation": 1, "address": LOCK}], [])
    assert alone.futexes is None
