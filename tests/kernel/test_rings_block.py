"""Block requests that requests of a ring caused carry their ids, where the submitter's call proves it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from workloads.disks import device_number
from workloads.rings import run
from workloads.served import lo2io

from lo2io.trace.reader import open_trace

if TYPE_CHECKING:
    from pathlib import Path

    from workloads.rings import Run

pytestmark = [
    pytest.mark.alone,
    pytest.mark.requires("root", "tracefs", "events", "gcc", "losetup", "io_uring:io_uring_complete"),
    pytest.mark.usefixtures("busy_cpus"),
]


def first_of_batch(seen: Run) -> int:
    """The user_data of the first of sixteen that were submitted by one call."""
    submitted = 0
    for batch in seen.told("batch"):
        if batch["asked"] == 16:
            return int(seen.told("request")[submitted]["user_data"])
        submitted += batch["asked"]
    raise AssertionError("the program made no such batch")


def test_direct_requests_cause_block_requests(loop: Path, tmp_path: Path) -> None:
    """One block request each, at the program's sector, one at a time and sixteen in one call."""
    seen = run(tmp_path, ["direct"], "--device", loop, events="syscalls,io_uring,block")
    wanted = device_number(loop)
    requests = {row["id"]: (truth, row) for truth, row in seen.requests("direct")}
    found = [row for row in seen.recorded.trace.requests.to_pylist() if row["device"] == wanted]
    sent = sorted(
        (truth["opcode"].lower(), truth["offset"] // 512, 4096)
        for truth, row in requests.values()
        if truth["result"] == 4096
    )
    assert sorted((row["operation"], row["sector"], row["bytes_issued"]) for row in found) == sent
    for block in found:
        if block["ring_request"] is None:
            continue
        truth, row = requests[block["ring_request"]]
        assert (block["operation"], block["sector"]) == (truth["opcode"].lower(), truth["offset"] // 512)
        begun = block["insert_time_ns"] or block["issue_time_ns"]
        assert row["submit_time_ns"] <= begun <= block["complete_time_ns"] <= row["complete_time_ns"]
    # In a large batch, the kernel holds block requests back until all are prepared, so their causes are not seen.
    owners = {block["ring_request"] for block in found}
    alone = [number for number, (truth, row) in requests.items() if truth["user_data"] < first_of_batch(seen)]
    device = [number for number in alone if requests[number][1]["path"] == "device"]
    assert len(device) >= 7
    assert [number for number in device if number not in owners] == []


@pytest.mark.requires("fio")
def test_what_a_device_served_is_not_inline(tmp_path: Path) -> None:
    """A disk whose interrupt comes to the submitter's CPU answers before the submission has ended.

    So each CPU is kept busy. Completions of the disk may vanish here.
    """
    if not os.major(tmp_path.stat().st_dev):
        pytest.skip("the temporary directory is on no disk")
    cpus = sorted(os.sched_getaffinity(0))
    split = [f"--numjobs={len(cpus)}", f"--cpus_allowed={','.join(map(str, cpus))}", "--cpus_allowed_policy=split"]
    job = ["fio", "--name=job", f"--directory={tmp_path}", "--size=1m", "--bs=4k", "--rw=randread", "--direct=1"]
    job += ["--ioengine=io_uring", "--iodepth=1", "--output=fio.out", *split]
    events = ["-e", "io_uring,block", "-o", "trace"]
    lo2io("record", *events, "--", *job, cwd=tmp_path, check=True)
    trace = open_trace(tmp_path / "trace")
    owners = {row["ring_request"] for row in trace.requests.to_pylist()} - {None}
    paths = [row["path"] for row in trace.ring_requests.to_pylist() if row["id"] in owners]
    assert len(paths) >= 256
    assert set(paths) == {"device"}
