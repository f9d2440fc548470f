"""Known workloads at once on the whole machine: every call and request of each, and whose it was."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from workloads.disks import device_number, loop_device
from workloads.machine import (
    Work,
    Worker,
    cgroups,
    complete,
    do_all,
    done_by,
    expected,
    finish,
    recording,
    threads_of,
    workers,
)
from workloads.record import verified

from lo2io.kernel import sysfs

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from workloads.record import Recorded

pytestmark = [
    pytest.mark.alone,
    pytest.mark.requires("root", "tracefs", "events", "losetup"),
    pytest.mark.usefixtures("busy_cpus"),
]
EVENTS = ("-e", "syscalls,block")


@pytest.fixture
def loops(tmp_path: Path) -> Iterator[list[Path]]:
    """Two block devices of the test's own."""
    with loop_device(tmp_path / "one") as one, loop_device(tmp_path / "two") as two:
        yield [one, two]


def requests_to(recorded: Recorded, device: Path) -> list[dict[str, Any]]:
    """The requests to a device."""
    wanted = device_number(device)
    return [row for row in recorded.trace.requests.to_pylist() if row["device"] == wanted]


def three(folder: Path, loops: list[Path], groups: list[Path]) -> list[Work]:
    """Three workloads, two cgroups, two devices; prime numbers of calls."""
    first, second = groups
    return [
        Work(folder / "a", (100, 23), (50, 101), 13, cgroup=first, name="worker a"),
        Work(folder / "b", (512, 7), device=loops[0], direct=(4096, 31), cgroup=first),
        Work(folder / "c", (9, 11), (9, 3), 5, device=loops[1], direct=(8192, 17), cgroup=second),
    ]


def record_workers(trace: Path, works: list[Work], *options: str) -> tuple[Recorded, list[Worker]]:
    """The workers do their work while the machine is recorded; SIGTERM ends that."""
    found: list[Worker] = []

    def attempt() -> Recorded:
        with workers(*works) as ready:
            found[:] = ready
            with recording(trace, *EVENTS, *options) as process:
                do_all(ready)
                process.terminate()
                return finish(process, trace)

    return complete(attempt), found


@pytest.mark.parametrize("opener", ["native", pytest.param("python-perf", marks=pytest.mark.requires("perf"))])
def test_three_workloads_at_once(tmp_path: Path, loops: list[Path], opener: str) -> None:
    """Calls and bytes per process, requests per device, cgroups and names: exactly what was done."""
    with cgroups("first", "second/inner") as groups:
        works = three(tmp_path, loops, groups)
        recorded, ready = record_workers(tmp_path / "T", works, "--opener", opener)
        assert [done_by(recorded, worker) for worker in ready] == [expected(work) for work in works]
        for worker, device in ((ready[1], loops[0]), (ready[2], loops[1])):
            size, count = worker.work.direct
            rows = requests_to(recorded, device)
            assert [(row["operation"], row["bytes_result"], row["tid"]) for row in rows] == [
                ("read", size, worker.pid)
            ] * count
        for worker, group in zip(ready, (groups[0], groups[0], groups[1]), strict=True):
            rows = threads_of(recorded, worker)
            assert len(rows) == 2, "the thread born before the recording is known"
            assert all(str(group).endswith(row["cgroup"]) for row in rows)
        assert "worker a" in {row["comm"] for row in threads_of(recorded, ready[0])}
    verified(tmp_path / "T")


def test_one_cgroup(tmp_path: Path, loops: list[Path]) -> None:
    """Only its processes, those of cgroups below included, with their calls and their requests."""
    with cgroups("first", "first/inner") as groups:
        works = [
            Work(tmp_path / "a", (100, 23), device=loops[0], direct=(4096, 19), cgroup=groups[0]),
            Work(tmp_path / "b", (512, 7), (9, 29), cgroup=groups[1]),
            # On a device of its own: bios of two processes to adjacent sectors of one device may become one request.
            Work(tmp_path / "c", (9, 11), (9, 3), 5, device=loops[1], direct=(8192, 17)),
        ]
        recorded, ready = record_workers(tmp_path / "T", works, "--cgroup", str(groups[0]))
        assert [done_by(recorded, worker) for worker in ready] == [expected(works[0]), expected(works[1]), {}]
        assert {row["pid"] for row in recorded.trace.operations.to_pylist()} == {ready[0].pid, ready[1].pid}
        assert {row["tid"] for row in recorded.trace.requests.to_pylist()} == {ready[0].pid}
        assert len(requests_to(recorded, loops[0])) == 19
        assert requests_to(recorded, loops[1]) == []
    verified(tmp_path / "T")


def test_chosen_cpus(tmp_path: Path) -> None:
    """Calls on other CPUs are not in the trace: tasks are known wherever they are born, files have no names."""
    online = sysfs.read_online_cpus()
    if len(online) < 2:
        pytest.skip("one CPU only")
    works = [
        Work(tmp_path / "a", (100, 23), (50, 101), cpu=online[0]),
        Work(tmp_path / "b", (100, 7), (50, 31), cpu=online[1]),
    ]
    recorded, ready = record_workers(tmp_path / "T", works, "--cpus", str(online[1]))
    assert [done_by(recorded, worker, named=False) for worker in ready] == [{}, expected(works[1])]
    assert [done_by(recorded, worker) for worker in ready] == [{}, {}]
    assert {row["cpu"] for row in recorded.trace.operations.to_pylist()} == {online[1]}
    verified(tmp_path / "T")


def test_own_io_is_left_out(tmp_path: Path) -> None:
    """The recorder's thousands of writes are no rows, and counted, where it is not the programs that leave them out."""
    perf = (*EVENTS, "--backend", "perf")
    with workers(Work(tmp_path / "a", (4096, 2003))) as ready, recording(tmp_path / "T", *perf) as process:
        do_all(ready)
        process.terminate()
        recorded = finish(process, tmp_path / "T")
    assert process.pid not in {row["pid"] for row in recorded.trace.operations.to_pylist()}
    assert recorded.trace.metadata["totals"]["nr_own_calls"] > 10
