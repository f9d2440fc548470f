"""Packs facts from ``/proc`` as the records of ``lo2io/native/api/facts.h``. In: values. Out: bytes.

Times are CLOCK_MONOTONIC nanoseconds. Records have the frame of perf's records, little-endian, and 8-byte aligned.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, NamedTuple

from lo2io.model import UNKNOWN_I64, UNKNOWN_U32

if TYPE_CHECKING:
    from collections.abc import Iterable

FACT_TASK = 0x4C01
FACT_FD = 0x4C02
FACT_RING = 0x4C03
FACT_COMMAND = 0x4C04
FACT_RANK = 0x4C05
FACT_MAPPING = 0x4C06
TASK_SELECT = 1
"""Flag: record this task and its descendants."""
TASK_FROM_EXEC = 2
"""Flag, with TASK_SELECT: record them only from the task's first exec on."""
TASK_COMPAT = 4
"""Flag: the process runs a program of 32 bits."""

COMM_BYTES = 16
MAX_PATH_BYTES = 0xFF00
"""The longest path in a record, whose size is a u16. The kernel's own paths (PATH_MAX) are far shorter."""
_HEADER = struct.Struct("<IHH")
_TASK = struct.Struct("<QQIIII16s")
_CGROUP = struct.Struct("<II")
_TIMES = struct.Struct("<QQ")
"""Each fact has them after its header."""
_FD = struct.Struct("<QQQQqIiIIII")
_FD_IDENTITY = struct.Struct("<IiIIII")
"""The last part of it."""
_COMMAND = struct.Struct("<QQIIII")
_RANK = struct.Struct("<QQII")
_RING = struct.Struct("<QQIiIIiIII")
_MAPPING = struct.Struct("<QQIIQQQ20sI")


class MappingFact(NamedTuple):
    """A piece of a file that a process had mapped as code: addresses from ``begin`` up to ``end``."""

    pid: int
    begin: int
    end: int
    offset: int
    """In the file, of the first byte."""
    build_id: str
    """40 hexadecimal digits; empty: not known."""
    path: str


def pack_task(
    *,
    begin_ns: int,
    end_ns: int,
    pid: int,
    tid: int,
    ppid: int,
    comm: bytes,
    flags: int = 0,
    cgroup: tuple[int, bytes] | None = None,
) -> bytes:
    """A TASK fact: the state of a thread at some time between the two times.

    Args:
        begin_ns: CLOCK_MONOTONIC before the look.
        end_ns: CLOCK_MONOTONIC after the look. Records are ordered by this time.
        pid: The thread's process.
        tid: The thread.
        ppid: The parent process.
        comm: The thread's name, cut to 15 bytes and a zero byte as the kernel does.
        flags: ``TASK_SELECT``, ``TASK_FROM_EXEC``, ``TASK_COMPAT``.
        cgroup: The process' hierarchy and path, as in ``/proc/PID/cgroup``; None: unknown. A path that is too long for
            a record counts as unknown, because a cut path names another cgroup.
    """
    body = _TASK.pack(end_ns, begin_ns, pid, tid, ppid, flags, comm[: COMM_BYTES - 1])
    if cgroup is not None and len(cgroup[1]) <= MAX_PATH_BYTES:
        hierarchy, path = cgroup
        body += _CGROUP.pack(hierarchy, len(path)) + path + bytes(-len(path) % 8)
    return _HEADER.pack(FACT_TASK, 0, _HEADER.size + len(body)) + body


def pack_command(*, begin_ns: int, end_ns: int, pid: int, command: bytes, cut: bool = False) -> bytes:
    """A COMMAND fact: the contents of ``/proc/PID/cmdline`` at some time between the two times.

    Args:
        begin_ns: CLOCK_MONOTONIC before the look.
        end_ns: CLOCK_MONOTONIC after the look. Records are ordered by this time.
        pid: The process.
        command: The arguments, each ended by a zero byte, or a title.
        cut: True if the command line is longer.
    """
    body = _COMMAND.pack(end_ns, begin_ns, pid, cut, len(command), 0) + command + bytes(-len(command) % 8)
    return _HEADER.pack(FACT_COMMAND, 0, _HEADER.size + len(body)) + body


def pack_rank(*, begin_ns: int, end_ns: int, pid: int, rank: int) -> bytes:
    """A RANK fact: the rank in the environment of a process at some time between the two times.

    Args:
        begin_ns: CLOCK_MONOTONIC before the look.
        end_ns: CLOCK_MONOTONIC after the look. Records are ordered by this time.
        pid: The process.
        rank: Its number in its job.
    """
    body = _RANK.pack(end_ns, begin_ns, pid, rank)
    return _HEADER.pack(FACT_RANK, 0, _HEADER.size + len(body)) + body


def pack_fd(
    *,
    begin_ns: int,
    end_ns: int,
    pid: int,
    fd: int,
    path: bytes,
    device: int,
    inode: int,
    mode: int,
    position: int | None = None,
    open_flags: int | None = None,
    mount: int | None = None,
) -> bytes:
    """An FD fact: the state of a descriptor at some time between the two times.

    Args:
        begin_ns: CLOCK_MONOTONIC before the first read about the descriptor.
        end_ns: CLOCK_MONOTONIC after the last read.
        pid: The process with the descriptor.
        fd: The descriptor's number.
        path: The result of readlink(2) of ``/proc/PID/fd/N``, unchanged.
        device: ``st_dev``.
        inode: ``st_ino``.
        mode: ``st_mode``.
        position: The file position, if known.
        open_flags: ``O_*`` as in fdinfo, with ``O_CLOEXEC``, if known.
        mount: Mount id, if known.
    """
    text = path[:MAX_PATH_BYTES]
    body = _FD.pack(
        end_ns,
        begin_ns,
        device,
        inode,
        UNKNOWN_I64 if position is None else position,
        pid,
        fd,
        UNKNOWN_U32 if open_flags is None else open_flags,
        mode,
        UNKNOWN_U32 if mount is None else mount,
        len(text),
    )
    padded = text + bytes(-len(text) % 8)
    return _HEADER.pack(FACT_FD, 0, _HEADER.size + len(body) + len(padded)) + body + padded


def pack_ring(
    *,
    begin_ns: int,
    end_ns: int,
    pid: int,
    fd: int,
    sq_entries: int | None = None,
    cq_entries: int | None = None,
    poller: int | None = None,
    nr_files: int | None = None,
    nr_buffers: int | None = None,
) -> bytes:
    """A RING fact: facts of fdinfo about an io_uring's descriptor. It follows the FD fact of the same look.

    Args:
        begin_ns: CLOCK_MONOTONIC before the first read about the descriptor.
        end_ns: CLOCK_MONOTONIC after the last read.
        pid: The process with the descriptor.
        fd: The descriptor's number.
        sq_entries: Size of the submission queue, if known.
        cq_entries: Size of the completion queue, if known.
        poller: tid of the SQ thread, if there is one.
        nr_files: Registered files, if known.
        nr_buffers: Registered buffers, if known.
    """
    body = _RING.pack(
        end_ns,
        begin_ns,
        pid,
        fd,
        sq_entries or 0,
        cq_entries or 0,
        -1 if poller is None else poller,
        UNKNOWN_U32 if nr_files is None else nr_files,
        UNKNOWN_U32 if nr_buffers is None else nr_buffers,
        0,
    )
    return _HEADER.pack(FACT_RING, 0, _HEADER.size + len(body)) + body


def pack_mapping(*, begin_ns: int, end_ns: int, mapping: MappingFact) -> bytes:
    """A MAPPING fact: code that a process had mapped at some time between the two times.

    Args:
        begin_ns: CLOCK_MONOTONIC before the look.
        end_ns: CLOCK_MONOTONIC after the look. Records are ordered by this time.
        mapping: The code.
    """
    path = mapping.path.encode(errors="surrogateescape")[:MAX_PATH_BYTES]
    body = _MAPPING.pack(
        end_ns,
        begin_ns,
        mapping.pid,
        len(path),
        mapping.begin,
        mapping.end,
        mapping.offset,
        bytes.fromhex(mapping.build_id),
        0,
    )
    padded = path + bytes(-len(path) % 8)
    return _HEADER.pack(FACT_MAPPING, 0, _HEADER.size + len(body) + len(padded)) + body + padded


def without_times(records: Iterable[bytes]) -> list[bytes]:
    """Cut the times out of facts of any kind. ``pack_times(…).join(…)`` makes facts with other times of the pieces."""
    pieces = [b""]
    for record in records:
        pieces[-1] += record[: _HEADER.size]
        pieces.append(record[_HEADER.size + _TIMES.size :])
    return pieces


def pack_times(begin_ns: int, end_ns: int) -> bytes:
    """The times of a fact, as they stand in each."""
    return _TIMES.pack(end_ns, begin_ns)


def read_descriptors(records: bytes, path: bytes) -> list[tuple[int, int]]:
    """Process and number of each descriptor that has this path, of FD facts one after the other."""
    found = []
    at = records.find(path)
    while at >= 0:
        begin = at - _FD.size - _HEADER.size
        if begin >= 0:
            pid, fd, _, _, _, length = _FD_IDENTITY.unpack_from(records, begin + _HEADER.size + _TIMES.size + 24)
            if length == len(path):
                found.append((pid, fd))
        at = records.find(path, at + 1)
    return found


def read_mapping(record: bytes) -> MappingFact | None:
    """The code that a MAPPING fact tells of; None: the record is damaged."""
    at = _HEADER.size + _MAPPING.size
    if len(record) < at:
        return None
    _, _, pid, length, begin, end, offset, build_id, _ = _MAPPING.unpack_from(record, _HEADER.size)
    path = record[at : at + length].split(b"\0", 1)[0].decode(errors="surrogateescape")
    return MappingFact(pid, begin, end, offset, build_id.hex() if any(build_id) else "", path)
