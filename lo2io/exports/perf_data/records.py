"""A spool's records as perf's own records, of all CPUs in the order of time.

In: rows of each CPU, from ``streams.py``. Out: the bytes of records for ``perf.data``. This module adds the fields that
the spool's samples lack: event, process, thread and CPU.
"""

from __future__ import annotations

import itertools
import struct
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from lo2io.catalog.call_numbers import NO_NUMBER, call_number
from lo2io.catalog.catalog import load_catalog
from lo2io.errors import SpoolError
from lo2io.exports.perf_data.streams import (
    RECORD_COMM,
    RECORD_EXIT,
    RECORD_FORK,
    RECORD_LOST,
    RECORD_SAMPLE,
    TASK_WORDS,
    CallEvents,
    Rows,
    call_rows,
    event_rows,
    fact_blocks,
    perf_rows,
    spread,
)
from lo2io.model import CallSpec
from lo2io.native._lib import ffi
from lo2io.spool.facts import FACT_TASK

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from numpy.typing import NDArray

    from lo2io.exports.perf_data.file import PerfDataFile
    from lo2io.spool.reader import SpoolReader

FINISHED_ROUND: Final = struct.pack("<IHH", 68, 0, 8)
"""A record that ends a round: perf may show all records before the previous such record.

PERF_RECORD_FINISHED_ROUND, tools/perf.
"""
UNKNOWN: Final = 0xFFFFFFFF
"""An unknown pid or tid: perf's -1."""
BLOCK_BYTES, _SMALL_BLOCK_BYTES, _MANY_FILES = 1 << 20, 1 << 18, 64
"""Bytes read at a time; the small number with ``_MANY_FILES`` or more files, as when converting."""
WINDOW_ROWS: Final = 1 << 17
"""About this many rows are sorted at a time, for any number of CPUs."""
_MOST_WORDS: Final = 0xFFFF // 8
"""The most words of a record, whose size is a u16."""
_NR_TIDS: Final = 1 << 22
"""PID_MAX_LIMIT (include/linux/threads.h)."""
_U32, _U16 = np.uint64(0xFFFFFFFF), np.uint64(0xFFFF)
_HEADER: Final = struct.Struct("<IHH")
_HEAD: Final = np.dtype(
    {
        "names": ["type", "misc", "size", "id", "pid", "tid", "time", "cpu", "reserved"],
        "formats": ["u4", "u2", "u2", "u8", "u4", "u4", "u8", "u4", "u4"],
    }
)
"""The fields before a sample's raw data. Other records have as many bytes around their content."""
_HEAD_WORDS: Final = _HEAD.itemsize // 8
_TRAILER: Final = struct.Struct("<IIqIIQ")
"""pid, tid, time, CPU, identifier: ``sample_id_all``."""


class Records:
    """All records of a spool. They can be iterated once.

    Args:
        spool: The spool to read.
        out: The file, for the ids of events.
        progress: Called with the finished share, 0 to 1.
    """

    def __init__(self, spool: SpoolReader, out: PerfDataFile, progress: Callable[[float], None]) -> None:
        self.nr_samples = 0
        self.nr_unknown = 0
        """Number of samples of unknown events, which are left out."""
        self.first_ns = self.last_ns = 0
        """Times of the first and the last sample."""
        self._spool = spool
        self._progress = progress
        self._dummy = out.dummy_id
        self._ids: NDArray[Any] = np.zeros(1 << 16, np.uint64)
        self._calls = CallEvents()
        known = load_catalog().by_event
        for place, (name, event) in enumerate(zip(spool.meta.events, out.formats, strict=True), 1):
            self._ids[event.id] = place
            self._calls.sizes[event.id] = max(f.offset + f.size for f in event.fields)
            if name.startswith("syscalls:"):
                call = known.get(name)
                number = call_number(call, spool.meta.machine) if isinstance(call, CallSpec) else NO_NUMBER
                self._calls.numbers[event.id] = number
            else:
                self._calls.strings[event.id] = next((f.offset for f in event.fields if f.is_data_loc), 0)
        self._pids: NDArray[Any] = np.full(_NR_TIDS + 1, UNKNOWN, np.uint32)
        """Thread → process. The last entry is for an unknown thread."""
        self._pids[0] = 0
        self._total = max(1, sum(path.stat().st_size for path in self._files()))
        self._done = 0

    def __iter__(self) -> Iterator[tuple[int, bytes]]:
        """Yield the number and the bytes of some records at a time. Names of threads from /proc come first.

        Raises:
            SpoolError: A record is damaged.
        """
        known = list(self._known_threads())
        yield len(known), b"".join(known)
        rings, calls, events = self._spool.streams(), self._spool.kernel_streams(), self._spool.event_streams()
        block = BLOCK_BYTES if len(rings) + len(calls) + len(events) < _MANY_FILES else _SMALL_BLOCK_BYTES
        streams = [(perf_rows(files, block, self._advance), cpu) for files, cpu in rings]
        streams += [(call_rows(files, block, self._advance, self._calls), cpu) for files, cpu in calls]
        streams += [(event_rows(files, block, self._advance, self._calls), cpu) for files, cpu in events]
        for parts in _windows(streams):
            rows, cpus = _merged(parts)
            yield len(cpus), self._records(rows, cpus)

    def _files(self) -> Iterator[Path]:
        for files, _ in (*self._spool.streams(), *self._spool.kernel_streams(), *self._spool.event_streams()):
            yield from files

    def _known_threads(self) -> Iterator[bytes]:
        """Records of the threads in ``/proc``, with name and process, at time 0. Births in the trace come later."""
        seen: set[int] = set()
        for words, places in (found for path in self._spool.facts for found in fact_blocks(path, BLOCK_BYTES)):
            for place in places[words[places] & _U32 == FACT_TASK].tolist():
                fact = ffi.from_buffer("lo2_fact_task *", words[place + 1 : place + TASK_WORDS].tobytes())
                if fact.tid not in seen:
                    seen.add(fact.tid)
                    self._belongs(fact.tid, fact.pid)
                    name = struct.pack("<II", fact.pid, fact.tid) + bytes(ffi.buffer(fact.comm))
                    yield self._framed(RECORD_COMM, 0, name, (fact.pid, fact.tid, 0, 0))

    def _belongs(self, tid: int, pid: int) -> None:
        if tid < _NR_TIDS:
            self._pids[tid] = pid

    def _records(self, rows: Rows, cpu: NDArray[np.int64]) -> bytes:
        """The records of rows of all CPUs."""
        # Raw data begin with their size, common_type and common_pid.
        types, tids = rows.words[rows.begin] >> 32 & _U16, rows.words[rows.begin + 1] & _U32
        samples = rows.kind == RECORD_SAMPLE
        ids = np.where(samples, self._ids[types], 0)
        known = ids > 0
        self._count(rows.time_ns[known], int(samples.sum()))
        sizes = np.where(known | ~samples, _HEAD_WORDS + rows.size, 0)
        if sizes.max(initial=0) > _MOST_WORDS:
            answer = "a record is longer than perf allows"
            raise SpoolError(f"read the records of {self._spool.path}", answer, "the spool is damaged: record again")
        begins = np.cumsum(sizes) - sizes
        out = np.empty(int(sizes.sum()), np.uint64)
        pids = self._tell_of_tasks(rows, cpu, out, begins)
        heads = np.zeros(int(known.sum()), _HEAD)
        heads["type"], heads["size"] = RECORD_SAMPLE, 8 * sizes[known]
        for name, column in (("id", ids), ("pid", pids), ("tid", tids), ("time", rows.time_ns), ("cpu", cpu)):
            heads[name] = column[known]
        out[begins[known][:, None] + np.arange(_HEAD_WORDS)] = heads.view(np.uint64).reshape(-1, _HEAD_WORDS)
        contents = rows.words[spread(rows.begin[known], rows.size[known])]
        out[spread(begins[known] + _HEAD_WORDS, rows.size[known])] = contents
        return out.tobytes()

    def _tell_of_tasks(
        self, rows: Rows, cpu: NDArray[np.int64], out: NDArray[np.uint64], begins: NDArray[np.int64]
    ) -> NDArray[np.uint32]:
        """Write all records except samples. These records tell processes: return the process of each row's thread."""
        tids = np.minimum(rows.words[rows.begin + 1] & _U32, _NR_TIDS)
        pids = np.empty(len(tids), np.uint32)
        done = 0
        for row in np.flatnonzero(rows.kind != RECORD_SAMPLE).tolist():
            pids[done:row] = self._pids[tids[done:row]]
            done = row
            body = rows.words[rows.begin[row] : rows.begin[row] + rows.size[row]].tobytes()
            record = self._other(int(rows.time_ns[row]), int(cpu[row]), int(rows.kind[row]), int(rows.misc[row]), body)
            out[begins[row] : begins[row] + len(record) // 8] = np.frombuffer(record, np.uint64)
        pids[done:] = self._pids[tids[done:]]
        return pids

    def _count(self, times: NDArray[np.int64], nr_samples: int) -> None:
        """Count samples. ``times`` are those of known events; ``nr_samples`` counts all."""
        self.nr_samples += len(times)
        self.nr_unknown += nr_samples - len(times)
        if len(times):
            self.first_ns = self.first_ns or int(times[0])
            self.last_ns = int(times[-1])

    def _other(self, time_ns: int, cpu: int, kind: int, misc: int, body: bytes) -> bytes:
        """A record that is no sample. Its length is that of its body plus ``_HEAD_WORDS``."""
        who = (UNKNOWN, UNKNOWN)
        if kind in {RECORD_FORK, RECORD_EXIT}:
            pid, ppid, tid, ptid = struct.unpack_from("<IIII", body)
            who = (ppid, ptid) if kind == RECORD_FORK else (pid, tid)
            if kind == RECORD_FORK:
                self._belongs(tid, pid)
        elif kind == RECORD_COMM:
            who = struct.unpack_from("<II", body)
            self._belongs(who[1], who[0])
        elif kind == RECORD_LOST:
            body = struct.pack("<Q", self._dummy) + body[8:]
        else:
            body = struct.pack("<qQQ", time_ns, self._dummy, self._dummy) + body[24:]
        return self._framed(kind, misc, body, (*who, time_ns, cpu))

    def _framed(self, kind: int, misc: int, body: bytes, about: tuple[int, int, int, int]) -> bytes:
        trailer = _TRAILER.pack(*about, 0, self._dummy)
        return _HEADER.pack(kind, misc, _HEADER.size + len(body) + len(trailer)) + body + trailer

    def _advance(self, size: int) -> None:
        self._done += size
        self._progress(min(1.0, self._done / self._total))


def _windows(streams: list[tuple[Iterator[Rows], int]]) -> Iterator[list[tuple[Rows, int]]]:
    """Yield the next rows of each stream, with their CPU. No row left for later is earlier than a yielded row."""
    chunks = [(stream, rows, cpu) for stream, cpu in streams for rows in _next(stream)]
    while chunks:
        most = max(1, WINDOW_ROWS // len(chunks))
        border = min(int(rows.time_ns[:most][-1]) for _, rows, _ in chunks)
        halves = [rows.split(int(np.searchsorted(rows.time_ns, border, "right"))) for _, rows, _ in chunks]
        yield [(first, cpu) for (first, _), (_, _, cpu) in zip(halves, chunks, strict=True)]
        chunks = [
            (stream, rows, cpu)
            for (_, rest), (stream, _, cpu) in zip(halves, chunks, strict=True)
            for rows in ([rest] if len(rest.time_ns) else _next(stream))
        ]


def _next(stream: Iterator[Rows]) -> Iterator[Rows]:
    """The stream's next chunk that has rows, if there is one."""
    return itertools.islice((rows for rows in stream if len(rows.time_ns)), 1)


def _merged(parts: list[tuple[Rows, int]]) -> tuple[Rows, NDArray[np.int64]]:
    """The rows of all streams in the order of time, and the CPU of each."""
    time_ns, kind, misc, size = (
        np.concatenate([getattr(rows, name) for rows, _ in parts]) for name in ("time_ns", "kind", "misc", "size")
    )
    words = np.concatenate([rows.words[spread(rows.begin, rows.size)] for rows, _ in parts])
    cpus = np.concatenate([np.full(len(rows.time_ns), cpu) for rows, cpu in parts])
    order = np.argsort(time_ns, kind="stable")
    begin = (np.cumsum(size) - size)[order]
    return Rows(time_ns[order], kind[order], misc[order], begin, size[order], words), cpus[order]
