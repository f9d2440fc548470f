"""Each kind of system call as OTF2 events."""

from __future__ import annotations

import errno
import fcntl
import os
from typing import Any

import pytest
from build.otf2_batches import BatchMaker
from build.otf2_written import attributes
from otf2.enums import IoAccessMode, IoCreationFlag, IoOperationFlag, IoOperationMode, IoSeekOption, IoStatusFlag

from lo2io.model import UNKNOWN_I64
from lo2io.trace.columns import CACHE_VERDICT

Write = Any
T = 2_000_000
UNDEFINED = 2**64 - 1


def test_read_is_an_operation_with_offset_and_real_result(before: BatchMaker, write: Write) -> None:
    """Begin carries the request and the offset at the entry's time, Complete the result at the exit's."""
    number = before.call(
        "read", T, T + 9, handle=0, fd=3, bytes_request=100, bytes_result=42, result=42, offset_bytes=7, offset_source=2
    )
    written = write(before.make())
    assert written.shape() == [
        ("+read", T),
        ("OperationBegin", T),
        ("OperationComplete", T + 9),
        ("-read", T + 9),
    ]
    begin, complete = written.of("thread fio 100")[1:3]
    assert begin.mode == IoOperationMode.READ
    assert begin.operation_flags == IoOperationFlag.NONE
    assert (begin.bytes_request, begin.matching_id) == (100, number)
    assert attributes(begin) == {"Offset": 7}
    assert (complete.bytes_result, complete.matching_id) == (42, number)
    assert complete.handle == begin.handle
    assert all(not attributes(event) for event in written.of("thread fio 100") if event is not begin)


@pytest.mark.parametrize(("verdict", "name"), list(enumerate(CACHE_VERDICT)))
def test_what_a_read_found_in_the_page_cache(before: BatchMaker, write: Write, verdict: int, name: str) -> None:
    """By its name, with pages if there are any, on the Complete; nothing where nothing is known."""
    pages = {"cache_missed_pages": 3, "cache_ahead_pages": 0} if name == "miss" else {"cache_ahead_pages": 5}
    before.call("read", T, T + 9, handle=0, bytes_request=100, bytes_result=42, result=42, cache=verdict, **pages)
    (complete,) = write(before.make()).find("IoOperationComplete")
    found = {"Cache": name} | ({"Missed pages": 3} if name == "miss" else {"Ahead pages": 5})
    assert attributes(complete) == ({} if name in {"no read", "unknown"} else found)


def test_end_of_file_is_zero_bytes_not_unknown(before: BatchMaker, write: Write) -> None:
    """A read that returns 0 has a result."""
    before.call("read", T, T + 9, handle=0, bytes_request=100, bytes_result=0, result=0)
    (complete,) = write(before.make()).find("IoOperationComplete")
    assert complete.bytes_result == 0


def test_failed_write_has_errno_and_no_bytes(before: BatchMaker, write: Write) -> None:
    """Both Complete and Leave carry errno, Enter and Begin do not; no offset is known, so none is said."""
    before.call("write", T, T + 9, handle=0, bytes_request=100, result=-errno.ENOSPC, error=errno.ENOSPC)
    enter, begin, complete, leave = write(before.make()).of("thread fio 100")
    assert begin.mode == IoOperationMode.WRITE
    assert complete.bytes_result == UNDEFINED
    assert attributes(complete) == attributes(leave) == {"errno": errno.ENOSPC}
    assert attributes(enter) == attributes(begin) == {}


def test_vectored_request_is_undefined(before: BatchMaker, write: Write) -> None:
    """Unknown requested bytes are OTF2's undefined, not zero."""
    before.call("read", T, T + 9, handle=0, bytes_result=5, result=5)
    (begin,) = write(before.make()).find("IoOperationBegin")
    assert begin.bytes_request == UNDEFINED


def test_unknown_handle_means_region_only(before: BatchMaker, write: Write) -> None:
    """EBADF names no handle: Enter and Leave with errno."""
    before.call("read", T, T + 9, fd=9, bytes_request=1, result=-9, error=errno.EBADF)
    before.call("fsync", T + 10, T + 19, fd=9, result=-9, error=errno.EBADF)
    written = write(before.make())
    assert [kind for kind, _ in written.shape()] == ["+read", "-read", "+fsync", "-fsync"]
    assert attributes(written.of("thread fio 100")[1]) == {"errno": errno.EBADF}


@pytest.mark.parametrize(
    ("call", "flags", "access", "creation", "status"),
    [
        ("openat", os.O_RDONLY, "READ_ONLY", [], []),
        (
            "openat",
            os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC,
            "WRITE_ONLY",
            ["CREATE", "EXCLUSIVE", "TRUNCATE"],
            ["APPEND", "CLOSE_ON_EXEC"],
        ),
        ("openat", os.O_RDWR | os.O_TMPFILE | os.O_SYNC, "READ_WRITE", ["TEMPORARY_FILE"], ["SYNC"]),
        (
            "openat",
            os.O_DIRECTORY | os.O_NOFOLLOW | os.O_NOATIME,
            "READ_ONLY",
            ["DIRECTORY", "NO_FOLLOW"],
            ["NO_ACCESS_TIME"],
        ),
        ("openat", os.O_RDWR | os.O_DIRECT | os.O_DSYNC, "READ_WRITE", [], ["AVOID_CACHING", "DATA_SYNC"]),
        (
            "openat",
            os.O_PATH | os.O_NONBLOCK | os.O_NOCTTY,
            "READ_ONLY",
            ["PATH", "NO_CONTROLLING_TERMINAL"],
            ["NON_BLOCKING"],
        ),
        ("creat", 0, "WRITE_ONLY", ["CREATE", "TRUNCATE"], []),
    ],
)
def test_open_flags(  # noqa: PLR0917 - one column of the table each
    maker: BatchMaker, write: Write, call: str, flags: int, access: str, creation: list[str], status: list[str]
) -> None:
    """Access mode, creation and status flags are the call's; creat has its own, whatever the row has."""
    maker.task(0)
    maker.row("handles", handle=0, fd=3, open_flags=flags)
    maker.call(call, T, T + 9, handle=0, fd=3, flags=flags, result=3)
    written = write(maker.make())
    assert written.shape() == [(f"+{call}", T), ("CreateHandle", T + 9), (f"-{call}", T + 9)]
    (event,) = written.find("IoCreateHandle")
    assert event.mode == getattr(IoAccessMode, access)
    assert event.creation_flags.value == sum(getattr(IoCreationFlag, name).value for name in creation)
    assert event.status_flags.value == sum(getattr(IoStatusFlag, name).value for name in status)
    assert attributes(event) == {}
    assert event.handle.io_handle_flags.value == 0


def test_open_with_unknown_flags_says_so(maker: BatchMaker, write: Write) -> None:
    """openat2's flags lie in user memory: READ_WRITE excludes nothing, an attribute marks it."""
    maker.task(0)
    maker.row("handles", handle=0, fd=3)
    maker.call("openat2", T, T + 9, handle=0, fd=3, flags=os.O_WRONLY, result=3)
    (event,) = write(maker.make()).find("IoCreateHandle")
    assert event.mode == IoAccessMode.READ_WRITE
    assert attributes(event) == {"AccessModeUnknown": 1}


def test_failed_open_creates_nothing(before: BatchMaker, write: Write) -> None:
    """Not even if the directory's fd has a handle."""
    before.call("openat", T, T + 9, handle=0, fd=3, flags=0, result=-2, error=errno.ENOENT)
    assert [kind for kind, _ in write(before.make()).shape()] == ["+openat", "-openat"]


@pytest.mark.parametrize(("closes", "error"), [(1, 0), (1, errno.EIO), (0, errno.EBADF)])
def test_close_destroys_if_the_handle_ended(before: BatchMaker, write: Write, closes: int, error: int) -> None:
    """A close that fails with EIO has freed the fd all the same."""
    before.call("close", T, T + 9, handle=0, fd=3, closes=closes, result=-error, error=error)
    written = write(before.make())
    middle = [("DestroyHandle", T + 9)] if closes else []
    assert written.shape() == [("+close", T), *middle, ("-close", T + 9)]


def test_reused_fd_is_another_handle(before: BatchMaker, write: Write) -> None:
    """Close and open again with the same fd: one handle per instance."""
    before.row("handles", handle=5, fd=3, open_flags=0)
    before.call("read", T, T + 1, handle=0, fd=3, bytes_result=1)
    before.call("close", T + 2, T + 3, handle=0, fd=3, closes=1)
    before.call("openat", T + 4, T + 5, handle=5, fd=3, result=3)
    before.call("read", T + 6, T + 7, handle=5, fd=3, bytes_result=1)
    first, second = write(before.make()).find("IoOperationBegin")
    assert first.handle._ref != second.handle._ref
    assert (first.handle.io_handle_flags.value, second.handle.io_handle_flags.value) == (1, 0)


@pytest.mark.parametrize("whence", range(5))
def test_seek(before: BatchMaker, write: Write, whence: int) -> None:
    """Requested offset (signed), whence and the resulting position."""
    before.call("lseek", T, T + 9, handle=0, fd=3, flags=whence, offset_bytes=-10, offset_source=1, result=90)
    written = write(before.make())
    assert written.shape() == [("+lseek", T), ("Seek", T + 9), ("-lseek", T + 9)]
    (event,) = written.find("IoSeek")
    assert (event.offset_request, event.offset_result) == (-10, 90)
    names = ("FROM_START", "FROM_CURRENT", "FROM_END", "DATA", "HOLE")
    assert event.whence == getattr(IoSeekOption, names[whence])


def test_failed_seek_moves_nothing(before: BatchMaker, write: Write) -> None:
    """ESPIPE: region only."""
    before.call("lseek", T, T + 9, handle=0, fd=3, offset_bytes=0, result=-29, error=errno.ESPIPE)
    assert [kind for kind, _ in write(before.make()).shape()] == ["+lseek", "-lseek"]


def test_fsync_is_a_flush_of_the_handle(before: BatchMaker, write: Write) -> None:
    """Mode FLUSH; bytes are undefined at both ends."""
    before.call("fsync", T, T + 9, handle=0, fd=3, result=0)
    written = write(before.make())
    (begin,), (complete,) = written.find("IoOperationBegin"), written.find("IoOperationComplete")
    assert begin.mode == IoOperationMode.FLUSH
    assert begin.bytes_request == complete.bytes_result == UNDEFINED


def test_sync_uses_a_proxy_of_the_process(maker: BatchMaker, write: Write) -> None:
    """sync(2) names no fd: all threads of a process share one PRE_CREATED ALL_PROXY handle without a file."""
    for task, pid in ((0, 100), (1, 100), (2, 200)):
        maker.task(task, pid=pid, process=pid)
        maker.call("sync", T + task, T + 9, task=task, pid=pid, result=0)
    written = write(maker.make())
    handles = {location.name: event.handle for location, event in written.events if hasattr(event, "mode")}
    assert handles["thread fio 100"] == handles["thread fio 101"] != handles["thread fio 102"]
    assert {handle.name for handle in handles.values()} == {"sync"}
    assert {handle.io_handle_flags.value for handle in handles.values()} == {3}
    assert "Flags: {PRE_CREATED, ALL_PROXY}" in written.printed("-G")


def test_sync_of_a_pid_used_again(write: Write) -> None:
    """The proxy is of one process, whether its end was seen or not."""
    batches = []
    for task, end in enumerate((T + 10, UNKNOWN_I64, UNKNOWN_I64)):
        maker = BatchMaker(first_id=100 * (task + 1))
        maker.first_operation = task
        maker.call("sync", T + 20 * task, T + 20 * task + 5, task=task, process=task, pid=100, tid=100, result=0)
        maker.task(task, process=task, pid=100, tid=100, exit_time_ns=end)
        batches.append(maker.make())
    written = write(*batches)
    assert len({id(event.handle) for _, event in written.events if hasattr(event, "mode")}) == len(batches)


def test_copy_reads_and_writes(before: BatchMaker, write: Write) -> None:
    """One operation per side, with ids of their own; the offset argument belongs to the read side."""
    before.row("handles", handle=1, fd=4, origin=3, open_flags=os.O_RDWR)
    number = before.call(
        "copy_file_range",
        T,
        T + 9,
        handle=0,
        handle2=1,
        bytes_request=50,
        bytes_result=20,
        offset_bytes=3,
        offset_source=1,
    )
    written = write(before.make())
    begins, completes = written.find("IoOperationBegin"), written.find("IoOperationComplete")
    assert [(b.handle.name, b.mode, b.matching_id) for b in begins] == [
        ("fd 3", IoOperationMode.READ, number),
        ("fd 4", IoOperationMode.WRITE, number + 1),
    ]
    assert [(c.bytes_result, c.matching_id) for c in completes] == [(20, number), (20, number + 1)]
    assert [attributes(b) for b in begins] == [{"Offset": 3}, {}]


def test_copy_with_one_unknown_side(before: BatchMaker, write: Write) -> None:
    """The known side is written."""
    number = before.call("copy_file_range", T, T + 9, handle2=0, bytes_request=50, bytes_result=20)
    (begin,) = write(before.make()).find("IoOperationBegin")
    assert (begin.mode, begin.matching_id) == (IoOperationMode.WRITE, number + 1)


def test_duplicates_share_known_flags_but_not_close_on_exec(maker: BatchMaker, write: Write) -> None:
    """dup, dup3 and F_DUPFD_CLOEXEC of a handle whose flags the trace has seen."""
    maker.task(0)
    for handle, fd in ((0, 3), (1, 4), (2, 5), (3, 6)):
        maker.row("handles", handle=handle, fd=fd, origin=handle and 1, parent=0 if handle else 2**32 - 1)
    flags = os.O_APPEND | os.O_CLOEXEC
    maker.call("openat", T, T + 1, handle=0, fd=3, flags=flags, result=3)
    maker.call("dup", T + 2, T + 3, handle=0, handle2=1, fd=3, result=4)
    maker.call("dup3", T + 4, T + 5, handle=0, handle2=2, fd=3, flags=os.O_CLOEXEC, result=5)
    maker.call("fcntl", T + 6, T + 7, handle=0, handle2=3, fd=3, flags=fcntl.F_DUPFD_CLOEXEC, result=6)
    written = write(maker.make())
    append, on_exec = IoStatusFlag.APPEND.value, IoStatusFlag.CLOSE_ON_EXEC.value
    found = written.find("IoDuplicateHandle")
    assert [(e.old_handle.name, e.new_handle.name, e.status_flags.value) for e in found] == [
        ("fd 3", "fd 4", append),
        ("fd 3", "fd 5", append | on_exec),
        ("fd 3", "fd 6", append | on_exec),
    ]
    assert [h.io_handle_flags.value for h in written.definitions.io_handles] == [0, 0, 0, 0]
    assert all(handle.parent is None for handle in written.definitions.io_handles)  # parents are of higher paradigms


def test_dup_to_itself_changes_nothing(before: BatchMaker, write: Write) -> None:
    """No new handle: region only."""
    before.call("dup3", T, T + 9, handle=0, fd=3, result=3)
    assert [kind for kind, _ in write(before.make()).shape()] == ["+dup3", "-dup3"]


def test_set_flags_keeps_close_on_exec(maker: BatchMaker, write: Write) -> None:
    """F_SETFL changes the description's flags; close-on-exec belongs to the fd."""
    maker.task(0)
    maker.row("handles", handle=0, fd=3)
    maker.call("openat", T, T + 1, handle=0, fd=3, flags=os.O_CLOEXEC, result=3)
    maker.call("fcntl", T + 2, T + 3, handle=0, fd=3, flags=fcntl.F_SETFL, result=0)
    maker.row("handle_events", before=2, time_ns=T + 3, task=0, handle=0, kind=1, flags=os.O_NONBLOCK)
    maker.call("fcntl", T + 4, T + 5, handle=0, fd=3, flags=fcntl.F_GETFL, result=0)
    written = write(maker.make())
    (event,) = written.find("IoChangeStatusFlags")
    assert event.time == T + 3
    assert event.status_flags.value == IoStatusFlag.NON_BLOCKING.value | IoStatusFlag.CLOSE_ON_EXEC.value


def test_metadata_call_is_a_region(before: BatchMaker, write: Write) -> None:
    """The region has the usual name."""
    before.call("newfstat", T, T + 9, handle=0, fd=3, result=0)
    assert write(before.make()).shape() == [("+fstat", T), ("-fstat", T + 9)]


@pytest.mark.parametrize("processes", [62, 63, 64])
def test_sync_of_many_processes(processes: int, maker: BatchMaker, write: Write) -> None:
    """However full the memory for processes is when one that is known gets a second thread."""
    for task in range(processes):
        ids = {"process": task, "pid": 100 + task, "tid": 100 + task}
        maker.call("sync", T + task, T + task + 5, task=task, result=0, **ids)
        maker.task(task, **ids)
    maker.call("sync", T + 900, T + 905, task=processes, process=0, pid=100, tid=1000, result=0)
    maker.task(processes, process=0, pid=100, tid=1000)
    written = write(maker.make())
    handles = {id(event.handle): event.handle.name for _, event in written.events if hasattr(event, "mode")}
    assert list(handles.values()) == ["sync"] * processes
