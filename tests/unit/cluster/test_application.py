"""`lo2io merge --with`: an application's own archive in one with lo2io's."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from dataclasses import replace
from typing import TYPE_CHECKING

import otf2
import pytest
from build.application_archive import CHUNK_BYTES, MS, OwnThread, write_application, write_calls
from build.merged_traces import small_cluster, told
from build.otf2_builder import DISK, START, complete, correct

from lo2io.cluster import application, bridging
from lo2io.cluster.application import Request
from lo2io.cluster.merge import MERGED, merge
from lo2io.errors import TraceError, UsageError
from lo2io.otf2.merge.application import spread_chunks
from lo2io.otf2.write.archive import CHUNK_BYTES as OWN_CHUNK_BYTES
from lo2io.verify import exit_code, render, verify

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

WRITER, HELPER, READER = 100, 101, 200
"""Threads of the small machine. The second is one of the first's process."""
UNKNOWN_HZ = 777
"""No clock has so many ticks a ms."""


def machine(directory: Path, mode: str = "process", **changes: object) -> tuple[Path, str]:
    """The trace of the small machine, and the machine's name."""
    trace = small_cluster(directory, "a", mode, **changes) / "host=a"
    shutil.move(trace, directory.with_name("trace"))
    trace = directory.with_name("trace")
    return trace, json.loads((trace / "lo2io" / "metadata.json").read_text(encoding="utf-8"))["hostname"]


def printed(archive: Path, *options: str) -> list[str]:
    """The lines of `otf2-print`."""
    line = ["otf2-print", "-Werror", *options, str(archive)]
    return subprocess.run(line, capture_output=True, text=True, check=True).stdout.splitlines()


def definitions(archive: Path) -> list[str]:
    """All global definitions but the clock."""
    return [line for line in printed(archive, "-G") if re.match(r"[A-Z_]+  ", line) and not line.startswith("CLOCK")]


def test_the_application_is_a_part(tmp_path: Path) -> None:
    """Its definitions come first, with their ids; its events tell what they told, at the times of the recording."""
    trace, host = machine(tmp_path / "T")
    anchor = write_application(tmp_path / "scorep", host, [WRITER, None])
    merged = merge(trace, request=Request(anchor, offset_s=0.002))
    together = trace / MERGED
    theirs = definitions(anchor)
    assert len(theirs) > 50
    kept = definitions(together / "traces.otf2")
    assert [line for line in kept if line in set(theirs)] == theirs
    for location in ("0", "1"):
        alone, now = (
            [line.split() for line in printed(each, "-L", location)] for each in (anchor, together / "traces.otf2")
        )
        alone, now = ([words for words in lines if len(words) > 3 and words[1] == location] for lines in (alone, now))
        assert len(alone) == 13
        assert [(words[0], words[3:]) for words in now] == [(words[0], words[3:]) for words in alone]
        assert [int(words[2]) for words in now] == [int(words[2]) + 2 * MS for words in alone]
    found = told(together)
    del found["Master thread"]
    names = {"thread writer 100": "Master thread: I/O (tid 100)"}
    assert found == {f"{names.get(name, name)} @{host}": events for name, events in told(trace).items()}
    assert merged.application is not None
    assert (merged.application["locations"], merged.application["events"]) == (2, 26)
    assert merged.application["clock"] == "offset (named by the user)"
    assert merged.application == json.loads((together / "cluster.json").read_text(encoding="utf-8"))["application"]


def test_all_rules_are_kept(tmp_path: Path) -> None:
    """`verify` finds nothing in the merged archive that it does not find in the application's own."""
    trace, host = machine(tmp_path / "T")
    anchor = write_application(tmp_path / "scorep", host, [WRITER, READER])
    merge(trace, request=Request(anchor, offset_s=0))
    verdict = verify(trace / MERGED)
    assert exit_code(verdict) == 0, verdict.findings
    assert set(verdict.broken) == {"name.shared"}, "Score-P names the first thread of each process alike"


def test_what_the_application_breaks_is_told_apart(tmp_path: Path) -> None:
    """An operation that ends without a start is no fault of lo2io's. The same on a location of lo2io's would be."""
    trace, _host = machine(tmp_path / "T")
    theirs = correct()
    theirs.events[1].append(complete(START + 120, DISK, 99))
    assert exit_code(verify(theirs.write(tmp_path / "own"))) != 0
    merge(trace, request=Request(tmp_path / "own" / "traces.otf2", offset_s=0))
    verdict = verify(trace / MERGED)
    assert exit_code(verdict) == 0, verdict.findings
    assert verdict.of_application == {"operation.not-begun": 1}
    assert verdict.as_dict()["application"] == {"locations": 3, "broken": {"operation.not-begun": 1}}
    assert "operation.not-begun 1 times" in render(verdict)
    verdict.application = 0
    verdict.report("operation.not-begun", "", location=1)
    assert exit_code(verdict) != 0


def groups_of(trace: Path) -> dict[str, list[str]]:
    """Location group → its locations."""
    found: dict[str, list[str]] = {}
    with otf2.reader.open(str(trace / "traces.otf2")) as archive:
        for location in archive.definitions.locations:
            found.setdefault(location.group.name, []).append(location.name)
    return found


@pytest.mark.parametrize("pids", [[WRITER, READER], [WRITER, None]])
def test_threads_of_a_process_stand_together(tmp_path: Path, pids: Sequence[int | None]) -> None:
    """lo2io's threads lie in the application's process of the same pid. Another process stays beside it."""
    trace, host = machine(tmp_path / "T")
    anchor = write_application(tmp_path / "scorep", host, pids)
    merged = merge(trace, request=Request(anchor, offset_s=0))
    assert merged.application is not None
    assert (merged.application["processes"], merged.application["joined"]) == (2, 2 - pids.count(None))
    found = groups_of(trace / MERGED)
    joined = f"Master thread: I/O (tid 100) @{host}"
    assert found["MPI Rank 0"] == ["Master thread", joined, f"thread helper 101 @{host}"]
    if READER in pids:
        assert f"Master thread: I/O (tid 200) @{host}" in found["MPI Rank 1"]
    else:
        assert f"thread reader 200 @{host}" in found[f"reader [200] @{host}"]
    with otf2.reader.open(str(trace / MERGED / "traces.otf2")) as archive:
        nodes = {group.system_tree_parent.name for group in archive.definitions.location_groups}
        found_properties = archive.definitions.location_group_properties
        names = {each.name for each in found_properties if each.location_group.name == "MPI Rank 0"}
    assert host in nodes
    assert {"Process ID", "lo2io Process ID", "Name by lo2io"} <= names


def test_ranks_of_mpi_are_joined(tmp_path: Path) -> None:
    """Score-P does not tell pids, but ranks, as lo2io does."""
    trace, host = machine(tmp_path / "T", ranks={READER: 1})
    anchor = write_application(tmp_path / "scorep", host, [None, None])
    merged = merge(trace, request=Request(anchor, offset_s=0))
    assert merged.application is not None
    assert merged.application["joined"] == 1
    assert groups_of(trace / MERGED)["MPI Rank 1"] == ["Master thread", f"Master thread: I/O (tid 200) @{host}"]


def calls_of(*threads: tuple[str, str], **ids: dict[str, int]) -> list[OwnThread]:
    """The calls of the writer and the reader as an application's tool saw them, by a clock that nobody knows."""
    calls = {
        "writer": [("pwrite64", 8192, 8192, 10.0, 10.06), ("fsync", 2**64 - 1, 0, 10.07, 10.09)],
        "reader": [("read", 4096, 4096, 15.0, 15.04), ("read", 512, 2**64 - 1, 250.002, 250.05)],
        "helper": [("open", None, None, 15.07, 15.08)],
    }
    moved = {
        who: [
            (*rest, int((2e6 + begin) * UNKNOWN_HZ) - 1, int((2e6 + end) * UNKNOWN_HZ) + 2)
            for *rest, begin, end in each
        ]
        for who, each in calls.items()
    }
    return [OwnThread(process, who.title(), moved[who], ids.get(who, {})) for process, who in threads]


def test_shared_calls_tell_clock_processes_and_threads(tmp_path: Path) -> None:
    """Neither pids nor ranks are told, and the clock is no one's: calls that both saw tell all of them."""
    trace, host = machine(tmp_path / "T")
    threads = calls_of(("Process", "writer"), ("Other", "reader"))
    anchor = write_calls(tmp_path / "own", host, threads, resolution=1_000 * UNKNOWN_HZ)
    for clock in (None, "calls"):
        found = merge(trace, request=Request(anchor, clock)).application
        assert found is not None
        assert found["clock"] == "4 calls that both recorded"
        assert found["error_ns"] < 10_000
        assert (found["joined"], found["joined_threads"], found["threads"]) == (2, 2, 2)
    groups = groups_of(trace / MERGED)
    assert groups["Process"] == ["Writer", f"Writer: I/O (tid {WRITER}) @{host}", f"thread helper {HELPER} @{host}"]
    assert groups["Other"] == ["Reader", f"Reader: I/O (tid {READER}) @{host}"]
    with otf2.reader.open(str(trace / MERGED / "traces.otf2")) as archive:
        times = [
            (each.name, event.time) for each, event in archive.events if type(event).__name__ in {"Enter", "Leave"}
        ]
        properties = archive.definitions.location_properties
        before = {each.value for each in properties if each.name == "Name by lo2io"}
    assert before == {f"thread writer {WRITER} @{host}", f"thread reader {READER} @{host}"}
    for name, truth in (("Writer", [10.0, 10.06, 10.07, 10.09]), ("Reader", [15.0, 15.04, 250.002, 250.05])):
        own = [time for place, time in times if place == name]
        for time, wanted in zip(own, truth, strict=True):
            assert abs(time - wanted * MS) < found["error_ns"] + 5_000, "a region is a few ticks longer than its call"


def test_ids_of_threads_are_told_by_events(tmp_path: Path) -> None:
    """As Score-P writes them. Then calls need not tell, nor be there."""
    trace, host = machine(tmp_path / "T")
    ids = {"writer": {"ProcessId": WRITER}, "helper": {"ThreadId": HELPER}}
    threads = calls_of(("Process", "writer"), ("Process", "helper"), ("Other", "helper"), **ids)
    anchor = write_calls(tmp_path / "own", host, threads)
    found = merge(trace, request=Request(anchor, offset_s=0)).application
    assert found is not None
    assert (found["joined"], found["joined_threads"], found["threads"]) == (1, 2, 3)
    joined = [f"{name}: I/O (tid {tid}) @{host}" for name, tid in (("Writer", WRITER), ("Helper", HELPER))]
    assert groups_of(trace / MERGED)["Process"] == ["Writer", "Helper", *joined]
    assert exit_code(verify(trace / MERGED)) == 0


@pytest.mark.parametrize(("least", "joined"), [(2, 1), (3, 0)])
def test_few_calls_tell_no_thread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, least: int, joined: int) -> None:
    """The clock is known, and a thread made both calls within their regions. Too few calls may fit by chance."""
    trace, host = machine(tmp_path / "T")
    calls = [("pwrite64", 8192, 8192, 10.0, 10.06), ("fsync", 2**64 - 1, 0, 10.07, 10.09)]
    of_trace = [(*rest, int(begin * MS), int(end * MS)) for *rest, begin, end in calls]
    anchor = write_calls(tmp_path / "own", host, [OwnThread("Process", "Few", of_trace)])
    monkeypatch.setattr(application, "by_offset", lambda *known: replace(bridging.by_offset(*known), error_ns=1_000))
    monkeypatch.setattr(application, "LEAST", least)
    found = merge(trace, request=Request(anchor, offset_s=0)).application
    assert found is not None
    assert (found["joined"], found["joined_threads"], found["threads"]) == (joined, joined, 1)


def test_an_offset_of_the_user_tells_no_threads(tmp_path: Path) -> None:
    """Nobody knows its error. So nobody can say whether a call lies in its region."""
    trace, host = machine(tmp_path / "T")
    ids = {"writer": {"ProcessId": WRITER}}
    threads = calls_of(("Process", "writer"), ("Other", "reader"), **ids)
    anchor = write_calls(tmp_path / "own", host, threads, resolution=1_000 * UNKNOWN_HZ)
    found = merge(trace, request=Request(anchor, offset_s=-2_000)).application
    assert found is not None
    assert (found["joined"], found["joined_threads"]) == (1, 1)
    assert found["error_ns"] is None


def test_many_nodes(tmp_path: Path) -> None:
    """The application's archive becomes a part of that of all nodes; what ran on one node lies there."""
    cluster = small_cluster(tmp_path / "T", "ab", "process")
    anchor = write_application(tmp_path / "scorep", "b", [WRITER])
    merged = merge(cluster, request=Request(anchor, offset_s=0))
    assert [host["number"] for host in merged.hosts] == [1, 2], "number 0 ends an id of the application"
    found = groups_of(cluster)
    assert found["MPI Rank 0"] == ["Master thread", "Master thread: I/O (tid 100) @b", "thread helper 101 @b"]
    assert "thread writer 100 @a" not in found["MPI Rank 0"]
    assert exit_code(verify(cluster)) == 0


def test_the_archives_own_offsets_count(tmp_path: Path) -> None:
    """Its clock offsets and those of the merged archive are one correction of each location."""
    trace, _host = machine(tmp_path / "T")
    theirs = correct()
    theirs.clock_offsets = {ref: 500 * ref for record, ref in theirs.definitions if record == "Location"}
    alone = told(theirs.write(tmp_path / "own"))
    merge(trace, request=Request(tmp_path / "own" / "traces.otf2", offset_s=0.25))
    now = told(trace / MERGED)
    for name in ("thread 10", "thread 11"):
        assert len(alone[name]) > 3
        assert [event.time for event in now[name]] == [event.time + 250 * MS for event in alone[name]]
        assert [event.facts for event in now[name]] == [event.facts for event in alone[name]]


def test_chunks_are_spread(tmp_path: Path) -> None:
    """lo2io's chunks of events are smaller than Score-P's. Readers find the same events after larger steps."""
    for name, chunk_bytes in (("own", OWN_CHUNK_BYTES), ("theirs", CHUNK_BYTES)):
        with otf2.writer.open(str(tmp_path / name), timer_resolution=1, chunk_size_events=chunk_bytes) as writer:
            node = writer.definitions.system_tree_node("node")
            group = writer.definitions.location_group("group", system_tree_parent=node)
            events = writer.event_writer_from_location(writer.definitions.location("thread", group=group))
            region = writer.definitions.region("region")
            for time in range(0, 30_000, 2):
                events.enter(time, region)
                events.leave(time + 1, region)
    before = printed(tmp_path / "theirs" / "traces.otf2")
    own, theirs = (tmp_path / name / "traces" / "0.evt" for name in ("own", "theirs"))
    size = own.stat().st_size
    assert size > OWN_CHUNK_BYTES
    with own.open("rb") as source, theirs.open("wb") as target:
        spread_chunks(source.fileno(), target.fileno(), OWN_CHUNK_BYTES, CHUNK_BYTES)
    assert printed(tmp_path / "theirs" / "traces.otf2") == before
    assert theirs.stat().st_size > CHUNK_BYTES
    assert theirs.stat().st_blocks * 512 < size + CHUNK_BYTES // 2, "what lies between is a hole"


def test_archives_that_cannot_be_merged_are_refused(tmp_path: Path) -> None:
    """The error names what is wrong, and a former archive stays."""
    trace, host = machine(tmp_path / "T")
    anchor = write_application(tmp_path / "scorep", host, [WRITER, READER])
    request = Request(anchor, offset_s=0)
    merge(trace, request=request)
    before = told(trace / MERGED)

    with pytest.raises(UsageError, match="written on elsewhere"):
        merge(trace, request=Request(write_application(tmp_path / "other", "elsewhere")))
    with pytest.raises(UsageError, match="has no readings"):
        merge(trace, request=Request(anchor))
    with pytest.raises(UsageError, match="has regions, but the application's archive has calling contexts"):
        merge(trace, request=Request(write_application(tmp_path / "contexts", host, style="contexts"), offset_s=0))
    with pytest.raises(UsageError, match="is an archive of lo2io"):
        merge(trace, request=Request(trace / "traces.otf2", offset_s=0))
    with pytest.raises(TraceError, match="does not end in"):
        merge(trace, request=Request(anchor.with_name("traces.def"), offset_s=0))

    for name, spoil, answer in (
        ("version", lambda path: change(path / "traces.otf2", b"OTF2\0\3\2", b"OTF2\0\3\4"), "version conflicts"),
        ("cut", lambda path: cut(path / "traces" / "0.evt"), "ends early"),
        ("definitions", lambda path: cut(path / "traces.def"), "ends early"),
        ("events", lambda path: (path / "traces" / "0.evt").unlink(), "0.evt with the events of location 0 is missing"),
        ("local", lambda path: (path / "traces" / "0.def").unlink(), "0.def are missing"),
    ):
        copy = tmp_path / name
        shutil.copytree(anchor.parent, copy)
        spoil(copy)
        with pytest.raises(TraceError, match=answer):
            merge(trace, request=Request(copy / "traces.otf2", offset_s=0))
        assert told(trace / MERGED) == before


def change(path: Path, old: bytes, new: bytes) -> None:
    """Replace bytes of a file."""
    content = path.read_bytes()
    assert old in content
    path.write_bytes(content.replace(old, new))


def cut(path: Path) -> None:
    """Cut the last bytes off."""
    path.write_bytes(path.read_bytes()[:-3])


def test_snapshots_are_named(tmp_path: Path) -> None:
    """Ids and times in snapshots are those of the archive alone: they stay behind, and the user hears it."""
    trace, host = machine(tmp_path / "T")
    anchor = write_application(tmp_path / "scorep", host, [WRITER])
    (anchor.parent / "traces" / "0.snap").touch()
    assert "1 files of snapshots" in merge(trace, request=Request(anchor, offset_s=0)).notices[0]
