"""docs/explanation/rules/ring-requests.md: requests of rings as events; rows where a batch has no room."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest
from build.requestrig import (
    ASYNC,
    CANCELLED,
    DEVICE,
    ECANCELED,
    INLINE,
    LINK,
    MORE,
    NOTIF,
    OPENAT,
    POLL,
    READ,
    RECV,
    SEND_ZC,
    SKIP,
    WORKER,
    RequestRig,
    phases,
)
from build.ringrig import PID, A

if TYPE_CHECKING:
    from pathlib import Path

BEGIN, ISSUED, COMPLETE, CANCEL = range(4)
W, KWORKER = 30, 44


@pytest.fixture
def rig(tmp_path: Path) -> RequestRig:
    """Process 10, born in the trace."""
    return RequestRig(tmp_path)


def order(rig: RequestRig) -> list[tuple[int, int]]:
    """Place of the request among the requests, and kind, of each event."""
    place = {row["id"]: at for at, row in enumerate(rig.all())}
    return [(place[i], kind) for i, kind in rig.events("id", "kind")]


def test_three_events_of_an_inline_request(rig: RequestRig) -> None:
    """With the handle from the beginning, and all of the row at the end."""
    rig.call("openat", 3, flags=0)
    entered = rig.enter("io_uring_enter", fd=5, to_submit=1)
    submitted = rig.submit(1, opcode=READ, user_data=2**64 - 1, flags=1)
    got = rig.gets(1, 3, user_data=2**64 - 1)
    completed = rig.cqe(1, 100, user_data=2**64 - 1)
    rig.leave("io_uring_enter", 1)
    row = rig.only()
    assert rig.events("kind", "time_ns") == [(BEGIN, submitted), (ISSUED, got), (COMPLETE, completed)]
    for event in rig.rows["ring_events"]:
        assert (event["id"], event["ring"], event["task"]) == (row["id"], row["ring"], row["task"])
        assert (event["pid"], event["tid"], event["handle"]) == (PID, PID, row["handle"])
        assert (event["opcode"], event["user_data"], event["sqe_flags"]) == (READ, 2**64 - 1, 1)
        assert event["call_begin_time_ns"] == entered
        assert event["before"] == 1
    last = rig.rows["ring_events"][-1]
    for name in ("path", "status", "traits", "inferred", "result", "error", "previous", "culprit"):
        assert last[name] == row[name]
    assert (last["bytes"], phases(last)) == (100, phases(row))
    assert row["path"] == INLINE


def test_before_which_call_they_stand(rig: RequestRig) -> None:
    """Rows of operations come at a call's exit."""
    rig.enter("io_uring_enter", fd=5, to_submit=1)
    rig.submit(1, opcode=RECV)
    rig.leave("io_uring_enter", 1)
    rig.cqe(1, 5)
    rig.call("read", 0, fd=0)
    assert rig.events("kind", "before") == [(BEGIN, 0), (ISSUED, 0), (COMPLETE, 1)]
    assert [call is None for (call,) in rig.events("call_begin_time_ns")] == [False, False, True]


def test_a_punt_issues(rig: RequestRig) -> None:
    """A worker's CQE completes it, on the submitter's location."""
    rig.worker(W)
    submitted = rig.submit(1, opcode=READ, flags=ASYNC)
    punted = rig.punt(1)
    rig.gets(1, 3, tid=W)
    completed = rig.cqe(1, 5, tid=W)
    assert rig.only()["path"] == WORKER
    assert rig.events("kind", "time_ns", "tid") == [
        (BEGIN, submitted, PID),
        (ISSUED, punted, PID),
        (COMPLETE, completed, PID),
    ]
    assert rig.rows["ring_events"][-1]["worker_tid"] == W


def test_a_member_is_issued_when_it_is_executed(rig: RequestRig) -> None:
    """At the latest right before its end."""
    rig.submit(1, flags=LINK)
    rig.submit(2, flags=LINK)
    rig.link(2, 1)
    rig.submit(3)
    closed = rig.link(3, 2)
    rig.cqe(1)
    second = rig.cqe(2, ECANCELED)
    rig.cqe(3)
    assert order(rig) == [
        *((0, BEGIN), (1, BEGIN), (2, BEGIN), (0, ISSUED), (0, COMPLETE)),
        *((1, ISSUED), (1, CANCEL), (2, ISSUED), (2, COMPLETE)),
    ]
    times = rig.events("time_ns")
    assert (times[3], times[5], times[6]) == ((closed,), (second,), (second,))
    assert rig.column("status")[1] == CANCELLED


def test_what_has_no_end_has_no_last_event(rig: RequestRig) -> None:
    """In flight and silent."""
    rig.submit(1, opcode=READ)
    rig.submit(2, flags=SKIP)
    rig.refuse(3)
    assert order(rig) == [(0, BEGIN), (0, ISSUED), (1, BEGIN), (1, ISSUED), (2, BEGIN)]


def test_repeating_requests_end_once(rig: RequestRig) -> None:
    """With their last CQE."""
    rig.submit(1, opcode=RECV, user_data=5)
    rig.arm(1, user_data=5)
    for res in (1, 2):
        rig.cqe(0, res, user_data=5, flags=MORE)
    last = rig.cqe(1, 3, user_data=5)
    assert rig.events("kind", "time_ns", "bytes")[-1] == (COMPLETE, last, 6)
    assert len(rig.rows["ring_events"]) == 3
    assert rig.only()["path"] == POLL


def test_a_zero_copy_send_ends_with_its_notification(rig: RequestRig) -> None:
    """Or with the trace."""
    for req in (1, 2):
        rig.submit(req, opcode=SEND_ZC, user_data=req)
        rig.cqe(req, 10, user_data=req, flags=MORE)
    notified = rig.cqe(9, user_data=1, flags=NOTIF)
    assert rig.events("kind", "time_ns")[-2:] == [(COMPLETE, notified), (COMPLETE, rig.now)]


def test_an_older_request_begins_when_it_is_seen(rig: RequestRig) -> None:
    """So its events are whole."""
    armed = rig.arm(1, user_data=5, opcode=RECV)
    completed = rig.cqe(1, 3, user_data=5)
    assert rig.events("kind", "time_ns") == [(BEGIN, armed), (ISSUED, armed), (COMPLETE, completed)]


def test_events_behind_an_open_path_wait(rig: RequestRig) -> None:
    """Events of the same location wait until the run of task work, in the order of time."""
    rig.worker(W)
    rig.submit(1, opcode=READ, flags=ASYNC)
    rig.submit(2, opcode=READ)
    rig.submit(3, opcode=READ)
    rig.cqe(2, 5)
    rig.cqe(3, 5)
    rig.gets(1, 3, tid=W)
    rig.cqe(1, 5, tid=W)
    rig.ran(2)
    assert order(rig) == [
        *((0, BEGIN), (1, BEGIN), (1, ISSUED), (2, BEGIN), (2, ISSUED)),
        *((1, COMPLETE), (2, COMPLETE), (0, ISSUED), (0, COMPLETE)),
    ]
    assert rig.column("path") == [WORKER, INLINE, DEVICE]
    assert rig.events("path")[5:7] == [(INLINE,), (DEVICE,)]


def test_events_of_another_location_do_not_wait(rig: RequestRig) -> None:
    """Only what stands on the same one."""
    rig.fork(PID, 11, PID)
    rig.submit(1, opcode=READ)
    rig.cqe(1, 5)
    rig.submit(2, tid=11)
    rig.cqe(2, tid=11)
    rig.ran(1)
    assert order(rig)[-4:] == [(1, BEGIN), (1, ISSUED), (1, COMPLETE), (0, COMPLETE)]


def test_events_of_a_thread_that_has_ended(rig: RequestRig) -> None:
    """Its request completes in another one, later."""
    rig.fork(PID, 11, PID)
    rig.submit(1, opcode=READ, tid=11)
    rig.ends(PID, 11)
    rig.fork(PID, 12, PID)
    rig.submit(2, opcode=READ, tid=12)
    completed = rig.cqe(1, 5, tid=KWORKER)
    assert [event for event in rig.events("tid", "kind", "time_ns") if event[0] == 11][-1] == (11, COMPLETE, completed)
    assert rig.column("path")[0] == DEVICE


@pytest.mark.parametrize("batch_rows", [8, 9, 100])
def test_small_batches_hold_the_same_rows(tmp_path: Path, batch_rows: int) -> None:
    """Rows without room come in the next batch, in order, also if many come at once."""
    whole, small = (RequestRig(tmp_path / str(rows), batch_rows=rows) for rows in (1 << 12, batch_rows))
    for rig in (whole, small):
        rig.worker(W)
        for req in range(1, 61):
            rig.submit(req, opcode=READ, flags=ASYNC if req % 3 == 0 else 0)
        for req in range(1, 61):
            rig.gets(req, 3, tid=W) if req % 3 == 0 else None
            rig.cqe(req, req, tid=W if req % 3 == 0 else PID)
        rig.ran(20)
        rig.submit(70)
        rig.run()
    for table in ("ring_requests", "ring_events", "ring_works"):
        assert small.rows[table] == whole.rows[table]
    assert len(small.rows["ring_events"]) == 3 * 60 + 2


# -- anything


def wild(rig: RequestRig, draw: random.Random) -> None:
    """An event of any kind about one of few requests, with impossible values now and then."""
    tid, ctx = draw.choice([PID, PID, 11, W, 31, KWORKER]), draw.choice([A, A, A + 1, draw.getrandbits(64)])
    req, other = (draw.choice([draw.randrange(9), draw.randrange(9), draw.getrandbits(64)]) for _ in range(2))
    known = {"ctx": ctx, "req": req, "user_data": draw.randrange(3)}
    flags, cqe_flags = draw.choice([0, 0, LINK, ASYNC, SKIP, 255]), draw.choice([0, 0, MORE, NOTIF])
    opcode = draw.choice([0, READ, RECV, SEND_ZC, OPENAT, 15, 30, 255])
    named = known | {"opcode": opcode}
    size = draw.choice([7, 2**63, 2**64 - 1])
    name, fields = draw.choice(
        [
            *[("submit_req", named | {"flags": flags})] * 4,
            ("req_failed", named | {"flags": flags & 255, "error": -22, "off": size, "len": 7}),
            *[("file_get", known | {"fd": draw.choice([3, -1, 2**31 - 1])})] * 2,
            ("queue_async_work", named | {"rw": draw.randrange(2)}),
            ("poll_arm", named | {"mask": 1}),
            ("task_add", named | {"mask": draw.randrange(2)}),
            ("task_work_run", {"tctx": 1, "count": draw.choice([1, 3, 2**32 - 1])}),
            ("local_work_run", {"ctx": ctx, "count": draw.choice([1, -1])}),
            ("link", {"ctx": ctx, "req": req, "target_req": other}),
            ("fail_link", {"ctx": ctx, "req": req, "link": other}),
            ("defer", {"ctx": ctx, "req": req, "data": 1, "opcode": opcode}),
            ("cqring_wait", {"ctx": ctx, "min_events": 1}),
            (
                "cqe_overflow",
                {"ctx": ctx, "user_data": known["user_data"], "res": 1, "cflags": cqe_flags},
            ),
            ("short_write", {"ctx": ctx, "fpos": size, "wanted": size, "got": size}),
            *[("complete", known | {"res": draw.choice([5, -125, -9]), "cflags": cqe_flags})] * 4,
            *[("complete", known | {"req": 0, "res": 5, "cflags": MORE})] * 2,
        ]
    )
    rig.event(name, tid, **fields)


def of_tasks(rig: RequestRig, draw: random.Random) -> None:
    """A call, a thread's start or end, a switch."""
    what = draw.randrange(6)
    if what == 0:
        rig.enter("io_uring_enter", fd=5, to_submit=draw.randrange(4))
    elif what == 1:
        rig.leave("io_uring_enter", 1)
    elif what == 2:
        rig.worker(draw.choice([W, 31]), owner=draw.choice([PID, 11, 999]))
    elif what == 3:
        rig.ends(PID, draw.choice([11, W, 31]))
    elif what == 4:
        rig.fork(PID, 11, PID)
    else:
        rig.spool.switch(rig.tick(), 1, *draw.choice([(0, W), (W, 0), (31, W), (PID, 0)]), 1)


@pytest.mark.parametrize("seed", range(24))
def test_nothing_breaks_the_order(tmp_path: Path, seed: int) -> None:
    """Whatever comes, each request has one row, its events are whole and in order, and its phases add up."""
    draw = random.Random(seed)  # noqa: S311 - the same each time
    rig = RequestRig(tmp_path, batch_rows=draw.choice([8, 50, 4096]), sample_rate=draw.choice([1, 1, 3]))
    rig.fork(PID, 11, PID)
    for _ in range(400):
        (of_tasks if draw.random() < 0.1 else wild)(rig, draw)
    rows = {row["id"]: row for row in rig.all()}
    assert len(rows) == len(rig.all())
    last: dict[int, int] = {}
    kinds: dict[int, list[int]] = {}
    for event in rig.rows["ring_events"]:
        assert event["time_ns"] >= last.get(event["task"], 0)
        last[event["task"]] = event["time_ns"]
        kinds.setdefault(event["id"], []).append(min(event["kind"], COMPLETE))
    assert kinds.keys() == rows.keys()
    for key, row in rows.items():
        assert kinds[key] in ([BEGIN], [BEGIN, ISSUED], [BEGIN, ISSUED, COMPLETE])
        if row["waiting_ns"] is not None:
            assert sum(phases(row)) == row["complete_time_ns"] - row["submit_time_ns"]
            assert min(phases(row)) >= 0
    ends: dict[int, int] = {}
    for work in rig.rows["ring_works"]:
        assert ends.get(work["task"], 0) <= work["begin_time_ns"] <= (work["end_time_ns"] or work["begin_time_ns"])
        ends[work["task"]] = work["end_time_ns"] or work["begin_time_ns"]
