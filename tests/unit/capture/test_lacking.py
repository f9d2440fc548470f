"""A kernel that lacks tracepoints: the others are recorded, and the lack is reported."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from lo2io.capture.opening import load_events
from lo2io.capture.options import RecordOptions
from lo2io.catalog.catalog import load_catalog
from lo2io.errors import UsageError
from lo2io.kernel.tracefs import lacking_events

if TYPE_CHECKING:
    from lo2io.model.notices import Notice

DATA = Path(__file__).parents[2] / "data"
SUBMIT_REQ, SUBMIT_SQE = "io_uring:io_uring_submit_req", "io_uring:io_uring_submit_sqe"


def options(tracefs: Path, *tokens: str) -> RecordOptions:
    """The options of `lo2io record -e TOKENS`."""
    chosen = load_catalog().select(tokens)
    return RecordOptions(
        Path("T"), chosen.events, optional=chosen.optional, newer=chosen.newer, command=("true",), tracefs=tracefs
    )


def load(asked: RecordOptions) -> tuple[set[str], list[str]]:
    """The events that are there, and the notices."""
    notices: list[Notice] = []
    found = {event.name for event in load_events(asked, notices.append)}
    return found, [notice.text for notice in notices]


def lacking(asked: RecordOptions, found: set[str]) -> tuple[str, ...]:
    """The tracepoints that the kernel lacks, in the spool's words."""
    return lacking_events(asked.events, asked.newer, found)


def test_a_tracepoint_that_was_renamed_is_not_missed() -> None:
    """6.18 has only the new name of the submission, 6.1 only the old one."""
    for release, there in (("6.18", SUBMIT_REQ), ("6.1", SUBMIT_SQE)):
        asked = options(DATA / release, "io_uring", "-io_uring_setup,-io_uring_enter,-io_uring_register")
        found, notices = load(asked)
        assert found & {SUBMIT_REQ, SUBMIT_SQE} == {there}
        assert len(found) == 17
        assert notices == []
        assert lacking(asked, found) == ()


def test_both_names_are_missed_where_neither_is(tmp_path: Path) -> None:
    """A third name would be unknown."""
    shutil.copytree(DATA / "6.18", tmp_path / "tracefs")
    shutil.rmtree(tmp_path / "tracefs/events/io_uring/io_uring_submit_req")
    asked = options(tmp_path / "tracefs", "block,io_uring", "-io_uring_setup,-io_uring_enter,-io_uring_register")
    found, notices = load(asked)
    assert lacking(asked, found) == (SUBMIT_REQ, SUBMIT_SQE)
    assert notices == [f"this kernel has no {SUBMIT_REQ}, {SUBMIT_SQE}: recording without it"]


def test_what_5_10_lacks_is_told() -> None:
    """Five tracepoints came later; the rest is recorded."""
    asked = options(DATA / "5.10", "io_uring", "-io_uring_setup,-io_uring_enter,-io_uring_register")
    found, notices = load(asked)
    missing = ("req_failed", "task_work_run", "local_work_run", "cqe_overflow", "short_write")
    assert lacking(asked, found) == tuple(f"io_uring:io_uring_{name}" for name in missing)
    assert notices == [f"this kernel has no {', '.join(lacking(asked, found))}: recording without it"]
    assert len(found) == 12


def test_a_kernel_without_io_uring_is_told_in_a_word(tmp_path: Path) -> None:
    """Not 18 names. The calls, which it lacks too, have another subsystem's name."""
    shutil.copytree(DATA / "6.18", tmp_path / "tracefs")
    shutil.rmtree(tmp_path / "tracefs/events/io_uring")
    for half in ("enter", "exit"):
        shutil.rmtree(tmp_path / f"tracefs/events/syscalls/sys_{half}_io_uring_setup")
    found, notices = load(options(tmp_path / "tracefs"))
    assert len(found) == 2 * 42 + 7
    setup = "syscalls:sys_enter_io_uring_setup, syscalls:sys_exit_io_uring_setup"
    assert notices == [f"this kernel has no {setup}, io_uring:*: recording without it"]


def test_one_event_is_named_though_nothing_else_was_asked_of_its_subsystem(tmp_path: Path) -> None:
    """`block:*` would say more than is known."""
    shutil.copytree(DATA / "6.18", tmp_path / "tracefs")
    shutil.rmtree(tmp_path / "tracefs/events/block/block_rq_merge")
    asked = options(tmp_path / "tracefs", "lseek,block", "-block,+block:block_rq_merge")
    asked = RecordOptions(
        asked.spool, asked.events, frozenset(asked.events), command=("true",), tracefs=tmp_path / "tracefs"
    )
    assert load(asked)[1] == ["this kernel has no block:block_rq_merge: recording without it"]


def test_what_was_asked_for_by_name_has_to_be_there(tmp_path: Path) -> None:
    """Only what came with a group may be missing; and something has to be left."""
    shutil.copytree(DATA / "6.18", tmp_path / "tracefs")
    shutil.rmtree(tmp_path / "tracefs/events/syscalls/sys_exit_io_submit")
    with pytest.raises(UsageError, match="sys_exit_io_submit"):
        load(options(tmp_path / "tracefs", "io_submit"))
    shutil.rmtree(tmp_path / "tracefs/events/io_uring")
    for folder in (tmp_path / "tracefs/events/syscalls").glob("sys_*_io_uring_*"):
        shutil.rmtree(folder)
    with pytest.raises(UsageError, match="this kernel has none of them"):
        load(options(tmp_path / "tracefs", "io_uring"))
