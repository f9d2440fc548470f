"""Events that were left out: their consequences are unknown, earlier facts are not."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from build.perfwriter import SpoolBuilder

from lo2io.catalog.catalog import load_catalog
from lo2io.convert.engine import Engine
from lo2io.model import UNKNOWN_I64, UNKNOWN_U32
from lo2io.spool.reader import SpoolReader

if TYPE_CHECKING:
    from pathlib import Path

CLOSE = ("syscalls:sys_enter_close", "syscalls:sys_exit_close")
SEEK = ("syscalls:sys_enter_lseek", "syscalls:sys_exit_lseek")


def named_and_offsets(path: Path) -> tuple[int, int, list[int]]:
    """How many handles have a file, how many looks were refused, and the calls' offsets."""
    engine = Engine(SpoolReader(path), load_catalog())
    named, offsets = 0, []
    for batch in engine.batches():
        named += int((batch.handles["file"] != UNKNOWN_U32).sum())
        offsets += batch.operations["offset_bytes"].tolist()
    return named, engine.totals.nr_names_refused, offsets


def names_in_cgroup(tmp_path: Path, *moves: tuple[int, bytes]) -> list[bool]:
    """In a recording of ``/a`` alone: are the files of the reads at 60, 70 and 80 µs known, with looks in between?"""
    spool = SpoolBuilder(tmp_path / "spool", calls=("read",), start_ns=50_000)
    spool.fact_task(1_000, 10, 10, cgroup=(0, b"/b" if moves else b"/a/c"))
    for at in (2_000, 65_000, 75_000):
        spool.fact_fd(at, 10, 3, b"/data", position=0)
    for at, path in moves:
        spool.attach(at, 0, 10, path)
    for at in (60_000, 70_000, 80_000):
        spool.call(at, 0, 10, "read", 10, fd=3, count=10)
    named: dict[int, bool] = {}
    used: list[int] = []
    for batch in Engine(SpoolReader(spool.write(cgroup="/a")), load_catalog()).batches():
        files = batch.handles["file"] != UNKNOWN_U32
        named |= dict(zip(batch.handles["handle"].tolist(), files.tolist(), strict=True))
        used += batch.operations["handle"].tolist()
    return [named[handle] for handle in used]


@pytest.mark.parametrize(
    ("moves", "named"),
    [
        ((), [True, True, True]),
        (((55_000, b"/a"),), [True, True, True]),
        (((72_000, b"/ab"),), [False, False, False]),
        (((72_000, b"/a"),), [False, False, True]),
        (((52_000, b"/a"), (68_000, b"/b"), (69_000, b"/a")), [True, True, True]),
        (((52_000, b"/a"), (72_000, b"/b")), [True, True, False]),
        (((52_000, b"/a"), (78_000, b"/b"), (79_000, b"/a")), [True, True, False]),
    ],
)
def test_a_process_is_known_while_it_is_in_the_cgroup(
    tmp_path: Path, moves: tuple[tuple[int, bytes], ...], named: list[bool]
) -> None:
    """Closes and opens outside of it are not recorded: a look before a move proves nothing after it."""
    assert names_in_cgroup(tmp_path, *moves) == named


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, (1, 0, [0, 10])),
        ({"lacking": CLOSE}, (0, 2, [UNKNOWN_I64, UNKNOWN_I64])),
        ({"lacking": SEEK}, (1, 0, [UNKNOWN_I64, UNKNOWN_I64])),
        ({"chosen_cpus": (0,)}, (0, 2, [UNKNOWN_I64, UNKNOWN_I64])),
    ],
)
def test_what_may_have_changed_unseen_is_unknown(
    tmp_path: Path, changes: dict[str, tuple[object, ...]], expected: tuple[int, int, list[int]]
) -> None:
    """Without close, a look proves neither name nor position; without lseek, no position is followed.

    ``lacking`` is taken from the list of events that the kernel lacks: these were left out on purpose, then.
    """
    spool = SpoolBuilder(tmp_path / "spool", calls=("read",), start_ns=50_000).fact_task(1_000, 10, 10)
    spool.fact_fd(2_000, 10, 3, b"/data", position=0)
    spool.call(60_000, 0, 10, "read", 10, fd=3, count=10).call(70_000, 0, 10, "read", 10, fd=3, count=10)
    spool.fact_fd(90_000, 10, 3, b"/data", position=20)
    meta = spool.meta()
    if "lacking" in changes:
        changes = {"lacking": tuple(event for event in meta.lacking if event not in changes["lacking"])}
    assert named_and_offsets(spool.write(**changes)) == expected


def test_a_position_that_moves_unseen_is_unknown_from_the_open_on(tmp_path: Path) -> None:
    """It begins at 0, but may have moved before the first read."""
    spool = SpoolBuilder(tmp_path / "spool", calls=("openat", "read"), start_ns=50_000).fact_task(1_000, 10, 10)
    spool.call(60_000, 0, 10, "openat", 3, flags=2).call(70_000, 0, 10, "read", 10, fd=3, count=10)
    lacking = spool.meta().lacking
    assert named_and_offsets(spool.write())[2] == [UNKNOWN_I64, 0]
    path = spool.write(lacking=tuple(event for event in lacking if event not in SEEK))
    assert named_and_offsets(path)[2] == [UNKNOWN_I64, UNKNOWN_I64]


def test_a_position_may_be_that_of_a_file_closed_unseen(tmp_path: Path) -> None:
    """After an open, the position is known as long as all closes and dups are recorded."""
    spool = SpoolBuilder(tmp_path / "spool", calls=("openat", "read"), start_ns=50_000).fact_task(1_000, 10, 10)
    spool.call(60_000, 0, 10, "openat", 3, flags=2).call(70_000, 0, 10, "read", 10, fd=3, count=10)
    lacking = spool.meta().lacking
    assert named_and_offsets(spool.write())[2][1] == 0
    path = spool.write(lacking=tuple(event for event in lacking if event not in CLOSE))
    assert named_and_offsets(path)[2][1] == UNKNOWN_I64


def test_on_some_cpus_a_position_moves_unseen(tmp_path: Path) -> None:
    """Another thread of the process may have moved it on a CPU that was not recorded."""
    spool = SpoolBuilder(tmp_path / "spool", calls=("openat", "read"), start_ns=50_000).fact_task(1_000, 10, 10)
    spool.call(60_000, 0, 10, "openat", 3, flags=2).call(70_000, 0, 10, "read", 10, fd=3, count=10)
    assert named_and_offsets(spool.write())[2] == [UNKNOWN_I64, 0]
    assert named_and_offsets(spool.write(chosen_cpus=(0,)))[2] == [UNKNOWN_I64, UNKNOWN_I64]
