"""Both back ends, and names from the kernel or from /proc: the tables of one run are the same.

Each workload of the suite runs once, while four recorders watch it: calls paired in the kernel, seen at the raw pair
(`--hook raw`) or at single tracepoints (`--hook single`), calls from perf samples with facts from the kernel
(`--backend perf`), and perf alone (`--names proc`). ``sametables.py`` defines "the same": the first three know the
same; the last may know less, but never anything else.
"""

from __future__ import annotations

import shlex
import signal
from collections import Counter
from typing import TYPE_CHECKING

import pytest
from build.sametables import differences, family, request_differences
from reference.records import Decoder
from reference.specs import Specs
from workloads.build import STATIC, build
from workloads.disks import device_number, loop_device
from workloads.rings import GROUPS, WITHOUT_RINGS, read_truth
from workloads.sidebyside import ended, gate, go_on, read_all, record_sides, recorders

from lo2io.bpf.samples import PLACES
from lo2io.catalog.catalog import load_catalog
from lo2io.model import Role

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager
    from pathlib import Path

    from workloads.record import Recorded

    Sides = dict[str, Recorded]

pytestmark = [
    pytest.mark.requires("root", "tracefs", "events", "gcc", "musl-gcc", "losetup", "fio", "git", "tar"),
]

SIDES = {
    "bpf": ("--backend", "bpf", "--hook", "raw"),
    "single": ("--backend", "bpf", "--hook", "single"),
    "perf": ("--backend", "perf", "--names", "kernel"),
    "proc": ("--backend", "perf", "--names", "proc"),
}
PAIRS = [("single", "bpf"), ("perf", "bpf"), ("proc", "perf"), ("proc", "bpf")]
"""Left and right: the right one knows as much, or more."""

PROGRAMS = r"""
set -e
cat > in
dd if=/dev/zero of=out bs=4k count=23 conv=fsync status=none
cat in in > twice
cat absent > nothing 2> said || true
git init -q . && git add in && git -c user.name=a -c user.email=a@b commit -q -m x && git status > status
mkdir d && cp in d/1 && ln d/1 d/2 && mv d/1 d/3 && tar -cf d.tar d && tar -xf d.tar
/usr/bin/python3 -S -c 'import threading as t; run = lambda i: open(f"o{i}", "w").write("x" * 9); l = [t.Thread(target=run, args=(i,)) for i in range(7)]; [x.start() for x in l]; [x.join() for x in l]'
for i in 1 2 3 4 5 6 7; do cat < in | tr x y > piped; done
fio --name=job --filename=data --size=4m --bs=4k --rw=randrw --number_ios=1009 --norandommap --io_size=1g --randseed=7 \
    --invalidate=0 --ioengine=psync --thread --output=psync
fio --name=job --filename=data --size=4m --bs=4k --rw=randread --number_ios=101 --norandommap --io_size=1g \
    --invalidate=0 --ioengine=libaio --direct=1 --iodepth=4 --output=libaio
"""  # noqa: E501


def commands(folder: Path, device: Path) -> dict[str, list[str | Path]]:
    """The workloads of the suite; standard input of each is a file of 64 bytes."""
    rings = "set -e\n" + "\n".join(
        shlex.join(map(str, [build("rings"), "--dir", folder, "--truth", folder / group, "--device", device, *names]))
        for group, names in {**GROUPS, **WITHOUT_RINGS}.items()
    )
    return {
        "calls": [build("calls"), folder / "work", folder / "log"],
        "static": [build("calls", STATIC), folder / "work", folder / "log"],
        "programs": ["sh", "-c", PROGRAMS],
        "direct": [build("direct"), device],
        "rings": ["sh", "-c", rings],
    }


EVENTS = {"direct": "syscalls,block", "rings": "syscalls,io_uring"}


@pytest.fixture(scope="module")
def sides(
    tmp_path_factory: pytest.TempPathFactory, awake: Callable[[], AbstractContextManager[None]]
) -> Callable[[str], Sides]:
    """A workload in process mode, recorded once by all sides."""
    runs: dict[str, Sides | None] = {}

    def recorded(workload: str) -> Sides:
        if workload not in runs:
            runs[workload] = None
            folder = tmp_path_factory.mktemp(f"sides-{workload}")
            (folder / "work").mkdir()
            (folder / "in").write_bytes(b"x" * 64)
            with awake(), loop_device(folder / "image") as device:
                runs[workload] = record_sides(
                    folder,
                    commands(folder, device)[workload],
                    SIDES,
                    EVENTS.get(workload, "syscalls"),
                    stdin=folder / "in",
                    cwd=folder / "work",
                )
        found = runs[workload]
        assert found is not None, f"recording {workload} has failed before"
        return found

    return recorded


WORKLOADS = ["calls", "static", "programs", "direct", "rings"]
# Only programs tell which descriptor a ring's CLOSE ends. Without them, the process' whole table is unknown, and
# handles end that are one with programs.
COMPARED = [(*pair, workload) for workload in WORKLOADS for pair in PAIRS if workload != "rings" or "proc" not in pair]


@pytest.mark.parametrize(("left", "right", "workload"), COMPARED)
def test_same_operations(workload: str, left: str, right: str, sides: Callable[[str], Sides]) -> None:
    """Every call of every thread, in its order: arguments, results, errors, offsets, descriptors and their lives."""
    recorded = sides(workload)
    found = differences(recorded[left], recorded[right], more=left == "proc")
    assert not found, "\n".join(found[:40])


def test_the_metadata_tell_where_calls_were_seen(sides: Callable[[str], Sides]) -> None:
    """``raw`` or ``single``; nothing if perf has recorded them."""
    found = {side: recorded.trace.metadata["hook"] for side, recorded in sides("calls").items()}
    assert found == {"bpf": "raw", "single": "single", "perf": "", "proc": ""}


@pytest.mark.parametrize("other", ["single", "perf"])
def test_same_requests(other: str, sides: Callable[[str], Sides]) -> None:
    """Every request of every ring, in the order of submission: its arguments, its path, its result."""
    recorded = sides("rings")
    found = request_differences(recorded[other], recorded["bpf"], more=False)
    assert not found, "\n".join(found[:40])


def test_same_operations_after_a_filter(tmp_path: Path, awake: Callable[[], AbstractContextManager[None]]) -> None:
    """Programs leave out in the kernel what converting leaves out: the same rows remain, and counts are proven."""
    (tmp_path / "in").write_bytes(b"x" * 64)
    (tmp_path / "work").mkdir()
    filtered = {side: (*options, "--filter", "size >= 4KiB") for side, options in SIDES.items()}
    with awake():
        recorded = record_sides(
            tmp_path, ["sh", "-c", PROGRAMS], filtered, "syscalls", stdin=tmp_path / "in", cwd=tmp_path / "work"
        )
    for left, right in PAIRS:
        found = differences(recorded[left], recorded[right], more=left == "proc")
        assert not found, "\n".join(found[:40])
    sizes = recorded["bpf"].trace.operations["bytes_request"].to_pylist()
    assert len(sizes) >= 1009
    assert min(sizes) >= 4096


@pytest.fixture(scope="module")
def machine(
    tmp_path_factory: pytest.TempPathFactory, awake: Callable[[], AbstractContextManager[None]]
) -> tuple[Sides, int]:
    """The programs, while all sides record the whole machine; and their first process."""
    for _ in range(4):  # samples may vanish, as in record_sides
        folder = tmp_path_factory.mktemp("machine")
        (folder / "in").write_bytes(b"x" * 64)
        (folder / "work").mkdir()
        with (
            awake(),
            gate(["sh", "-c", PROGRAMS], stdin=folder / "in", cwd=folder / "work") as pid,
            recorders(folder, SIDES, "system-wide", "-a", "-e", "syscalls") as running,
        ):
            go_on(pid)
            ended(pid)
            for each in running.values():
                each.send_signal(signal.SIGTERM)
            recorded = read_all(folder, running)
        assert not any(each.trace.metadata["totals"]["nr_undecoded"] for each in recorded.values())
        if all(each.trace.completeness.proven for each in recorded.values()):
            break
    for each in recorded.values():
        proof = each.trace.completeness
        assert proof.proven, each.stderr
        assert (proof.lost, proof.late) == (0, 0), each.stderr
    return recorded, pid


@pytest.mark.parametrize(("left", "right"), PAIRS)
def test_same_operations_in_system_mode(left: str, right: str, machine: tuple[Sides, int]) -> None:
    """In a recording of the whole machine: the programs' calls, while other processes and recorders make theirs."""
    recorded, pid = machine
    pids = family(recorded[right], pid)
    assert family(recorded[left], pid) == pids
    assert len(pids) > 20
    found = differences(recorded[left], recorded[right], more=left == "proc", pids=pids)
    assert not found, "\n".join(found[:40])


# ---- events of tracepoints ----

DISKS = r"""
set -e
for i in 1 2 3; do dd if=/dev/urandom of="$1" bs=64k count=23 oflag=direct conv=notrunc,fsync status=none; done
dd if="$1" of=/dev/null bs=4k count=97 iflag=direct status=none
blkdiscard --zeroout --length 1MiB "$1"
blkdiscard --offset 1MiB --length 1MiB "$1"
fio --name=job --filename="$1" --size=4m --bs=4k --rw=randrw --number_ios=503 --norandommap --io_size=1g --randseed=7 \
    --ioengine=io_uring --direct=1 --iodepth=8 --output=io_uring
"""
WAKE = "io_uring:io_uring_task_add"
WOKEN = ("pipe-reads", "socket-reads", "polls", "timer-polls", "accept-multishot", "recv-multishot")
"""Scenarios whose requests wait for a file."""
EITHER = {side: SIDES[side] for side in ("bpf", "perf")}
ZEROES, OTHER = "write zeroes", "other"
ENDLESS = {"inferred", "end unknown"}
OF_A_REQUEST = ("sector", "bytes_request", "bytes_issued", "bytes_result", "operation", "flags", "error", "status")


@pytest.fixture(scope="module")
def events(
    tmp_path_factory: pytest.TempPathFactory, awake: Callable[[], AbstractContextManager[None]]
) -> tuple[Sides, int]:
    """Requests to a loop device, recorded by programs and by samples, with switches; the device's number."""
    folder = tmp_path_factory.mktemp("events")
    (folder / "in").write_bytes(b"")
    with awake(), loop_device(folder / "image") as device:
        command = ["sh", "-c", DISKS, "sh", device]
        chosen = "syscalls,block,io_uring,sched"
        recorded = record_sides(folder, command, EITHER, chosen, stdin=folder / "in", cwd=folder)
        return recorded, device_number(device)


@pytest.mark.requires("blkdiscard")
def test_events_are_recorded_by_either(events: tuple[Sides, int]) -> None:
    """The metadata names the events that programs recorded: all that have a program."""
    recorded, _ = events
    assert recorded["perf"].trace.metadata["kernel_events"] == []
    by_programs = set(recorded["bpf"].trace.metadata["kernel_events"])
    chosen = recorded["bpf"].trace.metadata["events"]
    assert by_programs == {name for name in chosen if name.partition(":")[2] in PLACES}
    assert {"io_uring:io_uring_submit_req", "block:block_rq_complete", "sched:sched_switch"} <= by_programs


@pytest.mark.requires("blkdiscard")
def test_same_requests_of_a_disk(events: tuple[Sides, int]) -> None:
    """Every request to the disk, by sector and order: reads, writes, flushes, discards, zeroes.

    The kernel may have no letters for a write of zeroes. Perf samples then say that it is another operation. Where the
    counts of one side prove that ends are missing, so many requests may lack theirs; they are compared without ends.
    """
    recorded, device = events
    found = {
        side: sorted(
            (row["sector"], row["issue_time_ns"] or 0, tuple(row[name] for name in OF_A_REQUEST))
            for row in each.trace.requests.to_pylist()
            if row["device"] == device
        )
        for side, each in recorded.items()
    }
    requests = {side: [what for *_, what in rows] for side, rows in found.items()}
    endless = {side: {row for row, what in enumerate(rows) if what[7] in ENDLESS} for side, rows in requests.items()}
    for side, rows in endless.items():
        proof = recorded[side].trace.completeness
        assert len(rows) <= sum(each.vanished for each in proof.events if each.event == "block:block_rq_complete")
    for rows in requests.values():
        for row in set.union(*endless.values()):
            rows[row] = (*rows[row][:3], None, *rows[row][4:7], None)
    lettered = any(what[4] == ZEROES for what in requests["perf"])
    as_perf = [
        (*what[:4], OTHER if what[4] == ZEROES and not lettered else what[4], *what[5:]) for what in requests["bpf"]
    ]
    assert as_perf == requests["perf"]
    assert sum(what[4] == ZEROES for what in requests["bpf"]) > 0
    assert len(requests["bpf"]) > 3 * 23 + 97 + 503
    assert len({what[4] for what in requests["bpf"]}) >= 4, "kinds of requests"


@pytest.mark.requires("blkdiscard")
def test_same_ring_requests_beside_a_disk(events: tuple[Sides, int]) -> None:
    """Every request of fio's ring."""
    recorded, _ = events
    found = request_differences(recorded["perf"], recorded["bpf"], more=False)
    assert not found, "\n".join(found[:40])


@pytest.mark.alone  # the kernel counts the wakes of all processes
@pytest.mark.requires(WAKE)
def test_same_wakes(tmp_path: Path, awake: Callable[[], AbstractContextManager[None]]) -> None:
    """Each request that was woken, by a thread or by a timer's interrupt: its record, its count and its row."""
    (tmp_path / "in").write_bytes(b"")
    (tmp_path / "work").mkdir()
    command = [build("rings"), "--dir", tmp_path / "work", "--truth", tmp_path / "truth", *WOKEN]
    kept = {side: (*options, "--keep-spool") for side, options in EITHER.items()}
    with awake():
        recorded = record_sides(tmp_path, command, kept, "syscalls,io_uring", stdin=tmp_path / "in", cwd=tmp_path)
    assert WAKE in recorded["bpf"].trace.metadata["kernel_events"]
    assert recorded["perf"].trace.metadata["kernel_events"] == []
    wakes = {side: _wakes(tmp_path / side / "spool") for side in recorded}
    assert wakes["bpf"] == wakes["perf"]
    for side, each in recorded.items():
        proof = [row for row in each.trace.completeness.events if row.event == WAKE]
        assert {(row.lost, row.vanished, row.surplus) for row in proof} == {(0, 0, 0)}
        assert sum(row.count or 0 for row in proof) == wakes[side].total()
    found = request_differences(recorded["perf"], recorded["bpf"], more=False)
    assert not found, "\n".join(found[:40])
    rows = recorded["bpf"].trace.ring_requests.to_pylist()
    woken = {row["user_data"]: row for row in rows if row["wake_time_ns"] is not None}
    assert woken.keys() == {user_data for (_, _, _, user_data, _, mask) in wakes["bpf"] if mask}
    told = [row for row in read_truth(tmp_path / "truth") if row["kind"] == "request"]
    by_thread = {row["user_data"]: row["waker"] for row in told if "waker" in row}
    assert {user_data: woken[user_data]["waker_tid"] for user_data in by_thread} == by_thread
    by_timer = {row["user_data"] for row in told if row["scenario"] == "timer-polls"}
    assert (len(by_thread), len(by_timer)) == (5 + 3 + 2 + 1, 5)
    assert by_timer <= woken.keys()


def _wakes(spool: Path) -> Counter[tuple[int, ...]]:
    """The records of wakes: the current thread, ring, request, its number, opcode and mask."""
    catalog = load_catalog()
    decoder = Decoder(spool, Specs(tuple(catalog.calls), tuple(catalog.tracepoints), tuple(catalog.opcodes)))
    roles = ("common_pid", "ctx", "req", "user_data", "opcode", "count")
    samples = (record.values for stream in decoder.streams() for record in stream.records if record.kind == "sample")
    return Counter(
        tuple(values[role] for role in roles)
        for values in samples
        if values["meaning"] and values["meaning"].role is Role.RING_WAKE
    )


@pytest.mark.requires("blkdiscard")
def test_same_switches(events: tuple[Sides, int]) -> None:
    """Each stretch of a call in which its thread had no CPU, and the reason.

    A thread waits for a device if a request of its own is under way as it leaves its CPU. If the request ends at this
    very moment on another CPU, the recorders may see the two events in different orders: each takes times of its own.
    """
    recorded, _ = events
    found = {side: _off_cpu(each) for side, each in recorded.items()}
    assert len(found["bpf"]) > 100
    assert [tid for tid, _ in found["bpf"]] == [tid for tid, _ in found["perf"]]
    others = [{of_bpf, of_perf} for (_, of_bpf), (_, of_perf) in zip(*found.values(), strict=True) if of_bpf != of_perf]
    assert all(states == {"blocked", "waiting for a device"} for states in others)
    assert len(others) < 0.03 * len(found["bpf"])


def _off_cpu(recorded: Recorded) -> list[tuple[int, int]]:
    """Thread and state of each stretch of a call without a CPU, in the order of each thread's."""
    tids = {row["task"]: row["tid"] for row in recorded.trace.threads.to_pylist()}
    rows = sorted(
        recorded.trace.table("off_cpu").to_pylist(), key=lambda row: (tids[row["task"]], row["begin_time_ns"])
    )
    return [(tids[row["task"]], row["state"]) for row in rows]
