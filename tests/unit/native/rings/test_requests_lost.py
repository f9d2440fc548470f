"""docs/explanation/rules/ring-requests.md: an address that is another request's by now, whose start was lost."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from build.requestrig import (
    BY_PATH,
    CANCELLED,
    COMPLETED,
    DEVICE,
    ECANCELED,
    IN_FLIGHT,
    OLDER,
    POLL,
    POLL_ADD,
    READ,
    RECV,
    UNKNOWN,
    RequestRig,
)

if TYPE_CHECKING:
    from pathlib import Path

MINE, OTHERS = 5, 6
"""user_data."""


@pytest.fixture
def rig(tmp_path: Path) -> RequestRig:
    """A process with a ring and a read whose completion was lost, as was the submission of who has its address now."""
    rig = RequestRig(tmp_path)
    rig.setup()
    rig.submit(1, opcode=READ, user_data=MINE)
    rig.gets(1, 3, user_data=MINE)
    return rig


@pytest.mark.parametrize("shown_by", ["gets", "arm", "punt", "wake"])
def test_what_another_request_does_is_not_its_own(rig: RequestRig, shown_by: str) -> None:
    """Descriptor, wait and result are those of one whose start is not known."""
    if shown_by == "gets":
        rig.gets(1, 9, user_data=OTHERS)
    else:
        getattr(rig, shown_by)(1, user_data=OTHERS)
    rig.cqe(1, 77, user_data=OTHERS)
    mine, others = sorted(rig.all(), key=lambda row: row["user_data"])
    assert (mine["status"], mine["fd"], mine["result"], mine["nr_completions"]) == (IN_FLIGHT, 3, 0, 0)
    assert (mine["nr_polls"], mine["nr_punts"], mine["waker_tid"]) == (0, 0, None)
    assert (others["status"], others["traits"] & OLDER, others["result"]) == (COMPLETED, OLDER, 77)


def test_a_completion_of_another_request_is_nobodys(rig: RequestRig) -> None:
    """It ends the old request at that address, which cannot get another CQE."""
    rig.cqe(1, 77, user_data=OTHERS)
    rig.submit(2, user_data=1)
    rig.cqe(2, user_data=1)
    mine, second = rig.all()
    assert (mine["status"], mine["result"], mine["nr_completions"], mine["bytes_result"]) == (IN_FLIGHT, 0, 0, None)
    assert second["status"] == COMPLETED
    assert rig.ring()["nr_orphans"] == 1
    assert rig.of("ring_states", "in_flight")[-1] == 0


def test_a_poll_may_be_given_other_user_data(rig: RequestRig) -> None:
    """By POLL_REMOVE with IORING_POLL_UPDATE_USER_DATA."""
    rig.submit(2, opcode=POLL_ADD, user_data=MINE)
    rig.wake(2, user_data=OTHERS)
    rig.cqe(2, ECANCELED, user_data=OTHERS)
    rows = {row["opcode"]: row["status"] for row in rig.all()}
    assert rows == {READ: IN_FLIGHT, POLL_ADD: CANCELLED}


@pytest.mark.parametrize(
    ("opcode", "woken", "path"),
    [(READ, False, UNKNOWN), (RECV, False, UNKNOWN), (READ, True, POLL), (RECV, True, POLL), (POLL_ADD, True, DEVICE)],
)
def test_the_way_of_what_was_not_seen_to_begin(rig: RequestRig, opcode: int, path: int, *, woken: bool) -> None:
    """It may have been done at once, or not: only a wake shows that it waited."""
    rig.gets(2, 4, user_data=OTHERS)
    if woken:
        rig.wake(2, opcode=opcode, user_data=OTHERS)
    rig.cqe(2, 7, user_data=OTHERS)
    row = next(row for row in rig.all() if row["user_data"] == OTHERS)
    assert (row["path"], row["inferred"] & BY_PATH) == (path, BY_PATH * (path == POLL))
