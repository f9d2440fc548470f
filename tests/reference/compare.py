"""One form for the rows of both engines, without numbers that each engine is free to choose.

Handles are numbered by their first appearance. Tasks and processes are named by what is known about them, descriptions
by the handles that share them. Unknown is None.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lo2io.convert.engine import Engine
from lo2io.model import UNKNOWN_I64, UNKNOWN_U32
from lo2io.spool.reader import SpoolReader
from reference.commits import MOMENTS
from reference.engine import TOTALS, Reference
from reference.fds import NO_FILE, file_row
from reference.requests import END_UNKNOWN, IN_FLIGHT
from reference.ring_compare import RING_TABLES, canonical_tables, reference_tables
from reference.specs import SPECS

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from reference.fds import Handle

Row = dict[str, Any]
Tables = dict[str, Any]
TABLES = (
    "operations",
    "handle_events",
    "handles",
    "files",
    "tasks",
    "requests",
    "request_events",
    "completions",
    "switches",
    "off_cpu",
    "losses",
    "fills",
    "evictions",
    "request_parts",
    "write_backs",
    "commits",
    "faults",
    "fuse_requests",
    "call_stacks",
    "futexes",
    *RING_TABLES,
)
EXACT_U32 = ("flags", "fd", "tid", "prev_tid", "next_tid", "cpu", "device", "call")
"""Columns in which the value of UNKNOWN_U32 is an ordinary number."""


def run_reference(path: Path) -> Tables:
    """The slow engine's tables."""
    return canonical(reference_rows(Reference(path)))


def run_native(path: Path, batch_rows: int = 1 << 12) -> Tables:
    """The native engine's tables."""
    return canonical(native_rows(path, batch_rows))


def _of_request(row: Row) -> Row:
    """A stretch with its request as a number, in place of the object."""
    found = row["worked_on"]
    rest = {name: value for name, value in row.items() if name != "worked_on"}
    return rest | {"request": 0 if found is None else found.number + 1}


def reference_rows(reference: Reference) -> Tables:
    """Objects to numbers."""
    handles = reference.calls.tables.handles
    number: dict[int, int] = {id(handle): index for index, handle in enumerate(handles)}
    requests = {id(r["request"]): index for index, r in enumerate(reference.requests)}
    descriptions: dict[int, int] = {}
    for handle in handles:
        descriptions.setdefault(id(handle.description), len(descriptions))

    def plain(row: Row) -> Row:
        row = dict(row)
        for name in ("handle", "handle2"):
            if name in row:
                row[name] = None if row[name] is None else number[id(row[name])]
        if "request" in row:
            row["id"] = requests[id(row.pop("request"))]
        if "ring_request" in row:
            row["ring_request"] = 0 if row["ring_request"] is None else row["ring_request"].number + 1
        for name in _TASKS:
            if row.get(name) is not None:
                row[name] = row[name].index
        return row

    tables: Tables = {name: [plain(row) for row in getattr(reference, name)] for name in _SHARED}
    tables["operations"] = [row | {"id": 10**6 + 2 * i} for i, row in enumerate(tables["operations"])]
    ids = {id(row): 10**6 + 2 * index for index, row in enumerate(reference.operations)}
    for name in ("fills", "evictions"):
        tables[name] = [plain(row) | _causes(row, ids) for row in getattr(reference.cache, name)]
    tables["off_cpu"] = [_of_request(row) for row in tables["off_cpu"]]
    tables["commits"] = reference.commits.rows
    tables |= reference_tables(reference, number)
    tables["handles"] = [_handle_row(h, number, descriptions) for h in handles]
    tables["tasks"] = [
        {
            "task": task.index,
            "process": task.process.index,
            "pid": task.process.pid,
            "tid": task.tid,
            "ppid": task.ppid if task.ended else task.process.ppid,
            "parent_process": _parent(task.process),
            "start_time_ns": task.start,
            "exit_time_ns": task.exit,
            "comm": task.comm,
            "cgroup": (task.cgroup if task.ended else task.process.cgroup) or b"",
            "cmdline": task.command if task.ended else task.process.command,
            "cmdline_cut": int(task.command_cut if task.ended else task.process.command_cut),
            "rank": task.rank if task.ended else task.process.rank,
            "kind": task.kind,
            **task.usage,
        }
        for task in reference.tasks.all
        if task.recorded
    ]
    return tables | {"totals": reference.totals, "seen": reference.seen}


def _causes(row: Row, ids: dict[int, int]) -> Row:
    """Calls' rows to their ids."""
    return {name: ids.get(id(row[name]), 0) for name in ("cause", "first_use") if name in row}


_SHARED = ("operations", "handle_events", "requests", "request_events", "completions", "switches", "off_cpu", "losses")


def _handle_row(handle: Handle, number: dict[int, int], descriptions: dict[int, int]) -> Row:
    return {
        "handle": number[id(handle)],
        "process": handle.process,
        "task": handle.task,
        "fd": handle.fd,
        "origin": handle.origin,
        "name_source": handle.name_source if handle.ended else handle.description.name_source,
        "close_on_exec": int(handle.cloexec),
        "used": int(handle.used),
        "parent": None if handle.parent is None else number[id(handle.parent)],
        "description": descriptions[id(handle.description)],
        "file": file_row(handle),
        "open_flags": handle.open_flags,
        "open_time_ns": handle.open_time,
        "close_time_ns": handle.close_time,
    }


_TASKS = ("task", "prev_task", "next_task", "waker", "holder")


def _parent(process: Any) -> int | None:
    return process.parent.index if process.parent is not None and process.parent.recorded else None


def native_rows(path: Path, batch_rows: int) -> Tables:
    """Columns to rows, batch by batch."""
    spool = SpoolReader(path)
    engine = Engine(spool, SPECS, batch_rows=batch_rows)  # type: ignore[arg-type]
    tables: Tables = {name: [] for name in TABLES}
    files: dict[int, Any] = {}
    for batch in engine.batches():
        assert batch.first_operation == len(tables["operations"])
        for name in TABLES:
            columns = getattr(batch, name)
            lists = {key: column.tolist() for key, column in columns.items()}
            rows = [dict(zip(lists, values, strict=True)) for values in zip(*lists.values(), strict=True)]
            for row in rows:
                _place_texts(row, batch.text)
            tables[name] += [_known(row) for row in rows] if name != "files" else rows
        for row in tables["files"]:
            files[row["file"]] = tuple(row[key] for key in ("mode", "device", "inode", "mount", "path"))
        for row in tables["handles"]:
            if isinstance(row["file"], int):
                row["file"] = files[row["file"]]  # the file's row must have come before
    for row in tables["operations"]:
        row["call"] = SPECS.rows[row["call"]].name
    totals = {name: getattr(engine.totals, name) for name in TOTALS}
    seen = [engine.seen(i).tolist() for i in range(len(spool.streams()))]
    return tables | {"totals": totals, "seen": seen}


def _place_texts(row: Row, text: bytes) -> None:
    for name in ("path", "comm", "cgroup", "cmdline"):
        if f"{name}_offset" in row:
            offset = row.pop(f"{name}_offset")
            row[name] = text[offset : offset + row.pop(f"{name}_length")]


def _known(row: Row) -> Row:
    for key, value in row.items():
        if value == UNKNOWN_I64 or (value == UNKNOWN_U32 and key not in EXACT_U32):
            row[key] = None
    return row


# ---- numbers out ----


def canonical(tables: Tables) -> Tables:  # noqa: C901 - one entry a table
    """The tables in the common form; also checks rules that hold within one run."""
    operations = _settle(tables["operations"])
    _check_ids(operations, tables["requests"])
    _check_stretches(tables["off_cpu"], tables["operations"])
    tasks = _name_tasks(tables["tasks"])
    processes = _name_processes(tables["tasks"], tasks)
    handles = _name_handles(operations, tables["handle_events"], tables["ring_requests"] + tables["rings"])
    ids = {row["id"]: index for index, row in enumerate(_by_time(tables["requests"]))}
    shared: dict[int, list[str]] = {}
    for row in tables["handles"]:
        if row["used"]:
            shared.setdefault(row["description"], []).append(handles[row["handle"]])

    def refer(row: Row) -> Row:
        row = {key: value for key, value in row.items() if key not in ("id", "description")}
        for key in ("handle", "handle2", "parent"):
            if row.get(key) is not None:
                row[key] = handles.get(row[key], "unused")
        for key in _TASKS:
            if row.get(key) is not None:
                row[key] = tasks.get(row[key], "unrecorded")
        for key in ("process", "parent_process"):
            if row.get(key) is not None:
                row[key] = processes.get(row[key], "unrecorded")
        return row

    rows = [refer(row) | {"shares": sorted(shared.get(row["description"], []))} for row in tables["handles"]]
    rings = {row["id"]: n for n, row in enumerate(sorted(tables["ring_requests"], key=lambda row: row["id"]))}
    for row in (*tables["requests"], *tables["request_events"]):
        row["ring_request"] = None if not row["ring_request"] else rings.get(row["ring_request"], "unwritten")
    stretches = [refer(row) | {"request": rings.get(row["request"])} for row in tables["off_cpu"]]
    requests = _by_time(tables["requests"])
    events = [refer(row) | {"request": ids.get(row["id"])} for row in tables["request_events"]]
    return {
        "operations": [refer(row) for row in operations],
        "handle_events": sorted((refer(row) for row in tables["handle_events"]), key=_event_key),
        "handles": sorted((row for row in rows if row["used"]), key=lambda row: int(row["handle"][1:])),
        "unused": sorted((_unused(row) for row in rows if not row["used"]), key=repr),
        "tasks": sorted((refer(row) for row in tables["tasks"]), key=lambda row: row["task"]),
        "requests": [refer(row) for row in requests],
        "request_events": events,
        "completions": tables["completions"],
        "switches": [refer(row) for row in tables["switches"]],
        "off_cpu": _settle_stretches(stretches, operations),
        "commits": sorted((dict(row) for row in tables["commits"]), key=_begin_of_commit),
        "losses": sorted((dict(row) for row in tables["losses"]), key=lambda row: (row["cpu"], row["end_time_ns"])),
        **{name: _page_rows(tables[name], tables["operations"], refer) for name in ("fills", "evictions")},
        **canonical_tables(tables | {"operations": operations}, refer),
        "totals": tables["totals"],
        "seen": tables["seen"],
    }


def _begin_of_commit(row: Row) -> tuple[int, int]:
    return min(row[moment] for moment in MOMENTS if row[moment] is not None), row["tid"]


def _page_rows(rows: list[Row], operations: list[Row], refer: Callable[[Row], Row]) -> list[Row]:
    """Runs of pages in one order, with the start and the thread of calls in place of ids."""
    calls = {row["id"]: (row["begin_time_ns"], row["tid"]) for row in operations} | {0: None}
    named = []
    for row in rows:
        told = {name: calls[row[name]] for name in ("cause", "first_use") if name in row}
        named.append({name: value for name, value in (refer(row) | told).items() if name != "file"})
    return sorted(named, key=lambda row: repr(sorted(row.items())))


def _settled(operations: list[Row]) -> int:
    end = len(operations)
    while end and operations[end - 1]["status"] == 1:
        end -= 1
    return end


def _settle_stretches(stretches: list[Row], operations: list[Row]) -> list[Row]:
    """Also the stretches of calls in flight at the end."""
    end = _settled(operations)
    rows = [row | {"before": min(row["before"], end)} for row in stretches]
    return sorted(rows, key=lambda row: (row["before"], row["task"], row["begin_time_ns"]))


def _check_stretches(stretches: list[Row], operations: list[Row]) -> None:
    """Each stretch of a call lies within one of its thread, whose row comes at or after the stretch's place."""
    callers = {op["task"] for op in operations}
    for row in (row for row in stretches if row["task"] in callers):
        calls = (op for op in operations[row["before"] :] if op["task"] == row["task"])
        call = next(calls)
        assert call["begin_time_ns"] <= row["begin_time_ns"] <= (row["end_time_ns"] or row["begin_time_ns"]), row
        assert call["end_time_ns"] is None or (row["end_time_ns"] or 0) <= call["end_time_ns"], row


def _settle(operations: list[Row]) -> list[Row]:
    """Calls in flight at the end come in any order."""
    end = _settled(operations)
    tail = sorted(operations[end:], key=lambda row: (row["begin_time_ns"], row["tid"]))
    return operations[:end] + tail


def _check_ids(operations: list[Row], requests: list[Row]) -> None:
    """Matching ids are unique, and a copy call owns two."""
    ids = [row["id"] for row in operations + requests]
    ids += [row["id"] + 1 for row in operations if row["call"] in ("copy_file_range", "sendfile64")]
    assert len(ids) == len(set(ids)), "matching ids are not unique"


def _name_tasks(rows: list[Row]) -> dict[int, str]:
    names: dict[int, str] = {}
    for row in sorted(rows, key=lambda row: (row["tid"], row["start_time_ns"] or -1, row["task"])):
        name = f"tid {row['tid']} from {row['start_time_ns']}"
        while name in names.values():
            name += " again"
        names[row["task"]] = name
    return names


def _name_processes(rows: list[Row], tasks: dict[int, str]) -> dict[int, str]:
    members: dict[int, list[str]] = {}
    for row in rows:
        members.setdefault(row["process"], []).append(tasks[row["task"]])
    return {process: ", ".join(sorted(names)) for process, names in members.items()}


def _name_handles(operations: list[Row], events: list[Row], others: list[Row]) -> dict[int, str]:
    names: dict[int, str] = {}
    pending = sorted(events, key=lambda row: (row["before"], row["time_ns"], -row["kind"]))
    for ordinal in range(len(operations) + 1):
        while pending and pending[0]["before"] <= ordinal:
            handle = pending.pop(0)["handle"]
            names.setdefault(handle, f"h{len(names)}")
        if ordinal < len(operations):
            for key in ("handle", "handle2"):
                handle = operations[ordinal][key]
                if handle is not None:
                    names.setdefault(handle, f"h{len(names)}")
    for row in sorted(others, key=lambda row: (row.get("id", 0), row["ring"])):
        for key in ("handle", "handle2"):
            if row.get(key) is not None:
                names.setdefault(row[key], f"h{len(names)}")
    return names


def _event_key(row: Row) -> Any:
    return row["before"], row["time_ns"], -row["kind"], row["handle"]


def _unused(row: Row) -> Row:
    """Handles that no row names: only their end and name count."""
    return {key: row[key] for key in ("fd", "origin", "name_source", "file", "close_time_ns")}


def _by_time(requests: list[Row]) -> list[Row]:
    """In flight at the end, or with an unknown end: any order."""
    ended = [row for row in requests if row["status"] not in (IN_FLIGHT, END_UNKNOWN)]
    rest = [row for row in requests if row["status"] in (IN_FLIGHT, END_UNKNOWN)]
    return ended + sorted(rest, key=lambda r: (r["device"], r["insert_time_ns"] or 0, r["issue_time_ns"] or 0, r["id"]))


__all__ = ["NO_FILE", "Tables", "run_native", "run_reference"]
