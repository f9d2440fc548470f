"""``verify`` on whole traces: right ones, damaged files, big ones."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import _otf2
import otf2
import pytest
from build import otf2_builder as build

from lo2io.errors import TraceError
from lo2io.otf2.read import events
from lo2io.verify import verify

TIE = build.START + 400


def test_correct_trace(tmp_path: Path) -> None:
    """Nothing is reported, and everything is counted."""
    verdict = verify(build.correct().write(tmp_path / "T"))
    assert verdict.ok
    assert not verdict.findings
    counts = verdict.counts
    assert (counts.events, counts.operations, counts.completed, counts.cancelled) == (23, 5, 4, 1)
    assert (counts.in_flight, counts.handles, counts.files, counts.regions) == (0, 3, 2, 2)
    assert (counts.locations, counts.location_groups, counts.markers) == (3, 2, 1)


def test_trace_of_the_high_level_writer(tmp_path: Path) -> None:
    """A trace that lo2io's tests did not build is right as well; its missing colours and real time are no errors."""
    with otf2.writer.open(str(tmp_path / "T"), timer_resolution=1_000_000) as trace:
        node = trace.definitions.system_tree_node("node")
        group = trace.definitions.location_group("process", system_tree_parent=node)
        region = trace.definitions.region("pread", region_role=otf2.RegionRole.FILE_IO)
        paradigm = trace.definitions.io_paradigm(
            identification="POSIX",
            name="POSIX I/O",
            io_paradigm_class=otf2.IoParadigmClass.SERIAL,
            io_paradigm_flags=otf2.IoParadigmFlag.OS,
        )
        file = trace.definitions.io_regular_file("/etc/hosts", scope=node)
        handle = trace.definitions.io_handle(file=file, io_paradigm=paradigm)
        writer = trace.event_writer("thread", group=group)
        writer.enter(1, region)
        writer.io_create_handle(
            1, handle, otf2.IoAccessMode.READ_ONLY, otf2.IoCreationFlag.NONE, otf2.IoStatusFlag.NONE
        )
        writer.io_operation_begin(2, handle, otf2.IoOperationMode.READ, otf2.IoOperationFlag.NONE, 100, 1)
        writer.io_operation_complete(3, handle, 100, 1)
        writer.leave(4, region)
    verdict = verify(tmp_path / "T")
    assert verdict.ok
    assert set(verdict.broken) <= {"region.group"}
    assert verdict.counts.events == 5


def test_trace_of_lo2ios_own_writer(maker: Any, write: Any, tmp_path: Path) -> None:
    """lo2io's own traces keep the rules."""
    start = 2_000_000
    maker.task(0)
    maker.row("handles", handle=0, fd=3, origin=3, open_flags=os.O_RDWR)
    maker.call("read", start, start + 9, handle=0, fd=3, bytes_request=100, bytes_result=42, result=42, offset_bytes=7)
    write(maker.make())
    verdict = verify(tmp_path)
    assert not verdict.broken
    assert (verdict.counts.operations, verdict.counts.completed) == (1, 1)


def test_both_names_of_a_trace(tmp_path: Path) -> None:
    """The directory and the anchor file mean the same trace, whatever its name."""
    directory = build.correct().write(tmp_path / "T")
    assert verify(directory).counts == verify(directory / "traces.otf2").counts
    renamed = tmp_path / "scorep-run"
    renamed.mkdir()
    for name in ("traces.otf2", "traces.def", "traces.marker"):
        shutil.copy(directory / name, renamed / name.replace("traces", "profile"))
    shutil.copytree(directory / "traces", renamed / "profile")
    assert verify(renamed).counts == verify(directory).counts


def test_traces_otf2_is_the_anchor_among_others(tmp_path: Path) -> None:
    """The usual name wins over another .otf2 file in the directory."""
    directory = build.correct().write(tmp_path / "T")
    (directory / "a.otf2").touch()
    assert verify(directory).ok


# ---- handles that belong to more than one group ----


def test_handles_of_a_communicator_are_one_a_group(tmp_path: Path) -> None:
    """Every process creates and destroys a collective handle (MPI-IO) for itself."""
    trace = build.correct()
    trace.definitions["Group", 1] = (
        *(build.S[""], _otf2.GROUP_TYPE_COMM_GROUP, _otf2.PARADIGM_MPI, _otf2.GROUP_FLAG_NONE, [0, 1]),
    )
    trace.definitions["Comm", 0] = (build.S[""], 1, build.NONE32, _otf2.COMM_FLAG_NONE)
    trace.definitions["IoHandle", 3] = (build.S[""], 0, 0, _otf2.IO_HANDLE_FLAG_NONE, 0, build.NONE32)
    for location in (1, 2):
        end = trace.events[location][-1][1]
        trace.events[location] += [build.created(end, 3), ("IoDestroyHandle", end, 3)]
    assert not verify(trace.write(tmp_path / "T")).broken


def test_proxies_serve_all_groups(tmp_path: Path) -> None:
    """sync(2) is written on a handle that stands for everything."""
    trace = build.correct()
    flags = _otf2.IO_HANDLE_FLAG_PRE_CREATED | _otf2.IO_HANDLE_FLAG_ALL_PROXY
    trace.definitions["IoHandle", 3] = (build.S[""], build.NONE32, 0, flags, build.NONE32, build.NONE32)
    trace.more.append(("IoPreCreatedHandleState", (3, _otf2.IO_ACCESS_MODE_READ_WRITE, build.NO_FLAGS)))
    for location in (1, 2):
        end = trace.events[location][-1][1]
        trace.events[location] += [build.begin(end, 3, 20 + location), build.complete(end, 3, 20 + location)]
    assert not verify(trace.write(tmp_path / "T")).broken


# ---- calling contexts ----


def test_calling_contexts_nest_by_region(tmp_path: Path) -> None:
    """A leave names the line it happened on, so its context may be another one of the same region."""
    trace = build.correct()
    trace.definitions["CallingContext", 0] = (0, build.NONE32, build.NONE32)
    trace.definitions["CallingContext", 1] = (0, build.NONE32, build.NONE32)
    trace.definitions["InterruptGenerator", 0] = (
        *(build.S["vda"], _otf2.INTERRUPT_GENERATOR_MODE_COUNT, _otf2.BASE_DECIMAL, 0, 1),
    )
    trace.events[0] = [e for e in trace.events[0] if e[0] not in ("Enter", "Leave")]
    trace.events[1] += [
        ("CallingContextEnter", TIE, 0, 2),
        ("CallingContextSample", TIE, 0, 1, 0),
        ("CallingContextLeave", TIE, 1),
    ]
    assert not verify(trace.write(tmp_path / "T")).broken


def test_local_definitions_are_applied(tmp_path: Path) -> None:
    """Times are those a reader sees, with each location's clock put right."""
    trace = build.correct()
    trace.events[0][0] = ("Enter", build.START - 3, 1)
    trace.clock_offsets = {0: 3}
    assert not verify(trace.write(tmp_path / "right")).broken
    trace.clock_offsets = {0: 2}
    assert set(verify(trace.write(tmp_path / "wrong")).broken) == {"clock.before-start"}


# ---- damaged traces ----


def _fails(path: Path) -> TraceError:
    with pytest.raises(TraceError) as caught:
        verify(path)
    assert caught.value.tried
    assert caught.value.answer
    assert caught.value.remedy
    assert caught.value.exit_code == 5
    return caught.value


def test_no_such_trace(tmp_path: Path) -> None:
    """A path that does not exist."""
    assert "no such file" in _fails(tmp_path / "T").answer


def test_empty_directory(tmp_path: Path) -> None:
    """A directory without an anchor file."""
    assert "no .otf2 files" in _fails(tmp_path).answer


def test_two_traces_in_a_directory(tmp_path: Path) -> None:
    """Neither of both is chosen."""
    (tmp_path / "a.otf2").touch()
    (tmp_path / "b.otf2").touch()
    assert "2 .otf2 files" in _fails(tmp_path).answer


def test_other_file(tmp_path: Path) -> None:
    """A file that is no anchor file by its name, and one that is none by its content."""
    (tmp_path / "perf.data").write_bytes(b"PERFILE2")
    assert "does not end in .otf2" in _fails(tmp_path / "perf.data").answer
    (tmp_path / "traces.otf2").write_bytes(b"PERFILE2" * 100)
    _fails(tmp_path / "traces.otf2")


@pytest.mark.parametrize("left", [0, 1, 20, -3])
def test_anchor_that_was_cut(left: int, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """The library notices, without output on stderr."""
    trace = build.correct().write(tmp_path / "T")
    anchor = trace / "traces.otf2"
    anchor.write_bytes(anchor.read_bytes()[:left])
    _fails(trace)
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("file", ["traces.def", "traces/0.def", "traces/0.evt", "traces/2.evt", "traces.marker"])
@pytest.mark.parametrize("left", [0, 1, 20, -20, -2, -1])
def test_file_that_was_cut(file: str, left: int, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Any file that ends early is an error that names it, be it by one byte."""
    trace = build.correct()
    trace.clock_offsets = {0: 0}
    path = trace.write(tmp_path / "T") / file
    size = path.stat().st_size
    os.truncate(path, left % size)
    assert _fails(tmp_path / "T").answer == f"{path} ends early, at {left % size} bytes"
    assert capfd.readouterr() == ("", "")


def test_file_that_was_cut_where_it_looks_like_an_end(tmp_path: Path) -> None:
    """Data have the same bytes by chance: the library finds no further chunk, or events that nobody wrote."""
    trace = build.correct().write(tmp_path / "T")
    file = trace / "traces" / "2.evt"
    content = file.read_bytes()[:-3]
    assert content.endswith(b"\2\1")
    file.write_bytes(content)
    with contextlib.suppress(TraceError):
        assert "count.events" in verify(trace).broken


def test_file_that_belongs_to_no_location(tmp_path: Path) -> None:
    """Other files beside the events are neither read nor checked."""
    trace = build.correct().write(tmp_path / "T")
    (trace / "traces" / "notes.evt").write_text("lunch at noon")
    assert not verify(trace).broken


@pytest.mark.parametrize("file", ["traces.otf2", "traces.def", "traces/1.evt"])
def test_missing_file(file: str, tmp_path: Path) -> None:
    """A file of the trace was not copied."""
    trace = build.correct().write(tmp_path / "T")
    (trace / file).unlink()
    _fails(trace)


def test_location_without_events_needs_no_file(tmp_path: Path) -> None:
    """A thread that did nothing."""
    trace = build.correct()
    del trace.events[2]
    assert not verify(trace.write(tmp_path / "T")).broken


# ---- the reader ----


def test_progress_and_errors_in_it(tmp_path: Path) -> None:
    """Progress comes with the number of events read; its exceptions end the reading."""
    trace = build.correct()
    trace.events[1] += [("Enter", TIE + tick, 0) for tick in range(60_000)]
    trace.events[1] += [("Leave", TIE + 60_000 + tick, 0) for tick in range(60_000)]
    path = trace.write(tmp_path / "T")
    told: list[int] = []
    verify(path, told.append)
    assert told == [events.BLOCK_EVENTS, 120_023]

    def stop(_done: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        verify(path, stop)


def test_exceptions_in_callbacks_are_not_swallowed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A fault of a rule, or Ctrl-C, ends the reading: ctypes by itself would print and go on."""

    def fault(*_: object) -> bool:
        raise KeyboardInterrupt

    path = build.correct().write(tmp_path / "T")
    monkeypatch.setattr("lo2io.verify.operations.IoRules.begin", fault)
    with pytest.raises(KeyboardInterrupt):
        verify(path)


def _many_locations(number: int, calls: int) -> build.Trace:
    """So many further threads, each with so many calls, in turns with all others."""
    trace = build.correct()
    for thread in range(number):
        ref = 10 + thread
        trace.definitions["String", 100 + ref] = (f"many {ref}",)
        trace.definitions["Location", ref] = (100 + ref, _otf2.LOCATION_TYPE_CPU_THREAD, 0)
        times = range(build.START + 500 + thread, build.START + 500 + thread + calls * number, number)
        trace.events[ref] = [event for time in times for event in (("Enter", time, 0), ("Leave", time, 0))]
    return trace


@pytest.mark.parametrize("calls", [2, 8, 200])  # 8: as many events as are read at first
@pytest.mark.parametrize("command", ["verify", "report"])
def test_few_files_are_enough_for_many_locations(command: str, calls: int, tmp_path: Path) -> None:
    """Files are closed and opened again where their location's events go on: none is missed, and none comes twice."""
    trace = _many_locations(300, calls)
    trace.write(tmp_path / "T")
    lo2io = Path(sys.executable).with_name("lo2io")
    words = ["sh", "-c", 'ulimit -n 64; exec "$@"', "sh", lo2io, command, "--json", tmp_path / "T"]
    document = json.loads(subprocess.run(words, check=True, capture_output=True).stdout)
    if command == "verify":
        assert not document["broken"]
        assert document["counts"]["events"] == 23 + 300 * 2 * calls
    else:
        assert document["activity"]["calls"] == 4 + 300 * calls


def test_too_few_files_are_no_damage(tmp_path: Path) -> None:
    """The system's refusal is reported as such; the trace is not blamed."""
    _many_locations(40, 20).write(tmp_path / "T")
    lo2io = Path(sys.executable).with_name("lo2io")
    words = ["sh", "-c", 'ulimit -n 20; exec "$@"', "sh", lo2io, "verify", tmp_path / "T"]
    done = subprocess.run(words, check=False, capture_output=True, text=True)
    assert done.returncode == TraceError.exit_code
    assert "Too many opened files" in done.stderr
    assert "ulimit -n" in done.stderr
    assert "damaged" not in done.stderr
