"""Triggers: what may be written, and the native watcher against a slow and simple twin."""

from __future__ import annotations

import itertools
import os
import random
import signal
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from build.kernelwriter import KernelSpool, Programs
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
    from collections.abc import Iterator, Sequence

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
    """Its conditions, in the units of samples."""
    trigger = parse_trigger(text, DEVICES)
    names = None if trigger.devices is None else [device.name for device in trigger.devices]
    assert (trigger.least_ns, trigger.operations, names) == (least_ns, operations, disks)


SYNCS = frozenset({"fsync", "fdatasync", "sync", "syncfs", "sync_file_range", "msync"})


@pytest.mark.parametrize(
    ("text", "calls"),
    [
        ("latency > 1ms and operation == sync", SYNCS),
        ("latency > 1ms and operation == flush and kind == call", SYNCS),
        ("latency > 1ms and operation == pread64, fstat", {"pread64", "newfstat"}),
        ("latency > 1ms and operation == sys_sync", {"sync"}),
        ("latency > 1ms and operation == sync and operation != fsync, msync", SYNCS - {"fsync", "msync"}),
        ("latency > 1ms and kind == call", {call.name for call in load_catalog().calls}),
        ("latency > 1ms and operation == read", set()),
        ("latency > 1ms and operation != read", set()),
    ],
)
def test_operations_that_only_calls_have_choose_calls(text: str, calls: set[str]) -> None:
    """If block requests have the operation, too, the trigger watches these, unless it says otherwise."""
    trigger = parse_trigger(text, DEVICES)
    assert trigger.calls == calls
    assert bool(trigger.operations) is not bool(calls)


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("", "the trigger has no least latency"),
        ("device == vda", "the trigger has no least latency"),
        ("latency < 1ms", "the trigger has no least latency"),
        ("latency > 1ms and path ~ '/x/**'", "does not look at path"),
        ("latency > 1ms and pid == 1", "does not look at pid"),
        ("latency > 1ms and device == sda", "no such disk"),
        ("latency > 1ms and device == vda1", "not their partitions"),
        ("latency > 1ms and kind == ring", "no block request and no call"),
        ("latency > 1ms and operation == read, sync", "only calls can be sync"),
        ("latency > 1ms and operation ~ 'f*'", "only calls can be f"),
        ("latency > 1ms and operation == sync and device == vda", "device of a call"),
        ("latency > soon", "latency > soon"),
    ],
)
def test_what_a_trigger_cannot_look_at_is_refused(text: str, answer: str) -> None:
    """Each with its fault, and with a correct form."""
    with pytest.raises(UsageError, match=answer) as caught:
        parse_trigger(text, DEVICES)
    assert caught.value.remedy


def layout_of(builder: SpoolBuilder) -> Layout:
    """The layout of a builder's samples."""
    meta = builder.meta()
    return compile_layout(meta.events, meta.formats, load_catalog())


def test_a_trigger_needs_the_events_it_looks_at() -> None:
    """Without them it would wait for ever."""
    builder = SpoolBuilder(Path(), calls=("read",))
    meta = builder.meta()
    kept = [index for index, name in enumerate(meta.events) if "rq_issue" not in name]
    layout = compile_layout(
        [meta.events[index] for index in kept], [meta.formats[index] for index in kept], load_catalog()
    )
    with pytest.raises(UsageError, match="block:block_rq_issue are not recorded"):
        Watcher(Trigger("x", 1, ALL, None), layout, 1, DEVICES)
    with pytest.raises(UsageError, match="none of the calls it looks at is recorded: fdatasync") as caught:
        Watcher(parse_trigger("latency > 1ms and operation == fdatasync", DEVICES), layout, 1, DEVICES)
    assert caught.value.remedy == "add `-e +fdatasync`"


def feed_pieces(
    watcher: Watcher, rings: Sequence[Sequence[bytes]], chance: random.Random, *, of_programs: bool
) -> None:
    """Hand all bytes on, in any order of the buffers and in pieces of any length."""
    left = [b"".join(ring) for ring in rings]
    while any(left):
        cpu = chance.choice([index for index in range(len(left)) if left[index]])
        length = chance.choice([1, 7, 60, 500])
        watcher.feed(cpu, [memoryview(left[cpu][:length])], of_programs=of_programs)
        left[cpu] = left[cpu][length:]


class Twin:
    """A plain watcher that knows the whole history."""

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


@pytest.mark.parametrize("of_programs", [False, True], ids=["perf", "bpf"])
@pytest.mark.parametrize("seed", range(60))
def test_the_watcher_finds_what_its_twin_finds(seed: int, of_programs: bool) -> None:
    """Whatever ring is drained first, in pieces of whatever length; samples or records of programs."""
    chance = random.Random(seed)  # noqa: S311 - a history, no secret
    least_ns, only_vda = chance.randint(1, 60), chance.random() < 0.5
    trigger = Trigger("x", least_ns, ALL - {RequestOp.DISCARD}, DEVICES[:1] if only_vda else None)
    builder = KernelSpool(Path(), 3, calls=("read",), sampled=("block",) if of_programs else ())
    twin = Twin(trigger)
    for time, cpu, kind, key in history(chance):
        builder.call(time, cpu, 5, "read")
        name = "rq_complete" if kind else "rq_issue"
        sectors = 0 if key[2] is RequestOp.FLUSH else 8
        sector = 2**64 - 1 if kind and key[2] is RequestOp.FLUSH else key[1]
        builder.block(time, cpu, 5, name, dev=key[0], sector=sector, nr_sector=sectors, rwbs=LETTERS[key[2]])
        twin.add(time, kind, key)
    watcher = Watcher(trigger, layout_of(builder), 3, DEVICES, 3)
    feed_pieces(watcher, builder.events if of_programs else builder.rings, chance, of_programs=of_programs)
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
    """With all that a reader of the notice needs."""
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


# ---- calls ----

NOBODY = 5_000_000
"""More than any thread's number (PID_MAX_LIMIT, include/linux/threads.h)."""
CALLS = ("fsync", "sync", "read")


def watch_calls(builder: SpoolBuilder, text: str) -> Watcher:
    """A watcher of calls that was given all of a builder's rings."""
    watcher = Watcher(parse_trigger(text, DEVICES), layout_of(builder), len(builder.rings), DEVICES)
    for cpu, ring in enumerate(builder.rings):
        watcher.feed(cpu, [memoryview(b"".join(ring))])
    return watcher


def call_history(chance: random.Random) -> Iterator[tuple[int, int, int, str, bool]]:
    """Time, CPU, thread, call and whether it ends: threads move between CPUs, some ends and begins vanish."""
    clock = 10
    under_way: dict[int, str] = {}
    for _ in range(chance.randint(1, 60)):
        clock += chance.choice([1, 3, 50])
        tid = NOBODY + chance.randint(1, 3)
        call = under_way.pop(tid, None)
        ends = call is not None
        if call is None:
            call = under_way[tid] = chance.choice(CALLS)
        if chance.random() > 0.1:
            yield clock, chance.randint(0, 2), tid, call, ends


@pytest.mark.parametrize("of_programs", [False, True], ids=["perf", "bpf"])
@pytest.mark.parametrize("seed", range(60))
def test_slow_calls_are_found_whatever_ring_is_drained_first(seed: int, of_programs: bool) -> None:
    """The same as a twin finds that knows the whole history, in pieces of any length.

    Programs write one record of a call that keeps its CPU.
    """
    chance = random.Random(seed)  # noqa: S311 - a history, no secret
    least_ns = chance.randint(1, 60)
    builder = KernelSpool(Path(), 3, calls=CALLS)
    leaves = (chance.random() < 0.2 for _ in itertools.count())  # so often a thread loses its CPU
    programs = Programs(builder, leaves, itertools.repeat((None, None)))
    pending: dict[int, tuple[str, int]] = {}
    expected = []
    for time, cpu, tid, call, ends in call_history(chance):
        if of_programs:
            programs.replay([("exit" if ends else "enter", (time, cpu, tid, call), {})], whole=False)
        else:
            (builder.exit if ends else builder.enter)(time, cpu, tid, call)
        if call == "read":
            continue
        if not ends:
            pending[tid] = (call, time)
        elif tid in pending:
            begun, begin = pending.pop(tid)
            if begun == call and time - begin >= least_ns:
                expected.append(f"{call} of thread {tid} took {time - begin} ns")
    trigger = parse_trigger(f"latency >= {least_ns}ns and operation == sync", DEVICES)
    programs.end()
    watcher = Watcher(trigger, layout_of(builder), 3, DEVICES, 3)
    feed_pieces(watcher, builder.calls if of_programs else builder.rings, chance, of_programs=of_programs)
    assert watcher.take_hits() == expected
    assert watcher.nr_hits == len(expected)


def test_a_slow_call_is_told_in_words() -> None:
    """By the name that programmers know, with the thread that made it."""
    parent = os.getppid()
    builder = SpoolBuilder(Path(), cpus=1, calls=("newfstat",))
    builder.enter(10, 0, parent, "newfstat").exit(120_000_010, 0, parent, "newfstat")
    watcher = watch_calls(builder, "latency > 100ms and operation == fstat")
    comm = Path(f"/proc/{parent}/comm").read_text(encoding="utf-8").rstrip("\n")
    assert watcher.take_hits() == [f"fstat of {comm} (thread {parent}) took 120 ms"]
    expected = "the trigger 'latency > 100ms and operation == fstat' was met by 1 call and had 0 windows written"
    assert watcher.summary() == expected


def test_the_recorder_and_its_converters_fire_nothing() -> None:
    """Otherwise, the writer of a window would cause the next one. The recorded command is a child of lo2io, too."""
    fork = os.fork()
    if fork == 0:  # such as the process that stands by
        signal.pause()
    converter, command = (subprocess.Popen(["cat"], stdin=subprocess.PIPE) for _ in range(2))
    with converter, command:
        builder = SpoolBuilder(Path(), cpus=1, calls=("fsync",))
        for time, tid in enumerate((os.getpid(), fork, converter.pid, command.pid, NOBODY)):
            builder.enter(10 * time, 0, tid, "fsync").exit(10 * time + 1, 0, tid, "fsync")
        watcher = watch_calls(builder, "latency > 0ns and operation == sync")
        found = watcher.take_hits({converter.pid})
        command.communicate()
        converter.communicate()
    os.kill(fork, signal.SIGKILL)
    os.waitpid(fork, 0)
    assert found == [f"fsync of cat (thread {command.pid}) took 1 ns", f"fsync of thread {NOBODY} took 1 ns"]
    assert watcher.nr_hits == 2


def test_a_long_call_outlasts_many_short_ones_of_others() -> None:
    """Only calls under way take room."""
    builder = SpoolBuilder(Path(), cpus=1, calls=("fsync",))
    builder.enter(1, 0, NOBODY, "fsync")
    for time in range(10, 10 + 2 * ((1 << 16) + 10), 2):
        builder.call(time, 0, NOBODY + 1 + time % 7, "fsync")
    builder.exit(10**9, 0, NOBODY, "fsync")
    watcher = watch_calls(builder, "latency > 1us and operation == sync")
    assert [text.split()[3] for text in watcher.take_hits()] == [str(NOBODY)]
    assert "not followed" not in watcher.summary()


def test_the_oldest_calls_are_forgotten_and_counted() -> None:
    """Memory for calls under way is bounded."""
    builder = SpoolBuilder(Path(), cpus=1, calls=("fsync",))
    nr_threads = (1 << 16) + 500
    for number in range(nr_threads):
        builder.enter(number + 1, 0, NOBODY + number, "fsync")
    for number in (0, 499, 500, nr_threads - 1):
        builder.exit(10**9, 0, NOBODY + number, "fsync")
    watcher = watch_calls(builder, "latency > 1us and operation == sync")
    assert [text.split()[3] for text in watcher.take_hits()] == [str(NOBODY + 500), str(NOBODY + nr_threads - 1)]
    assert "; 500 were not followed to their ends" in watcher.summary()


def test_a_begin_and_an_end_around_lost_records_are_no_pair() -> None:
    """The end of one call and the start of the next may be lost."""
    builder = SpoolBuilder(Path(), cpus=2, calls=("fsync",))
    builder.enter(10, 0, NOBODY, "fsync").lost(80_000, 0, 7).exit(90_000, 0, NOBODY, "fsync")
    builder.enter(70_000, 1, NOBODY + 1, "fsync").enter(85_000, 1, NOBODY + 2, "fsync")
    builder.exit(99_000, 1, NOBODY + 1, "fsync").exit(99_000, 1, NOBODY + 2, "fsync")
    watcher = watch_calls(builder, "latency > 1us and operation == sync")
    assert watcher.take_hits() == [f"fsync of thread {NOBODY + 2} took 14 µs"]
    assert "; 2 were not followed to their ends" in watcher.summary()


def test_a_begin_and_an_end_around_lost_records_of_programs_are_no_pair() -> None:
    """The same, if a programs' buffer had no room."""
    builder = KernelSpool(Path(), 2, calls=("fsync",))
    builder.kernel_enter(10, 0, NOBODY, "fsync").kernel_lost(80_000, 0, 7, begin=60_000)
    builder.kernel_exit(90_000, 0, NOBODY, "fsync")
    builder.kernel_enter(85_000, 1, NOBODY + 2, "fsync").kernel_exit(99_000, 1, NOBODY + 2, "fsync")
    watcher = Watcher(parse_trigger("latency > 1us and operation == sync", DEVICES), layout_of(builder), 2, DEVICES, 2)
    for cpu, ring in enumerate(builder.calls):
        watcher.feed(cpu, [memoryview(b"".join(ring))], of_programs=True)
    assert watcher.take_hits() == [f"fsync of thread {NOBODY + 2} took 14 µs"]
    assert "; 1 were not followed to their ends" in watcher.summary()


@pytest.mark.parametrize("of_programs", [False, True], ids=["perf", "bpf"])
@settings(max_examples=50, deadline=None)
@given(st.lists(st.binary(max_size=100), max_size=20))
def test_bytes_that_are_no_records_do_no_harm(of_programs: bool, pieces: list[bytes]) -> None:
    """Watching must never end the recording."""
    builder = SpoolBuilder(Path(), cpus=1, calls=("read",))
    for text in ("latency > 0ns", "latency > 0ns and kind == call"):
        watcher = Watcher(parse_trigger(text, DEVICES), layout_of(builder), 1, DEVICES, 1)
        for piece in pieces:
            watcher.feed(0, [memoryview(piece)], of_programs=of_programs)
        watcher.take_hits()
