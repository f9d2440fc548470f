"""Common programs, recorded: exactly strace's calls, exactly the I/O that fio reports."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
from collections import Counter, defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from workloads.as_strace import compare, strace
from workloads.names import Names
from workloads.real_programs import PROGRAMS
from workloads.record import record

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import AbstractContextManager

pytestmark = [pytest.mark.requires("root", "tracefs", "events"), pytest.mark.usefixtures("busy_cpus")]

METADATA = 16
"""``LO2_RQ_METADATA``."""

CHOSEN = (
    "dd, cat",
    "git",
    "make -j2",
    "Python threads",
    "set-uid",
    "sqlite",
    "static musl",
    "tar | zstd",
)
"""Some of the programs of scripts/real-programs.sh; 32 bit programs and libaio have tests of their own."""


def one_after_another(names: Sequence[str]) -> str:
    """A script that runs each program in a new folder, under strace with a log beside the folder."""
    lines = ["set -e"]
    for name in names:
        program, folder = PROGRAMS[name], shlex.quote(name)
        run = shlex.join([*strace(Path("..", f"{name}.strace")), "sh", "-c", program.run])
        lines.append(f"rm -rf {folder} && mkdir {folder} && cd {folder}")
        lines.append(f"{shlex.join(['sh', '-e', '-c', program.prepare])} && {run}")
        lines.append(f"cd .. && rm -r {folder}")
    return "\n".join(lines)


@pytest.fixture(scope="module")
def programs(
    tmp_path_factory: pytest.TempPathFactory, awake: Callable[[], AbstractContextManager[None]]
) -> tuple[Names, Path]:
    """One recording of all installed ones, and the folder of strace's logs."""
    folder = tmp_path_factory.mktemp("programs")
    names = [name for name in CHOSEN if shutil.which(PROGRAMS[name].needs)]
    with awake():
        return Names(
            record(folder / "T", ["sh", "-c", one_after_another(names)], "-e", "syscalls", cwd=folder), []
        ), folder


@pytest.mark.requires("strace")
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.requires(PROGRAMS[name].needs)) for name in CHOSEN]
)
def test_same_calls_as_strace(name: str, programs: tuple[Names, Path]) -> None:
    """One run, seen by both: every call and result of every thread and child; no file has another name."""
    names, folder = programs
    found = compare(names, folder / f"{name}.strace")
    assert not found.differences, "\n".join(found.differences)
    assert not found.wrong, "\n".join(found.wrong)
    assert found.calls > 20


def fio(folder: Path, *options: str) -> tuple[list[str | Path], Path]:
    """A fio command of 1,009 reads and writes of 4 KiB, and its log of them."""
    log = folder / "iolog"
    return [
        "fio",
        "--name=job",
        f"--filename={folder / 'data'}",
        "--size=4m",
        "--bs=4k",
        "--rw=randrw",
        "--number_ios=1009",
        "--norandommap",
        "--io_size=1g",
        "--randseed=7",
        "--create_serialize=0",
        "--invalidate=0",
        "--output-format=json",
        f"--write_iolog={log}",
        *options,
    ], log


def read_iolog(log: Path) -> list[tuple[str, int, int]]:
    """Fio's own log (versions 2 and 3): action, offset, length of each read and write of the last run, in order."""
    rows: list[tuple[str, int, int]] = []
    for line in log.read_text().splitlines():
        if line.startswith("fio version"):  # fio appends: an earlier attempt's log stands before
            rows.clear()
        fields = line.split()
        if len(fields) >= 4 and fields[-3] in {"read", "write"}:
            rows.append((fields[-3], int(fields[-2]), int(fields[-1])))
    return rows


@pytest.mark.requires("fio")
def test_fio_psync(tmp_path: Path) -> None:
    """Count, order, offsets and bytes of every pread64 and pwrite64 are fio's own."""
    (tmp_path / "data").write_bytes(bytes(4 << 20))
    command, log = fio(tmp_path, "--ioengine=psync", "--thread")
    recorded = record(tmp_path / "T", command)
    job = json.loads(recorded.stdout)["jobs"][0]
    done = read_iolog(log)
    names = {"read": "pread64", "write": "pwrite64"}
    rows = [row for row in recorded.calls("pread64", "pwrite64") if row["bytes_request"] == 4096]
    workers = Counter(row["tid"] for row in rows)
    rows = [row for row in rows if row["tid"] == workers.most_common(1)[0][0]]
    assert [(row["call"], row["offset_bytes"], row["bytes_result"]) for row in rows] == [
        (names[action], offset, length) for action, offset, length in done
    ]
    assert job["read"]["total_ios"] + job["write"]["total_ios"] == len(rows) == 1009
    assert sum(row["bytes_result"] for row in rows) == job["read"]["io_bytes"] + job["write"]["io_bytes"]


_ASKED = re.compile(
    r"aio_lio_opcode=IOCB_CMD_P(\w+), aio_fildes=(\d+), aio_buf=0x\w+, aio_nbytes=(\d+), aio_offset=(\d+)"
)
_EVENT = re.compile(r"obj=0x(\w+), res=(-?\d+)")


@pytest.mark.requires("fio")
def test_fio_libaio(tmp_path: Path) -> None:
    """Asynchronous requests are no reads and writes; each has sent a request to the disk."""
    (tmp_path / "data").write_bytes(b"x" * (4 << 20))
    command, _ = fio(tmp_path, "--ioengine=libaio", "--direct=1", "--iodepth=4", "--rw=randread")
    # Run once before, unrecorded, so that the program's own files are in memory.
    subprocess.run(command, capture_output=True, check=True)
    recorded = record(tmp_path / "T", command, "-e", "default,aio", attempts=3)
    job = json.loads(recorded.stdout)["jobs"][0]
    submitted = recorded.calls("io_submit")
    assert sum(row["result"] for row in submitted if row["error"] == 0) == job["read"]["total_ios"] == 1009
    # The file system's own reads (of its extent tree, say) are marked as metadata.
    reads: list[dict[str, Any]] = [
        row
        for row in recorded.trace.requests.to_pylist()
        if row["task"] == submitted[0]["task"] and row["operation"] == "read" and not row["flags"] & METADATA
    ]
    # Of a request whose completion no CPU delivered, only what it asked for is known.
    moved = [row["bytes_request"] if row["bytes_result"] is None else row["bytes_result"] for row in reads]
    assert sum(moved) == job["read"]["io_bytes"]
    if recorded.trace.metadata["kernel_facts"]:
        requests = recorded.trace.ring_requests.to_pylist()
        assert {row["path"] for row in requests} == {"device"}
        assert {row["id"] for row in requests} == {row["ring_request"] for row in reads}


@pytest.mark.requires("fio", "strace")
def test_libaio_as_strace(tmp_path: Path) -> None:
    """Each request as in strace's and fio's logs, and its completion with the call that returned it."""
    (tmp_path / "data").write_bytes(b"x" * (4 << 20))
    command, log = fio(tmp_path, "--ioengine=libaio", "--direct=1", "--iodepth=8", "--iodepth_batch=4", "--rw=randread")
    said = tmp_path / "strace"
    watched = ["strace", "-f", "-qq", "-o", said, "-e", "trace=io_submit,io_getevents", *command]
    recorded = record(tmp_path / "T", watched, "-e", "syscalls")
    if not recorded.trace.metadata["kernel_facts"]:
        pytest.skip("recorded without programs in the kernel: nothing else shows what stands in the program's memory")
    strace = said.read_text()
    requests = {row["id"]: row for row in recorded.trace.ring_requests.to_pylist()}
    iocbs = recorded.trace.table("iocbs").to_pylist()
    rows = [requests[row["request"]] for row in iocbs]
    assert [(r["opcode"], r["fd"], r["bytes_request"], r["offset_bytes"]) for r in rows] == [
        (opcode, *map(int, numbers)) for opcode, *numbers in _ASKED.findall(strace)
    ]
    assert [(row["opcode"].lower(), row["offset_bytes"], row["bytes_result"]) for row in rows] == read_iolog(log)
    ended: dict[int, set[tuple[int, int]]] = defaultdict(set)
    for iocb, row in zip(iocbs, rows, strict=True):
        ended[row["complete_time_ns"]].add((iocb["iocb"], row["result"]))
    lines = [line for line in strace.splitlines() if "io_getevents(" in line]
    told = [{(int(obj, 16), int(result)) for obj, result in _EVENT.findall(line)} for line in lines]
    assert [ended.get(row["end_time_ns"], set()) for row in recorded.calls("io_getevents")] == told
    assert len(rows) == len(requests) == 1009
