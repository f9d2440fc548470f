"""BPF programs' facts about files (docs/explanation/rules/names.md), with both back ends."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from build.filestory import (  # noqa: F401 - the fixtures `engine` and `story`
    ANON,
    BTRFS,
    DMA_BUF,
    HUGETLBFS,
    KERNEL,
    NSFS,
    PIDFS,
    PIPEFS,
    PROC,
    PSEUDO,
    SECRETMEM,
    SOCKFS,
    TMPFS,
    Story,
    X,
    Y,
    argument,
    each_engine,
    names,
    returned,
    story_of_a_process,
    told,
)
from build.kernelwriter import DELETED, MOVED, WHOLE
from reference.engines import BEFORE, O_APPEND, O_RDWR, UNSEEN, rows

from lo2io.catalog.catalog import load_catalog
from lo2io.convert.engine import Engine
from lo2io.spool.reader import SpoolReader

if TYPE_CHECKING:
    from pathlib import Path


MQUEUE = 0x19800202


# ---- the content of a fact ----


def test_an_open_is_named(engine: str, story: Story) -> None:
    """By what its result stands for, with all that tells the file from others."""
    sight = returned(3, b"/var/log/x", mode=0o100600, device=8 << 20 | 259, mount=31, links=2)
    tables = told(engine, story.does(60_000, 10, "openat", 3, sight))
    assert rows(tables, "name_source", "file", table="handles") == [
        (KERNEL, (0o100600, 0x10_0803, X >> 8, 31, b"/var/log/x"))
    ]
    assert tables["totals"]["nr_files_told"] == 1


def test_generation_and_links_are_columns_of_the_file(story: Story) -> None:
    """Only the generation tells apart two files that had the same inode and name, one after another."""
    story.does(60_000, 10, "openat", 3, returned(3, b"/f", X, inode=5, generation=2**32 - 1, links=0))
    story.does(60_010, 10, "openat", 4, returned(4, b"/f", Y, inode=5, generation=8))
    story.fact_fd(70_000, 10, 5, b"/g", inode=6)
    files = [
        row
        for batch in Engine(SpoolReader(story.write()), load_catalog()).batches()
        for row in zip(*(batch.files[c].tolist() for c in ("inode", "generation", "links", "name_source")), strict=True)
    ]
    unknown = 2**32 - 1
    assert files == [(5, 2**32 - 1, 0, KERNEL), (5, 8, 1, KERNEL), (6, -(2**63), unknown, PROC)]


def test_a_descriptor_nobody_saw_opened_is_named_by_the_first_call_on_it(engine: str, story: Story) -> None:
    """It appeared unseen: over a socket, by pipe(2), or before the recording."""
    story.does(60_000, 10, "read", 5, argument(7, b"/a/b"), fd=7).does(60_010, 10, "read", 5, fd=7)
    tables = told(engine, story)
    assert rows(tables, "handle", "first_use") == [("h0", 1), ("h0", 0)]
    assert rows(tables, "origin", "name_source", table="handles") == [(UNSEEN, KERNEL)]
    assert names(tables) == [b"/a/b"]


def test_duplicates_share_the_name(engine: str, story: Story) -> None:
    """The name is the description's; the fact about the duplicate has the same one."""
    story.does(60_000, 10, "openat", 3, returned(3, b"/x", flags=0))
    story.does(60_010, 10, "dup", 5, returned(5, b"/x"), fildes=3)
    tables = told(engine, story)
    assert names(tables) == [b"/x", b"/x"]
    assert [row["shares"] for row in tables["handles"]] == [["h0", "h1"]] * 2


def test_a_childs_copy_has_its_parents_name(engine: str, story: Story) -> None:
    """The description is the same, so nothing has changed."""
    story.does(60_000, 10, "openat", 3, returned(3, b"/x"))
    story.fork(60_020, 0, 21, 21, 10, 10)
    story.does(60_030, 21, "read", 5, argument(3, b"/x"), fd=3)
    tables = told(engine, story)
    assert names(tables) == [b"/x", b"/x"]
    assert rows(tables, "origin", table="handles") == [(0,), (2,)]


def test_the_look_before_a_close_names_what_was_never_used(engine: str, story: Story) -> None:
    """After the call it would be too late."""
    story.sees(60_000, 10, argument(3, b"/x")).does(60_000 + (story.backend == "perf"), 10, "close", 0, fd=3)
    tables = told(engine, story)
    assert rows(tables, "handle", "closes") == [("h0", 1)]
    assert names(tables) == [b"/x"]


def test_both_descriptors_of_a_copy_are_named(engine: str, story: Story) -> None:
    """Each by its own fact."""
    sights = argument(3, b"/from"), argument(4, b"/to", Y)
    tables = told(engine, story.does(60_000, 10, "copy_file_range", 9, *sights, fd_in=3, fd_out=4, len=9))
    assert rows(tables, "handle", "handle2") == [("h0", "h1")]
    assert names(tables) == [b"/from", b"/to"]


def test_the_kernels_name_beats_the_look_at_proc(engine: str, story: Story) -> None:
    """Whichever comes first."""
    story.fact_fd(40_000, 10, 3, b"/old").does(60_000, 10, "read", 1, argument(3, b"/new"), fd=3)
    story.fact_fd(70_000, 10, 3, b"/later")
    tables = told(engine, story)
    assert rows(tables, "origin", "name_source", table="handles") == [(BEFORE, KERNEL)]
    assert names(tables) == [b"/new"]


def test_flags_and_position_are_learnt(engine: str, story: Story) -> None:
    """The open was not seen. The close-on-exec bit is not among f_flags."""
    story.does(60_000, 10, "newfstat", 0, argument(3, b"/x", open_flags=O_RDWR, position=100), fd=3)
    story.does(60_010, 10, "read", 5, fd=3)
    tables = told(engine, story)
    assert rows(tables, "offset_bytes", "offset_source")[1] == (100, 2)
    assert rows(tables, "open_flags", "close_on_exec", table="handles") == [(O_RDWR, 0)]


@pytest.mark.parametrize(("magic", "offsets"), [(TMPFS, [None, 10]), (MQUEUE, [None, None])])
def test_messages_have_no_offset(engine: str, story: Story, magic: int, offsets: list[int | None]) -> None:
    """A message queue looks like a regular file, but has no position."""
    story.does(60_000, 10, "newfstat", 0, argument(3, b"/q", magic=magic, position=0), fd=3)
    story.does(60_010, 10, "lseek", 10, fd=3, offset=10, whence=0).does(60_020, 10, "read", 10, fd=3, count=10)
    tables = told(engine, story)
    assert [row["offset_bytes"] for row in tables["operations"] if row["call"] != "lseek"] == offsets


def test_appending_is_learnt(engine: str, story: Story) -> None:
    """A pwrite on it writes at an unknown offset."""
    story.does(60_000, 10, "newfstat", 0, argument(3, b"/x", open_flags=O_RDWR | O_APPEND), fd=3)
    tables = told(engine, story.does(60_010, 10, "pwrite64", 5, fd=3, pos=4096, count=5))
    assert tables["operations"][1]["offset_bytes"] is None


def test_another_position_than_the_one_followed_refutes_it(engine: str, story: Story) -> None:
    """A process outside of the trace moves it."""
    story.does(60_000, 10, "openat", 3, returned(3, b"/x", position=0), flags=O_RDWR)
    story.does(60_010, 10, "newfstat", 0, argument(3, b"/x", position=77), fd=3).does(60_020, 10, "read", 5, fd=3)
    assert told(engine, story)["operations"][2]["offset_bytes"] is None


def test_a_device_of_btrfs_is_not_told(engine: str, story: Story) -> None:
    """On btrfs, s_dev differs from stat(2)."""
    tables = told(engine, story.does(60_000, 10, "openat", 3, returned(3, b"/x", magic=BTRFS, device=47)))
    assert tables["handles"][0]["file"][1:3] == (0, X >> 8)


# ---- names ----

DEEP = b"/" + b"/".join([b"directory"] * 500)
NAMES = [
    (returned(3, b"/"), b"/"),
    (returned(3, b"/a/b/c"), b"/a/b/c"),
    (returned(3, b"/tmp/gone", flags=WHOLE | DELETED, links=0), b"/tmp/gone (deleted)"),
    (returned(3, b"/new\nline/\xff\xfe"), b"/new\nline/\xff\xfe"),
    (returned(3, DEEP), DEEP),
    (returned(3, b"/a", flags=WHOLE | MOVED), None),
    (returned(3, b"/a", flags=0), None),
    (returned(3, b"", flags=PSEUDO, magic=PIPEFS, inode=2**40, mode=0o010600), b"pipe:[1099511627776]"),
    (returned(3, b"/in/fifo", mode=0o010600), b"/in/fifo"),
    (returned(3, b"TCP", flags=PSEUDO, magic=SOCKFS, inode=9, mode=0o140777), b"socket:[9]"),
    (returned(3, b"[eventfd]", flags=PSEUDO, magic=ANON), b"anon_inode:[eventfd]"),
    (returned(3, b"inotify", flags=PSEUDO, magic=ANON), b"anon_inode:inotify"),
    (returned(3, b"", flags=PSEUDO, magic=ANON), None),
    (returned(3, b"mnt", flags=PSEUDO, magic=NSFS, inode=4026531840), b"mnt:[4026531840]"),
    (returned(3, b"", flags=PSEUDO, magic=NSFS), None),
    (returned(3, b"", flags=PSEUDO, magic=PIDFS), b"anon_inode:[pidfd]"),
    (returned(3, b"memfd:x y", flags=PSEUDO, magic=TMPFS), b"/memfd:x y (deleted)"),
    (returned(3, b"memfd:", flags=PSEUDO | DELETED, magic=HUGETLBFS), b"/memfd: (deleted)"),
    (returned(3, b"secretmem", flags=PSEUDO, magic=SECRETMEM), b"/secretmem (deleted)"),
    (returned(3, b"dmabuf", flags=PSEUDO, magic=DMA_BUF), None),
    (returned(3, b"thing", flags=PSEUDO, magic=0x1234), None),
]


@pytest.mark.parametrize(("sight", "expected"), NAMES)
def test_names_are_those_of_proc(engine: str, tmp_path: Path, sight: Any, expected: bytes | None) -> None:
    """The target of the link in /proc/PID/fd, or none."""
    story = Story(tmp_path / "spool", "bpf")
    story.fact_task(1_000, 10, 10)
    tables = told(engine, story.does(60_000, 10, "openat", 3, sight))
    assert names(tables) == [expected]
    assert rows(tables, "name_source", table="handles") == [(KERNEL if expected else 0,)]


@pytest.mark.parametrize("hostile", [[b"a/b"], [b"", b"a"], [b"a", b""], [b""]])
@pytest.mark.parametrize("flags", [WHOLE, PSEUDO])
def test_names_no_directory_can_hold_name_nothing(
    engine: str, tmp_path: Path, hostile: list[bytes], flags: int
) -> None:
    """A spool may hold anything."""
    story = Story(tmp_path / "spool", "bpf")
    story.fact_task(1_000, 10, 10)
    story.kernel_call(60_000, 0, 10, "openat", 3)
    story.kernel_file(60_001, 0, 10, 3, hostile, flags=flags, magic=TMPFS)
    found = names(told(engine, story))[0]
    assert found is None or (flags == PSEUDO and hostile == [b"a/b"] and found == b"/a/b (deleted)")


def test_a_name_that_was_moving_comes_with_a_later_look(engine: str, story: Story) -> None:
    """The file is known meanwhile, so another one in its place would be noticed."""
    story.does(60_000, 10, "openat", 3, returned(3, b"/x", flags=WHOLE | MOVED))
    story.does(60_010, 10, "read", 1, argument(3, b"/y"), fd=3)
    tables = told(engine, story)
    assert rows(tables, "handle") == [("h0",), ("h0",)]
    assert names(tables) == [b"/y"]
