"""docs/explanation/rules/order.md: gaps: nothing that is known of descriptors outlasts one."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from build.filestory import Story, Y, argument, returned
from build.kernelwriter import KernelSpool
from build.perfwriter import SpoolBuilder
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from reference.compare import run_native, run_reference
from reference.engines import each_engine, rows, spool_of_a_process  # noqa: F401 - the fixtures `run` and `spool`
from reference.fact_histories import Witness, witnessed
from reference.truths import assert_true, written

if TYPE_CHECKING:
    from reference.compare import Tables
    from reference.engines import Run

SETTINGS = settings(
    max_examples=int(os.environ.get("LO2IO_EXAMPLES", "30")), deadline=None, suppress_health_check=list(HealthCheck)
)
COUNTED = ("syscalls:sys_enter_close", (0, 1))


def named(tables: Tables) -> list[bytes | None]:
    """The file name of each call."""
    names = {f"h{number}": row["file"] and row["file"][-1] for number, row in enumerate(tables["handles"])}
    return [None if row["handle"] is None else names[row["handle"]] for row in tables["operations"]]


@pytest.fixture(name="known", params=[True, False])
def whether_counts_say_so(request: pytest.FixtureRequest) -> bool:
    """True if the spool's counts show a loss: then gaps are looked for beforehand."""
    return bool(request.param)


def with_a_gap(spool: SpoolBuilder, *, known: bool) -> SpoolBuilder:
    """Descriptor 3 has a name; CPU 1 loses all between 60 and 70 µs. Calls before, during and after."""
    spool.fact_fd(55_000, 10, 3, b"/old")
    spool.call(60_000, 1, 10, "fsync", fd=4)
    for time in (58_000, 65_000, 80_000):
        spool.call(time, 0, 10, "read", 1, fd=3, count=1)
    spool.lost(70_000, 1, 2)
    return spool.count_lost(*COUNTED) if known else spool


def test_what_was_known_before_a_gap_is_not_known_in_it(run: Run, spool: SpoolBuilder, *, known: bool) -> None:
    """Records of other CPUs lie inside of it, and a close on this one may be among the lost records.

    If the counts show no loss, the gap is unknown before its end.
    """
    tables = run(with_a_gap(spool, known=known))
    reads = [name for name, row in zip(named(tables), tables["operations"], strict=True) if row["call"] == "read"]
    assert reads == [b"/old", None if known else b"/old", None]
    ended = rows(tables, "close_time_ns", "file", table="handles")
    assert (None, b"/old") in [(close, file and file[-1]) for close, file in ended]


def test_a_later_look_names_it_anew(run: Run, spool: SpoolBuilder, *, known: bool) -> None:
    """A look that began after the gap proves the name, one that began before its end does not."""
    with_a_gap(spool, known=known).fact_fd(79_000, 10, 3, b"/doubtful", begin=65_000)
    spool.fact_fd(90_000, 10, 3, b"/new", begin=75_000).call(95_000, 0, 10, "read", 1, fd=3, count=1)
    tables = run(spool)
    assert named(tables)[-2:] == [b"/new", b"/new"]
    assert tables["totals"]["nr_names_refused"] == 1


def test_a_call_that_overlaps_a_gap_has_no_handle(run: Run, spool: SpoolBuilder, *, known: bool) -> None:
    """Its own end is not seen to have been another's."""
    spool.fact_fd(55_000, 10, 3, b"/old").fork(56_000, 0, 10, 11, 10, 10).enter(58_000, 0, 10, "read", fd=3, count=1)
    spool.call(60_000, 1, 11, "sync").lost(70_000, 1, 2).exit(80_000, 0, 10, "read", 1)
    tables = run(spool.count_lost(*COUNTED) if known else spool)
    assert rows(tables, "call", "handle", "fd")[-1] == ("read", None, 3)


def story_with_a_gap(path: Path, backend: str, *, known: bool) -> Story:
    """The same with programs: facts about descriptor 3 come before, inside of and after the gap."""
    story = Story(path, backend)
    story.fact_task(1_000, 10, 10, ppid=1, comm=b"ten").fork(51_000, 0, 10, 11, 10, 10)
    story.does(55_000, 10, "openat", 3, returned(3, b"/old"), flags=0)
    story.does(60_000, 11, "sync")
    story.does(65_000, 10, "read", 1, argument(3, b"/inside"), fd=3, count=1)
    story.does(66_000, 10, "openat", 5, returned(5, b"/result", Y), flags=0)
    if backend == "perf":
        story.lost(70_000, 1, 2)
    else:
        story.kernel_lost(70_000, 1, 2, 61_000)
    story.does(75_000, 10, "read", 1, fd=3, count=1)
    story.does(80_000, 10, "read", 1, argument(3, b"/new", Y), fd=3, count=1)
    if known:
        story.count_lost(*COUNTED)
    return story


@pytest.mark.parametrize("backend", ["perf", "bpf"])
def test_only_what_is_told_behind_the_gap_counts(run: Run, tmp_path: Path, backend: str, *, known: bool) -> None:
    """Facts of calls inside of it may be another call's."""
    tables = run(story_with_a_gap(tmp_path / "spool", backend, known=known))
    inside = [None, None] if known else [b"/old", b"/result"]
    assert [name for name, row in zip(named(tables), tables["operations"], strict=True) if row["call"] != "sync"] == [
        b"/old",
        *inside,
        None,
        b"/new",
    ]


def test_nothing_changes_where_nothing_was_lost(run: Run, spool: SpoolBuilder) -> None:
    """The counts show a loss without a time, so there is no gap."""
    spool.fact_fd(55_000, 10, 3, b"/old").call(80_000, 0, 10, "read", 1, fd=3, count=1).count_lost(*COUNTED)
    assert named(run(spool)) == [b"/old"]


def test_what_was_lost_first_has_no_begin(run: Run, spool: SpoolBuilder) -> None:
    """The gap has been there since the recording began."""
    spool.fact_fd(55_000, 10, 3, b"/old").lost(70_000, 1, 2).call(60_000, 0, 10, "read", 1, fd=3, count=1)
    spool.count_lost(*COUNTED)
    assert named(run(spool)) == [None]


def test_gaps_that_touch_are_one(run: Run, spool: SpoolBuilder) -> None:
    """Gaps of two CPUs. Between two gaps that do not touch, descriptors are known."""
    spool.call(100_000, 1, 10, "sync").lost(110_000, 1, 2).call(121_000, 1, 10, "read", 1, fd=3, count=1)
    spool.call(125_000, 1, 10, "sync").lost(140_000, 1, 2).call(145_000, 1, 10, "read", 1, fd=3, count=1)
    spool.call(130_000, 0, 10, "sync").lost(150_000, 0, 1).call(170_000, 0, 10, "read", 1, fd=3, count=1)
    spool.fact_fd(118_000, 10, 3, b"/between", begin=115_000).fact_fd(160_000, 10, 3, b"/behind", begin=155_000)
    spool.count_lost(*COUNTED)
    tables = run(spool)
    reads = [name for name, row in zip(named(tables), tables["operations"], strict=True) if row["call"] == "read"]
    assert reads == [b"/between", None, b"/behind"]


def test_the_string_of_an_open_is_not_the_next_ones(run: Run, tmp_path: Path) -> None:
    """Its exit and the next entry were lost: its path is not that of the next open's file."""
    spool = spool_with_strings(tmp_path)
    spool.enter(60_000, 0, 10, "openat", __filename_val=b"/first").lost(70_000, 0, 2).exit(80_000, 0, 10, "openat", 3)
    spool.call(90_000, 0, 10, "openat", 4, __filename_val=b"/second").count_lost(*COUNTED)
    assert named(run(spool)) == [None, b"/second"]


def spool_with_strings(path: Path) -> SpoolBuilder:
    """Of a kernel whose entries have the paths."""
    return SpoolBuilder(path / "spool", era="6.19", start_ns=50_000).fact_task(1_000, 10, 10, ppid=1, comm=b"ten")


def lossy(machine: Witness, builder: KernelSpool, cpu: int, first: int, length: int, *, facts: bool) -> Path:
    """Samples of the machine without some of one CPU in a row, of which only the number is reported."""
    told, lost = iter(machine.told), 0
    begin = machine.history[first % len(machine.history)][1][0]
    end = begin + length
    for method, args, options in machine.history:
        value = next(told, (None, None)) if method == "exit" else (None, None)
        here = method not in {"fact_fd", "fact_task"} and args[1] == cpu
        if here and begin < args[0] < end and not _makes_tables(args):
            lost += method in ("enter", "exit")
            continue
        if here and lost and args[0] >= end and method != "kernel_file":
            builder.lost(args[0], cpu, lost)
            lost = 0
        if method == "exit" and facts:
            builder.kernel_value(*args[:3], position=value[0])
        if facts or method != "kernel_file":
            getattr(builder, method)(*args, **options)
    if lost:
        builder.lost(machine.now + 1, cpu, lost)
    builder.count_lost(*COUNTED)
    return written(builder)


def _makes_tables(args: tuple[Any, ...]) -> bool:
    """The test must know which threads share a table: see the design."""
    return any(call in args for call in ("clone", "clone3", "vfork", "unshare", "close_range"))


@pytest.mark.parametrize("facts", [True, False])
@SETTINGS
@given(
    machine=witnessed(),
    cpu=st.integers(0, 1),
    first=st.integers(0, 200),
    length=st.sampled_from([3, 40, 500, 5_000]),
)
def test_no_name_is_wrong_where_records_were_lost(
    machine: Witness, cpu: int, first: int, length: int, *, facts: bool
) -> None:
    """With any loss, both engines give the same tables, which are true."""
    with tempfile.TemporaryDirectory() as folder:
        builder = KernelSpool(Path(folder, "samples"), backend="perf", start_ns=100_500)
        path = lossy(machine, builder, cpu, first, length, facts=facts)
        found, expected = run_native(path), run_reference(path)
        for tables in (found, expected):
            assert_true(
                machine, tables | {"operations": [row | {"offset_bytes": None} for row in tables["operations"]]}
            )
        for table in expected:
            assert found[table] == expected[table], table


def test_a_gap_inside_another_does_not_end_it(run: Run, spool: SpoolBuilder) -> None:
    """CPU 1 loses all from 60 to 90 µs, CPU 0 from 65 to 70: a look at 75 proves nothing yet.

    ::

        CPU 1   60 ├───────────────────────────┤ 90
        CPU 0        65 ├────┤ 70  look  read
    """
    spool.enter(50_000, 1, 11, "sync").exit(60_000, 1, 11, "sync", 0).lost(90_000, 1, 2)
    spool.call(64_000, 0, 10, "fsync", fd=4).lost(70_000, 0, 2)
    spool.fact_fd(76_000, 10, 3, b"/in", begin=75_000).call(80_000, 0, 10, "read", 1, fd=3, count=1)
    tables = run(spool.count_lost(*COUNTED))
    assert named(tables)[-1] is None
    assert tables["totals"]["nr_names_refused"] == 1


def test_a_call_at_the_begin_of_the_first_gap_is_known(run: Run, tmp_path: Path) -> None:
    """The last record before the loss bounds the gap, and may be the first of all. What happened then was before it."""
    spool = SpoolBuilder(tmp_path / "spool", era="6.19").enter(60_000, 1, 11, "sync").lost(70_000, 1, 2)
    spool.enter(60_000, 0, 10, "openat", __filename_val=b"/f").exit(60_000, 0, 10, "openat", 3)
    spool.enter(60_000, 0, 10, "read", fd=3, count=1).exit(60_000, 0, 10, "read", 1)
    assert [name for name in named(run(spool.count_lost(*COUNTED))) if name] == [b"/f", b"/f"]
