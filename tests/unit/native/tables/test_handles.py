"""docs/explanation/rules (calls, names): descriptors, names and offsets: one test each, both engines."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from build.perfwriter import SpoolBuilder
from reference.engines import (  # noqa: F401 - the fixtures `run` and `spool`
    BEFORE,
    EBADF,
    EIO,
    INHERITED,
    O_APPEND,
    O_CLOEXEC,
    O_RDWR,
    UNSEEN,
    each_engine,
    rows,
    spool_of_a_process,
)

if TYPE_CHECKING:
    from pathlib import Path

    from reference.compare import Tables
    from reference.engines import Run


# ---- handles ----


def test_an_open_makes_a_handle(run: Run, spool: SpoolBuilder) -> None:
    """With its flags; the fd is the one returned."""
    spool.call(60_000, 0, 10, "openat", 3, dfd=-100, flags=O_RDWR | O_CLOEXEC).call(60_010, 0, 10, "openat", -2)
    tables = run(spool)
    assert rows(tables, "fd", "handle", "flags", "first_use") == [(3, "h0", O_RDWR | O_CLOEXEC, 0), (-1, None, 0, 0)]
    columns = ("fd", "origin", "open_flags", "close_on_exec", "open_time_ns", "close_time_ns")
    assert rows(tables, *columns, table="handles") == [(3, 0, O_RDWR | O_CLOEXEC, 1, 60_001, None)]


def test_creat_has_the_flags_it_implies(run: Run, spool: SpoolBuilder) -> None:
    """The call has no such argument, the handle has flags."""
    tables = run(spool.call(60_000, 0, 10, "creat", 3))
    assert rows(tables, "flags") == [(0,)]
    assert rows(tables, "open_flags", table="handles") == [(0o1101,)]


@pytest.mark.parametrize("ret", [0, EIO, -4])
def test_close_ends_the_handle_even_when_it_fails(run: Run, spool: SpoolBuilder, ret: int) -> None:
    """The kernel frees the slot first."""
    spool.call(60_000, 0, 10, "openat", 3).call(60_010, 0, 10, "close", ret, fd=3)
    tables = run(spool)
    assert rows(tables, "handle", "closes") == [("h0", 0), ("h0", 1)]
    assert rows(tables, "close_time_ns", table="handles") == [(60_011,)]


def test_a_slot_is_free_from_the_entry_of_close_on(run: Run, spool: SpoolBuilder) -> None:
    """Another thread may get the fd before close returns."""
    spool.fork(59_000, 0, 10, 11, 10, 10).call(60_000, 0, 10, "openat", 3).enter(60_010, 0, 10, "close", fd=3)
    spool.call(60_011, 1, 11, "openat", 3).exit(60_020, 0, 10, "close").call(60_030, 1, 11, "read", 1, fd=3)
    tables = run(spool)
    assert rows(tables, "call", "handle") == [("openat", "h0"), ("openat", "h1"), ("close", "h0"), ("read", "h1")]


def test_close_of_what_is_not_open_shows_an_unseen_end(run: Run, spool: SpoolBuilder) -> None:
    """EBADF: the call has no handle, and the handle ended at an unknown time."""
    spool.call(60_000, 0, 10, "openat", 3).call(60_010, 0, 10, "close", EBADF, fd=3).call(
        60_020, 0, 10, "read", 1, fd=3
    )
    tables = run(spool)
    assert rows(tables, "call", "handle", "closes") == [("openat", "h0", 0), ("close", None, 0), ("read", "h1", 0)]
    assert rows(tables, "close_time_ns", "origin", table="handles") == [(None, 0), (None, UNSEEN)]


def test_an_open_that_returns_a_taken_fd_ends_the_old_handle(run: Run, spool: SpoolBuilder) -> None:
    """Its close was lost: its time is unknown."""
    spool.call(60_000, 0, 10, "openat", 3).call(60_010, 0, 10, "openat", 3).call(60_020, 0, 10, "read", 1, fd=3)
    tables = run(spool)
    assert rows(tables, "handle") == [("h0",), ("h1",), ("h1",)]
    assert rows(tables, "close_time_ns", table="handles") == [(None,), (None,)]


def test_close_range_ends_every_handle_in_it(run: Run, spool: SpoolBuilder) -> None:
    """By handle events after the call's row; the call itself names none."""
    for index, fd in enumerate((3, 4, 5)):
        spool.call(60_000 + 10 * index, 0, 10, "openat", fd)
    spool.call(60_100, 0, 10, "close_range", fd=4, max_fd=0xFFFFFFFF)
    tables = run(spool)
    assert rows(tables, "call", "fd", "handle")[3] == ("close_range", 4, None)
    assert rows(tables, "before", "time_ns", "handle", "kind", table="handle_events") == [
        (4, 60_101, "h1", 0),
        (4, 60_101, "h2", 0),
    ]
    assert rows(tables, "close_time_ns", table="handles") == [(None,), (60_101,), (60_101,)]


def test_close_range_of_nothing_invents_nothing(run: Run, spool: SpoolBuilder) -> None:
    """Programs close everything above 2, mostly nothing."""
    tables = run(spool.call(60_000, 0, 10, "close_range", fd=3, max_fd=0xFFFFFFFF))
    assert rows(tables, "handle") == [(None,)]
    assert tables["handles"] == tables["unused"] == []


def test_close_range_can_mark_instead(run: Run, spool: SpoolBuilder) -> None:
    """CLOSE_RANGE_CLOEXEC: the handle ends at the exec."""
    spool.call(60_000, 0, 10, "openat", 3).call(60_010, 0, 10, "close_range", fd=3, max_fd=9, flags=4)
    spool.comm(60_020, 0, 10, 10, b"new", is_exec=True)
    tables = run(spool)
    assert rows(tables, "close_on_exec", "close_time_ns", table="handles") == [(1, 60_020)]


@pytest.mark.parametrize(("call", "args"), [("dup", {"fildes": 3}), ("fcntl", {"fd": 3, "cmd": 0, "arg": 7})])
def test_dup_makes_a_handle_on_the_same_description(
    run: Run, spool: SpoolBuilder, call: str, args: dict[str, int]
) -> None:
    """The position is shared."""
    spool.call(60_000, 0, 10, "openat", 3, flags=O_RDWR).call(60_010, 0, 10, call, 7, **args)
    spool.call(60_020, 0, 10, "read", 100, fd=3).call(60_030, 0, 10, "read", 1, fd=7)
    tables = run(spool)
    assert rows(tables, "handle", "handle2")[1] == ("h0", "h1")
    assert tables["operations"][3]["offset_bytes"] == 100
    assert rows(tables, "origin", "parent", "shares", "open_flags", table="handles")[1] == (
        1,
        "h0",
        ["h0", "h1"],
        O_RDWR,
    )


def test_dup2_ends_its_target(run: Run, spool: SpoolBuilder) -> None:
    """By a handle event after the call's row."""
    spool.call(60_000, 0, 10, "openat", 3).call(60_010, 0, 10, "openat", 4)
    spool.call(60_020, 0, 10, "dup2", 4, oldfd=3, newfd=4).call(60_030, 0, 10, "read", 1, fd=4)
    tables = run(spool)
    assert rows(tables, "handle", "handle2")[2:] == [("h0", "h2"), ("h2", None)]
    assert rows(tables, "before", "time_ns", "handle", table="handle_events") == [(3, 60_021, "h1")]


def test_dup2_onto_itself_changes_nothing(run: Run, spool: SpoolBuilder) -> None:
    """Equal fds."""
    spool.call(60_000, 0, 10, "openat", 3).call(60_010, 0, 10, "dup2", 3, oldfd=3, newfd=3)
    tables = run(spool)
    assert rows(tables, "handle", "handle2") == [("h0", None), ("h0", None)]
    assert tables["handle_events"] == []


def test_close_on_exec_follows_every_call_that_sets_it(run: Run, spool: SpoolBuilder) -> None:
    """open, dup3, F_DUPFD_CLOEXEC, F_SETFD, FIOCLEX and FIONCLEX."""
    spool.call(60_000, 0, 10, "openat", 3, flags=O_CLOEXEC).call(60_010, 0, 10, "dup", 4, fildes=3)
    spool.call(60_020, 0, 10, "dup3", 5, oldfd=3, newfd=5, flags=O_CLOEXEC)
    spool.call(60_030, 0, 10, "fcntl", 6, fd=3, cmd=1030).call(60_040, 0, 10, "fcntl", 0, fd=3, cmd=2, arg=0)
    spool.call(60_050, 0, 10, "ioctl", fd=4, cmd=0x5451).call(60_060, 0, 10, "ioctl", fd=6, cmd=0x5450)
    tables = run(spool.comm(60_070, 0, 10, 10, b"new", is_exec=True))
    assert rows(tables, "fd", "close_on_exec", "close_time_ns", table="handles") == [
        (3, 0, None),
        (4, 1, 60_070),
        (5, 1, 60_070),
        (6, 0, None),
    ]


def test_a_child_inherits_a_handle_at_its_first_use(run: Run, spool: SpoolBuilder) -> None:
    """The description is shared, the table is not."""
    spool.call(60_000, 0, 10, "openat", 3, flags=O_RDWR).fork(60_010, 0, 11, 11, 10, 10)
    spool.call(60_020, 0, 10, "close", fd=3).call(60_030, 0, 11, "read", 50, fd=3).call(60_040, 0, 11, "read", 1, fd=3)
    tables = run(spool)
    assert rows(tables, "handle", "first_use", "offset_bytes")[2:] == [("h1", 1, 0), ("h1", 0, 50)]
    assert rows(tables, "origin", "parent", "shares", table="handles")[1] == (INHERITED, "h0", ["h0", "h1"])


@pytest.mark.parametrize("pid", [10, 11])
def test_threads_and_clone_files_share_the_table(run: Run, spool: SpoolBuilder, pid: int) -> None:
    """A descriptor of one is the other's."""
    spool.enter(60_000, 0, 10, "clone", clone_flags=0 if pid == 10 else 0x400).fork(60_001, 0, pid, 11, 10, 10)
    spool.exit(60_002, 0, 10, "clone", 11).call(60_010, 0, 10, "openat", 3).call(60_020, 1, 11, "read", 1, fd=3)
    tables = run(spool)
    assert rows(tables, "call", "handle", "first_use") == [("clone", None, 0), ("openat", "h0", 0), ("read", "h0", 0)]


def test_a_close_under_way_may_empty_the_childs_copy(run: Run, spool: SpoolBuilder) -> None:
    """Nobody knows whether the kernel copied the table before or after another thread's close took the descriptor."""
    spool.call(60_000, 0, 10, "openat", 3).fork(60_010, 0, 10, 11, 10, 10).enter(60_020, 1, 11, "close", fd=3)
    spool.enter(60_030, 0, 10, "clone").fork(60_031, 0, 20, 20, 10, 10).exit(60_032, 0, 10, "clone", 20)
    spool.exit(60_040, 1, 11, "close", 0).call(60_050, 0, 20, "read", 1, fd=3)
    tables = run(spool)
    assert rows(tables, "call", "handle")[-1] == ("read", "h1")
    assert rows(tables, "origin", "parent", table="handles") == [(0, None), (UNSEEN, None)]


def test_a_duplicate_under_way_may_replace_what_the_childs_copy_has(run: Run, spool: SpoolBuilder) -> None:
    """Nobody knows whether the kernel copied the table before or after another thread's dup2 took the number."""
    spool.call(60_000, 0, 10, "openat", 3).call(60_004, 0, 10, "openat", 4).fork(60_010, 0, 10, 11, 10, 10)
    spool.enter(60_020, 1, 11, "dup2", oldfd=4, newfd=3)
    spool.enter(60_030, 0, 10, "clone").fork(60_031, 0, 20, 20, 10, 10).exit(60_032, 0, 10, "clone", 20)
    spool.exit(60_040, 1, 11, "dup2", 3).call(60_050, 0, 20, "read", 1, fd=3).call(60_060, 0, 20, "read", 1, fd=4)
    tables = run(spool)
    assert rows(tables, "call", "handle")[-2:] == [("read", "h3"), ("read", "h4")]
    assert rows(tables, "origin", "parent", table="handles")[-2:] == [(UNSEEN, None), (INHERITED, "h1")]


def test_unshare_parts_a_table(run: Run, spool: SpoolBuilder) -> None:
    """A descriptor that the thread closes afterwards stays open in the others."""
    spool.call(60_000, 0, 10, "openat", 3).fork(60_010, 0, 10, 11, 10, 10)
    spool.call(60_020, 0, 11, "unshare", unshare_flags=0x400).call(60_030, 0, 11, "close", fd=3)
    spool.call(60_040, 0, 10, "read", 1, fd=3)
    assert rows(run(spool), "call", "handle")[2:] == [("close", "h1"), ("read", "h0")]


def test_an_fd_nobody_saw_opened_appears_with_its_first_use(run: Run, spool: SpoolBuilder) -> None:
    """Not with a call that fails because it is not open."""
    spool.call(60_000, 0, 10, "read", EBADF, fd=5).call(60_010, 0, 10, "fsync", fd=5).call(60_020, 0, 10, "close", fd=5)
    tables = run(spool)
    assert rows(tables, "handle", "first_use", "closes") == [(None, 0, 0), ("h0", 1, 0), ("h0", 0, 1)]
    assert rows(tables, "origin", "open_time_ns", "close_time_ns", table="handles") == [(UNSEEN, None, 60_021)]


def test_the_last_exit_ends_the_handles(run: Run, spool: SpoolBuilder) -> None:
    """At that time, without events."""
    spool.call(60_000, 0, 10, "openat", 3).fork(60_010, 0, 10, 11, 10, 10)
    spool.task_exit(60_020, 0, 10, 10).task_exit(60_030, 0, 10, 11)
    tables = run(spool)
    assert rows(tables, "close_time_ns", table="handles") == [(60_030,)]
    assert tables["handle_events"] == []


# ---- names ----


def names(tables: Tables) -> list[tuple[bytes | None, int]]:
    """Path and source of each handle."""
    return [(row["file"] and row["file"][4], row["name_source"]) for row in tables["handles"]]


def test_a_fact_inside_a_handles_life_proves_its_name(run: Run, spool: SpoolBuilder) -> None:
    """Duplicates have the same name."""
    spool.call(60_000, 0, 10, "openat", 3).call(60_010, 0, 10, "dup", 4, fildes=3)
    spool.fact_fd(70_000, 10, 3, b"/a", begin=69_000, inode=7)
    tables = run(spool)
    assert names(tables) == [(b"/a", 1), (b"/a", 1)]
    assert tables["handles"][0]["file"] == (0o100644, 0x801, 7, 25, b"/a")
    assert tables["totals"]["nr_names_verified"] == 1


@pytest.mark.parametrize(("opened", "closed"), [(68_000, 80_000), (60_000, 70_500), (60_000, 69_500)])
def test_a_fact_at_the_edge_of_a_life_is_refused(run: Run, spool: SpoolBuilder, opened: int, closed: int) -> None:
    """Within the clocks' error it may be another file's."""
    spool.call(opened, 0, 10, "openat", 3).call(closed, 0, 10, "close", fd=3)
    spool.fact_fd(70_000, 10, 3, b"/a", begin=69_000)
    tables = run(spool)
    assert names(tables) == [(None, 0)]
    assert tables["totals"]["nr_names_refused"] == 1


def test_a_fact_at_the_start_gives_name_flags_and_position(run: Run, spool: SpoolBuilder) -> None:
    """Open before the trace."""
    spool.fact_fd(40_000, 10, 1, b"/log", position=500, open_flags=O_RDWR | O_CLOEXEC)
    tables = run(spool.call(60_000, 0, 10, "write", 10, fd=1, count=10))
    assert rows(tables, "first_use", "offset_bytes", "offset_source") == [(1, 500, 2)]
    assert rows(tables, "origin", "open_flags", "close_on_exec", table="handles") == [(BEFORE, O_RDWR | O_CLOEXEC, 1)]
    assert names(tables) == [(b"/log", 1)]


def test_a_fact_after_the_first_use_gives_what_nobody_knew(run: Run, spool: SpoolBuilder) -> None:
    """A process attached to is at work before /proc was read."""
    spool.call(60_000, 0, 10, "read", 10, fd=3).fact_fd(
        70_000, 10, 3, b"/a", position=90, open_flags=O_RDWR | O_CLOEXEC
    )
    tables = run(spool.call(80_000, 0, 10, "read", 10, fd=3))
    assert rows(tables, "offset_bytes", "offset_source") == [(None, 0), (90, 2)]
    assert rows(tables, "origin", "open_flags", "close_on_exec", table="handles") == [(UNSEEN, O_RDWR | O_CLOEXEC, 1)]


def test_the_clocks_of_facts_are_put_right(run: Run, tmp_path: Path) -> None:
    """Facts have CLOCK_MONOTONIC, here 1 ms after the spool's clock."""
    spool = SpoolBuilder(tmp_path / "spool", shift_ns=1_000_000).fact_task(1_000, 10, 10)
    spool.call(1_060_000, 0, 10, "openat", 3).call(1_090_000, 0, 10, "close", fd=3).fact_fd(70_000, 10, 3, b"/a")
    assert names(run(spool)) == [(b"/a", 1)]


def test_the_kernels_own_string_names_a_file(run: Run, tmp_path: Path) -> None:
    """Kernels from 6.19 on record the path with the call; it is as the program gave it."""
    spool = SpoolBuilder(tmp_path / "spool", era="6.19").fact_task(1_000, 10, 10)
    spool.call(60_000, 0, 10, "openat", 3, flags=O_RDWR, __filename_val=b"../x")
    spool.call(60_010, 0, 10, "openat", 4, flags=O_RDWR, __filename_val=b"/a/path/that/was/cut/o...")
    assert names(run(spool)) == [(b"../x", 2), (None, 0)]


# ---- offsets ----


def offsets(tables: Tables) -> list[tuple[int | None, int]]:
    """Offset and source of each read and write."""
    return rows({"operations": [r for r in tables["operations"] if r["fd"] != -1]}, "offset_bytes", "offset_source")


def test_positions_are_followed_by_results(run: Run, spool: SpoolBuilder) -> None:
    """Short reads, p-calls that do not move it, -1 that does, seeks."""
    spool.call(60_000, 0, 10, "openat", 3, flags=O_RDWR).call(60_010, 0, 10, "read", 70, fd=3, count=100)
    spool.call(60_020, 0, 10, "pread64", 9, fd=3, pos=5).call(60_030, 0, 10, "preadv2", 30, fd=3, pos_l=-1)
    spool.call(60_040, 0, 10, "write", EIO, fd=3).call(60_050, 0, 10, "lseek", 1000, fd=3, offset=-24, whence=2)
    spool.call(60_060, 0, 10, "write", 5, fd=3)
    assert offsets(run(spool))[1:] == [(0, 2), (5, 1), (70, 2), (100, 2), (-24, 1), (1000, 2)]


def test_an_append_write_goes_where_nobody_knows(run: Run, spool: SpoolBuilder) -> None:
    """Its offset is unknown, and so is the position until a seek; F_SETFL changes the append bit."""
    spool.call(60_000, 0, 10, "openat", 3, flags=O_RDWR | O_APPEND).call(60_010, 0, 10, "write", 10, fd=3)
    spool.call(60_020, 0, 10, "read", 0, fd=3).call(60_030, 0, 10, "lseek", 0, fd=3)
    spool.call(60_040, 0, 10, "fcntl", 0, fd=3, cmd=4, arg=0).call(60_050, 0, 10, "write", 10, fd=3)
    found = offsets(run(spool))
    assert [found[index] for index in (1, 2, 5)] == [(None, 0), (None, 0), (0, 2)]


def test_a_write_on_a_description_of_unknown_flags_has_no_offset(run: Run, spool: SpoolBuilder) -> None:
    """It may append."""
    spool.call(60_000, 0, 10, "fsync", fd=3).call(60_010, 0, 10, "lseek", 40, fd=3, offset=40)
    spool.call(60_020, 0, 10, "read", 2, fd=3).call(60_030, 0, 10, "write", 2, fd=3).call(
        60_040, 0, 10, "read", 2, fd=3
    )
    assert offsets(run(spool))[2:] == [(40, 2), (None, 0), (None, 0)]


def test_calls_that_overlap_have_no_offset_but_add_up(run: Run, spool: SpoolBuilder) -> None:
    """Their order is not known."""
    spool.call(59_000, 0, 10, "openat", 3, flags=O_RDWR).fork(59_500, 0, 10, 11, 10, 10)
    spool.enter(60_000, 0, 10, "read", fd=3).enter(60_001, 1, 11, "read", fd=3)
    spool.exit(60_010, 0, 10, "read", 10).exit(60_011, 1, 11, "read", 20).call(60_020, 0, 10, "read", 1, fd=3)
    assert offsets(run(spool))[1:] == [(None, 0), (None, 0), (30, 2)]


def test_a_seek_that_overlaps_leaves_the_position_unknown(run: Run, spool: SpoolBuilder) -> None:
    """Before the read or after it?"""
    spool.call(59_000, 0, 10, "openat", 3, flags=O_RDWR).fork(59_500, 0, 10, 11, 10, 10)
    spool.enter(60_000, 0, 10, "read", fd=3).call(60_001, 1, 11, "lseek", 500, fd=3, offset=500)
    spool.exit(60_010, 0, 10, "read", 10).call(60_020, 0, 10, "read", 1, fd=3)
    assert offsets(run(spool))[-1] == (None, 0)


def test_a_copy_leaves_both_positions_unknown(run: Run, spool: SpoolBuilder) -> None:
    """User memory decides whether it moves them; they are also unknown during the copy."""
    spool.call(58_000, 0, 10, "openat", 3, flags=O_RDWR).call(58_010, 0, 10, "openat", 4, flags=O_RDWR)
    spool.fork(59_500, 0, 10, 11, 10, 10).enter(60_000, 0, 10, "copy_file_range", fd_in=3, fd_out=4, len=9)
    spool.call(60_010, 1, 11, "read", 1, fd=4).exit(60_020, 0, 10, "copy_file_range", 9)
    spool.call(60_030, 0, 10, "read", 1, fd=3).call(60_040, 0, 10, "read", 1, fd=4)
    tables = run(spool)
    assert rows(tables, "handle", "handle2", "bytes_request", "bytes_result")[3] == ("h0", "h1", 9, 9)
    assert [offsets(tables)[index] for index in (2, 4, 5)] == [(None, 0)] * 3


def test_a_lost_exit_leaves_the_position_unknown(run: Run, spool: SpoolBuilder) -> None:
    """The call in flight has its offset; the bytes that it moved are unknown."""
    spool.call(60_000, 0, 10, "openat", 3, flags=O_RDWR).enter(60_010, 0, 10, "read", fd=3)
    assert offsets(run(spool.call(60_020, 0, 10, "read", 1, fd=3)))[1:] == [(0, 2), (None, 0)]


def test_a_stranger_who_moves_the_position_is_found_out(run: Run, spool: SpoolBuilder) -> None:
    """A fact shows another position than the one followed: unknown from then on, whatever is sought."""
    spool.call(60_000, 0, 10, "openat", 3, flags=O_RDWR).call(60_010, 0, 10, "read", 10, fd=3)
    spool.fact_fd(70_000, 10, 3, b"/a", position=99).call(80_000, 0, 10, "read", 1, fd=3)
    spool.call(80_010, 0, 10, "lseek", 5, fd=3, offset=5).call(80_020, 0, 10, "read", 1, fd=3)
    found = offsets(run(spool))
    assert [found[index] for index in (1, 2, 4)] == [(0, 2), (None, 0), (None, 0)]


def test_pipes_have_no_position(run: Run, spool: SpoolBuilder) -> None:
    """Nor have sockets and character devices."""
    spool.fact_fd(40_000, 10, 0, b"pipe:[5]", mode=0o010600, position=0)
    assert (
        offsets(run(spool.call(60_000, 0, 10, "read", 1, fd=0).call(60_010, 0, 10, "read", 1, fd=0))) == [(None, 0)] * 2
    )


def test_minus_one_is_the_position_to_preadv2_only(run: Run, spool: SpoolBuilder) -> None:
    """To pread64 it is an offset no file has: the call fails, and its row has none."""
    spool.call(60_000, 0, 10, "openat", 3, flags=O_RDWR).call(60_010, 0, 10, "read", 70, fd=3, count=100)
    spool.call(60_020, 0, 10, "pread64", -22, fd=3, pos=-1).call(60_030, 0, 10, "preadv2", 3, fd=3, pos_l=-1)
    assert offsets(run(spool))[1:] == [(0, 2), (None, 0), (70, 2)]


def test_an_append_ignores_the_offset(run: Run, spool: SpoolBuilder) -> None:
    """Linux writes at the end, whatever pwrite's offset is (pwrite(2), BUGS); reads use theirs."""
    spool.call(60_000, 0, 10, "openat", 3, flags=O_RDWR | O_APPEND)
    spool.call(60_010, 0, 10, "pwrite64", 9, fd=3, pos=5).call(60_020, 0, 10, "pread64", 9, fd=3, pos=5)
    assert offsets(run(spool))[1:] == [(None, 0), (5, 1)]


def test_a_writes_own_flags_prevail_over_the_files(run: Run, tmp_path: Path) -> None:
    """RWF_APPEND (0x10) appends through any descriptor, RWF_NOAPPEND (0x20) through none. No read appends."""
    calls = ("openat", "pwritev2", "preadv2")
    spool = SpoolBuilder(tmp_path / "spool", start_ns=50_000, calls=calls).fact_task(1_000, 10, 10)
    for fd, flags in ((3, O_RDWR), (4, O_RDWR | O_APPEND)):
        spool.call(60_000 + fd, 0, 10, "openat", fd, flags=flags)
    expected: list[tuple[int | None, int]] = []
    time = 60_010
    for fd, flags, at, found in (
        (3, 0x10, 100, (None, 0)), (3, 0, 100, (100, 1)), (4, 0x20, 100, (100, 1)), (4, 0x10, 100, (None, 0)),
        (3, 0, -1, (0, 2)), (3, 0x10, -1, (None, 0)), (3, 0, -1, (None, 0)), (4, 0x20, -1, (0, 2)),
        (4, 0x20, -1, (7, 2)), (4, 0, -1, (None, 0)),
    ):  # fmt: skip
        spool.call(time, 0, 10, "pwritev2", 7, fd=fd, vlen=1, pos_l=at, flags=flags)
        expected.append(found)
        time += 10
    spool.call(time, 0, 10, "preadv2", 7, fd=3, vlen=1, pos_l=50, flags=0x10)
    assert offsets(run(spool))[2:] == [*expected, (50, 1)]


def test_set_flags_is_an_event_of_the_handle(run: Run, spool: SpoolBuilder) -> None:
    """F_SETFL tells the new status flags, and ends or begins appending."""
    spool.call(60_000, 0, 10, "openat", 3, flags=O_RDWR).call(60_010, 0, 10, "fcntl", 0, fd=3, cmd=4, arg=O_APPEND)
    tables = run(spool.call(60_020, 0, 10, "write", 5, fd=3).call(60_030, 0, 10, "fcntl", -9, fd=3, cmd=4, arg=0))
    assert rows(tables, "before", "time_ns", "handle", "kind", "flags", table="handle_events") == [
        (2, 60_011, "h0", 1, O_APPEND)
    ]
    assert offsets(tables)[2] == (None, 0)


def test_a_child_process_of_a_thread_with_its_own_table_copies_that(run: Run, spool: SpoolBuilder) -> None:
    """Tables belong to threads, not to processes."""
    spool.call(60_000, 0, 10, "openat", 3).fork(60_010, 0, 10, 11, 10, 10)
    spool.call(60_020, 0, 11, "unshare", unshare_flags=0x400).call(60_030, 0, 11, "close", fd=3)
    spool.fork(60_040, 0, 12, 12, 10, 11).call(60_050, 1, 12, "read", EBADF, fd=3)
    assert rows(run(spool), "call", "handle")[-1] == ("read", None)


def test_a_copy_from_a_descriptor_to_itself_has_one_handle(run: Run, spool: SpoolBuilder) -> None:
    """Also if its number has got another one by the end of the copy."""
    spool.fork(59_000, 0, 10, 11, 10, 10).enter(59_500, 0, 10, "dup", fildes=5)
    spool.enter(60_000, 1, 11, "copy_file_range", fd_in=3, fd_out=3, len=9).exit(60_010, 0, 10, "dup", 3)
    tables = run(spool.exit(60_020, 1, 11, "copy_file_range", 9))
    ((handle, written),) = [row[1:] for row in rows(tables, "call", "handle", "handle2") if row[0] == "copy_file_range"]
    assert handle == written
    assert handle is not None
