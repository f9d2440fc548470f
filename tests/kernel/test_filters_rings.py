"""Filters of rings' requests on the running kernel: of known requests, exactly the requested ones."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
from workloads.build import build
from workloads.record import Recorded, record
from workloads.rings import read_truth

from lo2io.convert.convert import convert
from lo2io.trace.reader import Trace, open_trace
from lo2io.verify import Severity, verify

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

Row = dict[str, Any]

pytestmark = pytest.mark.requires("root", "tracefs", "events", "gcc", "io_uring:io_uring_complete")
SCENARIOS = ("nop", "cached", "metadata", "async", "pipe-reads", "broken-chain")
WRITES = ("WRITE", "WRITEV", "WRITE_FIXED")


def recorded_requests(
    folder: Path, *options: str, scenarios: tuple[str, ...] = SCENARIOS
) -> tuple[Recorded, list[Row]]:
    """The program's recording, and the requests that the program reports."""
    work, truth = folder / "work", folder / "truth"
    work.mkdir(parents=True)
    command = [build("rings"), "--dir", work, "--truth", truth, *scenarios]
    recorded = record(folder / "T", command, *options, attempts=5)
    return recorded, [row for row in read_truth(truth) if row["kind"] == "request"]


def assert_rules(trace: Path) -> None:
    """Verified, its tables as well."""
    assert [finding for finding in verify(trace).findings if finding.severity is Severity.ERROR] == []


KEPT: list[Path] = []
NAMING_ATTEMPTS = 5
"""The program's files are open for milliseconds. Now and then no look falls into that time, and none has a name."""


@pytest.fixture(name="folder")
def one_recording(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A trace with its spool, recorded for all tests while CPUs are kept busy."""
    if KEPT:
        return KEPT[0]
    request.getfixturevalue("busy_cpus")
    for _ in range(NAMING_ATTEMPTS):
        folder = tmp_path_factory.mktemp("rings")
        recorded, told = recorded_requests(folder, "--keep-spool")
        if any(in_work(row) for row in rows_of(recorded.trace)):
            break
    assert Counter(row["opcode"] for row in recorded.trace.ring_requests.to_pylist()) == Counter(
        row["opcode"] for row in told
    )
    KEPT.append(folder)
    return folder


def rows_of(trace: Trace) -> list[Row]:
    """Requests, with the name of their file."""
    files = {row["file"]: row["path"] for row in trace.files.to_pylist()}
    names = {row["handle"]: files.get(row["file"]) for row in trace.handles.to_pylist()}
    return [row | {"file": names.get(row["handle"])} for row in trace.ring_requests.to_pylist()]


def in_work(row: Row) -> bool:
    """True if its file is known to lie in the program's folder."""
    return "/work/" in (row["file"] or "")


def took(row: Row) -> int:
    """Its duration, -1 if it has none."""
    end = row["complete_time_ns"]
    return -1 if end is None else int(end - row["submit_time_ns"])


ASKED: tuple[tuple[str, Callable[[Row], bool]], ...] = (
    ("via == worker", lambda row: row["path"] == "worker"),
    ("via != worker, poll", lambda row: row["path"] in {"inline", "device", "refused", "cancelled"}),
    ("via == poll and opcode == READ", lambda row: (row["path"], row["opcode"]) == ("poll", "READ")),
    ("opcode ~ 'read*'", lambda row: row["opcode"].startswith("READ")),
    ("opcode == NOP", lambda row: row["opcode"] == "NOP"),
    ("kind == ring and operation == write", lambda row: row["opcode"] in WRITES),
    ("kind == ring and operation == open, close", lambda row: row["opcode"] in {"OPENAT", "OPENAT2", "CLOSE"}),
    ("kind == ring and size >= 512", lambda row: (row["bytes_result"] or 0) >= 512),
    ("kind == ring and latency <= 50us", lambda row: 0 <= took(row) <= 50_000),
    ("kind == ring and path ~ '/**/work/**'", in_work),
    ("kind == call", lambda _: False),
    ("comm == nobody", lambda _: False),
)


@pytest.mark.parametrize(("chosen", "passes"), ASKED, ids=[chosen for chosen, _ in ASKED])
def test_what_passes(chosen: str, passes: Callable[[Row], bool], folder: Path, tmp_path: Path) -> None:
    """The same rows as in the whole table; executions go with their requests, and the trace keeps all rules."""
    whole = open_trace(folder / "T")
    expected = [row["id"] for row in rows_of(whole) if passes(row)]
    assert bool(expected) is (chosen not in {"kind == call", "comm == nobody"})
    convert(folder / "T/spool", tmp_path / "T", filters=[chosen])
    found = open_trace(tmp_path / "T")
    assert [row["id"] for row in found.ring_requests.to_pylist()] == expected
    works = [row["id"] for row in whole.table("ring_works").to_pylist() if row["id"] in expected]
    assert [row["id"] for row in found.table("ring_works").to_pylist()] == works
    assert found.metadata["filtered"]["ring_requests"] == whole.rows("ring_requests") - len(expected)
    assert (found.rows("rings"), found.rows("ring_states")) == (whole.rows("rings"), whole.rows("ring_states"))
    calls = {row["id"] for row in found.operations.to_pylist()}
    kept = [row for row in whole.table("batches").to_pylist() if row["id"] in calls]
    assert found.table("batches").to_pylist() == kept
    assert bool(kept) is (chosen == "kind == call")
    assert_rules(tmp_path / "T")


@pytest.mark.usefixtures("busy_cpus")
def test_only_what_is_needed_is_recorded(tmp_path: Path) -> None:
    """Without block events, but with all that opens and closes; the kernel still filters task work."""
    recorded, told = recorded_requests(tmp_path, "--filter", "opcode == NOP, WRITE", scenarios=("nop", "cached"))
    expected = [row["opcode"] for row in told if row["opcode"] in {"NOP", "WRITE"}]
    assert sorted(recorded.trace.ring_requests["opcode"].to_pylist()) == sorted(expected)
    events = recorded.trace.metadata["events"]
    assert not [event for event in events if event.startswith("block:")]
    assert "syscalls:sys_enter_openat" in events
    assert ["io_uring:io_uring_task_work_run", "count > 0"] in recorded.trace.metadata["filters"]
    assert_rules(tmp_path / "T")


@pytest.mark.usefixtures("busy_cpus")
def test_block_requests_need_no_rings(tmp_path: Path) -> None:
    """Neither io_uring's events nor calls are recorded for them."""
    recorded, _ = recorded_requests(tmp_path, "--filter", "kind == request", scenarios=("nop",))
    assert not [event for event in recorded.trace.metadata["events"] if event.startswith(("io_uring:", "syscalls:"))]
    assert recorded.trace.rows("ring_requests") == recorded.trace.rows("rings") == 0
    assert_rules(tmp_path / "T")
