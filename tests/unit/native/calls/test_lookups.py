"""Calls that have looked at no descriptor, whatever number they were given: they tell nothing of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from build.perfwriter import DEFAULT_CALLS, SpoolBuilder
from reference.engines import EBADF, UNSEEN, each_engine, rows, spool_of_a_process  # noqa: F401 - fixtures

if TYPE_CHECKING:
    from pathlib import Path

    from reference.compare import Tables
    from reference.engines import Run

EINVAL = -22
MAP_ANONYMOUS, MAP_PRIVATE = 0x20, 2
O_PATH = 0o10000000


def names(tables: Tables, column: str = "handle") -> list[tuple[str, bytes | None]]:
    """Each call, and the name of its file."""
    files = {f"h{number}": row["file"] and row["file"][-1] for number, row in enumerate(tables["handles"])}
    return [(row["call"], files.get(row[column])) for row in tables["operations"]]


@pytest.mark.parametrize(("flags", "expected"), [(MAP_PRIVATE, b"/old"), (MAP_PRIVATE | MAP_ANONYMOUS, None)])
def test_anonymous_memory_is_no_file(run: Run, tmp_path: Path, flags: int, expected: bytes | None) -> None:
    """Many programs pass 0 for a descriptor: the mapping is not of their standard input."""
    spool = SpoolBuilder(tmp_path / "spool", calls=(*DEFAULT_CALLS, "mmap"), start_ns=50_000)
    spool.fact_task(1_000, 10, 10, ppid=1, comm=b"ten").fact_fd(40_000, 10, 0, b"/old")
    tables = run(spool.call(60_000, 0, 10, "mmap", 0x7F00_0000_0000, len=4096, flags=flags, fd=0))
    assert names(tables) == [("mmap", expected)]
    assert rows(tables, "fd") == [(-1 if expected is None else 0,)]


@pytest.mark.parametrize("error", [EINVAL, -14, -512, EBADF])
def test_a_call_that_failed_shows_no_descriptor(run: Run, spool: SpoolBuilder, error: int) -> None:
    """The kernel checks a wrong offset first: a file that is there later may have come later."""
    spool.call(60_000, 0, 10, "pread64", error, fd=3, count=1, pos=-1)
    spool.fact_fd(70_000, 10, 3, b"/new").call(80_000, 0, 10, "read", 1, fd=3, count=1)
    tables = run(spool)
    assert names(tables) == [("pread64", None), ("read", b"/new")]
    assert rows(tables, "handle", "first_use") == [(None, 0), ("h0", 1)]


def test_one_that_failed_is_about_what_is_known(run: Run, spool: SpoolBuilder) -> None:
    """Its descriptor was open all the time, whether looked at or not."""
    spool.fact_fd(55_000, 10, 3, b"/old").call(60_000, 0, 10, "pread64", EINVAL, fd=3, count=1, pos=-1)
    assert names(run(spool)) == [("pread64", b"/old")]


def test_a_close_that_failed_has_closed(run: Run, spool: SpoolBuilder) -> None:
    """All errors but EBADF come later."""
    tables = run(spool.call(60_000, 0, 10, "close", -5, fd=3))
    assert rows(tables, "handle", "closes") == [("h0", 1)]
    assert rows(tables, "origin", table="handles") == [(UNSEEN,)]


@pytest.mark.parametrize(("count", "ret", "shown"), [(8, 8, True), (8, 0, True), (0, 0, False), (8, EINVAL, False)])
def test_a_copy_of_nothing_shows_no_descriptors(
    run: Run, spool: SpoolBuilder, count: int, ret: int, *, shown: bool
) -> None:
    """Splice and tee return at once; sendfile looks for the second one late."""
    spool.call(60_000, 0, 10, "sendfile64", ret, in_fd=3, out_fd=4, count=count)
    spool.fact_fd(70_000, 10, 3, b"/in").fact_fd(70_001, 10, 4, b"/out")
    tables = run(spool)
    assert names(tables) == [("sendfile64", b"/in" if shown else None)]
    assert names(tables, "handle2") == [("sendfile64", b"/out" if shown else None)]


def reads(tables: Tables) -> list[int | None]:
    """Their offsets."""
    return [row["offset_bytes"] for row in tables["operations"] if row["call"] == "read"]


def test_a_look_from_before_a_discovery_tells_no_position(run: Run, spool: SpoolBuilder) -> None:
    """The call that showed the descriptor has moved it since, or while somebody looked."""
    spool.call(60_000, 0, 10, "read", 10, fd=3, count=10).fact_fd(61_000, 10, 3, b"/f", begin=59_000, position=0)
    spool.call(70_000, 0, 10, "read", 10, fd=3, count=10)
    assert reads(run(spool)) == [None, None]


@pytest.mark.parametrize("late", [False, True])
def test_who_moves_what_was_not_known_moves_it(run: Run, spool: SpoolBuilder, *, late: bool) -> None:
    """A read began before its file was known. A look during it, and a read beside it, give no position."""
    spool.fork(51_000, 0, 10, 11, 10, 10).enter(60_000, 0, 10, "read", fd=3, count=10)
    spool.fact_fd(65_000, 10, 3, b"/f", begin=63_000, position=None if late else 0, open_flags=2)
    spool.call(70_000, 1, 11, "lseek", 20, fd=3, offset=20, whence=0)
    spool.call(71_000, 1, 11, "read", 10, fd=3, count=10).exit(80_000, 0, 10, "read", 10)
    spool.call(90_000, 1, 11, "read", 10, fd=3, count=10)
    assert reads(run(spool)) == [None, None, None]


@pytest.mark.parametrize(
    ("call", "args", "flags", "expected"),
    [
        ("read", {"fd": 3}, 2, None),
        ("read", {"fd": 3}, None, None),
        ("read", {"fd": 3}, 1, b"/old"),
        ("read", {"fd": 3}, 3, b"/old"),
        ("write", {"fd": 3}, 0, b"/old"),
        ("write", {"fd": 3}, 3, b"/old"),
        ("copy_file_range", {"fd_in": 3, "fd_out": 4, "len": 9}, 0, None),
        ("copy_file_range", {"fd_in": 3, "fd_out": 4, "len": 9}, 1, b"/old"),
        ("fsync", {"fd": 3}, O_PATH, b"/old"),
        ("dup", {"fildes": 3}, O_PATH, None),
        ("dup2", {"oldfd": 3, "newfd": 4}, O_PATH, None),
        ("fcntl", {"fd": 3, "cmd": 3}, O_PATH, None),
        ("fcntl", {"fd": 3, "cmd": 1030}, O_PATH, None),
        ("fcntl", {"fd": 3, "cmd": 5}, O_PATH, b"/old"),
    ],
)
def test_who_meets_nothing_names_nothing(
    run: Run, spool: SpoolBuilder, call: str, args: dict[str, int], *, flags: int | None, expected: bytes | None
) -> None:
    """EBADF: the slot's file has ended unseen, unless it is not open for such a call."""
    spool.fact_fd(55_000, 10, 3, b"/old", open_flags=flags).call(60_000, 0, 10, call, EBADF, **args)
    assert names(run(spool)) == [(call, expected)]


@pytest.mark.parametrize(
    ("call", "args", "flags", "expected"),
    [
        ("read", {"count": 1}, 2, None),
        ("read", {"count": 1}, None, b"/old"),
        ("pwrite64", {"count": 1, "pos": 5}, 1, None),
        ("writev", {"vlen": 1}, 2, None),
        ("preadv2", {"vlen": 1, "pos_l": -1, "flags": 0}, 0, None),
    ],
)
def test_where_nothing_was_met_nothing_is_known(
    run: Run, spool: SpoolBuilder, call: str, args: dict[str, int], *, flags: int | None, expected: bytes | None
) -> None:
    """By whom comes next, if nothing else explains EBADF."""
    spool.fact_fd(55_000, 10, 3, b"/old", open_flags=flags)
    spool.call(60_000, 0, 10, call, EBADF, fd=3, **args).call(61_000, 0, 10, "fsync", fd=3)
    assert names(run(spool)) == [(call, None), ("fsync", expected)]


def test_an_earlier_look_does_not_tell_what_is_there_then(run: Run, spool: SpoolBuilder) -> None:
    """It may have seen the file before; a look after the read proves the name."""
    spool.fact_fd(55_000, 10, 3, b"/old", open_flags=2).call(60_000, 0, 10, "read", EBADF, fd=3, count=1)
    spool.fact_fd(61_000, 10, 3, b"/old", begin=58_000).call(62_000, 0, 10, "fsync", fd=3)
    spool.call(63_000, 0, 10, "dup2", 3, oldfd=4, newfd=3)
    spool.fact_fd(80_000, 10, 3, b"/new", begin=75_000).call(90_000, 0, 10, "fsync", fd=3)
    assert [name for call, name in names(run(spool)) if call == "fsync"] == [None, b"/new"]


def test_what_was_opened_meanwhile_is_there(run: Run, spool: SpoolBuilder) -> None:
    """A read that met nothing began before another thread opened the number again."""
    spool.fork(51_000, 0, 10, 11, 10, 10).fact_fd(55_000, 10, 3, b"/old", open_flags=2)
    spool.enter(60_000, 0, 10, "read", fd=3, count=1).call(61_000, 1, 11, "close", fd=3)
    spool.call(62_000, 1, 11, "openat", 3, dfd=-100, flags=2).exit(63_000, 0, 10, "read", EBADF)
    spool.fact_fd(75_000, 10, 3, b"/new", begin=70_000).call(80_000, 1, 11, "fsync", fd=3)
    tables = run(spool)
    assert {name for call, name in names(tables) if call in ("openat", "fsync")} == {b"/new"}
    assert len(tables["handles"]) == 2
