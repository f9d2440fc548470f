"""The OTF2 trace of a whole machine tells what its tables tell: samples, curves, threads on CPUs, their calls."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
from build.otf2_written import assert_rules, attributes, context_path, read_back
from workloads.disks import device_number
from workloads.machine import Work, complete, do_all, finish, recording, workers
from workloads.record import verified

if TYPE_CHECKING:
    from pathlib import Path

    from build.otf2_written import Written
    from workloads.machine import Worker
    from workloads.record import Recorded

pytestmark = [
    pytest.mark.alone,
    pytest.mark.requires("root", "tracefs", "events", "losetup"),
    pytest.mark.usefixtures("busy_cpus"),
]
COUNT, SIZE = 37, 8192


def record(tmp_path: Path, loop: Path) -> tuple[Recorded, Written, Worker]:
    """A worker reads the device directly and writes a file; both ways of block records, and switches."""
    trace, found = tmp_path / "T", []

    def attempt() -> Recorded:
        work = Work(tmp_path / "a", (100, 23), (50, 11), device=loop, direct=(SIZE, COUNT), name="known")
        with workers(work) as ready:
            found[:] = ready
            with recording(trace, "-e", "syscalls,block", "--sched", "--block-records", "both") as process:
                do_all(ready)
                process.terminate()
                return finish(process, trace)

    recorded = complete(attempt)
    verified(trace)
    written = read_back(trace)
    assert_rules(written)
    return recorded, written, found[0]


def expected_samples(row: dict[str, Any]) -> list[str]:
    """What of a request can be seen on CPUs."""
    seen = ["insert"] if row["insert_time_ns"] is not None else []
    if row["status"] == "merged":
        return [*seen, *(["issue"] if row["issue_time_ns"] is not None else []), "merge"]
    seen += ["issue"] if row["issue_time_ns"] is not None else []
    return [*seen, "complete"] if row["complete_time_ns"] is not None else seen


def test_trace_of_a_machine_agrees_with_its_tables(tmp_path: Path, loop: Path) -> None:
    """Every request by its samples, the known ones exactly; its thread on the CPUs, and waiting for the device."""
    recorded, written, worker = record(tmp_path, loop)
    rows = {row["id"]: row for row in recorded.trace.requests.to_pylist()}
    samples: dict[int, list[Any]] = {}
    for _, event in written.events:
        if type(event).__name__ == "CallingContextSample":
            samples.setdefault(attributes(event)["RequestId"], []).append(event)
    assert {number: [attributes(event)["Event"] for event in events] for number, events in samples.items()} == {
        number: expected_samples(row) for number, row in rows.items() if expected_samples(row)
    }
    for number, events in samples.items():
        said, row = attributes(events[-1]), rows[number]
        if said["Event"] == "complete":
            assert said["DeviceLatency"] == row["complete_time_ns"] - row["issue_time_ns"]
            assert events[-1].time == row["complete_time_ns"]

    device = device_number(loop)
    known = [row for row in rows.values() if row["device"] == device]
    assert [row["bytes_result"] for row in known] == [SIZE] * COUNT
    regions = {context_path(event.calling_context).split("/")[-1] for row in known for event in samples[row["id"]]}
    assert regions == {f"{loop.name} read"}

    main = f"thread known {worker.pid}"
    kinds = Counter(type(event).__name__ for event in written.of(main))
    assert "Enter" not in kinds
    entered = Counter(
        context_path(event.calling_context)
        for event in written.of(main)
        if type(event).__name__ == "CallingContextEnter"
    )
    assert entered["preadv"] + entered["preadv2"] == COUNT, "Python calls the newer one where there is one"
    running = {
        context_path(event.calling_context)
        for location, event in written.events
        if location.name.startswith("CPU ") and type(event).__name__ == "CallingContextEnter"
    }
    assert f"known {worker.pid}" in running
    depths = [
        event.values[0]
        for event in written.find("Metric", f"{loop.name} metrics")
        if event.metric.metric_class.members[0].name == "queue depth"
    ]
    assert len(depths) == 2 * COUNT
    assert depths[-1] == 0
