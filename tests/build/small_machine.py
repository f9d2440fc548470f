"""The spool of a small machine, written by hand: two processes on two CPUs, a disk, and losses.

>>> spool = spool_of_a_small_machine(folder / "spool", "system")
>>> sorted(path.name for path in spool.iterdir())
['cpu-0000.ring', 'cpu-0001.ring', 'facts.ring', 'spool.json']
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from build.perfwriter import SpoolBuilder
from lo2io.model import BlockDevice

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

VDA = 254 << 20
CALLS = ("read", "pwrite64", "openat", "close", "fsync", "copy_file_range", "newfstat")
MS = 1_000_000
DEVICES = (BlockDevice(VDA, "vda", "mq-deadline", rotational=False, size_bytes=1 << 30, model="virtio"),)
CONTAINER = b"/system.slice/docker-" + b"5" * 64 + b".scope"


def spool_of_a_small_machine(
    path: Path, mode: str, *, sched: bool = False, ranks: Mapping[int, int] | None = None, **changes: object
) -> Path:
    """Two processes on two CPUs that read, write, copy and flush; a request is merged, one fails; some were lost.

    ``changes`` replace values of ``spool.json``; ``ranks`` are those of processes in a job.
    """
    spool = SpoolBuilder(path, calls=CALLS, mode=mode, roots=(100,), stop_ns=400 * MS)
    if not sched:
        for events in (spool.layouts, spool.samples):
            events.pop("sched:sched_switch", None)
    select = int(mode == "process")
    spool.fact_task(10, 100, 100, comm=b"writer", flags=select, cgroup=(0, CONTAINER))
    spool.fact_task(11, 100, 101, comm=b"helper", flags=select, cgroup=(0, CONTAINER))
    spool.fact_task(12, 200, 200, comm=b"reader", flags=select, cgroup=(0, b"/user.slice"))
    for pid, rank in (ranks or {}).items():
        spool.fact_rank(12, pid, rank)
    spool.fact_fd(13, 100, 3, b"/data/out", open_flags=0o2002, inode=12)
    spool.fact_fd(14, 200, 4, b"/data/in", open_flags=0, inode=13, position=0)

    if sched:
        add_switches(spool)
    at = 10 * MS
    spool.enter(at, 0, 100, "pwrite64", fd=3, count=8192, pos=4096)
    request(spool, at + 1_000, (0, 0, 1), 64, b"WS")
    request(spool, at + 2_000, (0, 0, 1), 800, b"WS", merged=True)
    spool.exit(at + 60_000, 0, 100, "pwrite64", 8192)
    spool.enter(at + 70_000, 0, 100, "fsync", fd=3)
    for step, event in enumerate(("rq_insert", "rq_issue", "rq_complete")):
        spool.block(at + 71_000 + 5_000 * step, 0, 100, event, dev=VDA, sector=0, nr_sector=0, rwbs=b"FF")
    spool.exit(at + 90_000, 0, 100, "fsync", 0)

    at = 15 * MS
    spool.enter(at, 1, 200, "read", fd=4, count=4096)
    request(spool, at + 1_000, (None, 1, 1), 2048, b"R")
    spool.exit(at + 40_000, 1, 200, "read", 4096)
    spool.call(at + 50_000, 1, 200, "newfstat", fd=4)
    spool.lost(at + 60_000, 1, 7).count_lost("block:block_rq_insert", [0, 7])
    spool.enter(at + 70_000, 1, 101, "copy_file_range", fd_in=3, fd_out=3, len=100)
    spool.exit(at + 80_000, 1, 101, "copy_file_range", 100)

    at = 250 * MS
    spool.enter(at, 0, 200, "openat", filename=1, flags=0o100)
    spool.exit(at + 1_000, 0, 200, "openat", 5)
    spool.enter(at + 2_000, 0, 200, "read", fd=5, count=512)
    request(spool, at + 3_000, (0, 0, 0), 9000, b"RA", error=-5)
    spool.exit(at + 50_000, 0, 200, "read", -5)
    spool.call(at + 60_000, 0, 200, "close", fd=5)
    spool.enter(at + 70_000, 0, 200, "read", fd=4, count=1)
    return spool.write(devices=DEVICES, **changes)


SLEEPING, BLOCKED = 1, 2
"""Bits of ``prev_state``; 0: preempted."""


def add_switches(spool: SpoolBuilder) -> None:
    """The threads of the small machine on its CPUs; the reader waits for its request, the writer has to give way."""
    at = 10 * MS
    for time, cpu, prev, following, state in (
        (at - 1_000, 0, 0, 100, 0),
        (at + 10_000, 0, 100, 101, 0),
        (at + 20_000, 0, 101, 100, SLEEPING),
        (at + 75_000, 0, 100, 0, BLOCKED),
        (at + 80_000, 0, 0, 100, 0),
        (at + 95_000, 0, 100, 0, SLEEPING),
        (15 * MS - 1_000, 1, 0, 200, 0),
        (15 * MS + 10_000, 1, 200, 0, BLOCKED),
        (15 * MS + 30_000, 1, 0, 200, 0),
        (15 * MS + 65_000, 1, 200, 101, SLEEPING),
        (250 * MS - 1_000, 0, 0, 200, 0),
    ):
        spool.switch(time, cpu, prev, following, state)


def request(
    spool: SpoolBuilder,
    at: int,
    cpus: tuple[int | None, int, int],
    sector: int,
    rwbs: bytes,
    *,
    merged: bool = False,
    error: int = 0,
) -> None:
    """Insert unless its CPU is None, then merge, or issue and complete 5 and 25 µs later."""
    fields = {"dev": VDA, "sector": sector, "nr_sector": 8, "rwbs": rwbs}
    tid = 100 if b"W" in rwbs else 200
    insert, issue, complete = cpus
    if insert is not None:
        spool.block(at, insert, tid, "rq_insert", **fields)
    if merged:
        spool.block(at + 100, issue, tid, "rq_merge", **fields)
        return
    spool.block(at + 5_000, issue, tid, "rq_issue", **fields)
    spool.block(at + 25_000, complete, 0, "rq_complete", error=error, **fields)
