"""docs/explanation/rules/ring-requests.md: when requests with CQE_SKIP have ended, and chains that break at one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from build.requestrig import (
    CANCELLED,
    COMPLETED,
    EBADF,
    ECANCELED,
    EIO,
    INLINE,
    LINK,
    LINK_TIMEOUT,
    PATH_CANCELLED,
    READ,
    SILENT,
    SKIP,
    UNKNOWN,
    RequestRig,
)
from build.ringrig import PID

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def rig(tmp_path: Path) -> RequestRig:
    """Process 10, born in the trace."""
    return RequestRig(tmp_path)


@pytest.mark.parametrize("flags", [SKIP, 0])
def test_a_chain_that_breaks_at_a_silent_one_ends_silently(rig: RequestRig, flags: int) -> None:
    """The silent one posts a CQE. The others post none, whatever they asked for, and are cancelled all the same."""
    rig.setup()
    for req in (1, 2, 3):
        rig.submit(req, flags=LINK | (flags, 0, SKIP)[req - 1] if req < 3 else SKIP)
        if req > 1:
            rig.link(req, req - 1)
    rig.cqe(1, EIO)
    ended = [rig.fail_link(1, 2), rig.fail_link(1, 3)]
    if not flags:
        ended = [rig.cqe(req, ECANCELED) for req in (2, 3)]
    first, second, third = rig.all()
    assert first["status"] == COMPLETED
    for row, time in zip((second, third), ended, strict=True):
        assert (row["status"], row["path"], row["result"], row["error"]) == (CANCELLED, PATH_CANCELLED, ECANCELED, 125)
        assert (row["nr_completions"], row["culprit"]) == (0 if flags else 1, first["id"])
        assert row["complete_time_ns"] == time
        ends = [event for event in rig.rows["ring_events"] if event["id"] == row["id"]]
        assert [event["time_ns"] for event in ends][-1] == time
    assert rig.of("ring_states", "in_flight")[-1] == 0
    assert rig.totals.nr_in_flight_ring_requests == 0


def test_task_work_frees_what_ended_silently(rig: RequestRig) -> None:
    """Its items are those, and not the request that broke the chain at its submission."""
    rig.submit(1, opcode=READ, flags=LINK | SKIP)
    rig.submit(2)
    rig.link(2, 1)
    rig.gets(1, 900)
    rig.cqe(1, EBADF)
    rig.fail_link(1, 2)
    rig.ran(1)
    assert rig.column("path", "inferred") == [(INLINE, 0), (PATH_CANCELLED, 0)]


ENDS = ("status", "path", "end_before_time_ns", "inferred")
END = 512


def last_event(rig: RequestRig, number: int) -> tuple[int, int]:
    """Kind and time of the last event of the request with this user_data."""
    found = [event for event in rig.rows["ring_events"] if event["user_data"] == number]
    return found[-1]["kind"], found[-1]["time_ns"]


@pytest.mark.parametrize("sign", ["file_get", "punt", "cqe"])
def test_a_silent_one_has_ended_when_its_successor_begins(rig: RequestRig, sign: str) -> None:
    """The end of all silent ones before it is known by then, and written there; the last one's CQE adds nothing."""
    rig.setup()
    for req in (1, 2, 3):
        rig.submit(req, opcode=READ, flags=LINK | SKIP if req < 3 else 0, user_data=req)
        if req > 1:
            rig.link(req, req - 1)
    rig.gets(1, 900, user_data=1)
    shows = {"file_get": lambda: rig.gets(3, 900, user_data=3), "punt": lambda: rig.punt(3, user_data=3)}
    time = shows[sign]() if sign in shows else 0
    last = rig.cqe(3, user_data=3)
    first, second, _ = rig.all()
    for row in (first, second):
        assert (row["status"], row["end_before_time_ns"]) == (SILENT, time or last)
        assert row["inferred"] & END
        assert last_event(rig, row["user_data"]) == (2, time or last)
    assert rig.of("ring_states", "in_flight")[-1] == 0


@pytest.mark.parametrize(("opcode", "res"), [(READ, ECANCELED), (LINK_TIMEOUT, 0)])
def test_a_successor_that_proves_nothing(rig: RequestRig, opcode: int, res: int) -> None:
    """A cancelled one never began; a linked timeout begins while its predecessor runs."""
    rig.submit(1, opcode=READ, flags=LINK | SKIP, user_data=1)
    rig.submit(2, opcode=opcode, user_data=2)
    rig.link(2, 1)
    rig.cqe(2, res, user_data=2)
    assert rig.all()[0]["end_before_time_ns"] is None
    assert last_event(rig, 1)[0] < 2


def test_a_silent_one_before_a_timeout_has_ended_when_the_next_begins(rig: RequestRig) -> None:
    """The chain goes on after both."""
    for req, opcode in ((1, READ), (2, LINK_TIMEOUT), (3, READ)):
        rig.submit(req, opcode=opcode, flags=LINK | SKIP if req == 1 else LINK if req == 2 else 0, user_data=req)
        if req > 1:
            rig.link(req, req - 1)
    rig.cqe(2, ECANCELED, user_data=2)
    time = rig.gets(3, 900, user_data=3)
    assert rig.all()[0]["end_before_time_ns"] == time


def test_a_silent_one_has_ended_when_its_address_is_used_again(rig: RequestRig) -> None:
    """The kernel frees a request when it has ended."""
    rig.submit(1, opcode=READ, flags=SKIP, user_data=1)
    rig.gets(1, 900, user_data=1)
    time = rig.submit(1, opcode=READ, user_data=2)
    first, _ = rig.all()
    assert tuple(first[name] for name in ENDS) == (SILENT, UNKNOWN, time, END)
    assert last_event(rig, 1) == (2, time)


def test_a_silent_one_has_ended_with_its_ring_if_it_was_done_at_once(rig: RequestRig) -> None:
    """A request that can wait for a device may outlive the ring."""
    rig.setup()
    rig.submit(1, flags=SKIP, user_data=1)
    rig.submit(2, opcode=READ, flags=SKIP, user_data=2)
    rig.ends(PID, PID)
    first, second = rig.all()
    assert (first["status"], first["path"], second["status"]) == (SILENT, INLINE, SILENT)
    assert first["end_before_time_ns"] is not None
    assert second["end_before_time_ns"] is None
