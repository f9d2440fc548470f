"""Classes of calls, and calls that wait by nature: the same in tables and pictures, for the whole catalog."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from build import tablemaker
from build.tablemaker import COMPLETE, Row, make_batch, meta, write_trace

from lo2io.catalog.catalog import load_catalog
from lo2io.model import CallClass, EventCompleteness, Mount
from lo2io.reports.html.page import gather_pictures
from lo2io.reports.summary.classes import class_of, classes_of
from lo2io.reports.summary.summary import summarize
from lo2io.reports.summary.sums import gather
from lo2io.trace.reader import Trace, call_traits, open_trace

if TYPE_CHECKING:
    from pathlib import Path

SPAN = 1_000_000
F_SETLKW, F_GETFL = 7, 3
CLONE_VFORK, CLONE_THREAD = 0x4000, 0x10000
WAITS_RECORDED = replace(COMPLETE, events=(EventCompleteness("io_uring:io_uring_cqring_wait", 0, 1, 0, 1, 0),))
THREADS = [{"task": 0, "process": 7, "pid": 100, "tid": 100, "comm": b"app"}]
FILES = [
    {"file": 0, "path": b"/data/f", "mode": 0o100644},
    {"file": 1, "path": b"anon_inode:[eventfd]", "mode": 0o600},
    {"file": 2, "path": b"/odd", "mode": 0o600},
    {"file": 3, "path": b"/data/last", "mode": 0o100644},
]
HANDLES = [{"handle": number, "process": 7, "file": number, "fd": 3 + number} for number in range(len(FILES))]


@pytest.fixture
def recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A trace of calls by name, of 1,000 ns each unless they say otherwise."""
    specs = load_catalog().calls
    monkeypatch.setattr(tablemaker, "CALLS", specs)
    number = {spec.abi_name: index for index, spec in enumerate(specs)}

    def write(*calls: tuple[str, Row]) -> Trace:
        rows = [
            {"id": index + 1, "task": 0, "call": number[name], "begin_time_ns": 0, "end_time_ns": 1000, **row}
            for index, (name, row) in enumerate(calls)
        ]
        batch = make_batch(tasks=THREADS, files=FILES, handles=HANDLES, operations=rows)
        return write_trace(tmp_path, [batch], span=(0, SPAN))

    return write


def waited(trace: Trace) -> dict[str, tuple[int, int]]:
    """By class: nanoseconds of waiting, and unexplained ones."""
    io = summarize(trace).io
    assert io is not None
    return {row.kind: (row.waiting_ns, row.unexplained_ns) for row in io.time.classes}


@pytest.mark.parametrize(
    ("call", "kind"),
    [
        ("accept4", "socket"), ("connect", "socket"), ("vfork", "process"), ("fsync", "sync"), ("poll", "poll"),
        ("epoll_pwait", "poll"), ("select", "poll"), ("flock", "lock"), ("io_uring_enter", "ring"),
        ("recvmsg", "socket"), ("io_getevents", "ring"), ("msync", "memory"), ("sendto", "socket"),
        ("mq_timedreceive", "socket"),
    ],
)  # fmt: skip
def test_what_waits_by_its_nature_is_no_cpu_time(recorded: Any, call: str, kind: str) -> None:
    """Whatever it is called on, known or not."""
    assert waited(recorded((call, {}))) == {kind: (1000, 0)}


@pytest.mark.parametrize(
    ("call", "kind"),
    [
        ("socket", "socket"), ("bind", "socket"), ("execve", "process"), ("fork", "process"), ("epoll_ctl", "poll"),
        ("eventfd2", "descriptor"), ("epoll_create1", "descriptor"), ("io_submit", "ring"), ("io_uring_setup", "ring"),
        ("openat", "open"), ("read", "read"), ("copy_file_range", "copy"), ("mmap", "memory"), ("unlinkat", "name"),
    ],
)  # fmt: skip
def test_what_works_is_no_waiting(recorded: Any, call: str, kind: str) -> None:
    """Calls that make something, or do the work themselves."""
    assert waited(recorded((call, {}))) == {kind: (0, 1000)}


def test_flags_tell_locks_and_vforks(recorded: Any) -> None:
    """``fcntl`` takes locks, and ``clone`` may wait for the child's program, as posix_spawn(3) makes it."""
    trace = recorded(("fcntl", {"flags": F_SETLKW}), ("fcntl", {"flags": F_GETFL}))
    assert waited(trace) == {"lock": (1000, 0), "descriptor": (0, 1000)}


@pytest.mark.parametrize("commands", [range(5, 8), range(36, 39)])
def test_each_command_that_takes_a_lock(recorded: Any, commands: range) -> None:
    """F_GETLK, F_SETLK, F_SETLKW, and those of open file descriptions: three numbers each, and no other."""
    around = [*commands, commands.start - 1, commands.stop]
    trace = recorded(*(("fcntl", {"flags": command}) for command in around))
    assert waited(trace) == {"lock": (3000, 0), "descriptor": (0, 2000)}


def test_clone_waits_as_vfork_does(recorded: Any) -> None:
    """With CLONE_VFORK alone."""
    assert waited(recorded(("clone", {"flags": CLONE_VFORK | 17}), ("clone", {"flags": CLONE_THREAD}))) == {
        "process": (1000, 1000)
    }


def test_descriptors_of_the_kernels_making_are_waited_for(recorded: Any) -> None:
    """A read of an eventfd waits for somebody to write it; its inode has no type, and not every such is one."""
    trace = recorded(*(("read", {"handle": handle, "end_time_ns": 10 + handle}) for handle in range(3)))
    assert waited(trace) == {"read": (0, 10 + 12), "poll": (11, 0)}
    io = summarize(trace).io
    assert io is not None
    assert [row.id for row in io.slowest] == [3, 1]


PROC = 0x16
NOT_STORAGE: dict[str, list[tuple[bytes | None, int]]] = {
    "pipe": [(b"pipe:[7]", 0o10600), (b"/run/fifo", 0o10644), (b"pipe:[8]", 0)],
    "socket": [(b"socket:[7]", 0o140777), (b"/run/it.sock", 0o140755), (b"socket:[8]", 0)],
    "terminal": [(b"/dev/pts/3", 0o20620), (b"/dev/tty1", 0o20620), (b"/dev/pts/4", 0)],
    "poll": [(b"anon_inode:[eventfd]", 0o600), (b"anon_inode:inotify", 0)],
    "special": [(b"/dev/zero", 0o20666), (b"/dev/kvm", 0o20660), (b"/proc/stat", 0o100444), (b"/proc/stat", 0)],
    "read": [(b"/data/f", 0o100644), (b"/dev/sda", 0o60660), (b"/data/g", 0), (None, 0o100600), (b"relative", 0)],
}


@pytest.mark.parametrize("kind", NOT_STORAGE)
def test_reads_of_what_is_no_storage_are_told_apart(tmp_path: Path, kind: str) -> None:
    """By the file's type, by the file system that it lies on, or else by its name."""
    files = []
    for number, (path, mode) in enumerate(NOT_STORAGE[kind]):
        name = {} if path is None else {"path": path}
        files.append({"file": number, "mode": mode, "device": PROC if path == b"/proc/stat" else 0x801, **name})
    handles = [{"handle": row["file"], "process": 7, "file": row["file"], "fd": 3} for row in files]
    rows = [
        {"id": number, "call": tablemaker.READ, "task": 0, "handle": number, "end_time_ns": 10}
        for number in range(len(files))
    ]
    batch = make_batch(tasks=THREADS, files=files, handles=handles, operations=rows)
    trace = write_trace(tmp_path, [batch], spool=meta(mounts=(Mount(1, PROC, "/proc", "proc", "proc"),)))
    summary = summarize(trace)
    assert summary.io is not None
    assert [(row.kind, row.calls) for row in summary.io.time.classes] == [(kind, len(files))]
    assert [(row.operation, row.latency.nr) for row in summary.io.latencies] == [(kind, len(files))]
    assert summary.io.time.storage.calls == (len(files) if kind == "read" else 0)
    types = {"poll": {"event"}, "read": {"storage", "unknown"}}.get(kind, {kind})
    assert {row.type for row in summary.files} == types


def test_a_copy_is_about_storage_if_one_of_its_files_is(recorded: Any) -> None:
    """From or to a file; not from an eventfd to another."""
    ways = [(0, 1), (1, 0), (1, 1)]
    trace = recorded(*(("splice", {"handle": source, "handle2": target}) for source, target in ways))
    io = summarize(trace).io
    assert io is not None
    assert {row.kind: row.calls for row in io.time.classes} == {"copy": 2, "poll": 1}


def test_storage_comes_first(recorded: Any) -> None:
    """However long others wait."""
    trace = recorded(("read", {"handle": 1, "end_time_ns": 5000}), ("read", {"handle": 0}), ("poll", {}))
    summary = summarize(trace)
    assert summary.io is not None
    assert [row.kind for row in summary.io.time.classes] == ["read", "poll"]
    assert [row.path for row in summary.files if row.kind == "named"] == ["/data/f", "anon_inode:[eventfd]"]


def test_what_makes_or_closes_a_descriptor_waits_for_nobody(recorded: Any) -> None:
    """Though others on the same descriptor do."""
    calls = ("eventfd2", "io_uring_setup", "epoll_ctl", "fcntl", "close")
    trace = recorded(*((call, {"handle": 1}) for call in calls))
    assert [row[0] for row in waited(trace).values()] == [0] * 4
    assert waited(recorded(("write", {"handle": 1}), ("splice", {"handle": 1, "handle2": 1}))) == {"poll": (2000, 0)}


@pytest.mark.parametrize(("recorded_events", "worked"), [(True, 600 + 1000), (False, 0)])
def test_rings_work_until_they_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, recorded_events: bool, worked: int
) -> None:
    """An enter waits from where it is about to sleep; one that never is works, if such events were recorded.

    One whose batch is not known waits, and libaio's collecting, which has no such event.
    """
    specs = load_catalog().calls
    monkeypatch.setattr(tablemaker, "CALLS", specs)
    number = {spec.abi_name: index for index, spec in enumerate(specs)}
    calls = [number[name] for name in ("io_uring_enter", "io_uring_enter", "io_uring_enter", "io_getevents")]
    rows = [
        {"id": 7 + index, "task": 0, "call": call, "begin_time_ns": 500, "end_time_ns": 1500}
        for index, call in enumerate(calls)
    ]
    batches = [{"id": 7, "ring": 0, "sleep_time_ns": 1100}, {"id": 8, "ring": 0}, {"id": 10, "ring": 1}]
    proof = WAITS_RECORDED if recorded_events else COMPLETE
    batch = make_batch(tasks=THREADS, operations=rows, batches=batches)
    trace = write_trace(tmp_path, [batch], span=(0, SPAN), completeness=proof)
    assert waited(trace) == {"ring": (4000 - worked, worked)}


@pytest.mark.parametrize(("queued", "worked"), [(tablemaker.UNKNOWN_I64, 10), (4, 4)])
def test_requests_of_a_ring_that_works_are_no_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, queued: int, worked: int
) -> None:
    """A request is at the device from 10 to 700, before and after the call begins to wait at 600: it counts once."""
    specs = load_catalog().calls
    monkeypatch.setattr(tablemaker, "CALLS", specs)
    enter = [spec.abi_name for spec in specs].index("io_uring_enter")
    batch = make_batch(
        tasks=THREADS,
        operations=[{"id": 1, "task": 0, "call": enter, "begin_time_ns": 0, "end_time_ns": 5000}],
        batches=[{"id": 1, "ring": 0, "sleep_time_ns": 600}],
        requests=[{"id": 2, "task": 0, "insert_time_ns": queued, "issue_time_ns": 10, "complete_time_ns": 700}],
    )
    assert waited(write_trace(tmp_path, [batch], completeness=WAITS_RECORDED)) == {"ring": (4300, worked)}


def test_what_rings_add_is_read_along_with_the_calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So no row is kept longer than needed: not read before its calls, and correct across all borders."""
    specs = load_catalog().calls
    monkeypatch.setattr(tablemaker, "CALLS", specs)
    monkeypatch.setattr("lo2io.trace.writer.CHUNK_ROWS", 1)
    names = [spec.abi_name for spec in specs]
    enter, collect = names.index("io_uring_enter"), names.index("io_getevents")
    parts = []
    for part in range(6):
        ids = [10 * part + place for place in range(1, 4)]
        added = [{"id": ids[0], "ring": 0, "sleep_time_ns": 300}, {"id": ids[1], "ring": 1}, {"id": ids[2], "ring": 0}]
        rows = [
            {"id": number, "task": 0, "call": call, "begin_time_ns": 0, "end_time_ns": 1000}
            for number, call in zip(ids, (enter, collect, enter), strict=True)
        ]
        known = [] if part == 3 else added[:2] if part == 4 else added
        parts.append(make_batch(operations=rows, batches=known))
    trace = write_trace(tmp_path, [make_batch(tasks=THREADS), *parts], completeness=WAITS_RECORDED)
    read: Counter[str] = Counter()
    calls_before: list[int] = []
    read_all = Trace.record_batches

    def watched(self: Trace, name: str, columns: Any = None) -> Any:
        for batch in read_all(self, name, columns):
            read[name] += 1
            if name == "batches":
                calls_before.append(read["operations"])
            yield batch

    monkeypatch.setattr(Trace, "record_batches", watched)
    time = gather(trace).time
    assert len(calls_before) == 5
    assert all(calls > place for place, calls in enumerate(calls_before))
    kind = CallClass.RING
    assert (time.total_ns[kind], time.waiting_ns[kind]) == (18_000, 18_000 - 5 * 300 - 4 * 1000)


def test_opens_of_no_file_are_no_opens(recorded: Any) -> None:
    """A server's accepted connections and its epoll are not among the files that were opened."""
    trace = recorded(("accept4", {"handle": 0}), ("epoll_create1", {"handle": 1}), ("openat", {"handle": 2}))
    io = summarize(trace).io
    assert io is not None
    assert [(row.path, row.opens) for row in io.opens] == [("/odd", 1)]


def test_tables_and_pictures_have_the_same_classes(recorded: Any) -> None:
    """For every call: the class's time, its latencies, and the picture agree, locks by ``fcntl`` too."""
    specs = [spec.abi_name for spec in load_catalog().calls]
    calls = [(name, {"end_time_ns": 100 + number}) for number, name in enumerate(dict.fromkeys(specs))]
    trace = recorded(*calls, ("fcntl", {"flags": F_SETLKW}), ("fcntl", {"flags": F_SETLKW}))
    sums = gather(trace)
    io = summarize(trace, sums).io
    assert io is not None
    by_time = {row.kind: row.calls for row in io.time.classes}
    assert {row.operation: row.latency.nr for row in io.latencies} == by_time
    assert {row.operation: row.latency.total_ns for row in io.latencies} == {
        row.kind: row.time_ns for row in io.time.classes
    }
    pictures = gather_pictures(sums)
    assert {row["name"]: int(np.sum(row["counts"])) for row in pictures["latency"]["rows"]} == by_time
    drawn = {pictures["classes"][row["class"]] for row in pictures["threads"]["busy"]}
    assert drawn == set(by_time)
    assert sum(by_time.values()) == len(calls) + 2


def test_every_class_has_a_call() -> None:
    """``other`` holds no group that has a name of its own elsewhere; only locks can also come of another call."""
    calls = [
        {"kind": spec.kind.name.lower(), "group": spec.group, **call_traits(spec)} for spec in load_catalog().calls
    ]
    assert {kind for call in calls for kind in classes_of(call)} == set(CallClass)
    others = {call["group"] for call in calls if class_of(call) is CallClass.OTHER}
    assert others == {"advice", "mount", "open", "process_vm"}


def test_a_trace_without_the_traits_of_its_calls_gets_those_of_the_catalog(recorded: Any) -> None:
    """Like old traces; a call that the catalog no longer has is of no class."""
    trace = recorded(("fstat", {}), ("clone", {"flags": CLONE_VFORK}), ("poll", {}), ("dup", {}))
    before = waited(trace)
    file = trace.path / "lo2io" / "metadata.json"
    metadata = json.loads(file.read_text())
    kept = ("name", "tracepoint", "group", "kind")
    metadata["calls"] = [{key: call[key] for key in kept} for call in metadata["calls"]]
    next(call for call in metadata["calls"] if call["name"] == "dup")["tracepoint"] = "gone"
    file.write_text(json.dumps(metadata))
    after = waited(open_trace(trace.path))
    assert before["descriptor"] == (0, 1000)
    assert after == {"other" if kind == "descriptor" else kind: times for kind, times in before.items()}
