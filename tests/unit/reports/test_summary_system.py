"""The summary of a whole machine, and of recordings that were confined, lost something or hold nothing."""

from __future__ import annotations

import io
from dataclasses import asdict
from typing import TYPE_CHECKING

import pytest
from build.tablemaker import CALLS, READ, WRITE, Row, make_batch, meta

from lo2io.model import Completeness, EventCompleteness, Reconciliation, Totals
from lo2io.reports.summary.summary import Summary, summarize
from lo2io.reports.text.page import render_page, report_console
from lo2io.trace.reader import Trace, open_trace
from lo2io.trace.writer import TableWriter

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

SDA = 8 << 20


def text_of(summary: Summary) -> str:
    """The page as a pipe gets it."""
    out = io.StringIO()
    render_page(summary, report_console(out))
    return out.getvalue()


def machine(directory: Path) -> Trace:
    """A whole machine's trace: processes in cgroups, others' requests, losses, accounts, and all that confines it."""
    container = "8f" * 32
    threads = [
        {"task": 0, "process": 0, "pid": 100, "tid": 100, "comm": b"postgres", "cgroup": b"/system.slice/pg.service"},
        {"task": 1, "process": 1, "pid": 200, "tid": 200, "comm": b"java",
         "cgroup": f"/docker/{container}".encode()},
        {"task": 2, "process": 2, "pid": 7, "tid": 7, "comm": b"kworker/0:1"},
    ]  # fmt: skip
    rows = [
        {"call": READ, "task": 0, "bytes_result": 1 << 20, "end_time_ns": 5_000_000_000},
        *({"call": WRITE, "task": 1, "bytes_result": 1 << 20, "end_time_ns": 1000} for _ in range(5)),
    ]
    sent = {"device": SDA, "issue_time_ns": 40, "complete_time_ns": 1040, "bytes_result": 1 << 22}
    requests = [{**sent, "task": 2, "operation": 1}, {**sent, "task": 0}, sent]
    gaps = [{"cpu": 1, "begin_time_ns": 5, "end_time_ns": 1_500_005, "lost": 5}]
    accounts = [
        Reconciliation("diskstats", "sda", SDA, "reads", 7, 6),
        Reconciliation("diskstats", "sda", SDA, "read_bytes", 8192, 4096),
        Reconciliation("diskstats", "sda", SDA, "writes", 3, 3),
        Reconciliation("proc_io", "100", None, "rchar", 5, None, 0, "only a cgroup was recorded"),
    ]
    events = (EventCompleteness("block:block_rq_complete", 0, 11, 0, 10), EventCompleteness("x:y", 1, 9, 5, 4))
    proof = Completeness(6, 1, 0, 0, 0, 14, False, events)
    spool = meta(
        mode="system", command=(), roots=(), exit_code=None, filter="size >= 4KiB", cgroup="/a", chosen_cpus=(0, 1),
        recording_start_ns=-58_000_000_000,
    )  # fmt: skip
    with TableWriter(directory, spool, CALLS) as writer:
        writer.write(make_batch(tasks=threads, operations=rows, requests=requests, losses=gaps))
        writer.close(
            Totals(nr_own_calls=1, nr_own_requests=2), proof, 0, 2_000_000_000,
            {"reconciliation": [asdict(row) for row in accounts], "filtered": {"calls": 3, "requests": 0},
             "reconciliation_line": "captured 90 % of 10 block requests"},
        )  # fmt: skip
    return open_trace(directory)


def test_page_of_a_machine(tmp_path: Path, golden: Callable[[str, str], None]) -> None:
    """Processes by bytes with their cgroup, what confines the trace, where events are missing, and by which source."""
    text = text_of(summarize(machine(tmp_path))).replace(str(tmp_path), "T")
    assert max(map(len, text.splitlines()[:-1])) <= 100
    golden("summary-system.txt", text)


def test_requests_belong_to_who_sent_them(tmp_path: Path) -> None:
    """By process, the kernel's own threads too; those of nobody known to nobody."""
    rows = {row.comm: row for row in summarize(machine(tmp_path)).processes}
    assert {comm: (row.requests, row.request_bytes) for comm, row in rows.items()} == {
        "java": (0, 0), "postgres": (1, 1 << 22), "kworker/0:1": (1, 1 << 22), None: (1, 1 << 22),
    }  # fmt: skip
    assert (rows["java"].container, rows["postgres"].cgroup) == ("8f" * 32, "/system.slice/pg.service")


@pytest.mark.parametrize(
    ("spool", "extra", "counts", "hint"),
    [
        ({}, {}, (0, 0), "none of the 2 chosen events happened during the recording"),
        ({}, {}, (3, 0), "never happened: x:b"),
        ({}, {}, (3, 4), "all 7 events that happened were of processes that were not recorded"),
        ({"cgroup": "/a"}, {}, (0, 0), "no process of the cgroup /a made a recorded call"),
        ({"chosen_cpus": (3,)}, {}, (0, 0), "only CPU 3 was recorded"),
        ({"filter": "pid = 1"}, {"filtered": {"calls": 5, "requests": 1}}, (3, 0), "'pid = 1' left out all 5 calls"),
        ({"filter": "pid = 1"}, {}, (0, 0), "no event in the kernel passed the filter 'pid = 1'"),
    ],
)
def test_an_empty_trace_says_why(tmp_path: Path, spool: Row, extra: Row, counts: tuple[int, int], hint: str) -> None:
    """The likeliest reason comes first, and only where nothing was recorded."""
    events = tuple(EventCompleteness(f"x:{n}", 0, count, 0, count) for n, count in zip("ab", counts, strict=True))
    proof = Completeness(0, 0, 0, 0, 0, sum(counts), True, events)
    for rows, found in (([], True), ([{"call": READ}], False)):
        with TableWriter(tmp_path, meta(**spool), CALLS) as writer:
            writer.write(make_batch(operations=rows))
            writer.close(Totals(), proof, 0, 9, extra)
        summary = summarize(open_trace(tmp_path))
        assert (hint in (summary.hints or ("",))[0]) == found
        assert bool(summary.hints) == found
        assert not extra or len(summary.hints) == found  # the filter is all there is to say
        assert (f"nothing was recorded: {summary.hints[0]}" in text_of(summary)) if found else not summary.hints
