"""The chain of one call or request of io_uring: where its time went, what happened, who else used its device.

In: a trace. Out: a :class:`Chain` for each call. Nothing is guessed: a block request belongs to the call if the call's
own thread submitted it meanwhile. Memory: the requests that were under way during the call.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from lo2io.catalog.fuse_opcodes import load_opcodes
from lo2io.errnos import error_name
from lo2io.errors import UsageError
from lo2io.model import UNKNOWN_I64, UNKNOWN_U32
from lo2io.model.layers import WAITS, WORKERS
from lo2io.reports.summary.io import device_name
from lo2io.reports.summary.journal import JOURNAL, Commits
from lo2io.reports.summary.names import given_paths
from lo2io.reports.summary.waits import records_waits
from lo2io.trace.columns import OFF_STATE, REQUEST_OPERATION, UNKNOWN_REASON, WRITE_REASON
from lo2io.units import format_bytes, format_duration

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from lo2io.model import Columns
    from lo2io.trace.reader import Trace

ON_CPU: Final = "on a CPU"
UNSEEN: Final = "not known"
_OPERATION: Final = (
    *("id", "begin_time_ns", "end_time_ns", "task", "pid", "tid", "call", "cpu", "handle", "offset_bytes"),
    *("bytes_request", "bytes_result", "error"),
)
_REQUEST: Final = ("id", "device", "task", "insert_time_ns", "issue_time_ns", "complete_time_ns", "sector",
                   "bytes_request", "bytes_issued", "operation")  # fmt: skip
_WRITE_BACK: Final = ("request", "task", "bytes", "call_begin_ns", "complete_time_ns")
_SWITCHES: Final = "sched:sched_switch"
_STRETCH: Final = (
    *("task", "begin_time_ns", "wake_time_ns", "end_time_ns", "state", "reason", "waker", "waker_tid", "stack"),
    *("holder", "holder_tid", "lock_inode"),
)
_RUN_QUEUE: Final = "run queue"
_QUEUED, _EXECUTING, _WAITING = "queued", "executing", "waiting"
_RING_REQUEST: Final = (
    *("id", "ring", "submit_time_ns", "complete_time_ns", "task", "pid", "tid", "opcode", "handle", "offset_bytes"),
    *("bytes_request", "bytes_result", "error", "punt_time_ns", "queued_ns", "executing_ns", "waiting_ns"),
)
_WORK: Final = ("id", "task", "begin_time_ns", "end_time_ns")
_FUSE: Final = ("operation", "unique", "opcode", "begin_time_ns", "end_time_ns", "bytes_sent", "bytes_replied", "error")


@dataclass(frozen=True, slots=True)
class Share:
    """A part of the call's time."""

    what: str
    time_ns: int


@dataclass(frozen=True, slots=True)
class Step:
    """Something that happened during the call."""

    at_ns: int
    """Since the call's start."""
    duration_ns: int
    """0: a moment."""
    text: str


@dataclass(frozen=True, slots=True)
class Others:
    """Requests that were at the same device while the call waited for its own."""

    device: str
    submitter: str
    operation: str
    requests: int
    bytes: int


@dataclass(frozen=True, slots=True)
class WrittenBack:
    """What became of the pages that the call made dirty, or wrote past the page cache."""

    bytes: int
    """Written to disks, with bytes that were written twice."""
    requests: int
    until_ns: int | None
    """From the call's start until the last of them was on the disk; None: that was not seen."""
    reasons: tuple[str, ...]
    """Why workers of the kernel wrote them."""
    bytes_unwritten: int
    """Of pages that were dirty when the recording ended."""


@dataclass(frozen=True, slots=True)
class Chain:
    """One call or request, and all that is known of why it took so long."""

    id: int
    kind: str
    """``call``, or ``request`` of io_uring."""
    call: str
    """Its name; of a request its opcode's."""
    process: str | None
    pid: int | None
    tid: int | None
    file: str | None
    offset_bytes: int | None
    bytes: int | None
    """Moved, or else asked for."""
    error: str | None
    at_ns: int
    """Since the trace's start."""
    duration_ns: int
    shares: tuple[Share, ...]
    """They add up to the duration. The largest comes first."""
    steps: tuple[Step, ...]
    """By time."""
    others: tuple[Others, ...]
    written_back: WrittenBack | None
    """None: it dirtied and wrote nothing, or the layer ``dirty`` was not recorded."""
    unknown: tuple[str, ...]
    """What the recording does not tell, in sentences."""


def explain(trace: Trace, calls: Sequence[int]) -> tuple[Chain, ...]:
    """The chains of some calls, in the same order.

    Args:
        trace: The whole trace.
        calls: Ids of the table ``operations``, or of ``ring_requests``.

    Raises:
        UsageError: There is no such call or request, or it did not end.
        TraceError: A table is missing or damaged.
    """
    found = {row["id"]: row for row in _rows(trace, "operations", _OPERATION, _any_of("id", calls), len(calls))}
    for row in _rows(
        trace, "ring_requests", _RING_REQUEST, _any_of("id", set(calls) - found.keys()), len(calls) - len(found)
    ):
        found[row["id"]] = {**row, "begin_time_ns": row["submit_time_ns"], "end_time_ns": row["complete_time_ns"]}
    for number in calls:
        tried = f"explain the call {number}"
        if number not in found:
            remedy = (
                "take an id of the table operations or ring_requests; "
                "`lo2io report T --json` lists those of findings and slow calls"
            )
            raise UsageError(tried, "the trace has no such call", remedy)
        if found[number]["end_time_ns"] is None:
            raise UsageError(tried, "its end is not known", "take a call that ended")
        if found[number]["begin_time_ns"] is None:
            raise UsageError(tried, "its start is not known", "take a request that began during the recording")
    names = _Names(trace, list(found.values()))
    return tuple(
        (_explain_request if "opcode" in found[number] else _explain)(trace, names, found[number]) for number in calls
    )


class _Names:
    """Names of threads and files of some calls, read at once."""

    def __init__(self, trace: Trace, calls: Iterable[Mapping[str, Any]]) -> None:
        calls = list(calls)
        self.trace = trace
        handles = {row["handle"] for row in calls if row["handle"] is not None}
        file_of = {
            row["handle"]: row["file"]
            for row in _rows(trace, "handles", ("handle", "file"), _any_of("handle", handles), len(handles))
            if row["file"] is not None
        }
        paths = trace.texts("files", "file", "path", set(file_of.values()))
        given = given_paths(trace, [row["id"] for row in calls if row["handle"] not in file_of])
        self.files = {row["id"]: paths.get(file_of.get(row["handle"], -1), given.get(row["id"])) for row in calls}
        self._comms: dict[int, str | None] = {}
        self._commits: Commits | None = None

    def phases(self, row: Mapping[str, Any]) -> str:
        """In which phases of its commits the journal was during a wait for it."""
        if row["waker_tid"] is None or self.trace.metadata["wait_reasons"][row["reason"]] != JOURNAL:
            return ""
        self._commits = self._commits or Commits(self.trace)
        found = self._commits.of_stretch(row["begin_time_ns"], _woken(row), row["waker_tid"], row["stack"])
        told = ", ".join(f"{phase} {format_duration(time_ns)}" for phase, time_ns in found)
        return f" ({told})" if told else ""

    def threads(self, tasks: Iterable[int | None]) -> dict[int | None, str]:
        """The name of each of these threads."""
        wanted = {task for task in tasks if task is not None} - self._comms.keys()
        self._comms |= dict.fromkeys(wanted) | self.trace.texts("threads", "task", "comm", wanted)
        return {None: "the kernel or a thread that is not recorded"} | {
            task: comm or "a thread without a name" for task, comm in self._comms.items()
        }

    def only_one(self, tid: int) -> str:
        """The name of the thread with this tid, if the trace has just one.

        A thread that is about to end gives up its locks and files when its row is already over.
        """
        rows = list(_rows(self.trace, "threads", ("task", "tid"), _any_of("tid", {tid})))
        return self.threads([rows[0]["task"]])[rows[0]["task"]] if len(rows) == 1 else "thread"


def _explain(trace: Trace, names: _Names, call: Mapping[str, Any]) -> Chain:
    begin, end = call["begin_time_ns"], call["end_time_ns"]
    stretches = _stretches(trace, call)
    requests = list(_rows(trace, "requests", _REQUEST, _under_way(begin, end)))
    own = [row for row in requests if row["task"] == call["task"] and begin <= _began(row) <= end]
    steps = [Step(0, 0, f"the call begins on CPU {call['cpu']}")]
    for row in stretches or ():
        steps += _of_stretch(trace, names, row, begin)
    steps += [_of_request(trace, row, begin) for row in own]
    steps += [_of_fuse(row, begin) for row in _fuse_requests(trace, call)]
    result = error_name(call["error"]) if call["error"] else "the call returns"
    steps.append(Step(end - begin, 0, result if not call["error"] else f"the call fails: {result}"))
    moved = call["bytes_request"] if call["bytes_result"] is None else call["bytes_result"]
    return Chain(
        id=call["id"],
        kind="call",
        call=trace.metadata["calls"][call["call"]]["name"],
        process=names.threads([call["task"]]).get(call["task"]),
        pid=call["pid"],
        tid=call["tid"],
        file=names.files[call["id"]],
        offset_bytes=call["offset_bytes"],
        bytes=moved,
        error=error_name(call["error"]) if call["error"] else None,
        at_ns=begin - trace.metadata["start_ns"],
        duration_ns=end - begin,
        shares=_shares(trace, stretches, end - begin),
        steps=tuple(sorted(steps, key=lambda step: step.at_ns)),
        others=_others(trace, names, own, requests),
        written_back=_written_back(trace, call),
        unknown=_unknown(trace, stretches),
    )


def _explain_request(trace: Trace, names: _Names, asked: Mapping[str, Any]) -> Chain:
    """The same of a request of io_uring, or of libaio: what happened from its submission to its completion."""
    begin, end = asked["begin_time_ns"], asked["end_time_ns"]
    works = list(_rows(trace, "ring_works", _WORK, _any_of("id", [asked["id"]])))
    tells = {WAITS, WORKERS} <= {*trace.metadata["layers"]}
    stretches = (
        list(_rows(trace, "off_cpu", (*_STRETCH, "request"), _any_of("request", [asked["id"]]))) if tells else None
    )
    requests = list(_rows(trace, "requests", (*_REQUEST, "ring_request"), _under_way(begin, end)))
    own = [row for row in requests if row["ring_request"] == asked["id"]]
    steps = [Step(0, 0, "the request is submitted")]
    if asked["punt_time_ns"] is not None:
        steps.append(Step(asked["punt_time_ns"] - begin, 0, "it is handed to a worker"))
    workers = names.threads(work["task"] for work in works)
    for work in works:
        lasted = 0 if work["end_time_ns"] is None else work["end_time_ns"] - work["begin_time_ns"]
        steps.append(Step(work["begin_time_ns"] - begin, lasted, f"{workers[work['task']]} executes it"))
    for row in stretches or ():
        steps += _of_stretch(trace, names, row, begin)
    steps += [_of_request(trace, row, begin) for row in own]
    failed = error_name(asked["error"]) if asked["error"] else None
    steps.append(Step(end - begin, 0, f"it fails: {failed}" if failed else "it is complete"))
    unknown = _unknown(trace, [], "" if tells or not works else "waits,workers")
    return Chain(
        id=asked["id"],
        kind="request",
        call=_opcode_name(trace, asked["opcode"]),
        process=names.threads([asked["task"]]).get(asked["task"]),
        pid=asked["pid"],
        tid=asked["tid"],
        file=names.files[asked["id"]],
        offset_bytes=asked["offset_bytes"],
        bytes=asked["bytes_request"] if asked["bytes_result"] is None else asked["bytes_result"],
        error=failed,
        at_ns=begin - trace.metadata["start_ns"],
        duration_ns=end - begin,
        shares=_shares_of_request(trace, asked, works, stretches or ()),
        steps=tuple(sorted(steps, key=lambda step: step.at_ns)),
        others=_others(trace, names, own, requests),
        written_back=None,
        unknown=unknown,
    )


def _opcode_name(trace: Trace, number: int) -> str:
    opcodes = trace.metadata["opcodes"]
    return str(opcodes[number]["name"]) if number < len(opcodes) else f"opcode {number}"


def _shares_of_request(
    trace: Trace, asked: Mapping[str, Any], works: Sequence[Mapping[str, Any]], stretches: Sequence[Mapping[str, Any]]
) -> tuple[Share, ...]:
    """Its phases. Of its executions by workers, the stretches without a CPU have shares of their own."""
    if None in (asked["queued_ns"], asked["executing_ns"], asked["waiting_ns"]):
        return (Share(UNSEEN, asked["end_time_ns"] - asked["begin_time_ns"]),)
    times: Counter[str] = Counter()
    for row in stretches:
        spans = ((work["begin_time_ns"], work["end_time_ns"]) for work in works)
        if row["end_time_ns"] is not None and any(
            end is not None and begin <= row["begin_time_ns"] and row["end_time_ns"] <= end for begin, end in spans
        ):
            times[_wait_of(trace, row)] += _woken(row) - row["begin_time_ns"]
            times[_RUN_QUEUE] += row["end_time_ns"] - _woken(row)
    if times.total() > asked["executing_ns"]:
        times.clear()
    times[_EXECUTING] = asked["executing_ns"] - times.total()
    times[_QUEUED], times[_WAITING] = asked["queued_ns"], asked["waiting_ns"]
    return tuple(Share(what, time_ns) for what, time_ns in (+times).most_common())


def _stretches(trace: Trace, call: Mapping[str, Any]) -> list[dict[str, Any]] | None:
    """The stretches of the call without a CPU; None: they were not recorded."""
    if not records_waits(trace) and not any(event.event == _SWITCHES for event in trace.completeness.events):
        return None
    begin, end = call["begin_time_ns"], call["end_time_ns"]

    def within(rows: Columns) -> NDArray[np.bool_]:
        found: NDArray[np.bool_] = (rows["task"] == call["task"]) & (rows["begin_time_ns"] >= begin)
        found &= rows["begin_time_ns"] < end
        return found

    columns = _STRETCH if "wait_reasons" in trace.metadata else ("task", "begin_time_ns", "end_time_ns", "state")
    unknown = {**dict.fromkeys(_STRETCH), "reason": UNKNOWN_REASON}  # of a lo2io that knew no reasons
    return [{**unknown, **row} for row in _rows(trace, "off_cpu", columns, within)]


def _wait_of(trace: Trace, row: Mapping[str, Any]) -> str:
    """What the thread waited for: by the reason, or else by its state."""
    if row["reason"] > UNKNOWN_REASON:
        return f"waits: {trace.metadata['wait_reasons'][row['reason']]}"
    return OFF_STATE[row["state"]]


def _shares(trace: Trace, stretches: list[dict[str, Any]] | None, duration_ns: int) -> tuple[Share, ...]:
    if stretches is None or any(row["end_time_ns"] is None for row in stretches):
        return (Share(UNSEEN, duration_ns),)
    times: Counter[str] = Counter()
    for row in stretches:
        woken = _woken(row)
        times[_wait_of(trace, row)] += woken - row["begin_time_ns"]
        times[_RUN_QUEUE] += row["end_time_ns"] - woken
    times = +times
    times[ON_CPU] = duration_ns - times.total()
    return tuple(Share(what, time_ns) for what, time_ns in times.most_common())


def _woken(row: Mapping[str, Any]) -> int:
    """When the wait of a stretch was over: at its end, if nothing tells of an earlier wakeup."""
    woken = row["wake_time_ns"] if OFF_STATE[row["state"]] != "preempted" else None
    return int(row["end_time_ns"] if woken is None else woken)


def _of_stretch(trace: Trace, names: _Names, row: Mapping[str, Any], begin: int) -> Iterator[Step]:
    out, end = row["begin_time_ns"], row["end_time_ns"]
    if end is None:
        yield Step(out - begin, 0, f"the thread has no CPU: {_wait_of(trace, row)}")
        return
    woken = _woken(row)
    if woken > out:
        yield Step(
            out - begin,
            woken - out,
            f"the thread has no CPU: {_wait_of(trace, row)}{names.phases(row)}{_people_of(names, row)}",
        )
    if end > woken:
        yield Step(woken - begin, end - woken, "the thread could run, and waits for a CPU")


def _people_of(names: _Names, row: Mapping[str, Any]) -> str:
    """Who held the lock, and who woke the thread.

    An interrupt ends most waits for a device. The waker is then the thread that the interrupt interrupted.
    """
    told = ""
    woken = "woken by an interrupt or by" if OFF_STATE[row["state"]] == "waiting for a device" else "woken by"
    for what, role in (("held by", "holder"), (woken, "waker")):
        tid = row[f"{role}_tid"]
        if tid:
            name = names.threads([row[role]])[row[role]] if row[role] is not None else names.only_one(tid)
            told += f", {what} {name} {tid}"
        elif tid is not None and role == "waker":
            told += ", woken by an interrupt on an idle CPU"
    return told


def _of_request(trace: Trace, row: Mapping[str, Any], begin: int) -> Step:
    size = row["bytes_issued"] if row["bytes_issued"] is not None else row["bytes_request"]
    device, operation = device_name(trace.metadata, row["device"]), REQUEST_OPERATION[row["operation"]]
    where = f" of {format_bytes(size)} at sector {row['sector']:,}" if size else ""
    parts = []
    if row["insert_time_ns"] is not None and row["issue_time_ns"] is not None:
        parts.append(f"{format_duration(row['issue_time_ns'] - row['insert_time_ns'])} in the queue")
    if row["complete_time_ns"] is not None and row["issue_time_ns"] is not None:
        parts.append(f"{format_duration(row['complete_time_ns'] - row['issue_time_ns'])} at the device")
    first = _began(row)
    lasted = 0 if row["complete_time_ns"] is None else row["complete_time_ns"] - first
    return Step(first - begin, lasted, f"{device}: {operation}{where}{': ' if parts else ''}{', '.join(parts)}")


def _fuse_requests(trace: Trace, call: Mapping[str, Any]) -> list[dict[str, Any]]:
    return list(_rows(trace, "fuse_requests", _FUSE, _any_of("operation", [call["id"]])))


def _of_fuse(row: Mapping[str, Any], begin: int) -> Step:
    """What the call asked a server."""
    sent, ended = row["begin_time_ns"] - begin, row["end_time_ns"]
    lasted = 0 if ended is None else ended - row["begin_time_ns"]
    reply = "in flight" if ended is None else f"{format_bytes(row['bytes_replied'])} replied"
    failed = f", {error_name(row['error'])}" if row["error"] else ""
    asked = f"FUSE: {load_opcodes()[row['opcode']]} {row['unique']}: {format_bytes(row['bytes_sent'])} sent"
    return Step(sent, lasted, f"{asked}, {reply}{failed}")


def _others(
    trace: Trace, names: _Names, own: Sequence[Mapping[str, Any]], requests: Sequence[Mapping[str, Any]]
) -> tuple[Others, ...]:
    """Requests of others at the devices of the call's own ones, from the first of these to the last."""
    counts: Counter[tuple[int, int | None, int]] = Counter()
    sizes: Counter[tuple[int, int | None, int]] = Counter()
    numbers = {row["id"] for row in own}
    for device in {row["device"] for row in own}:
        here = [row for row in own if row["device"] == device]
        first = min(_began(row) for row in here)
        ends = [row["complete_time_ns"] for row in here]
        last = None if None in ends else max(ends)
        for row in requests:
            overlaps = (last is None or _began(row) < last) and (row["complete_time_ns"] or first) >= first
            if row["device"] == device and row["id"] not in numbers and overlaps:
                key = (device, row["task"], row["operation"])
                counts[key] += 1
                sizes[key] += row["bytes_issued"] or row["bytes_request"] or 0
    people = names.threads(task for _, task, _ in counts)
    return tuple(
        Others(device_name(trace.metadata, device), people[task], REQUEST_OPERATION[operation], number, sizes[key])
        for key, number in counts.most_common()
        for device, task, operation in [key]
    )


def _written_back(trace: Trace, call: Mapping[str, Any]) -> WrittenBack | None:
    if "dirty" not in trace.metadata.get("layers", ()):
        return None
    begin = call["begin_time_ns"]

    def of_call(rows: Columns) -> NDArray[np.bool_]:
        found: NDArray[np.bool_] = (rows["task"] == call["task"]) & (rows["call_begin_ns"] == begin)
        return found

    rows = list(_rows(trace, "write_backs", _WRITE_BACK, of_call))
    if not rows:
        return None
    written = [row for row in rows if row["request"]]
    ends = [row["complete_time_ns"] for row in written]
    sent = {row["request"] for row in written}
    reasons = {row["reason"] for row in _rows(trace, "requests", ("id", "reason"), _any_of("id", sent))}
    return WrittenBack(
        bytes=sum(row["bytes"] for row in written),
        requests=len(sent),
        until_ns=max(ends) - begin if ends and None not in ends else None,
        reasons=tuple(WRITE_REASON[reason] for reason in sorted(reasons) if reason),
        bytes_unwritten=sum(row["bytes"] for row in rows) - sum(row["bytes"] for row in written),
    )


def _unknown(trace: Trace, stretches: list[dict[str, Any]] | None, layers: str = "") -> tuple[str, ...]:
    told = []
    if stretches is None or layers:
        told.append(f"The recording does not tell when threads had a CPU: record with --layers {layers or WAITS}.")
    elif any(row["end_time_ns"] is None for row in stretches):
        told.append("The end of a stretch without a CPU was not seen.")
    if not any(event.event == "block:block_rq_issue" for event in trace.completeness.events):
        told.append("The recording has no block requests.")
    return tuple(told)


def _began(request: Mapping[str, Any]) -> int:
    begin = request["insert_time_ns"] if request["insert_time_ns"] is not None else request["issue_time_ns"]
    return int(begin or 0)


def _under_way(begin: int, end: int) -> Callable[[Columns], NDArray[np.bool_]]:
    """Choose requests that were queued or at the device at some time of the span."""

    def where(rows: Columns) -> NDArray[np.bool_]:
        inserted = rows["insert_time_ns"]
        began = np.where(inserted == UNKNOWN_I64, rows["issue_time_ns"], inserted)
        ended = rows["complete_time_ns"]
        found: NDArray[np.bool_] = (began != UNKNOWN_I64) & (began <= end)
        found &= (ended == UNKNOWN_I64) | (ended >= begin)
        return found

    return where


def _any_of(column: str, values: Iterable[int]) -> Callable[[Columns], NDArray[np.bool_]]:
    wanted = np.array(sorted(values), np.int64)
    return lambda rows: np.isin(rows[column].astype(np.int64), wanted)


def _rows(
    trace: Trace,
    table: str,
    columns: Sequence[str],
    where: Callable[[Columns], NDArray[np.bool_]],
    limit: int | None = None,
) -> Iterator[dict[str, Any]]:
    """The chosen rows of a table as dicts; None: unknown. Reading ends after ``limit`` rows."""
    nr_found = 0
    for batch in trace.batches(table, columns) if limit is None or limit else ():
        for row in np.flatnonzero(where(batch)).tolist():
            values = {name: batch[name][row].item() for name in columns}
            yield {name: None if value in (UNKNOWN_I64, UNKNOWN_U32) else value for name, value in values.items()}
            nr_found += 1
            if nr_found == limit:
                return
