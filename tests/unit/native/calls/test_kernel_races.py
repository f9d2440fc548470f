"""Descriptors that change unseen, and races for them: no file gets the name of another. Both back ends."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest
from build.filestory import (  # noqa: F401 - the fixtures `engine` and `story`
    Story,
    X,
    Y,
    Z,
    argument,
    each_engine,
    names,
    returned,
    second_thread,
    story_of_a_process,
    told,
)
from build.perfwriter import DEFAULT_CALLS
from reference.engines import EBADF, O_CLOEXEC, O_RDWR, UNSEEN, rows

from lo2io.model import Absence

if TYPE_CHECKING:
    from pathlib import Path

SHARE_FILES = 0x400


# ---- descriptors that changed unseen ----


@pytest.mark.parametrize("other", [{"file": Y}, {"file": X, "inode": 99}, {"file": X, "generation": 99}])
def test_another_file_in_the_slot_is_another_handle(engine: str, story: Story, other: dict[str, int]) -> None:
    """The call that shows it has the new handle already. The old one ended at an unknown time."""
    story.does(60_000, 10, "openat", 3, returned(3, b"/x"))
    story.does(60_010, 10, "read", 1, argument(3, b"/y", **other), fd=3).does(60_020, 10, "read", 1, fd=3)
    tables = told(engine, story)
    assert rows(tables, "handle", "first_use") == [("h0", 0), ("h1", 1), ("h1", 0)]
    assert rows(tables, "origin", "close_time_ns", table="handles") == [(0, None), (UNSEEN, None)]
    assert names(tables) == [b"/x", b"/y"]


def test_a_followed_position_is_the_old_files(engine: str, story: Story) -> None:
    """The call that moves another one tells nothing of the first."""
    story.does(60_000, 10, "openat", 3, returned(3, b"/x"), flags=O_RDWR)
    story.does(60_010, 10, "read", 10, argument(3, b"/y", Y), fd=3).does(60_020, 10, "read", 10, fd=3)
    assert rows(told(engine, story), "offset_bytes") == [(None,), (None,), (None,)]


def test_a_duplicate_of_what_changed_unseen(engine: str, story: Story) -> None:
    """The fact about the source comes first: the duplicate is one of the new file."""
    story.does(60_000, 10, "openat", 3, returned(3, b"/x"))
    story.does(60_010, 10, "dup", 5, returned(5, b"/y", Y), argument(3, b"/y", Y), fildes=3)
    tables = told(engine, story)
    assert rows(tables, "handle", "handle2") == [("h0", None), ("h1", "h2")]
    assert names(tables) == [b"/x", b"/y", b"/y"]


def test_a_duplicate_that_is_of_another_file_after_all(engine: str, story: Story) -> None:
    """Without a fact about its source: its handle is none of the source's description."""
    story.does(60_000, 10, "openat", 3, returned(3, b"/x"))
    story.does(60_010, 10, "dup", 5, returned(5, b"/y", Y), fildes=3).does(60_020, 10, "read", 1, fd=5)
    tables = told(engine, story)
    assert rows(tables, "handle", "handle2", "first_use") == [("h0", None, 0), (None, "h1", 2), ("h1", None, 0)]
    assert rows(tables, "origin", table="handles") == [(0,), (UNSEEN,)]
    assert names(tables) == [b"/x", b"/y"]


def test_exec_ends_what_is_close_on_exec(engine: str, story: Story) -> None:
    """The number's next file is another one."""
    story.does(60_000, 10, "openat", 3, returned(3, b"/x"), flags=O_CLOEXEC)
    story.comm(60_020, 0, 10, 10, b"new", is_exec=True)
    story.does(60_030, 10, "read", 1, argument(3, b"/y", X), fd=3)
    tables = told(engine, story)
    assert rows(tables, "handle") == [("h0",), ("h1",)]
    assert names(tables) == [b"/x", b"/y"]


# ---- races ----


def test_exchanged_while_the_call_was_under_way(engine: str, story: Story) -> None:
    """Read of one file; by its exit its number is another's."""
    second_thread(story).does(60_000, 10, "openat", 3, returned(3, b"/x", flags=0), flags=O_RDWR)
    story.begins(60_010, 10, "read", fd=3)
    story.does(60_020, 11, "close", 0, fd=3).does(60_030, 11, "openat", 3, returned(3, b"/y", Y))
    story.ends(60_040, 10, "read", 1, argument(3, b"/y", Y))
    tables = told(engine, story)
    assert rows(tables, "call", "handle") == [("openat", "h0"), ("close", "h0"), ("openat", "h1"), ("read", None)]
    assert names(tables) == [None, b"/y"]
    assert tables["totals"]["nr_files_refused"] == 1


def test_exchanged_by_an_open_that_has_not_returned_yet(engine: str, story: Story) -> None:
    """The slot is empty as far as is known, and has changed inside of the call."""
    second_thread(story).does(60_000, 10, "openat", 3)
    story.begins(60_010, 10, "read", fd=3).does(60_020, 11, "close", 0, fd=3).begins(60_030, 11, "openat")
    story.ends(60_040, 10, "read", 1, argument(3, b"/y", Y)).ends(60_050, 11, "openat", 3, returned(3, b"/y", Y))
    tables = told(engine, story)
    assert names(tables) == [None, b"/y"]
    assert rows(tables, "call", "handle") == [("openat", "h0"), ("close", "h0"), ("read", None), ("openat", "h1")]


def test_a_close_that_was_under_way_when_the_call_began(engine: str, story: Story) -> None:
    """The call met the closed file or its successor, which is unknown."""
    second_thread(story).does(60_000, 10, "openat", 3)
    story.begins(60_010, 11, "close", fd=3).begins(60_020, 10, "read", fd=3).ends(60_030, 11, "close")
    story.ends(60_050, 10, "read", 1, argument(3, b"/y", Y))
    tables = told(engine, story)
    assert rows(tables, "call", "handle") == [("openat", "h0"), ("close", "h0"), ("read", "h1")]
    assert names(tables) == [None, None]


def test_a_fresh_descriptor_closed_blindly_and_used_again(engine: str, story: Story) -> None:
    """Before its open has returned: the fact is about somebody else's file."""
    second_thread(story).begins(60_000, 10, "openat")
    story.does(60_010, 11, "close", 0, fd=3).does(60_020, 11, "openat", 3, returned(3, b"/y", Y))
    story.ends(60_030, 10, "openat", 3, returned(3, b"/y", Y))
    tables = told(engine, story)
    opened = {row["tid"]: row["handle"] for row in tables["operations"] if row["call"] == "openat"}
    assert names(tables)[int(opened[10][1:])] is None


def test_a_fresh_descriptor_closed_blindly_by_a_call_that_began_before(engine: str, story: Story) -> None:
    """Its close had nothing to close at its entry."""
    second_thread(story).begins(60_000, 11, "close", fd=3).begins(60_010, 10, "openat")
    story.ends(60_020, 11, "close").begins(60_022, 11, "openat")
    story.ends(60_030, 10, "openat", 3, returned(3, b"/y", Y))
    story.ends(60_040, 11, "openat", 3, returned(3, b"/y", Y))
    tables = told(engine, story)
    opened = {row["tid"]: row["handle"] for row in tables["operations"] if row["call"] == "openat"}
    assert names(tables)[int(opened[10][1:])] is None


def test_a_number_that_was_used_while_its_open_waited(engine: str, story: Story) -> None:
    """accept(2) waits long; others open and close meanwhile: the last to be seen left the number free."""
    second_thread(story).begins(60_000, 10, "openat")
    story.does(60_010, 11, "openat", 3, returned(3, b"/y", Y)).does(60_020, 11, "close", 0, fd=3)
    story.ends(60_030, 10, "openat", 3, returned(3, b"/x"))
    tables = told(engine, story)
    opened = {row["tid"]: row["handle"] for row in tables["operations"] if row["call"] == "openat"}
    assert {tid: names(tables)[int(handle[1:])] for tid, handle in opened.items()} == {10: b"/x", 11: b"/y"}


def test_a_number_taken_while_its_close_is_under_way(engine: str, story: Story) -> None:
    """The kernel frees it first: the close cannot end its successor."""
    second_thread(story).does(60_000, 11, "openat", 3, returned(3, b"/y", Y)).begins(60_010, 11, "close", fd=3)
    story.does(60_020, 10, "openat", 3, returned(3, b"/x")).ends(60_030, 11, "close")
    tables = told(engine, story)
    assert names(tables) == [b"/y", b"/x"]


@pytest.mark.parametrize("when", ["inside", "pending", "across"])
def test_dup2_over_a_fresh_descriptor(engine: str, story: Story, when: str) -> None:
    """It puts another file there at an unknown moment."""
    second_thread(story)
    begin, end = {"inside": (60_020, 60_024), "pending": (60_020, 60_090), "across": (60_000, 60_024)}[when]
    dup = {"oldfd": 8, "newfd": 3}
    events = [
        (begin, lambda t: story.begins(t, 11, "dup2", **dup)),
        (60_010, lambda t: story.begins(t, 10, "openat")),
        (60_030, lambda t: story.ends(t, 10, "openat", 3, returned(3, b"/y", Y))),
        (end, lambda t: story.ends(t, 11, "dup2", 3)),
    ]
    for time, act in sorted(events, key=lambda event: event[0]):
        act(time)
    tables = told(engine, story)
    opened = next(row["handle"] for row in tables["operations"] if row["call"] == "openat")
    assert names(tables)[int(opened[1:])] is None


def test_dup2_whose_end_nobody_saw(engine: str, story: Story) -> None:
    """Its thread was killed inside of it: a later look at its target names no earlier call."""
    second_thread(story).does(60_000, 10, "openat", 3, flags=O_RDWR)
    story.begins(60_010, 11, "dup2", oldfd=8, newfd=3)
    story.task_exit(60_020, 1, 10, 11)
    story.fact_fd(60_040, 10, 3, b"/y", begin=60_030, inode=5, mode=0o100600, position=0, open_flags=O_RDWR)
    story.does(60_050, 10, "read", 1, fd=3)
    tables = told(engine, story)
    opened, read = (
        next(row["handle"] for row in tables["operations"] if row["call"] == call) for call in ("openat", "read")
    )
    assert opened != read
    assert names(tables)[int(opened[1:])] is None


def test_dup2_itself_is_no_rival(engine: str, story: Story) -> None:
    """The file that it has put there has a name."""
    second_thread(story).does(60_000, 10, "openat", 3, returned(3, b"/x")).does(60_010, 10, "openat", 4)
    story.does(60_020, 10, "dup2", 4, returned(4, b"/x"), oldfd=3, newfd=4)
    tables = told(engine, story)
    assert names(tables) == [b"/x", None, b"/x"]
    assert tables["totals"]["nr_files_refused"] == 0


def test_a_copy_of_what_may_have_been_exchanged(engine: str, story: Story) -> None:
    """The duplicate is named, its source's description is not: which one was copied is not known."""
    second_thread(story).does(60_000, 10, "openat", 3)
    story.begins(60_010, 10, "dup", fildes=3).does(60_020, 11, "close", 0, fd=3).does(60_030, 11, "openat", 3)
    story.ends(60_040, 10, "dup", 5, returned(5, b"/y", Y))
    tables = told(engine, story)
    assert names(tables)[0] is None


@pytest.mark.parametrize("flags", [0, 2, 4])
def test_close_range_of_others(engine: str, story: Story, flags: int) -> None:
    """It may end anything; with CLOSE_RANGE_UNSHARE or _CLOEXEC, it ends nothing of other threads."""
    second_thread(story).begins(60_000, 11, "close_range", fd=3, max_fd=9, flags=flags)
    story.does(60_010, 10, "openat", 3, returned(3, b"/x")).ends(60_020, 11, "close_range")
    assert names(told(engine, story)) == [b"/x" if flags else None]


def test_what_others_do_in_their_own_table(engine: str, story: Story) -> None:
    """After unshare(CLONE_FILES) the numbers are different ones."""
    second_thread(story).does(60_000, 10, "openat", 3, returned(3, b"/x", flags=0))
    story.does(60_010, 11, "unshare", 0, unshare_flags=SHARE_FILES)
    story.begins(60_020, 10, "read", fd=3)
    story.does(60_030, 11, "close", 0, fd=3).does(60_040, 11, "openat", 3, returned(3, b"/y", Y))
    story.ends(60_050, 10, "read", 1, argument(3, b"/x"))
    tables = told(engine, story)
    named = {row["tid"]: row["handle"] for row in tables["operations"] if row["call"] in ("read", "openat")}
    assert names(tables)[int(named[10][1:])] == b"/x"
    assert tables["totals"]["nr_files_refused"] == 0


def test_a_process_that_shares_the_table_is_a_rival(engine: str, story: Story) -> None:
    """CLONE_FILES without CLONE_THREAD."""
    story.begins(58_000, 10, "clone", clone_flags=SHARE_FILES)
    story.fork(58_010, 0, 21, 21, 10, 10).ends(58_020, 10, "clone", 21)
    story.does(60_000, 10, "openat", 3)
    story.begins(60_010, 10, "read", fd=3)
    story.does(60_020, 21, "close", 0, fd=3).does(60_030, 21, "openat", 3, returned(3, b"/y", Y))
    story.ends(60_040, 10, "read", 1, argument(3, b"/y", Y))
    assert names(told(engine, story)) == [None, b"/y"]


def test_a_call_that_met_nothing_names_nothing(engine: str, story: Story) -> None:
    """EBADF: the file that is there at its exit came later."""
    story.does(60_000, 10, "openat", 3, returned(3, b"/x", flags=0))
    story.does(60_010, 10, "read", EBADF, argument(3, b"/y", Y), fd=3)
    tables = told(engine, story)
    assert names(tables) == [None]
    assert tables["totals"]["nr_files_refused"] == 1


def test_a_number_used_again_by_another_process(engine: str, story: Story) -> None:
    """Its thread has the number of one that has exited; the table is a new one."""
    story.fork(55_000, 0, 20, 20, 10, 10).does(60_000, 20, "openat", 3, returned(3, b"/x"))
    story.task_exit(60_010, 0, 20, 20).fork(60_020, 0, 20, 20, 10, 10)
    story.does(60_030, 20, "read", 1, argument(3, b"/y", X, inode=99), fd=3)
    tables = told(engine, story)
    assert rows(tables, "handle") == [("h0",), ("h1",)]
    assert names(tables) == [b"/x", b"/y"]


def test_facts_of_threads_nobody_knows(engine: str, tmp_path: Path) -> None:
    """In process mode they are none of the recorded processes'."""
    story = Story(tmp_path / "spool", "bpf", mode="process")
    story.fact_task(1_000, 10, 10, flags=1)
    story.sees(60_000, 77, argument(3, b"/x")).does(60_010, 10, "read", 1, fd=3)
    tables = told(engine, story)
    assert names(tables) == [None]
    assert (tables["totals"]["nr_files_told"], tables["totals"]["nr_files_refused"]) == (0, 0)


# ---- lost records, and calls that are not recorded ----


@pytest.mark.parametrize(
    "lost", [{"facts_lost": 1}, {"missed_runs": 1}, {"tasks_lost": 1}, {"absences": (Absence(1, 50_000, 55_000),)}]
)
def test_where_records_were_lost_a_former_use_may_have_been_anothers(
    engine: str, story: Story, lost: dict[str, Any]
) -> None:
    """The open's fact is lacking; a close and another open may lack, too."""
    story.does(60_000, 10, "openat", 3).does(60_010, 10, "read", 1, argument(3, b"/y", Y), fd=3)
    tables = told(engine, story, **lost)
    assert rows(tables, "handle") == [("h0",), ("h1",)]
    assert names(tables) == [None, b"/y"]


def test_where_nothing_was_lost_it_is_the_same(engine: str, story: Story) -> None:
    """For every end of a descriptor is recorded."""
    story.does(60_000, 10, "openat", 3).does(60_010, 10, "read", 1, argument(3, b"/x"), fd=3)
    tables = told(engine, story)
    assert rows(tables, "handle") == [("h0",), ("h0",)]
    assert names(tables) == [b"/x"]


def test_a_result_whose_call_was_lost(engine: str, story: Story) -> None:
    """The old file of the slot is gone, whatever it was."""
    story.does(60_000, 10, "openat", 3).sees(60_010, 10, returned(3, b"/y", Y)).does(60_020, 10, "read", 1, fd=3)
    tables = told(engine, story, facts_lost=1)
    assert rows(tables, "handle") == [("h0",), ("h1",)]
    assert names(tables) == [None, b"/y"]


def test_a_fact_of_a_call_whose_exit_was_lost(engine: str, story: Story) -> None:
    """The fact holds at its own time."""
    story.begins(60_000, 10, "read", fd=3).sees(60_010, 10, argument(3, b"/x")).does(60_020, 10, "read", 1, fd=3)
    tables = told(engine, story, facts_lost=1)
    assert names(tables)[int(tables["operations"][1]["handle"][1:])] == b"/x"


NO_CLOSE = tuple(call for call in DEFAULT_CALLS if call != "close")


def unseen_ends(tmp_path: Path, backend: str = "bpf") -> Story:
    """A recording without close(2)."""
    story = Story(tmp_path / "spool", backend, calls=NO_CLOSE)
    story.fact_task(1_000, 10, 10)
    return story


def without_close(story: Story) -> dict[str, Any]:
    """The entry in spool.json: left out on purpose, not lacking."""
    lacking = story.meta().lacking
    return {"lacking": tuple(name for name in lacking if not re.search(r"_close$", name))}


def test_a_single_thread_exchanges_nothing_inside_of_its_calls(engine: str, tmp_path: Path) -> None:
    """So facts name its files, though closes are not recorded; each new file is noticed."""
    story = unseen_ends(tmp_path)
    story.does(60_000, 10, "read", 1, argument(3, b"/x"), fd=3).does(60_010, 10, "read", 1, argument(3, b"/y", Y), fd=3)
    tables = told(engine, story, **without_close(story))
    assert rows(tables, "handle") == [("h0",), ("h1",)]
    assert names(tables) == [b"/x", b"/y"]


def test_several_threads_may(engine: str, tmp_path: Path) -> None:
    """Then only results of calls have names."""
    story = second_thread(unseen_ends(tmp_path))
    story.does(60_000, 10, "read", 1, argument(3, b"/x"), fd=3)
    story.does(60_010, 10, "openat", 4, returned(4, b"/z", Z))
    tables = told(engine, story, **without_close(story))
    assert names(tables) == [None, b"/z"]


def test_a_former_use_may_have_been_of_another_file_where_closes_are_not_recorded(engine: str, tmp_path: Path) -> None:
    """A handle without a fact keeps none."""
    story = unseen_ends(tmp_path)
    story.does(60_000, 10, "read", 1, fd=3).does(60_010, 10, "read", 1, argument(3, b"/y", Y), fd=3)
    tables = told(engine, story, **without_close(story))
    assert names(tables) == [None, b"/y"]
