"""The rows that a filter lets pass, found the slow way: one row after another, in whole tables."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any

from lo2io.filter.language import FIELDS, Kind, opcode_numbers, operation_names
from lo2io.model import UNKNOWN_I64, UNKNOWN_U32, CallKind, CallSpec, RequestOp, RingPath
from reference.compare import TABLES

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from lo2io.filter.language import Comparison, Filter
    from lo2io.model import Batch, BlockDevice

Row = dict[str, Any]
Tables = dict[str, list[Row]]
RINGS = ("ring_requests", "ring_events", "ring_works", "ring_states", "batches", "rings")
NAMES = tuple(dict.fromkeys(name for name in (*TABLES, *RINGS) if name != "completions"))
_OF_CALLS = ("fuse_requests", "call_stacks", "futexes")
_BATCHES = (CallKind.RING_ENTER, CallKind.AIO_SUBMIT, CallKind.AIO_COLLECT)
_ORDER = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
}


def read_tables(batches: Iterable[Batch]) -> Tables:
    """All rows, with the ordinal of their batch's first operation and, for operations, with their own."""
    tables: Tables = {name: [] for name in NAMES}
    for batch in batches:
        for name in NAMES:
            columns = {key: column.tolist() for key, column in getattr(batch, name).items()}
            for index, values in enumerate(zip(*columns.values(), strict=True)):
                row = dict(zip(columns, values, strict=True)) | {"first": batch.first_operation}
                if name == "operations":
                    row["ordinal"] = batch.first_operation + index
                for text in ("path", "comm", "cgroup"):
                    if f"{text}_offset" in row:
                        at = row.pop(f"{text}_offset")
                        row[text] = batch.text[at : at + row.pop(f"{text}_length")].decode(errors="backslashreplace")
                tables[name].append(row)
    return tables


class SlowFilter:
    """Decides which rows of whole tables pass."""

    def __init__(self, tables: Tables, calls: Sequence[CallSpec], devices: Sequence[BlockDevice], cgroup: str) -> None:
        self.tables = tables
        self.calls = calls
        self.devices = devices
        self.cgroup = cgroup
        self.tasks = {row["task"]: row for row in tables["tasks"]}
        self.files = {row["file"]: row for row in tables["files"]}
        self.handles = {row["handle"]: row for row in tables["handles"]}

    def apply(self, chosen: Filter) -> Tables:
        """The tables that a filtered trace must have."""
        calls = [row for row in self.tables["operations"] if self._passes(chosen, self._call_facts(row))]
        requests = [
            row
            for row in self.tables["requests"]
            if self._passes(chosen, self._request_facts(row)) and self._of_cgroup(row["task"])
        ]
        rings = [
            row
            for row in self.tables["ring_requests"]
            if self._passes(chosen, self._ring_facts(row)) and self._of_cgroup(row["task"])
        ]
        ids = {row["id"] for row in requests}
        ring_ids = {row["id"] for row in rings}
        of_calls = {row["id"] for row in calls}
        entered = {row["id"] for row in calls if self.calls[row["call"]].kind in _BATCHES}
        named = {row[key] for row in (*calls, *rings) for key in ("handle", "handle2")} - {UNKNOWN_U32}
        kept = named | {row["handle"] for row in self.tables["rings"]} - {UNKNOWN_U32}
        for handle in [*kept]:
            while handle in self.handles and self.handles[handle]["parent"] != UNKNOWN_U32:
                handle = self.handles[handle]["parent"]  # noqa: PLW2901 - up the line of its parents
                kept.add(handle)
        handles = [
            row | {"used": int(row["used"] and row["handle"] in named)}
            for row in self.tables["handles"]
            if row["handle"] in kept
        ]
        files = {row["file"] for row in handles}
        ordinals = [row["ordinal"] for row in calls]

        def moved(row: Row) -> Row:
            """A row that stood before a row of an earlier batch stands at its own batch's start."""
            before = max(row["before"], row["first"])
            return row | {"before": sum(ordinal < before for ordinal in ordinals)}

        return self.tables | {
            "operations": [row | {"ordinal": index} for index, row in enumerate(calls)],
            "requests": requests,
            "request_events": [row for row in self.tables["request_events"] if row["id"] in ids],
            "handles": handles,
            "files": [row for row in self.tables["files"] if row["file"] in files],
            "handle_events": [moved(row) for row in self.tables["handle_events"] if row["handle"] in named],
            "ring_requests": rings,
            "ring_events": [moved(row) for row in self.tables["ring_events"] if row["id"] in ring_ids],
            "ring_works": [row for row in self.tables["ring_works"] if row["id"] in ring_ids],
            "batches": [row for row in self.tables["batches"] if row["id"] in entered],
            "off_cpu": [
                moved(row)
                for row in self.tables["off_cpu"]
                if (row["request"] in ring_ids if row["request"] else self._call_of(row) in ordinals)
            ],
            **{name: [row for row in self.tables[name] if row["operation"] in of_calls] for name in _OF_CALLS},
        }

    def _call_of(self, wait: Row) -> int | None:
        ends = (
            row["ordinal"]
            for row in self.tables["operations"]
            if row["task"] == wait["task"] and row["ordinal"] >= wait["before"]
        )
        return next(ends, None)

    def _of_cgroup(self, task: int) -> bool:
        path = self.tasks[task]["cgroup"] if task in self.tasks else ""
        own = self.cgroup.rstrip("/")
        return not self.cgroup or (path != "" and path == own) or path.startswith(f"{own}/")

    # ---- facts: field to all its values; empty if the record has none ----

    def _call_facts(self, row: Row) -> dict[str, set[Any]]:
        spec = self.calls[row["call"]]
        end, size = row["end_time_ns"], row["bytes_request"]
        return self._task_facts(row["task"]) | {
            "kind": {"call"},
            "operation": {name for name, meant in operation_names().items() if spec.name in meant.calls},
            "size": set() if size == UNKNOWN_I64 else {size},
            "latency": set() if end == UNKNOWN_I64 else {end - row["begin_time_ns"]},
            **self._subject_facts(row),
        }

    def _ring_facts(self, row: Row) -> dict[str, set[Any]]:
        begin, end, size = row["submit_time_ns"], row["complete_time_ns"], row["bytes_result"]
        path = RingPath(row["path"])
        opcode = {name for name, number in opcode_numbers().items() if row["opcode"] == number}
        classes = {name for name, meant in operation_names().items() if row["opcode"] in meant.opcodes}
        return self._task_facts(row["task"]) | {
            "kind": {"ring"},
            "operation": classes or {"of no class"} if opcode else set(),
            "opcode": opcode,
            "via": set() if path is RingPath.UNKNOWN else {path.name.lower()},
            "size": set() if size == UNKNOWN_I64 else {size},
            "latency": set() if UNKNOWN_I64 in (begin, end) else {end - begin},
            **self._subject_facts(row),
        }

    def _subject_facts(self, row: Row) -> dict[str, set[Any]]:
        """Facts of a thread, and of the files behind two handles."""
        files = [self.files.get(self.handles[h]["file"]) for h in (row["handle"], row["handle2"]) if h in self.handles]
        found = [file for file in files if file is not None]
        return {
            "pid": {row["pid"]} - {UNKNOWN_U32},
            "tid": {row["tid"]} - {UNKNOWN_U32},
            "path": {file["path"] for file in found if file["path"]},
            "device": {
                name for file in found for name in self._names(file["device"] >> 8 << 20 | file["device"] & 255)
            },
        }

    def _request_facts(self, row: Row) -> dict[str, set[Any]]:
        end = row["complete_time_ns"]
        begin = row["issue_time_ns"] if row["insert_time_ns"] == UNKNOWN_I64 else row["insert_time_ns"]
        size = row["bytes_request"] if row["bytes_issued"] == UNKNOWN_I64 else row["bytes_issued"]
        names = set(self._names(row["device"]))
        for device in self.devices:
            if device.disk == row["device"] and row["operation"] != RequestOp.FLUSH:
                start, size_bytes = device.start_sector, device.size_bytes
                assert start is not None
                assert size_bytes is not None
                if start <= row["sector"] < start + size_bytes // 512:
                    names |= self._names(device.device) - self._names(row["device"])
        return self._task_facts(row["task"]) | {
            "kind": {"request"},
            "operation": {
                name for name, meant in operation_names().items() if RequestOp(row["operation"]) in meant.requests
            },
            "tid": {row["tid"]},
            "path": set(),
            "device": names,
            "size": set() if size == UNKNOWN_I64 else {size},
            "latency": set() if UNKNOWN_I64 in (begin, end) else {end - begin},
        }

    def _task_facts(self, task: int) -> dict[str, set[Any]]:
        row = self.tasks.get(task)
        if row is None:
            return {"comm": set(), "cgroup": set(), "pid": set()}
        texts = {name: {row[name]} - {""} for name in ("comm", "cgroup")}
        return {**texts, "pid": {row["pid"]} - {UNKNOWN_U32}}

    def _names(self, number: int) -> set[str]:
        """Names of a device: its own and its disk's. Requests name disks, known or not; a file's device may be none."""
        device = next((one for one in self.devices if one.device == number), None)
        own = {f"{number >> 20}:{number & 0xFFFFF}"}
        if device is None:
            return own if any(row["device"] == number for row in self.tables["requests"]) else set()
        return own | {device.name} | (set() if device.disk is None else self._names(device.disk))

    # ---- comparisons ----

    def _passes(self, chosen: Filter, facts: dict[str, set[Any]]) -> bool:
        return all(self._holds(comparison, facts.get(comparison.field, set())) for comparison in chosen.comparisons)

    @staticmethod
    def _holds(comparison: Comparison, values: set[Any]) -> bool:
        if not values:
            return False
        if FIELDS[comparison.field] in (Kind.NUMBER, Kind.SIZE, Kind.DURATION):
            compare = _ORDER[comparison.operator]
            of_each = (compare(value, wanted) for value in values for wanted in comparison.values)
            return all(of_each) if comparison.operator == "!=" else any(of_each)
        hit = any(map(comparison.accepts, values))
        return not hit if comparison.operator in ("!=", "!~") else hit
