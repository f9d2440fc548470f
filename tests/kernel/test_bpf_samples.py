"""Programs that record events of tracepoints, without a recorder: what they write, count and lose."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from fcntl import ioctl
from typing import TYPE_CHECKING, Any

import pytest
from lo2io.native._lib import ffi
from reference.kernel_records import iter_records

from lo2io.bpf import libbpf, loader
from lo2io.bpf.samples import plan_samples
from lo2io.capture.events.bpf_ring import KernelRing
from lo2io.catalog.catalog import load_catalog
from lo2io.kernel import abi, sysfs, tracefs
from lo2io.model.events import Event
from lo2io.native.records import KINDS, unpack

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = [pytest.mark.alone, pytest.mark.requires("root", "tracefs", "events")]
SWITCH = "sched:sched_switch"
NR_TURNS = 2003
NR_READS = 503
SLEEPS = f"""
import os
(first, second), (third, fourth) = os.pipe(), os.pipe()
os.sched_setaffinity(0, {{min(os.sched_getaffinity(0))}})
if os.fork():
    for _ in range({NR_TURNS}): os.write(second, b"x"); os.read(third, 1)
    os.wait()
else:
    for _ in range({NR_TURNS}): os.read(first, 1); os.write(fourth, b"x")
"""
"""Two processes on one CPU, which each of them leaves so often at least."""


def load(ring_bytes: int) -> loader.Programs:
    """The programs, of all events that they can record."""
    folder, catalog = tracefs.find_tracefs(), load_catalog()
    names = [spec.event for spec in catalog.tracepoints if tracefs.event_exists(folder, spec.event)]
    events = []
    for name in names:
        layout, text = tracefs.load_format(folder, name)
        events.append(Event(name, layout.id, text, layout))
    samples = plan_samples(events, catalog, {spec.event: spec.filter for spec in catalog.tracepoints if spec.filter})
    config = loader.BpfConfig(recorder=os.getpid(), samples=samples)
    return loader.load_programs(config, [], sysfs.read_online_cpus(), ring_bytes)


def read(programs: loader.Programs) -> list[tuple[str, Any]]:
    """All records of events: those in the buffers, and losses that are reported when the buffers are empty."""
    found = []
    pending = programs.pending_samples()
    for cpu in programs.cpus:
        ring = KernelRing(programs.sample_ring_fd(cpu), programs.ring_bytes)
        content = b"".join(map(bytes, ring.peek(ring.fill_bytes))) + pending.get(cpu, b"")
        ring.close()
        for record in iter_records(content):
            kind = KINDS[unpack("head", record).type]
            found.append((kind, unpack(kind, record) if kind == "lost" else record))
    return found


@pytest.fixture(name="switched", params=[4096, 1 << 22])
def run_of_switches(request: pytest.FixtureRequest, awake: Callable[[], Any]) -> Any:
    """Two processes that take turns, and the programs' records of it, with small buffers and with large ones."""
    programs = load(request.param)
    with awake(), programs:
        programs.attach_raw()
        programs.switch(on=True)
        subprocess.run([sys.executable, "-S", "-c", SLEEPS], check=True)
        programs.switch(on=False)
        yield request.param, programs, read(programs)


def test_every_event_is_written_or_lost(switched: Any) -> None:
    """Counts minus losses are the records, on all CPUs; LOST records report each loss."""
    ring_bytes, programs, records = switched
    counts = [row for rows in programs.read_sample_counts().values() for row in rows]
    written = sum(kind == "sample" for kind, _ in records)
    lost = sum(row[1] for row in counts)
    assert sum(row[0] for row in counts) - lost == written
    assert sum(record.lost for kind, record in records if kind == "lost") == lost
    assert (lost > NR_TURNS) == (ring_bytes == 4096)
    assert sum(row[0] for row in programs.read_sample_counts()[SWITCH]) >= 2 * NR_TURNS
    assert programs.missed_runs() == 0


def test_losses_have_their_times(switched: Any) -> None:
    """Each gap begins before it ends, and lies between the records around it."""
    for kind, record in switched[2]:
        if kind == "lost":
            assert 0 < record.begin_ns <= record.head.time_ns


def test_fields_lie_where_the_format_has_them(switched: Any) -> None:
    """A record's head has the current thread, which is the one that leaves the CPU."""
    layout, _ = tracefs.load_format(tracefs.find_tracefs(), SWITCH)
    prev = layout.field("prev_pid")
    assert prev is not None
    found = 0
    for kind, record in switched[2]:
        head = unpack("head", record) if kind == "sample" else None
        if head is not None and head.event == layout.id:
            at = prev.offset + ffi.sizeof("lo2_kernel_head") - 8
            found += 1
            assert int.from_bytes(record[at : at + prev.size], "little") == head.tid
    assert found


def of_disk(programs: loader.Programs, event: str) -> tuple[int, int]:
    """Count and losses of an event of the block layer, over all CPUs."""
    rows = programs.read_sample_counts()[f"block:{event}"]
    return sum(count for count, _ in rows), sum(lost for _, lost in rows)


def test_counted_events_follow_their_counters(tmp_path: Path, awake: Callable[[], Any]) -> None:
    """Completions are recorded while perf counts them, and only then. The difference tells how many are missing."""
    content = tmp_path / "content"
    content.write_bytes(bytes(NR_READS << 12))
    os.sync()
    reads = ["dd", f"if={content}", "of=/dev/null", "bs=4k", "iflag=direct", "status=none"]
    with awake(), load(1 << 20) as programs, contextlib.ExitStack() as opened:
        (complete,) = (sample for sample in programs.samples if sample.tracepoint == "block_rq_complete")
        attr = abi.EventAttr(
            type=abi.TYPE_TRACEPOINT, config=complete.type, read_format=abi.FORMAT_ID, flags=abi.DISABLED
        )
        counters = [abi.event_open(attr, -1, cpu) for cpu in programs.cpus]
        for cpu, fd in zip(programs.cpus, counters, strict=True):
            opened.callback(os.close, fd)
            programs.count_by(fd, complete, cpu)
        programs.attach_raw()
        programs.switch(on=True)
        subprocess.run(reads, check=True)
        assert of_disk(programs, "block_rq_issue")[0] >= NR_READS
        assert of_disk(programs, "block_rq_complete") == (0, 0)
        for fd in counters:
            ioctl(fd, abi.IOC_ENABLE)
        subprocess.run(reads, check=True)
        for fd in counters:
            ioctl(fd, abi.IOC_DISABLE)
        recorded, _ = of_disk(programs, "block_rq_complete")
        counted, _ = abi.sum_counts(counters, has_lost=False)
        assert counted >= NR_READS
        assert NR_READS // 2 < recorded <= counted  # on some machines a few are missing, in bursts
        subprocess.run(reads, check=True)
        assert of_disk(programs, "block_rq_complete")[0] == recorded


def test_programs_fit_this_kernel() -> None:
    """If the tracepoints are like those of Linux 6.18, every planned program fits."""
    with load(4096) as programs:
        names = {sample.name for sample in programs.samples}
        rings = {"io_uring:io_uring_complete", "io_uring:io_uring_task_add"}
        assert names >= {SWITCH, *rings, "block:block_rq_complete"}


def test_runs_that_the_kernel_skipped_count_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """An event that perf counts has vanished by that count already. All other events have no second counter."""
    with load(4096) as programs:
        asked: list[int] = []
        monkeypatch.setattr(libbpf, "read_misses", lambda fd: asked.append(fd) or 1)
        assert programs.missed_runs() == len(asked)
        for sample in programs.samples:
            assert (programs._loaded.program_fd(sample.program) in asked) != sample.counted, sample.name
        assert {sample.tracepoint for sample in programs.samples if sample.counted} >= {"block_rq_complete"}
