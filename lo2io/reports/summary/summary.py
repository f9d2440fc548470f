"""The report on one page: totals, processes, files, calls, errors, devices, and the completeness of these numbers.

In: a trace's tables. Out: a :class:`Summary` of plain values, as JSON (``to_json``, schema in
    ``docs/reference/report.md``) or as text (``reports.text.page.render_page``). Only percentiles are estimated
    (``histogram.py``). Names of unnamed files are not guessed: these files are summed by process.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from dataclasses import asdict, field
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from lo2io.errnos import error_name, error_text
from lo2io.frozen import dataclass
from lo2io.model import UNKNOWN_I64
from lo2io.model.command_lines import process_name
from lo2io.reports.findings import find
from lo2io.reports.rings.summary import summarize_rings
from lo2io.reports.summary.answer import answer
from lo2io.reports.summary.cache import summarize_cache
from lo2io.reports.summary.chosen import Chosen, read_chosen
from lo2io.reports.summary.faults import summarize_faults
from lo2io.reports.summary.file_types import FileType
from lo2io.reports.summary.fuse import summarize_fuse
from lo2io.reports.summary.futexes import summarize_futexes
from lo2io.reports.summary.hints import why_nothing
from lo2io.reports.summary.io import device_name, summarize_io
from lo2io.reports.summary.losses import completeness_line, filtered_words, sampled_words, verdict
from lo2io.reports.summary.name_counts import count_names
from lo2io.reports.summary.names import file_names
from lo2io.reports.summary.parts import summarize_parts
from lo2io.reports.summary.stacks import summarize_stacks
from lo2io.reports.summary.sums import gather
from lo2io.reports.summary.tally import NR_REQUEST_OPS
from lo2io.reports.summary.usage import UsageRow, not_recorded
from lo2io.reports.summary.write_backs import summarize_write_backs
from lo2io.trace.reader import REQUEST_OPERATION
from lo2io.units import NS_PER_S

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from lo2io.model import Completeness
    from lo2io.reports.findings.finding import Finding
    from lo2io.reports.rings.summary import RingsSummary
    from lo2io.reports.rings.tally import RingTally
    from lo2io.reports.summary.answer import Answer
    from lo2io.reports.summary.cache import CacheSummary
    from lo2io.reports.summary.faults import FaultsSummary
    from lo2io.reports.summary.fuse import FuseSummary
    from lo2io.reports.summary.futexes import FutexSummary
    from lo2io.reports.summary.histogram import Latency
    from lo2io.reports.summary.io import IoSummary
    from lo2io.reports.summary.name_counts import NameCounts
    from lo2io.reports.summary.overlap import Overlap
    from lo2io.reports.summary.parts import PartsSummary
    from lo2io.reports.summary.stacks import StacksSummary
    from lo2io.reports.summary.sums import TraceSums
    from lo2io.reports.summary.tally import OperationTally, RequestTally, Sums
    from lo2io.reports.summary.write_backs import WriteBackSummary
    from lo2io.trace.reader import Trace


@dataclass(frozen=True, slots=True)
class Activity:
    """Sums over some operations.

    ``reads`` and ``writes`` count calls that move data; a copy counts as both. ``time_ns`` adds up the durations of
    calls over all threads, so it may exceed the span. Calls in flight add nothing.
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
    """One process. ``pid`` None: calls of threads with an unknown birth, or the sum of the processes not listed."""

    pid: int | None
    comm: str | None
    threads: int
    activity: Activity
    cgroup: str | None = None
    container: str | None = None
    requests: int = 0
    """Block requests that the process itself sent, and their bytes. The kernel's threads send writeback."""
    request_bytes: int = 0
    ring_requests: int = 0
    """Requests of io_uring that the process or its SQ threads submitted, and the bytes that they moved."""
    ring_bytes: int = 0
    usage: UsageRow | None = None
    """None for the sum of the processes not listed, and for threads with an unknown birth."""
    cmdline: str | None = None
    """The last command line, as for a shell, or the title that replaced it; None: unknown."""
    name: str | None = None
    """``comm``, or a better name from the command line: a title, or an interpreter with its script."""
    overlap: Overlap | None = None
    """Its time with I/O under way; None: unknown, for the reason of the whole trace."""


@dataclass(frozen=True, slots=True)
class FileRow:
    """All files of one path on one device.

    ``kind``: ``named``, ``unnamed`` (all unnamed fds of a process), ``none`` (no fd) or ``others``.
    """

    kind: str
    path: str | None
    pid: int | None
    process: str | None
    """Name of the process that has the unnamed fds, as in :attr:`ProcessRow.name`."""
    activity: Activity
    files: int
    """Rows of the table of files (mostly inodes): several, if the file was made anew; 0: none has a name."""
    type: str = "unknown"
    """Its kind: ``storage``, ``pipe``, ``socket``, ``terminal``, ``event`` (eventfd …), ``special`` (/proc …)."""


@dataclass(frozen=True, slots=True)
class CallRow:
    """One system call."""

    name: str
    in_flight: int
    activity: Activity
    latency: Latency
    share: float
    """Its part of the time of all calls, 0 … 1."""


@dataclass(frozen=True, slots=True)
class CommandLineRow:
    """Processes with one command line and one name. Processes without a command line share a row by their name."""

    cmdline: str | None
    """The command line, as for a shell, or the title that replaced it; None: unknown."""
    name: str | None
    """The name, as in :attr:`ProcessRow.name`, or the number of ``others`` that are not listed; None: unknown."""
    processes: int
    """Number of processes; 0: calls of unknown processes."""
    activity: Activity
    share: float
    """Its part of the time of all calls, 0 … 1."""
    ring_requests: int
    """Requests of io_uring, and the bytes that they moved."""
    ring_bytes: int
    rest: bool = False
    """True for the sum of those that are not listed. A process can have the name of this row as well."""


@dataclass(frozen=True, slots=True)
class ErrorRow:
    """One errno: its count, and the calls that returned it (most frequent first)."""

    name: str
    number: int
    text: str
    nr: int
    calls: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class DeviceRow:
    """Requests of one operation on one device. ``requests`` leaves out those merged into others.

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
    inferred: int = 0
    """Requests without a completion, for which another event proves the end. No latency has them."""
    end_unknown: int = 0
    """Requests whose completion may be missing, and for which no event proves the end."""


@dataclass(frozen=True, slots=True)
class CpuLosses:
    """The missing samples of one CPU. A CPU without losses has no row.

    ``lost``: the CPU's buffer had no room. ``vanished``: the kernel counted but never delivered them. ``gaps``: number
    of times that the buffer was full; ``gap_ns``: the time of all gaps.
    """

    cpu: int
    lost: int
    vanished: int
    gaps: int
    gap_ns: int


@dataclass(frozen=True, slots=True)
class Paradigm:
    """Calls of one I/O paradigm (POSIX, ISO C, MPI …) in an archive without lo2io's tables.

    ``nested_…`` counts calls that another call of the trace made. Their bytes are also the outer call's.
    """

    name: str
    calls: int
    bytes_read: int
    bytes_written: int
    nested_calls: int
    nested_bytes_read: int
    nested_bytes_written: int


@dataclass(frozen=True, slots=True)
class Foreign:
    """An OTF2 archive without lo2io's tables, mostly another tool's. All counts are of the whole trace."""

    tool: str
    """The tool's own name for itself; empty: none is given."""
    own: bool
    """True if lo2io wrote the archive and its tables are gone."""
    trace: str
    anchor: str
    """Path of the ``.otf2`` file."""
    events: int
    calls: int
    title: str
    paradigms: tuple[Paradigm, ...]
    twice: str
    """A sentence about calls that all sums count twice; empty: there are none."""
    unknown: tuple[str, ...]
    """Facts that the archive does not tell, one sentence each."""
    completeness_line: str
    nothing: str
    """The reason why the report is empty; an empty text if it is not."""


@dataclass(frozen=True, slots=True)
class Summary:
    """The page. Times in ns on the trace's clock, ``start_realtime_ns`` since the epoch."""

    schema: str
    schema_version: int
    trace: str
    command: tuple[str, ...]
    """The recorded command. Empty for running processes (``roots``) and for the whole system."""
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
    verdict: str
    """The verdict of this line: ``complete``, ``incomplete``, ``not proven``, or ``short``. Short means that the
    kernel's own accounts hold much more than was captured."""
    shortfall: str
    """The largest difference from these accounts, and its likely causes; empty: enough was captured."""
    notices: tuple[str, ...]
    chosen: Chosen
    losses: tuple[CpuLosses, ...]
    reconciliation: tuple[Mapping[str, Any], ...]
    """The kernel's accounts and the captured part of each: rows of :class:`lo2io.model.Reconciliation`."""
    hints: tuple[str, ...]
    """Possible reasons why nothing was recorded."""
    rings: RingsSummary | None = None
    """None: the trace has no table of rings, or no program used a ring."""
    names: NameCounts | None = None
    """Numbers of files and descriptors with a name, by the source of the name."""
    findings: tuple[Finding, ...] = ()
    """Findings, each with its evidence. docs/reference/findings.md has the rules."""
    cmdlines: tuple[CommandLineRow, ...] = ()
    """The processes summed by command line."""
    io: IoSummary | None = None
    """Time, latencies, slow calls, sizes and order of accesses, opens; None: no calls and no block requests."""
    living_on: Mapping[str, int] = field(default_factory=dict)
    """Name → number of processes of the command that had not ended when the recording ended."""
    usage: UsageRow | None = None
    """Usage of all processes. For a command, user and system time, faults and switches include the children that it
    waited for. None for a whole machine, for a part of the recorded calls, and for another tool's archive."""
    not_recorded: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Groups of calls that were not recorded and may be where the time went, with their calls; see ``usage``."""
    cache: CacheSummary | None = None
    """The page cache; None: the layer ``cache`` was not recorded, or nothing was read."""
    answer: Answer | None = None
    """Where the time went; None: the layer ``waits`` was not recorded, or there was no call."""
    parts: PartsSummary | None = None
    """What block requests carried; None: the layer ``parts`` was not recorded, or there was no request."""
    write_backs: WriteBackSummary | None = None
    """Who caused the disk's writes; None: the layer ``dirty`` was not recorded, or nothing was dirtied or written."""
    faults: FaultsSummary | None = None
    """Page faults that needed I/O; None: the layer ``faults`` was not recorded, or there was none."""
    stacks: StacksSummary | None = None
    """Where programs made slow calls; None: the layer ``stacks`` was not recorded, or no call was slow."""
    fuse: FuseSummary | None = None
    """Requests to servers of FUSE file systems; None: the layer ``fuse`` was not recorded, or there was none."""
    futexes: FutexSummary | None = None
    """Waits on futexes; None: the group ``futex`` or the layer ``waits`` was not recorded, or nobody waited."""
    foreign: Foreign | None = None
    """Facts about an archive without lo2io's tables; None: the trace has these tables."""
    overlap: Overlap | None = None
    """The sum of the processes' time with I/O under way; None: unknown."""
    overlap_unknown: str = ""
    """Why it is unknown; empty: it is known."""


SCHEMA: Final = "lo2io-summary"
SCHEMA_VERSION: Final = 5
MAX_ROWS: Final = 100
"""Rows listed by time in calls (processes of a whole machine by bytes): of processes, of files, and of pipes and the
like. One row sums the rest."""


def summarize(trace: Trace, sums: TraceSums | None = None) -> Summary:
    """Read the tables once and sum them up.

    Args:
        trace: A trace, or a selection of one.
        sums: The sums, if they exist already.

    Raises:
        TraceError: A table is missing or damaged.
    """
    sums = sums or gather(trace)
    meta, tally, requests = trace.metadata, sums.operations, sums.requests
    chosen, foreign = read_chosen(meta), _foreign(meta)
    rings, by_rings = _rings(sums)
    total = _total(tally.by_call)
    whole_command = meta["mode"] == "process" and not (foreign or meta.get("filter") or meta.get("selection"))
    usage = sums.usage.total(meta.get("usage"), total.time_ns) if whole_command else None
    io = summarize_io(sums) if total.calls or requests.requests.any() else None
    empty = not (tally.by_call.calls.any() or requests.requests.any() or rings)
    return Summary(
        schema=SCHEMA,
        schema_version=SCHEMA_VERSION,
        **_recording(trace, foreign),
        **_whole(sums, by_rings, total),
        **_proof(trace, chosen, foreign),
        processes=_processes(sums, by_rings, by_bytes=meta["mode"] == "system"),
        cmdlines=_command_lines(sums, by_rings),
        files=_files(sums),
        calls=_calls(meta, tally),
        errors=_errors(meta, tally),
        devices=_devices(trace, requests),
        chosen=chosen,
        hints=_why_nothing(meta, trace.completeness, chosen, foreign) if empty else (),
        rings=rings,
        findings=find(sums, rings),
        living_on=_living_on(sums),
        names=None if foreign and not foreign.own else count_names(trace),
        io=io,
        answer=answer(io.time.waits[0] if io and io.time.waits else None, usage),
        cache=summarize_cache(sums.cache, trace, sums.owners, sums.people, sums.paths),
        parts=summarize_parts(sums),
        write_backs=summarize_write_backs(sums),
        faults=summarize_faults(sums),
        fuse=summarize_fuse(sums),
        stacks=summarize_stacks(sums),
        futexes=summarize_futexes(sums),
        usage=usage,
        not_recorded=not_recorded(meta, usage) if usage else {},
        foreign=foreign,
        overlap=sums.overlap.of(slice(None)),
        overlap_unknown=sums.overlap.reason,
    )


def _recording(trace: Trace, foreign: Foreign | None) -> dict[str, Any]:
    """Fields of the summary: what was recorded, where and when."""
    meta = trace.metadata
    return {
        "trace": foreign.trace if foreign else str(trace.path),
        "command": tuple(meta["command"]),
        "roots": tuple(meta["roots"]),
        **{key: meta[key] for key in ("mode", "exit_code", "hostname", "kernel", "start_ns")},
        "span_ns": _span_ns(meta),
        "start_realtime_ns": _realtime_ns(meta),
        "notices": tuple(meta["notices"]),
    }


def _whole(sums: TraceSums, rings: RingTally | None, total: Activity) -> dict[str, Any]:
    """Fields of the summary: the numbers of the whole trace."""
    owners, span_ns = sums.owners, _span_ns(sums.trace.metadata)
    return {
        "activity": total,
        "bytes_read_per_s": _rate(total.bytes_read, span_ns),
        "bytes_written_per_s": _rate(total.bytes_written, span_ns),
        "nr_processes": int(np.count_nonzero(_active(sums, rings)[: owners.nr_processes])),
        "nr_files": int(np.count_nonzero(sums.operations.by_group.calls[: owners.nr_files])),
    }


def _proof(trace: Trace, chosen: Chosen, foreign: Foreign | None) -> dict[str, Any]:
    """Fields of the summary: whether the trace is complete, and what is missing."""
    meta, proof = trace.metadata, trace.completeness
    shortfall = meta.get("shortfall", "")
    return {
        "completeness": proof.as_dict(),
        "completeness_line": foreign.completeness_line if foreign else _last_line(meta, proof, chosen),
        "verdict": "not proven" if foreign else verdict(proof, shortfall),
        "shortfall": shortfall,
        "losses": _losses(trace, proof),
        "reconciliation": tuple(meta.get("reconciliation", ())),
    }


def to_json(summary: Summary) -> str:
    """The summary as JSON. Keys are the names of the dataclasses' fields. A schema version only gains keys."""
    facts = asdict(summary) | {"findings": [finding.as_dict() for finding in summary.findings]}
    return json.dumps(facts, indent=2, ensure_ascii=True)


def _activity(sums: Sums, key: Any) -> Activity:
    return Activity(**{name: int(getattr(sums, name)[key].sum()) for name in Activity.__slots__})


def share_of_time(sums: Sums, key: Any) -> float:
    """The part of all time that these calls have, 0 … 1; 0 without any time."""
    total_ns = int(sums.time_ns.sum())
    return int(sums.time_ns[key].sum()) / total_ns if total_ns else 0.0


def _total(sums: Sums) -> Activity:
    return _activity(sums, slice(None))


def busiest(
    sums: Sums,
    keys: NDArray[np.intp],
    limit: int,
    weight: NDArray[np.int64] | None = None,
    also: NDArray[np.bool_] | None = None,
) -> tuple[list[int], NDArray[np.intp]]:
    """The keys with most weight, else most time, else most calls (among equals the first ones), and the rest.

    Keys with neither calls nor weight are left out, unless ``also`` names them.
    """
    active = (sums.calls[keys] > 0) | (sums.writes[keys] > 0)
    if also is not None:
        active |= also[keys]
    if weight is not None:
        active |= weight[keys] > 0
    used = keys[active]
    heavy = (sums.time_ns if weight is None else weight)[used]
    order = used[np.lexsort((used, -sums.calls[used], -heavy))]
    return order[:limit].tolist(), order[limit:]


def _ring_sums(sums: TraceSums, rings: RingTally | None) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """For each process, by the owners' numbers: its rings' requests, and the bytes that these moved."""
    if rings:
        return rings.process_requests, rings.process_bytes
    nothing = np.zeros(sums.owners.nr_processes + 1, np.int64)
    return nothing, nothing


def _active(sums: TraceSums, rings: RingTally | None) -> NDArray[np.bool_]:
    """For each process, True if it did anything."""
    active: NDArray[np.bool_] = (sums.operations.by_process.calls > 0) | (_ring_sums(sums, rings)[0] > 0)
    return active


def _rings(sums: TraceSums) -> tuple[RingsSummary | None, RingTally | None]:
    """The numbers of rings, and the tally behind them. None for a trace without rings or without a table of rings."""
    trace = sums.trace
    if "rings" not in trace.metadata["tables"] or not (trace.rows("rings") or trace.rows("ring_requests")):
        return None, None
    return summarize_rings(trace, sums.owners, sums.people, sums.paths)


def _processes(gathered: TraceSums, rings: RingTally | None, *, by_bytes: bool) -> tuple[ProcessRow, ...]:
    """Rows by time in calls. A whole machine's rows are by bytes, as most of its time is that of waiting daemons."""
    sums, requests, people = gathered.operations.by_process, gathered.requests, gathered.people
    ring_requests, ring_bytes = _ring_sums(gathered, rings)
    weight = sums.bytes_read + sums.bytes_written + requests.process_bytes + ring_bytes if by_bytes else None
    shown, rest = busiest(sums, np.arange(len(sums.calls)), MAX_ROWS, weight, ring_requests > 0)
    comms, cgroups, containers, lines = (
        people.texts(column, shown) for column in ("comm", "cgroup", "container", "cmdline")
    )

    def row(
        who: tuple[int | None, str | None], where: tuple[str | None, str | None], key: Any, line: str | None = None
    ) -> ProcessRow:
        return ProcessRow(
            *who,
            int(people.threads[key].sum()),
            _activity(sums, key),
            *where,
            int(requests.process_requests[key].sum()),
            int(requests.process_bytes[key].sum()),
            int(ring_requests[key].sum()),
            int(ring_bytes[key].sum()),
            usage=None if who[0] is None else gathered.usage.row(key, int(sums.time_ns[key])),
            cmdline=line,
            name=process_name(who[1], line),
            overlap=gathered.overlap.of(key),
        )

    rows = [
        row((people.pid(key), comms.get(key)), (cgroups.get(key), containers.get(key)), key, lines.get(key))
        for key in shown
    ]
    if len(rest):
        rows.append(row((None, f"{len(rest)} others"), (None, None), rest))
    return tuple(rows)


def _command_lines(sums: TraceSums, rings: RingTally | None) -> tuple[CommandLineRow, ...]:
    """Rows by time, then calls, then command line."""
    by_process, (ring_requests, ring_bytes) = sums.operations.by_process, _ring_sums(sums, rings)
    busy = np.flatnonzero(_active(sums, rings)).tolist()
    comms, lines = (sums.people.texts(column, busy) for column in ("comm", "cmdline"))
    groups: dict[tuple[str | None, str | None], list[int]] = defaultdict(list)
    for key in busy:
        groups[lines.get(key), process_name(comms.get(key), lines.get(key))].append(key)

    def row(cmdline: str | None, name: str | None, keys: list[int], *, rest: bool = False) -> CommandLineRow:
        return CommandLineRow(
            cmdline=cmdline,
            name=name,
            processes=sum(key < sums.owners.nr_processes for key in keys),
            activity=_activity(by_process, keys),
            share=share_of_time(by_process, keys),
            ring_requests=int(ring_requests[keys].sum()),
            ring_bytes=int(ring_bytes[keys].sum()),
            rest=rest,
        )

    def weight(group: tuple[tuple[str | None, str | None], list[int]]) -> tuple[int, int, str]:
        (cmdline, name), keys = group
        return -int(by_process.time_ns[keys].sum()), -int(by_process.calls[keys].sum()), cmdline or name or ""

    ordered = sorted(groups.items(), key=weight)
    rows = [row(*words, keys) for words, keys in ordered[:MAX_ROWS]]
    if len(ordered) > MAX_ROWS:
        unlisted = [key for _, keys in ordered[MAX_ROWS:] for key in keys]
        rows.append(row(None, f"{len(ordered) - MAX_ROWS} others", unlisted, rest=True))
    return tuple(rows)


def _files(sums: TraceSums) -> tuple[FileRow, ...]:
    """Rows by path: files that replaced each other share a row. Storage comes first."""
    by_file, owners = sums.operations.by_group, sums.owners
    by_path = by_file.merged(sums.paths)
    stored = owners.types[: owners.no_handle] <= FileType.STORAGE
    shown, rest = busiest(by_path, np.flatnonzero(stored), MAX_ROWS)
    others, more = busiest(by_path, np.flatnonzero(~stored), MAX_ROWS)
    shown, rest = shown + others, np.append(rest, more)
    names = file_names(sums.trace, owners, sums.people, shown)
    files = sums.paths.nr_files((by_file.calls > 0) | (by_file.writes > 0))
    types = [FileType(kind).name.lower() for kind in owners.types[shown]]
    rows = [
        FileRow(*names[key], _activity(by_path, key), int(files[key]), kind)
        for key, kind in zip(shown, types, strict=True)
    ]
    if len(rest):
        activity = _activity(by_path, rest)
        rows.append(FileRow("others", f"{len(rest)} others", None, None, activity, int(files[rest].sum())))
    if by_path.calls[owners.no_handle] or by_path.writes[owners.no_handle]:  # copies with an unknown target
        rows.append(FileRow("none", None, None, None, _activity(by_path, owners.no_handle), 0))
    return tuple(rows)


def _calls(meta: Mapping[str, Any], tally: OperationTally) -> tuple[CallRow, ...]:
    keys, _ = busiest(tally.by_call, np.arange(len(meta["calls"])), len(meta["calls"]))
    return tuple(
        CallRow(
            meta["calls"][key]["name"],
            int(tally.in_flight[key]),
            _activity(tally.by_call, key),
            tally.latency_of_call(key),
            share_of_time(tally.by_call, key),
        )
        for key in keys
    )


def _errors(meta: Mapping[str, Any], tally: OperationTally) -> tuple[ErrorRow, ...]:
    rows = []
    for number in np.flatnonzero(tally.errnos.sum(axis=0)).tolist():
        by_call = tally.errnos[:, number]
        order = sorted(np.flatnonzero(by_call).tolist(), key=lambda key: -int(by_call[key]))
        calls = {meta["calls"][key]["name"]: int(by_call[key]) for key in order}
        name = error_name(number)
        rows.append(ErrorRow(name, number, error_text(number), int(by_call.sum()), calls))
    return tuple(sorted(rows, key=lambda row: (-row.nr, row.number)))


def _devices(trace: Trace, tally: RequestTally) -> tuple[DeviceRow, ...]:
    rows = []
    for key in np.flatnonzero(tally.requests + tally.merged).tolist():
        index, operation = divmod(key, NR_REQUEST_OPS)
        numbers = {
            name: int(getattr(tally, name)[key])
            for name in ("requests", "bytes", "errors", "in_flight", "merged", "requeues", "inferred", "end_unknown")
        }
        rows.append(
            DeviceRow(
                name=device_name(trace.metadata, int(tally.devices[index])),
                operation=REQUEST_OPERATION[operation],
                queue=tally.queue.latency(key),
                device=tally.device.latency(key),
                **numbers,
            )
        )
    return tuple(rows)


def _last_line(meta: Mapping[str, Any], proof: Completeness, chosen: Chosen) -> str:
    filtered = filtered_words(
        chosen.filter, chosen.filtered_calls, chosen.filtered_requests, chosen.filtered_ring_requests
    )
    sampled = sampled_words(chosen.sample_rate, chosen.ring_requests)
    return completeness_line(proof, meta.get("reconciliation_line", ""), filtered, sampled, meta.get("shortfall", ""))


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


def _living_on(sums: TraceSums) -> dict[str, int]:
    """Processes of the command that had not ended when the recording ended, by name."""
    meta = sums.trace.metadata
    if meta["mode"] != "process" or not meta["command"] or "foreign" in meta:
        return {}
    living: set[int] = set()
    for batch in sums.trace.batches("threads", ["task", "exit_time_ns"]):
        living.update(sums.owners.processes(batch["task"][batch["exit_time_ns"] == UNKNOWN_I64]).tolist())
    names = sums.people.names(living)
    return dict(Counter(names.get(row) or "unknown" for row in sorted(living)).most_common())


def _foreign(meta: Mapping[str, Any]) -> Foreign | None:
    """Facts about an archive, if it has no tables of lo2io's own."""
    found = meta.get("foreign")
    if found is None:
        return None
    paradigms = tuple(Paradigm(**row) for row in found["paradigms"])
    return Foreign(**found | {"paradigms": paradigms, "unknown": tuple(found["unknown"])})


def _why_nothing(
    meta: Mapping[str, Any], proof: Completeness, chosen: Chosen, foreign: Foreign | None
) -> tuple[str, ...]:
    if foreign is None:
        return why_nothing(meta, proof, chosen)
    return (foreign.nothing or "nothing of the trace was chosen",)


def _span_ns(meta: Mapping[str, Any]) -> int:
    """The length of the trace. An end before the start counts as length 0."""
    return max(0, int(meta["stop_ns"] - meta["start_ns"]))


def _rate(amount: int, span_ns: int) -> float | None:
    return amount * NS_PER_S / span_ns if span_ns else None


def _realtime_ns(meta: Mapping[str, Any]) -> int | None:
    if not meta["syncs"]:
        return None
    # A window's first clock reading may be days older, from the recording's start, and clocks drift meanwhile.
    sync = min(meta["syncs"], key=lambda each: abs(each["time_ns"] - meta["start_ns"]))
    return int(sync["realtime_ns"] + meta["start_ns"] - sync["time_ns"])
