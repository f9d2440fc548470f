"""Counts at a place of a programs' buffer, taken while events go on: they are those of the records before it."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections import Counter
from typing import TYPE_CHECKING

import pytest
from build.bpfrig import loaded
from reference.kernel_records import iter_records

from lo2io.bpf import loader
from lo2io.bpf.samples import plan_samples
from lo2io.capture.events.bpf_ring import KernelRing
from lo2io.catalog.catalog import load_catalog
from lo2io.kernel import sysfs, tracefs
from lo2io.model.events import Event
from lo2io.native.records import KINDS, unpack

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.alone, pytest.mark.requires("root", "tracefs", "events")]
NR_BORDERS = 30
EVENTS = ("sched:sched_switch", "block:block_rq_issue", "block:block_rq_insert")
_TURNS = """
import os
(first, second), (third, fourth) = os.pipe(), os.pipe()
if os.fork():
    os.write(second, b"x"); os.read(third, 1); os.write(1, b"x")
    while True: os.write(second, b"x"); os.read(third, 1)
else:
    while True: os.read(first, 1); os.write(fourth, b"x")
"""


@contextlib.contextmanager
def turns() -> Iterator[None]:
    """Two processes that wait for each other again and again."""
    with subprocess.Popen(
        [sys.executable, "-S", "-c", _TURNS], stdout=subprocess.PIPE, start_new_session=True
    ) as first:
        assert first.stdout is not None
        try:
            assert first.stdout.read(1) == b"x"
            yield
        finally:
            os.killpg(first.pid, signal.SIGKILL)


@contextlib.contextmanager
def on_cpu(cpu: int) -> Iterator[None]:
    """This thread runs on one CPU."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {cpu})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


class Reader:
    """Reads the buffers of one kind from border to border, and adds up what lay in them."""

    def __init__(self, programs: loader.Programs, *, of_samples: bool) -> None:
        self.programs = programs
        self.of_samples = of_samples
        self.rings = {
            cpu: KernelRing(programs.sample_ring_fd(cpu) if of_samples else programs.ring_fd(cpu), programs.ring_bytes)
            for cpu in programs.cpus
        }
        self.found: dict[int, Counter[int]] = {cpu: Counter() for cpu in programs.cpus}
        """CPU → common_type → events with a record."""
        self.lost = 0

    def border(self, cpu: int) -> list[loader.CountsAt]:
        """Read up to a border on this CPU; the counts there."""
        ring = self.rings[cpu]
        with on_cpu(cpu):
            at, counts = self.programs.count_records(cpu, ring.memory, {}, of_samples=self.of_samples)
            losses = self.programs.take_losses(cpu, of_samples=self.of_samples)
        assert ring.fill_bytes >= at - ring.tail
        views = ring.peek(at - ring.tail)
        content = b"".join(map(bytes, views)) + losses
        for view in views:
            view.release()
        ring.release(at - ring.tail)
        for record in iter_records(content):
            self._add(self.found[cpu], record)
        return counts

    def _add(self, found: Counter[int], record: bytes) -> None:
        head = unpack("head", record)
        kind = KINDS[head.type]
        if kind == "lost":
            self.lost += unpack(kind, record).lost
        if kind in {"call", "enter", "exit", "sample"}:
            found[head.event] += 1
        if kind == "call":
            found[unpack(kind, record).exit_event] += 1

    def close(self) -> None:
        """Unmap the buffers."""
        for ring in self.rings.values():
            ring.close()


@pytest.mark.parametrize(("ring_bytes", "borders"), [(1 << 14, NR_BORDERS), (1 << 22, 8)])
def test_calls_before_a_border_are_counted_before_it(ring_bytes: int, borders: int) -> None:
    """At each of many borders, exactly: whole calls, calls that wait, and losses of buffers that are too small."""
    with loaded(["read", "write", "pread64"], ring_bytes=ring_bytes, all_tasks=True) as rig:
        types = {name: kind for kind, name in rig._ids.items()}
        reader = Reader(rig.programs, of_samples=False)
        with turns():
            rig.programs.switch(on=True)
            for _ in range(borders):
                for cpu in rig.cpus:
                    counts = reader.border(cpu)
                    for place, name in enumerate(rig.names):
                        for half, at in zip(("enter", "exit"), counts[2 * place : 2 * place + 2], strict=True):
                            assert at.slack == 0
                            assert at.count - at.lost == reader.found[cpu][types[f"sys_{half}_{name}"]]
            lost = sum(row[1] for rows in rig.programs.read_counts() for row in rows)
        rig.programs.switch(on=False)
        assert sum(sum(found.values()) for found in reader.found.values()) > borders
        assert reader.lost <= lost, "each loss is told once"
        reader.close()


def test_events_before_a_border_are_counted_before_it() -> None:
    """The same for events of tracepoints, whose programs interrupt one another."""
    folder, catalog = tracefs.find_tracefs(), load_catalog()
    events = []
    for name in EVENTS:
        layout, text = tracefs.load_format(folder, name)
        events.append(Event(name, layout.id, text, layout))
    samples = plan_samples(events, catalog, {spec.event: spec.filter for spec in catalog.tracepoints if spec.filter})
    config = loader.BpfConfig(recorder=os.getpid(), samples=samples)
    with loader.load_programs(config, [], sysfs.read_online_cpus(), 1 << 16) as programs:
        reader = Reader(programs, of_samples=True)
        programs.attach_raw()
        programs.switch(on=True)
        with turns():
            for _ in range(NR_BORDERS):
                for cpu in programs.cpus:
                    counts = reader.border(cpu)
                    for sample in programs.samples:
                        at = counts[sample.place]
                        assert at.slack == 0
                        assert at.count - at.lost == reader.found[cpu][sample.type]
        programs.switch(on=False)
        assert sum(sum(found.values()) for found in reader.found.values()) > NR_BORDERS
        reader.close()
