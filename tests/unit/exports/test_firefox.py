"""Slow calls for the Firefox Profiler: the file keeps the format's rules, and says what the tables say."""

from __future__ import annotations

import itertools
import json
from typing import TYPE_CHECKING, Any

import pytest
from build.tablemaker import FSTAT, READ, WRITE, Row, make_batch, write_trace

from lo2io.errors import TraceError
from lo2io.exports import formats
from lo2io.model import UNKNOWN_U32
from lo2io.trace.user_stacks import Frame
from lo2io.unwind.walk import End

if TYPE_CHECKING:
    from pathlib import Path

ID = "0123456789abcdef0123456789abcdef01234567"
LIB = "/lib/größe.so"
FRAMES = [
    Frame(7, 0, ID, 0x10, LIB, "inner", end=End.CUT),
    Frame(7, 1, ID, 0x20, LIB, "outer", end=End.CUT),
    Frame(8, 0, "", 0x999, "", ""),
    Frame(8, 1, ID, 0x21, LIB, "outer"),
    Frame(8, 2, ID, 0x30, LIB, ""),
]
OTHER_LIB = "größe.so+0x30"
MS = 1_000_000
COLUMNS = {
    "stackTable": ("prefix", "frame"),
    "frameTable": (
        *("address", "inlineDepth", "category", "subcategory", "func", "nativeSymbol", "innerWindowID"),
        *("line", "column"),
    ),
    "funcTable": ("name", "isJS", "relevantForJS", "resource", "source", "lineNumber", "columnNumber"),
    "resourceTable": ("lib", "name", "host", "type"),
    "nativeSymbols": ("libIndex", "address", "name", "functionSize"),
    "sources": ("uuid", "filename"),
}
"""Tables that threads share, in version 60 of the format."""
OF_THREADS = {
    "samples": ("time", "stack", "weight"),
    "markers": ("data", "name", "startTime", "endTime", "phase", "category"),
}
THREAD = (
    *("name", "processName", "processType", "pid", "tid", "isMainThread", "processStartupTime", "processShutdownTime"),
    *("registerTime", "unregisterTime", "pausedRanges"),
)


@pytest.fixture(autouse=True)
def _named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Traces have these frames, whatever files there are."""
    monkeypatch.setattr("lo2io.trace.writer.name_frames", lambda *_: FRAMES)


def call(number: int, begin: int, end: int | None, **more: Any) -> Row:
    """A row of operations; times are in ms."""
    ended = {"status": 1} if end is None else {"end_time_ns": end * MS}
    return {"id": number, "begin_time_ns": begin * MS, "task": 0, "call": READ, **ended, **more}


def exported(folder: Path, operations: list[Row], stacks: dict[int, int], notes: list[str] | None = None) -> Any:
    """The profile of such a trace, which begins at 1 ms. ``stacks``: call → stack."""
    batch = make_batch(
        tasks=[
            {"task": 0, "process": 7, "pid": 100, "tid": 100, "comm": b"main", "start_time_ns": 2 * MS},
            {"task": 1, "process": 7, "pid": 100, "tid": 101, "comm": b"helper", "exit_time_ns": 9 * MS},
        ],
        files=[{"file": 4, "path": b"/data/in"}],
        handles=[{"handle": 3, "file": 4, "fd": 3}, {"handle": 5, "fd": 6}],
        operations=operations,
        call_stacks=[{"operation": operation, "stack": stack} for operation, stack in stacks.items()],
    )
    trace = write_trace(folder / "T", [batch], span=(MS, 11 * MS))
    summary = formats.export(trace, "firefox", folder / "T.profile.json", lambda _: None)
    assert summary.rows == len(stacks)
    if notes is not None:
        notes += summary.notes
    return checked(json.loads((folder / "T.profile.json").read_text(encoding="ascii")))


def checked(profile: Any) -> Any:
    """The profile, once it keeps the rules of version 60: whole columns, and numbers of rows that are there."""
    meta, shared = profile["meta"], profile["shared"]
    assert (meta["preprocessedProfileVersion"], meta["processType"], meta["stackwalk"]) == (60, 0, 1)
    assert any(each["color"] == "grey" for each in meta["categories"])
    assert all(each["subcategories"][0] == "Other" for each in meta["categories"])
    for name, columns in COLUMNS.items():
        whole(shared[name], columns)
    texts, libs, categories = len(shared["stringArray"]), len(profile["libs"]), len(meta["categories"])
    assert len(set(shared["stringArray"])) == texts
    sizes = {name: shared[name]["length"] for name in COLUMNS}
    within(shared["stackTable"]["frame"], sizes["frameTable"])
    for number, prefix in enumerate(shared["stackTable"]["prefix"]):
        assert prefix is None or 0 <= prefix < number
    within(shared["frameTable"]["func"], sizes["funcTable"])
    within(shared["frameTable"]["category"], categories)
    within(shared["funcTable"]["name"], texts)
    within(shared["funcTable"]["resource"], sizes["resourceTable"], least=-1)
    within(shared["resourceTable"]["name"], texts)
    within(shared["resourceTable"]["lib"], libs)
    schemas = {schema["name"]: {each["key"] for each in schema["fields"]} for schema in meta["markerSchema"]}
    for thread in profile["threads"]:
        assert thread.keys() >= {*THREAD, *OF_THREADS}
        assert isinstance(thread["pid"], str)
        for name, columns in OF_THREADS.items():
            whole(thread[name], columns)
        samples, markers = thread["samples"], thread["markers"]
        assert samples["weightType"] == "tracing-ms"
        assert samples["time"] == sorted(samples["time"])
        within([stack for stack in samples["stack"] if stack is not None], sizes["stackTable"])
        within(markers["name"], texts)
        within(markers["category"], categories)
        assert set(markers["phase"]) == {1}
        for data in markers["data"]:
            assert data.keys() - {"type", "cause"} <= schemas[data["type"]]
            within([data["cause"]["stack"]], sizes["stackTable"])
    return profile


def whole(found: Any, columns: tuple[str, ...]) -> None:
    """The table has these columns, all of them as long as it says."""
    assert found.keys() - {"weightType"} == {*columns, "length"}
    assert {len(found[column]) for column in columns} == {found["length"]}


def within(numbers: list[int], size: int, *, least: int = 0) -> None:
    """All are numbers of rows."""
    assert all(least <= number < size for number in numbers)


def functions(profile: Any, stack: int | None) -> list[tuple[str, str]]:
    """The functions of a stack, each with its category, the outermost first."""
    shared, found = profile["shared"], []
    while stack is not None:
        frame = shared["stackTable"]["frame"][stack]
        name = shared["stringArray"][shared["funcTable"]["name"][shared["frameTable"]["func"][frame]]]
        found.append((name, profile["meta"]["categories"][shared["frameTable"]["category"][frame]]["name"]))
        stack = shared["stackTable"]["prefix"][stack]
    return found[::-1]


def samples(profile: Any, thread: int) -> list[tuple[float, str, float]]:
    """Time, functions and weight of each sample of a thread."""
    table = profile["threads"][thread]["samples"]
    return [
        (time, " ".join(name for name, _ in functions(profile, stack)), weight)
        for time, stack, weight in zip(table["time"], table["stack"], table["weight"], strict=True)
    ]


def test_calls_are_samples_as_heavy_as_they_are_long(tmp_path: Path) -> None:
    """Between two calls of a thread, it has no stack. Times count from the trace's start."""
    rows = [call(1, 2, 3), call(2, 3, 5, call=WRITE), call(4, 4, 8, call=FSTAT, task=1), call(3, 6, 7)]
    profile = exported(tmp_path, rows, {1: 7, 2: 8, 4: UNKNOWN_U32, 3: 7})
    assert samples(profile, 0) == [
        (1, "[cut] outer inner read", 1),
        (2, f"{OTHER_LIB} outer ?+0x999 write", 2),
        (4, "", 0),
        (5, "[cut] outer inner read", 1),
        (6, "", 0),
    ]
    assert samples(profile, 1) == [(3, "fstat", 4), (7, "", 0)]
    found = dict(itertools.chain(functions(profile, 2), [functions(profile, each)[-1] for each in (3, 7, 8)]))
    assert {name: found[name] for name in ("inner", "read", "write", "fstat")} == {
        "inner": "Program",
        "read": "Read",
        "write": "Write",
        "fstat": "Other call",
    }


def test_a_call_has_a_marker_with_its_numbers(tmp_path: Path) -> None:
    """Unknown values have no key, nor has an error of 0."""
    numbers = {"offset_bytes": 0, "bytes_request": 4096, "bytes_result": 10, "run_queue_ns": 3, "blocked_ns": 4}
    rows = [call(1, 2, 3, handle=3, **numbers), call(2, 4, 5, handle=5, error=5)]
    (thread,) = (profile := exported(tmp_path, rows, {1: 7, 2: 7}))["threads"]
    markers, (stack, _, _, _) = thread["markers"], thread["samples"]["stack"]
    assert markers["data"] == [
        {
            "type": "call",
            "id": 1,
            "file": "/data/in",
            "offset": 0,
            "asked": 4096,
            "moved": 10,
            "queued": 3,
            "blocked": 4,
            "cause": {"time": 1, "stack": stack},
        },
        {"type": "call", "id": 2, "error": 5, "cause": {"time": 3, "stack": stack}},
    ]
    assert (markers["startTime"], markers["endTime"]) == ([1, 3], [2, 4])
    assert [profile["shared"]["stringArray"][name] for name in markers["name"]] == ["read", "read"]


def test_threads_and_files_of_code_have_their_names(tmp_path: Path) -> None:
    """A thread tells its process. A file has its build id, and of it the id that symbol servers ask for."""
    profile = exported(tmp_path, [call(1, 2, 3), call(2, 2, 3, task=1), call(3, 2, 3, task=9)], {1: 7, 2: 8, 3: 8})
    assert [[thread[key] for key in THREAD[:6]] for thread in profile["threads"]] == [
        ["main", "main", "default", "100", 100, True],
        ["helper", "main", "default", "100", 101, False],
        ["unknown thread", "unknown process", "default", "0", 0, True],
    ]
    assert [(thread["registerTime"], thread["unregisterTime"]) for thread in profile["threads"]] == [
        (1, None),
        (0, 8),
        (0, None),
    ]
    (lib,) = profile["libs"]
    assert (lib["path"], lib["name"], lib["codeId"]) == (LIB, "größe.so", ID)
    assert lib["breakpadId"] == "67452301AB89EFCD0123456789ABCDEF0"
    shared = profile["shared"]
    assert [shared["stringArray"][name] for name in shared["resourceTable"]["name"]] == ["größe.so"]
    known = dict(
        zip(
            (shared["stringArray"][name] for name in shared["funcTable"]["name"]),
            shared["funcTable"]["resource"],
            strict=True,
        )
    )
    assert (known["inner"], known["?+0x999"], known["read"], known["[cut]"]) == (0, -1, -1, -1)


def test_the_profile_tells_when_and_what_was_recorded(tmp_path: Path) -> None:
    """Its start is a time of day: the clocks were read at 0, 1 ms before."""
    meta = exported(tmp_path, [call(1, 2, 3)], {1: 7})["meta"]
    assert meta["startTime"] == 1_700_000_000_001
    assert (meta["profilingStartTime"], meta["profilingEndTime"]) == (0, 10)
    assert (meta["product"], meta["arguments"], meta["oscpu"]) == ("lo2io", "dd if=/dev/zero", "6.18.0 x86_64")


def test_calls_without_a_stack_are_counted(tmp_path: Path) -> None:
    """So are calls in flight."""
    notes: list[str] = []
    exported(tmp_path, [call(1, 2, 3), call(2, 4, 5), call(3, 6, None)], {1: 7}, notes)
    assert notes == ["2 calls have no stack and are left out"]


def test_a_trace_without_stacks_is_refused(tmp_path: Path) -> None:
    """The error says how to record them."""
    trace = write_trace(tmp_path / "T", [make_batch(operations=[call(1, 2, 3)])])
    with pytest.raises(TraceError, match="no call in it has a stack") as caught:
        formats.export(trace, "firefox", tmp_path / "F", lambda _: None)
    assert "--stacks" in caught.value.remedy
    assert not (tmp_path / "F").exists()
