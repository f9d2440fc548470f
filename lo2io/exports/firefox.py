"""Slow calls and their stacks for the Firefox Profiler (profiler.firefox.com): its processed profile format, JSON.

In: the tables of stacks, calls, threads and files. Out: one file. Each call with a stack is a sample of its thread, as
heavy as the call lasted, and a marker with the call's numbers. Memory grows with the number of these calls.

The format's form is that of version 60, by the profiler's change log of its formats and its ``src/types/profile.ts``.
The profiler upgrades it to its own version. ``docs/how-to/export.md`` says what is where.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from lo2io.errors import TraceError
from lo2io.exports.target import ExportSummary
from lo2io.model import UNKNOWN_I64, UNKNOWN_U32, CallClass
from lo2io.model.trace import CUT, frame_words

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from lo2io.exports.target import Progress
    from lo2io.trace.reader import Trace

_VERSION: Final = 60
_GECKO_VERSION: Final = 31
"""Version of Firefox's (Gecko's) format, from which the profiler makes its own; a profile must name one."""
_CATEGORIES: Final = {"Program": "grey", "Read": "blue", "Write": "orange", "Sync": "red", "Other call": "yellow"}
"""Category → colour. The first is that of the program's functions; the others are calls'."""
_OTHER_CALL: Final = len(_CATEGORIES) - 1
_CATEGORY_OF: Final = {CallClass.READ: 1, CallClass.WRITE: 2, CallClass.COPY: 2, CallClass.SYNC: 3}
_MARKER: Final = "call"
_FIELDS: Final = {
    "file": ("File", "file-path"),
    "offset": ("Offset", "integer"),
    "asked": ("Bytes asked for", "bytes"),
    "moved": ("Bytes moved", "bytes"),
    "error": ("Error", "integer"),
    "queued": ("Ready, without a CPU", "nanoseconds"),
    "blocked": ("Waited", "nanoseconds"),
    "id": ("Id in operations", "integer"),
}
"""Key of a marker's data → its label and the profiler's format."""
_COLUMNS: Final = {
    "offset": "offset_bytes",
    "asked": "bytes_request",
    "moved": "bytes_result",
    "queued": "run_queue_ns",
    "blocked": "blocked_ns",
    "id": "id",
}
"""Key → column of operations; unknown values have no key."""
_INTERVAL: Final = 1
"""The phase of a marker that has start and end."""
_LIBRARY: Final = 1
"""The type of a resource that is a file of code."""
_NS_PER_MS: Final = 1_000_000


class _Call(NamedTuple):
    begin_ns: int
    end_ns: int
    call: int
    stack: int
    handle: int
    data: dict[str, int]


def export(trace: Trace, target: Path, progress: Progress) -> ExportSummary:
    """Write the calls that have a stack.

    Args:
        trace: The trace to write.
        target: The file to make.
        progress: Called with the finished share.

    Raises:
        TraceError: A table cannot be read, or no call has a stack.
        OSError: The file cannot be written.
    """
    calls, without = _calls_of_threads(trace, progress)
    if not calls:
        raise TraceError(
            f"export {trace.path} to firefox",
            "no call in it has a stack",
            "record with `--stacks 1ms`, or a lower time",
        )
    paths = _paths_of_handles(trace, {call.handle for of_thread in calls.values() for call in of_thread})
    profile = _Profile(trace.metadata["calls"], trace.metadata["start_ns"], _frames_of_stacks(trace, calls), paths)
    names = _names_of_threads(trace, calls)
    threads = [_thread(profile, names[task], calls[task]) for task in sorted(calls)]
    tables = profile.tables
    document = {"meta": _meta(trace), "libs": tables.libs, "shared": tables.document(), "threads": threads}
    with target.open("w", encoding="ascii") as file:
        for part in json.JSONEncoder(separators=(",", ":")).iterencode(document):
            file.write(part)
    notes = (f"{without:,} calls have no stack and are left out",) if without else ()
    return ExportSummary(sum(map(len, calls.values())), notes=notes)


def _calls_of_threads(trace: Trace, progress: Progress) -> tuple[dict[int, list[_Call]], int]:
    """Thread → its calls with a stack, in the order of time. And the number of calls without one."""
    stack_of: dict[int, int] = {}
    for rows in trace.batches("call_stacks", ("operation", "stack")):
        stack_of.update(zip(rows["operation"].tolist(), rows["stack"].tolist(), strict=True))
    wanted = np.fromiter(sorted(stack_of), np.uint64, len(stack_of))
    columns = (*dict.fromkeys(_COLUMNS.values()), "begin_time_ns", "end_time_ns", "task", "call", "handle", "error")
    found: dict[int, list[_Call]] = {}
    read = without = 0
    for rows in trace.batches("operations", columns):
        chosen = np.isin(rows["id"], wanted) & (rows["end_time_ns"] != UNKNOWN_I64)
        picked = {name: values[chosen].tolist() for name, values in rows.items()}
        for row, task in enumerate(picked["task"]):
            data = {key: picked[column][row] for key, column in _COLUMNS.items()}
            data = {key: value for key, value in data.items() if value != UNKNOWN_I64}
            if error := picked["error"][row]:
                data["error"] = error
            begin, end, call, handle = (
                picked[each][row] for each in ("begin_time_ns", "end_time_ns", "call", "handle")
            )
            found.setdefault(task, []).append(_Call(begin, end, call, stack_of[data["id"]], handle, data))
        read += len(chosen)
        without += len(chosen) - int(np.count_nonzero(chosen))
        progress(read / max(1, trace.rows("operations")))
    for calls in found.values():
        calls.sort(key=lambda call: call[:2])
    return found, without


class _Frame(NamedTuple):
    function: str
    file: str
    build_id: str


def _frames_of_stacks(trace: Trace, calls: Mapping[int, Iterable[_Call]]) -> dict[int, list[_Frame]]:
    """Stack → its frames, the outermost first. Without a known name, a function has its file and the offset in it."""
    wanted = {call.stack for of_thread in calls.values() for call in of_thread}
    found: dict[int, list[_Frame]] = {}
    cut: set[int] = set()
    for row in trace.table("stacks").to_pylist():
        if row["stack"] in wanted:
            file = row["file"] or ""
            function = frame_words(row["function"], file, row["offset"])
            found.setdefault(row["stack"], []).append(_Frame(function, file, row["build_id"] or ""))
            if row.get("end") == "cut":
                cut.add(row["stack"])
    first = {stack: [_Frame(CUT, "", "")] for stack in cut}
    return {stack: [*first.get(stack, ()), *reversed(frames)] for stack, frames in found.items()}


class _Name(NamedTuple):
    comm: str
    process: str
    pid: int
    tid: int
    start_ns: int
    exit_ns: int


def _names_of_threads(trace: Trace, calls: Mapping[int, Sequence[_Call]]) -> dict[int, _Name]:
    """Thread → what is known of it. A process has the name of its first thread."""
    columns = ("task", "process", "pid", "tid", "comm", "start_time_ns", "exit_time_ns")
    rows = [
        dict(zip(columns, row, strict=True))
        for batch in trace.text_batches("threads", columns)
        for row in zip(*batch, strict=True)
    ]
    leaders = {row["process"]: row["comm"] or "" for row in rows if row["pid"] == row["tid"]}
    found = {task: _Name("unknown thread", "unknown process", 0, 0, UNKNOWN_I64, UNKNOWN_I64) for task in calls}
    for row in rows:
        if row["task"] in found:
            comm = row["comm"] or ""
            times = [UNKNOWN_I64 if row[each] is None else row[each] for each in ("start_time_ns", "exit_time_ns")]
            process = leaders.get(row["process"], comm)
            found[row["task"]] = _Name(comm, process, row["pid"] or 0, row["tid"] or 0, *times)
    return found


def _paths_of_handles(trace: Trace, handles: set[int]) -> dict[int, str]:
    """The paths of these handles' files, as far as they are known."""
    wanted = np.fromiter(handles - {UNKNOWN_U32}, np.int64)
    file_of: dict[int, int] = {}
    for rows in trace.batches("handles", ("handle", "file")) if len(wanted) else ():
        chosen = np.isin(rows["handle"], wanted) & (rows["file"] != UNKNOWN_U32)
        file_of.update(zip(rows["handle"][chosen].tolist(), rows["file"][chosen].tolist(), strict=True))
    paths = trace.texts("files", "file", "path", set(file_of.values()))
    return {handle: path for handle, file in file_of.items() if (path := paths.get(file))}


@dataclass(slots=True)
class _Tables:
    """What threads share: texts, files, functions and stacks, each once."""

    libs: list[dict[str, Any]] = field(default_factory=list)
    _texts: dict[str, int] = field(default_factory=dict)
    _resources: dict[tuple[str, str], int] = field(default_factory=dict)
    _functions: dict[tuple[str, int, int], int] = field(default_factory=dict)
    """Name, resource, category → number of the function and of its only frame."""
    _stacks: dict[tuple[int | None, int], int] = field(default_factory=dict)
    """Number of the caller's stack, frame → number."""

    def text(self, text: str) -> int:
        """The number of a text."""
        return self._texts.setdefault(text, len(self._texts))

    def stack(self, frames: Sequence[_Frame], call: str, category: int) -> int:
        """The number of a stack whose innermost function is the call itself."""
        caller: int | None = None
        for frame in frames:
            caller = self._below(caller, (frame.function, self._resource(frame), 0))
        return self._below(caller, (call, -1, category))

    def _below(self, caller: int | None, function: tuple[str, int, int]) -> int:
        self.text(function[0])
        frame = self._functions.setdefault(function, len(self._functions))
        return self._stacks.setdefault((caller, frame), len(self._stacks))

    def _resource(self, frame: _Frame) -> int:
        """The number of the frame's file; -1: it is not known."""
        if not frame.file:
            return -1
        key = frame.file, frame.build_id
        if key not in self._resources:
            self._resources[key] = len(self._resources)
            self.text(_base(frame.file))
            self.libs.append(_lib(*key))
        return self._resources[key]

    def document(self) -> dict[str, Any]:
        """The tables as the format has them."""
        functions, nr, files = list(self._functions), len(self._functions), len(self._resources)
        categories = [category for _, _, category in functions]
        return {
            "stackTable": {
                "prefix": [caller for caller, _ in self._stacks],
                "frame": [frame for _, frame in self._stacks],
                "length": len(self._stacks),
            },
            "frameTable": {
                "address": [-1] * nr,  # the format's count from the image's base, the table's from the file's start
                "inlineDepth": [0] * nr,
                "category": categories,
                "subcategory": [0] * nr,
                "func": list(range(nr)),
                **{key: [None] * nr for key in ("nativeSymbol", "innerWindowID", "line", "column")},
                "length": nr,
            },
            "funcTable": {
                "name": [self._texts[name] for name, _, _ in functions],
                "isJS": [False] * nr,
                "relevantForJS": [False] * nr,
                "resource": [resource for _, resource, _ in functions],
                **{key: [None] * nr for key in ("source", "lineNumber", "columnNumber")},
                "length": nr,
            },
            "resourceTable": {
                "lib": list(range(files)),
                "name": [self._texts[_base(file)] for file, _ in self._resources],
                "host": [None] * files,
                "type": [_LIBRARY] * files,
                "length": files,
            },
            "nativeSymbols": {"libIndex": [], "address": [], "name": [], "functionSize": [], "length": 0},
            "sources": {"uuid": [], "filename": [], "length": 0},
            "stringArray": list(self._texts),
        }


def _base(path: str) -> str:
    return path.rpartition("/")[2]


def _lib(path: str, build_id: str) -> dict[str, Any]:
    """A file of code. The Breakpad id is the build id's first 16 bytes as a GUID: its first parts are little-endian."""
    digits = build_id[:32].ljust(32, "0")
    guid = b"".join(bytes.fromhex(digits[at:end])[::-1] for at, end in ((0, 8), (8, 12), (12, 16))).hex() + digits[16:]
    name = _base(path)
    return {
        "arch": "",
        "name": name,
        "path": path,
        "debugName": name,
        "debugPath": path,
        "breakpadId": f"{guid.upper()}0" if build_id else "",
        "codeId": build_id or None,
    }


@dataclass(frozen=True, slots=True)
class _Profile:
    """What threads have in common."""

    known_calls: Sequence[Mapping[str, str]]
    start_ns: int
    stacks: Mapping[int, Sequence[_Frame]]
    paths: Mapping[int, str]
    """Handle → path."""
    tables: _Tables = field(default_factory=_Tables)


def _thread(profile: _Profile, name: _Name, calls: Sequence[_Call]) -> dict[str, Any]:
    """A thread: its calls as samples and as markers."""
    known, start_ns, tables = profile.known_calls, profile.start_ns, profile.tables
    samples = _Samples(start_ns)
    markers: dict[str, list[Any]] = {key: [] for key in ("data", "name", "startTime", "endTime", "phase", "category")}
    for call in calls:
        label = known[call.call]["name"]
        category = _category(known[call.call]["class"])
        stack = tables.stack(profile.stacks.get(call.stack, ()), label, category)
        samples.add(call, stack)
        begin, end = (_ms(time, start_ns) for time in (call.begin_ns, call.end_ns))
        data: dict[str, Any] = {"type": _MARKER, **call.data, "cause": {"time": begin, "stack": stack}}
        if call.handle in profile.paths:
            data["file"] = profile.paths[call.handle]
        row = (data, tables.text(label), begin, end, _INTERVAL, category)
        for column, value in zip(markers.values(), row, strict=True):
            column.append(value)
    starts, exits = (None if time == UNKNOWN_I64 else _ms(time, start_ns) for time in (name.start_ns, name.exit_ns))
    return {
        "name": name.comm,
        "processName": name.process,
        "processType": "default",
        "pid": str(name.pid),
        "tid": name.tid,
        "isMainThread": name.pid == name.tid,
        "processStartupTime": starts or 0,
        "processShutdownTime": exits,
        "registerTime": starts or 0,
        "unregisterTime": exits,
        "pausedRanges": [],
        "showMarkersInTimeline": True,
        "samples": samples.document(),
        "markers": {**markers, "length": len(calls)},
    }


def _category(call_class: str) -> int:
    return _CATEGORY_OF.get(CallClass[call_class.upper()], _OTHER_CALL)


def _ms(time_ns: int, start_ns: int) -> float:
    """Milliseconds since the trace's start."""
    return (time_ns - start_ns) / _NS_PER_MS


class _Samples:
    """A thread's samples: one at the start of each call, as heavy as the call is long, and an empty one after it."""

    def __init__(self, start_ns: int) -> None:
        self._start_ns = start_ns
        self._rows: list[tuple[float, int | None, float]] = []
        self._end_ns: int | None = None

    def add(self, call: _Call, stack: int) -> None:
        """A call, in the order of time."""
        if self._end_ns is not None and self._end_ns < call.begin_ns:
            self._leave()
        weight = (call.end_ns - call.begin_ns) / _NS_PER_MS
        self._rows.append((_ms(call.begin_ns, self._start_ns), stack, weight))
        self._end_ns = max(call.end_ns, self._end_ns or call.end_ns)

    def _leave(self) -> None:
        if self._end_ns is not None:
            self._rows.append((_ms(self._end_ns, self._start_ns), None, 0))

    def document(self) -> dict[str, Any]:
        """The table as the format has it."""
        self._leave()
        times, stacks, weights = zip(*self._rows, strict=True)
        columns = {"time": times, "stack": stacks, "weight": weights}
        return {**columns, "weightType": "tracing-ms", "length": len(self._rows)}


def _meta(trace: Trace) -> dict[str, Any]:
    meta = trace.metadata
    first = next(iter(meta.get("syncs", ())), None)
    real_ns = first["realtime_ns"] - first["time_ns"] + meta["start_ns"] if first else 0
    length_ms = _ms(meta["stop_ns"], meta["start_ns"])
    return {
        "product": "lo2io",
        "importedFrom": "lo2io",
        "version": _GECKO_VERSION,
        "preprocessedProfileVersion": _VERSION,
        "interval": 1,
        "startTime": real_ns / _NS_PER_MS,
        "profilingStartTime": 0,
        "profilingEndTime": length_ms,
        "processType": 0,
        "stackwalk": 1,
        "oscpu": f"{meta.get('kernel', '')} {meta.get('machine', '')}".strip(),
        "arguments": " ".join(meta.get("command", ())),
        "symbolicated": True,
        "symbolicationNotSupported": True,
        "usesOnlyOneStackType": True,
        "sourceCodeIsNotOnSearchfox": True,
        "extensions": {"id": [], "name": [], "baseURL": [], "length": 0},
        "categories": [
            {"name": name, "color": colour, "subcategories": ["Other"]} for name, colour in _CATEGORIES.items()
        ],
        "markerSchema": [
            {
                "name": _MARKER,
                "chartLabel": "{marker.name} {marker.data.file}",
                "tableLabel": "{marker.data.file}",
                "display": ["marker-chart", "marker-table", "timeline-overview"],
                "fields": [{"key": key, "label": label, "format": form} for key, (label, form) in _FIELDS.items()],
            }
        ],
    }
