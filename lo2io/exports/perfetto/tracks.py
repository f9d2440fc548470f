"""The tracks of a Perfetto trace: of processes and their threads, rings, disks, and lanes for rows that overlap.

In: numbers of the tables' rows. Out: numbers of tracks. A track is described in the trace when it is first used, so a
thread that did nothing has no track.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from lo2io.exports.perfetto.packets import message, number, text
from lo2io.model import UNKNOWN_U32
from lo2io.model.command_lines import arguments_of, process_name
from lo2io.native._lib import ffi, lib
from lo2io.units import split_kernel_dev

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from lo2io.exports.perfetto.packets import PacketWriter
    from lo2io.trace.reader import Trace

    Uuids = NDArray[np.uint64]

_FIRST: Final = 2
"""The first number of other tracks. Threads' tracks have odd numbers, all others even ones: small numbers take less
room."""
_COUNT: Final = 2
"""``UNIT_COUNT`` of CounterDescriptor."""
_PROCESS, _THREAD, _COUNTER = 3, 4, 8
"""Fields of TrackDescriptor."""


class Tracks:
    """The tracks of a trace. Each is described when it is first used."""

    def __init__(self, trace: Trace, writer: PacketWriter) -> None:
        self._writer = writer
        self._threads = _Threads(trace)
        self._rings = {row["ring"]: row for row in trace.table("rings", ["ring", "kind", "process", "fd"]).to_pylist()}
        self._disks = {row["device"]: row["name"] for row in trace.table("devices", ["device", "name"]).to_pylist()}
        self._root = self._threads.first_of(trace.metadata.get("roots", ())[:1])
        self._start = int(trace.metadata["start_ns"])
        self._command = trace.metadata.get("command", ())
        self._next = _FIRST
        self._known: dict[tuple[Any, ...], int] = {}
        self._lanes: dict[int, tuple[Any, Uuids]] = {}

    def threads(self, tasks: NDArray[np.uint32]) -> Uuids:
        """The track of each row's thread. Unknown threads share a track without a description."""
        for task in np.unique(tasks).tolist():
            uuid = task << 1 | 1
            if ("thread", task) not in self._known and task != UNKNOWN_U32:
                self._known["thread", task] = uuid
                self._describe_thread(uuid, task)
        return tasks.astype(np.uint64) << np.uint64(1) | np.uint64(1)

    def ring(self, ring: int) -> int:
        """The track of a ring, beneath its process."""
        return self._once(("ring", ring), lambda uuid: self._describe_ring(uuid, ring))

    def disk(self, device: int) -> int:
        """The track of a disk, beneath the track of all disks."""
        major, minor = split_kernel_dev(device)
        return self.child(self.top("Disks"), f"{self._disks.get(device) or 'disk'} ({major}:{minor})")

    def top(self, name: str) -> int:
        """The track of this name at the top."""
        return self._once(("top", name), lambda uuid: self._writer.describe(uuid, name=name))

    def child(self, parent: int, name: str) -> int:
        """The track of this name beneath another track."""
        return self._once((parent, name), lambda uuid: self._writer.describe(uuid, parent=parent, name=name))

    def counter(self, parent: int, name: str, unit: str = "") -> int:
        """The track of a counter beneath another track. Without a unit, the counter counts things."""
        kind = message(_COUNTER, text(6, unit) if unit else number(3, _COUNT))
        return self._once((parent, name), lambda uuid: self._writer.describe(uuid, parent=parent, name=name, more=kind))

    def lanes(
        self, parent: int, begin_ns: NDArray[np.int64], end_ns: NDArray[np.int64], name: str = "requests"
    ) -> Uuids:
        """Tracks beneath another track, such that rows of one track do not touch. Perfetto shows the tracks as one.

        Rows should come about in the order of their ends. Else more lanes are made than needed.

        Raises:
            MemoryError: There is not enough memory.
        """
        if parent not in self._lanes:
            native = ffi.gc(lib.lo2_perfetto_lanes_new(), lib.lo2_perfetto_lanes_free)
            self._lanes[parent] = native, np.zeros(0, np.uint64)
        native, uuids = self._lanes[parent]
        found = np.empty(len(begin_ns), np.uint32)
        columns = [np.ascontiguousarray(column, np.int64) for column in (begin_ns, end_ns)]
        times = [ffi.from_buffer("int64_t[]", column) for column in columns]
        lane = ffi.from_buffer("uint32_t[]", found)
        if not native or not lib.lo2_perfetto_lanes_assign(native, len(found), *times, lane):
            raise MemoryError
        if len(found) and (last := int(found.max())) >= len(uuids):
            more = [self._new() for _ in range(len(uuids), last + 1)]
            for uuid in more:
                self._writer.describe(uuid, parent=parent, name=name)
            uuids = np.concatenate([uuids, np.array(more, np.uint64)])
            self._lanes[parent] = native, uuids
        return uuids[found]

    def _once(self, key: tuple[Any, ...], describe: Callable[[int], None]) -> int:
        uuid = self._known.get(key)
        if uuid is None:
            uuid = self._known[key] = self._new()
            describe(uuid)
        return uuid

    def _new(self) -> int:
        self._next += 2
        return self._next - 2

    def _describe_thread(self, uuid: int, task: int) -> None:
        thread = self._threads.find(task)
        if thread is None:
            self._writer.describe(uuid, name="unknown threads")
            return
        name, pid, tid = thread["comm"], thread["pid"], thread["tid"]
        parent = self._process(thread["process"])
        if not pid or not tid:  # each CPU has an idle thread, and all of them have the tid 0
            self._writer.describe(uuid, parent=parent, name=name or f"thread {tid}")
            return
        more = message(_THREAD, number(1, pid), number(2, tid), text(5, name))
        self._writer.describe(uuid, parent=parent, more=more, time_ns=self._since(thread))

    def _process(self, process: int) -> int:
        return self._once(("process", process), lambda uuid: self._describe_process(uuid, process))

    def _describe_process(self, uuid: int, process: int) -> None:
        leader = self._threads.leader(process)
        if leader is None or not leader["pid"]:
            self._writer.describe(uuid, name=(leader or {}).get("comm") or f"process {process}")
            return
        own = self._command if process == self._root else ()
        command = [text(2, part) for part in (arguments_of(leader["cmdline"]) if leader["cmdline"] else own)]
        name = process_name(leader["comm"], leader["cmdline"])
        begin = number(7, leader["start_time_ns"])
        more = message(_PROCESS, number(1, leader["pid"]), *command, text(6, name), begin)
        self._writer.describe(uuid, more=more, time_ns=self._since(leader))

    def _since(self, thread: dict[str, Any]) -> int:
        """The time from which on the thread has its tid.

        Tids are used again; Perfetto shows the bearer at each time.
        """
        begin = thread["start_time_ns"]
        return self._start if begin is None else int(begin)

    def _describe_ring(self, uuid: int, ring: int) -> None:
        row = self._rings.get(ring)
        if row is None:
            self._writer.describe(uuid, name="unknown rings")
            return
        name = f"{row['kind']} {ring}" if row["fd"] is None else f"{row['kind']} {ring} (fd {row['fd']})"
        parent = None if row["process"] is None else self._process(row["process"])
        self._writer.describe(uuid, parent=parent, name=name)


class _Threads:
    """The table of threads. Rows become Python objects only when they are needed."""

    def __init__(self, trace: Trace) -> None:
        columns = ["task", "process", "pid", "tid", "comm", "cmdline", "start_time_ns"]
        self._table = trace.table("threads", columns).combine_chunks()
        tasks, processes, pids, tids = (
            self._table.column(name).to_pylist() for name in ("task", "process", "pid", "tid")
        )
        self._pids = dict(zip(reversed(pids), reversed(processes), strict=True))
        self._row = {task: row for row, task in enumerate(tasks)}
        self._leader: dict[int, int] = {}
        for row, process in enumerate(processes):
            if process not in self._leader or pids[row] == tids[row]:
                self._leader[process] = row

    def find(self, task: int) -> dict[str, Any] | None:
        """The thread of this number."""
        return self._at(self._row.get(task))

    def leader(self, process: int) -> dict[str, Any] | None:
        """The thread that names the process: the one whose tid is the pid, else any."""
        return self._at(self._leader.get(process))

    def first_of(self, pids: Sequence[int]) -> int | None:
        """The process of the first of these pids that occurs in the trace."""
        return next((self._pids[pid] for pid in pids if pid in self._pids), None)

    def _at(self, row: int | None) -> dict[str, Any] | None:
        found: list[dict[str, Any]] = [] if row is None else self._table.slice(row, 1).to_pylist()
        return found[0] if found else None
