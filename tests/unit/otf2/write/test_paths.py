"""The sources of files' names, and the paths of calls that return no descriptor."""

from __future__ import annotations

import errno
from typing import Any

import pytest
from build.otf2_batches import BatchMaker
from build.otf2_written import attributes

from lo2io.model import UNKNOWN_I64

Write = Any
T = 2_000_000


def paths_of(written: Any, location: str = "thread fio 100") -> list[tuple[str, dict[str, Any]]]:
    """Each call that was left, with its attributes."""
    return [(event.region.name, attributes(event)) for event in written.find("Leave", location)]


@pytest.mark.parametrize(
    ("path", "directory", "whole"),
    [
        (b"/etc/passwd", b"/", "/etc/passwd"),
        (b"/etc/passwd", b"", "/etc/passwd"),
        (b"/etc/passwd", b"/srv/jail", "/srv/jail/etc/passwd"),
        (b"a/b", b"/home", "/home/a/b"),
        (b"a", b"/", "/a"),
        (b"a", b"", "a"),
        (b"", b"/home", "/home"),
        (b"../\xff", b"/\xfe", "/\\xfe/../\\xff"),
        (b"d/" * 2040, b"/" + b"e/" * 2000 + b"e", "/" + "e/" * 2001 + "d/" * 2040),
    ],
)
def test_a_path_stands_behind_its_directory(
    write: Write, maker: BatchMaker, path: bytes, directory: bytes, whole: str
) -> None:
    """An absolute one after the thread's root, if that is not the root; where the start is unknown as it was given."""
    maker.task(0)
    maker.path(maker.call("newstat", T, T + 10), path, directory)
    assert paths_of(write(maker.make())) == [("stat", {"Path": whole})]


def test_both_paths_of_a_call_and_its_error(write: Write, maker: BatchMaker) -> None:
    """A rename has two, a failed call its errno as well, and what could not be read is not made up."""
    maker.task(0)
    first = maker.call("rename", T, T + 10, error=errno.ENOENT)
    maker.path(first, b"old", b"/d")
    maker.path(first, b"new", b"/d", place=1)
    second = maker.call("rename", T + 20, T + 30)
    maker.path(second, None)
    maker.path(second, b"new", b"/d", place=1)
    maker.path(maker.call("newstat", T + 40, T + 50), b"", b"")
    maker.call("newstat", T + 60, T + 70)
    assert paths_of(write(maker.make())) == [
        ("rename", {"errno": errno.ENOENT, "Path": "/d/old", "Path 2": "/d/new"}),
        ("rename", {"Path 2": "/d/new"}),
        ("stat", {}),
        ("stat", {}),
    ]


def test_an_open_has_a_path_where_it_failed(write: Write, maker: BatchMaker) -> None:
    """A successful one's handle has the name."""
    maker.task(0)
    maker.row("handles", handle=0, fd=3)
    maker.path(maker.call("openat", T, T + 10, fd=-1, error=errno.ENOENT), b"/missing", b"/")
    maker.call("openat", T + 20, T + 30, handle=0, fd=3)
    assert paths_of(write(maker.make())) == [
        ("openat", {"errno": errno.ENOENT, "Path": "/missing"}),
        ("openat", {}),
    ]


def test_paths_of_the_next_batch(write: Write, maker: BatchMaker) -> None:
    """A batch may end between a call and its paths, or between the two: they come to their call all the same."""
    for task in range(3):
        maker.task(task)
    stat = maker.call("newstat", T, T + 10)
    rename = maker.call("rename", T, T + 20, task=1)
    maker.path(rename, b"old", b"/d")
    lost = maker.call("newstat", T, T + 30, task=2)
    following = BatchMaker(first_id=lost + 2)
    following.first_operation = 3
    following.path(stat, b"s", b"/d")
    following.path(rename, b"new", b"/d", place=1)
    following.path(following.call("newstat", T + 40, T + 50), b"t", b"/d")
    following.call("newstat", T + 40, T + 50, task=1)
    last = BatchMaker(first_id=lost + 10)
    last.first_operation = 5
    written = write(maker.make(), following.make(), last.make())
    assert paths_of(written) == [("stat", {"Path": "/d/s"}), ("stat", {"Path": "/d/t"})]
    assert paths_of(written, "thread fio 101") == [("rename", {"Path": "/d/old", "Path 2": "/d/new"}), ("stat", {})]
    assert paths_of(written, "thread fio 102") == [("stat", {})]
    assert [time for _, time in written.shape()] == [T, T + 10, T + 40, T + 50]


def test_a_call_is_left_at_its_own_time(write: Write, before: BatchMaker) -> None:
    """Whatever its thread does before its path could come: a request of a ring, an end of a descriptor, nothing."""
    before.row("rings", ring=0)
    before.call("newstat", T, T + 10)
    before.ring_event(1001, 0, T + 20, handle=0)
    before.ring_event(1001, 1, T + 20, handle=0)
    before.ring_event(1001, 2, T + 30, handle=0, bytes=1, queued_ns=UNKNOWN_I64)
    before.call("newstat", T + 40, T + 50)
    before.row("handle_events", before=3, time_ns=T + 60, handle=0)
    assert write(before.make()).shape() == [
        ("+stat", T),
        ("-stat", T + 10),
        ("OperationBegin", T + 20),
        ("OperationIssued", T + 20),
        ("OperationComplete", T + 30),
        ("+stat", T + 40),
        ("-stat", T + 50),
        ("DestroyHandle", T + 60),
    ]


def test_equal_paths_are_one_string(write: Write, maker: BatchMaker) -> None:
    """A million looks for one missing file are no million strings."""
    maker.task(0)
    for turn in range(100):
        maker.path(maker.call("newstat", T + 20 * turn, T + 20 * turn + 10), b"x/%d" % (turn % 2), b"/d")
    written = write(maker.make())
    assert [found["Path"] for _, found in paths_of(written)] == ["/d/x/0", "/d/x/1"] * 50
    strings = [line for line in written.printed("-G").splitlines() if line.startswith("STRING")]
    assert sum('"/d/x/' in line for line in strings) == 2


@pytest.mark.parametrize(("source", "word"), [(0, None), (1, "proc"), (2, "call"), (3, "kernel")])
def test_a_file_says_who_proved_its_name(write: Write, maker: BatchMaker, source: int, word: str | None) -> None:
    """Like the table of files; nothing if that is unknown."""
    maker.task(0)
    maker.file(0, b"/home/a", name_source=source)
    maker.row("handles", handle=0, fd=3, origin=3, file=0)
    maker.call("read", T, T + 1, handle=0)
    text = write(maker.make()).printed("-G")
    lines = [line for line in text.splitlines() if line.startswith("IO_FILE_PROPERTY") and '"Name Source"' in line]
    assert len(lines) == (word is not None)
    assert word is None or f'Value: "{word}" <' in lines[0]
