"""A spool's records as perf's own, of all CPUs in the order of time.

In: a spool. Out: records for ``perf.data``, bytes and all. What the spool's samples lack there is added: which event
they are of, process, thread and CPU. Calls that lo2io's programs in the kernel recorded become the two samples that
each of them stands for: raw data as ``perf_syscall_enter`` and ``perf_syscall_exit`` have them
(kernel/trace/trace_syscalls.c).
"""

from __future__ import annotations

import heapq
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from lo2io.kernel.call_numbers import call_number
from lo2io.spool.facts import FACT_TASK

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from lo2io.exports.perf_data_file import PerfDataFile
    from lo2io.spool.reader import SpoolReader

RECORD_LOST, RECORD_COMM, RECORD_EXIT, RECORD_THROTTLE, RECORD_UNTHROTTLE, RECORD_FORK = 2, 3, 4, 5, 6, 7
RECORD_SAMPLE: Final = 9
FINISHED_ROUND: Final = struct.pack("<IHH", 68, 0, 8)
"""Says that all before the last such record can be shown (PERF_RECORD_FINISHED_ROUND, tools/perf)."""
KERNEL_CALL, KERNEL_ENTER, KERNEL_EXIT, KERNEL_LOST = 1, 2, 3, 9
"""``enum lo2_kernel_record``."""
UNKNOWN: Final = 0xFFFFFFFF
"""A pid or tid that nobody knows: perf's -1."""
_BLOCK: Final = 1 << 20
_HEADER: Final = struct.Struct("<IHH")
_SAMPLE: Final = struct.Struct("<IHHQIIQII")
"""Header; identifier, pid, tid, time, CPU; the raw data follow with their length."""
_TRAILER: Final = struct.Struct("<IIQIIQ")
"""pid, tid, time, CPU, identifier: ``sample_id_all``."""
_UNFINISHED, _DISCARDED, _LENGTH = 1 << 31, 1 << 30, (1 << 30) - 1
_KERNEL_HEAD: Final = struct.Struct("<QIHH")
_COMMON: Final = struct.Struct("<HBBiiI")
_CALL: Final = struct.Struct("<HHIQq")
_TASK: Final = struct.Struct("<QQII")
_COMM_AT = 32

Row = tuple[int, int, int, int, bytes]
"""Time, CPU, kind of record, misc, body as in the spool: of a sample its raw data, of others all but the last time."""


@dataclass(frozen=True, slots=True)
class _CallEvent:
    """What a record of a call becomes."""

    number: int
    """Of the system call; -1: not known."""
    size: int
    """Bytes of the raw data, strings left out."""


class Records:
    """All records of a spool; iterate once.

    Args:
        spool: What to read.
        out: The file, for the ids of events.
        progress: Told how far it is, 0 to 1.
    """

    def __init__(self, spool: SpoolReader, out: PerfDataFile, progress: Callable[[float], None]) -> None:
        self.nr_samples = 0
        self.nr_unknown = 0
        """Samples of no known event, left out."""
        self.first_ns = self.last_ns = 0
        """Of samples."""
        self._spool = spool
        self._progress = progress
        self._ids = {event.id: place + 1 for place, event in enumerate(out.formats)}
        self._dummy = out.dummy_id
        self._calls = {
            event.id: _call_event(name, max(f.offset + f.size for f in event.fields), spool.meta.machine)
            for name, event in zip(spool.meta.events, out.formats, strict=True)
            if name.startswith("syscalls:")
        }
        self._pids = {0: 0}
        self._total = max(1, sum(path.stat().st_size for path in self._files()))
        self._done = 0

    def __iter__(self) -> Iterator[bytes]:
        """Records, names of threads that were there before first."""
        yield from self._known_threads()
        streams = [_in_order(self._ring(files, cpu)) for files, cpu in self._spool.streams()]
        streams += [_in_order(self._kernel(files, cpu)) for files, cpu in self._spool.kernel_streams()]
        keyed = [((row[0], rank, row) for row in stream) for rank, stream in enumerate(streams)]
        for time_ns, _, (_, cpu, kind, misc, body) in heapq.merge(*keyed):
            record = (
                self._sample(time_ns, cpu, body)
                if kind == RECORD_SAMPLE
                else self._other(time_ns, cpu, kind, misc, body)
            )
            if record:
                yield record

    def _files(self) -> Iterator[Path]:
        for files, _ in (*self._spool.streams(), *self._spool.kernel_streams()):
            yield from files

    def _known_threads(self) -> Iterator[bytes]:
        """Names and processes of threads that ``/proc`` showed, at time 0: births in the trace come later."""
        seen: set[int] = set()
        for path in self._spool.facts:
            for kind, _, body in _walk(path, lambda _: None):
                if kind != FACT_TASK:
                    continue
                _, _, pid, tid = _TASK.unpack_from(body)
                if tid not in seen:
                    seen.add(tid)
                    self._pids[tid] = pid
                    name = struct.pack("<II", pid, tid) + body[_COMM_AT : _COMM_AT + 16]
                    yield self._framed(RECORD_COMM, 0, name, (pid, tid, 0, 0))

    def _ring(self, files: tuple[Path, ...], cpu: int) -> Iterator[list[Row]]:
        for path in files:
            rows: list[Row] = []
            for kind, misc, body in _walk(path, self._advance):
                if kind == RECORD_SAMPLE:
                    rows.append((int.from_bytes(body[:8], "little"), cpu, kind, misc, body[12:]))
                elif kind in {RECORD_LOST, RECORD_COMM, RECORD_EXIT, RECORD_FORK, RECORD_THROTTLE, RECORD_UNTHROTTLE}:
                    rows.append((int.from_bytes(body[-8:], "little"), cpu, kind, misc, body[:-8]))
                if len(rows) >= 1 << 13:
                    yield rows
                    rows = []
            yield rows

    def _kernel(self, files: tuple[Path, ...], cpu: int) -> Iterator[list[Row]]:
        for path in files:
            rows: list[Row] = []
            for body in _walk_kernel(path, self._advance):
                rows += self._samples_of(body, cpu)
                if len(rows) >= 1 << 13:
                    yield rows
                    rows = []
            yield rows

    def _samples_of(self, body: bytes, cpu: int) -> Iterator[Row]:
        """The samples that a record of lo2io's programs stands for."""
        time_ns, tid, kind, event = _KERNEL_HEAD.unpack_from(body)
        at = _KERNEL_HEAD.size
        if kind == KERNEL_CALL:
            exit_event, nr_args, _, duration_ns, result = _CALL.unpack_from(body, at)
            arguments = body[56 : 56 + 8 * nr_args]
            yield time_ns, cpu, RECORD_SAMPLE, 0, self._raw(event, tid, arguments)
            yield time_ns + duration_ns, cpu, RECORD_SAMPLE, 0, self._raw(exit_event, tid, struct.pack("<q", result))
        elif kind == KERNEL_ENTER:
            (nr_args,) = struct.unpack_from("<H", body, at)
            yield time_ns, cpu, RECORD_SAMPLE, 0, self._raw(event, tid, body[24 : 24 + 8 * nr_args])
        elif kind == KERNEL_EXIT:
            yield time_ns, cpu, RECORD_SAMPLE, 0, self._raw(event, tid, body[at : at + 8])
        elif kind == KERNEL_LOST:
            _, lost = struct.unpack_from("<QQ", body, at)
            yield time_ns, cpu, RECORD_LOST, 0, struct.pack("<QQ", 0, lost)

    def _raw(self, event: int, tid: int, arguments: bytes) -> bytes:
        call = self._calls.get(event, _CallEvent(-1, 0))
        content = _COMMON.pack(event, 0, 0, tid, call.number, 0) + arguments
        content += bytes(max(0, call.size - len(content)))
        return content + bytes(-(len(content) + 4) % 8)

    def _sample(self, time_ns: int, cpu: int, raw: bytes) -> bytes:
        number = self._ids.get(int.from_bytes(raw[:2], "little"))
        if number is None:
            self.nr_unknown += 1
            return b""
        self.nr_samples += 1
        self.first_ns = self.first_ns or time_ns
        self.last_ns = time_ns
        tid = int.from_bytes(raw[4:8], "little")
        size = _SAMPLE.size + 4 + len(raw)
        ids = number, self._pids.get(tid, UNKNOWN), tid
        return b"".join(
            (
                _SAMPLE.pack(RECORD_SAMPLE, 0, size, ids[0], ids[1], ids[2], time_ns, cpu, 0),
                struct.pack("<I", len(raw)),
                raw,
            )
        )

    def _other(self, time_ns: int, cpu: int, kind: int, misc: int, body: bytes) -> bytes:
        who = (UNKNOWN, UNKNOWN)
        if kind in {RECORD_FORK, RECORD_EXIT}:
            pid, ppid, tid, ptid = struct.unpack_from("<IIII", body)
            who = (ppid, ptid) if kind == RECORD_FORK else (pid, tid)
            if kind == RECORD_FORK:
                self._pids[tid] = pid
        elif kind == RECORD_COMM:
            who = struct.unpack_from("<II", body)
            self._pids[who[1]] = who[0]
        elif kind == RECORD_LOST:
            body = struct.pack("<Q", self._dummy) + body[8:16]
        else:
            body = struct.pack("<QQQ", time_ns, self._dummy, self._dummy)
        return self._framed(kind, misc, body, (*who, time_ns, cpu))

    def _framed(self, kind: int, misc: int, body: bytes, about: tuple[int, int, int, int]) -> bytes:
        trailer = _TRAILER.pack(*about, 0, self._dummy)
        return _HEADER.pack(kind, misc, _HEADER.size + len(body) + len(trailer)) + body + trailer

    def _advance(self, size: int) -> None:
        self._done += size
        self._progress(min(1.0, self._done / self._total))


def _call_event(name: str, size: int, machine: str) -> _CallEvent:
    number = call_number(name.partition("sys_enter_")[2] or name.partition("sys_exit_")[2], machine)
    return _CallEvent(number, size)


def _in_order(blocks: Iterator[list[Row]]) -> Iterator[Row]:
    """Rows with rare inversions, sorted block by block."""
    for rows in blocks:
        rows.sort(key=lambda row: row[0])
        yield from rows


def _walk(path: Path, advance: Callable[[int], None]) -> Iterator[tuple[int, int, bytes]]:
    """Kind, misc and body of each whole record of a ring's file."""
    held = b""
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            held += block
            at, end = 0, len(held)
            while at + 8 <= end:
                kind, misc, size = _HEADER.unpack_from(held, at)
                if size < _HEADER.size:
                    return
                if at + size > end:
                    break
                yield kind, misc, held[at + 8 : at + size]
                at += size
            held = held[at:]
            advance(len(block))


def _walk_kernel(path: Path, advance: Callable[[int], None]) -> Iterator[bytes]:
    """Each finished record of a file of calls."""
    held = b""
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            held += block
            at, end = 0, len(held)
            while at + 8 <= end:
                word = int.from_bytes(held[at : at + 4], "little")
                size = word & _LENGTH
                if word & _UNFINISHED or size < _KERNEL_HEAD.size:
                    return
                if at + 8 + size > end:
                    break
                if not word & _DISCARDED:
                    yield held[at + 8 : at + 8 + size]
                at += 8 + size + -size % 8
            held = held[at:]
            advance(len(block))
