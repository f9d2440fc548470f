"""From sums to rows: where the time went, latencies, slow calls, sizes and order of accesses, opens.

In: :class:`~lo2io.reports.summary.sums.TraceSums`. Out: an :class:`IoSummary` of plain values, which are keys of
``lo2io report --json``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from lo2io.errnos import error_name
from lo2io.frozen import dataclass
from lo2io.model import UNKNOWN_U32, CallClass
from lo2io.reports.summary.classes import STORAGE
from lo2io.reports.summary.names import FileName, file_names, given_paths
from lo2io.reports.summary.tally import NR_REQUEST_OPS
from lo2io.reports.summary.waits import WaitRow, wait_row
from lo2io.trace.columns import OFF_STATE
from lo2io.trace.reader import REQUEST_OPERATION
from lo2io.units import split_kernel_dev

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from lo2io.reports.summary.histogram import Bin, Latency
    from lo2io.reports.summary.pattern import AccessSums
    from lo2io.reports.summary.sums import TraceSums
    from lo2io.trace.reader import Trace

TIME_PARTS: Final = {
    "device_ns": "device",
    "queue_ns": "queue",
    "waiting_ns": "waiting",
    "blocked_ns": "blocked",
    "preempted_ns": "preempted",
    "cpu_ns": "CPU",
    "unexplained_ns": "not explained",
}
"""Names of the parts of :class:`TimeRow` in tables."""


@dataclass(frozen=True, slots=True)
class TimeRow:
    """Where the time of one class of calls went; its parts add up to ``time_ns``.

    Times are added up over all threads. Calls in flight add nothing. If it is known when threads had a CPU (layer
    ``waits`` or ``--sched``), the first three parts are time without one. Else ``blocked_ns``, ``preempted_ns`` and
    ``cpu_ns`` are None.
    """

    kind: str
    """Class of call: ``read``, ``write``, ``copy``, ``sync``, ``open``, ``close``, ``pipe``, ``socket`` …"""
    calls: int
    errors: int
    time_ns: int
    device_ns: int
    """A block request of the calling thread was at a device."""
    queue_ns: int
    """A block request of the calling thread waited in a queue, and none was at a device."""
    waiting_ns: int
    """The rest of calls that wait by their nature: polls, locks, syncs, rings …; pipes, sockets and terminals."""
    blocked_ns: int | None
    """The rest of other calls. No table shows the cause: a lock, memory, another thread's request, writeback."""
    preempted_ns: int | None
    """The thread was ready to run, and other threads ran."""
    cpu_ns: int | None
    """The thread had a CPU."""
    unexplained_ns: int
    """The rest."""


@dataclass(frozen=True, slots=True)
class OffCpuRow:
    """Stretches of calls in which their thread had no CPU, in one state."""

    state: str
    times: int
    time_ns: int


@dataclass(frozen=True, slots=True)
class TimeSummary:
    """Where the time of calls went."""

    requests_recorded: bool
    """If False, the time in devices and queues is part of the other columns."""
    total: TimeRow
    storage: TimeRow
    """The sum of the classes about files and their contents."""
    classes: tuple[TimeRow, ...]
    """Classes about storage come first; each group is sorted by time."""
    off_cpu: tuple[OffCpuRow, ...]
    """Empty unless the scheduler's switches, or the layer ``waits``, were recorded."""
    waits: tuple[WaitRow, ...]
    """All calls, those about storage, then by class as ``classes``. Empty unless the layer ``waits`` was recorded."""


@dataclass(frozen=True, slots=True)
class LatencyRow:
    """Durations of one class of calls, or of one phase of one operation on one device."""

    subject: str
    """``calls``, or a device."""
    operation: str
    """The class of the calls, or the operation of the requests."""
    phase: str
    """``call``; ``queue``: insert to (last) issue; ``device``: issue to completion."""
    latency: Latency
    histogram: tuple[Bin, ...]


@dataclass(frozen=True, slots=True)
class SlowRow:
    """One of the slowest calls, without calls that wait by their nature (polls, rings, pipes …)."""

    id: int
    """Id in the table of operations."""
    call: str
    begin_ns: int
    """On the trace's clock."""
    at_ns: int
    """Since the trace's start."""
    duration_ns: int
    device_ns: int
    queue_ns: int
    kind: str
    """Kind of the file, as in ``FileRow`` of ``summary.py``; ``given``: a path without a descriptor."""
    path: str | None
    pid: int | None
    process: str | None
    """Name of the process, as in :attr:`~lo2io.reports.summary.summary.ProcessRow.name`."""
    tid: int | None
    comm: str | None
    """Name of the thread."""
    offset_bytes: int | None
    bytes: int | None
    """Bytes moved, or else asked for."""
    error: str | None


@dataclass(frozen=True, slots=True)
class SizeRow:
    """Accesses that asked for ``least`` to ``most`` bytes."""

    least: int
    most: int
    accesses: int


@dataclass(frozen=True, slots=True)
class AccessRow:
    """Sizes and order of all reads, or of all writes. docs/reference/report.md explains each word."""

    operation: str
    accesses: int
    """Calls that moved bytes."""
    small: int
    """Accesses below 4 KiB."""
    placed: int
    """Accesses with a known predecessor: the three numbers below are about these."""
    consecutive: int
    sequential: int
    """With consecutive ones."""
    random: int
    bytes: int
    """Bytes moved at known offsets."""
    again_bytes: int
    """At least this many of the bytes had been accessed before."""
    sizes: tuple[SizeRow, ...]
    common: Mapping[int, int]
    """The most frequent sizes: size → accesses."""


@dataclass(frozen=True, slots=True)
class PatternRow:
    """The same numbers for all files of one path on one device. Extents and repeated bytes are summed."""

    kind: str
    path: str | None
    pid: int | None
    process: str | None
    operation: str
    accesses: int
    small: int
    placed: int
    consecutive: int
    sequential: int
    random: int
    bytes: int
    extent_bytes: int
    """Bytes from the first accessed byte to the last."""
    again_bytes: int
    files: int
    """Number of files accessed in this way, as in :class:`~lo2io.reports.summary.summary.FileRow`."""


@dataclass(frozen=True, slots=True)
class OpenRow:
    """How often the files of one path were opened, synced and locked."""

    kind: str
    path: str | None
    pid: int | None
    process: str | None
    opens: int
    syncs: int
    sync_ns: int
    locks: int
    lock_ns: int
    files: int
    """Number of files, as in :class:`~lo2io.reports.summary.summary.FileRow`."""


@dataclass(frozen=True, slots=True)
class IoSummary:
    """All rows of this part of the report."""

    time: TimeSummary
    latencies: tuple[LatencyRow, ...]
    slowest: tuple[SlowRow, ...]
    accesses: tuple[AccessRow, ...]
    patterns: tuple[PatternRow, ...]
    """Most accesses first."""
    opens: tuple[OpenRow, ...]
    """Most opens, syncs and locks together first."""


MAX_FILES: Final = 100
"""Files listed by order of accesses, and by opens."""
MAX_COMMON: Final = 8
_OPENS: Final = ("opens", "syncs", "sync_ns", "locks", "lock_ns")


def summarize_io(sums: TraceSums) -> IoSummary:
    """Make rows from the sums."""
    accessed, opened = _most_accessed(sums), _most_opened(sums)
    wanted = {key for key, _ in accessed} | set(opened) | {row.group for row in sums.slow}
    names = file_names(sums.trace, sums.owners, sums.people, wanted)
    return IoSummary(
        time=_time(sums),
        latencies=(*_call_latencies(sums), *_device_latencies(sums)),
        slowest=_slowest(sums, names),
        accesses=tuple(_accesses(sums)),
        patterns=tuple(_pattern(sums, names[key], key, direction) for key, direction in accessed),
        opens=tuple(_open(sums, names[key], key) for key in opened),
    )


def _time(sums: TraceSums) -> TimeSummary:
    found = sums.time
    rows = [_time_row(sums, CallClass(key).name.lower(), key) for key in np.flatnonzero(found.calls).tolist()]
    storage = {kind.name.lower() for kind in STORAGE}
    states = zip(OFF_STATE, sums.off_cpu.times.tolist(), sums.off_cpu.total_ns.tolist(), strict=True)
    classes = tuple(sorted(rows, key=lambda row: (row.kind not in storage, -row.time_ns, -row.calls, row.kind)))
    return TimeSummary(
        requests_recorded=records_requests(sums.trace),
        total=_time_row(sums, "all", slice(None)),
        storage=_time_row(sums, "storage", list(STORAGE)),
        classes=classes,
        waits=tuple(_waits(sums, [row.kind for row in classes])) if sums.waits.recorded else (),
        off_cpu=tuple(OffCpuRow(state, times, total) for state, times, total in states if times or total),
    )


def _waits(sums: TraceSums, classes: Sequence[str]) -> Iterator[WaitRow]:
    found = sums.time
    keys: list[tuple[str, Any]] = [("all", slice(None)), ("storage", list(STORAGE))]
    for kind, key in keys + [(name, int(CallClass[name.upper()])) for name in classes]:
        yield wait_row(sums.waits, kind, key, int(found.calls[key].sum()), int(found.total_ns[key].sum()))


def records_requests(trace: Trace) -> bool:
    """True if block requests were recorded at all."""
    return bool(trace.rows("requests")) or any(event.event.startswith("block:") for event in trace.completeness.events)


def _time_row(sums: TraceSums, kind: str, key: Any) -> TimeRow:
    found = sums.time
    calls, errors, total = (int(getattr(found, name)[key].sum()) for name in ("calls", "errors", "total_ns"))
    parts: dict[str, Any] = {}
    for part in TIME_PARTS:
        if part != "unexplained_ns":
            parts[part] = int(getattr(found, part)[key].sum())
    parts["unexplained_ns"] = total - sum(parts.values())
    if not found.knows_cpu:
        parts |= dict.fromkeys(("blocked_ns", "preempted_ns", "cpu_ns"))
    return TimeRow(kind, calls, errors, total, **parts)


def _call_latencies(sums: TraceSums) -> Iterable[LatencyRow]:
    """Rows by class, those with most time first."""
    found = []
    for kind in CallClass:
        if sums.time.calls[kind]:
            latency, histogram = sums.operations.latency_of_class(kind)
            found += [LatencyRow("calls", kind.name.lower(), "call", latency, histogram)] if latency.nr else []
    return sorted(found, key=lambda row: -row.latency.total_ns)


def _device_latencies(sums: TraceSums) -> Iterable[LatencyRow]:
    requests = sums.requests
    for key in np.flatnonzero(requests.requests).tolist():
        index, operation = divmod(key, NR_REQUEST_OPS)
        name = device_name(sums.trace.metadata, int(requests.devices[index]))
        for phase, histograms in (("queue", requests.queue), ("device", requests.device)):
            latency = histograms.latency(key)
            if latency.nr:
                yield LatencyRow(name, REQUEST_OPERATION[operation], phase, latency, histograms.log2(key))


def device_name(meta: Mapping[str, Any], device: int) -> str:
    """The device's name on the recorded machine, else its numbers."""
    names = {known["device"]: known["name"] for known in meta["devices"]}
    major, minor = split_kernel_dev(device)
    return str(names.get(device) or f"{major}:{minor}")


def _slowest(sums: TraceSums, names: dict[int, FileName]) -> tuple[SlowRow, ...]:
    slow = sums.slow
    threads = _threads(sums.trace, {row.task for row in slow})
    owners = {row.task: int(sums.owners.processes(np.array([row.task]))[0]) for row in slow}
    processes = sums.people.names(set(owners.values()))
    given = given_paths(sums.trace, {row.id for row in slow if row.group == sums.owners.no_handle})
    meta = sums.trace.metadata
    rows = []
    for row in slow:
        name = FileName("given", given[row.id], None, None) if row.id in given else names[row.group]
        who = threads.get(row.task, _Thread(None, None, None))
        rows.append(
            SlowRow(
                id=row.id,
                call=meta["calls"][row.call]["name"],
                begin_ns=row.begin_ns,
                at_ns=row.begin_ns - meta["start_ns"],
                duration_ns=row.duration_ns,
                device_ns=row.device_ns,
                queue_ns=row.queue_ns,
                kind=name.kind,
                path=name.path,
                pid=who.pid,
                process=processes.get(owners[row.task]),
                tid=who.tid,
                comm=who.comm,
                offset_bytes=row.offset_bytes,
                bytes=row.bytes,
                error=error_name(row.error) if row.error else None,
            )
        )
    return tuple(rows)


@dataclass(frozen=True, slots=True)
class _Thread:
    pid: int | None
    tid: int | None
    comm: str | None


def _threads(trace: Trace, tasks: set[int]) -> dict[int, _Thread]:
    comms = trace.texts("threads", "task", "comm", tasks)
    found = {}
    wanted = np.fromiter(tasks, np.int64, len(tasks))
    for rows in trace.batches("threads", ["task", "pid", "tid"]) if tasks else ():
        for row in np.flatnonzero(np.isin(rows["task"], wanted)).tolist():
            pid, tid = (None if rows[name][row] == UNKNOWN_U32 else int(rows[name][row]) for name in ("pid", "tid"))
            task = int(rows["task"][row])
            found[task] = _Thread(pid, tid, comms.get(task))
    return found


def _accesses(sums: TraceSums) -> Iterable[AccessRow]:
    pattern = sums.pattern
    for direction, (operation, found) in enumerate((("read", pattern.read), ("write", pattern.write))):
        if not found.accesses.any():
            continue
        sizes = pattern.sizes[direction]
        yield AccessRow(
            operation=operation,
            **_counts(found, slice(None)),
            again_bytes=int(found.again().sum()),
            sizes=tuple(SizeRow(*size_range(bin_), int(sizes[bin_])) for bin_ in np.flatnonzero(sizes).tolist()),
            common=dict(sorted(pattern.common[direction].items(), key=lambda item: (-item[1], item[0]))[:MAX_COMMON]),
        )


def size_range(number: int) -> tuple[int, int]:
    """Least and most bytes of a bin of sizes."""
    return (1 << number >> 1, (1 << number) - 1)


def _counts(found: AccessSums, key: Any) -> dict[str, int]:
    names = ("accesses", "small", "placed", "consecutive", "sequential", "bytes")
    counts = {name: int(getattr(found, name)[key].sum()) for name in names}
    return {**counts, "random": int(found.random(key).sum())}


def _most_accessed(sums: TraceSums) -> list[tuple[int, int]]:
    """File groups that stand for a path, each with 0 for its reads or 1 for its writes."""
    pattern = sums.pattern
    found: list[tuple[int, int, int]] = []
    for direction, found_so in enumerate((pattern.read, pattern.write)):
        accesses = sums.paths.merged(found_so.accesses)
        used = largest(accesses[: sums.owners.no_handle], MAX_FILES)
        found += [(-int(accesses[key]), key, direction) for key in used]
    return [(key, direction) for _, key, direction in sorted(found)[:MAX_FILES]]


def largest(values: NDArray[np.int64], limit: int) -> list[int]:
    """The places of the largest values above 0, largest first; among equals, the earlier place first."""
    where = np.flatnonzero(values > 0)
    if len(where) > limit:
        least = np.partition(values[where], len(where) - limit)[len(where) - limit]
        where = where[values[where] >= least]
    order: list[int] = where[np.argsort(-values[where], kind="stable")][:limit].tolist()
    return order


def _pattern(sums: TraceSums, name: FileName, key: int, direction: int) -> PatternRow:
    found = (sums.pattern.read, sums.pattern.write)[direction]
    files = sums.paths.members(key)
    return PatternRow(
        kind=name.kind,
        path=name.path,
        pid=name.pid,
        process=name.process,
        operation=("read", "write")[direction],
        **_counts(found, files),
        extent_bytes=int(found.extent(files).sum()),
        again_bytes=int(found.again(files).sum()),
        files=_nr_files(sums, files, found.accesses),
    )


def _nr_files(sums: TraceSums, files: NDArray[np.intp], used: NDArray[np.int64]) -> int:
    """The number of these named files that were used."""
    return int(np.count_nonzero(used[files[files < sums.owners.nr_files]]))


def _most_opened(sums: TraceSums) -> list[int]:
    pattern = sums.pattern
    used = sums.paths.merged(pattern.opens + pattern.syncs + pattern.locks)
    return largest(used[: sums.owners.no_handle], MAX_FILES)


def _open(sums: TraceSums, name: FileName, key: int) -> OpenRow:
    pattern, files = sums.pattern, sums.paths.members(key)
    used = pattern.opens + pattern.syncs + pattern.locks
    return OpenRow(
        kind=name.kind,
        path=name.path,
        pid=name.pid,
        process=name.process,
        **{column: int(getattr(pattern, column)[files].sum()) for column in _OPENS},
        files=_nr_files(sums, files, used),
    )
