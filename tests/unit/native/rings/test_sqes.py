"""docs/explanation/rules/ring-requests.md: what requests of rings ask for, as BPF programs tell."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from build.ringrig import FD, PID, A, B
from build.sqerig import ASYNC, BUFFER_SELECT, FIXED_FILE, LINK, POSITION, SqeRig

if TYPE_CHECKING:
    from pathlib import Path

NOP, READV, WRITEV, FSYNC, READ_FIXED, SYNC_FILE_RANGE, SENDMSG, RECVMSG = 0, 1, 2, 3, 4, 8, 9, 10
FALLOCATE, OPENAT, CLOSE, STATX, READ, WRITE, RECV = 17, 18, 19, 21, 22, 23, 27
SEND, SPLICE, TEE, SEND_ZC, FTRUNCATE = 26, 30, 33, 47, 55
BUNDLE, VECTORS = 16, 32
"""IORING_RECVSEND_BUNDLE, IORING_SEND_VECTORIZED"""
O_APPEND, RWF_APPEND, RWF_NOAPPEND = 0o2000, 0x10, 0x20
ASKS = ("offset_bytes", "bytes_request", "fd", "op_flags", "file_index", "buffer_index")
OPENED, BEFORE, UNSEEN, BY_RING, REGISTERED = 0, 3, 4, 5, 6
APART = ["before", "after"]
"""Orders in which the SQE is a record of its own."""


@pytest.fixture(params=[*APART, "within"])
def rig(tmp_path: Path, request: pytest.FixtureRequest) -> SqeRig:
    """Process 10, born in the trace, with a ring; SQEs come before, after or within the records of submissions."""
    rig = SqeRig(tmp_path, request.param)
    rig.setup()
    return rig


def asks(rig: SqeRig) -> list[tuple[Any, ...]]:
    """The arguments of each request."""
    rig.run()
    return rig.of("ring_requests", *ASKS)


def handles(rig: SqeRig, fd: int) -> list[tuple[int | None, ...]]:
    """Handles of a number, in the order of their starts: origin, open time, close time."""
    found = sorted((h for h in rig.rows["handles"] if h["fd"] == fd), key=lambda h: h["handle"])
    return [(h["origin"], h["open_time_ns"], h["close_time_ns"]) for h in found]


# ---- where, how much, on what ----


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ({"opcode": READ, "fd": 7, "off": 512, "length": 100}, (512, 100, 7, 0, None, -1)),
        ({"opcode": WRITE, "fd": 7, "off": 2**40, "length": 2**31, "op_flags": 2}, (2**40, 2**31, 7, 2, None, -1)),
        ({"opcode": READ, "fd": 7, "off": POSITION, "length": 60}, (None, 60, 7, 0, None, -1)),
        ({"opcode": READV, "fd": 7, "off": 1, "length": 3, "nr_bytes": 1024}, (1, 1024, 7, 0, None, -1)),
        ({"opcode": READV, "fd": 7, "off": 1, "length": 3}, (1, None, 7, 0, None, -1)),
        ({"opcode": READ_FIXED, "fd": 7, "off": 4096, "length": 9, "buf_index": 3}, (4096, 9, 7, 0, None, 3)),
        ({"opcode": SENDMSG, "fd": 7, "length": 1, "nr_bytes": 300}, (None, 300, 7, 0, None, -1)),
        ({"opcode": RECVMSG, "fd": 7, "length": 1}, (None, None, 7, 0, None, -1)),
        ({"opcode": RECV, "fd": 7, "off": 99, "length": 10}, (None, 10, 7, 0, None, -1)),
        ({"opcode": SEND, "fd": 7, "length": 10, "ioprio": BUNDLE}, (None, 10, 7, 0, None, -1)),
        ({"opcode": SEND, "fd": 7, "length": 2, "ioprio": VECTORS, "nr_bytes": 300}, (None, 300, 7, 0, None, -1)),
        ({"opcode": SEND_ZC, "fd": 7, "length": 2, "ioprio": VECTORS}, (None, None, 7, 0, None, -1)),
        ({"opcode": RECV, "fd": 7, "flags": BUFFER_SELECT}, (None, None, 7, 0, None, -1)),
        ({"opcode": FSYNC, "fd": 7}, (None, None, 7, 0, None, -1)),
        ({"opcode": FSYNC, "fd": 7, "off": 10, "length": 5, "op_flags": 1}, (10, 5, 7, 1, None, -1)),
        ({"opcode": SYNC_FILE_RANGE, "fd": 7, "length": 50}, (0, 50, 7, 0, None, -1)),
        ({"opcode": FALLOCATE, "fd": 7, "off": 8, "nr_bytes": 2**33, "length": 1}, (8, 2**33, 7, 0, None, -1)),
        ({"opcode": FTRUNCATE, "fd": 7, "off": 12345}, (None, 12345, 7, 0, None, -1)),
        ({"opcode": NOP, "off": 5, "length": 6}, (None, None, -1, 0, None, -1)),
        ({"opcode": NOP, "fd": 2, "flags": FIXED_FILE}, (None, None, -1, 0, None, -1)),
        ({"opcode": STATX, "fd": -100, "off": 2**47, "length": 4}, (None, None, -1, 0, None, -1)),
        (
            {"opcode": READ, "fd": 2, "flags": FIXED_FILE, "off": 1, "length": 2},
            (1, 2, -1, 0, 2, -1),
        ),
    ],
)
def test_what_a_request_asks_for(rig: SqeRig, asked: dict[str, int], expected: tuple[int | None, ...]) -> None:
    """Offset and bytes where the opcode has them; -1 is the position, and vectors count what all of them hold."""
    rig.request(1, 0, **asked)
    assert asks(rig) == [expected]


def test_the_begin_in_the_trace_bears_the_bytes(rig: SqeRig) -> None:
    """OTF2's bytes at the start of the operation."""
    rig.request(1, 100, opcode=READ, fd=7, length=4096)
    rig.run()
    assert rig.of("ring_events", "kind", "bytes") == [(0, 4096), (1, 4096), (2, 100)]


@pytest.mark.parametrize("rig", APART, indirect=True)
@pytest.mark.parametrize("wrong", [{"req": 2}, {"ctx": B}, {"user_data": 5}, {"opcode": WRITE}])
def test_an_sqe_belongs_to_the_submission_that_comes_next(rig: SqeRig, wrong: dict[str, int]) -> None:
    """If address, ring, user_data and opcode are its own: else a record was lost, and no later one takes it."""
    told = {"req": 1, "ctx": A, "user_data": 4, "opcode": READ} | wrong
    rig.sqe(off=512, length=100, fd=7, **told)
    rig.submit(1, opcode=READ, user_data=4)
    rig.submit(2, opcode=told["opcode"], user_data=told["user_data"])
    assert asks(rig) == [(None, None, -1, None, None, -1)] * 2


@pytest.mark.parametrize("rig", APART, indirect=True)
def test_each_thread_has_its_own(rig: SqeRig) -> None:
    """Another thread's submission in between takes nothing."""
    rig.fork(PID, 11, PID)
    rig.sqe(1, off=512, length=100, opcode=READ, fd=7)
    rig.sqe(2, tid=11, off=1024, length=200, opcode=READ, fd=8)
    rig.submit(2, tid=11, opcode=READ)
    rig.submit(1, opcode=READ)
    assert sorted(row[:3] for row in asks(rig)) == [(512, 100, 7), (1024, 200, 8)]


@pytest.mark.parametrize("follow", [False, True])
def test_the_order_is_the_same_in_a_whole_recording(tmp_path: Path, *, follow: bool) -> None:
    """Once it is known, the SQE record left by a loss is not given to the request on its other side."""
    rig = SqeRig(tmp_path, "after" if follow else "before")
    rig.setup()
    rig.ask(1, opcode=READ, off=1, length=1)
    asked, bare = {"opcode": READ, "off": 2, "length": 2}, {"opcode": READ}
    for step in (("sqe", "submit"), ("submit", "sqe")):
        for what in step:
            rig.sqe(2, **asked) if what == "sqe" else rig.submit(2, **bare)
        rig.call("sync")
    rows = asks(rig)
    assert [row[0] for row in rows] == [*((None, 2) if follow else (2, None)), 1]  # in flight to the end


def test_a_short_write_says_nothing_new(rig: SqeRig) -> None:
    """Offset and bytes are the requested ones, and not inferred."""
    rig.ask(1, opcode=WRITE, fd=7, off=512, length=100)
    rig.event("short_write", ctx=A, fpos=600, wanted=12, got=4)
    rig.complete(1, 88)
    rig.call("sync")
    assert asks(rig)[0][:2] == (512, 100)
    assert rig.of("ring_requests", "inferred", "traits") == [(1, 128)]


@pytest.mark.parametrize(
    ("opened", "asked", "offset"),
    [(O_APPEND, 0, None), (0, 0, 512), (0, RWF_APPEND, None), (O_APPEND, RWF_NOAPPEND, 512)],
)
def test_what_appends_has_no_offset(rig: SqeRig, opened: int, asked: int, offset: int | None) -> None:
    """Linux appends, whatever the offset is, by the descriptor's flag or by the request's."""
    rig.call("openat", 7, dfd=-100, flags=opened)
    rig.request(1, 10, opcode=WRITE, fd=7, off=512, length=10, op_flags=asked)
    rig.request(2, 10, opcode=READ, fd=7, off=512, length=10)
    assert [row[0] for row in asks(rig)] == [offset, 512]


def test_a_request_at_the_position_moves_it(rig: SqeRig) -> None:
    """Calls during it and after it have no offset; one before it has."""
    rig.call("openat", 7, dfd=-100)
    rig.call("read", 100, fd=7, count=100)
    rig.ask(1, opcode=READ, fd=7, off=POSITION, length=60)
    rig.call("read", 100, fd=7, count=100)
    rig.complete(1, 60)
    rig.call("read", 100, fd=7, count=100)
    rig.run()
    assert [row["offset_bytes"] for row in rig.rows["operations"] if row["fd"] == 7][1:] == [0, None, None]


# ---- CLOSE ----


def test_a_close_ends_its_descriptor_and_no_other(rig: SqeRig) -> None:
    """At its completion, and the request has the handle."""
    first = rig.call("openat", 7, dfd=-100)
    second = rig.call("openat", 8, dfd=-100)
    done = rig.request(1, 0, opcode=CLOSE, fd=7)
    closed = rig.call("close", fd=8)
    rig.run()
    assert handles(rig, 7) == [(OPENED, first, done)]
    assert handles(rig, 8) == [(OPENED, second, closed)]
    (handle,) = (row["handle"] for row in rig.rows["handles"] if row["fd"] == 7)
    assert rig.of("ring_requests", "fd", "handle") == [(7, handle)]


def test_a_close_of_a_descriptor_that_appeared_unseen(rig: SqeRig) -> None:
    """It proves the descriptor, unless it fails with EBADF."""
    done = rig.request(1, 0, opcode=CLOSE, fd=7)
    rig.request(2, -9, opcode=CLOSE, fd=9)
    rig.run()
    assert handles(rig, 7) == [(UNSEEN, None, done)]
    assert handles(rig, 9) == []
    assert rig.of("ring_requests", "handle")[1] is None


def test_a_close_that_fails_otherwise_has_closed(rig: SqeRig) -> None:
    """The descriptor is gone when its file's flush fails; when it was is not known."""
    opened = rig.call("openat", 7, dfd=-100)
    rig.request(1, -5, opcode=CLOSE, fd=7)
    rig.call("read", 1, fd=7, count=1)
    rig.run()
    assert handles(rig, 7) == [(OPENED, opened, None), (UNSEEN, None, None)]


def test_a_number_that_is_opened_again_before_the_completion_stays(rig: SqeRig) -> None:
    """A CLOSE done at its submission closed the old one; another thread's open comes before the completion."""
    rig.fork(PID, 11, PID)
    rig.call("openat", 7, dfd=-100)
    rig.ask(1, opcode=CLOSE, fd=7)
    again = rig.call("openat", 7, tid=11, dfd=-100)
    rig.complete(1, 0)
    closed = rig.call("close", fd=7)
    rig.run()
    assert handles(rig, 7)[1] == (OPENED, again, closed)
    old = min(row["handle"] for row in rig.rows["handles"] if row["fd"] == 7)
    assert rig.of("ring_requests", "handle") == [old]


def test_a_close_on_a_worker_may_have_closed_either(rig: SqeRig) -> None:
    """If the number was opened again during the request, the closed one is unknown, and so is the slot."""
    rig.fork(PID, 11, PID)
    rig.worker(12)
    rig.call("openat", 7, dfd=-100)
    rig.ask(1, opcode=CLOSE, fd=7, flags=ASYNC)
    rig.event("queue_async_work", ctx=A, req=1, opcode=CLOSE, rw=0)
    rig.call("openat", 7, tid=11, dfd=-100)
    rig.complete(1, 0, tid=12)
    rig.call("read", 1, fd=7, count=1)
    rig.run()
    assert [row[2] for row in handles(rig, 7)] == [None, None, None]
    assert [row[0] for row in handles(rig, 7)] == [OPENED, OPENED, UNSEEN]
    assert rig.of("ring_requests", "handle") == [None]


@pytest.mark.parametrize("closed", [7, 8])
def test_what_is_looked_up_during_a_close_may_be_another_file(rig: SqeRig, closed: int) -> None:
    """A worker closed the number and opened it again, and the CQEs of both wait. So no request on it has a handle."""
    rig.worker(12)
    for fd in (7, 8):
        rig.call("openat", fd, dfd=-100)
    rig.ask(1, opcode=CLOSE, fd=closed, flags=ASYNC)
    rig.event("queue_async_work", ctx=A, req=1, opcode=CLOSE, rw=0)
    for req in (2, 3):
        if req == 3:
            rig.complete(1, 0)
        rig.ask(req, opcode=READ, fd=7, flags=ASYNC)
        rig.event("queue_async_work", ctx=A, req=req, opcode=READ, rw=0)
        rig.event("file_get", 12, ctx=A, req=req, fd=7)
        rig.complete(req, 1)
    rig.run()
    first = min(row["handle"] for row in rig.rows["handles"] if row["fd"] == 7)
    found = [handle for opcode, handle in rig.of("ring_requests", "opcode", "handle") if opcode == READ]
    assert found == [first] * 2 if closed == 8 else found[0] is None and found[1] not in {None, first}


@pytest.mark.parametrize("own", [True, False])
def test_a_close_of_another_process_hides_no_name(rig: SqeRig, *, own: bool) -> None:
    """Its descriptor has the same number, but is in another table."""
    rig.call("openat", 7, dfd=-100)
    rig.fork(11, 11, PID)
    rig.ask(1, opcode=CLOSE, fd=7, tid=PID if own else 11, ctx=B)
    rig.ask(2, opcode=READ, fd=7)
    rig.event("file_get", ctx=A, req=2, fd=7)
    rig.complete(2, 1)
    rig.run()
    (found,) = (handle for opcode, handle in rig.of("ring_requests", "opcode", "handle") if opcode == READ)
    assert (found is None) == own


def test_closes_that_ended_change_nothing(rig: SqeRig) -> None:
    """However many there were."""
    for req in range(1, 100):
        rig.call("openat", 7, dfd=-100)
        rig.request(req, 0, opcode=CLOSE, fd=7)
    rig.call("openat", 7, dfd=-100)
    rig.ask(200, opcode=READ, fd=7)
    rig.event("file_get", ctx=A, req=200, fd=7)
    rig.complete(200, 1)
    rig.run()
    assert rig.of("ring_requests", "handle")[-1] == max(row["handle"] for row in rig.rows["handles"] if row["fd"] == 7)


def test_a_close_without_an_sqe_may_have_closed_anything(rig: SqeRig) -> None:
    """As without programs: its record was lost."""
    rig.call("openat", 7, dfd=-100)
    rig.submit(1, opcode=CLOSE)
    rig.complete(1, 0)
    rig.call("sync")
    rig.run()
    assert handles(rig, 7)[0][2] is None


@pytest.mark.parametrize(("asked", "ends"), [({}, True), ({"file_index": 3}, False), ({"opcode": READ}, False)])
def test_a_close_ends_its_descriptor_where_requests_are_not_recorded(
    tmp_path: Path, asked: dict[str, int], *, ends: bool
) -> None:
    """The time of its execution is unknown: from its submission on, so is the number."""
    rig = SqeRig(tmp_path)
    for name in ("submit_req", "complete"):
        del rig.kernel.layouts[f"io_uring:io_uring_{name}"]
    rig.call("openat", 7, dfd=-100)
    rig.call("read", 1, fd=7, count=1)
    rig.sqe(1, **{"opcode": CLOSE, "fd": 7, **asked})
    rig.call("read", 1, fd=7, count=1)
    rig.run()
    assert [origin for origin, *_ in handles(rig, 7)] == ([OPENED, UNSEEN] if ends else [OPENED])
    assert handles(rig, 7)[0][2] is None


def test_the_ring_itself_stays(rig: SqeRig) -> None:
    """The kernel refuses to close a ring by a ring, with EBADF; the request still names it."""
    rig.request(1, -9, opcode=CLOSE, fd=FD)
    closed = rig.call("close", fd=FD)
    rig.run()
    assert [row[2] for row in handles(rig, FD)] == [closed]
    assert rig.of("ring_requests", "handle") == [rig.ring()["handle"]]


# ---- opens ----


def test_what_is_opened_has_the_flags_that_were_asked_for(rig: SqeRig) -> None:
    """It begins at 0. Even on a ring with registered files, it is known to be a descriptor."""
    rig.event("register", ctx=A, opcode=2, nr_files=8, nr_bufs=0, ret=0)
    opened = rig.request(1, 7, opcode=OPENAT, fd=-100, op_flags=O_APPEND | 2)
    rig.call("read", 5, fd=7, count=5)
    rig.run()
    assert handles(rig, 7) == [(BY_RING, opened, None)]
    assert [row["open_flags"] for row in rig.rows["handles"] if row["fd"] == 7] == [O_APPEND | 2]
    assert [row["offset_bytes"] for row in rig.rows["operations"] if row["fd"] == 7] == [0]


@pytest.mark.parametrize(("file_index", "res", "place"), [(4, 0, 3), (2**32 - 1, 6, 6)])
def test_an_open_into_the_registered_files_is_no_descriptor(rig: SqeRig, file_index: int, res: int, place: int) -> None:
    """The result is 0 or the place that the kernel chose: a descriptor of this number does not change."""
    rig.event("register", ctx=A, opcode=2, nr_files=8, nr_bufs=0, ret=0)
    opened = rig.call("openat", res, dfd=-100)
    rig.request(1, res, opcode=OPENAT, fd=-100, file_index=file_index)
    rig.run()
    assert handles(rig, res) == [(OPENED, opened, None)]
    assert rig.of("ring_requests", "file_index", "fd") == [(place, -1)]


# ---- registered files ----


def registered(rig: SqeRig) -> list[tuple[int | None, bytes | None]]:
    """Close time and name of each handle that stands for a registered file."""
    names = rig.names()
    rows = sorted((h for h in rig.rows["handles"] if h["origin"] == REGISTERED), key=lambda h: h["handle"])
    assert [(row["fd"], row["used"]) for row in rows] == [(-1, 1)] * len(rows)
    return [(row["close_time_ns"], names[row["handle"]]) for row in rows]


def read_fixed(rig: SqeRig, req: int, place: int, file: int, *names: bytes, **known: int) -> int:
    """A read of a registered file; with names the fact comes before."""
    if names:
        rig.told(place, *names, file=file, slot=True, **known)
    return rig.request(req, 10, opcode=READ, fd=place, flags=FIXED_FILE, length=10, file=file)


def test_a_registered_file_is_a_handle(rig: SqeRig) -> None:
    """One for each place, from its first name on; it ends with the ring."""
    read_fixed(rig, 1, 2, 0x1000, b"first", b"tmp")
    read_fixed(rig, 2, 2, 0x1000)
    read_fixed(rig, 3, 0, 0x2000, b"third", b"tmp", inode=3)
    closed = rig.call("close", fd=FD)
    rig.run()
    assert registered(rig) == [(closed, b"/tmp/first"), (closed, b"/tmp/third")]
    first, second, third = rig.of("ring_requests", "handle")
    assert first == second != third


def test_a_place_with_another_file_is_another_handle(rig: SqeRig) -> None:
    """By the address of its description, or by its inode where the address serves again; when is not known."""
    read_fixed(rig, 1, 2, 0x1000, b"first")
    read_fixed(rig, 2, 2, 0x2000, b"second", inode=2)
    read_fixed(rig, 3, 2, 0x2000, b"third", inode=3)
    read_fixed(rig, 4, 2, 0x3000)
    rig.run()
    assert registered(rig) == [(None, b"/first"), (None, b"/second"), (None, b"/third"), (None, None)]
    assert len(set(rig.of("ring_requests", "handle"))) == 4


def test_the_registered_file_is_the_one_that_was_opened(rig: SqeRig) -> None:
    """If a descriptor of the process is open on the same file, both share its description."""
    rig.call("openat", 7, dfd=-100)
    rig.told(7, b"file", file=0x1000)
    rig.request(1, 10, opcode=READ, fd=7, length=10, file=0x1000)
    read_fixed(rig, 2, 0, 0x1000, b"file")
    rig.run()
    assert registered(rig) == [(None, b"/file")]
    of_fd, of_place = ([h["description"] for h in rig.rows["handles"] if h["fd"] == fd] for fd in (7, -1))
    assert of_fd == of_place


@pytest.mark.parametrize(("opened", "offset"), [(O_APPEND, None), (0, 512)])
def test_what_appends_by_a_registered_file_has_no_offset(rig: SqeRig, opened: int, offset: int | None) -> None:
    """The flag is the description's, which the registered file has from the descriptor."""
    rig.call("openat", 7, dfd=-100, flags=opened)
    rig.told(7, b"file", file=0x1000)
    rig.request(1, 10, opcode=READ, fd=7, length=10, file=0x1000)
    read_fixed(rig, 2, 0, 0x1000, b"file")
    rig.request(3, 10, opcode=WRITE, fd=0, flags=FIXED_FILE, off=512, length=10, file=0x1000)
    assert asks(rig)[2][0] == offset


def test_a_close_of_a_place_ends_its_handle(rig: SqeRig) -> None:
    """No descriptor ends. An open into the place, or the end of registration, does the same."""
    rig.call("openat", 2, dfd=-100)
    read_fixed(rig, 1, 2, 0x1000, b"first")
    closed = rig.request(2, 0, opcode=CLOSE, file_index=3)
    read_fixed(rig, 3, 2, 0x2000, b"second", inode=2)
    opened = rig.request(4, 0, opcode=OPENAT, fd=-100, file_index=3)
    read_fixed(rig, 5, 2, 0x3000, b"third", inode=3)
    gone = rig.event("register", ctx=A, opcode=3, nr_files=0, nr_bufs=0, ret=0)
    rig.run()
    assert registered(rig) == [(closed, b"/first"), (opened, b"/second"), (gone, b"/third")]
    assert handles(rig, 2)[0][2] is None
    assert rig.of("ring_requests", "file_index") == [2] * 5


def test_a_close_of_a_place_names_what_it_closes(rig: SqeRig) -> None:
    """By the programs' facts: the handle of earlier reads, or an unused one; else none."""
    read_fixed(rig, 1, 2, 0x1000, b"first")
    first = rig.request(2, 0, opcode=CLOSE, file_index=3, file=0x1000)
    rig.told(4, b"second", file=0x2000, slot=True, inode=2)
    second = rig.request(3, 0, opcode=CLOSE, file_index=5, file=0x2000)
    rig.request(4, 0, opcode=CLOSE, file_index=6)
    rig.run()
    assert registered(rig) == [(first, b"/first"), (second, b"/second")]
    read, closed, other, untold = rig.of("ring_requests", "handle")
    assert read == closed != other
    assert untold is None
    assert rig.names()[other] == b"/second"


def test_what_runs_later_names_no_registered_file(rig: SqeRig) -> None:
    """The file in its place at that time is not known at its submission: programs tell no file then."""
    read_fixed(rig, 1, 2, 0x1000, b"first")
    rig.request(2, 10, opcode=READ, fd=2, flags=FIXED_FILE | LINK, length=10)
    rig.run()
    assert rig.of("ring_requests", "file_index") == [2, 2]
    assert rig.of("ring_requests", "handle")[1] is None


def test_splice_between_a_registered_file_and_a_pipe(rig: SqeRig) -> None:
    """Only the pipe is looked up by descriptor: it is read, although it is looked up first."""
    rig.call("openat", 7, dfd=-100)
    rig.told(2, b"first", file=0x1000, slot=True)
    rig.ask(1, opcode=SPLICE, fd=2, flags=FIXED_FILE, off=4096, length=600, file_index=7, file=0x1000)
    rig.event("file_get", ctx=A, req=1, user_data=0, fd=7)
    rig.complete(1, 600)
    rig.call("sync")
    rig.run()
    names, (row,) = rig.names(), rig.rows["ring_requests"]
    assert (row["offset_bytes"], row["bytes_request"], row["file_index"], row["fd"]) == (4096, 600, 2, -1)
    assert names[row["handle2"]] == b"/first"
    assert row["handle"] == next(h["handle"] for h in rig.rows["handles"] if h["fd"] == 7)


def test_tee_from_a_registered_file(rig: SqeRig) -> None:
    """Its number stands where the descriptor would."""
    rig.call("openat", 7, dfd=-100)
    rig.told(3, b"third", file=0x3000, slot=True)
    rig.ask(1, opcode=TEE, fd=7, length=600, file_index=3, file2=0x3000, op_flags=1 << 31)
    rig.event("file_get", ctx=A, req=1, user_data=0, fd=7)
    rig.complete(1, 600)
    rig.call("sync")
    rig.run()
    names, (row,) = rig.names(), rig.rows["ring_requests"]
    assert (row["fd"], names[row["handle"]]) == (7, b"/third")
    assert row["handle2"] == next(h["handle"] for h in rig.rows["handles"] if h["fd"] == 7)


def test_a_fact_about_a_request_is_about_its_moment(rig: SqeRig) -> None:
    """The descriptor has been this file since before the call that submits: nobody waits for the call's end."""
    rig.enter("io_uring_enter", fd=FD, to_submit=1)
    rig.told(7, b"file", b"data")
    rig.ask(1, opcode=READ, fd=7, length=10, file=0x1000)
    rig.event("file_get", ctx=A, req=1, user_data=0, fd=7)
    rig.complete(1, 10)
    rig.leave("io_uring_enter", 1)
    rig.run()
    assert [rig.names()[handle] for handle in rig.of("ring_requests", "handle")] == [b"/data/file"]
