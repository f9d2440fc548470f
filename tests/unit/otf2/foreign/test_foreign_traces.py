"""OTF2 archives without lo2io's tables: their reports, and what is marked as unknown."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import tempfile
from collections import Counter, defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import _otf2
import pytest
from build.foreign_archives import (
    BLOCK,
    DEVICE,
    FUNCTION,
    IO,
    ISOC,
    OTHER,
    START,
    Archive,
    created,
    lo2s,
    score_p,
    transfer,
)
from build.otf2_builder import NONE64
from build.perfwriter import SpoolBuilder, replay
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from reference.block_histories import block_histories
from reference.histories import History, call_histories
from reference.ring_histories import ring_histories

from lo2io.catalog.catalog import load_catalog
from lo2io.cli.export import export
from lo2io.convert.convert import convert
from lo2io.errors import TraceError
from lo2io.otf2.foreign.opening import open_any
from lo2io.reports.html.page import gather_pictures, render_html
from lo2io.reports.summary.io import device_name
from lo2io.reports.summary.summary import summarize, to_json
from lo2io.reports.summary.sums import gather
from lo2io.reports.text.page import render_page, report_console
from lo2io.trace.reader import open_trace
from lo2io.trace.selection.selection import select

if TYPE_CHECKING:
    from collections.abc import Callable

    from lo2io.reports.summary.summary import Summary

NON_BLOCKING = _otf2.IO_OPERATION_FLAG_NON_BLOCKING
READ = _otf2.IO_OPERATION_MODE_READ


WITHOUT_DATA = {opcode.name for opcode in load_catalog().opcodes if opcode.io_mode == "none"}


def report(path: Path) -> Summary:
    """The summary of an archive."""
    with open_any(path) as trace:
        return summarize(trace)


def rows(path: Path, *columns: str) -> list[tuple[Any, ...]]:
    """Columns of the operations of an archive."""
    with open_any(path) as trace:
        return [tuple(row[name] for name in columns) for row in trace.table("operations", list(columns)).to_pylist()]


def text(summary: Summary, capsys: pytest.CaptureFixture[str]) -> str:
    """The page."""
    render_page(summary, report_console())
    return capsys.readouterr().out


def calls_of(summary: Summary) -> dict[str, tuple[int, ...]]:
    """By name: calls, bytes read and written, time, in flight, errors."""
    return {
        row.name: (
            *(row.activity.calls, row.activity.bytes_read, row.activity.bytes_written, row.activity.time_ns),
            *(row.in_flight, row.activity.errors),
        )
        for row in summary.calls
    }


def requests_of(summary: Summary) -> dict[tuple[str, str], tuple[int, ...]]:
    """By device and operation: requests, bytes, errors, in flight or of unknown end, merged; of inferred end if any."""
    return {
        (row.name, row.operation): (
            *(row.requests, row.bytes, row.errors, row.in_flight + row.end_unknown, row.merged),
            *((row.inferred,) if row.inferred else ()),
        )
        for row in summary.devices
    }


def unfinished_bytes(path: Path) -> dict[tuple[str, str], int]:
    """By device and operation: bytes that were completed of requests which were not completed as a whole."""
    found: dict[tuple[str, str], int] = defaultdict(int)
    with open_any(path) as trace:
        for row in trace.requests.to_pylist():
            if row["complete_time_ns"] is None and row["status"] != "merged":
                found[device_name(trace.metadata, row["device"]), row["operation"]] += row["bytes_result"] or 0
    return found


def without(
    requests: dict[tuple[str, str], tuple[int, ...]], unfinished: dict[tuple[str, str], int]
) -> dict[tuple[str, str], tuple[int, ...]]:
    """The same requests with fewer bytes."""
    return {key: (row[0], row[1] - unfinished.get(key, 0), *row[2:]) for key, row in requests.items()}


@settings(max_examples=10, deadline=None, suppress_health_check=list(HealthCheck))
@given(call_histories(flags=1), block_histories(), st.booleans())
def test_totals_of_lo2ios_own_archive_equal_those_of_its_tables(
    calls: History, blocks: History, vanished: bool
) -> None:
    """Calls by name and in all, with bytes, errors, times and those in flight; requests by device.

    The archive does not say whether completions were missing, so requests of unknown end are in flight there. Nor does
    it say which part of a request was completed, unless all of it was.
    """
    with tempfile.TemporaryDirectory() as directory:
        builder = SpoolBuilder(Path(directory) / "spool", 2, mode="process")
        replay(builder, sorted((*calls, *blocks), key=lambda item: item[1][0]))
        path = Path(directory) / "T"
        builder.count_vanished("block:block_rq_complete", [int(vanished), 0])
        convert(builder.write(), path, block_records="begin-end")
        whole = summarize(open_trace(path))
        unfinished = unfinished_bytes(path)
        shutil.rmtree(path / "lo2io")
        bare = report(path)
    assert bare.activity == whole.activity
    assert calls_of(bare) == calls_of(whole)
    assert requests_of(bare) == without(requests_of(whole), unfinished)
    assert (bare.start_ns, bare.span_ns) == (whole.start_ns, whole.span_ns)
    assert bare.foreign is not None
    assert bare.foreign.own
    assert "without its tables" in bare.foreign.title


def ended(rows: list[dict[str, Any]]) -> Counter[tuple[Any, ...]]:
    """Requests of rings with known start and end that may carry data, in OTF2's columns."""
    names = ("opcode", "user_data", "status", "path", "submit_time_ns", "complete_time_ns", "result", "bytes_result")
    rows = [row for row in rows if row["opcode"] not in WITHOUT_DATA]
    known = (row for row in rows if row["complete_time_ns"] is not None and row["submit_time_ns"] is not None)
    return Counter(tuple(row[name] for name in names) for row in known)


@settings(max_examples=5, deadline=None, suppress_health_check=list(HealthCheck))
@given(ring_histories(flags=1))
def test_requests_of_rings_are_those_of_the_tables(history: History) -> None:
    """Each that has ended, and the calls beside them, which they are no part of."""
    with tempfile.TemporaryDirectory() as directory:
        builder = SpoolBuilder(Path(directory) / "spool", rings="6.18", mode="process")
        replay(builder, history)
        path = Path(directory) / "T"
        convert(builder.write(), path)
        trace = open_trace(path)
        whole, requests = summarize(trace), ended(trace.ring_requests.to_pylist())
        shutil.rmtree(path / "lo2io")
        with open_any(path) as trace:
            assert summarize(trace).activity == whole.activity
            rows = trace.ring_requests.to_pylist()
            assert ended(rows) == requests
            counts = {
                row["ring"]: (row["nr_requests"], row["nr_completions"]) for row in trace.table("rings").to_pylist()
            }
            known = [row for row in rows if row["ring"] is not None]
            assert {ring: nr for ring, (nr, _) in counts.items()} == Counter(row["ring"] for row in known)
            ends = Counter(row["ring"] for row in known if row["status"] != "in flight")
            assert {ring: nr for ring, (_, nr) in counts.items() if nr} == ends


def test_paradigms_that_lie_in_each_other_are_told_apart(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each paradigm has its calls and bytes, and the page names what counts twice, before any sum."""
    summary = report(score_p().trace.write(tmp_path))
    assert summary.foreign is not None
    assert summary.completeness["proven"] is False
    found = {row.name: (row.calls, row.bytes_read, row.bytes_written) for row in summary.foreign.paradigms}
    assert found == {
        "(no paradigm)": (1, 0, 0),  # stat shows no paradigm
        "POSIX I/O": (5, 12288, 0),
        "ISO C I/O": (4, 12288, 0),
        "MPI I/O": (1, 0, 1000),
    }
    nested = {row.name: (row.nested_calls, row.nested_bytes_read) for row in summary.foreign.paradigms}
    assert nested == {"(no paradigm)": (0, 0), "POSIX I/O": (3, 12288), "ISO C I/O": (0, 0), "MPI I/O": (0, 0)}
    assert summary.activity.bytes_read == 2 * 12288
    page = text(summary, capsys)
    assert "a trace of another tool: Score-P 9.0" in page
    assert 0 < page.index("counted twice: 3 of the calls (12 KiB read, 0 B written)") < page.index("read 24 KiB")
    assert "not known to be complete" in page
    assert page.rstrip().splitlines()[-1].startswith("not proven: another tool's trace does not say what is missing")


def test_calls_that_did_nothing_are_of_their_regions_paradigm(tmp_path: Path) -> None:
    """A failed open shows no paradigm; another one of its name does, if that is the only one."""
    archive = Archive("Score-P 9.0")
    file, stream = archive.handle(0, "/data/in"), archive.handle(1, "/data/in", ISOC)
    archive.call("open", 10, 15, created(14, file))
    archive.call("open", 20, 25)
    archive.call("remap", 30, 35, created(34, file))
    archive.call("remap", 40, 45, created(44, stream))
    archive.call("remap", 50, 55)
    archive.add("IoDestroyHandle", 60, file)  # in no region, where regions name the calls: by exit, say
    summary = report(archive.trace.write(tmp_path))
    assert summary.foreign is not None
    assert {row.name: row.calls for row in summary.foreign.paradigms} == {
        "(no paradigm)": 1,
        "POSIX I/O": 3,
        "ISO C I/O": 1,
    }
    assert {row.name: row.activity.calls for row in summary.calls} == {
        "open": 2,
        "POSIX I/O remap": 1,
        "ISO C I/O remap": 1,
        "(no paradigm) remap": 1,
    }


@pytest.mark.parametrize(
    ("chosen", "passing"),
    [
        ("operation == read", {"read": 3, "fread": 3}),
        ("operation == write", {"MPI_File_write_at": 1}),
        ("operation == open, close", {"open": 1, "fopen": 1, "close": 1}),
        ("size >= 4096", {"read": 3, "fread": 3}),
        ("comm == 'Rank 0' and latency >= 400ns", {"fread": 3}),
        ("path == /data/out", {}),
        ("kind == call", {"read": 3, "fread": 3, "open": 1, "fopen": 1, "close": 1, "stat": 1, "MPI_File_write_at": 1}),
    ],
)
def test_filters_know_calls_that_are_no_system_calls(tmp_path: Path, chosen: str, passing: dict[str, int]) -> None:
    """By their effects; the heading's counts stay those of the whole trace."""
    with open_any(score_p().trace.write(tmp_path)) as trace:
        summary = summarize(select(trace, [chosen]))
    assert {row.name: row.activity.calls for row in summary.calls} == passing
    assert summary.foreign is not None
    assert sum(row.calls for row in summary.foreign.paradigms) == 11


def test_calls_have_the_names_and_times_of_their_regions(tmp_path: Path) -> None:
    """In ns, whatever the trace's ticks: 10 ns here; user functions are no calls."""
    path = score_p().trace.write(tmp_path)
    assert rows(path, "call", "begin_time_ns", "end_time_ns", "bytes_result")[:4] == [
        ("open", 70_100, 70_140, None),
        ("fopen", 70_200, 70_240, None),
        ("read", 71_100, 71_200, 4096),
        ("fread", 71_000, 71_400, 4096),
    ]
    summary = report(path)
    assert (summary.start_ns, summary.span_ns) == (START * 10, 900 * 10)  # first event to last
    assert summary.start_realtime_ns == 1_700_000_000_000_000_000
    assert [row.path for row in summary.files if row.kind == "named"] == ["/data/in"]
    assert [(row.pid, row.comm) for row in summary.processes] == [(None, "Rank 0")]


def test_a_fine_clock_loses_nothing(tmp_path: Path) -> None:
    """Ticks of a third of a ns, of a machine that has run for a month: whole ns, without overflow."""
    archive = Archive("Score-P 9.0", resolution=3_000_000_000)
    month = 30 * 86400 * 3_000_000_000
    archive.trace.clock = (3_000_000_000, month, 100, 0)
    region = archive.region("read")
    archive.trace.events[0] = [("Enter", month + 1, region), ("Leave", month + 6, region)]
    path = archive.trace.write(tmp_path)
    begin = 30 * 86400 * 10**9
    assert rows(path, "begin_time_ns", "end_time_ns") == [(begin, begin + 2)]
    assert report(path).start_realtime_ns is None


def test_operations_without_regions_are_calls_by_their_paradigm(tmp_path: Path) -> None:
    """As lo2s writes: each handle's opening and closing, each transfer; requests of disks are no calls."""
    path = lo2s().trace.write(tmp_path)
    summary = report(path)
    assert calls_of(summary) == {
        "POSIX I/O write": (4, 0, 2048, 20, 0, 0),
        "POSIX I/O open": (1, 0, 0, 0, 0, 0),
        "POSIX I/O close": (1, 0, 0, 0, 0, 0),
    }
    assert requests_of(summary) == {("sda", "write"): (2, 2048, 0, 1, 0)}
    device = summary.devices[0]
    assert (device.queue.max_ns, device.device.max_ns) == (10, 50)
    assert summary.completeness["in_flight"] == 1
    assert summary.foreign is not None
    assert summary.foreign.twice == ""
    assert "who sent requests to disks: time is not told apart by device" in summary.foreign.unknown
    with open_any(path) as trace:
        assert [row["comm"] for row in trace.threads.to_pylist()] == ["Rank 0", "Rank 0"]  # without the disk
        assert trace.handles.to_pylist()[0]["open_flags"] == 0o102  # O_RDWR, O_CREAT


def test_operations_that_do_not_block_last_until_they_complete(tmp_path: Path) -> None:
    """On another thread, too; what completes never is in flight, an end without a beginning is counted."""
    archive = Archive("Score-P 9.0", resolution=1_000_000_000)
    file = archive.handle(0, "/data/in")
    begins = [("IoOperationBegin", 11 + number, file, READ, NON_BLOCKING, 100, number) for number in range(3)]
    archive.call("aio_read", 10, 20, *begins)
    archive.add("IoOperationIssued", 30, file, 0, on=OTHER)
    archive.add("IoOperationTest", 31, file, 0, on=OTHER)
    archive.add("IoOperationComplete", 40, file, 90, 0, on=OTHER)
    archive.add("IoOperationCancelled", 50, file, 1, on=OTHER)
    archive.add("IoOperationComplete", 60, file, 5, 77, on=OTHER)
    path = archive.trace.write(tmp_path)
    assert rows(path, "call", "begin_time_ns", "end_time_ns", "bytes_result", "status") == [
        ("aio_read", START + 10, START + 20, None, "completed"),
        ("POSIX I/O read, non-blocking", START + 11, START + 40, 90, "completed"),
        ("POSIX I/O read, non-blocking", START + 12, START + 50, None, "completed"),
        ("POSIX I/O read, non-blocking", START + 13, None, None, "in flight"),
    ]
    summary = report(path)
    assert (summary.completeness["in_flight"], summary.completeness["orphan"]) == (1, 1)
    assert summary.foreign is not None
    assert "1 operations were cancelled, and count as ended" in summary.foreign.unknown


def seek(time: int, handle: int, to: int) -> tuple[Any, ...]:
    """IoSeek from the start."""
    return "IoSeek", time, handle, to, _otf2.IO_SEEK_FROM_START, to


def test_offsets_are_those_that_seeks_tell(tmp_path: Path) -> None:
    """From a seek on, at the position; none before it, none after calls that may move it unseen or that overlap."""
    archive = Archive("Score-P 9.0")
    file, other = archive.handle(0, "/data/in"), archive.handle(1, "/data/log")
    archive.call("open", 0, 2, created(1, file))
    archive.call("open", 3, 5, created(4, other, status=_otf2.IO_STATUS_FLAG_APPEND))
    archive.call("read", 10, 15, *transfer(11, 14, file, 0, 100))
    archive.call("lseek", 20, 25, seek(24, file, 5000))
    archive.call("read", 30, 35, *transfer(31, 34, file, 1, 100))
    archive.call("pread", 36, 39, *transfer(37, 38, file, 2, 100))
    archive.call("read", 40, 45, *transfer(41, 44, file, 3, 100))
    archive.call("sendfile64", 46, 49, *transfer(47, 48, file, 4, 100))
    archive.call("read", 50, 55, *transfer(51, 54, file, 5, 100))
    archive.call("lseek", 60, 65, seek(64, file, 0))
    archive.call("read", 70, 90, *transfer(71, 89, file, 6, 100))
    archive.call("read", 80, 85, *transfer(81, 84, file, 7, 100), on=OTHER)
    archive.call("read", 91, 95, *transfer(92, 94, file, 8, 100))
    archive.call("lseek", 100, 105, seek(104, other, 7))
    archive.call("write", 110, 115, *transfer(111, 114, other, 9, 10, mode=_otf2.IO_OPERATION_MODE_WRITE))
    found = rows(archive.trace.write(tmp_path), "call", "begin_time_ns", "offset_bytes", "offset_source")
    offsets = {(time - START * 10) // 10: (offset, source) for call, time, offset, source in found if call != "open"}
    nowhere = (None, "unknown")
    assert offsets == {
        10: nowhere,
        20: (5000, "explicit"),
        30: (5000, "followed"),
        36: nowhere,
        40: (5100, "followed"),
        46: nowhere,
        50: nowhere,
        60: (0, "explicit"),
        70: (0, "followed"),  # the position of the seek, for this call began alone
        80: nowhere,
        91: nowhere,
        100: (7, "explicit"),
        110: nowhere,
    }


def test_seeks_may_go_back(tmp_path: Path) -> None:
    """A seek's offset has a sign."""
    archive = Archive("Score-P 9.0")
    file = archive.handle(0, "/data/in")
    archive.call("lseek", 20, 25, ("IoSeek", 24, file, -10, _otf2.IO_SEEK_FROM_END, 90))
    assert rows(archive.trace.write(tmp_path), "call", "offset_bytes", "result") == [("lseek", -10, 90)]


def test_threads_that_number_their_calls_alike(tmp_path: Path) -> None:
    """Some tools give all calls that block one matching id: each thread's completion ends its own."""
    archive = Archive("Score-P 9.0", resolution=1_000_000_000)
    file = archive.handle(0, "/data/in")
    archive.call("read", 10, 30, *transfer(11, 29, file, NONE64, 100))
    archive.call("read", 12, 40, *transfer(13, 39, file, NONE64, 200), on=OTHER)
    path = archive.trace.write(tmp_path)
    assert rows(path, "begin_time_ns", "end_time_ns", "bytes_result") == [
        (START + 10, START + 30, 100),
        (START + 12, START + 40, 200),
    ]
    summary = report(path)
    assert (summary.completeness["in_flight"], summary.completeness["orphan"]) == (0, 0)


def test_vectors_are_one_call(tmp_path: Path) -> None:
    """For a readv that filled one buffer and a part of the next; a second transfer after it is a call of its own."""
    archive = Archive("Score-P 9.0", resolution=1_000_000_000)
    file = archive.handle(0, "/data/in")
    parts = [transfer(11, 19, file, number, 100) for number in range(3)]
    ends = [("IoOperationComplete", 19, file, moved, number) for number, moved in enumerate((100, 42, 0))]
    archive.call("lseek", 5, 6, seek(5, file, 1000))
    archive.call("readv", 10, 20, *(begin for begin, _ in parts), *ends)
    archive.call("readv", 30, 40, *transfer(31, 32, file, 0, 8), *transfer(33, 34, file, 0, 8))
    archive.call("readv", 50, 60, *(transfer(51, 52, file, number, 100)[0] for number in range(2)))
    found = rows(
        archive.trace.write(tmp_path), "begin_time_ns", "offset_bytes", "bytes_request", "bytes_result", "status"
    )
    assert [(time - START, *more) for time, *more in found] == [
        (5, 1000, None, None, "completed"),
        (10, 1000, 300, 142, "completed"),
        (33, 1150, 8, 8, "completed"),
        (30, 1142, 8, 8, "completed"),
        (50, 1158, 200, None, "in flight"),
    ]


@pytest.mark.parametrize("number", [lambda part: part, lambda _: NONE64], ids=["each its own", "all alike"])
@pytest.mark.parametrize("end", ["IoOperationComplete", "IoOperationCancelled"])
def test_vectors_end_with_their_last_buffer(tmp_path: Path, number: Callable[[int], int], end: str) -> None:
    """Whatever the matching ids of its transfers, and however they end."""
    archive = Archive("Score-P 9.0", resolution=1_000_000_000)
    file = archive.handle(0, "/data/in")
    begins = [transfer(11, 19, file, number(part), 100)[0] for part in range(2)]
    moved = (100,) if end == "IoOperationComplete" else ()
    ends = [(end, 12 + part, file, *moved, number(part)) for part in range(2)]
    archive.call("readv", 10, 20, *begins, *ends)
    archive.call("read", 30, 40, *transfer(31, 39, file, NONE64, 8))
    path = archive.trace.write(tmp_path)
    assert rows(path, "begin_time_ns", "end_time_ns", "bytes_request", "bytes_result") == [
        (START + 10, START + 20, 200, 200 if moved else None),
        (START + 30, START + 40, 8, 8),
    ]
    summary = report(path)
    assert (summary.completeness["in_flight"], summary.completeness["orphan"]) == (0, 0)


def test_processes_that_share_a_definition_share_no_position(tmp_path: Path) -> None:
    """Definitions of equal handles become one where ranks are put together: another rank's seek tells nothing."""
    archive = Archive("Score-P 9.0")
    file = archive.handle(0, "/data/in")
    archive.call("lseek", 5, 6, seek(5, file, 1000))
    archive.call("read", 10, 20, *transfer(11, 19, file, 1, 100), on=DEVICE)  # a location of the other group
    archive.call("read", 30, 40, *transfer(31, 39, file, 2, 100))
    assert rows(archive.trace.write(tmp_path), "offset_bytes") == [(1000,), (None,), (1000,)]


def test_calls_whose_end_is_missing_are_in_flight(tmp_path: Path) -> None:
    """A region left without its operation's completion, one never left, and one that another's leaving closes."""
    archive = Archive("Score-P 9.0")
    file = archive.handle(0, None)
    archive.call("read", 10, 20, transfer(11, 19, file, 0, 8)[0])
    archive.add("Enter", 30, archive.region("write"))
    archive.add("Enter", 31, archive.region("fsync"))
    archive.add("Leave", 40, archive.region("write"))
    archive.add("Enter", 50, archive.region("lseek"))
    archive.add("Leave", 60, archive.region("ftell", IO))  # never entered
    path = archive.trace.write(tmp_path)
    assert rows(path, "call", "status") == [
        ("read", "in flight"),
        ("fsync", "in flight"),
        ("write", "completed"),
        ("lseek", "in flight"),
    ]
    assert report(path).completeness["in_flight"] == 3


def test_fewer_events_than_are_defined_are_said(tmp_path: Path) -> None:
    """The last line has the number."""
    archive = lo2s()
    archive.trace.counts[DEVICE] = 9
    assert "4 fewer than its definitions count" in report(archive.trace.write(tmp_path)).completeness_line


def test_traces_without_io_say_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """No record about I/O, or none at all; no number is invented."""
    archive = Archive("TAU 2.34")
    region = archive.region("main", _otf2.REGION_ROLE_FUNCTION)
    archive.trace.events[0] = [("Enter", START, region), ("Leave", START + 9, region)]
    page = text(report(archive.trace.write(tmp_path / "functions")), capsys)
    assert "nothing was recorded: none of the trace's 2 events is about I/O" in page
    summary = report(Archive("").trace.write(tmp_path / "none"))
    assert summary.hints == ("the trace has no events",)
    assert summary.activity.calls == 0
    assert summary.foreign is not None
    assert "a tool that does not say its name" in summary.foreign.title


def test_any_name_of_an_archive_is_found(tmp_path: Path) -> None:
    """The directory, or the file; not only traces.otf2."""
    path = lo2s().trace.write(tmp_path / "T")
    for name in ("traces.otf2", "traces.def", "traces"):
        (path / name).rename(path / name.replace("traces", "run-7"))
    for given_path in (path, path / "run-7.otf2"):
        summary = report(given_path)
        assert summary.activity.calls == 6
        assert summary.foreign is not None
        assert summary.foreign.anchor == str(path / "run-7.otf2")
        assert summary.trace == summary.foreign.anchor


def test_the_page_with_pictures_says_whose_trace_it_is(tmp_path: Path) -> None:
    """In its head, with what counts twice, and what is unknown."""
    path = score_p().trace.write(tmp_path / "T")
    with open_any(path) as trace:
        sums = gather(trace)
        page = render_html(summarize(trace, sums), gather_pictures(sums))
    head = page[page.index("<header>") : page.index("</header>")]
    assert f"<h1>{path}: a trace of another tool: Score-P 9.0</h1>" in head
    assert "POSIX I/O: 5 calls, 3 of them by other calls, 12 KiB read, 0 B written" in head
    assert "counted twice: 3 of the calls" in head
    assert "not known: offsets, but where seeks tell them" in head
    assert "Linux" not in head


def test_json_names_the_tool_and_the_paradigms(tmp_path: Path) -> None:
    """Under a key of its own; null in reports of lo2io's traces, as the golden file has it."""
    found = json.loads(to_json(report(score_p().trace.write(tmp_path))))
    assert found["foreign"]["tool"] == "Score-P 9.0"
    assert [row["name"] for row in found["foreign"]["paradigms"]][1:] == ["POSIX I/O", "ISO C I/O", "MPI I/O"]
    assert found["names"] is None
    assert found["trace"] == str(tmp_path)


def _cut(path: Path, name: str, left: int | None = None) -> None:
    file = path / name
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2 if left is None else left])


DAMAGES: dict[str, Callable[[Path], object]] = {
    "events are cut off": lambda path: _cut(path, "traces/0.evt"),
    "definitions are cut off": lambda path: _cut(path, "traces.def"),
    "the anchor is cut off": lambda path: _cut(path, "traces.otf2"),
    "the anchor is empty": lambda path: (path / "traces.otf2").write_bytes(b""),
    "the end of events is missing": lambda path: _cut(path, "traces/0.evt", -2),
    "events are missing": lambda path: (path / "traces/0.evt").unlink(),
    "definitions are missing": lambda path: (path / "traces.def").unlink(),
    "it is no trace": lambda path: (path / "traces.otf2").write_text("Dear reader,\n"),
    "nothing is there": shutil.rmtree,
    "the directory is empty": lambda path: (shutil.rmtree(path), path.mkdir()),
    "there are two": lambda path: (
        shutil.copy(path / "traces.otf2", path / "more.otf2") and (path / "traces.otf2").rename(path / "other.otf2")
    ),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_what_cannot_be_read_is_refused_with_three_facts(tmp_path: Path, damage: str) -> None:
    """The attempt, the finding, the remedy; nothing stays in the temporary directory."""
    path = score_p().trace.write(tmp_path / "T")
    DAMAGES[damage](path)
    with pytest.raises(TraceError) as caught:
        report(path)
    assert caught.value.tried
    assert caught.value.answer
    assert caught.value.remedy
    assert caught.value.exit_code == 5
    cut = damage.startswith(("events are cut", "definitions are cut", "the end of"))
    assert ("ends early" in caught.value.answer) == cut  # found here: the library finds it or not


def test_a_file_that_is_no_trace_is_refused(tmp_path: Path) -> None:
    """By its name already; a message of one sentence and a remedy, no traceback; exit code 5."""
    letter = tmp_path / "letter.txt"
    letter.write_text("Dear reader,\n")
    done = subprocess.run(
        [sys.executable, "-m", "lo2io", "report", str(letter)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 5
    assert done.stdout == ""
    assert "its name does not end in .otf2" in done.stderr
    assert "Traceback" not in done.stderr


def test_exports_take_other_tools_traces_where_that_is_right(tmp_path: Path) -> None:
    """Tables have every call; a replay of nested calls, and samples and stacks that nobody took, are refused."""
    path = score_p().trace.write(tmp_path / "T")
    export(path, "csv", tmp_path / "csv")
    assert len((tmp_path / "csv" / "operations.csv").read_text().splitlines()) == 1 + 11
    for name, why in (("fio", "twice"), ("perf-data", "no samples"), ("firefox", "no stacks")):
        with pytest.raises(TraceError, match=why):
            export(path, name, tmp_path / name)
        assert not (tmp_path / name).exists()


def test_temporary_tables_do_not_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither after a report nor after a refusal."""
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))
    path = lo2s().trace.write(tmp_path / "T")
    with open_any(path) as trace:
        assert trace.path.name == "T"
        assert len(list(scratch.iterdir())) == 1
    (path / "traces" / "0.evt").unlink()
    with pytest.raises(TraceError), open_any(path):
        pass
    assert list(scratch.iterdir()) == []


SLOW = """
import sys, time
from lo2io.reports.summary import summary
def summarize(*_):
    print("begun", flush=True)
    time.sleep(60)
summary.summarize = summarize
from lo2io.cli.main import main
main()
"""


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_temporary_tables_go_with_a_report_that_is_ended(tmp_path: Path, number: int, code: int) -> None:
    """They may be as large as the trace."""
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    path = lo2s().trace.write(tmp_path / "T")
    command = ["env", f"TMPDIR={scratch}", sys.executable, "-c", SLOW, "report", str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "begun\n"
        assert len(list(scratch.iterdir())) == 1
        process.send_signal(number)
        assert process.wait() == code
    assert list(scratch.iterdir()) == []


def test_names_that_are_not_text_stay_exact(tmp_path: Path) -> None:
    """The bytes of a path, as the trace has them."""
    archive = Archive("Score-P 9.0")
    file = archive.handle(0, "/data/PLACE")
    archive.call("read", 10, 20, *transfer(11, 19, file, 0, 8))
    path = archive.trace.write(tmp_path)
    definitions = path / "traces.def"
    definitions.write_bytes(definitions.read_bytes().replace(b"PLACE", b"caf\xe9!"))
    with open_any(path) as trace:
        rows_of_files = trace.files.to_pylist()
    assert [(row["path"], row["path_bytes"]) for row in rows_of_files] == [(r"/data/caf\xe9!", b"/data/caf\xe9!")]


def test_functions_in_the_group_of_system_calls_are_calls(tmp_path: Path) -> None:
    """As lo2s writes them, if lo2io knows the call. Functions of such names in other groups are none."""
    archive = Archive("lo2s v1.7.0", resolution=1_000_000_000)
    for number, name in enumerate(("pread64", "getrandom", "close", "read")):
        archive.call(name, 10 * number, 10 * number + 5, role=FUNCTION)
    archive.add_group("<syscalls>", "pread64", "getrandom", "close")
    archive.add_group("program", "read")
    assert calls_of(report(archive.trace.write(tmp_path))) == {
        "pread64": (1, 0, 0, 5, 0, 0),
        "close": (1, 0, 0, 5, 0, 0),
    }


def test_a_trace_lasts_from_its_first_event_to_its_last(tmp_path: Path) -> None:
    """Whatever its clock's properties cover: lo2s has the machine's uptime there. The calendar goes by the clock."""
    archive = lo2s()
    resolution, offset, _, realtime = archive.trace.clock or (0, 0, 0, 0)
    archive.trace.clock = resolution, offset, 4_283 * resolution, realtime
    summary = report(archive.trace.write(tmp_path))
    times = [event[1] for events in archive.trace.events.values() for event in events]
    assert (summary.start_ns, summary.span_ns) == (min(times), max(times) - min(times))
    assert summary.start_realtime_ns == realtime + min(times) - offset


def test_the_host_is_the_node_below_the_machine(tmp_path: Path) -> None:
    """As in Score-P's trees. Without a node of that class it is the root."""
    archive = Archive("Score-P 9.0")
    assert report(archive.trace.write(tmp_path / "root")).hostname == "node1"
    archive.add_node(1, "node7", "node", below=0)
    assert report(archive.trace.write(tmp_path / "node")).hostname == "node7"


def test_disks_of_other_tools_have_their_names(tmp_path: Path) -> None:
    """Two disks of unknown numbers stay apart."""
    archive = Archive("lo2s v1.7.0")
    for number, name in enumerate(("/dev/sda", "sdb")):
        disk = archive.handle(number, name, BLOCK)
        archive.add("IoOperationBegin", 10, disk, READ, NON_BLOCKING, 512, number, on=DEVICE)
        archive.add("IoOperationIssued", 10, disk, number, on=DEVICE)
        archive.add("IoOperationComplete", 10, disk, 512, number, on=DEVICE)
    assert requests_of(report(archive.trace.write(tmp_path))) == {
        ("sda", "read"): (1, 512, 0, 0, 0),
        ("sdb", "read"): (1, 512, 0, 0, 0),
    }


def test_a_duplicate_says_so(tmp_path: Path) -> None:
    """The origin of its handle, and the time at which it was open."""
    archive = Archive("Score-P 9.0")
    old, new = archive.handle(0, "/data/in"), archive.handle(1, "/data/in")
    archive.call("open", 10, 20, created(15, old))
    archive.call("dup", 30, 40, ("IoDuplicateHandle", 35, old, new, _otf2.IO_STATUS_FLAG_NONE))
    with open_any(archive.trace.write(tmp_path)) as trace:
        rows = trace.table("handles").to_pylist()
    assert [row["origin"] for row in rows] == ["opened", "duplicated"]
    assert rows[1]["open_time_ns"] - rows[0]["open_time_ns"] > 0
