"""The sums of one window by process, file and device, for ``lo2io top``.

In: the tables of a window. Out: a :class:`Window` of plain values; its field names are the keys of ``--json``. A window
is short, so all latencies are kept and percentiles are exact. Memory: about 28 B for each operation of the window.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from lo2io.model import UNKNOWN_I64
from lo2io.reports.summary.names import People, file_names
from lo2io.reports.summary.owners import Owners
from lo2io.reports.summary.paths import Paths
from lo2io.trace.columns import REQUEST_OPERATION, latest_end
from lo2io.units import split_kernel_dev

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from numpy.typing import NDArray

    from lo2io.model import Columns
    from lo2io.trace.reader import Trace

SCHEMA: Final = "lo2io-top"
SCHEMA_VERSION: Final = 3


@dataclass(frozen=True, slots=True)
class Spread:
    """Latencies of ``nr`` operations in ns: exact nearest-rank percentiles; all zeros if ``nr`` is 0."""

    nr: int
    p50_ns: int
    p99_ns: int
    max_ns: int


@dataclass(frozen=True, slots=True)
class Activity:
    """System calls and requests of rings that ended in the window.

    ``latency`` counts only operations that read, write or flush: a call from entry to exit, a request from submission
    to its last completion. ``time_ns`` is the sum of all operations' durations, over all threads.
    """

    operations: int
    errors: int
    bytes_read: int
    bytes_written: int
    time_ns: int
    latency: Spread


@dataclass(frozen=True, slots=True)
class ProcessNow:
    """One process; ``pid`` None: threads without a known process."""

    pid: int | None
    process: str | None
    """Name of the process: its title or script, if the command line shows one; else the kernel's name for it."""
    activity: Activity


@dataclass(frozen=True, slots=True)
class FileNow:
    """All files of one path on one device.

    ``kind`` is ``named``, ``unnamed`` (all unnamed descriptors of a process) or ``none`` (no descriptor).
    """

    kind: str
    path: str | None
    pid: int | None
    process: str | None
    activity: Activity


@dataclass(frozen=True, slots=True)
class DeviceNow:
    """The requests of one disk that ended in the window.

    ``in_flight`` counts requests that had not ended at the window's end. ``busy_ns`` is the time with at least one
    request at the device. ``queue`` is the time from insert to issue, ``device`` the time from issue to completion.
    """

    name: str
    requests: int
    errors: int
    bytes_read: int
    bytes_written: int
    in_flight: int
    busy_ns: int
    queue: Spread
    device: Spread


@dataclass(frozen=True, slots=True)
class PairNow:
    """What one process did with one file."""

    process: int
    """The row of ``processes``."""
    file: int
    """The row of ``files``."""
    activity: Activity


@dataclass(frozen=True, slots=True)
class Window:
    """The newest part of a running recording.

    Amounts are those of the whole window, not per second. Lists begin with the row of most bytes.
    """

    span_ns: int
    total: Activity
    processes: tuple[ProcessNow, ...]
    files: tuple[FileNow, ...]
    devices: tuple[DeviceNow, ...]
    lost: int
    """Records for which a buffer had no room."""
    vanished: int
    """Samples that the kernel counted and never delivered."""
    proven: bool
    """True if the counts of the window are proven: counted = read + lost, for each event and CPU."""
    pairs: tuple[PairNow, ...] = ()
    unlisted_pairs: int = 0
    """Pairs of a process and a file that are not in ``pairs``: others did more, or one of the two is in no list."""

    def as_json(self) -> dict[str, Any]:
        """One object a window, with its schema."""
        return {"schema": SCHEMA, "schema_version": SCHEMA_VERSION, **asdict(self)}


MAX_ROWS: Final = 1_000
"""Rows of each list. No screen has as many, in any order of the rows."""
_TIMED: Final = frozenset({"read", "write", "copy", "sync"})
_CALL_COLUMNS: Final = (
    "begin_time_ns", "end_time_ns", "task", "pid", "call", "handle", "handle2", "bytes_result", "error",
)  # fmt: skip
_RING_COLUMNS: Final = (
    "submit_time_ns", "complete_time_ns", "task", "pid", "opcode", "handle", "handle2", "bytes_result", "error",
)  # fmt: skip
_REQUEST_COLUMNS: Final = (
    "device", "operation", "status", "insert_time_ns", "issue_time_ns", "complete_time_ns", "end_latest_ns",
    "bytes_result", "error",
)  # fmt: skip
_SUMS: Final = ("operations", "errors", "bytes_read", "bytes_written", "time_ns")
_COMPLETED, _IN_FLIGHT, _MERGED, _INFERRED, _END_UNKNOWN = range(5)
_READ, _WRITE = REQUEST_OPERATION.index("read"), REQUEST_OPERATION.index("write")
NO_SPREAD: Final = Spread(0, 0, 0, 0)


def watch_window(trace: Trace, leave_out: Collection[int] = ()) -> Window:
    """Sum up a window.

    Args:
        trace: The window's tables.
        leave_out: Pids of processes that do not count, such as ``lo2io top``.

    Raises:
        TraceError: A table is missing or damaged.
    """
    owners = Owners(trace)
    people = People(trace, owners)
    tally = _Tally(trace, owners, np.fromiter(leave_out, np.int64, len(leave_out)))
    span = max(0, trace.metadata["stop_ns"] - trace.metadata["start_ns"])
    proof = trace.completeness
    process_rows = _busiest(tally.by_process)
    process_names = people.names(process_rows)
    processes, files = tally.by_process.spreads(), tally.by_file.spreads()
    file_rows = _busiest(tally.by_file)
    pairs = _pairs(tally, process_rows, file_rows)
    names = file_names(trace, owners, people, file_rows)
    return Window(
        span_ns=span,
        total=tally.whole.activity(0, tally.whole.spreads()),
        processes=tuple(
            ProcessNow(people.pid(row), process_names.get(row), tally.by_process.activity(row, processes))
            for row in process_rows
        ),
        files=tuple(FileNow(*names[row], tally.by_file.activity(row, files)) for row in file_rows),
        devices=_devices(trace),
        lost=proof.lost - proof.vanished,
        vanished=proof.vanished,
        proven=proof.proven,
        pairs=pairs,
        unlisted_pairs=int(np.count_nonzero(_used(tally.by_pair))) - len(pairs),
    )


def _pairs(tally: _Tally, process_rows: Sequence[int], file_rows: Sequence[int]) -> tuple[PairNow, ...]:
    """The pairs whose process and file are listed, those with most bytes first."""
    processes, files = ({key: row for row, key in enumerate(rows)} for rows in (process_rows, file_rows))
    keys, known = list(tally.by_pair.numbers), tally.by_pair.spreads()
    found = []
    for number in _busiest(tally.by_pair):
        process, file = divmod(keys[number], tally.by_pair.nr_files)
        if process in processes and file in files:
            found.append(PairNow(processes[process], files[file], tally.by_pair.activity(number, known)))
    return tuple(found)


def spreads(keys: NDArray[Any], values: NDArray[np.int64]) -> dict[int, Spread]:
    """The spread of each key's values. A percentile is the least value that so many per cent do not exceed."""
    if not len(keys):
        return {}
    order = np.lexsort((values, keys))
    keys, values = keys[order], values[order]
    first = np.flatnonzero(np.append(True, keys[1:] != keys[:-1]))
    count = np.diff(np.append(first, len(keys)))
    ranks = [values[first + np.maximum(-(-count * share // 100), 1) - 1].tolist() for share in (50, 99, 100)]
    return {
        key: Spread(nr, p50, p99, most)
        for key, nr, p50, p99, most in zip(keys[first].tolist(), count.tolist(), *ranks, strict=True)
    }


class _Sums:
    """Sums by key: arrays of shape (keys,), and all latencies of each key."""

    def __init__(self, keys: int) -> None:
        self.operations, self.errors, self.bytes_read, self.bytes_written, self.time_ns = (
            np.zeros(keys, np.int64) for _ in _SUMS
        )
        self._keys: list[NDArray[np.int32]] = []
        self._latencies: list[NDArray[np.int64]] = []

    def add(self, keys: NDArray[Any], facts: dict[str, NDArray[Any]], timed: NDArray[np.bool_]) -> None:
        np.add.at(self.operations, keys, 1)
        for name, values in facts.items():
            np.add.at(getattr(self, name), keys, values)
        self._keys.append(keys[timed].astype(np.int32))
        self._latencies.append(facts["time_ns"][timed])

    def spreads(self) -> dict[int, Spread]:
        if not self._keys:
            return {}
        return spreads(np.concatenate(self._keys), np.concatenate(self._latencies))

    def activity(self, key: int, known: dict[int, Spread]) -> Activity:
        return Activity(
            operations=int(self.operations[key]),
            errors=int(self.errors[key]),
            bytes_read=int(self.bytes_read[key]),
            bytes_written=int(self.bytes_written[key]),
            time_ns=int(self.time_ns[key]),
            latency=known.get(key, NO_SPREAD),
        )


class _PairSums(_Sums):
    """Sums by process and file. A pair gets the next number when it is first met.

    Attributes:
        numbers: The number of each pair met, ``process * nr_files + file``, in their order.
    """

    def __init__(self, nr_files: int) -> None:
        super().__init__(0)
        self.nr_files = nr_files
        self.numbers: dict[int, int] = {}

    def number(self, process: NDArray[Any], file: NDArray[Any]) -> NDArray[np.intp]:
        """The number of each pair."""
        pairs, inverse = np.unique(process.astype(np.int64) * self.nr_files + file, return_inverse=True)
        found = [self.numbers.setdefault(pair, len(self.numbers)) for pair in pairs.tolist()]
        for name in _SUMS:
            values = getattr(self, name)
            setattr(self, name, np.append(values, np.zeros(len(self.numbers) - len(values), np.int64)))
        return np.array(found, np.intp)[inverse]


class _Tally:
    """Sums of all calls and requests of rings that ended in the window."""

    def __init__(self, trace: Trace, owners: Owners, leave_out: NDArray[np.int64]) -> None:
        self._owners, self._paths = owners, Paths(trace, owners)
        self._leave_out = leave_out
        self.whole, self.by_process, self.by_file = (
            _Sums(keys) for keys in (1, owners.nr_processes + 1, owners.nr_groups)
        )
        self.by_pair = _PairSums(owners.nr_groups)
        calls, opcodes = (
            np.array(
                [(kind in _TIMED, kind == "copy", mode == "read", mode == "write") for kind, mode in rows]
                or [(False,) * 4]
            )
            for rows in (_modes_of_calls(trace), _modes_of_opcodes(trace))
        )
        for batch in trace.batches("operations", _CALL_COLUMNS):
            self._add(batch, calls[batch["call"]], batch["begin_time_ns"], batch["end_time_ns"])
        for batch in trace.batches("ring_requests", _RING_COLUMNS):
            number = np.minimum(batch["opcode"], len(opcodes) - 1)
            self._add(batch, opcodes[number], batch["submit_time_ns"], batch["complete_time_ns"])

    def _add(self, rows: Columns, modes: NDArray[np.bool_], begin: NDArray[np.int64], end: NDArray[np.int64]) -> None:
        ended = (end != UNKNOWN_I64) & ~np.isin(rows["pid"], self._leave_out)
        modes, begin, end = modes[ended], begin[ended], end[ended]
        task, handle, handle2, moved, error = (
            rows[name][ended] for name in ("task", "handle", "handle2", "bytes_result", "error")
        )
        timed, copies, reads, writes = modes.T
        known = begin != UNKNOWN_I64  # requests that are older than the trace have no start
        moved = moved * (moved != UNKNOWN_I64)
        time_ns = np.maximum(np.where(known, end - begin, 0), 0)
        facts = {
            "errors": error != 0,
            "bytes_read": moved * (reads | copies),
            "bytes_written": moved * (writes | copies),
            "time_ns": time_ns,
        }
        timed = timed & known
        self.whole.add(np.zeros(len(task), np.intp), facts, timed)
        process, file = self._owners.processes(task), self._files(handle)
        self.by_process.add(process, facts, timed)
        if copies.any():  # a copy's written bytes belong to its target file
            target, written = self._files(handle2[copies]), moved[copies]
            pair = self.by_pair.number(process[copies], target)
            np.add.at(self.by_file.bytes_written, target, written)
            np.add.at(self.by_pair.bytes_written, pair, written)
            facts["bytes_written"] = facts["bytes_written"] * ~copies
        self.by_file.add(file, facts, timed)
        self.by_pair.add(self.by_pair.number(process, file), facts, timed)

    def _files(self, handle: NDArray[np.uint32]) -> NDArray[np.intp]:
        """Group by path: files that replace each other under one path share a row."""
        return self._paths.of[self._owners.groups(handle)]


def _modes_of_calls(trace: Trace) -> list[tuple[str, str]]:
    return [(call["kind"], call["kind"]) for call in trace.metadata["calls"]]


def _modes_of_opcodes(trace: Trace) -> list[tuple[str, str]]:
    """Kind and mode of each opcode, by number. The last entry is for unknown opcodes."""
    known = {opcode["number"]: opcode for opcode in trace.metadata.get("opcodes", ())}
    nothing = {"kind": "meta", "io_mode": "none"}
    rows = (known.get(number, nothing) for number in range(max(known, default=-1) + 2))
    return [(row["kind"], row["io_mode"]) for row in rows]


def _used(sums: _Sums) -> NDArray[np.bool_]:
    """True for each key that did anything."""
    return (sums.operations > 0) | (sums.bytes_read + sums.bytes_written > 0)


def _busiest(sums: _Sums) -> Sequence[int]:
    """The keys with most bytes, then time, then operations."""
    moved = sums.bytes_read + sums.bytes_written
    used = np.flatnonzero(_used(sums))
    order = np.lexsort((-sums.operations[used], -sums.time_ns[used], -moved[used]))
    rows: list[int] = used[order][:MAX_ROWS].tolist()
    return rows


def _devices(trace: Trace) -> tuple[DeviceNow, ...]:
    parts = list(trace.batches("requests", _REQUEST_COLUMNS))
    if not parts:
        return ()
    rows = {name: np.concatenate([part[name] for part in parts]) for name in _REQUEST_COLUMNS}
    names = {device["device"]: device["name"] for device in trace.metadata["devices"]}
    start, stop = trace.metadata["start_ns"], trace.metadata["stop_ns"]
    found = []
    for device in np.unique(rows["device"]).tolist():
        major, minor = split_kernel_dev(device)
        mine = {name: values[rows["device"] == device] for name, values in rows.items()}
        found.append(_device(names.get(device, f"{major}:{minor}"), mine, start, stop))
    return tuple(sorted(found, key=lambda row: (-row.bytes_read - row.bytes_written, -row.requests, row.name)))


def _device(name: str, rows: Columns, start: int, stop: int) -> DeviceNow:
    status, operation = rows["status"], rows["operation"]
    insert, issue, complete = (rows[f"{event}_time_ns"] for event in ("insert", "issue", "complete"))
    done = status == _COMPLETED
    moved = rows["bytes_result"] * ((rows["bytes_result"] != UNKNOWN_I64) & done)
    issued = issue != UNKNOWN_I64
    queued, served = done & issued & (insert != UNKNOWN_I64), done & issued & (complete != UNKNOWN_I64)
    under_way = ~np.isin(status, (_MERGED, _END_UNKNOWN)) & issued
    end = latest_end(rows)
    end = np.where(end == UNKNOWN_I64, stop, end)
    return DeviceNow(
        name=name,
        requests=int((done | (status == _INFERRED)).sum()),
        errors=int((done & (rows["error"] != 0)).sum()),
        bytes_read=int(moved[operation == _READ].sum()),
        bytes_written=int(moved[operation == _WRITE].sum()),
        in_flight=int((status == _IN_FLIGHT).sum()),
        busy_ns=_covered(issue[under_way].clip(start, stop), end[under_way].clip(start, stop)),
        queue=_spread(issue[queued] - insert[queued]),
        device=_spread(complete[served] - issue[served]),
    )


def _spread(values: NDArray[np.int64]) -> Spread:
    return spreads(np.zeros(len(values), np.int8), values).get(0, NO_SPREAD)


def _covered(begin: NDArray[np.int64], end: NDArray[np.int64]) -> int:
    """The time covered by at least one of these spans."""
    order = np.argsort(begin, kind="stable")
    begin, end = begin[order], end[order]
    before = np.maximum.accumulate(np.append(np.iinfo(np.int64).min, end))[:-1]
    return int(np.maximum(end - np.maximum(begin, before), 0).sum()) if len(begin) else 0
