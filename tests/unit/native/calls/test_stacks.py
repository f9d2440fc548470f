"""docs/explanation/rules/stacks.md: a stack belongs to the call whose exit it follows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from build.kernelwriter import KernelSpool
from reference.compare import native_rows

from lo2io.native.records import framed, pack

if TYPE_CHECKING:
    from pathlib import Path


def stack(spool: KernelSpool, time: int, number: int, tid: int = 10) -> None:
    """A record of a stack."""
    spool.calls[0].append(framed(pack("stack", time, tid, stack=number)))


def test_a_stack_belongs_to_the_call_that_has_just_ended(tmp_path: Path) -> None:
    """Whether the call kept its CPU or lost it; a stack without its call, and damage, give no row."""
    spool = KernelSpool(tmp_path / "spool")
    spool.fact_task(1_000, 10, 10)
    spool.kernel_call(55_000, 0, 10, "read", 8, duration=1_000, fd=3, count=8)
    stack(spool, 56_000, 7)
    spool.kernel_enter(60_000, 0, 10, "write", fd=3, count=8)
    spool.kernel_exit(90_000, 0, 10, "write", 8)
    stack(spool, 90_000, 8)
    stack(spool, 95_000, 9)
    spool.calls[0].append(framed(pack("stack", 96_000, 10)[:16]))
    rows = native_rows(spool.write(layers=("stacks",)), 1 << 10)
    calls = [(row["call"], row["id"]) for row in rows["operations"]]
    assert [name for name, _ in calls] == ["read", "write"]
    assert [(row["operation"], row["stack"]) for row in rows["call_stacks"]] == [(calls[0][1], 7), (calls[1][1], 8)]
    assert rows["totals"]["nr_undecoded"] == 1
