"""docs/explanation/rules/stacks.md: a stack belongs to the call whose exit it follows."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from build.kernelwriter import KernelSpool
from reference.compare import native_rows

from lo2io.model.layers import SLOW_FROM_NS
from lo2io.model.recording import UserStack
from lo2io.native.records import framed, pack

if TYPE_CHECKING:
    from pathlib import Path


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
    frames = [dataclasses.asdict(UserStack(number, ("",), (1,), 0, 0)) for number in (7, 8)]
    frames.append(dataclasses.asdict(UserStack(9, (), (), 0, 0)))
    rows = native_rows(spool.write(layers=("stacks",), user_stacks=frames), 1 << 10)
    calls = [(row["call"], row["id"]) for row in rows["operations"]]
    assert [name for name, _ in calls] == ["read", "write", "read", "read", "read"]
    assert [(row["operation"], row["stack"]) for row in rows["call_stacks"]] == [(calls[0][1], 7), (calls[1][1], 8)]
    assert rows["totals"]["nr_undecoded"] == 1
