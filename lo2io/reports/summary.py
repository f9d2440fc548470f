"""What happened, on one page: totals, processes, files, calls, errors, devices, and how complete all that is.

In: a trace's tables. Out: a :class:`Summary` of plain values, as JSON (``to_json``, schema in
``docs/reference/tables.md``) or as text (``render``). Nothing is estimated but the percentiles (``histogram.py``);
unnamed files are not guessed, but summed by process.
"""

from __future__ import annotations

import errno
import json
import os
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from lo2io.model import UNKNOWN_I64
from lo2io.reports.hints import why_nothing
from lo2io.reports.losses import completeness_line, filtered_words
from lo2io.reports.rows import (
    Activity,
    CallRow,
    Chosen,
    CpuLosses,
    DeviceRow,
    ErrorRow,
    FileRow,
    ProcessRow,
    Summary,
)
from lo2io.reports.tally import NR_REQUEST_OPS, OperationTally, Owners, RequestTally, Sums
from lo2io.tables import REQUEST_OPERATION
from lo2io.units import NS_PER_S, split_kernel_dev

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray
    from rich.console import Console

    from lo2io.model import Completeness
    from lo2io.tables import Trace

SCHEMA: Final = "lo2io-summary"
SCHEMA_VERSION: Final = 1
MAX_ROWS: Final = 100
"""Processes and files listed, by time spent in calls; the rest is summed in one row."""


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
    requests = RequestTally(trace, owners)
    chosen = _chosen(meta)
    empty = not (tally.by_call.calls.any() or requests.requests.any())
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
        processes=_processes(tally.by_process, requests, people, by_bytes=meta["mode"] == "system"),
        files=_files(trace, tally.by_group, owners, people),
        calls=_calls(meta, tally),
        errors=_errors(meta, tally),
        devices=_devices(trace, requests),
        completeness={key: value for key, value in asdict(proof).items() if key != "events"},
        completeness_line=_last_line(meta, proof, chosen),
        notices=tuple(meta["notices"]),
        chosen=chosen,
        losses=_losses(trace, proof),
        reconciliation=tuple(meta.get("reconciliation", ())),
        hints=why_nothing(meta, proof, chosen) if empty else (),
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
        return self.texts("comm", rows)

    def texts(self, column: str, rows: list[int]) -> dict[int, str | None]:
        """A text of the leaders of these processes."""
        tasks = {int(self._leaders[row]): row for row in rows if self._leaders[row] >= 0}
        found = self._trace.texts("threads", "task", column, tasks.keys())
        return {tasks[task]: text for task, text in found.items()}


def _activity(sums: Sums, key: Any) -> Activity:
    return Activity(**{name: int(getattr(sums, name)[key].sum()) for name in Activity.__slots__})


def _total(sums: Sums) -> Activity:
    return _activity(sums, slice(None))


def _busiest(
    sums: Sums, keys: NDArray[np.intp], limit: int, weight: NDArray[np.int64] | None = None
) -> tuple[list[int], NDArray[np.intp]]:
    """The keys with most weight, or else with most time (then calls, then the first), and the rest."""
    active = (sums.calls[keys] > 0) | (sums.writes[keys] > 0)
    if weight is not None:
        active |= weight[keys] > 0
    used = keys[active]
    heavy = (sums.time_ns if weight is None else weight)[used]
    order = used[np.lexsort((used, -sums.calls[used], -heavy))]
    return order[:limit].tolist(), order[limit:]


def _processes(sums: Sums, requests: RequestTally, people: _People, *, by_bytes: bool) -> tuple[ProcessRow, ...]:
    """By time in calls; of a whole machine by bytes, for there most of the time is daemons' waiting."""
    weight = sums.bytes_read + sums.bytes_written + requests.process_bytes if by_bytes else None
    shown, rest = _busiest(sums, np.arange(len(sums.calls)), MAX_ROWS, weight)
    comms, cgroups, containers = (people.texts(column, shown) for column in ("comm", "cgroup", "container"))

    def row(who: tuple[int | None, str | None], where: tuple[str | None, str | None], key: Any) -> ProcessRow:
        return ProcessRow(
            *who,
            int(people.threads[key].sum()),
            _activity(sums, key),
            *where,
            int(requests.process_requests[key].sum()),
            int(requests.process_bytes[key].sum()),
        )

    rows = [row((people.pid(key), comms.get(key)), (cgroups.get(key), containers.get(key)), key) for key in shown]
    if len(rest):
        rows.append(row((None, f"{len(rest)} others"), (None, None), rest))
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


def _devices(trace: Trace, tally: RequestTally) -> tuple[DeviceRow, ...]:
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


def _chosen(meta: Mapping[str, Any]) -> Chosen:
    filtered, totals = meta.get("filtered", {}), meta["totals"]
    began = meta.get("recording_start_ns")
    return Chosen(
        filter=meta.get("filter", ""),
        cgroup=meta.get("cgroup", ""),
        cpus=tuple(meta.get("chosen_cpus", ())),
        recorded_ns=None if began is None else meta["stop_ns"] - began,
        filtered_calls=filtered.get("calls", 0),
        filtered_requests=filtered.get("requests", 0),
        own_calls=totals.get("nr_own_calls", 0),
        own_requests=totals.get("nr_own_requests", 0),
    )


def _last_line(meta: Mapping[str, Any], proof: Completeness, chosen: Chosen) -> str:
    filtered = filtered_words(chosen.filter, chosen.filtered_calls, chosen.filtered_requests)
    return completeness_line(proof, meta.get("reconciliation_line", ""), filtered)


def _losses(trace: Trace, proof: Completeness) -> tuple[CpuLosses, ...]:
    gaps: dict[int, list[int]] = {}
    for batch in trace.batches("losses", ["cpu", "begin_time_ns", "end_time_ns"]):
        for cpu, begin, end in zip(*(batch[name].tolist() for name in batch), strict=True):
            known = UNKNOWN_I64 not in (begin, end)
            gaps.setdefault(cpu, []).append(end - begin if known else 0)
    rows = []
    for cpu in sorted({event.cpu for event in proof.events} | gaps.keys()):
        lost = sum(event.lost for event in proof.events if event.cpu == cpu)
        vanished = sum(event.vanished for event in proof.events if event.cpu == cpu)
        if lost or vanished or cpu in gaps:
            rows.append(CpuLosses(cpu, lost, vanished, len(gaps.get(cpu, ())), sum(gaps.get(cpu, ()))))
    return tuple(rows)


def _rate(amount: int, span_ns: int) -> float | None:
    return amount * NS_PER_S / span_ns if span_ns else None


def _realtime_ns(meta: Mapping[str, Any]) -> int | None:
    if not meta["syncs"]:
        return None
    # A window's first reading may be the recording's: days before, and as far off as clocks drift.
    sync = min(meta["syncs"], key=lambda each: abs(each["time_ns"] - meta["start_ns"]))
    return int(sync["realtime_ns"] + meta["start_ns"] - sync["time_ns"])
