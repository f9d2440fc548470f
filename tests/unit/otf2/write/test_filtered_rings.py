"""Filters of rings' requests, from a spool to a trace: tables, archive and the note about the filter agree."""

from __future__ import annotations

import re
import subprocess
from typing import TYPE_CHECKING

import pytest
from build.ringrig import FD, PID, A, Rig

from lo2io.convert.convert import convert
from lo2io.trace.reader import Trace, open_trace
from lo2io.verify import Severity, verify

if TYPE_CHECKING:
    from pathlib import Path

NOP, READ, WRITE, OPENAT = 0, 22, 23, 18
LINK, ASYNC = 4, 16
WORKER = 77
FILE = 7
"""Descriptor of /data/f."""
FIELDS = ("ring_requests", "ring_works", "batches", "operations", "rings")


@pytest.fixture(name="spool")
def known_spool(tmp_path: Path) -> Path:
    """One ring, six requests in two calls.

    A NOP; a read of 512 bytes, linked before a write that a worker executes; a read that waits for its file; an open;
    a read that goes to the device and never ends.
    """
    rig = Rig(tmp_path)
    rig.setup()
    rig.call("openat", FILE, filename=0, flags=2)
    rig.spool.fact_fd(rig.tick() + 5_000, PID, FILE, b"/data/f", begin=rig.now + 3_000)
    rig.now += 10_000
    rig.worker(WORKER)
    rig.enter("io_uring_enter", fd=FD, to_submit=5)
    for req, opcode, flags in ((1, NOP, 0), (2, READ, LINK), (3, WRITE, ASYNC), (4, READ, 0), (5, OPENAT, 0)):
        rig.submit(req, opcode=opcode, flags=flags, user_data=req)
        if req == 3:
            rig.event("link", ctx=A, req=3, target_req=2)
            rig.event("file_get", ctx=A, req=2, user_data=2, fd=FILE)
            rig.event("queue_async_work", ctx=A, req=3, user_data=3, opcode=WRITE, flags=ASYNC, rw=0)
        if req == 4:
            rig.event("file_get", ctx=A, req=4, user_data=4, fd=FILE)
            rig.event("poll_arm", ctx=A, req=4, user_data=4, opcode=READ, mask=0, events=1)
    for req, result in ((1, 0), (2, 512), (5, 9)):
        rig.complete(req, result, user_data=req)
    rig.leave("io_uring_enter", 5)
    rig.event("file_get", WORKER, ctx=A, req=3, user_data=3, fd=FILE)
    rig.complete(3, 4096, tid=WORKER, user_data=3)
    rig.enter("io_uring_enter", fd=FD, to_submit=1)
    rig.submit(6, opcode=READ, user_data=6)
    rig.event("file_get", ctx=A, req=6, user_data=6, fd=FILE)
    rig.event("task_add", ctx=A, req=4, user_data=4, opcode=READ, mask=1)
    rig.complete(4, 1024, user_data=4)
    rig.leave("io_uring_enter", 1)
    return rig.spool.write()


def counts(trace: Trace) -> tuple[int, ...]:
    """Rows of some tables."""
    return tuple(trace.rows(table) for table in FIELDS)


@pytest.mark.parametrize(
    ("chosen", "passing", "others", "words"),
    [
        ("kind == ring", [1, 2, 3, 4, 5, 6], (1, 0, 0, 1), "4 calls and 0 requests"),
        ("opcode == READ", [2, 4, 6], (0, 0, 0, 1), "4 calls, 0 requests and 3 of rings"),
        ("via == worker", [3], (1, 0, 0, 1), "4 calls, 0 requests and 5 of rings"),
        ("via == poll", [4], (0, 0, 0, 1), "4 calls, 0 requests and 5 of rings"),
        ("via == inline", [1, 2, 5], (0, 0, 0, 1), "4 calls, 0 requests and 3 of rings"),
        ("operation == read and size >= 1KiB", [4], (0, 0, 0, 1), "4 calls, 0 requests and 5 of rings"),
        ("latency > 0ns and kind == ring", [1, 2, 3, 4, 5], (1, 0, 0, 1), "4 calls, 0 requests and 1 of rings"),
        ("path == /data/f", [2, 3, 4, 6], (1, 0, 1, 1), "3 calls, 0 requests and 2 of rings"),
        ("path ~ '/data/*' and via != worker", [2, 4, 6], (0, 0, 0, 1), "4 calls, 0 requests and 3 of rings"),
        ("comm == nobody", [], (0, 0, 0, 0), "4 calls, 0 requests and 6 of rings"),
        ("kind == call", [], (0, 2, 4, 2), "0 calls, 0 requests and 6 of rings"),
    ],
)
def test_exact_requests(  # noqa: PLR0917 - a row of the table above
    spool: Path, tmp_path: Path, chosen: str, passing: list[int], others: tuple[int, int, int, int], words: str
) -> None:
    """Rows (works, batches, calls, handles used), records, properties, otf2-print: all say the same; rings stay.

    The first request, a NOP, and the fifth, an open, carry no data: they have no records.
    """
    works, batches, calls, handles = others
    converted = convert(spool, tmp_path / "T", filters=[chosen])
    trace = open_trace(tmp_path / "T")
    assert sorted(trace.ring_requests["user_data"].to_pylist()) == passing
    assert counts(trace) == (len(passing), works, batches, calls, 1)
    assert trace.metadata["filtered"] == {"calls": 4 - calls, "requests": 0, "ring_requests": 6 - len(passing)}
    assert converted.filtered == f"filtered: {words} left out"
    findings = verify(tmp_path / "T").findings
    assert [finding for finding in findings if finding.severity is Severity.ERROR] == []
    archive = str(tmp_path / "T/traces.otf2")
    printed = subprocess.run(["otf2-print", "-Werror", archive], capture_output=True, text=True, check=True).stdout
    assert len(re.findall(r"IO_OPERATION_BEGIN .*NON_BLOCKING", printed)) == len(set(passing) - {1, 5})
    said = subprocess.run(["otf2-print", "-I", archive], capture_output=True, text=True, check=True).stdout
    assert f"LO2IO::FILTERED_RING_REQUESTS Property value {6 - len(passing)} " in " ".join(said.split())
    assert sum(used for used in trace.handles["used"].to_pylist()) == handles


def test_without_a_filter(spool: Path, tmp_path: Path) -> None:
    """Everything is there, and nothing is said of a filter."""
    convert(spool, tmp_path / "T")
    assert counts(open_trace(tmp_path / "T")) == (6, 1, 2, 4, 1)
    assert "filtered" not in open_trace(tmp_path / "T").metadata
