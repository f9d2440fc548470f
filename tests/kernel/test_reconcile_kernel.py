"""The recording agrees with the kernel's own counts: of disks, and of the command."""

from __future__ import annotations

import json
import platform
import sys
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
from workloads.build import build
from workloads.disks import device_number
from workloads.record import Recorded, only_ends_missing, read_json_lines
from workloads.served import lo2io

from lo2io.trace.reader import Trace, open_trace

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.requires("root", "tracefs", "events")]
needs_loop = pytest.mark.requires("gcc", "losetup")
Row = dict[str, Any]


def record(
    trace: Path, command: list[Any], *options: str, cwd: Path | None = None, attempts: int = 5, mode: str = "record"
) -> Recorded:
    """Record a command. By the kernel's counts, only ends of block requests on other disks may be missing.

    Orphans and requests in flight are allowed, for other processes' requests may be under way at any time. The command
    is recorded again if samples of process 1 vanished, as on some virtual machines.
    """
    arguments = [mode, "--force", "-o", str(trace), *options, "--", *map(str, command)]
    done = lo2io(*arguments, cwd=cwd)
    assert done.returncode == 0, done.stderr
    recorded = Recorded(open_trace(trace), done.returncode, done.stdout, done.stderr)
    proof = recorded.trace.completeness
    if proof.vanished and not only_ends_missing(proof) and attempts > 1:
        return record(trace, command, *options, cwd=cwd, attempts=attempts - 1, mode=mode)
    assert only_ends_missing(proof), done.stderr
    assert proof.lost == proof.vanished, done.stderr
    return recorded


def rows_of(recorded: Recorded, source: str, device: Path | None = None) -> dict[str, Row]:
    """The comparisons with one account, by the numbers' names."""
    wanted = None if device is None else device_number(device)
    rows = recorded.trace.metadata["reconciliation"]
    return {row["name"]: row for row in rows if row["source"] == source and (wanted in {None, row["device"]})}


def numbers(rows: dict[str, Row], side: str) -> dict[str, int]:
    """One side of the comparisons."""
    return {name: row[side] for name, row in rows.items()}


def python(*lines: str) -> list[str]:
    """A command that runs these lines, with as little else as may be."""
    return [sys.executable, "-S", "-E", "-c", "\n".join(("import os, sys", *lines))]


@needs_loop
@pytest.mark.usefixtures("busy_cpus")
def test_disk_against_a_known_workload(loop: Path, tmp_path: Path) -> None:
    """Writes, reads, flushes, a discard and a zeroing: the kernel's, lo2io's and the program's numbers agree."""
    recorded = record(tmp_path / "T", [build("direct"), loop])
    sent = read_json_lines(recorded.stdout)
    nr = Counter(line["operation"] for line in sent)
    size = Counter[str]()
    for line in sent:
        size[line["operation"]] += line["bytes"]
    found = rows_of(recorded, "diskstats", loop)
    known = {
        "reads": nr["read"], "read_bytes": size["read"], "flushes": nr["flush"], "discards": nr["discard"],
        "discard_bytes": size["discard"], "write_bytes": size["write"] + size["write zeroes"],
        # A process that asks only for a flush sends an empty write.
        "writes": nr["write"] + nr["write zeroes"] + nr["flush"],
    }  # fmt: skip
    assert numbers(found, "captured") == known
    assert numbers(found, "counted") == known


@pytest.mark.alone
@needs_loop
@pytest.mark.usefixtures("busy_cpus")
def test_the_whole_machine(loop: Path, tmp_path: Path) -> None:
    """In system mode every disk and the command agree with the kernel, though lo2io's own I/O is in no table."""
    command = ["dd", f"if={loop}", f"of={tmp_path / 'out'}", "bs=8k", "count=37", "iflag=direct"]
    recorded = record(tmp_path / "T", command, "-a", mode="system-wide")
    found = rows_of(recorded, "diskstats", loop)
    assert numbers(found, "captured") == numbers(found, "counted") == {"reads": 37, "read_bytes": 37 * 8192}
    missing, gone, open_at_borders = losses_and_vanished(tmp_path / "T")
    assert missing <= gone <= missing + open_at_borders + gone // 2  # as counted: a write may complete twice
    written = rows_of(recorded, "proc_io")["wchar"]
    assert written["captured"] == written["counted"] >= 37 * 8192
    assert (" · captured 100 % of " in recorded.stderr.splitlines()[-1]) == (missing == 0)


@pytest.mark.alone
@needs_loop
@pytest.mark.usefixtures("busy_cpus")
def test_some_cpus_are_not_compared(loop: Path, tmp_path: Path) -> None:
    """A request may complete on a CPU that was not recorded, so no disk is compared."""
    command = ["dd", f"if={loop}", "of=/dev/null", "count=5", "iflag=direct"]
    recorded = record(tmp_path / "T", command, "-a", "--cpus", "0", mode="system-wide")
    found = rows_of(recorded, "diskstats", loop)
    assert (found["reads"]["captured"], found["reads"]["counted"]) == (None, 5)
    assert found["reads"]["reason"] == "only some CPUs were recorded"


@pytest.mark.alone
@needs_loop
@pytest.mark.usefixtures("busy_cpus")
def test_a_window_has_accounts_of_its_own(loop: Path, tmp_path: Path) -> None:
    """A flight recorder's last window under load: it has all that the kernel counted in it, which is not all."""
    script = (
        f"for i in $(seq 24); do dd if={loop} of=/dev/null bs=16k count=512 iflag=direct 2>/dev/null; sleep 0.2; done"
    )
    recorded = record(tmp_path / "T", ["sh", "-c", script], "-a", "--last", "1s", mode="system-wide")
    found = rows_of(recorded, "diskstats", loop)
    assert numbers(found, "captured") == numbers(found, "counted")
    assert 0 < found["reads"]["counted"] < 24 * 512  # the machine decides how many of them
    assert found["read_bytes"]["counted"] == found["reads"]["counted"] * 16384
    assert recorded.trace.metadata["recording_start_ns"] < recorded.trace.metadata["start_ns"]
    assert not rows_of(recorded, "proc_io")


@needs_loop
@pytest.mark.usefixtures("busy_cpus")
def test_synchronous_writes(loop: Path, tmp_path: Path) -> None:
    """Writes that complete twice, with a flush after them, and fsyncs: each agrees with the kernel."""
    command = python(
        "import mmap",
        f"fd = os.open({str(loop)!r}, os.O_RDWR | os.O_DIRECT)",
        "page = mmap.mmap(-1, 4096)",
        "for i in range(1, 24): os.pwritev(fd, [page], i << 16, os.RWF_DSYNC)",
        "for i in range(7): os.pwrite(fd, page, i + 1 << 12); os.fsync(fd)",
    )
    found = rows_of(record(tmp_path / "T", command), "diskstats", loop)
    assert numbers(found, "captured") == numbers(found, "counted")
    assert (found["write_bytes"]["captured"], found["writes"]["at_borders"]) == (30 * 4096, 0)
    assert found["writes"]["captured"] >= 30 + 7
    assert found["flushes"]["captured"] >= 7


@needs_loop
@pytest.mark.usefixtures("busy_cpus")
def test_requests_of_others_are_in_the_account(loop: Path, tmp_path: Path) -> None:
    """A disk's account has no owners: another process' reads count, though they are not in the trace."""
    nr = 64
    script = (
        f"dd if={loop} of=/dev/null bs=4k count={nr} iflag=direct & wait; exec dd if={loop} of=/dev/null bs=8k "
        f"count=5 iflag=direct"
    )
    recorded = record(tmp_path / "T", ["sh", "-c", script])
    found = rows_of(recorded, "diskstats", loop)
    assert found["read_bytes"]["captured"] >= nr * 4096 + 5 * 8192
    assert numbers(found, "captured") == numbers(found, "counted")


def losses_and_vanished(trace: Path) -> tuple[int, int, int]:
    """Requests that the kernel counted and lo2io lacks, completions that vanished, and doubts at borders."""
    opened = open_trace(trace)
    rows = [
        row
        for row in opened.metadata["reconciliation"]
        if row["source"] == "diskstats" and not row["name"].endswith("bytes")
    ]
    missing = sum(row["counted"] - row["captured"] for row in rows)
    return missing, missing_of(opened, "block:block_rq_complete"), sum(row["at_borders"] for row in rows)


def missing_of(trace: Trace, event: str) -> int:
    """Events of this name that the kernel counted and lo2io lacks."""
    return sum(told.lost + told.vanished for told in trace.completeness.events if told.event == event)


@pytest.mark.alone
@needs_loop
def test_what_is_missing_shows(loop: Path, tmp_path: Path) -> None:
    """With far too small buffers, completions are lost, and the kernel has counted more than was recorded.

    Each read of dd waits for its request, which has therefore ended by the read's end.
    """
    command = ["dd", f"if={loop}", "of=/dev/null", "bs=4k", "count=4096", "iflag=direct"]
    options = ("-q", "--ring", "4KiB", "-e", "block,syscalls")
    done = lo2io("record", *options, "-o", tmp_path / "T", "--", *command, check=True)
    missing, gone, open_at_borders = losses_and_vanished(tmp_path / "T")
    # If the second completion of a write is gone, nothing is missing.
    assert missing <= gone <= missing + open_at_borders + gone // 2
    assert (missing > 0) == (gone > 0)
    line = done.stderr.splitlines()[-1]
    assert (" · captured 100 % of " in line) == (missing == 0)
    trace = open_trace(tmp_path / "T")
    found = [row for row in trace.requests.to_pylist() if row["device"] == device_number(loop)]
    unseen = [row for row in found if row["status"] in {"inferred", "end unknown"}]
    assert {row["status"] for row in found} <= {"completed", "inferred", "end unknown"}
    # The end of a request is not seen if its completion is gone, or if its issue is: a queued request has no end.
    queued = sum(row["issue_time_ns"] is None for row in unseen)
    assert queued <= missing_of(trace, "block:block_rq_issue")
    assert len(unseen) - queued <= gone
    ends = set(trace.operations["end_time_ns"].to_pylist())
    for row in (row for row in unseen if row["end_proof"] == "call"):
        assert row["issue_time_ns"] == row["end_earliest_ns"] < row["end_latest_ns"]
        assert row["end_latest_ns"] in ends
    assert trace.completeness.unseen_ends >= len(unseen)


def test_a_command_that_reads(tmp_path: Path) -> None:
    """Each byte read and written is in the account, for every call; exec's own reads are only in the account."""
    data = tmp_path / "data"
    data.write_bytes(bytes(1 << 20))
    command = python(
        f"fd = os.open({str(data)!r}, os.O_RDONLY); out = os.open({str(tmp_path / 'out')!r}, os.O_RDWR | os.O_CREAT)",
        "for i in range(13): os.read(fd, 5000)",
        "for i in range(17): os.pread(fd, 3000, i)",
        "for i in range(19): os.readv(fd, [bytearray(100), bytearray(11)])",
        "for i in range(3): os.sendfile(out, fd, i, 70_000)",
        "os.copy_file_range(fd, out, 4096, 0, 1 << 20)",
        "os.write(out, bytes(777)); os.writev(out, [b'x' * 5, b'y' * 6]); os.pwrite(out, b'z', 9)",
    )
    recorded = record(tmp_path / "T", command)
    found = rows_of(recorded, "proc_io")
    read = 13 * 5000 + 17 * 3000 + 19 * 111 + 3 * 70_000 + 4096
    written = 3 * 70_000 + 4096 + 777 + 11 + 1
    assert found["wchar"]["captured"] == found["wchar"]["counted"] == written
    assert found["syscw"]["captured"] == found["syscw"]["counted"] == 3 + 1 + 3
    assert found["rchar"]["captured"] >= read
    by_exec = found["rchar"]["counted"] - found["rchar"]["captured"]
    assert 0 < by_exec < 8192
    assert 0 < found["syscr"]["counted"] - found["syscr"]["captured"] < 20
    assert "read_bytes" not in found or found["read_bytes"]["captured"] is None
    assert "% of read bytes, 100 % of written bytes" in recorded.stderr.splitlines()[-1]


def test_children_that_were_waited_for(tmp_path: Path) -> None:
    """Their account is added to the parent's: two generations of writers, and not one byte more or less."""
    script = "dd if=/dev/zero of=a bs=1000 count=11; sh -c 'dd if=/dev/zero of=b bs=3000 count=7; true'; true"
    recorded = record(tmp_path / "T", ["sh", "-c", script], cwd=tmp_path)
    found = rows_of(recorded, "proc_io")
    assert found["wchar"]["captured"] == found["wchar"]["counted"]
    assert found["wchar"]["captured"] >= 11_000 + 21_000


def test_children_that_nobody_waited_for(tmp_path: Path) -> None:
    """A daemon's writes are the command's in the trace, and in no account: more is recorded than counted."""
    command = python(
        "ours, theirs = os.pipe()",
        "child = os.fork()",
        "if child == 0:",
        "    if os.fork() == 0:",
        f"        os.write(os.open({str(tmp_path / 'out')!r}, os.O_WRONLY | os.O_CREAT), bytes(1 << 20))",
        "    os._exit(0)",
        "os.close(theirs); os.waitpid(child, 0); os.read(ours, 1)",
    )
    found = rows_of(record(tmp_path / "T", command), "proc_io")
    assert found["wchar"]["captured"] - found["wchar"]["counted"] == 1 << 20


def test_verify_says_the_same(tmp_path: Path) -> None:
    """The trace has the sentence: ``lo2io verify``, ``lo2io report`` and ``lo2io record`` end with the same."""
    recorded = record(tmp_path / "T", ["cat", "/proc/self/stat"])
    said = recorded.stderr.splitlines()[-1].partition(" · captured ")[2]
    assert said.endswith("% of written bytes")
    for command in ("verify", "report"):
        done = lo2io(command, tmp_path / "T", check=True)
        assert done.stdout.splitlines()[-1].endswith(f"captured {said}")


def test_what_was_not_recorded_is_not_compared(tmp_path: Path) -> None:
    """With some calls alone, there is no line, and the reason names the missing ones."""
    recorded = record(tmp_path / "T", ["cat", "/proc/self/stat"], "-e", "read,write")
    rows = {row["name"]: row for row in recorded.trace.metadata["reconciliation"]}
    assert {row["captured"] for row in rows.values()} == {None}
    assert rows["rchar"]["reason"].endswith(" was not recorded")
    assert recorded.stderr.splitlines()[-1].endswith("in flight 0")


@pytest.mark.alone
@pytest.mark.requires("gcc")
@pytest.mark.skipif(platform.machine() != "x86_64", reason="the program calls the kernel as x86-64 allows it")
def test_a_command_of_which_nothing_was_captured_is_not_complete(tmp_path: Path) -> None:
    """Its writes enter the kernel like those of 32 bit programs, which perf does not see, although all counts agree."""
    command = ["record", "-q", "--backend", "perf", "-o", tmp_path / "T", "--", build("writes32"), tmp_path / "out"]
    done = lo2io(*command, check=True)
    line = done.stderr.splitlines()[-1]
    assert (tmp_path / "out").stat().st_size == 1 << 20
    assert line.startswith("incomplete: captured only 0 % of 1 MiB that your command wrote; likely cause: ")
    assert "32-bit programs" in line
    report, page = (lo2io("report", *options, tmp_path / "T", check=True).stdout for options in (["--json"], []))
    assert json.loads(report)["verdict"] == "short"
    assert page.startswith("captured only 0 % of 1 MiB that your command wrote; likely cause: ")
    verified = lo2io("verify", tmp_path / "T", check=True)
    assert "The recording is incomplete (captured only 0 % of 1 MiB" in verified.stdout
