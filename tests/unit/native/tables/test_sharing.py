"""Which threads share a table of descriptors, if only the tables' addresses in facts show it. Both back ends."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from build.filestory import (  # noqa: F401 - the fixtures `engine` and `story`
    Story,
    X,
    Y,
    argument,
    each_engine,
    returned,
    story_of_a_process,
    told,
)
from reference.engines import rows

if TYPE_CHECKING:
    from reference.compare import Tables

ONE, OTHER = 0xFFFF_8880_0000_0100, 0xFFFF_8880_0000_0200
"""Addresses of tables."""


def files(tables: Tables, tid: int = 10) -> list[tuple[str, bytes | None]]:
    """The files of a thread's calls."""
    named = {f"h{number}": row["file"] and row["file"][-1] for number, row in enumerate(tables["handles"])}
    return [(row["call"], named.get(row["handle"])) for row in tables["operations"] if row["tid"] == tid]


def race(story: Story, tid: int, *, table: int) -> Story:
    """While 10 reads from 3, which is ``/old``, another thread closes that number and opens it anew."""
    at = {"table": table}
    story.does(60_000, 10, "openat", 3, returned(3, b"/old", table=ONE)).begins(70_000, 10, "read", fd=3, count=1)
    story.sees(71_000, tid, argument(3, b"/old", **at)).does(71_000, tid, "close", 0, fd=3)
    story.does(72_000, tid, "openat", 3, returned(3, b"/new", Y, **at))
    return story.ends(
        80_000, 10, "read", 1, argument(3, b"/new" if table == ONE else b"/old", Y if table == ONE else X, table=ONE)
    )


@pytest.mark.parametrize(("table", "expected"), [(ONE, None), (OTHER, b"/old")])
@pytest.mark.parametrize("pid", [11, 12])
def test_a_process_may_share_the_table_without_saying_so(
    engine: str, story: Story, pid: int, table: int, expected: bytes | None
) -> None:
    """clone3 has its flags in the program's memory, and a thread's birth may be lost: the table's address tells."""
    if pid == 11:
        story.fork(65_000, 0, pid, pid, 10, 10)
    tables = told(engine, race(story, pid, table=table))
    assert files(tables) == [("openat", b"/old"), ("read", expected)]
    assert files(tables, pid)[1] == ("openat", b"/new")


@pytest.mark.parametrize(("table", "expected"), [(ONE, b"/new"), (OTHER, b"/old")])
def test_a_thread_may_have_a_table_of_its_own(engine: str, story: Story, table: int, expected: bytes) -> None:
    """Its unshare was lost: its closes and opens do not change the others' table."""
    story.fork(55_000, 0, 10, 11, 10, 10).does(60_000, 10, "openat", 3, returned(3, b"/old", table=ONE))
    story.sees(71_000, 11, argument(3, b"/old", table=table)).does(71_000, 11, "close", 0, fd=3)
    story.does(72_000, 11, "openat", 3, returned(3, b"/new", Y, table=table))
    story.does(80_000, 10, "read", 1, fd=3, count=1)
    assert files(told(engine, story)) == [("openat", b"/old"), ("read", expected)]


def test_a_copy_has_an_address_of_its_own(engine: str, story: Story) -> None:
    """A child's table is known by what its parent had, and by its own address from then on."""
    story.does(60_000, 10, "openat", 3, returned(3, b"/old", table=ONE)).fork(65_000, 0, 11, 11, 10, 10)
    story.does(70_000, 11, "read", 1, argument(3, b"/old", table=OTHER), fd=3, count=1)
    story.does(75_000, 11, "fsync", 0, fd=3).does(80_000, 10, "fsync", 0, fd=3)
    tables = told(engine, story)
    assert files(tables, 11) == [("read", b"/old"), ("fsync", b"/old")]
    assert files(tables)[-1] == ("fsync", b"/old")


def family(story: Story) -> Story:
    """10 has ``/a`` and ``/b`` open; 11 shares its table, but seems to have a copy."""
    story.does(60_000, 10, "openat", 3, returned(3, b"/a", X, table=ONE))
    story.does(61_000, 10, "openat", 4, returned(4, b"/b", Y, table=ONE))
    story.fork(65_000, 0, 11, 11, 10, 10)
    return story


def test_what_nobody_touched_stays_known(engine: str, story: Story) -> None:
    """Programs do not repeat facts: only the call that showed the sharing has no file."""
    family(story).does(70_000, 11, "read", 1, argument(3, b"/a", table=ONE), fd=3, count=1)
    story.does(75_000, 11, "read", 1, fd=3, count=1).does(76_000, 11, "fsync", fd=4)
    story.does(80_000, 10, "read", 1, fd=4, count=1).does(81_000, 10, "fsync", fd=3)
    story.does(85_000, 11, "close", 0, fd=4).does(90_000, 10, "fsync", 0, fd=4)
    tables = told(engine, story)
    assert files(tables, 11) == [("read", None), ("read", b"/a"), ("fsync", b"/b"), ("close", b"/b")]
    assert files(tables)[2:] == [("read", b"/b"), ("fsync", b"/a"), ("fsync", None)]


def test_it_does_not_matter_who_tells_first(engine: str, story: Story) -> None:
    """The child's fact comes first: the parent's open files stay known."""
    for fd, path in ((3, b"/a"), (4, b"/b")):
        story.fact_fd(40_000, 10, fd, path, open_flags=2)
    story.does(60_000, 10, "fsync", fd=3).does(61_000, 10, "fsync", fd=4).fork(65_000, 0, 11, 11, 10, 10)
    story.does(70_000, 11, "read", 1, argument(3, b"/a", table=ONE), fd=3, count=1)
    story.does(75_000, 10, "read", 1, argument(3, b"/a", table=ONE), fd=3, count=1)
    story.does(80_000, 10, "fsync", fd=3).does(81_000, 10, "fsync", fd=4)
    tables = told(engine, story)
    assert files(tables)[2:] == [("read", None), ("fsync", b"/a"), ("fsync", b"/b")]
    used = [row["handle"] for row in tables["operations"] if row["call"] == "fsync"]
    assert used[2:] == used[:2]


@pytest.mark.parametrize("copy", [True, False])
def test_what_one_has_changed_is_not_known(engine: str, story: Story, *, copy: bool) -> None:
    """Before anybody knew that it was the other's, too."""
    changer = 11 if copy else 10
    story.does(60_000, 10, "openat", 3, returned(3, b"/a", X, table=ONE))
    story.does(61_000, 10, "openat", 4, returned(4, b"/b", Y, table=ONE)).fork(65_000, 0, 11, 11, 10, 10)
    story.does(66_000, changer, "fcntl", 0, fd=4, cmd=2, arg=1)
    story.does(67_000, changer, "close_range", fd=3, max_fd=3, flags=0)
    story.does(70_000, 11, "read", 1, argument(5, b"/c", 0x3000, table=ONE), fd=5, count=1)
    for at, tid in ((80_000, 10), (85_000, 11)):
        story.does(at, tid, "fsync", 0, fd=3).does(at + 1_000, tid, "fsync", 0, fd=4)
    tables = told(engine, story)
    assert [name for call, name in files(tables) + files(tables, 11) if call == "fsync"] == [None] * 4


@pytest.mark.parametrize(
    ("call", "args", "result"),
    [("dup2", {"oldfd": 4, "newfd": 3}, 3), ("close_range", {"fd": 3, "max_fd": 3, "flags": 0}, 0)],
)
def test_who_is_about_to_end_a_descriptor_goes_on(
    engine: str, story: Story, call: str, args: dict[str, int], result: int
) -> None:
    """A thread of the child was ending one when another thread's fact showed their table."""
    family(story).fork(66_000, 0, 11, 12, 11, 11).begins(67_000, 12, call, **args)
    story.does(68_000, 11, "read", 1, argument(4, b"/b", Y, table=ONE), fd=4, count=1)
    story.does(69_000, 11, "fsync", fd=3).ends(70_000, 12, call, result).does(71_000, 11, "fsync", fd=3)
    assert files(told(engine, story), 11) == [("read", None), ("fsync", None), ("fsync", None)]


def test_the_address_of_what_is_gone_is_used_again(engine: str, story: Story) -> None:
    """By the next process: it shares nothing with the one before."""
    story.fork(51_000, 0, 11, 11, 10, 10).does(60_000, 11, "openat", 3, returned(3, b"/old", table=ONE))
    story.task_exit(65_000, 0, 11, 11).fork(66_000, 0, 12, 12, 10, 10)
    story.does(70_000, 12, "openat", 3, returned(3, b"/new", Y, table=ONE)).does(80_000, 12, "fsync", 0, fd=3)
    tables = told(engine, story)
    assert files(tables, 12) == [("openat", b"/new"), ("fsync", b"/new")]
    assert [row[0] for row in rows(tables, "close_time_ns", table="handles")] == [65_000, None]
