"""docs/explanation/rules/rings.md: requests of libaio: which event ends which."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING, Any

import pytest
from build.ringrig import PID
from build.sqerig import CONTEXT, SqeRig

from lo2io.model import RingPath, RingStatus

if TYPE_CHECKING:
    from pathlib import Path

PREAD, PWRITE, FSYNC, FDSYNC, POLL, NOOP, PREADV, PWRITEV, UNKNOWN = 0, 1, 2, 3, 5, 6, 7, 8, 99
OPCODES = {PREAD: 22, PWRITE: 23, FSYNC: 3, FDSYNC: 3, POLL: 6, NOOP: 0, PREADV: 1, PWRITEV: 2, UNKNOWN: 255}
ISSUE, IDENTITY, END = 1, 64, 512
CB = 0x7FFE0000
OTHER = CONTEXT + 0x10000
ENDS = ("status", "result", "complete_time_ns", "end_before_time_ns")
VDA = 254 << 20


@pytest.fixture
def rig(tmp_path: Path) -> SqeRig:
    """Process 10, born in the trace."""
    return SqeRig(tmp_path)


def asks(rig: SqeRig, iocbs: list[dict[str, Any]], tid: int = PID, context: int = CONTEXT) -> int:
    """The entry of an io_submit of these; its time."""
    time = None
    for place, told in enumerate(iocbs):
        time = rig.iocb(place, time=time, tid=tid, **{"iocb": CB + 64 * place, "data": place, **told})
    return rig.enter("io_submit", tid, ctx_id=context, nr=len(iocbs))


def submit(rig: SqeRig, *iocbs: dict[str, Any], ret: int | None = None, tid: int = PID, context: int = CONTEXT) -> int:
    """An io_submit of these, which takes so many or all; the time of its entry."""
    time = asks(rig, list(iocbs), tid, context)
    rig.leave("io_submit", len(iocbs) if ret is None else ret, tid)
    return time


def test_a_request_from_its_submission_to_its_event(rig: SqeRig) -> None:
    """It begins at the entry of its io_submit, and ends when a call has returned its event."""
    rig.call("openat", 7, dfd=-100)
    begin = submit(rig, {"opcode": PREAD, "fd": 7, "off": 4096, "length": 512, "data": 9, "rw_flags": 2})
    end = rig.collect((CB, 9, 500)) - 10
    rig.run()
    (row,) = rig.rows["ring_requests"]
    (ring,) = rig.rows["rings"]
    expected = {
        "ring": ring["ring"], "tid": PID, "pid": PID, "user_data": 9, "opcode": 22, "status": RingStatus.COMPLETED,
        "path": RingPath.UNKNOWN, "inferred": ISSUE | END, "fd": 7, "handle": rig.rows["handles"][0]["handle"],
        "submit_time_ns": begin, "issue_time_ns": begin, "complete_time_ns": end, "end_before_time_ns": None,
        "queued_ns": 0, "executing_ns": None, "waiting_ns": None, "offset_bytes": 4096, "bytes_request": 512,
        "bytes_result": 500, "result": 500, "error": 0, "nr_completions": 1, "op_flags": 2,
    }  # fmt: skip
    assert {name: row[name] for name in expected} == expected
    assert rig.of("iocbs", "request", "operation") == [(row["id"], rig.of("operations", "call", "id")[1][1])]
    assert rig.of("ring_events", "id", "kind") == [(row["id"], kind) for kind in (0, 1, 2)]
    assert (ring["nr_requests"], ring["nr_completions"], ring["nr_orphans"]) == (1, 1, 0)


@pytest.mark.parametrize("command", list(OPCODES))
def test_what_it_does_is_told_in_terms_of_io_uring(rig: SqeRig, command: int) -> None:
    """By the opcode that does the same; only what transfers moves bytes; FDSYNC is FSYNC with a flag."""
    submit(rig, {"opcode": command, "fd": 7, "length": 10})
    rig.collect((CB, 0, 5))
    rig.run()
    (row,) = rig.rows["ring_requests"]
    moves = command in {PREAD, PWRITE, PREADV, PWRITEV}
    assert (row["opcode"], row["bytes_result"]) == (OPCODES[command], 5 if moves else None)
    assert row["op_flags"] == {FDSYNC: 1, POLL: None}.get(command, 0)


@pytest.mark.parametrize(
    ("result", "status", "error"),
    [
        (-errno.EIO, RingStatus.COMPLETED, errno.EIO),
        (-errno.ECANCELED, RingStatus.CANCELLED, errno.ECANCELED),
        (0, RingStatus.COMPLETED, 0),
    ],
)
def test_results(rig: SqeRig, result: int, status: int, error: int) -> None:
    """The event's results."""
    submit(rig, {"opcode": PREAD, "length": 10})
    rig.collect((CB, 0, result))
    rig.run()
    assert rig.of("ring_requests", "result", "status", "error") == [(result, status, error)]
    assert rig.of("ring_requests", "bytes_result") == [None if result < 0 else 0]


@pytest.mark.parametrize("ret", [3, 2, 0, -errno.EAGAIN])
def test_only_what_the_call_took_is_a_request(rig: SqeRig, ret: int) -> None:
    """The rest may be submitted again, and is a request then."""
    iocbs = [{"iocb": CB + place} for place in range(3)]
    submit(rig, *iocbs, ret=ret)
    rig.collect(*((CB + place, place, 0) for place in range(max(ret, 0))))
    rig.run()
    assert rig.of("ring_requests", "user_data", "status") == [
        (place, RingStatus.COMPLETED) for place in range(max(ret, 0))
    ]
    assert rig.totals.nr_ring_requests == max(ret, 0)


@pytest.mark.parametrize(
    ("told", "ret", "untold"),
    [((0, 1, 2), 3, 0), ((0, 1), 3, 1), ((), 3, 3), ((1, 2), 3, 3), ((0, 2), 3, 2), ((0, 1), 1, 0), ((), -11, 0)],
)
def test_what_no_record_tells_is_counted(rig: SqeRig, told: tuple[int, ...], ret: int, untold: int) -> None:
    """Only what the call took counts. Records behind a missing one may be another call's, so they make no request."""
    submit(rig)  # of nothing
    time = None
    for place in told:
        time = rig.iocb(place, time=time, iocb=CB + place, data=place)
    rig.enter("io_submit", PID, ctx_id=CONTEXT, nr=3)
    rig.leave("io_submit", ret, PID)
    rig.run()
    assert (rig.totals.nr_untold_iocbs, rig.totals.nr_ring_requests) == (untold, max(ret, 0) - untold)


def test_no_record_need_tell_what_a_call_was_given_before_the_window(tmp_path: Path) -> None:
    """The call has a row. Its iocbs were read at its entry, before the window."""
    rig = SqeRig(tmp_path, born=False)
    for begin in (49_900, 60_000):
        rig.now = begin
        rig.enter("io_submit", PID, ctx_id=CONTEXT, nr=1)
        rig.now = begin + 500
        rig.leave("io_submit", 1, PID)
    rig.run()
    assert rig.of("operations", "begin_time_ns") == [49_910, 60_010]
    assert rig.totals.nr_untold_iocbs == 1


def test_requests_of_processes_that_are_not_recorded_are_not_missed(tmp_path: Path) -> None:
    """Calls of such processes have no rows either."""
    rig = SqeRig(tmp_path, born=False, mode="process")
    rig.spool.fact_task(2_000, PID, PID, ppid=1, flags=1)  # is selected
    rig.fork(20, 20, 1)
    for tid in (20, PID):
        rig.enter("io_submit", tid, ctx_id=CONTEXT, nr=tid)
        rig.leave("io_submit", tid, tid)
    rig.run()
    assert rig.of("operations", "tid") == [PID]
    assert rig.totals.nr_untold_iocbs == PID


def test_what_a_later_call_was_given_is_not_this_ones(rig: SqeRig) -> None:
    """The records of this call's iocbs, of its exit, and of the later call's entry were lost."""
    submit(rig)
    rig.enter("io_submit", PID, ctx_id=CONTEXT, nr=1)
    rig.iocb(0, iocb=CB)
    rig.leave("io_submit", 1, PID)
    rig.run()
    assert (rig.totals.nr_untold_iocbs, rig.totals.nr_ring_requests) == (1, 0)


def test_events_come_in_any_order(rig: SqeRig) -> None:
    """Each names its request; so do several calls of several threads."""
    rig.fork(PID, 11, PID)
    begin = submit(rig, *({"data": data} for data in (5, 6, 7, 8)))
    first = rig.collect((CB + 128, 7, 70), (CB, 5, 50)) - 10
    second = rig.collect((CB + 192, 8, 80), tid=11) - 10
    third = rig.collect((CB + 64, 6, 60)) - 10
    rig.run()
    found = sorted(rig.of("ring_requests", "user_data", "result", "complete_time_ns", "tid", "submit_time_ns"))
    times = {5: first, 6: third, 7: first, 8: second}
    assert found == [(data, 10 * data, times[data], PID, begin) for data in (5, 6, 7, 8)]
    assert not any(inferred & IDENTITY for inferred in rig.of("ring_requests", "inferred"))


def test_another_thread_collects_before_the_submission_returns(rig: SqeRig) -> None:
    """The request began at the entry, and its completion stands in its place."""
    rig.fork(PID, 11, PID)
    submit(rig, {})  # makes the context known
    rig.collect((CB, 0, 1))
    begin = asks(rig, [{"data": 1}, {"data": 2}])
    end = rig.collect((CB, 1, 11), tid=11) - 10
    rig.leave("io_submit", 2)
    rig.collect((CB + 64, 2, 22))
    rig.run()
    rows = {row["user_data"]: row for row in rig.rows["ring_requests"]}
    assert (rows[1]["submit_time_ns"], rows[1]["complete_time_ns"], rows[1]["result"]) == (begin, end, 11)
    assert rows[2]["result"] == 22
    assert rig.ring()["nr_orphans"] == 0


def test_contexts_and_processes_are_told_apart(rig: SqeRig) -> None:
    """The same addresses are other requests there, as in a program that forked."""
    rig.fork(20, 20, PID)
    for tid, context, data in ((PID, CONTEXT, 1), (PID, OTHER, 2), (20, CONTEXT, 3)):
        submit(rig, {"data": data}, tid=tid, context=context)
    for tid, context, data in ((20, CONTEXT, 3), (PID, OTHER, 2), (PID, CONTEXT, 1)):
        rig.collect((CB, data, data), tid=tid, context=context)
    rig.run()
    assert sorted(rig.of("ring_requests", "user_data", "result")) == [(1, 1), (2, 2), (3, 3)]
    assert len({row["ring"] for row in rig.rows["ring_requests"]}) == 3


def test_collected_from_memory(rig: SqeRig) -> None:
    """Without a call nobody sees the end: it was before the iocb was submitted again."""
    begin = submit(rig, {"opcode": PREAD, "length": 10})
    again = submit(rig, {"opcode": PREAD, "length": 20})
    end = rig.collect((CB, 0, 20)) - 10
    rig.run()
    found = {row["submit_time_ns"]: row for row in rig.rows["ring_requests"]}
    assert [found[begin][name] for name in ENDS] == [RingStatus.UNSEEN, 0, None, again]
    assert (found[begin]["bytes_result"], found[begin]["inferred"]) == (None, ISSUE | END)
    assert [found[again][name] for name in ENDS] == [RingStatus.COMPLETED, 20, end, None]
    kinds = [kind for number, kind in rig.of("ring_events", "id", "kind") if number == found[begin]["id"]]
    assert kinds == [0, 1]
    assert rig.totals.nr_in_flight_ring_requests == 0


def test_an_iocb_that_is_used_again_while_its_request_is_under_way(rig: SqeRig) -> None:
    """The kernel has a copy: what tells the requests apart is their data. Without these nobody can, and it is said."""
    times = [submit(rig, {"data": data}) for data in (1, 2, 3)]
    for data in (1, 3, 2):
        rig.collect((CB, data, 10 * data))
    for _ in range(2):
        submit(rig, {"data": 4})
    rig.collect((CB, 4, 40), (CB, 4, 41))
    rig.run()
    rows = rig.rows["ring_requests"]
    known = {row["user_data"]: (row["submit_time_ns"], row["result"]) for row in rows if row["user_data"] < 4}
    assert known == {data: (time, 10 * data) for data, time in zip((1, 2, 3), times, strict=True)}
    assert {row["status"] for row in rows} == {RingStatus.COMPLETED}
    assert {row["end_before_time_ns"] for row in rows} == {None}
    alike = sorted((row["result"], bool(row["inferred"] & IDENTITY)) for row in rows if row["user_data"] == 4)
    assert alike == [(40, True), (41, False)]


def test_io_destroy_ends_what_was_not_collected(rig: SqeRig) -> None:
    """It waits for the requests, whose results are not seen."""
    submit(rig, {}, {})
    rig.collect((CB, 0, 0))
    gone = rig.call("io_destroy", 0, ctx=CONTEXT)
    rig.run()
    assert [row for row in rig.of("ring_requests", *ENDS) if row[0]] == [(RingStatus.TORN_DOWN, 0, None, gone)]


@pytest.mark.parametrize("how", ["exec", "exit"])
def test_exec_and_exit_end_them(rig: SqeRig, how: str) -> None:
    """With the address space."""
    rig.fork(20, 20, PID)
    submit(rig, {}, tid=20)
    end = rig.name(20, 20, b"other", is_exec=True) if how == "exec" else rig.ends(20, 20)
    rig.call("sync")
    rig.run()
    assert rig.of("ring_requests", *ENDS) == [(RingStatus.TORN_DOWN, 0, None, end)]


def test_a_context_at_the_same_address(rig: SqeRig) -> None:
    """Is another one: the event is of its request."""
    submit(rig, {})
    gone = rig.call("io_destroy", 0, ctx=CONTEXT)
    submit(rig, {})
    rig.collect((CB, 0, 7))
    rig.run()
    assert rig.of("ring_requests", "status", "result", "end_before_time_ns") == [
        (RingStatus.TORN_DOWN, 0, gone),
        (RingStatus.COMPLETED, 7, None),
    ]


def test_how_many_are_in_flight(rig: SqeRig) -> None:
    """What a call takes is added, and what a call returns goes."""
    submit(rig, {}, {})
    rig.collect((CB, 0, 7))
    submit(rig, {"iocb": CB + 128})
    rig.run()
    assert rig.of("ring_states", "in_flight") == [2, 1, 2]
    assert rig.ring()["most_in_flight"] == 2


def test_in_flight_at_the_end(rig: SqeRig) -> None:
    """As far as is known."""
    submit(rig, {})
    rig.run()
    assert rig.of("ring_requests", *ENDS) == [(RingStatus.IN_FLIGHT, 0, None, None)]
    assert rig.totals.nr_in_flight_ring_requests == 1


def test_events_that_were_lost(rig: SqeRig) -> None:
    """The call has their number; which ones they were is not guessed."""
    submit(rig, {}, {})
    rig.collect((CB, 0, 0), (CB + 64, 1, 0), told=False)
    rig.run()
    assert rig.of("ring_requests", "status") == [RingStatus.IN_FLIGHT] * 2
    assert rig.ring()["nr_completions"] == 2


def test_events_of_requests_from_before_the_trace(rig: SqeRig) -> None:
    """Are counted as orphans of their ring."""
    submit(rig, {})
    rig.collect((0x1234, 5, 0), (CB, 99, 0), (CB, 0, 3))
    rig.run()
    assert rig.of("ring_requests", "result") == [3]
    assert (rig.ring()["nr_orphans"], rig.totals.nr_orphan_cqes) == (2, 2)


@pytest.mark.parametrize(("nr", "linked"), [(1, True), (2, False)])
def test_a_block_request_that_it_causes(rig: SqeRig, nr: int, *, linked: bool) -> None:
    """Sent while a call submits it, and nothing else: it is the cause, and a device served it."""
    asks(rig, [{"opcode": PREAD} for _ in range(nr)])
    rig.spool.block(rig.tick(), 0, PID, "rq_insert", dev=VDA, sector=8, nr_sector=8, rwbs=b"R")
    rig.leave("io_submit", nr)
    rig.spool.block(rig.tick(), 0, PID, "rq_insert", dev=VDA, sector=800, nr_sector=8, rwbs=b"R")
    rig.run()
    ids = rig.of("ring_requests", "id")
    assert rig.of("requests", "ring_request") == [ids[0] if linked else 0, 0]
    assert rig.of("ring_requests", "path") == [RingPath.DEVICE if linked else RingPath.UNKNOWN] * nr


def test_a_block_request_whose_completion_vanished(rig: SqeRig) -> None:
    """It has ended when a call returns the event of its request."""
    asks(rig, [{"opcode": PREAD}])
    issued = rig.tick()
    rig.spool.block(issued, 0, PID, "rq_issue", dev=VDA, sector=8, nr_sector=8, rwbs=b"R")
    rig.leave("io_submit", 1)
    done = rig.collect((CB, 0, 4096)) - 10
    rig.spool.count_vanished("block:block_rq_complete", [1] + [0] * (len(rig.spool.meta().cpus) - 1))
    rig.run()
    assert rig.of("requests", "end_earliest_ns", "end_latest_ns") == [(issued, done)]


def test_many(tmp_path: Path) -> None:
    """More than fit into a batch wait for the next ones; events stay in order of time at their thread."""
    rig = SqeRig(tmp_path, batch_rows=8)
    submit(rig, *({"data": n, "iocb": CB + n} for n in range(100)))
    rig.collect(*((CB + n, n, n) for n in range(100)))
    rig.run()
    assert rig.of("ring_requests", "user_data", "result") == [(n, n) for n in range(100)]
    times = rig.of("ring_events", "time_ns")
    assert len(times) == 300
    assert times == sorted(times)


def test_a_record_that_is_cut_off(rig: SqeRig) -> None:
    """A record that announces more events than it has is ignored."""
    submit(rig, {})
    rig.enter("io_getevents", ctx_id=CONTEXT, min_nr=1, nr=1)
    rig.events(((CB, 0, 0),), count=2)
    rig.leave("io_getevents", 1)
    rig.run()
    assert rig.of("ring_requests", "status") == [RingStatus.IN_FLIGHT]
    assert rig.totals.nr_undecoded == 1
