"""Rows of another tool's trace as batches of lo2io's tables."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from lo2io.model import UNKNOWN_I64, UNKNOWN_U32, Batch, CallClass, CallKind, CallSpec, RequestOp, Returns
from lo2io.otf2.foreign.calls import ASYNCHRONOUS
from lo2io.otf2.foreign.definitions import Texts, Threads, file_columns, handle_columns, make_columns
from lo2io.otf2.foreign.rows import IN_FLIGHT, INFERRED, UNKNOWN_TICKS
from lo2io.trace.ring_columns import RING_PATH

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from lo2io.catalog.catalog import Catalog
    from lo2io.model import BlockDevice, Columns
    from lo2io.otf2.foreign.events import ForeignEvents
    from lo2io.otf2.foreign.rows import Clock, Spill
    from lo2io.otf2.read.definitions import Definitions

_NO_CPU: Final = 2**16 - 1
"""The CPU of all rows. ``operations.cpu`` has no null, and no machine has this many CPUs."""
_RWBS: Final = re.compile(r"F?(WZ|DE|[RWDFZN])[FASM]*")
"""Operation and flags of a block request, as the kernel writes them (blk_fill_rwbs in kernel/trace/blktrace.c), with
lo2io's ``WZ``, ``Z`` and ``N``."""
_REQUEST_OPS: Final = {
    "R": RequestOp.READ,
    "W": RequestOp.WRITE,
    "F": RequestOp.FLUSH,
    "D": RequestOp.DISCARD,
    "DE": RequestOp.SECURE_ERASE,
    "WZ": RequestOp.WRITE_ZEROES,
    "Z": RequestOp.ZONE,
    "N": RequestOp.OTHER,
}
_NEEDED: Final = (
    *("operations", "handle_events", "handles", "files", "tasks", "requests", "request_events", "completions"),
    *("switches", "off_cpu", "losses"),
)
"""Tables that every batch has."""
_STAND_INS: Final = {
    CallKind.READ: "read",
    CallKind.WRITE: "write",
    CallKind.COPY: "sendfile64",
    CallKind.OPEN: "openat",
    CallKind.CLOSE: "close",
    CallKind.SYNC: "fsync",
    CallKind.SEEK: "lseek",
    CallKind.DUP: "dup",
}
"""Kind of a call that is no system call → the tracepoint as which filters treat the call."""
_RING: Final = re.compile(r"ring (\d+): io_uring fd (\d+) of process (\d+)")
"""lo2io's name of a ring."""


def _spec(label: str, kind: CallKind, known: CallSpec | None) -> CallSpec:
    """The specification of a call of the trace. ``known`` is the system call of this name, if there is one."""
    if known is not None:
        return replace(known, abi_name=label, core=False, returns=Returns.VALUE, io_mode="none", fields={})
    return CallSpec(
        name=_STAND_INS.get(kind, "fcntl"),
        abi_name=label,
        group="",
        core=False,
        kind=kind,
        returns=Returns.VALUE,
        io_mode="none",
        region_role="file_io",
        fields={},
        report_class=CallClass.of_kind(kind),
        waits=kind is CallKind.SYNC,
    )


class TableMaker:
    """Makes the batches of one trace after all of its events were read.

    Args:
        definitions: The trace's definitions.
        events: The facts from the trace's events.
        clock: The trace's clock.
        disks: Handle of a disk → disk.
        catalog: System calls and opcodes that lo2io knows.
    """

    def __init__(
        self,
        definitions: Definitions,
        events: ForeignEvents,
        clock: Clock,
        disks: Mapping[int, BlockDevice],
        catalog: Catalog,
    ) -> None:
        self.threads = Threads(definitions, events.callers, events.requesters)
        self._definitions, self._events, self._clock, self._disks = definitions, events, clock, disks
        self._system_calls = {call.abi_name: call for call in catalog.calls}
        self._opcodes = {opcode.name: opcode.number for opcode in catalog.opcodes}
        files = definitions.table("file")
        self._with_file = [ref for ref, values in definitions.table("handle").items() if values[1] in files]
        self._rings: dict[int, list[int]] = {}
        self.calls, self._code_of_key, self._paradigms = self._name_calls()
        self._sums = _Sums(len(self.calls), [int(call.kind) for call in self.calls])
        self._number = 1

    def batches(self, spills: Mapping[str, Spill]) -> Iterator[Batch]:
        """All rows, numbered in their order. After the last batch, the sums are complete."""
        texts = Texts()
        files = file_columns(self._definitions, texts)
        threads = self.threads.columns(texts)
        yield _batch(files=files, tasks=threads, handles=self._handles(files), text=bytes(texts.text))
        for rows in spills["calls"].chunks():
            columns = self._operations(rows)
            self._sums.add(columns, rows["nested"])
            yield _batch(operations=columns)
        for rows in spills["requests"].chunks():
            yield _batch(requests=self._requests(rows))
        for rows in spills["rings"].chunks():
            yield _batch(ring_requests=self._ring_requests(rows))
        if self._rings:
            yield _batch(rings=self._ring_columns())

    def paradigms(self) -> list[dict[str, Any]]:
        """The sums of calls for each I/O paradigm."""
        return self._sums.of_paradigms(self._paradigms, self._paradigm)

    def _ids(self, rows: NDArray[Any]) -> NDArray[np.int64]:
        first, self._number = self._number, self._number + len(rows)
        return np.arange(first, self._number)

    # ---- names of calls ----

    def _name_calls(self) -> tuple[list[CallSpec], NDArray[np.uint16], list[int]]:
        """The calls, the code of each key of the rows, and the paradigm of each code."""
        keys = sorted(self._events.keys, key=self._events.keys.__getitem__)
        codes: dict[tuple[int, int, int], int] = {}
        of_key = [codes.setdefault(self._settled(key, keys), len(codes)) for key in keys]
        names = [self._label(*each) for each in codes]
        long_names = [
            f"{self._paradigm(paradigm)} {name}" if region >= 0 and names.count(name) > 1 else name
            for (paradigm, region, _), name in zip(codes, names, strict=True)
        ]
        specs = []
        for (_, region, kind), name, label in zip(codes, names, _distinct(long_names), strict=True):
            known = self._system_calls.get(name) if region >= 0 else None
            specs.append(_spec(label, CallKind(kind), known))
        return specs, np.array(of_key, np.uint16), [paradigm for paradigm, _, _ in codes]

    @staticmethod
    def _settled(key: tuple[int, int, int], keys: Sequence[tuple[int, int, int]]) -> tuple[int, int, int]:
        """The key of a call.

        A call without any action takes the paradigm of its region's other calls, if they agree.
        """
        paradigm, region, _ = key
        if paradigm >= 0 or region < 0:
            return key
        others = [other for other in keys if other[1] == region and other[0] >= 0]
        return others[0] if len(others) == 1 else key

    def _label(self, paradigm: int, region: int, kind: int) -> str:
        if region >= 0:
            return self._definitions.name("region", region)
        words = CallKind(kind).name.lower().replace("meta", "other")
        return f"{self._paradigm(paradigm)} {words}{', non-blocking' if region == ASYNCHRONOUS else ''}"

    def _paradigm(self, paradigm: int) -> str:
        values = self._definitions.table("paradigm").get(paradigm)
        return "(no paradigm)" if values is None else self._definitions.text(values[1])

    def _handles(self, files: Columns) -> Columns:
        uses = self._events.handles
        refs = sorted(self._definitions.table("handle"))
        times = {
            name: self._clock.ns(
                np.array(
                    [getattr(uses[ref], f"{name}_time") if ref in uses else UNKNOWN_TICKS for ref in refs], np.uint64
                )
            )
            for name in ("open", "close")
        }
        return handle_columns(self._definitions, uses, self.threads, files, times)

    def _tasks(self, locations: NDArray[np.uint64]) -> dict[str, NDArray[Any]]:
        """Columns with each location's thread, process and number."""
        distinct, index = np.unique(locations, return_inverse=True)
        tasks = np.array([self.threads.task_of.get(int(ref), UNKNOWN_U32) for ref in distinct], np.int64)
        facts = {"task": tasks}
        for name, values in (("pid", self.threads.pids), ("tid", self.threads.tids)):
            facts[name] = np.array([values[task] if task != UNKNOWN_U32 else UNKNOWN_U32 for task in tasks], np.int64)
        return {name: values[index] for name, values in facts.items()}

    def _operations(self, rows: NDArray[Any]) -> Columns:
        return make_columns(
            "operations",
            len(rows),
            id=self._ids(rows),
            begin_time_ns=self._clock.ns(rows["begin"]),
            end_time_ns=self._clock.ns(rows["end"]),
            call=self._code_of_key[rows["key"]],
            cpu=np.full(len(rows), _NO_CPU),
            offset_source=rows["source"],
            offset_bytes=rows["offset"],
            bytes_request=rows["asked"],
            bytes_result=rows["moved"],
            **{name: rows[name] for name in ("status", "closes", "handle", "handle2", "flags", "result", "error")},
            **self._tasks(rows["location"]),
        )

    def _requests(self, rows: NDArray[Any]) -> Columns:
        begin, issue, end = (self._clock.ns(rows[name]) for name in ("begin", "issue", "end"))
        unseen = rows["status"] == INFERRED
        task_of = {tid: task for task, tid in enumerate(self.threads.tids) if tid != UNKNOWN_U32}
        tids = rows["tid"]
        return make_columns(
            "requests",
            len(rows),
            id=self._ids(rows),
            device=[self._disks[handle].device for handle in rows["handle"].tolist()],
            task=[task_of.get(tid, UNKNOWN_U32) for tid in tids.tolist()],
            tid=tids,
            # A request that bypassed the scheduler begins when it is issued.
            insert_time_ns=np.where(begin == issue, UNKNOWN_I64, begin),
            issue_time_ns=issue,
            complete_time_ns=np.where(rows["status"] == 0, end, UNKNOWN_I64),
            end_earliest_ns=np.where(unseen, issue, UNKNOWN_I64),
            end_latest_ns=np.where(unseen, end, UNKNOWN_I64),
            bytes_request=rows["asked"],
            bytes_result=rows["moved"],
            operation=[
                self._request_operation(*each)
                for each in zip(rows["operation"].tolist(), rows["mode"].tolist(), strict=True)
            ],
            nr_completions=rows["status"] == 0,
            **{name: rows[name] for name in ("sector", "error", "status")},
        )

    def _request_operation(self, operation: int, mode: int) -> int:
        """The operation by lo2io's attribute, else by OTF2's mode, whose three values have the same numbers."""
        found = None if operation == UNKNOWN_U32 else _RWBS.fullmatch(self._definitions.text(operation))
        return int(_REQUEST_OPS[found[1]]) if found else mode

    def _ring_requests(self, rows: NDArray[Any]) -> Columns:
        opcodes, rings, paths = (
            [("" if ref == UNKNOWN_U32 else self._definitions.text(ref)) for ref in rows[name].tolist()]
            for name in ("operation", "ring", "path")
        )
        found = [_RING.match(text) for text in rings]
        numbers = [UNKNOWN_U32 if match is None else int(match[1]) for match in found]
        for match, status in zip(found, rows["status"].tolist(), strict=True):
            if match is not None:
                number, fd, pid = map(int, match.groups())
                counts = self._rings.setdefault(number, [pid, fd, 0, 0])
                counts[2] += 1
                counts[3] += status != IN_FLIGHT
        return make_columns(
            "ring_requests",
            len(rows),
            id=self._ids(rows),
            opcode=[self._opcodes.get(word, 255) for word in opcodes],
            ring=numbers,
            path=[RING_PATH.index(word) if word in RING_PATH else 0 for word in paths],
            submit_time_ns=self._clock.ns(rows["begin"]),
            issue_time_ns=self._clock.ns(rows["issue"]),
            complete_time_ns=self._clock.ns(rows["end"]),
            bytes_request=rows["asked"],
            bytes_result=rows["moved"],
            nr_completions=rows["end"] != UNKNOWN_TICKS,
            # Requests with an unknown file have the ring's own handle, which has no file.
            handle=np.where(np.isin(rows["handle"], self._with_file), rows["handle"], UNKNOWN_U32),
            **{name: rows[name] for name in ("user_data", "status", "result", "error")},
            **self._tasks(rows["location"]),
        )

    def _ring_columns(self) -> Columns:
        """The rings that requests name, with their counts."""
        numbers = sorted(self._rings)
        pids, fds, requests, completions = zip(*(self._rings[number] for number in numbers), strict=True)
        first = {pid: task for task, pid in reversed(list(enumerate(self.threads.pids)))}
        tasks = [first.get(pid) for pid in pids]
        return make_columns(
            "rings",
            len(numbers),
            ring=numbers,
            process=[UNKNOWN_U32 if task is None else self.threads.groups[task] for task in tasks],
            pid=pids,
            fd=fds,
            nr_requests=requests,
            nr_completions=completions,
        )


def _distinct(names: Sequence[str]) -> list[str]:
    """The names, with a number after repeated ones: names of a table's codes must differ."""
    seen: dict[str, int] = {}
    found = []
    for name in names:
        seen[name] = seen.get(name, 0) + 1
        found.append(name if seen[name] == 1 else f"{name} {seen[name]}")
    return found


def _batch(*, text: bytes = b"", **tables: Columns) -> Batch:
    nothing: Columns = {}
    whole = dict.fromkeys(_NEEDED, nothing) | tables
    return Batch(**whole, text=text, first_operation=0)


class _Sums:
    """Calls and bytes by call. Calls within other calls are counted twice, and also summed by themselves."""

    _NAMES = ("calls", "bytes_read", "bytes_written")

    def __init__(self, calls: int, kinds: Sequence[int]) -> None:
        self._of = {name: np.zeros((2, calls), np.int64) for name in self._NAMES}
        kind = np.array(kinds, np.int64)
        self._reads = np.isin(kind, (CallKind.READ, CallKind.COPY))
        self._writes = np.isin(kind, (CallKind.WRITE, CallKind.COPY))

    def add(self, columns: Columns, nested: NDArray[np.uint8]) -> None:
        """Add rows of operations."""
        call, moved = columns["call"], np.maximum(columns["bytes_result"], 0)
        for which in (0, 1):
            chosen = nested == which
            np.add.at(self._of["calls"][which], call[chosen], 1)
            for name, counts in (("bytes_read", self._reads), ("bytes_written", self._writes)):
                these = chosen & counts[call]
                np.add.at(self._of[name][which], call[these], moved[these])

    def of_paradigms(self, paradigms: Sequence[int], name_of: Callable[[int], str]) -> list[dict[str, Any]]:
        """One row for each paradigm, in the order of their references."""
        of = np.array(paradigms, np.int64)
        rows = []
        for paradigm in sorted(set(paradigms)):
            mine = of == paradigm
            row: dict[str, Any] = {"name": name_of(paradigm)}
            for name in self._NAMES:
                row[name] = int(self._of[name][:, mine].sum())
            for name in self._NAMES:
                row[f"nested_{name}"] = int(self._of[name][1, mine].sum())
            rows.append(row)
        return rows
