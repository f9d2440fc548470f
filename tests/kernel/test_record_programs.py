"""Programs people use, recorded: exactly the calls that strace saw, exactly the I/O that fio says it did."""

from __future__ import annotations

import errno
import json
import re
import subprocess
from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Any

import pytest
from workloads.build import STATIC, build
from workloads.record import Recorded, record

from lo2io.catalog.catalog import load_catalog
from lo2io.model import CallKind

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.requires("root", "tracefs", "events"), pytest.mark.usefixtures("busy_cpus")]

CORE = [
    call.abi_name for call in load_catalog().calls if call.core and call.kind not in {CallKind.CLONE, CallKind.UNSHARE}
]
_LINE = re.compile(
    r"(?P<tid>\d+) +(?:<\.\.\. (?P<resumed>\w+) resumed>|(?P<call>\w+)\().*\)"
    r" += (?P<result>-?[0-9a-fx]+)(?: (?P<error>E[A-Z]+))?"
)

METADATA = 16
"""``LO2_RQ_METADATA``."""

PROGRAMS = {
    "dd": "dd if=/dev/zero of=out bs=4k count=23 conv=fsync status=none",
    "cat": "cat in in absent > out; true",
    "git": "git init -q . && git add in && git -c user.name=a -c user.email=a@b commit -q -m x && git status > out",
    "tar": "mkdir d && cp in d/1 && cp in d/2 && tar -cf d.tar d && tar -xf d.tar",
    "python": (
        '/usr/bin/python3 -S -c \'import threading as t; run = lambda i: open(f"o{i}", "w").write("x" * 9); '
        "l = [t.Thread(target=run, args=(i,)) for i in range(7)]; [x.start() for x in l]; [x.join() for x in l]'"
    ),
}


def strace_calls(text: str) -> dict[int, list[tuple[str, int]]]:
    """What strace wrote: per thread, call and result (-errno for failures)."""
    found: dict[int, list[tuple[str, int]]] = defaultdict(list)
    for line in text.splitlines():
        match = _LINE.match(line)
        if match:
            result = -getattr(errno, match["error"]) if match["error"] else int(match["result"], 0)
            found[int(match["tid"])].append((match["call"] or match["resumed"], result))
        else:
            assert re.search(r"<unfinished \.\.\.>|\+\+\+|---", line), f"strace wrote {line}"
    return found


def assert_as_strace(recorded: Recorded, text: str) -> None:
    """Thread by thread the same calls, in the same order, with the same results."""
    found: dict[int, list[tuple[str, int]]] = defaultdict(list)
    for row in recorded.operations():
        if row["call"] in CORE:
            found[row["tid"]].append((row["call"], row["result"]))
    expected = strace_calls(text)
    assert sum(map(len, expected.values())) > 20
    first = next(iter(expected))
    for tid, calls in expected.items():
        # Before its exec the first thread was strace's own child, which strace does not show.
        assert (found[tid][-len(calls) :] if tid == first else found[tid]) == calls


@pytest.mark.requires("strace", "git", "tar")
@pytest.mark.parametrize("name", PROGRAMS)
def test_same_calls_as_strace(name: str, tmp_path: Path) -> None:
    """One run, seen by both: every call, every result, of every thread and child."""
    (tmp_path / "in").write_bytes(b"x" * 10_000)
    log = tmp_path / "strace"
    command = ["strace", "-f", "-qq", "-o", log, "-e", f"trace={','.join(CORE)}", "sh", "-c", PROGRAMS[name]]
    recorded = record(tmp_path / "T", command, "-e", "syscalls", cwd=tmp_path)
    assert_as_strace(recorded, log.read_text())


@pytest.mark.requires("strace", "musl-gcc")
def test_static_program_as_strace(tmp_path: Path) -> None:
    """A static program that starts processes in every way there is."""
    (tmp_path / "in").write_bytes(bytes(64))
    (tmp_path / "work").mkdir()
    log = tmp_path / "strace"
    program = [build("calls", STATIC), tmp_path / "work", tmp_path / "log"]
    command = ["strace", "-f", "-qq", "-o", log, "-e", f"trace={','.join(CORE)}", *program]
    recorded = record(tmp_path / "T", command, "-e", "syscalls", stdin=tmp_path / "in")
    assert_as_strace(recorded, log.read_text())


def fio(folder: Path, *options: str) -> tuple[list[str | Path], Path]:
    """A fio command of 1,009 reads and writes of 4 KiB, and where it logs each of them."""
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
    # Once before, unrecorded: then what the program itself is read from lies in memory.
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
    assert sum(row["bytes_result"] for row in reads) == job["read"]["io_bytes"]
    if recorded.trace.metadata["kernel_facts"]:
        requests = recorded.trace.ring_requests.to_pylist()
        assert {row["path"] for row in requests} == {"device"}
        assert {row["id"] for row in requests} == {row["ring_request"] for row in reads}


@pytest.mark.requires("fio", "strace")
def test_libaio_as_strace(tmp_path: Path) -> None:
    """Each request as strace and fio's own log have it, and its completion with the call that returned it."""
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
