"""What happened, on one page: totals, processes, files, calls, errors, devices, and how complete all that is.

In: a trace's tables. Out: a :class:`Summary` of plain values, as JSON (``to_json``, schema in
``docs/reference/tables.md``) or as text (``render``). Nothing is estimated but the percentiles (``histogram.py``);
unnamed files are not guessed, but summed by process.
"""

from __future__ import annotations

import errno
import json
import os
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from lo2io.reports.losses import completeness_line
from lo2io.reports.tally import NR_REQUEST_OPS, OperationTally, Owners, RequestTally, Sums
from lo2io.tables import REQUEST_OPERATION
from lo2io.units import NS_PER_S, split_kernel_dev

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray
    from rich.console import Console

    from lo2io.reports.histogram import Latency
    from lo2io.tables import Trace

SCHEMA: Final = "lo2io-summary"
SCHEMA_VERSION: Final = 1
MAX_ROWS: Final = 100
"""Processes and files listed, by time spent in calls; the rest is summed in one row."""


@dataclass(frozen=True, slots=True)
class Activity:
    """Sums over some operations.

    ``reads`` and ``writes`` are calls that move data; a copy is both. ``time_ns`` adds up the durations of calls, over
    all threads: it may exceed the span. Calls in flight add none.
    """

    calls: int
    errors: int
    reads: int
    writes: int
    bytes_read: int
    bytes_written: int
    time_ns: int


@dataclass(frozen=True, slots=True)
class ProcessRow:
    """One process; ``pid`` None: calls of threads nobody announced, or the sum of the processes not listed."""

    pid: int | None
    comm: str | None
    threads: int
    activity: Activity


@dataclass(frozen=True, slots=True)
class FileRow:
    """One file; ``kind``: ``named``, ``unnamed`` (all unnamed fds of a process), ``none`` (no fd) or ``others``."""

    kind: str
    path: str | None
    pid: int | None
    comm: str | None
    activity: Activity


@dataclass(frozen=True, slots=True)
class CallRow:
    """One system call."""

    name: str
    in_flight: int
    activity: Activity
    latency: Latency


@dataclass(frozen=True, slots=True)
class ErrorRow:
    """One errno: how often, and in which calls (most frequent first)."""

    name: str
    number: int
    text: str
    nr: int
    calls: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class DeviceRow:
    """Requests of one operation on one device; ``requests`` leaves out those merged into others.

    ``queue``: insert to (last) issue. ``device``: issue to completion.
    """

    name: str
    operation: str
    requests: int
    bytes: int
    errors: int
    in_flight: int
    merged: int
    requeues: int
    queue: Latency
    device: Latency


@dataclass(frozen=True, slots=True)
class Summary:
    """The page. Times in ns on the trace's clock, ``start_realtime_ns`` since the epoch."""

    schema: str
    schema_version: int
    trace: str
    command: tuple[str, ...]
    """Empty: processes that ran already (``roots``), or the whole system."""
    roots: tuple[int, ...]
    mode: str
    exit_code: int | None
    hostname: str
    kernel: str
    start_ns: int
    span_ns: int
    start_realtime_ns: int | None
    activity: Activity
    bytes_read_per_s: float | None
    bytes_written_per_s: float | None
    nr_processes: int
    nr_files: int
    processes: tuple[ProcessRow, ...]
    files: tuple[FileRow, ...]
    calls: tuple[CallRow, ...]
    errors: tuple[ErrorRow, ...]
    devices: tuple[DeviceRow, ...]
    completeness: Mapping[str, Any]
    completeness_line: str
    notices: tuple[str, ...]


def summarize(trace: Trace) -> Summary:
    """Read the tables once and sum them up.

    Raises:
        TraceError: A table is missing or damaged.
    """
    meta = trace.metadata
    owners = Owners(trace)
    tally = OperationTally(trace, owners)
    total = _total(tally.by_call)
    span_ns = max(0, meta["stop_ns"] - meta["start_ns"])
    people = _People(trace, owners)
    proof = trace.completeness
    return Summary(
        schema=SCHEMA,
        schema_version=SCHEMA_VERSION,
        trace=str(trace.path),
        command=tuple(meta["command"]),
        roots=tuple(meta["roots"]),
        mode=meta["mode"],
        exit_code=meta["exit_code"],
        hostname=meta["hostname"],
        kernel=meta["kernel"],
        start_ns=meta["start_ns"],
        span_ns=span_ns,
        start_realtime_ns=_realtime_ns(meta),
        activity=total,
        bytes_read_per_s=_rate(total.bytes_read, span_ns),
        bytes_written_per_s=_rate(total.bytes_written, span_ns),
        nr_processes=int(np.count_nonzero(tally.by_process.calls[: owners.nr_processes])),
        nr_files=int(np.count_nonzero(tally.by_group.calls[: owners.nr_files])),
        processes=_processes(tally.by_process, people),
        files=_files(trace, tally.by_group, owners, people),
        calls=_calls(meta, tally),
        errors=_errors(meta, tally),
        devices=_devices(trace),
        completeness={key: value for key, value in asdict(proof).items() if key != "events"},
        completeness_line=completeness_line(proof),
        notices=tuple(meta["notices"]),
    )


def to_json(summary: Summary) -> str:
    """The summary as JSON; keys are the names of the dataclasses' fields, and only grow within a schema version."""
    return json.dumps(asdict(summary), indent=2, ensure_ascii=True)


def render(summary: Summary, console: Console) -> None:
    """Print the page; the last line is the one on completeness."""
    from lo2io.reports.page import render_page  # noqa: PLC0415  rich is slow to import, and --json needs none of it

    render_page(summary, console)


class _People:
    """Who the processes are, by the owners' numbers; the last stands for unknown."""

    def __init__(self, trace: Trace, owners: Owners) -> None:
        self._pids = np.full(owners.nr_processes + 1, -1, np.int64)
        self._leaders = np.full(owners.nr_processes + 1, -1, np.int64)
        self.threads = np.zeros(owners.nr_processes + 1, np.int64)
        self._trace = trace
        leading: list[NDArray[Any]] = []
        for batch in trace.batches("threads", ["task", "pid", "tid"]):
            process = owners.processes(batch["task"])
            np.add.at(self.threads, process, 1)
            self._pids[process] = batch["pid"]
            self._leaders[process] = batch["task"]
            leading.append(batch["task"][batch["pid"] == batch["tid"]])
        for tasks in leading:
            self._leaders[owners.processes(tasks)] = tasks

    def pid(self, row: int) -> int | None:
        """The process's pid."""
        return int(self._pids[row]) if self._pids[row] >= 0 else None

    def comms(self, rows: list[int]) -> dict[int, str | None]:
        """The name of each of these processes: its leader's."""
        tasks = {int(self._leaders[row]): row for row in rows if self._leaders[row] >= 0}
        names = self._trace.texts("threads", "task", "comm", tasks.keys())
        return {tasks[task]: comm for task, comm in names.items()}


def _activity(sums: Sums, key: Any) -> Activity:
    return Activity(**{name: int(getattr(sums, name)[key].sum()) for name in Activity.__slots__})


def _total(sums: Sums) -> Activity:
    return _activity(sums, slice(None))


def _busiest(sums: Sums, keys: NDArray[np.intp], limit: int) -> tuple[list[int], NDArray[np.intp]]:
    """The keys with most time (then calls, then the first), and the rest."""
    used = keys[(sums.calls[keys] > 0) | (sums.writes[keys] > 0)]
    order = used[np.lexsort((used, -sums.calls[used], -sums.time_ns[used]))]
    return order[:limit].tolist(), order[limit:]


def _processes(sums: Sums, people: _People) -> tuple[ProcessRow, ...]:
    shown, rest = _busiest(sums, np.arange(len(sums.calls)), MAX_ROWS)
    comms = people.comms(shown)
    rows = [
        ProcessRow(people.pid(row), comms.get(row), int(people.threads[row]), _activity(sums, row)) for row in shown
    ]
    if len(rest):
        rows.append(ProcessRow(None, f"{len(rest)} others", int(people.threads[rest].sum()), _activity(sums, rest)))
    return tuple(rows)


def _files(trace: Trace, sums: Sums, owners: Owners, people: _People) -> tuple[FileRow, ...]:
    shown, rest = _busiest(sums, np.arange(owners.no_handle), MAX_ROWS)
    paths = trace.texts("files", "file", "path", [key for key in shown if key < owners.nr_files])
    comms = people.comms([key - owners.nr_files for key in shown if key >= owners.nr_files])
    rows = []
    for key in shown:
        process = key - owners.nr_files
        if process < 0:
            rows.append(FileRow("named", paths.get(key), None, None, _activity(sums, key)))
        else:
            rows.append(FileRow("unnamed", None, people.pid(process), comms.get(process), _activity(sums, key)))
    if len(rest):
        rows.append(FileRow("others", f"{len(rest)} others", None, None, _activity(sums, rest)))
    if sums.calls[owners.no_handle]:
        rows.append(FileRow("none", None, None, None, _activity(sums, owners.no_handle)))
    return tuple(rows)


def _calls(meta: Mapping[str, Any], tally: OperationTally) -> tuple[CallRow, ...]:
    keys, _ = _busiest(tally.by_call, np.arange(len(meta["calls"])), len(meta["calls"]))
    return tuple(
        CallRow(
            meta["calls"][key]["name"],
            int(tally.in_flight[key]),
            _activity(tally.by_call, key),
            tally.latency.latency(key),
        )
        for key in keys
    )


def _errors(meta: Mapping[str, Any], tally: OperationTally) -> tuple[ErrorRow, ...]:
    rows = []
    for number in np.flatnonzero(tally.errnos.sum(axis=0)).tolist():
        by_call = tally.errnos[:, number]
        order = sorted(np.flatnonzero(by_call).tolist(), key=lambda key: -int(by_call[key]))
        calls = {meta["calls"][key]["name"]: int(by_call[key]) for key in order}
        name = errno.errorcode.get(number, f"errno {number}")
        rows.append(ErrorRow(name, number, os.strerror(number), int(by_call.sum()), calls))
    return tuple(sorted(rows, key=lambda row: (-row.nr, row.number)))


def _devices(trace: Trace) -> tuple[DeviceRow, ...]:
    tally = RequestTally(trace)
    names = {device["device"]: device["name"] for device in trace.metadata["devices"]}
    rows = []
    for key in np.flatnonzero(tally.requests + tally.merged).tolist():
        index, operation = divmod(key, NR_REQUEST_OPS)
        device = int(tally.devices[index])
        major, minor = split_kernel_dev(device)
        numbers = {
            name: int(getattr(tally, name)[key])
            for name in ("requests", "bytes", "errors", "in_flight", "merged", "requeues")
        }
        rows.append(
            DeviceRow(
                name=names.get(device, f"{major}:{minor}"),
                operation=REQUEST_OPERATION[operation],
                queue=tally.queue.latency(key),
                device=tally.device.latency(key),
                **numbers,
            )
        )
    return tuple(rows)


def _rate(amount: int, span_ns: int) -> float | None:
    return amount * NS_PER_S / span_ns if span_ns else None


def _realtime_ns(meta: Mapping[str, Any]) -> int | None:
    if not meta["syncs"]:
        return None
    sync = meta["syncs"][0]
    return int(sync["realtime_ns"] + meta["start_ns"] - sync["time_ns"])
