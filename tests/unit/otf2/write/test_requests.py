"""Block requests as OTF2 operations on one location per device."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING, Any

import pytest
from build.otf2_written import attributes, label
from otf2.enums import IoOperationFlag, IoOperationMode

from lo2io.model import UNKNOWN_U32, RequestOp
from lo2io.otf2.write.rows import request_operation
from lo2io.trace.columns import WRITE_REASON

if TYPE_CHECKING:
    from build.otf2_batches import BatchMaker

Write = Any
T = 2_000_000
VDA, OTHER = 254 << 20, 7 << 20 | 3
BEGIN, ISSUED, COMPLETE, CANCELLED, ENDED = range(5)
UNDEFINED = 2**64 - 1


def event(maker: BatchMaker, kind: int, number: int, time: int, **columns: int) -> None:
    """An event of a request on vda, by default a write of 4096 bytes."""
    defaults = {"device": VDA, "operation": 1, "bytes": 4096, "sector": 8, "pid": 100, "tid": 101, "task": 0}
    maker.row("request_events", kind=kind, id=number, time_ns=time, **{**defaults, **columns})


def test_interleaved_requests_keep_their_order_and_ids(maker: BatchMaker, write: Write) -> None:
    """Begin, issued, complete of two requests, crossing; a third merged away."""
    for kind, number, time in (
        (BEGIN, 1, T),
        (BEGIN, 2, T),
        (BEGIN, 3, T + 1),
        (CANCELLED, 3, T + 1),
        (ISSUED, 2, T + 2),
        (ISSUED, 1, T + 3),
        (COMPLETE, 1, T + 4),
        (COMPLETE, 2, T + 5),
    ):
        event(maker, kind, number, time)
    events = write(maker.make()).of("vda requests")
    assert [(label(e).removeprefix("Operation"), e.matching_id, e.time) for e in events] == [
        ("Begin", 1, T),
        ("Begin", 2, T),
        ("Begin", 3, T + 1),
        ("Cancelled", 3, T + 1),
        ("Issued", 2, T + 2),
        ("Issued", 1, T + 3),
        ("Complete", 1, T + 4),
        ("Complete", 2, T + 5),
    ]
    assert {e.handle.name for e in events} == {"vda"}


def test_begin_says_what_where_and_who(maker: BatchMaker, write: Write) -> None:
    """Non-blocking; sector, submitter and operation as attributes."""
    event(maker, BEGIN, 1, T, flags=2 | 8)
    (begin,) = write(maker.make()).of("vda requests")
    assert begin.operation_flags == IoOperationFlag.NON_BLOCKING
    assert (begin.mode, begin.bytes_request) == (IoOperationMode.WRITE, 4096)
    assert attributes(begin) == {"Sector": 8, "ProcessId": 100, "ThreadId": 101, "Operation": "WFS"}


def test_begin_says_why_a_worker_wrote_back(maker: BatchMaker, write: Write) -> None:
    """By the kernel's name; other requests have no reason."""
    for number, reason in ((1, WRITE_REASON.index("sync")), (2, 0)):
        event(maker, BEGIN, number, T, reason=reason, pid=UNKNOWN_U32, tid=UNKNOWN_U32)
    found = write(maker.make()).of("vda requests")
    assert [attributes(begin).get("Reason") for begin in found] == ["sync", None]


def test_completion_says_whose_bytes_it_wrote(maker: BatchMaker, write: Write) -> None:
    """The file and the thread, if there is one of each."""
    for kind, more in ((BEGIN, {}), (ISSUED, {}), (COMPLETE, {"inode": 7, "charged": 55, "error": errno.EIO})):
        event(maker, kind, 1, T + kind, **more)
    complete = write(maker.make()).of("vda requests")[-1]
    assert attributes(complete) == {"Inode": 7, "Charged to": 55, "errno": errno.EIO}


def test_unknown_submitter_is_not_named(maker: BatchMaker, write: Write) -> None:
    """No attribute rather than a number that means nothing."""
    event(maker, BEGIN, 1, T, pid=UNKNOWN_U32, tid=UNKNOWN_U32)
    (begin,) = write(maker.make()).of("vda requests")
    assert attributes(begin) == {"Sector": 8, "Operation": "W"}


def test_what_carries_no_data_is_no_write(maker: BatchMaker, write: Write) -> None:
    """Only reads and writes have their mode and size. The attribute Bytes is the size of a discard's range."""
    operations = [operation for operation in RequestOp if operation is not RequestOp.FLUSH]
    for number, operation in enumerate(operations, 1):
        event(maker, BEGIN, number, T, operation=operation)
        event(maker, ISSUED, number, T, operation=operation)
        event(maker, COMPLETE, number, T, operation=operation)
    events = write(maker.make()).of("vda requests")
    modes = {RequestOp.READ: IoOperationMode.READ, RequestOp.WRITE: IoOperationMode.WRITE}
    for operation, begin, complete in zip(operations, events[::3], events[2::3], strict=True):
        assert begin.mode == modes.get(operation, IoOperationMode.FLUSH)
        assert attributes(begin)["Operation"] == request_operation(operation << 5)
        for size, end in ((begin.bytes_request, begin), (complete.bytes_result, complete)):
            told = attributes(end).get("Bytes")
            assert (size, told) == ((4096, None) if operation in modes else (UNDEFINED, 4096))


def test_flush_has_neither_bytes_nor_sector(maker: BatchMaker, write: Write) -> None:
    """Flushes carry sector 0 and no size: undefined, not zero."""
    for kind, time in ((BEGIN, T), (ISSUED, T + 1), (COMPLETE, T + 2)):
        event(maker, kind, 1, time, operation=RequestOp.FLUSH, sector=0, bytes=0)
    begin, _, complete = write(maker.make()).of("vda requests")
    assert begin.mode == IoOperationMode.FLUSH
    assert begin.bytes_request == complete.bytes_result == UNDEFINED
    assert attributes(begin) == {"ProcessId": 100, "ThreadId": 101, "Operation": "F"}


def test_failed_request_has_errno(maker: BatchMaker, write: Write) -> None:
    """Its bytes are not known."""
    event(maker, BEGIN, 1, T)
    event(maker, COMPLETE, 1, T + 1, error=errno.EIO)
    _, complete = write(maker.make()).of("vda requests")
    assert complete.bytes_result == UNDEFINED
    assert attributes(complete) == {"errno": errno.EIO}


def test_an_end_that_nobody_saw_says_so(maker: BatchMaker, write: Write) -> None:
    """It stands at its latest moment, with the earliest; its bytes are unknown."""
    for kind, time in ((BEGIN, T), (ISSUED, T + 1), (ENDED, T + 9)):
        event(maker, kind, 1, time, issue_time_ns=T + 1, cpu=2**16 - 1)
    complete = write(maker.make()).of("vda requests")[-1]
    assert (label(complete), complete.time, complete.bytes_result) == ("OperationComplete", T + 9, UNDEFINED)
    assert attributes(complete) == {"EndInferred": 1, "EndEarliest": T + 1}


def test_devices_stand_under_the_host(maker: BatchMaker, write: Write) -> None:
    """A node, a group and a location each; one nobody described goes by its numbers."""
    event(maker, BEGIN, 1, T)
    event(maker, BEGIN, 2, T, device=OTHER)
    written = write(maker.make())
    nodes = {node.name: node for node in written.definitions.system_tree_nodes}
    assert nodes["block devices"].parent == nodes["node7"]
    assert nodes["vda"].parent == nodes["dev 7:3"].parent == nodes["block devices"]
    groups = {group.name: group for group in written.definitions.location_groups}
    assert groups["block vda"].system_tree_parent == nodes["vda"]
    assert [location.name for location in written.definitions.locations] == ["vda requests", "dev 7:3 requests"]
    handles = {handle.name: handle for handle in written.definitions.io_handles}
    assert handles["vda"].file.name == "/dev/vda"
    assert handles["vda"].file.scope == nodes["vda"]
    assert handles["vda"].io_handle_flags.value == 1
    assert 'I/O Paradigm: "Linux block layer" <1>' in written.printed("-G")


@pytest.mark.parametrize(
    ("code", "text"),
    [(0, "R"), (4, "RA"), (1 << 5 | 31, "FWFASM"), (2 << 5 | 8, "FS"), (3 << 5, "D"), (4 << 5, "DE"), (5 << 5, "WZ")],
)
def test_operation_texts(code: int, text: str) -> None:
    """Letters and order are those of blk_fill_rwbs."""
    assert request_operation(code) == text
