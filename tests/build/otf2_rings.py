"""A trace with a ring and its tables, for the tests of ``verify``; made with ``otf2_builder``.

``rings()`` keeps every rule. Thread 10 submits three linked requests in one call. One is done at once, a worker does
another, and the third is cancelled.

>>> from lo2io.verify import verify
>>> trace = rings()
>>> trace.row("ring_requests")["queued_ns"] = 1
>>> sorted(verify(trace.write(folder)).broken)
['ring.phases']
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import _otf2

from build.otf2_batches import OPCODES
from build.otf2_builder import NON_BLOCKING, NONE32, NONE64, START, S, Trace, begin, complete, correct
from build.otf2_system import text
from build.tablemaker import COMPLETE, META, Row, make_batch
from lo2io.model import CallKind, CallSpec, Returns, Totals
from lo2io.trace.writer import TableWriter

if TYPE_CHECKING:
    from pathlib import Path

RING = 3
"""The handle, in the paradigm io_uring."""
WORKER, METRICS = 3, 4
"""Locations."""
WORK, ENTER = 2, 3
"""Regions."""
PATH, STATUS, PREVIOUS, CULPRIT, CAUSE, ASKED, WORKED_BY, RUN_QUEUE, BLOCKED = range(1, 10)
"""Attributes."""
LOAD, FILL = 2, 3
"""Metric instances."""
INLINE, WORKED, CANCELLED = 20, 21, 22
"""Requests."""
CALL, BLOCK = 1, 30
"""Ids of the call, and of a block request that the first request caused. Both stand in tables alone."""
CALLS = tuple(
    CallSpec(name, name, "core", True, kind, Returns.BYTES, "none", "file_io", {})
    for name, kind in (("io_uring_enter", CallKind.RING_ENTER), ("copy_file_range", CallKind.COPY))
)


@dataclass
class RingTrace(Trace):
    """A trace to be written, with its tables."""

    tables: dict[str, list[Row]] = field(default_factory=dict)
    """Rows by the names of batches; empty: no tables are written."""
    meta: dict[str, Any] = field(default_factory=dict)
    """Values of the spool that differ."""

    def write(self, path: Path) -> Path:
        """Write the archive into ``path``, the tables beside it, and return it."""
        super().write(path)
        if self.tables:
            spool = META.__class__(**{**{f: getattr(META, f) for f in META.__dataclass_fields__}, **self.meta})
            with TableWriter(path, spool, CALLS, OPCODES) as writer:
                writer.write(make_batch(**self.tables))
                writer.close(Totals(), COMPLETE, 0, 1)
        return path

    def row(self, table: str, place: int = 0) -> Row:
        """A row, to be changed."""
        return self.tables[table][place]


def string(trace: Trace, words: str) -> tuple[Any, int]:
    """An attribute's value."""
    return _otf2.TYPE_STRING, text(trace, words)


def number(value: int) -> tuple[Any, int]:
    """An attribute's value."""
    return _otf2.TYPE_UINT64, value


def counted(time: int, ref: int, *values: int) -> tuple[Any, ...]:
    """A metric event."""
    found = []
    for value in values:
        found.append(_otf2.MetricValue())
        found[-1].unsigned_int = value
    return "Metric", time, ref, [_otf2.TYPE_UINT64] * len(values), found


def rings() -> RingTrace:
    """The correct trace."""
    plain = correct()
    trace = RingTrace(plain.clock, plain.definitions, plain.more, plain.events, markers=plain.markers)
    _define(trace)
    t = START
    trace.events[0] += [
        ("Enter", t + 400, ENTER),
        begin(t + 400, RING, INLINE, flags=NON_BLOCKING, size=NONE64),
        ("IoOperationIssued", t + 400, RING, INLINE),
        (*begin(t + 400, RING, WORKED, flags=NON_BLOCKING, size=NONE64), {PREVIOUS: number(INLINE)}),
        (*begin(t + 400, RING, CANCELLED, flags=NON_BLOCKING, size=NONE64), {PREVIOUS: number(WORKED)}),
        (*complete(t + 410, RING, INLINE), {PATH: string(trace, "inline")}),
        ("Leave", t + 415, ENTER, {ASKED: (_otf2.TYPE_UINT32, 3)}),
        ("IoOperationIssued", t + 420, RING, WORKED),
        (*complete(t + 450, RING, WORKED), {PATH: string(trace, "worker"), WORKED_BY: number(12)}),
        ("IoOperationIssued", t + 460, RING, CANCELLED),
        ("IoOperationCancelled", t + 460, RING, CANCELLED, _cancelled(trace)),
    ]
    trace.events[WORKER] = [("Enter", t + 420, WORK, {CAUSE: number(WORKED)}), ("Leave", t + 450, WORK)]
    trace.events[METRICS] = [
        counted(t + 400, LOAD, 3, 1, 1),
        counted(t + 400, FILL, 0, 0),
        counted(t + 460, LOAD, 0, 0, 1),
        counted(t + 460, FILL, 1, 3),
    ]
    trace.tables = _tables(t)
    return trace


def _cancelled(trace: Trace) -> dict[int, tuple[Any, int]]:
    return {PATH: string(trace, "cancelled"), STATUS: string(trace, "cancelled"), CULPRIT: number(INLINE)}


def _define(trace: Trace) -> None:
    paradigm = (text(trace, "io_uring"), S["io_uring"], _otf2.IO_PARADIGM_CLASS_SERIAL, _otf2.IO_PARADIGM_FLAG_OS)
    trace.definitions |= {
        ("IoParadigm", 2): (*paradigm, [], [], []),
        ("IoHandle", RING): (S[""], 0, 2, _otf2.IO_HANDLE_FLAG_PRE_CREATED, NONE32, NONE32),
        ("Location", WORKER): (text(trace, "thread 12"), _otf2.LOCATION_TYPE_CPU_THREAD, 0),
        ("Location", METRICS): (text(trace, "states of ring 0: io_uring"), _otf2.LOCATION_TYPE_METRIC, 0),
    }
    trace.more.append(("IoPreCreatedHandleState", (RING, _otf2.IO_ACCESS_MODE_READ_WRITE, _otf2.IO_STATUS_FLAG_NONE)))
    names = ("io_uring path", "io_uring status", "io_uring previous request", "io_uring culprit", "io_uring request")
    works = ("io_uring worker", "io_uring run queue", "io_uring blocked")
    for ref, name in enumerate((*names, "asked", *works), PATH):
        kind = {PATH: "STRING", STATUS: "STRING", ASKED: "UINT32"}.get(ref, "UINT64")
        trace.definitions["Attribute", ref] = (text(trace, name), S[""], getattr(_otf2, f"TYPE_{kind}"))
    for ref, name in ((WORK, "io_uring worker: READV"), (ENTER, "io_uring_enter")):
        trace.definitions["Region", ref] = (text(trace, name), S[name], *trace.definitions["Region", 0][2:])
    mode = _otf2.METRIC_ABSOLUTE_NEXT
    for ref in range(5):
        member = (text(trace, f"member {ref}"), S[""], _otf2.METRIC_TYPE_OTHER, mode, _otf2.TYPE_UINT64)
        trace.definitions["MetricMember", ref] = (*member, _otf2.BASE_DECIMAL, 0, S[""])
    for ref, members in enumerate(([0, 1, 2], [3, 4])):
        how = _otf2.METRIC_ASYNCHRONOUS, _otf2.RECORDER_KIND_ABSTRACT
        trace.definitions["MetricClass", ref] = (members, *how)
        trace.definitions["MetricInstance", LOAD + ref] = (ref, METRICS, _otf2.SCOPE_LOCATION_GROUP, 0)


def _tables(t: int) -> dict[str, list[Row]]:
    known = {"ring": 0, "task": 0, "pid": 10, "tid": 10, "submit_time_ns": t + 400, "nr_completions": 1}
    phases = ("queued_ns", "executing_ns", "waiting_ns")
    return {
        "tasks": [{"task": 0, "pid": 10, "tid": 10}, {"task": 1, "pid": 10, "tid": 12, "kind": 1}],
        "handles": [{"handle": 0, "fd": 3}, {"handle": 1, "fd": 4}],
        "rings": [{"ring": 0, "task": 0, "pid": 10, "fd": 4, "handle": 1}],
        "operations": [
            {"id": CALL, "call": 0, "begin_time_ns": t + 400, "end_time_ns": t + 415},
            {"id": 3, "call": 1, "begin_time_ns": t + 10, "end_time_ns": t + 20},
            {"id": 5, "call": 0, "begin_time_ns": t + 500},
        ],
        "batches": [
            {"id": CALL, "ring": 0, "asked": 3, "submitted": 3, "nr_requests": 3, "nr_completions": 1},
            {"id": 5, "ring": 0, "wanted": 1},
        ],
        "iocbs": [{"operation": CALL, "place": place, "handle": 0} for place in range(3)],
        "requests": [{"id": BLOCK, "task": 0, "ring_request": INLINE}],
        "ring_requests": [
            known
            | {"id": INLINE, "opcode": 1, "path": 1, "handle": 0, "issue_time_ns": t + 400, "complete_time_ns": t + 410}
            | dict(zip(phases, (0, 10, 0), strict=True)),
            known
            | {"id": WORKED, "opcode": 1, "path": 4, "previous": INLINE, "worker": 1, "nr_punts": 1}
            | {"punt_time_ns": t + 405, "issue_time_ns": t + 420, "complete_time_ns": t + 450}
            | dict(zip(phases, (20, 30, 0), strict=True)),
            known
            | {"id": CANCELLED, "opcode": 1, "path": 6, "status": 2, "previous": WORKED, "culprit": INLINE}
            | {"complete_time_ns": t + 460, "error": 125, "result": -125}
            | dict(zip(phases, (60, 0, 0), strict=True)),
        ],
        "ring_works": [
            {"id": WORKED, "ring": 0, "task": 1, "opcode": 1}
            | {"queue_time_ns": t + 405, "begin_time_ns": t + 420, "end_time_ns": t + 450}
        ],
        "ring_states": [
            {"time_ns": t + 400, "ring": 0, "in_flight": 3, "punted": 1, "workers": 1, "cq_least": 0, "cq_most": 0},
            {"time_ns": t + 460, "ring": 0, "in_flight": 0, "punted": 0, "workers": 1, "cq_least": 1, "cq_most": 3},
        ],
    }
