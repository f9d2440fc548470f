"""docs/explanation/rules/ring-requests.md: chains that break at a request with CQE_SKIP."""

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
    PATH_CANCELLED,
    READ,
    SKIP,
    RequestRig,
)

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def rig(tmp_path: Path) -> RequestRig:
    """Process 10, born in the trace."""
    return RequestRig(tmp_path)


@pytest.mark.parametrize("flags", [SKIP, 0])
def test_a_chain_that_breaks_at_a_silent_one_ends_silently(rig: RequestRig, flags: int) -> None:
    """That one speaks; of those behind it, whatever they asked for, no CQE comes: they are cancelled all the same."""
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
    """What it says to have run are those, and not the request that broke the chain where it was submitted."""
    rig.submit(1, opcode=READ, flags=LINK | SKIP)
    rig.submit(2)
    rig.link(2, 1)
    rig.gets(1, 900)
    rig.cqe(1, EBADF)
    rig.fail_link(1, 2)
    rig.ran(1)
    assert rig.column("path", "inferred") == [(INLINE, 0), (PATH_CANCELLED, 0)]
