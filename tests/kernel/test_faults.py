"""Page faults that needed I/O, against getrusage, mincore and fio's own count."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from workloads.record import Recorded, record, verified

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [
    pytest.mark.requires("root", "tracefs", "events", "filemap:mm_filemap_fault"),
    pytest.mark.usefixtures("busy_cpus"),
]

PAGE = os.sysconf("SC_PAGE_SIZE")
PROGRAM = Path(__file__).parent.parent / "workloads" / "faults.py"


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder on a disk, with a file of 16 MiB that is written back."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as name:
        path = Path(name)
        (path / "mapped").write_bytes(os.urandom(16 << 20))
        subprocess.run(["sync", path / "mapped"], check=True)
        yield path


def faults_of(run: Recorded, path: Path) -> list[dict[str, Any]]:
    """The faults of a file, in the order of their ends."""
    files = dict(zip(*(run.trace.files[column].to_pylist() for column in ("file", "path")), strict=True))
    return [row for row in run.trace.table("faults").to_pylist() if files.get(row["file"]) == str(path)]


@pytest.mark.parametrize("keeps", ["open", "closed"])
def test_each_major_fault_of_getrusage_is_a_row(folder: Path, keeps: str) -> None:
    """The pages are those that mincore found cold; each is an operation, but for those that a write touched."""
    command = [sys.executable, "-S", PROGRAM, folder / "mapped", keeps, folder / "out"]
    run = record(folder / "T", command, "--layers", "faults")
    touches = json.loads(run.stdout.splitlines()[0])
    assert all(majors == cold for _, cold, majors, *_ in touches)
    found = faults_of(run, folder / "mapped")
    wanted = [(page * PAGE, bool(inside)) for page, _, majors, inside, _ in touches if majors]
    assert len(wanted) > len(touches) // 2
    assert [(row["offset_bytes"], row["inside"]) for row in found] == wanted
    reads = {call["id"]: call for call in run.calls("page_fault")}
    for row in found:
        assert (row["operation"] is None) == row["inside"]
        if not row["inside"]:
            read = reads[row["operation"]]
            assert (read["path"], read["offset_bytes"]) == (str(folder / "mapped"), row["offset_bytes"])
            assert (read["begin_time_ns"], read["end_time_ns"]) == (row["begin_time_ns"], row["end_time_ns"])
    verified(folder / "T")


@pytest.mark.parametrize("keeps", ["open", "ahead"])
def test_what_faults_filled_and_waited_for(folder: Path, keeps: str) -> None:
    """Each filled the pages that cachestat saw, by a request of its thread. Its stretches are parts of its time."""
    command = [sys.executable, "-S", PROGRAM, folder / "mapped", keeps, folder / "out"]
    run = record(folder / "T", command, "--layers", "faults,waits,cache,parts", attempts=3)
    verified(folder / "T")
    touches = json.loads(run.stdout.splitlines()[0])
    found = [row for row in faults_of(run, folder / "mapped") if not row["inside"]]
    filled = {page * PAGE: pages for page, _, majors, inside, pages in touches if majors and not inside}
    assert {row["offset_bytes"]: row["filled_pages"] for row in found} == filled
    assert (max(filled.values()) > 1) == (keeps == "ahead")
    reads = {call["id"]: call for call in run.calls("page_fault")}
    stretches = run.trace.table("off_cpu").to_pylist()
    parts = run.trace.table("request_parts").to_pylist()
    known = [
        row for row in found if row["blocked_ns"] is not None and reads[row["operation"]]["blocked_ns"] is not None
    ]
    assert len(known) >= 0.95 * len(found)
    for row in known:
        mine = [each for each in stretches if each["operation"] == row["operation"]]
        sums = sum(each["wake_time_ns"] - each["begin_time_ns"] for each in mine)
        assert row["blocked_ns"] == reads[row["operation"]]["blocked_ns"] == sums
        assert row["run_queue_ns"] == sum(each["end_time_ns"] - each["wake_time_ns"] for each in mine)
        assert row["run_queue_ns"] + row["blocked_ns"] <= row["end_time_ns"] - row["begin_time_ns"]
    for row in found:
        (part,) = (each for each in parts if each["request"] == row["request"] and each["inode"] == row["inode"])
        assert part["offset_bytes"] <= row["offset_bytes"] < part["offset_bytes"] + part["bytes"]
    for row in known:
        verdict = reads[row["operation"]]
        assert (verdict["cache"], verdict["cache_missed_pages"]) == ("miss", 1)
        assert verdict["cache_ahead_pages"] == row["filled_pages"] - 1
    assert any(row["blocked_ns"] for row in known)


def test_a_process_has_as_many_as_the_kernel_counted(folder: Path) -> None:
    """Of all faults of all files, libraries included, the kernel's own count of the thread misses none.

    Threads have as many minor faults as wait4 tells.
    """
    command = [sys.executable, "-S", PROGRAM, folder / "mapped", "open", folder / "out"]
    run = record(folder / "T", command, "--layers", "faults")
    threads = run.trace.table("threads").to_pylist()
    assert len(run.trace.table("faults")) == sum(row["major_faults"] for row in threads)
    assert sum(row["minor_faults"] for row in threads) == run.trace.metadata["usage"]["minor_faults"]


@pytest.mark.requires("fio")
def test_fio_reads_through_a_mapping(folder: Path) -> None:
    """Fio reads each page of the file once, in a random order; its faults are the reads of the file."""
    command = [
        "fio", "--name=job", "--ioengine=mmap", "--rw=randread", "--bs=4k", "--size=4m", "--thread",
        f"--filename={folder / 'mapped'}", "--invalidate=1", "--output-format=json",
    ]  # fmt: skip
    run = record(folder / "T", command, "--layers", "faults")
    (job,) = json.loads(run.stdout[run.stdout.index("{") : run.stdout.rindex("}") + 1])["jobs"]
    found = faults_of(run, folder / "mapped")
    assert job["read"]["total_ios"] == (4 << 20) // PAGE
    assert len(found) == len({row["offset_bytes"] for row in found}) == job["majf"]
    verified(folder / "T")
