"""docs/explanation/rules/stacks.md: a stack belongs to the call whose exit it follows."""

from __future__ import annotations

import dataclasses
import struct
from typing import TYPE_CHECKING

from build.copies import mmap2
from build.kernelwriter import KernelSpool
from lo2io.native._lib import ffi, lib
from reference.compare import SPECS, native_rows

from lo2io.convert.engine import Engine
from lo2io.model.layers import SLOW_FROM_NS
from lo2io.model.recording import UserStack
from lo2io.native.records import framed, pack
from lo2io.spool.reader import SpoolReader

if TYPE_CHECKING:
    from pathlib import Path

    from lo2io.model import Columns

NONE = (1 << 32) - 1


def stack(spool: KernelSpool, time: int, number: int, tid: int = 10) -> None:
    """A record of a stack."""
    spool.calls[0].append(framed(pack("stack", time, tid, stack=number)))


def test_a_stack_belongs_to_the_call_that_has_just_ended(tmp_path: Path) -> None:
    """Whether the call kept its CPU or lost it.

    No row: a second stack, one of a quick call, one without frames, one without its call, and damage.
    """
    spool = KernelSpool(tmp_path / "spool")
    spool.fact_task(1_000, 10, 10)
    spool.kernel_call(55_000, 0, 10, "read", 8, duration=SLOW_FROM_NS, fd=3, count=8)
    stack(spool, 1_055_000, 7)
    stack(spool, 1_055_000, 8)
    spool.kernel_enter(2_000_000, 0, 10, "write", fd=3, count=8)
    spool.kernel_exit(3_000_000, 0, 10, "write", 8)
    stack(spool, 3_000_000, 8)
    stack(spool, 3_500_000, 8)
    spool.kernel_call(4_000_000, 0, 10, "read", 8, duration=SLOW_FROM_NS - 1, fd=3, count=8)
    stack(spool, 4_999_999, 8)
    for begin, number in ((6_000_000, 9), (8_000_000, 1 << 30)):
        spool.kernel_call(begin, 0, 10, "read", 8, duration=SLOW_FROM_NS, fd=3, count=8)
        stack(spool, begin + SLOW_FROM_NS, number)
    spool.calls[0].append(framed(pack("stack", 9_500_000, 10)[:16]))
    for copied in (8, lib.LO2_STACK_COPY + 8):  # less than it says, and more than there can be
        tail = bytes(ffi.sizeof("lo2_kernel_stack_copy") + copied - 1)
        spool.record("stack", 9_600_000, 0, 10, copied=copied, tail=tail)
    frames = [dataclasses.asdict(UserStack(number, ("",), (1,), 0, 0)) for number in (7, 8)]
    frames.append(dataclasses.asdict(UserStack(9, (), (), 0, 0)))
    rows = native_rows(spool.write(layers=("stacks",), user_stacks=frames), 1 << 10)
    calls = [(row["call"], row["id"]) for row in rows["operations"]]
    assert [name for name, _ in calls] == ["read", "write", "read", "read", "read"]
    assert [(row["operation"], row["stack"]) for row in rows["call_stacks"]] == [(calls[0][1], 7), (calls[1][1], 8)]
    assert rows["totals"]["nr_undecoded"] == 3


class Reader:
    """Takes what the engine hands out for unwinding, and gives each copied stack the number of its pid."""

    def __init__(self) -> None:
        self.told: list[tuple[str, int]] = []

    def take(self, told: bytes, rows: Columns) -> None:
        """As ``Stacks.take``."""
        at = 0
        while at < len(told):
            size, kind, _, row, _ = struct.unpack_from("<IHHII", told, at)
            (value,) = struct.unpack_from("<I", told, at + 16 + (8 if kind == lib.LO2_TOLD_RECORD else 0))
            self.told.append(("record" if kind == lib.LO2_TOLD_RECORD else "stack", value))
            if kind == lib.LO2_TOLD_STACK:
                rows["stack"][row] = value
            at += 16 + (size + 7 & ~7)


def test_copies_are_handed_out_in_their_order(tmp_path: Path) -> None:
    """Between what tells the mapped files, each with the row of its call, and more than one batch holds."""
    spool = KernelSpool(tmp_path / "spool")
    spool.fact_task(1_000, 10, 10)
    number, size = 150, lib.LO2_STACK_COPY
    for call in range(number):
        begin = 10_000_000 * (call + 1)
        spool.rings[0].append(mmap2(1_000 + call, 0x1000, 0x2000, time_ns=begin))
        spool.kernel_call(begin + 1_000, 0, 10, "read", 8, duration=SLOW_FROM_NS, fd=3, count=8)
        copy = struct.pack("<4I17Q", 2_000 + call, 0, size, 0, *[0] * 17) + bytes(size)
        spool.record("stack", begin + 1_000 + SLOW_FROM_NS, 0, 10, stack=NONE, copied=size, tail=copy)
    path = spool.write(layers=("stacks",))
    reader = Reader()
    engine = Engine(SpoolReader(path), SPECS, stacks=reader)  # type: ignore[arg-type]
    batches = [
        list(zip(batch.call_stacks["operation"].tolist(), batch.call_stacks["stack"].tolist(), strict=True))
        for batch in engine.batches()
    ]
    rows = [row for batch in batches for row in batch]
    assert len(batches) > 1
    assert [stack for _, stack in rows] == [2_000 + call for call in range(number)]
    assert len({operation for operation, _ in rows}) == number
    assert reader.told == [
        (kind, at + call) for call in range(number) for kind, at in (("record", 1_000), ("stack", 2_000))
    ]


def test_a_reader_that_unwinds_nothing_gets_no_copies(tmp_path: Path) -> None:
    """A call that only its copy knows has no row then."""
    spool = KernelSpool(tmp_path / "spool")
    spool.fact_task(1_000, 10, 10)
    spool.kernel_call(55_000, 0, 10, "read", 8, duration=SLOW_FROM_NS, fd=3, count=8)
    spool.record("stack", 1_055_000, 0, 10, stack=NONE, copied=8, tail=bytes(152 + 8))
    assert native_rows(spool.write(layers=("stacks",)), 1 << 10)["call_stacks"] == []
