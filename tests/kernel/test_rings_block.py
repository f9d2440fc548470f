"""Block requests that requests of a ring caused carry their ids, where the submitter's call proves it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from workloads.disks import device_number
from workloads.rings import run

if TYPE_CHECKING:
    from pathlib import Path

    from workloads.rings import Run

pytestmark = [
    pytest.mark.requires("root", "tracefs", "events", "gcc", "losetup", "io_uring:io_uring_complete"),
    pytest.mark.usefixtures("busy_cpus"),
]


def first_of_batch(seen: Run) -> int:
    """The user_data of the first of the sixteen that were submitted in one call."""
    submitted = 0
    for batch in seen.told("batch"):
        if batch["asked"] == 16:
            return int(seen.told("request")[submitted]["user_data"])
        submitted += batch["asked"]
    raise AssertionError("the program made no such batch")


def test_direct_requests_cause_block_requests(loop: Path, tmp_path: Path) -> None:
    """One block request each, at the sector that the program asked for, one at a time and sixteen in one call."""
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
    # In a large batch the kernel holds block requests back until all are prepared: whose they are is not seen.
    owners = {block["ring_request"] for block in found}
    alone = [number for number, (truth, row) in requests.items() if truth["user_data"] < first_of_batch(seen)]
    device = [number for number in alone if requests[number][1]["path"] == "device"]
    assert len(device) >= 7
    assert [number for number in device if number not in owners] == []
