"""The writer as a whole: many operations, failures, and remains."""

from __future__ import annotations

import random
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from build.otf2_batches import CALL, CALLS, END, META, START, STOP, BatchMaker, complete
from build.otf2_written import attributes, read_back

from lo2io.errors import TraceError
from lo2io.model import UNKNOWN_I64, Totals, TraceEnd
from lo2io.otf2.values import value
from lo2io.otf2.write.archive import Archive
from lo2io.otf2.write.open_flags import open_flags
from lo2io.otf2.write.writer import Otf2Writer

Write = Any
UNDEFINED = 2**64 - 1
NAMES = ("read", "write", "fsync", "newfstat", "lseek")


def random_operations(rng: random.Random, maker: BatchMaker, count: int, threads: int) -> list[dict[str, int]]:
    """Calls of several threads, one after another within each, in the order of their ends."""
    clock = [START] * threads
    rows = []
    for _ in range(count):
        task = rng.randrange(threads)
        begin = clock[task] + rng.randrange(100)
        end = clock[task] = begin + rng.randrange(100)
        error = rng.choice((0, 0, 0, 5))
        kind = rng.choice(NAMES)
        moves = kind in ("read", "write")
        columns = {
            "handle": rng.randrange(4),
            "offset_bytes": rng.choice((UNKNOWN_I64, 0, 4096)) if kind != "lseek" else -1,
            "bytes_request": rng.choice((UNKNOWN_I64, 0, 512)) if moves else UNKNOWN_I64,
            "bytes_result": rng.randrange(512) if moves and not error else UNKNOWN_I64,
            "result": 17,
            "error": error,
        }
        columns["offset_source"] = int(columns["offset_bytes"] != UNKNOWN_I64)
        number = maker.call(kind, begin, end, task, **columns)
        rows.append({"id": number, "kind": CALL[kind], "task": task, "begin": begin, "end": end, **columns})
    return rows


@pytest.mark.parametrize("seed", range(3))
def test_trace_agrees_with_the_operations_table(write: Write, seed: int) -> None:
    """Every row of three batches is found again: times, region, thread, handle, bytes, offset, errno, matching id."""
    rng = random.Random(seed)  # noqa: S311 - a test's input
    rows: list[dict[str, int]] = []
    batches = []
    for part in range(3):
        maker = BatchMaker(first_id=1 + 10_000 * part, shift=part * 200_000)
        maker.first_operation = 300 * part
        if not part:
            for number in range(4):
                maker.row("handles", handle=number, fd=number, origin=3)
        rows += random_operations(rng, maker, 300, 5)
        batches.append(maker.make())
    for row in rows:
        row["shift"] = (row["id"] // 10_000) * 200_000
    written = write(*batches)
    assert as_operations(written) == [expected(row) for row in sorted(rows, key=lambda r: (r["task"], r["id"]))]


def expected(row: dict[str, int]) -> dict[str, Any]:
    """The part of a row that can be read in the trace."""
    name = CALLS[row["kind"]].name
    seen: dict[str, Any] = {
        "task": row["task"],
        "region": CALLS[row["kind"]].abi_name,
        "begin": row["begin"] + row["shift"],
        "end": row["end"] + row["shift"],
        "error": row["error"],
    }
    if name in ("read", "write", "fsync"):
        known = {key: UNDEFINED if row[key] == UNKNOWN_I64 else row[key] for key in ("bytes_request", "bytes_result")}
        offset = None if row["offset_bytes"] == UNKNOWN_I64 else row["offset_bytes"]
        seen |= {"id": row["id"], "handle": f"fd {row['handle']}", "offset": offset, **known}
    elif name == "lseek" and not row["error"]:
        seen |= {"seek": (row["offset_bytes"], row["result"])}
    return seen


def as_operations(written: Any) -> list[dict[str, Any]]:
    """The trace's regions as rows, thread by thread."""
    rows: list[dict[str, Any]] = []
    tasks = {location.name: int(location.name.rsplit(" ", 1)[1]) - 100 for location in written.definitions.locations}
    for location in sorted(tasks, key=lambda name: tasks[name]):
        for event in written.of(location):
            kind = type(event).__name__
            if kind == "Enter":
                rows.append({"task": tasks[location], "region": event.region.name, "begin": event.time})
            elif kind == "IoOperationBegin":
                rows[-1] |= {"id": event.matching_id, "handle": event.handle.name, "bytes_request": event.bytes_request}
                rows[-1]["offset"] = attributes(event).get("Offset")
            elif kind == "IoOperationComplete":
                rows[-1]["bytes_result"] = event.bytes_result
                assert event.matching_id == rows[-1]["id"]
            elif kind == "IoSeek":
                rows[-1]["seek"] = (event.offset_request, event.offset_result)
            else:
                rows[-1] |= {"end": event.time, "error": attributes(event).get("errno", 0)}
    return rows


def test_nothing_looks_like_a_trace_before_close(tmp_path: Path, maker: BatchMaker) -> None:
    """The anchor comes last. Without close, the new files go, and others stay."""
    (tmp_path / "spool").mkdir()
    maker.call("newfstat", START, START + 1)
    with Otf2Writer(tmp_path, META, CALLS) as writer:
        writer.write(maker.make())
        assert (tmp_path / "traces").is_dir()
        assert not (tmp_path / "traces.otf2").exists()
    assert [entry.name for entry in tmp_path.iterdir()] == ["spool"]


def test_failure_in_close_leaves_nothing(
    tmp_path: Path, maker: BatchMaker, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """However late it fails."""
    maker.call("newfstat", START, START + 1)

    def refuse(*_: Any) -> None:
        raise TraceError("write", "no")

    monkeypatch.setattr(Otf2Writer, "_properties", refuse)
    with Otf2Writer(tmp_path, META, CALLS) as writer:
        writer.write(maker.make())
        with pytest.raises(TraceError, match="write: no"):
            writer.close(END)
    assert not list(tmp_path.iterdir())
    assert not capfd.readouterr().err


def test_trace_stays_when_what_follows_close_fails(tmp_path: Path, maker: BatchMaker) -> None:
    """The trace is whole."""

    def write() -> None:
        with Otf2Writer(tmp_path, META, CALLS) as writer:
            writer.write(maker.make())
            writer.close(END)
            raise KeyError

    with pytest.raises(KeyError):
        write()
    assert not read_back(tmp_path).events


def test_closed_writer_refuses(tmp_path: Path, maker: BatchMaker) -> None:
    """Writing after close is an error, not a crash."""
    with Otf2Writer(tmp_path, META, CALLS) as writer:
        writer.close(END)
        with pytest.raises(TraceError, match="closed"):
            writer.write(maker.make())


def test_directory_that_cannot_be_written(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Said before libotf2 does."""
    (tmp_path / "file").touch()
    with pytest.raises(TraceError) as caught:
        Otf2Writer(tmp_path / "file", META, CALLS)
    assert caught.value.answer == "this is no directory"
    assert caught.value.remedy
    assert not capfd.readouterr().err


FULL = """
import sys, resource, signal
from pathlib import Path
sys.path.insert(0, "tests")
from lo2io.errors import TraceError
from lo2io.otf2.write.writer import Otf2Writer
from build.otf2_batches import CALLS, END, META, START, BatchMaker
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
directory, rows, limit = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
maker = BatchMaker()
for i in range(1000):
    maker.call("read", START + i, START + i, handle=0, bytes_request=1, bytes_result=1)
batch = maker.make()
try:
    with Otf2Writer(directory, META, CALLS) as writer:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
        for _ in range(rows // 1000):
            writer.write(batch)
            batch.operations["begin_time_ns"] += 1000
            batch.operations["end_time_ns"] += 1000
        print("written")
        writer.close(END)
except TraceError as error:
    print(error.answer, [entry.name for entry in directory.iterdir()])
"""


@pytest.mark.parametrize(
    ("rows", "limit", "where"),
    [
        (300_000, 1 << 20, "writing events: traces/0.evt: File too large"),
        (2_000, 4096, "written\nwriting events: traces/0.evt: File too large"),
        (10_000, 300_000, "written\nwriting events: traces/0.evt: File too large"),
    ],
)
def test_full_disk_is_an_error(tmp_path: Path, rows: int, limit: int, where: str) -> None:
    """With full chunks, and with the last one. A limit on the size of files stands for the disk."""
    command = [sys.executable, "-c", FULL, str(tmp_path), str(rows), str(limit)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(where), done.stdout
    assert done.stdout.rstrip().endswith("[]")
    assert not done.stderr


@pytest.mark.parametrize("name", ["traces/0.def", "traces.def", "traces.marker", "traces.otf2"])
def test_every_file_is_seen_to_be_whole(
    tmp_path: Path, maker: BatchMaker, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Any of them cut short, as by a full disk at its closing, is an error and no trace."""
    closers = {
        "traces/0.def": "CloseDefWriter",
        "traces.def": "CloseGlobalDefWriter",
        "traces.marker": "CloseMarkerWriter",
    }
    maker.row("losses", cpu=0, begin_time_ns=START, end_time_ns=STOP, lost=1)
    maker.call("newfstat", START, START + 1)
    path = tmp_path / name
    check = Archive.check

    def cut(self: Archive, function: str, code: int) -> None:
        check(self, function, code)
        if function == f"OTF2_Archive_{closers.get(name, 'Close')}":
            path.write_bytes(path.read_bytes()[:-3])

    monkeypatch.setattr(Archive, "check", cut)
    with Otf2Writer(tmp_path, META, CALLS) as writer:
        writer.write(maker.make())
        with pytest.raises(TraceError, match=f"{name} was cut short"):
            writer.close(END)
    assert not list(tmp_path.iterdir())


def test_events_missing_from_a_file_that_ends_well(
    tmp_path: Path, maker: BatchMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file may be cut where the rest looks complete: the last chunk's header counts the events."""
    maker.call("newfstat", START, START + 1)
    require = Archive.require_events

    def one_less(self: Archive, location: int, count: int) -> None:
        require(self, location, count + 1)

    monkeypatch.setattr(Archive, "require_events", one_less)
    with Otf2Writer(tmp_path, META, CALLS) as writer:
        writer.write(maker.make())
        with pytest.raises(TraceError, match=r"traces/0\.evt was cut short"):
            writer.close(END)
    assert not list(tmp_path.iterdir())


def test_locations_need_no_open_files(tmp_path: Path) -> None:
    """No location keeps a file open: 100 of them write with room for 64 files beside those of other tests."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (64 + sum(1 for _ in Path("/proc/self/fd").iterdir()), hard))
    try:
        with Otf2Writer(tmp_path, META, CALLS) as writer:
            maker = BatchMaker()
            for task in range(100):
                maker.call("newfstat", START, START + 1, task)
            writer.write(maker.make())
            writer.close(END)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert len(read_back(tmp_path).events) == 200


def test_memory_does_not_grow_with_the_events(tmp_path: Path) -> None:
    """One chunk per location, written out when full: 2 M events of one location in less than 30 MB more."""
    maker = BatchMaker()
    for i in range(5000):
        maker.call("read", START + i, START + i, handle=0, bytes_request=1, bytes_result=1)
    batch = maker.make()
    with Otf2Writer(tmp_path, META, CALLS) as writer:
        writer.write(batch)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        for _ in range(100):
            batch.operations["begin_time_ns"] += 5000
            batch.operations["end_time_ns"] += 5000
            writer.write(batch)
        assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 30_000
        writer.close(TraceEnd(START, STOP, complete(), Totals()))


def test_flags_of_another_machine() -> None:
    """arm64 numbers O_DIRECTORY as x86 does O_DIRECT: a trace is read as its own machine meant it."""

    def meaning(machine: str, flags: int) -> tuple[int, int]:
        creation = status = 0
        for mask, bits, creates, sets in open_flags(machine):
            if flags & mask == bits:
                creation, status = creation | creates, status | sets
        return creation, status

    assert meaning("x86_64", 0o40000) == (0, value("IO_STATUS_FLAG_AVOID_CACHING"))
    assert meaning("aarch64", 0o40000) == (value("IO_CREATION_FLAG_DIRECTORY"), 0)
    assert meaning("ppc64le", 0o400000) == (0, value("IO_STATUS_FLAG_AVOID_CACHING"))


def test_native_loop_names_the_call_that_failed(tmp_path: Path, maker: BatchMaker) -> None:
    """A call code beyond the catalogue is refused, not read out of bounds."""
    maker.call("newfstat", START, START + 1)
    batch = maker.make()
    batch.operations["call"][0] = len(CALLS)
    with Otf2Writer(tmp_path, META, CALLS) as writer, pytest.raises(TraceError, match="unknown call"):
        writer.write(batch)
    assert not (tmp_path / "traces").exists()
