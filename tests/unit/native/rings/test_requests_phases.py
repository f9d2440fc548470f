"""docs/explanation/rules/ring-requests.md: requests of rings: when they are executed, and their phases."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from build.requestrig import (
    ASYNC,
    BY_ISSUE,
    DEVICE,
    DRAIN,
    DRAINED,
    EBADF,
    ECANCELED,
    ETIME,
    HARDLINK,
    LINK,
    LINK_TIMEOUT,
    MORE,
    NOP,
    PATH_CANCELLED,
    READ,
    RECV,
    SPLICE,
    RequestRig,
    phases,
)
from build.ringrig import PID, A

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def rig(tmp_path: Path) -> RequestRig:
    """Process 10, born in the trace."""
    return RequestRig(tmp_path)


def test_a_free_request_is_executed_at_once(rig: RequestRig) -> None:
    """When it was submitted, inferred; when it looks up its descriptor right then, known."""
    first = rig.submit(1)
    rig.submit(2, opcode=READ)
    got = rig.gets(2, 3)
    rig.cqe(1)
    rig.cqe(2, 5)
    assert [(issue, flags & BY_ISSUE) for issue, flags in rig.column("issue_time_ns", "inferred")] == [
        (first, BY_ISSUE),
        (got, 0),
    ]


@pytest.mark.parametrize("flags", [LINK, HARDLINK, DRAIN, ASYNC])
def test_others_are_not(rig: RequestRig, flags: int) -> None:
    """Until something shows it."""
    rig.submit(1, flags=flags)
    rig.submit(2)
    assert rig.column("issue_time_ns")[0] is None


def test_phases_of_an_inline_request(rig: RequestRig) -> None:
    """Executing lasts until the thread's next event; a wake or a second look-up is none."""
    submitted = rig.submit(1, opcode=READ)
    got = rig.gets(1, 3)
    rig.wake(77, user_data=5)
    over = rig.submit(2)
    completed = rig.cqe(1, 5)
    assert phases(rig.all()[0]) == (got - submitted, over - got, completed - over)


def test_the_first_look_up_is_the_begin(rig: RequestRig) -> None:
    """SPLICE looks up two."""
    begun = rig.submit(1, opcode=SPLICE)
    got = rig.gets(1, 3)
    rig.gets(1, 4)
    completed = rig.cqe(1, 5)
    assert phases(rig.only()) == (got - begun, completed - got, 0)


def test_a_later_execution_does_not_move_the_first(rig: RequestRig) -> None:
    """Though it looks up two descriptors, and the first looked up none."""
    begun = rig.submit(1, opcode=SPLICE)
    rig.ran(1)
    rig.gets(1, 3)
    rig.gets(1, 4)
    rig.cqe(1, 5)
    assert rig.column("issue_time_ns") == [begun]
    assert rig.only()["inferred"] & BY_ISSUE


@pytest.mark.parametrize("end", ["exit", "wait", "link", "run", "register"])
def test_what_ends_an_execution(rig: RequestRig, end: str) -> None:
    """Every other event of the thread, entry and exit of its calls."""
    rig.enter("io_uring_enter", fd=5, to_submit=1)
    begun = rig.submit(1, opcode=READ)
    over = {
        "exit": lambda: rig.leave("io_uring_enter", 1),
        "wait": lambda: rig.event("cqring_wait", ctx=A, min_events=1),
        "link": lambda: rig.link(8, 9),
        "run": lambda: rig.ran(1),
        "register": lambda: rig.event("register", ctx=A, opcode=2, ret=0),
    }[end]()
    completed = rig.cqe(1, 5)
    assert phases(rig.all()[0]) == (0, over - begun, completed - over)


def test_phases_of_a_poll(rig: RequestRig) -> None:
    """Executing until it is armed; when it goes on after the wake is not known."""
    begun = rig.submit(1, opcode=RECV)
    armed = rig.arm(1)
    rig.wake(1)
    completed = rig.cqe(1, 5)
    assert phases(rig.only()) == (0, armed - begun, completed - armed)


def test_executed_again_after_a_look_up(rig: RequestRig) -> None:
    """Both count."""
    begun = rig.submit(1, opcode=RECV)
    armed = rig.arm(1)
    again = rig.gets(1, 3)
    completed = rig.cqe(1, 5)
    assert phases(rig.only()) == (0, armed - begun + completed - again, again - armed)


def test_a_head_is_executed_when_its_chain_is_complete(rig: RequestRig) -> None:
    """The member is executed when the head is done."""
    first = rig.submit(1, flags=LINK)
    rig.submit(2, flags=LINK)
    rig.link(2, 1)
    rig.submit(3)
    closed = rig.link(3, 2)
    done = rig.cqe(1)
    done2 = rig.cqe(2)
    rig.cqe(3)
    assert rig.column("issue_time_ns") == [closed, done, done2]
    assert all(flags & BY_ISSUE for flags in rig.column("inferred"))
    assert phases(rig.all()[0]) == (closed - first, done - closed, 0)
    assert phases(rig.all()[1])[1] == 0


def test_a_head_that_looks_up_its_descriptor(rig: RequestRig) -> None:
    """After the event that closes the chain."""
    rig.submit(1, opcode=READ, flags=LINK)
    rig.submit(2)
    rig.link(2, 1)
    got = rig.gets(1, 3)
    rig.cqe(1, 5)
    row = rig.all()[0]
    assert (row["issue_time_ns"], row["inferred"] & BY_ISSUE, row["fd"]) == (got, 0, 3)


@pytest.mark.parametrize("flags", [DRAIN, ASYNC])
def test_a_head_that_waits_or_goes_to_a_worker(rig: RequestRig, flags: int) -> None:
    """Is not executed when its chain is complete."""
    rig.submit(1, flags=LINK | flags)
    rig.submit(2)
    rig.link(2, 1)
    rig.punt(1)
    assert rig.column("issue_time_ns") == [None, None]


def test_a_linked_timeout(rig: RequestRig) -> None:
    """It is armed with its predecessor; whether a cancelled one was armed is unknown."""
    rig.submit(1, opcode=RECV, flags=LINK)
    rig.submit(2, opcode=LINK_TIMEOUT)
    rig.link(2, 1)
    got = rig.gets(1, 3)
    rig.arm(1)
    rig.cqe(2, ETIME)
    rig.cqe(1, ECANCELED)
    rig.ran(2)
    rig.submit(3, flags=LINK)
    rig.submit(4, opcode=LINK_TIMEOUT)
    rig.link(4, 3)
    rig.cqe(3)
    rig.cqe(4, ECANCELED)
    rig.submit(5, opcode=LINK_TIMEOUT)
    rows = rig.all()
    assert (rows[1]["issue_time_ns"], rows[1]["inferred"] & BY_ISSUE, rows[1]["path"]) == (got, BY_ISSUE, DEVICE)
    assert (rows[3]["issue_time_ns"], rows[3]["path"]) == (None, PATH_CANCELLED)
    assert rows[4]["issue_time_ns"] is None


def test_a_drained_request(rig: RequestRig) -> None:
    """By its flag, or because one before it has it; it waits for its turn."""
    rig.submit(1, flags=DRAIN)
    rig.submit(2)
    rig.event("defer", ctx=A, req=2, data=0, opcode=NOP)
    rig.submit(3)
    completed = rig.cqe(2)
    assert [traits & DRAINED for traits in rig.column("traits")] == [DRAINED, DRAINED, 0]
    assert rig.column("issue_time_ns")[:2] == [None, completed]


def test_shown_to_be_executed_by_its_cqe(rig: RequestRig) -> None:
    """Without a predecessor: then; with one that is done: since then."""
    rig.submit(1, opcode=READ, flags=DRAIN)
    completed = rig.cqe(1, EBADF)
    assert rig.column("issue_time_ns") == [completed]
    assert rig.only()["inferred"] & BY_ISSUE


def test_a_repeating_request_is_queued_once(rig: RequestRig) -> None:
    """Its phases add up to its last CQE."""
    begun = rig.submit(1, opcode=RECV, user_data=5)
    armed = rig.arm(1, user_data=5)
    rig.cqe(0, 5, user_data=5, flags=MORE)
    last = rig.cqe(1, 6, user_data=5)
    assert phases(rig.only()) == (0, armed - begun, last - armed)


def test_phases_of_what_has_no_end(rig: RequestRig) -> None:
    """The known ones."""
    begun = rig.submit(1, opcode=READ)
    got = rig.gets(1, 3)
    rig.submit(2, opcode=READ, flags=ASYNC)
    assert phases(rig.all()[0])[0] == got - begun
    assert phases(rig.all()[0])[2] is None
    assert phases(rig.all()[1]) == (None, None, None)


def test_an_older_head_is_not_executed_when_its_chain_is_complete(rig: RequestRig) -> None:
    """Its flags are not known: it may wait."""
    rig.event("defer", ctx=A, req=1, data=5, opcode=READ)
    rig.submit(2)
    rig.link(2, 1)
    rig.cqe(1, 5)
    assert rig.column("issue_time_ns")[0] is None


@pytest.mark.parametrize("known", [True, False])
def test_a_member_is_not_executed_at_once(rig: RequestRig, known: bool) -> None:
    """Though its predecessor was submitted elsewhere, or nobody saw it."""
    rig.fork(PID, 11, PID)
    if known:
        rig.submit(1, tid=11, flags=LINK)
    rig.submit(2, opcode=READ)
    rig.link(2, 1)
    rig.submit(3)
    completed = rig.cqe(2, 5)
    assert rig.all()[-2]["issue_time_ns"] == completed
    assert rig.all()[-2]["executing_ns"] == 0
