"""The part of the report's page about rings, and what stands out."""

from __future__ import annotations

import io
import json
import re
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from build.ringtables import (
    RINGS,
    THREADS,
    WORKER,
    example,
    ring_trace,
    text_of,
)
from build.tablemaker import READ, READV, Row, make_batch, meta, write_trace

from lo2io.reports.findings.rings import RING_RULES
from lo2io.reports.rings.summary import RingsSummary
from lo2io.reports.summary.summary import Summary, summarize, to_json
from lo2io.reports.text.page import render_page, report_console

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def test_page(tmp_path: Path, golden: Callable[[str, str], None]) -> None:
    """The whole page, as a pipe gets it."""
    text = text_of(summarize(example(tmp_path))).replace(str(tmp_path), "T")
    tables = [line for line in text.splitlines() if not line.startswith(("  ", "note: "))]
    assert max(map(len, tables[:-1])) <= 100
    golden("summary-rings.txt", text)


def test_json(tmp_path: Path, golden: Callable[[str, str], None]) -> None:
    """Keys and values; a key that changes breaks what users have built on it."""
    document = json.loads(to_json(summarize(example(tmp_path))))
    golden("summary-rings.json", json.dumps({key: document[key] for key in ("rings", "findings")}, indent=2) + "\n")


def test_a_sampled_trace_says_so(tmp_path: Path) -> None:
    """In its head and in its last line."""
    text = text_of(summarize(example(tmp_path, rate=100)))
    assert "of 1,005 requests of rings one in 100 is written" in text
    assert text.splitlines()[-1].endswith("sampled: 1 in 100 of 1,005 requests of rings written")


def test_requests_that_repeat_themselves_are_not_timed(tmp_path: Path) -> None:
    """The program decides how long they last; their number of completions is shown instead."""
    row = {"opcode": READV, "path": 3, "submit_time_ns": 0, "status": 0}
    once = {"id": 1, "complete_time_ns": 500, "waiting_ns": 400, "nr_completions": 1}
    again = {"complete_time_ns": 10**12, "waiting_ns": 10**12, "nr_completions": 40, "traits": 32}
    requests = [{**row, **once}, *({"id": number, **row, **again} for number in (2, 3))]
    summary = summarize(ring_trace(tmp_path, make_batch(ring_requests=requests)))
    assert summary.rings is not None
    ring = summary.rings.rings[0]
    (path,), (opcode,) = ring.paths, ring.opcodes
    assert (ring.multishot, ring.multishot_completions) == (2, 80)
    assert (path.requests, path.latency.nr, path.latency.max_ns, path.waiting.max_ns) == (3, 1, 500, 400)
    assert (opcode.requests, opcode.latency.nr) == (3, 1)
    assert "  2 multi-shot requests completed 80 times; the times above leave them out" in text_of(summary).splitlines()


def test_files_are_listed_by_path(tmp_path: Path) -> None:
    """A file that was made anew is one row, for all rings and for each."""
    row = {"opcode": READV, "path": 4, "nr_punts": 1, "bytes_result": 10, "work_begin_time_ns": 0}
    rows = [{"id": n + 1, **row, "handle": n, "work_end_time_ns": 100} for n in range(2)]
    again = [{"file": n, "path": b"/data/journal"} for n in range(2)]
    rings = summarize(ring_trace(tmp_path, make_batch(ring_requests=rows), files=again)).rings
    assert rings is not None
    assert [(row.path, row.requests, row.bytes_read, row.worker_ns) for row in rings.files] == [
        ("/data/journal", 2, 20, 200)
    ]
    assert [(row.path, row.requests, row.worker_ns) for row in rings.rings[0].worker_files] == [
        ("/data/journal", 2, 200)
    ]


def test_what_a_part_of_the_requests_tells_is_said_to_be_so(tmp_path: Path) -> None:
    """Errors stand beside a ring's own totals, and the tables of a ring under its name: neither is of all requests."""
    summary = summarize(example(tmp_path))
    parts = replace(summary.rings.rings[0], requests=1000, written=7, errors=3)
    wholes = replace(parts, requests=7)
    pages = [text_of(replace(summary, rings=replace(summary.rings, rings=(ring,)))) for ring in (parts, wholes)]
    assert ["3 of 7\n" in page for page in pages] == [True, False]
    assert ["fd 5, 7 of its 1,000 requests" in page for page in pages] == [True, False]


def test_a_filtered_trace_says_so(tmp_path: Path) -> None:
    """The head and the last line have the number of ring requests that a filter left out."""
    trace = example(tmp_path)
    trace.metadata["filter"] = "opcode == READV"
    trace.metadata["filtered"] = {"calls": 2, "requests": 0, "ring_requests": 7}
    lines = text_of(summarize(trace)).splitlines()
    assert "only what passes 'opcode == READV': 2 calls and 7 ring requests left out" in lines
    assert lines[-1].endswith("filtered: 2 calls, 0 requests and 7 of rings left out")


def numbers_of(summary: Summary, width: int) -> list[str]:
    """All numbers of the page on a terminal that wide."""
    out = io.StringIO()
    console = report_console(out)
    console.width = width
    render_page(summary, console)
    return re.findall(r"\d[\d,.]*", out.getvalue())


@pytest.mark.parametrize("width", [40, 80])
def test_page_fits_any_width(tmp_path: Path, width: int) -> None:
    """Numbers are never cut, whatever the terminal."""
    summary = summarize(example(tmp_path))
    assert numbers_of(summary, width) == numbers_of(summary, 200)


def rules_of(rings: RingsSummary) -> dict[str, str]:
    """The findings about rings: rule → text."""
    return {finding.rule: finding.text for rule in RING_RULES.values() for finding in rule(rings)}


def test_what_stands_out(tmp_path: Path) -> None:
    """Three habits, each with its figures; half of them is not enough."""
    summary = summarize(example(tmp_path))
    assert summary.rings is not None
    single, workers, overflow = summary.findings
    assert single.subject == workers.subject == "ring 0: db (100) fd 5"
    assert "950 of 954 submitting calls submit a single request (at most 32 under way" in single.text
    assert (single.rule, single.table, single.rows, len(single.ids)) == ("one-request-batches", "batches", 950, 10)
    assert "141 of 1,105 requests went to worker threads" in workers.text
    assert "one at a time for each file (inferred): 140" in workers.text
    assert (workers.rule, workers.table, workers.rows) == ("punted-requests", "ring_requests", 141)
    assert overflow.subject == "ring 1: other (200)"
    assert overflow.text == "2 completions found no room in the queue of 2"
    ring = summary.rings.rings[0]
    batches = replace(ring.batches, sizes=ring.batches.sizes[1:])
    calm = replace(ring, batches=batches, punted=(replace(ring.punted[0], requests=100),))
    assert rules_of(replace(summary.rings, rings=(calm,))) == {}
    for polled in (replace(ring, poller=True), replace(ring, flags=("SQPOLL",))):
        assert "one-request-batches" not in rules_of(replace(summary.rings, rings=(polled,)))


def test_head_tells_whose_bytes_are_known(tmp_path: Path) -> None:
    """Bytes of libaio are unknown; for a part of the requests, they are that part's."""
    libaio = {**RINGS[2], "nr_requests": 20}
    row = {"ring": 0, "opcode": READV, "bytes_result": 4096}

    def page(name: str, rings: list[Row], rows: list[Row]) -> list[str]:
        (tmp_path / name).mkdir()
        calls = [{"call": READ, "begin_time_ns": 1, "end_time_ns": 2}]
        batch = make_batch(ring_requests=rows, operations=calls)
        return text_of(summarize(ring_trace(tmp_path / name, batch, rings=rings))).splitlines()

    lines = page("libaio", [{**libaio, "ring": 0}], [])
    assert "20 requests on 1 ring, all of libaio, whose bytes are not known" in lines
    (process,) = (line for line in lines if line.startswith("Process"))
    assert "in rings" not in process
    (ring,) = (line for line in lines if line.startswith("0: other (200) libaio"))
    assert ring.split()[4:] == ["-", "20", "0", "-", "-", "0", "-", "-"]
    part = "1 of them in this trace: read 4 KiB, written 0 B · 0 errors"
    assert f"1,000 requests on 1 ring · {part}" in page("part", RINGS[:1], [row])
    assert f"1,020 requests on 2 rings, 20 of libaio, whose bytes are not known · {part}" in page(
        "both", [RINGS[0], {**libaio, "ring": 1}], [row]
    )
    told = [{**row, "error": 5, "status": 0}, {**row, "bytes_result": -(2**63), "status": 6}]
    lines = page("told", [{**libaio, "ring": 0, "nr_requests": 2}], told)
    assert "2 requests on 1 ring · read 4 KiB, written 0 B · 1 error" in lines
    (ring,) = (line for line in lines if line.startswith("0: other (200) libaio"))
    assert ring.split()[4:] == ["-", "2", "0", "-", "-", "0", "-", "1"]
    assert "  1 ended unseen: no call collected their completions" in lines
    whole = {**RINGS[0], "nr_requests": 1}
    assert "1 request on 1 ring · read 4 KiB, written 0 B · 0 errors" in page("whole", [whole], [row])


def test_numbers_of_rings_are_never_cut(tmp_path: Path) -> None:
    """The table of rings is where one looks for the number that stands above the details, however long the name."""
    threads = [{**THREADS[0], "comm": b"quite-a-long-on"}]
    rows = [{"ring": 0, "opcode": READV, "path": WORKER, "nr_punts": 1}]
    text = text_of(summarize(ring_trace(tmp_path, make_batch(ring_requests=rows), tasks=threads)))
    (line,) = (line for line in text.splitlines() if line.startswith("0: "))
    assert line.startswith("0: …")
    assert " (100) fd 5 " in line


def test_calls_submit_nothing_where_the_kernel_does(tmp_path: Path) -> None:
    """io_uring_enter on a ring with SQPOLL wakes a thread, and returns the number that it should submit."""
    batch = make_batch(batches=[{"ring": 0, "asked": 7, "submitted": 7}])
    for number, flags in enumerate((0, 1 << 1)):
        (tmp_path / str(number)).mkdir()
        trace = ring_trace(tmp_path / str(number), batch, rings=[{**RINGS[0], "flags": flags}])
        text = text_of(summarize(trace))
        assert ("1 call submitted 7" in text) == (flags == 0)
        (line,) = (line for line in text.splitlines() if line.startswith("0: db"))
        assert line.split()[-5] == ("-" if flags else "7")


def test_few_inline_are_no_comparison(tmp_path: Path) -> None:
    """Workers are set beside what went inline only where that is not an exception."""
    ring = summarize(example(tmp_path)).rings.rings[0]  # type: ignore[union-attr]
    rings = RingsSummary(1, 1105, 0, 1105, 1, 0, 0, 0, (ring,), ())
    assert "; half took over " in rules_of(rings)["punted-requests"]
    few = tuple(replace(row, latency=replace(row.latency, nr=100)) for row in ring.paths)
    assert "half took" not in rules_of(replace(rings, rings=(replace(ring, paths=few),)))["punted-requests"]


def test_a_whole_machine_lists_who_moves_most_through_rings(tmp_path: Path) -> None:
    """A process without calls comes first if its ring moves most, with these bytes."""
    rows = [{"ring": 0, "task": 2, "opcode": READV, "bytes_result": 5000}]
    calls = [{"call": READ, "task": 0, "begin_time_ns": 1, "end_time_ns": 2, "bytes_result": 4096}]
    batch = make_batch(tasks=THREADS, rings=RINGS, ring_requests=rows, operations=calls)
    summary = summarize(write_trace(tmp_path, [batch], spool=meta(mode="system", command=(), roots=())))
    assert [(row.pid, row.activity.calls, row.ring_requests, row.ring_bytes) for row in summary.processes] == [
        (200, 0, 1, 5000),
        (100, 1, 0, 0),
    ]
    assert summary.nr_processes == 2
    lines = text_of(summary).splitlines()
    (heading,) = (line for line in lines if line.startswith("Process (pid)"))
    assert heading.split()[-4:] == ["rings", "requests", "on", "disks"]
    (first,) = (line for line in lines if line.startswith("other (200)  "))
    assert "4.88 KiB" in first
