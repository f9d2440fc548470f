"""Definitions, markers and properties of traces."""

from __future__ import annotations

import stat
from dataclasses import replace
from typing import Any

import pytest
from build.otf2_batches import META, REALTIME, START, STOP, BatchMaker, complete
from otf2.enums import LocationGroupType, LocationType, RegionRole

from lo2io.model import UNKNOWN_I64, ClockSync, Totals, TraceEnd
from lo2io.otf2.write.rows import realtime_at

Write = Any
T = 2_000_000


def test_empty_trace(write: Write, maker: BatchMaker) -> None:
    """Without events, it is still a trace, with its clock."""
    written = write(maker.make())
    clock = written.definitions.clock_properties
    assert (clock.timer_resolution, clock.global_offset, clock.trace_length) == (10**9, START, STOP - START)
    assert clock.realtime_timestamp == REALTIME + START + START // 2_000
    assert not written.events
    assert [location.name for location in written.definitions.locations] == ["no thread recorded"]
    assert [group.name for group in written.definitions.location_groups] == ["no process recorded"]


def test_idle_process_has_its_thread(write: Write, maker: BatchMaker) -> None:
    """Threads without a call are located if nobody made one: readers refuse a trace without locations."""
    maker.task(0, b"true")
    written = write(maker.make())
    assert [(location.name, location.number_of_events) for location in written.definitions.locations] == [
        ("thread true 100", 0)
    ]


def test_clock_covers_every_event(write: Write, maker: BatchMaker) -> None:
    """Events before the start or after the stop widen the range."""
    maker.call("newfstat", START - 10, START)
    maker.call("newfstat", STOP, STOP + 10)
    clock = write(maker.make()).definitions.clock_properties
    assert (clock.global_offset, clock.trace_length) == (START - 10, STOP - START + 20)


def test_realtime_is_on_the_line_through_the_readings() -> None:
    """Between, before and after the two; with one reading at its rate of 1; without any undefined."""
    syncs = META.syncs
    assert [realtime_at(syncs, t) - REALTIME for t in (0, 5 * 10**6, 10**7)] == [0, 5_002_500, 10_005_000]
    assert realtime_at(syncs, 15 * 10**6) == REALTIME + 15_007_500
    assert realtime_at(syncs[:1], 7) == REALTIME + 7
    assert realtime_at((), 7) == 2**64 - 1


def test_a_clock_that_was_set_draws_no_line() -> None:
    """An hour asleep, or a step by a time service: each reading counts for the times near it."""
    syncs = (ClockSync(0, 0, REALTIME, 100), ClockSync(10**7, 0, REALTIME + 10**7 + 3_600 * 10**9, 100))
    assert [realtime_at(syncs, t) - REALTIME for t in (1, 4 * 10**6)] == [1, 4 * 10**6]
    assert [realtime_at(syncs, t) - REALTIME - 3_600 * 10**9 for t in (6 * 10**6, 2 * 10**7)] == [6 * 10**6, 2 * 10**7]


def test_a_sleep_skews_no_time_before_it() -> None:
    """However small beside the whole recording: only the readings around a time tell of it."""
    sleep, second = 10**6, 10**9
    syncs = tuple(
        ClockSync(at, at, REALTIME + at + (sleep if at > second else 0), 100) for at in (0, second, 3 * second)
    )
    assert [realtime_at(syncs, t) - REALTIME - t for t in (-5, 0, second // 2, second)] == [0, 0, 0, 0]
    assert [realtime_at(syncs, t) - REALTIME - t for t in (2 * second, 3 * second)] == [sleep // 2, sleep]


def test_processes_and_threads(write: Write, maker: BatchMaker) -> None:
    """A group per process named after its main thread, parents known; a re-used pid is another process."""
    maker.task(0, b"make")
    maker.task(1, b"worker")
    maker.task(2, b"cc", process=1, pid=200, tid=200, parent_process=0)
    maker.task(3, b"cc", process=2, pid=200, tid=200, parent_process=77)
    for task, pid in ((1, 100), (0, 100), (2, 200), (3, 200)):
        maker.call("newfstat", T, T + 1, task=task, pid=pid)
    written = write(maker.make())
    groups = {group.name: group for group in written.definitions.location_groups}
    assert list(groups) == ["make [100]", "cc [200]", "cc [200] (2)"]
    assert groups["cc [200]"].creating_location_group == groups["make [100]"]
    assert {group.location_group_type for group in groups.values()} == {LocationGroupType.PROCESS}
    found = [(location.name, location.group.name) for location in written.definitions.locations]
    assert sorted(found) == [
        ("thread cc 200", "cc [200]"),
        ("thread cc 200 (2)", "cc [200] (2)"),
        ("thread make 100", "make [100]"),
        ("thread worker 101", "make [100]"),
    ]
    assert {location.type for location in written.definitions.locations} == {LocationType.CPU_THREAD}
    ids = [location._ref for location, _ in written.events]
    assert sorted(set(ids)) == [0, 1, 2, 3]
    assert written.events[0][0].name == "thread worker 101"


def test_thread_without_row_is_named_by_its_numbers(write: Write, maker: BatchMaker) -> None:
    """The engine gives every thread a row; a trace cut off still has no undefined reference."""
    maker.call("read", T, T + 1, handle=4, pid=300, tid=301)
    written = write(maker.make())
    assert [group.name for group in written.definitions.location_groups] == ["process [300]"]
    assert [location.name for location in written.definitions.locations] == ["thread of process 301"]


def test_regions_and_groups(write: Write, maker: BatchMaker) -> None:
    """Used calls only; roles from the catalogue; a REGIONS group per kind."""
    for name in ("read", "newfstat", "close", "openat"):
        maker.call(name, T, T, error=9)
    written = write(maker.make())
    roles = {region.name: region.region_role for region in written.definitions.regions}
    assert roles == {
        "read": RegionRole.FILE_IO,
        "fstat": RegionRole.FILE_IO_METADATA,
        "close": RegionRole.FILE_IO_METADATA,
        "openat": RegionRole.FILE_IO_METADATA,
    }
    text = written.printed("-G")
    assert '"newfstat"' in text
    assert 'Name: "I/O open and close" <' in text
    assert '2 Members: "close" <2>, "openat" <3>' in text


def test_files_with_their_mount(write: Write, maker: BatchMaker) -> None:
    """Score-P's property names; a directory has one; other files have their type."""
    maker.file(0, b"/home/a", device=0x801, inode=12, mount=31)
    maker.file(1, b"/home", device=0x801, inode=2, mount=31, mode=stat.S_IFDIR | 0o755)
    maker.file(2, b"pipe:[77]", device=13, inode=77, mode=stat.S_IFIFO | 0o600)
    maker.file(3, b"/never/used", inode=1)
    for number in range(3):
        maker.row("handles", handle=number, fd=number, origin=3, file=number)
        maker.call("read", T, T + 1, handle=number)
    written = write(maker.make())
    files = {file.name: type(file).__name__ for file in written.definitions.io_files}
    assert files == {"/home/a": "IoRegularFile", "/home": "IoDirectory", "pipe:[77]": "IoRegularFile"}
    lines = [line for line in written.printed("-G").splitlines() if line.startswith("IO_FILE_PROPERTY")]
    text = "\n".join(lines)
    for name, content in (("Mount Point", "/home"), ("Mount Source", "/dev/vda1"), ("File system", "ext4")):
        assert f'"{name}"' in text
        assert f'Value: "{content}" <' in text
    assert 'Value: "8:1" <' in text
    assert "Value: 12" in text
    assert 'pipe:[77]" <2>, Name: "Type"' in text
    assert sum('"Mount Point"' in line for line in lines) == 2


def test_unused_handles_are_not_defined(write: Write, maker: BatchMaker) -> None:
    """A snapshot of 10,000 fds is not the trace's business; a handle only named by metadata calls is."""
    maker.row("handles", handle=0, fd=0, origin=3, used=0)
    maker.row("handles", handle=1, fd=1, origin=3, used=1, open_flags=1)
    maker.call("newfstat", T, T + 1, handle=1)
    written = write(maker.make())
    assert [handle.name for handle in written.definitions.io_handles] == ["fd 1"]
    assert "Mode: WRITE_ONLY" in written.printed("-G")


def test_pre_created_handles_have_their_state(write: Write, maker: BatchMaker) -> None:
    """Open before the trace, inherited, appeared: active from the start, with access mode and status flags."""
    maker.row("handles", handle=0, fd=3, origin=3, open_flags=0o2002001)
    maker.row("handles", handle=1, fd=3, origin=2, open_flags=0)
    maker.row("handles", handle=2, fd=9, origin=4)
    for handle in range(3):
        maker.call("read", T, T + 1, handle=handle, error=5)
    text = write(maker.make()).printed("-G")
    states = [line for line in text.splitlines() if line.startswith("IO_PRE_CREATED")]
    assert [line.split("Mode: ")[1] for line in states] == [
        "WRITE_ONLY, Status Flags: {CLOSE_ON_EXEC, APPEND}",
        "READ_ONLY, Status Flags: NONE",
        "READ_WRITE, Status Flags: NONE",
    ]


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("/tmp/größe ☃".encode(), "/tmp/größe ☃"),
        (b"/tmp/\xff\xfe", "/tmp/\\xff\\xfe"),
        (b'/tmp/a\nb\t"quoted"', '/tmp/a\nb\t"quoted"'),
        (b"/" + b"d/" * 2000 + b"f", "/" + "d/" * 2000 + "f"),
    ],
)
def test_odd_file_names(write: Write, maker: BatchMaker, path: bytes, name: str) -> None:
    """Any bytes may name a file; readers get UTF-8 all the same."""
    maker.file(0, path)
    maker.row("handles", handle=0, fd=3, origin=3, file=0)
    maker.call("read", T, T + 1, handle=0, error=5)
    (handle,) = write(maker.make()).definitions.io_handles
    assert (handle.name, handle.file.name) == (name, name)


def test_names_stay_apart(write: Write, maker: BatchMaker) -> None:
    """A host that is called like a thread does not make ViTE abort (checked by the fixture)."""
    maker.task(0)
    maker.call("newfstat", T, T + 1)
    written = write(maker.make(), meta=replace(META, hostname="thread fio 100"))
    assert [location.name for location in written.definitions.locations] == ["thread fio 100 (2)"]


def test_many_locations(write: Write, maker: BatchMaker) -> None:
    """300 threads, dense ids, exact counts (checked by the fixture)."""
    for task in range(300):
        maker.task(task)
        maker.call("newfstat", T + task, T + task + 1, task=task)
    written = write(maker.make())
    assert len(list(written.definitions.locations)) == 300
    assert len(written.events) == 600


def test_gaps_are_markers(write: Write, maker: BatchMaker) -> None:
    """Severity HIGH, with their duration; one without a beginning or end reaches to the trace's."""
    maker.row("losses", cpu=3, begin_time_ns=T, end_time_ns=T + 70, lost=512)
    maker.row("losses", cpu=0, begin_time_ns=UNKNOWN_I64, end_time_ns=UNKNOWN_I64, lost=1)
    written = write(maker.make(), end=TraceEnd(START, STOP, complete(lost=513, vanished=5), Totals()))
    assert [" ".join(line.split()) for line in written.markers()] == [
        'MARKER_DEF Group: "lo2io", Category: "lost records", Severity: HIGH',
        f'MARKER Time: {T}, Duration 70, Scope: SYSTEM_TREE_NODE:1, Text: "CPU 3: the kernel dropped 512 records"',
        (
            f"MARKER Time: {START}, Duration {STOP - START}, Scope: SYSTEM_TREE_NODE:1, "
            'Text: "CPU 0: the kernel dropped 1 records"'
        ),
        'MARKER_DEF Group: "lo2io", Category: "vanished samples", Severity: HIGH',
        (
            f"MARKER Time: {START}, Duration {STOP - START}, Scope: GLOBAL, "
            'Text: "5 samples were counted by the kernel, but neither delivered nor reported as lost"'
        ),
    ]


def test_nothing_lost_no_markers(write: Write, maker: BatchMaker) -> None:
    """Not even definitions of markers, nor those of an archive that lay there."""
    written = write(maker.make())
    assert not (written.path / "traces.marker").exists()


def test_properties_say_how_complete(write: Write, maker: BatchMaker) -> None:
    """The four counters, the proof, and the pipeline's additions; control characters are escaped."""
    proof = complete(lost=1, vanished=2, late=3, orphan=4, in_flight=5)
    end = TraceEnd(START, STOP, replace(proof, proven=False), Totals(nr_throttled=6), {"exit code": "7"})
    found = write(maker.make(), end=end).properties()
    expected = {
        "LO2IO::LOST": "1",
        "LO2IO::VANISHED": "2",
        "LO2IO::LATE": "3",
        "LO2IO::ORPHAN": "4",
        "LO2IO::IN_FLIGHT": "5",
        "LO2IO::COMPLETENESS": "not proven",
        "LO2IO::THROTTLED": "6",
        "LO2IO::EXIT_CODE": "7",
        "LO2IO::COMMAND": "fio --name=x\\ny",
    }
    assert expected.items() <= found.items()
