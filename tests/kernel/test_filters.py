"""Filters on the running kernel: of known I/O, exactly the requested part."""

from __future__ import annotations

import statistics
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from workloads.disks import device_number, loop_device
from workloads.record import Recorded, record
from workloads.served import lo2io

from lo2io.convert.convert import convert
from lo2io.trace.reader import Trace, open_trace
from lo2io.verify import Severity, verify

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [
    pytest.mark.requires("root", "tracefs", "events", "losetup", "dd"),
    pytest.mark.usefixtures("busy_cpus"),
]
WORKLOAD = Path(__file__).parents[1] / "workloads/two_disks.py"


@pytest.fixture(name="disks", scope="module")
def two_loop_devices(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """Two block devices of the tests' own, 16 MiB each."""
    folder = tmp_path_factory.mktemp("images")
    with loop_device(folder / "a") as first, loop_device(folder / "b") as second:
        yield str(first), str(second)


def run(disks: tuple[str, str], path: Path, *options: str) -> Recorded:
    """The workload, recorded."""
    (path / "files").mkdir(exist_ok=True)
    command = [sys.executable, "-S", str(WORKLOAD), *disks, str(path / "files")]
    return record(path / "T", command, *options)


def numbers(trace: Trace) -> tuple[int, int]:
    """Calls and requests."""
    return len(trace.operations), len(trace.requests)


# A filter, and the number of the workload's calls and requests that pass. {0} and {1} are the disks' names, {2} the
# folder.
KNOWN = (
    ("device == {0} and operation == read", 23, 23),
    ("device == {0} and operation == write", 7, 7),
    ("device == {0} and operation == flush", 1, 1),
    ("device == {0}", 33, 31),
    ("device == {0} and size >= 64KiB", 23, 23),
    ("device == {0} and size < 64KiB", 7, 7),
    ("device == {1} and comm != dd", 13, 11),
    ("comm == dd and size == 64KiB", 10, 5),
    ("device == {0}, {1} and kind == request", 0, 47),
    ("device == {0}, {1} and operation == read and kind == request and size == 4096", 0, 11),
    ("path ~ '{2}/*'", 20, 0),
    ("path ~ '{2}/*.log' and operation == write", 13, 0),
    ("path ~ '/dev/{0},{1}' and operation == pwrite64", 0, 0),
    ("path ~ '/dev/{0}','/dev/{1}' and operation == pwrite64", 7, 0),
    ("operation == pwrite64 and size == 5000B", 3, 0),
    ("operation == pwrite64", 23, 0),
    ("comm == nobody", 0, 0),
)


def spelled(chosen: str, disks: tuple[str, str], path: Path) -> str:
    """The filter with names filled in."""
    return chosen.format(Path(disks[0]).name, Path(disks[1]).name, path / "files")


def assert_rules(trace: Path) -> None:
    """lo2io verifies it, and otf2-print has no complaint."""
    assert [finding for finding in verify(trace).findings if finding.severity is Severity.ERROR] == []
    done = subprocess.run(
        ["otf2-print", "-Werror", str(trace / "traces.otf2")], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.requires("otf2-print")
def test_filters_of_a_whole_recording(disks: tuple[str, str], tmp_path: Path) -> None:
    """One spool, converted with each filter: the known number of calls and requests, and a correct trace."""
    recorded = run(disks, tmp_path, "--keep-spool")
    calls, requests = numbers(recorded.trace)
    for index, (chosen, nr_calls, nr_requests) in enumerate(KNOWN):
        trace = tmp_path / f"F{index}"
        converted = convert(tmp_path / "T/spool", trace, filters=[spelled(chosen, disks, tmp_path)])
        assert numbers(open_trace(trace)) == (nr_calls, nr_requests), chosen
        left_out = calls - nr_calls, requests - nr_requests
        assert converted.filtered == f"filtered: {left_out[0]:,} calls and {left_out[1]:,} requests left out"
        assert converted.completeness == recorded.trace.completeness
        assert_rules(trace)


@pytest.mark.requires("otf2-print")
@pytest.mark.parametrize("index", [0, 1, 2, 3, 5, 7, 8, 10, 14], ids=lambda index: KNOWN[index][0])
def test_filters_while_recording(disks: tuple[str, str], tmp_path: Path, index: int) -> None:
    """The same numbers if the kernel filters; and nothing is in flight or orphaned because of that."""
    chosen, nr_calls, nr_requests = KNOWN[index]
    recorded = run(disks, tmp_path, "--filter", spelled(chosen, disks, tmp_path))
    assert numbers(recorded.trace) == (nr_calls, nr_requests)
    assert "filtered: " in recorded.stderr.splitlines()[-1]
    assert_rules(tmp_path / "T")


def test_latency_size_pid_and_tid_as_the_tables_tell_them(disks: tuple[str, str], tmp_path: Path) -> None:
    """Values that no test can know before: the tables of all rows show which pass."""
    recorded = run(disks, tmp_path, "--keep-spool")
    threads = {row["task"]: row for row in recorded.trace.threads.to_pylist()}
    requests = [row | {"pid": threads[row["task"]]["pid"]} for row in recorded.trace.requests.to_pylist()]
    calls = recorded.trace.operations.to_pylist()
    for row in requests:
        row["latency"] = row["complete_time_ns"] - (row["insert_time_ns"] or row["issue_time_ns"])
    for row in calls:
        row["latency"] = row["end_time_ns"] - row["begin_time_ns"]
    middle = int(statistics.median(row["latency"] for row in requests))
    slow = int(statistics.quantiles([row["latency"] for row in calls], n=50)[-1])
    pid, _ = Counter(row["pid"] for row in requests).most_common()[-1]
    for chosen, passes in (
        (f"latency > {middle}ns", lambda row: row["latency"] > middle),
        (f"latency <= {slow}ns", lambda row: row["latency"] <= slow),
        (f"pid == {pid}", lambda row: row["pid"] == pid),
        (f"tid != {pid} and latency >= {middle}ns", lambda row: row["tid"] != pid and row["latency"] >= middle),
    ):
        trace = tmp_path / "F"
        convert(tmp_path / "T/spool", trace, filters=[chosen], force=True)
        found = open_trace(trace)
        for rows, table in ((calls, found.operations), (requests, found.requests)):
            assert sorted(table["id"].to_pylist()) == sorted(row["id"] for row in rows if passes(row)), chosen


def test_what_the_kernel_leaves_out_costs_nothing(disks: tuple[str, str], tmp_path: Path) -> None:
    """Of another disk's requests and of all calls there is no sample, for the kernel did not even count them."""
    name = Path(disks[0]).name
    recorded = run(disks, tmp_path, "--filter", f"device == {name}", "--filter", "kind == request")
    dev = f"dev == {device_number(Path(disks[0]))}"
    counted: Counter[str] = Counter()
    for event in recorded.trace.completeness.events:
        counted[event.event] += event.count or 0
    assert not any(event.startswith("syscalls:") for event in counted)
    assert counted["block:block_rq_issue"] == 31
    assert counted["block:block_rq_complete"] == 32  # the bio that asked for the flush ends, too
    filters = dict(recorded.trace.metadata["filters"])
    assert filters["block:block_rq_complete"] == dev
    assert filters["block:block_bio_queue"] == f'(rwbs ~ "F*") && ({dev})'
    assert recorded.trace.metadata["filter"] == f"device == {name} and kind == request"
    assert recorded.trace.metadata["filtered"] == {"calls": 0, "requests": 0, "ring_requests": 0}


def test_the_whole_machine(disks: tuple[str, str], tmp_path: Path) -> None:
    """One disk's I/O, out of everything on the machine."""
    (tmp_path / "files").mkdir()
    command = [sys.executable, "-S", str(WORKLOAD), *disks, str(tmp_path / "files")]
    chosen = spelled(KNOWN[3][0], disks, tmp_path)
    arguments = ["system-wide", "-a", "-o", tmp_path / "T", "--filter", chosen, "--", *command]
    done = lo2io(*arguments)
    assert done.returncode == 0, done.stderr
    trace = open_trace(tmp_path / "T")
    assert numbers(trace) == (KNOWN[3][1], KNOWN[3][2])
    assert "filtered: " in done.stderr.splitlines()[-1]


@pytest.mark.parametrize(
    ("chosen", "said"),
    [
        ("size >= 64Ki", "size >= 64Ki\n          ^"),
        ("devic == vda", "did you mean device?"),
        ("device == no_such_disk", "no block device is called no_such_disk"),
        ("path == /x and kind == request", "none of the chosen events can pass"),
    ],
)
def test_filters_that_are_none(tmp_path: Path, chosen: str, said: str) -> None:
    """They are refused before the command runs, and nothing is left behind."""
    command = ["record", "-o", tmp_path / "T", "--filter", chosen, "--", "touch", tmp_path / "ran"]
    done = lo2io(*command)
    assert done.returncode == 2
    assert said in done.stderr
    assert list(tmp_path.iterdir()) == []
