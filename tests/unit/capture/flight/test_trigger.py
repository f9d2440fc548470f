"""Triggers: what may be written, and the native watcher against a slow and simple twin."""

from __future__ import annotations

import random
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from build.perfwriter import SpoolBuilder
from hypothesis import given, settings
from hypothesis import strategies as st

from lo2io.capture.flight.trigger import Trigger, Watcher, parse_trigger
from lo2io.catalog.catalog import load_catalog
from lo2io.catalog.layouts import compile_layout
from lo2io.errors import UsageError
from lo2io.model import BlockDevice, RequestOp
from lo2io.units import kernel_dev

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lo2io.catalog.layouts import Layout

VDA, VDB = kernel_dev(254, 0), kernel_dev(254, 16)
DEVICES = (
    BlockDevice(VDA, "vda", None, None, 1 << 30),
    BlockDevice(VDA + 1, "vda1", None, None, 1 << 29, disk=VDA),
    BlockDevice(VDB, "vdb", None, None, 1 << 30),
)
ALL = frozenset(RequestOp)
LETTERS = {RequestOp.READ: b"R", RequestOp.WRITE: b"WS", RequestOp.DISCARD: b"D", RequestOp.FLUSH: b"FF"}


@pytest.mark.parametrize(
    ("text", "least_ns", "operations", "disks"),
    [
        ("latency > 100ms", 100_000_001, ALL, None),
        ("latency >= 1.5ms", 1_500_000, ALL, None),
        ("latency > 1ms and latency >= 2ms", 2_000_000, ALL, None),
        ("latency > 0us and device == vda", 1, ALL, ["vda"]),
        ("latency > 0us and device != vda", 1, ALL, ["vdb"]),
        ("latency > 0us and device ~ 'vd*'", 1, ALL, ["vda", "vdb"]),
        ("operation == read, flush && latency >= 1s", 10**9, frozenset({RequestOp.READ, RequestOp.FLUSH}), None),
        ("kind == request and latency >= 1s", 10**9, ALL, None),
    ],
)
def test_a_trigger_is_a_filter_of_few_fields(
    text: str, least_ns: int, operations: frozenset[RequestOp], disks: list[str] | None
) -> None:
    """What it asks for, in the units of samples."""
    trigger = parse_trigger(text, DEVICES)
    names = None if trigger.devices is None else [device.name for device in trigger.devices]
    assert (trigger.least_ns, trigger.operations, names) == (least_ns, operations, disks)


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("", "does not say how slow"),
        ("device == vda", "does not say how slow"),
        ("latency < 1ms", "does not say how slow"),
        ("latency > 1ms and path ~ '/x/**'", "does not look at path"),
        ("latency > 1ms and pid == 1", "does not look at pid"),
        ("latency > 1ms and device == sda", "no such disk"),
        ("latency > 1ms and device == vda1", "not their partitions"),
        ("latency > 1ms and operation == open", "no block request"),
        ("latency > 1ms and kind == call", "no block request"),
        ("latency > soon", "latency > soon"),
    ],
)
def test_what_a_trigger_cannot_look_at_is_refused(text: str, answer: str) -> None:
    """Each with what is wrong, and what would be right."""
    with pytest.raises(UsageError, match=answer) as caught:
        parse_trigger(text, DEVICES)
    assert caught.value.remedy


def layout_of(builder: SpoolBuilder) -> Layout:
    """How to read a builder's samples."""
    meta = builder.meta()
    return compile_layout(meta.events, meta.formats, load_catalog())


def test_a_trigger_needs_the_events_it_looks_at() -> None:
    """Without block events it would wait for ever."""
    builder = SpoolBuilder(Path(), calls=("read",))
    meta = builder.meta()
    kept = [index for index, name in enumerate(meta.events) if "rq_issue" not in name]
    layout = compile_layout(
        [meta.events[index] for index in kept], [meta.formats[index] for index in kept], load_catalog()
    )
    with pytest.raises(UsageError, match="block:block_rq_issue are not recorded"):
        Watcher(Trigger("x", 1, ALL, None), layout, 1, DEVICES)


class Twin:
    """What the watcher finds, in the simplest words: it knows the whole history."""

    def __init__(self, trigger: Trigger) -> None:
        self.trigger = trigger
        self.events: list[tuple[int, int, tuple[int, int, RequestOp]]] = []

    def add(self, time: int, kind: int, key: tuple[int, int, RequestOp]) -> None:
        """An issue (0) or a completion (1)."""
        self.events.append((time, kind, key))

    def hits(self) -> list[tuple[int, int]]:
        """Each completion belongs to the latest issue before it; older ones have lost theirs."""
        disks = None if self.trigger.devices is None else {device.device for device in self.trigger.devices}
        pending: dict[tuple[int, int, RequestOp], int] = {}
        found = []
        for time, kind, key in sorted(self.events):
            if key[2] not in self.trigger.operations or (disks is not None and key[0] not in disks):
                continue
            if kind == 0:
                pending[key] = time
            elif key in pending:
                issue = pending.pop(key)
                if time - issue >= self.trigger.least_ns:
                    found.append((time - issue, key[1]))
        return sorted(found)


def history(chance: random.Random) -> Iterator[tuple[int, int, int, tuple[int, int, RequestOp]]]:
    """Time, CPU, kind and key: each key is issued and completed in turns, on any CPUs, some never completed."""
    clock = 10
    under_way: dict[tuple[int, int, RequestOp], bool] = {}
    for _ in range(chance.randint(1, 40)):
        clock += chance.choice([1, 3, 50])
        operation = chance.choice(sorted(LETTERS))
        key = (chance.choice([VDA, VDB]), 0 if operation is RequestOp.FLUSH else chance.choice([8, 16]), operation)
        completes = under_way.get(key, False) is not (chance.random() < 0.1)  # now and then one is lost
        yield clock, chance.randint(0, 2), int(completes), key
        under_way[key] = not completes


@pytest.mark.parametrize("seed", range(60))
def test_the_watcher_finds_what_its_twin_finds(seed: int) -> None:
    """Whatever ring is drained first, in pieces of whatever length."""
    chance = random.Random(seed)  # noqa: S311 - a history, no secret
    least_ns, only_vda = chance.randint(1, 60), chance.random() < 0.5
    trigger = Trigger("x", least_ns, ALL - {RequestOp.DISCARD}, DEVICES[:1] if only_vda else None)
    builder = SpoolBuilder(Path(), cpus=3, calls=("read",))
    twin = Twin(trigger)
    for time, cpu, kind, key in history(chance):
        builder.call(time, cpu, 5, "read")
        name = "rq_complete" if kind else "rq_issue"
        sectors = 0 if key[2] is RequestOp.FLUSH else 8
        sector = 2**64 - 1 if kind and key[2] is RequestOp.FLUSH else key[1]
        builder.block(time, cpu, 5, name, dev=key[0], sector=sector, nr_sector=sectors, rwbs=LETTERS[key[2]])
        twin.add(time, kind, key)
    watcher = Watcher(trigger, layout_of(builder), 3, DEVICES)
    rings = [b"".join(ring) for ring in builder.rings]
    while any(rings):
        cpu = chance.choice([index for index in range(3) if rings[index]])
        length = chance.choice([1, 7, 60, 500])
        watcher.feed(cpu, [memoryview(rings[cpu][:length])])
        rings[cpu] = rings[cpu][length:]
    found = watcher.take_hits()
    assert len(found) == len(twin.hits()) == watcher.nr_hits
    for latency, sector in twin.hits():
        found.remove(next(text for text in found if f"sector {sector} " in text and text.endswith(f" {latency} ns")))


def test_nothing_is_told_while_the_true_issue_may_lie_in_a_ring() -> None:
    """An issue whose completion vanished stays; the next request at that place is not taken for a slow one."""
    builder = SpoolBuilder(Path(), cpus=2, calls=("read",))
    request = {"dev": VDA, "sector": 8, "nr_sector": 8, "rwbs": b"R"}
    builder.block(100, 0, 5, "rq_issue", **request)
    builder.block(90_000, 1, 5, "rq_issue", **request)
    builder.block(90_010, 0, 5, "rq_complete", **request)
    watcher = Watcher(Trigger("x", 1_000, ALL, None), layout_of(builder), 2, DEVICES)
    watcher.feed(0, [memoryview(b"".join(builder.rings[0]))])
    watcher.feed(1, [memoryview(b"".join(builder.rings[1]))])
    assert watcher.is_due
    assert watcher.take_hits() == []
    assert not watcher.is_due


def test_a_hit_is_told_in_words() -> None:
    """With what a reader of the notice looks for."""
    builder = SpoolBuilder(Path(), cpus=1, calls=("read",))
    for time, name in ((10, "rq_issue"), (120_000_010, "rq_complete")):
        builder.block(time, 0, 5, name, dev=VDB, sector=64, nr_sector=8, rwbs=b"WS")
    watcher = Watcher(parse_trigger("latency > 100ms", DEVICES), layout_of(builder), 1, DEVICES)
    watcher.feed(0, [memoryview(b"".join(builder.rings[0]))])
    assert watcher.take_hits() == ["a write at sector 64 of vdb took 120 ms"]
    assert watcher.summary() == ("the trigger 'latency > 100ms' was met by 1 request and had 0 windows written")


def test_memory_stays_bounded_whatever_never_completes() -> None:
    """The oldest make way; the newest are still found."""
    builder = SpoolBuilder(Path(), cpus=1, calls=("read",))
    nr_issues = (1 << 16) + 500
    for sector in range(nr_issues):
        builder.block(sector + 1, 0, 5, "rq_issue", dev=VDA, sector=sector, nr_sector=8, rwbs=b"R")
    for sector in (0, 499, 500, nr_issues - 1):
        builder.block(10**9, 0, 5, "rq_complete", dev=VDA, sector=sector, nr_sector=8, rwbs=b"R")
    watcher = Watcher(Trigger("x", 1, ALL, None), layout_of(builder), 1, DEVICES)
    watcher.feed(0, [memoryview(b"".join(builder.rings[0]))])
    assert [text.split()[4] for text in watcher.take_hits()] == ["500", str(nr_issues - 1)]


@settings(max_examples=50, deadline=None)
@given(st.lists(st.binary(max_size=100), max_size=20))
def test_bytes_that_are_no_records_do_no_harm(pieces: list[bytes]) -> None:
    """A look at what is being recorded must never end the recording."""
    builder = SpoolBuilder(Path(), cpus=1, calls=("read",))
    watcher = Watcher(Trigger("x", 1, ALL, None), layout_of(builder), 1, DEVICES)
    for piece in pieces:
        watcher.feed(0, [memoryview(piece)])
    watcher.take_hits()
