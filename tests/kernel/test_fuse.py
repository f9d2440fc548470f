"""Requests to the server of a FUSE file system, against the server's own log."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from workloads import asking
from workloads.record import Recorded, record, verified
from workloads.served import lo2io

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.requires(
    "root", "tracefs", "events", "bindfs", "fuse:fuse_request_send", "fuse:fuse_request_end"
)

ASKED = re.compile(r"unique: (\d+), opcode: (\w+) \(\d+\), nodeid: \d+, insize: (\d+), pid: (\d+)")
ANSWERED = re.compile(r"   unique: (\d+), (?:success|error: -(\d+) \(.*\)), outsize: (\d+)")
WITHOUT_CALL = {"INIT", "FORGET", "BATCH_FORGET", "DESTROY"}
"""Of mounting and unmounting, and those that nobody answers."""


class Found(NamedTuple):
    """A recording of the workload, and what the server logged."""

    run: Recorded
    place: Path
    log: str
    device: int


@contextmanager
def served(folder: Path, log: Path) -> Iterator[Path]:
    """A folder that shows another one through bindfs, whose library logs each request and its answer."""
    place, below = folder / "mounted", folder / "below"
    place.mkdir()
    below.mkdir()
    (below / "old").write_bytes(bytes(4 * asking.FAR))
    with log.open("wb") as out:
        server = subprocess.Popen(["bindfs", "-d", "--no-allow-other", below, place], stdout=out, stderr=out)
        try:
            deadline = time.monotonic() + 20
            while not place.is_mount():
                assert time.monotonic() < deadline, log.read_text(errors="replace")
                time.sleep(0.01)
            yield place
        finally:
            subprocess.run(["umount", place], check=False)
            server.terminate()
            server.wait()


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Found:
    """The workload on such a folder, recorded."""
    folder = tmp_path_factory.mktemp("fuse")
    with served(folder, folder / "log") as place:
        command = [sys.executable, "-S", asking.__file__, place]
        run = record(folder / "T", command, "-e", "+metadata")
        device = place.stat().st_dev
    return Found(run, place, (folder / "log").read_text(errors="replace"), device)


def logged(log: str, pid: int) -> dict[int, tuple[str, int, int, int]]:
    """Number of a request → what it asks for, bytes sent and replied, and error, as the server saw them."""
    asked = {int(number): (name, int(size), int(whose)) for number, name, size, whose in ASKED.findall(log)}
    answers = {int(number): (int(size), int(error or 0)) for number, error, size in ANSWERED.findall(log)}
    return {
        number: (name, size, *answers[number])
        for number, (name, size, whose) in asked.items()
        if whose in {pid, 0} and name not in WITHOUT_CALL  # the kernel sends RELEASE in nobody's name
    }


def test_each_request_is_the_one_that_the_server_saw(found: Found) -> None:
    """Joined by its number: what it asks for, the sizes of message and reply, and the error."""
    rows = found.run.trace.table("fuse_requests").to_pylist()
    pid = int(found.run.stdout)
    seen = {
        row["unique"]: tuple(row[name] for name in ("opcode", "bytes_sent", "bytes_replied", "error")) for row in rows
    }
    assert seen == logged(found.log, pid)
    assert len(rows) == len(seen) >= 15
    assert {row["tid"] for row in rows} == {pid}
    assert {(row["connection"] >> 20, row["connection"] & 0xFFFFF) for row in rows} == {(0, found.device & 0xFF)}


def test_each_call_has_its_own_requests(found: Found) -> None:
    """A read that finds its page in memory sends none, the others what they need; all lie inside of their calls."""
    calls = {row["id"]: row for row in found.run.operations()}
    asked: dict[int, list[str]] = {}
    for row in found.run.trace.table("fuse_requests").to_pylist():
        call = calls[row["operation"]]
        assert call["begin_time_ns"] <= row["begin_time_ns"] <= row["end_time_ns"]
        asked.setdefault(row["operation"], []).append(row["opcode"])
    reads = [asked.get(row["id"], []) for row in found.run.calls("pread64") if row["path"] == str(found.place / "old")]
    assert reads == [["READ"]] * 4 + [[]]
    for name, opcode in (("fsync", "FSYNC"), ("unlink", "UNLINK"), ("getdents64", "READDIR")):
        assert any(opcode in " ".join(asked.get(row["id"], [])) for row in found.run.calls(name)), name


def test_report_why_and_archive_tell(found: Found) -> None:
    """The report has file system and opcode, `why` the request of a call, and the archive its number and time."""
    trace: Any = found.run.trace
    verified(trace.path)
    page = lo2io("report", trace.path, "--full").stdout
    assert "Requests to FUSE servers" in page
    rows = trace.table("fuse_requests").to_pylist()
    nr_reads = sum(row["opcode"] == "READ" for row in rows)  # the kernel may divide what it reads ahead
    assert nr_reads
    assert re.search(rf"READ +{nr_reads} ", page)
    (row, *_) = [row for row in rows if row["opcode"] == "FSYNC"]
    told = lo2io("why", trace.path, "--call", str(row["operation"])).stdout
    assert f"FUSE: FSYNC {row['unique']}: {row['bytes_sent']} B sent, {row['bytes_replied']} B replied" in told
    printed = subprocess.run(
        ["otf2-print", trace.path / "traces.otf2"], capture_output=True, text=True, check=True
    ).stdout
    counts = sum(int(number) for number in re.findall(r'"FUSE requests" <\d+>; UINT64; (\d+)', printed))
    assert counts == trace.rows("fuse_requests")
