"""Programs that live on rings: fio exactly as it counts, rings older than the recording, idle ones; no side effects."""

from __future__ import annotations

import errno
import json
import re
import shlex
import subprocess
from typing import TYPE_CHECKING, Any

import pytest
from workloads.build import build
from workloads.machine import complete, finish, recording
from workloads.record import LO2IO, Recorded, has_begun, record, verified
from workloads.rings import EVENTS, OLDER, SQPOLL, Run, differences, read_truth, run
from workloads.served import lo2io

from lo2io.trace.reader import open_trace

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = [
    pytest.mark.requires("root", "tracefs", "events", "gcc", "io_uring:io_uring_complete"),
    pytest.mark.usefixtures("busy_cpus"),
]

FIO = (
    *("fio", "--name=job", "--bs=4k", "--rw=randrw", "--size=8m", "--io_size=1g", "--number_ios=1009"),
    *("--norandommap", "--randseed=7", "--iodepth=16", "--output-format=json", "--invalidate=0"),
)
"""1,009 reads and writes of 4 KiB, sixteen at a time."""
VARIANTS = {
    "buffered": ("--ioengine=io_uring", "--iodepth_batch_submit=8", "--iodepth_batch_complete_min=4"),
    "direct": ("--ioengine=io_uring", "--direct=1"),
    "sqthread_poll": ("--ioengine=io_uring", "--sqthread_poll=1"),
    "fixedbufs": ("--ioengine=io_uring", "--fixedbufs=1", "--direct=1"),
    "registerfiles": ("--ioengine=io_uring", "--registerfiles=1"),
}
HIPRI = ("--ioengine=io_uring", "--hipri=1", "--direct=1")
READS, WRITES = ("READ", "READV", "READ_FIXED"), ("WRITE", "WRITEV", "WRITE_FIXED")


def fio(folder: Path, target: Path, *options: str) -> tuple[Recorded, dict[str, tuple[int, int]]]:
    """Fio, recorded, and its own count: number and bytes of reads and writes."""
    log = folder / "fio.json"
    command = [*FIO, f"--filename={target}", f"--output={log}", *options]
    recorded = record(folder / "T", command, "-e", EVENTS, attempts=5, cwd=folder)
    (job,) = json.loads(log.read_text())["jobs"]
    assert job["error"] == 0
    return recorded, {name: (job[name]["total_ios"], job[name]["io_bytes"]) for name in ("read", "write")}


def rows_by_direction(recorded: Recorded) -> dict[str, list[dict[str, Any]]]:
    """The requests that read and those that write."""
    rows = recorded.trace.ring_requests.to_pylist()
    return {
        name: [row for row in rows if row["opcode"] in opcodes]
        for name, opcodes in (("read", READS), ("write", WRITES))
    }


def assert_said(rows: list[dict[str, Any]], said: tuple[int, int]) -> None:
    """As many, with as many bytes, as fio reports; each completed once."""
    assert (len(rows), sum(row["bytes_result"] for row in rows)) == said
    assert {(row["status"], row["result"], row["nr_completions"]) for row in rows} == {("completed", 4096, 1)}


@pytest.mark.requires("fio", "losetup")
@pytest.mark.parametrize("variant", VARIANTS)
def test_fio(variant: str, loop: Path, tmp_path: Path) -> None:
    """Every read and write of fio is one request, with all its bytes, on the right disk."""
    recorded, said = fio(tmp_path, loop, *VARIANTS[variant])
    found = rows_by_direction(recorded)
    for name, rows in found.items():
        assert_said(rows, said[name])
        assert all(bool(row["traits"] & SQPOLL) == (variant == "sqthread_poll") for row in rows)
        assert all(row["opcode"].endswith("FIXED") == (variant == "fixedbufs") for row in rows)
    files = {row["file"]: row["path"] for row in recorded.trace.files.to_pylist()}
    of_handle = {row["handle"]: files.get(row["file"]) for row in recorded.trace.handles.to_pylist()}
    handles = {row["handle"] for rows in found.values() for row in rows}
    registered = variant in {"registerfiles", "sqthread_poll"}  # fio does the latter with registered files only
    origins = {row["origin"] for row in recorded.trace.handles.to_pylist() if row["handle"] in handles}
    if registered and "named by /proc" in recorded.stderr:  # only programs tell which registered file it is
        assert handles == {None}
    else:
        assert (None in handles, "registered with a ring" in origins) == (False, registered)
        assert {of_handle[handle] for handle in handles} == {str(loop)}
    if variant == "buffered":
        submitted = [row["submitted"] for row in recorded.trace.table("batches").to_pylist()]
        assert sum(number or 0 for number in submitted) == 1009
        assert max(number or 0 for number in submitted) == 8
    assert {row["nr_requests"] for row in recorded.trace.rings.to_pylist() if row["nr_requests"]} == {1009}
    verified(tmp_path / "T")


@pytest.mark.requires("fio", "losetup")
def test_fio_by_workers(loop: Path, tmp_path: Path) -> None:
    """Workers take one request after the other, and their completions come late: verify holds the parts of each."""
    recorded, said = fio(tmp_path, loop, "--ioengine=io_uring", "--force_async=1", "--fsync=4")
    for name, rows in rows_by_direction(recorded).items():
        assert_said(rows, said[name])
    synced = [row for row in recorded.trace.ring_requests.to_pylist() if row["opcode"] == "FSYNC"]
    assert any(row["blocked_ns"] for row in synced)
    verified(tmp_path / "T")


@pytest.mark.requires("fio", "losetup")
def test_fio_polls(loop: Path, tmp_path: Path) -> None:
    """With hipri, as fio reports.

    If loop devices cannot be polled, each request is refused, and fio ends as without lo2io.
    """
    command = [*FIO, f"--filename={loop}", *HIPRI, "--output=fio.json"]
    alone = subprocess.run(command, capture_output=True, check=False, cwd=tmp_path).returncode
    script = f"{shlex.join(command)} 2>fio.err; echo $? >code"
    recorded = record(tmp_path / "T", ["/bin/sh", "-c", script], "-e", EVENTS, attempts=5, cwd=tmp_path)
    assert int((tmp_path / "code").read_text()) == alone
    found = rows_by_direction(recorded)
    if alone == 0:
        (job,) = json.loads((tmp_path / "fio.json").read_text())["jobs"]
        for name, rows in found.items():
            assert_said(rows, (job[name]["total_ios"], job[name]["io_bytes"]))
    else:
        told = [(row["error"], row["bytes_result"], row["status"]) for rows in found.values() for row in rows]
        assert told == [(errno.EOPNOTSUPP, None, "completed")] * len(told)
        assert len(told) == sum(row["nr_requests"] for row in recorded.trace.rings.to_pylist())
        assert told
    verified(tmp_path / "T")


@pytest.mark.requires("fio", "losetup")
def test_fio_libaio(loop: Path, tmp_path: Path) -> None:
    """Fio's libaio engine: as many requests and bytes as fio reports, in batches on one context."""
    recorded, said = fio(tmp_path, loop, "--ioengine=libaio", "--direct=1")
    total = said["read"][0] + said["write"][0]
    batches = recorded.trace.table("batches").to_pylist()
    assert sum(row["submitted"] or 0 for row in batches) == total
    assert sum(row["collected"] or 0 for row in batches) == total
    (ring,) = [row for row in recorded.trace.rings.to_pylist() if row["nr_batches"]]
    assert (ring["kind"], ring["sq_entries"]) == ("libaio", 16)
    for name, rows in rows_by_direction(recorded).items():
        assert_said(rows, said[name])
    verified(tmp_path / "T")


def flood(folder: Path, *options: str) -> Recorded:
    """20,011 cached reads, 32 at a time, at full speed."""
    command = [build("rings"), "--dir", folder, "--truth", folder / "truth", "--count", "20011", "flood"]
    return record(folder / "T", command, "-e", EVENTS, *options, attempts=5)


def test_every_request_at_full_speed(tmp_path: Path) -> None:
    """Each request once, by its number, and none lost."""
    recorded = flood(tmp_path)
    rows = [row for row in recorded.trace.ring_requests.to_pylist() if row["opcode"] == "READ"]
    assert sorted(row["user_data"] for row in rows) == list(range(1, 20012))
    assert {(row["status"], row["path"], row["bytes_result"]) for row in rows} == {("completed", "inline", 512)}
    (ring,) = recorded.trace.rings.to_pylist()
    assert (ring["nr_requests"], ring["nr_completions"], ring["nr_batches"]) == (20011, 20011, 626)
    assert ring["most_in_flight"] == 32


def test_one_in_ten(tmp_path: Path) -> None:
    """Whole requests, chosen whatever they are; the ring's own numbers stay exact."""
    recorded = flood(tmp_path, "--sample", "1/10")
    rows = recorded.trace.ring_requests.to_pylist()
    assert recorded.trace.metadata["sample_rate"] == 10
    assert 1600 < len(rows) < 2400  # nine standard deviations from 2,001
    assert {(row["status"], row["bytes_result"]) for row in rows} == {("completed", 512)}
    kept = {row["user_data"] % 32 for row in rows}
    assert kept == set(range(32))
    (ring,) = recorded.trace.rings.to_pylist()
    assert (ring["nr_requests"], ring["nr_completions"], ring["nr_batches"]) == (20011, 20011, 626)
    verified(tmp_path / "T")


def test_idle_poller_is_not_recorded(tmp_path: Path) -> None:
    """A thread that polls a ring in vain for a second leaves no samples, for the kernel filters them."""
    seen = run(tmp_path, ["sqpoll-idle"])
    assert [line for truth, row in seen.requests("sqpoll-idle") for line in differences(seen, truth, row)] == []
    events = seen.recorded.trace.completeness.events
    runs = sum(event.samples for event in events if event.event == "io_uring:io_uring_task_work_run")
    assert runs < 20_000  # those of the whole machine; unfiltered, there would be half a million


@pytest.mark.parametrize("scenario", ["older", "older-sqpoll"])
def test_ring_older_than_the_recording(
    scenario: str, tmp_path: Path, until: Callable[[Callable[[], object]], object]
) -> None:
    """Its descriptor, process and size are known. Requests that began before or end after are marked so."""
    work, truth, ready, go = (tmp_path / name for name in ("work", "truth", "ready", "go"))
    work.mkdir()
    options = ["--dir", work, "--truth", truth, "--ready", ready, "--wait-for", go]
    with subprocess.Popen([build("rings"), *options, scenario]) as program:
        until(ready.exists)
        with subprocess.Popen(
            [LO2IO, "record", "-q", "-o", tmp_path / "T", "-e", EVENTS, "-p", str(program.pid)]
        ) as recorder:
            until(lambda: has_begun(tmp_path / "T/spool"))
            go.touch()
        assert recorder.returncode == 0
    assert program.returncode == 0
    recorded = Recorded(open_trace(tmp_path / "T"), 0, "", "")
    seen = Run(recorded, read_truth(truth), work)
    (told,) = seen.told("ring")
    row = seen.ring_rows[told["instance"]]
    assert (row["pid"], row["create_time_ns"], row["task"]) == (program.pid, None, None)
    sizes = (told["sq_entries"], told["cq_entries"])
    assert (row["fd"], row["sq_entries"], row["cq_entries"]) == (told["ring"], *sizes)
    rows = recorded.trace.ring_requests.to_pylist()
    begun_before = [request for request in rows if request["traits"] & OLDER]
    new = [truth for truth in seen.told("request") if truth["status"] != "before"]
    fresh = {request["user_data"]: request for request in rows if not request["traits"] & OLDER}
    assert [line for truth in new for line in differences(seen, truth, fresh.pop(truth["user_data"]))] == []
    assert not fresh
    (early,) = [truth for truth in seen.told("request") if truth["status"] == "before" and truth["opcode"] == "READ"]
    found = [(request["user_data"], request["result"], request["submit_time_ns"]) for request in begun_before]
    assert found == [(early["user_data"], 4, None)]
    assert row["nr_orphans"] == 0
    poller = seen.threads[row["poller"]]["comm"] if row["poller"] is not None else None
    assert poller == (f"iou-sqp-{program.pid}" if scenario == "older-sqpoll" else None)
    verified(tmp_path / "T")


def test_whole_machine(tmp_path: Path) -> None:
    """The same requests in a recording of every process, where calls are calling contexts."""
    work, truth, trace = tmp_path / "work", tmp_path / "truth", tmp_path / "T"
    work.mkdir()
    scenarios = ["cached", "metadata", "pipe-reads", "links", "worker-links", "cancels", "sqpoll"]
    command = [str(build("rings")), "--dir", str(work), "--truth", str(truth), *scenarios]

    def attempt() -> Recorded:
        with recording(trace, "-e", EVENTS, command=command) as process:
            return finish(process, trace)

    seen = Run(complete(attempt), read_truth(truth), work)
    pairs = [pair for scenario in scenarios for pair in seen.requests(scenario)]
    assert [line for told, row in pairs for line in differences(seen, told, row)] == []
    verified(trace)


def plain(text: str) -> list[dict[str, Any]]:
    """An account without values that differ from run to run."""
    rows = [json.loads(re.sub(r'"tid": \d+', '"tid": 0', line)) for line in text.splitlines()]
    return [{name: value for name, value in row.items() if name not in {"file", "offset"}} for row in rows]


def test_program_runs_unchanged(tmp_path: Path) -> None:
    """A program that reaches its files only by a ring gives the same output and exit code while it is recorded."""
    command = [build("rings"), "--dir", tmp_path, "nop", "cached", "metadata", "links", "worker-links", "overflow"]
    alone = subprocess.run(command, capture_output=True, text=True, check=True)
    recorded = record(tmp_path / "T", command, "-e", EVENTS, attempts=5)
    assert plain(recorded.stdout) == plain(alone.stdout)


def test_failing_program_runs_unchanged(tmp_path: Path) -> None:
    """The same message, the same exit code."""
    command = [str(build("rings")), "--dir", str(tmp_path / "absent"), "nop", "cached"]
    alone = subprocess.run(command, capture_output=True, text=True, check=False)
    recording = ["record", "-o", tmp_path / "T", "--", *command]
    recorded = lo2io(*recording)
    assert (recorded.returncode, alone.returncode) == (99, 99)
    assert recorded.stdout == alone.stdout
    assert alone.stderr in recorded.stderr
    assert open_trace(tmp_path / "T").rows("ring_requests") == 99
