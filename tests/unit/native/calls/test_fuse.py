"""docs/explanation/rules/fuse.md: requests to servers of FUSE file systems, one test each."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest
from build.kernelwriter import KernelSpool
from reference.compare import native_rows

from lo2io.catalog.catalog import load_catalog
from lo2io.convert.engine import Engine
from lo2io.native.records import framed, pack
from lo2io.spool.reader import SpoolReader

if TYPE_CHECKING:
    from pathlib import Path

READ, SERVER = 15, 77
MOST_LIVE = 1 << 14
"""As in calls/fuse.c."""


@pytest.fixture
def spool(tmp_path: Path) -> KernelSpool:
    """Two threads of a process. Nobody records the server."""
    made = KernelSpool(tmp_path / "spool", sampled=("block",))
    made.fact_task(1_000, 10, 10)
    made.fact_task(1_000, 10, 11)
    return made


def sent(spool: KernelSpool, at: int, unique: int, *, tid: int = 10, **members: int) -> None:
    """A request to read, of 80 bytes, unless told otherwise."""
    told = {"connection": 41, "opcode": READ, "bytes": 80, **members}
    spool.events[0].append(framed(pack("fuse_send", at, tid, unique=unique, **told)))


def ended(spool: KernelSpool, at: int, unique: int, **members: int) -> None:
    """Its end, told in the server's thread."""
    told = {"connection": 41, "bytes": 4112, **members}
    spool.events[0].append(framed(pack("fuse_end", at, SERVER, unique=unique, **told)))


def read(spool: KernelSpool) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The calls, and the requests."""
    rows = native_rows(spool.write(layers=("fuse",)), 1 << 10)
    return rows["operations"], rows["fuse_requests"]


def test_a_request_belongs_to_the_call_that_sent_it(spool: KernelSpool) -> None:
    """With sender, times, sizes and error; the call counts it and its time."""
    spool.kernel_enter(50_000, 0, 10, "pread64", fd=3, count=8)
    sent(spool, 51_000, 4)
    ended(spool, 58_000, 4)
    sent(spool, 59_000, 6, opcode=3)
    ended(spool, 59_500, 6, error=-2, bytes=16)
    spool.kernel_exit(60_000, 0, 10, "pread64", 8)
    (call,), (first, second) = read(spool)
    assert (call["fuse_requests"], call["fuse_ns"]) == (2, 7_500)
    assert (first["operation"], first["tid"], first["task"]) == (call["id"], 10, call["task"])
    assert (first["connection"], first["unique"], first["opcode"]) == (41, 4, READ)
    assert (first["begin_time_ns"], first["end_time_ns"], first["error"]) == (51_000, 58_000, 0)
    assert (first["bytes_sent"], first["bytes_replied"]) == (80, 4112)
    assert (second["operation"], second["opcode"], second["error"], second["bytes_replied"]) == (call["id"], 3, 2, 16)


def test_a_request_that_ends_after_its_call(spool: KernelSpool) -> None:
    """The call counts it, but not its time."""
    spool.kernel_enter(50_000, 0, 10, "pread64", fd=3, count=8)
    sent(spool, 51_000, 4)
    spool.kernel_exit(60_000, 0, 10, "pread64", 8)
    ended(spool, 70_000, 4)
    (call,), (row,) = read(spool)
    assert (call["fuse_requests"], call["fuse_ns"]) == (1, 0)
    assert (row["operation"], row["end_time_ns"]) == (call["id"], 70_000)


def test_a_request_outside_of_calls(spool: KernelSpool) -> None:
    """It has no operation: a page fault or the kernel's own work sent it."""
    sent(spool, 51_000, 4)
    ended(spool, 52_000, 4)
    calls, (row,) = read(spool)
    assert (calls, row["operation"], row["end_time_ns"]) == ([], 0, 52_000)


def test_two_threads_and_two_connections(spool: KernelSpool) -> None:
    """A request's number counts within its connection, and a call has its own thread's requests."""
    spool.kernel_enter(50_000, 0, 10, "pread64", fd=3, count=8)
    spool.kernel_enter(50_100, 0, 11, "fsync", fd=3)
    sent(spool, 51_000, 4)
    sent(spool, 51_100, 4, tid=11, connection=42, opcode=20)
    ended(spool, 52_000, 4, connection=42)
    ended(spool, 53_000, 4)
    spool.kernel_exit(60_000, 0, 10, "pread64", 8)
    spool.kernel_exit(60_100, 0, 11, "fsync", 0)
    calls, rows = read(spool)
    names = {call["id"]: call["call"] for call in calls}
    found = {(names[row["operation"]], row["connection"], row["end_time_ns"]) for row in rows}
    assert found == {("pread64", 41, 53_000), ("fsync", 42, 52_000)}


def test_what_is_in_flight_at_the_end(spool: KernelSpool) -> None:
    """Its end and its reply are unknown, also where its call goes on."""
    spool.kernel_enter(50_000, 0, 10, "pread64", fd=3, count=8)
    sent(spool, 51_000, 4)
    (call,), (row,) = read(spool)
    assert (call["fuse_requests"], call["fuse_ns"]) == (1, 0)
    assert (row["operation"], row["end_time_ns"], row["bytes_replied"], row["error"]) == (call["id"], None, None, 0)


def test_an_end_without_a_begin(spool: KernelSpool) -> None:
    """It is somebody's whom nobody records: it gives no row."""
    ended(spool, 52_000, 4)
    assert read(spool) == ([], [])


def test_a_call_whose_exit_was_lost(spool: KernelSpool) -> None:
    """Its request is that call's, not the next one's."""
    spool.kernel_enter(50_000, 0, 10, "pread64", fd=3, count=8)
    sent(spool, 51_000, 4)
    ended(spool, 52_000, 4)
    spool.kernel_call(70_000, 0, 10, "fsync", 0, fd=3)
    (first, second), (row,) = read(spool)
    assert (first["call"], first["fuse_requests"], second["fuse_requests"]) == ("pread64", 1, 0)
    assert row["operation"] == first["id"]


def test_an_exec_by_another_thread_keeps_its_requests(spool: KernelSpool) -> None:
    """The caller gets the leader's tid in the middle of its call. The call counts the requests of both times."""
    spool.kernel_enter(50_000, 0, 11, "execve")
    sent(spool, 51_000, 4, tid=11)
    ended(spool, 52_000, 4)
    spool.task_exit(53_000, 0, 10, 10)
    spool.comm(54_000, 0, 10, 10, b"new", is_exec=True)
    sent(spool, 55_000, 6)
    ended(spool, 56_000, 6)
    spool.kernel_exit(57_000, 0, 10, "execve", 0)
    (call,), rows = read(spool)
    assert (call["fuse_requests"], call["fuse_ns"]) == (2, 2_000)
    assert [(row["operation"], row["task"]) for row in rows] == [(call["id"], call["task"])] * 2


@pytest.mark.parametrize("in_call", [False, True])
def test_an_end_at_a_time_that_means_unknown(spool: KernelSpool, in_call: bool) -> None:
    """A spool made on purpose: the request is taken out of its list once."""
    never = 1 << 63
    if in_call:
        spool.kernel_enter(never, 0, 10, "pread64", fd=3, count=8)
    sent(spool, never, 4)
    ended(spool, never, 4)
    sent(spool, 60_000, 6)
    _, rows = read(spool)
    assert [row["unique"] for row in rows] == [4, 6]


def test_numbers_that_nobody_knows(spool: KernelSpool) -> None:
    """A higher opcode than the table has is the last one."""
    sent(spool, 51_000, 4, opcode=4096)
    ended(spool, 52_000, 4)
    _, (row,) = read(spool)
    assert row["opcode"] == 255


def test_more_requests_than_a_server_can_have(spool: KernelSpool) -> None:
    """The oldest one is given up for each new one. Its end is unknown, and its call does not count it."""
    spool.kernel_enter(40_000, 0, 11, "fsync", fd=3)
    sent(spool, 40_500, 1, tid=11)
    spool.kernel_enter(50_000, 0, 10, "pread64", fd=3, count=8)
    for number in range(2, MOST_LIVE + 4):
        sent(spool, 50_000 + number, number)
    for number in range(1, MOST_LIVE + 4):
        ended(spool, 90_000 + number, number)
    spool.kernel_exit(200_000, 0, 11, "fsync", 0)
    spool.kernel_exit(200_100, 0, 10, "pread64", 8)
    (other, call), rows = read(spool)
    assert (other["fuse_requests"], call["fuse_requests"]) == (0, MOST_LIVE)
    assert [(row["unique"], row["operation"], row["end_time_ns"]) for row in rows[:4]] == [
        (1, 0, None), (2, 0, None), (3, 0, None), (4, call["id"], 90_004),
    ]  # fmt: skip
    assert [row["unique"] for row in rows] == list(range(1, MOST_LIVE + 4))


def cpu_s(spool: KernelSpool) -> float:
    """The CPU time in which the engine reads the records."""
    engine = Engine(SpoolReader(spool.write(layers=("fuse",))), load_catalog(), batch_rows=1 << 10)
    begin = time.process_time()
    for _ in engine.batches():
        pass
    return time.process_time() - begin


def test_requests_under_way_make_no_call_dearer(tmp_path: Path) -> None:
    """A look at all of them for each call and each end takes a hundred times as long."""
    took = []
    for place, waits in enumerate((True, False) * 3):
        spool = KernelSpool(tmp_path / str(place), sampled=("block",))
        spool.fact_task(1_000, 10, 10)
        for number in range(MOST_LIVE):
            sent(spool, 10_000 + 10 * number, number)
            if not waits:
                ended(spool, 10_001 + 10 * number, number)
        for number in range(MOST_LIVE):
            spool.kernel_call(1_000_000 + 10 * number, 0, 10, "fsync", 0, fd=3)
        for number in range(MOST_LIVE if waits else 0):
            ended(spool, 2_000_000 + number, number)
        took.append(cpu_s(spool))
    assert min(took[::2]) < 10 * min(took[1::2])


@pytest.mark.parametrize("kind", ["fuse_send", "fuse_end"])
def test_a_short_record_is_damage(spool: KernelSpool, kind: str) -> None:
    """It is counted, and gives no row."""
    spool.events[0].append(framed(pack(kind, 90_000, 10)[:24]))
    rows = native_rows(spool.write(layers=("fuse",)), 1 << 10)
    assert rows["fuse_requests"] == []
    assert rows["totals"]["nr_undecoded"] == 1
