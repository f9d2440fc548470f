"""`lo2io merge`: one archive of many hosts' traces."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import otf2
import pytest
from build.merged_traces import replicate, small_cluster, told, two_processes, write_correction, written
from build.otf2_builder import correct
from lo2io.native._lib import lib

from lo2io.cluster.merge import Merged, _properties, merge
from lo2io.errors import TraceError, UsageError
from lo2io.model import Mount
from lo2io.otf2.library import Library
from lo2io.otf2.merge.part import read_head
from lo2io.otf2.merge.sharing import Share
from lo2io.otf2.read.definitions import read_definitions
from lo2io.otf2.read.events import KINDS, read_events
from lo2io.otf2.write.archive import CHUNK_BYTES
from lo2io.verify import exit_code, verify
from lo2io.verify.completeness import read_reconciliation

if TYPE_CHECKING:
    from lo2io.otf2.read.events import Block

MS = 1_000_000


def suffixed(name: str, host: str) -> str:
    """The name of a host's location in the merged archive."""
    return f"{name} @{host}"


@pytest.mark.parametrize("sched", [False, True])
@pytest.mark.parametrize("mode", ["process", "system"])
def test_merged_is_its_parts(tmp_path: Path, mode: str, sched: bool) -> None:
    """Each location of the merged archive tells what it tells in its host's archive, and all rules are kept."""
    cluster = small_cluster(tmp_path / "T", "ab", mode, sched=sched)
    merged = merge(cluster)
    assert [host["host"] for host in merged.hosts] == ["a", "b"]
    assert not merged.left_out
    found = told(cluster)
    for host in "ab":
        for location, events in told(cluster / f"host={host}").items():
            assert events
            assert found.pop(suffixed(location, host)) == events
    assert not found
    verdict = verify(cluster)
    assert exit_code(verdict) == 0, verdict.findings
    assert not verdict.broken
    of_parts = [verify(cluster / f"host={host}").counts for host in "ab"]
    for name in ("events", "operations", "completed", "locations", "samples", "metrics"):
        assert getattr(verdict.counts, name) == sum(getattr(counts, name) for counts in of_parts), name


def groups(trace: Path) -> list[list[str]]:
    """The members of each group, by name."""
    with otf2.reader.open(str(trace / "traces.otf2")) as reader:
        return [[member.name for member in group.members] for group in reader.definitions.groups]


def test_groups_of_regions_are_one(tmp_path: Path) -> None:
    """The members of each host's group, each once, in the order of their ids."""
    cluster = small_cluster(tmp_path / "T", "ab")
    merge(cluster)
    alone, merged = map(groups, (cluster / "host=a", cluster))
    assert max(map(len, alone)) > 1
    assert merged == alone
    assert [len(set(members)) for members in merged] == [len(members) for members in merged]


def test_a_large_group_is_written_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """libotf2 refuses one of 90,000 regions."""
    cluster = small_cluster(tmp_path / "T", "ab")
    merge(cluster)
    whole = groups(cluster)
    assert max(map(len, whole)) > 1
    monkeypatch.setattr("lo2io.otf2.merge.merger.MAX_MEMBERS", 1)
    shutil.rmtree(cluster / "traces")
    for name in ("traces.otf2", "traces.def"):
        (cluster / name).unlink()
    merge(cluster)
    pieces = groups(cluster)
    assert max(map(len, pieces)) == 1
    assert [name for piece in pieces for name in piece] == [name for group in whole for name in group]
    assert exit_code(verify(cluster)) == 0


def test_the_command_says_how_right_times_are(tmp_path: Path) -> None:
    """Clocks that nobody compared have an unknown error."""
    cluster = small_cluster(tmp_path / "T", "ab")
    line = [Path(sys.executable).parent / "lo2io", "merge", cluster]
    done = subprocess.run(line, capture_output=True, text=True, check=True)
    assert done.stdout == f"{cluster}\n"
    assert "lo2io: 2 hosts, " in done.stderr
    assert "times are right within an unknown error" in done.stderr


def test_other_readers_print_the_same(tmp_path: Path) -> None:
    """`otf2-print` prints as many events of each kind at each time as of the parts."""
    cluster = small_cluster(tmp_path / "T", "abc", "system")
    merge(cluster)

    def printed(trace: Path) -> list[str]:
        done = subprocess.run(
            ["otf2-print", "-Werror", str(trace / "traces.otf2")], capture_output=True, text=True, check=True
        )
        rows = (line.split() for line in done.stdout.splitlines())
        return sorted(f"{row[0]} {row[2]}" for row in rows if len(row) > 2 and row[1].isdecimal())

    parts = [line for host in "abc" for line in printed(cluster / f"host={host}")]
    assert len(parts) > 100
    assert printed(cluster) == sorted(parts)


class Uses:
    """Takes events, and keeps which ids they name."""

    def __init__(self) -> None:
        self.handles: set[tuple[int, int]] = set()
        self.contexts: set[tuple[int, int]] = set()

    def take(self, block: Block) -> None:
        """Take the next block."""
        for event in block.events:
            pair = int(event["location"]), int(event["ref"])
            if event["kind"] in {KINDS[kind] for kind in KINDS if kind.startswith("Io")}:
                self.handles.add(pair)
                if event["kind"] == KINDS["IoDuplicateHandle"]:
                    self.handles.add((pair[0], int(event["second"])))
            if event["kind"] in {KINDS[kind] for kind in KINDS if kind.startswith("CallingContext")}:
                self.contexts.add(pair)


@pytest.mark.parametrize("sched", [False, True])
def test_used_ids_are_those_of_the_events(tmp_path: Path, sched: bool) -> None:
    """`used.ids` names each handle and calling context that events of a location name, and no other."""
    trace = small_cluster(tmp_path / "T", "a", sched=sched) / "host=a"
    rows = np.fromfile(trace / "traces" / "used.ids", "<u8")
    assert (rows[1:] > rows[:-1]).all()

    def listed(kind: int) -> set[tuple[int, int]]:
        return {(int(row) >> 35, int(row) & 0xFFFFFFFF) for row in rows if int(row) >> 32 & 7 == kind}

    library, uses = Library(), Uses()
    with library.reader(trace / "traces.otf2") as reader:
        locations = sorted(read_definitions(library, reader).table("location"))
        assert locations == list(range(len(locations)))
        read_events(library, reader, trace / "traces.otf2", locations, uses)
    assert uses.handles
    assert bool(uses.contexts) == sched
    assert listed(lib.LO2_USED_HANDLE) == uses.handles
    assert listed(lib.LO2_USED_CONTEXT) == uses.contexts


def test_archives_without_used_ids(tmp_path: Path) -> None:
    """An archive of an earlier lo2io has no list of used ids. It is merged all the same, with whole tables."""
    cluster = small_cluster(tmp_path / "T", "ab")
    for host in "ab":
        (cluster / f"host={host}" / "traces" / "used.ids").unlink()
    merged = merge(cluster)
    assert sum("earlier lo2io" in notice for notice in merged.notices) == 2
    found = told(cluster)
    assert found == {
        suffixed(name, host): events for host in "ab" for name, events in told(cluster / f"host={host}").items()
    }
    assert exit_code(verify(cluster)) == 0


def test_the_archive_begins_with_the_host_that_began_first(tmp_path: Path) -> None:
    """The realtime of its first tick is told by the first host, which began 3 µs later."""
    cluster = small_cluster(tmp_path / "T", "ab", "system")
    write_correction(cluster / "host=a", [(0, 5_000)])
    write_correction(cluster / "host=b", [(0, 2_000)])
    merge(cluster, keep_corrections=True)
    whole, first = (read_head(Library(), trace) for trace in (cluster, cluster / "host=a"))
    assert whole.start_ns == first.start_ns + 2_000
    assert whole.realtime_ns == first.realtime_ns - 3_000


@pytest.mark.parametrize(
    "points",
    [
        [(0, 1_000 * 10**9)],
        [(0, 5 * 10**9), (400 * MS, 5 * 10**9 + 20_000)],
        [(0, 7), (9 * MS, 1_000), (20 * MS, -30_000), (10**9, 40_000)],
    ],
)
def test_clocks_are_exact(tmp_path: Path, points: list[tuple[int, int]]) -> None:
    """Injected offset and drift are corrected to the nanosecond, as the tables' times are."""
    cluster = small_cluster(tmp_path / "T", "ab", "system")
    correction = write_correction(cluster / "host=b", points)
    merged = merge(cluster, keep_corrections=True)
    assert [host["clock"] for host in merged.hosts] == ["not aligned", "kept"]
    found = told(cluster)
    nr_checked = 0
    for location, events in told(cluster / "host=b").items():
        times = [event.time for event in events]
        moved = found[suffixed(location, "b")]
        assert [event.time for event in moved] == correction.apply(times).tolist()
        assert [event.facts for event in moved] == [event.facts for event in events]
        nr_checked += len(times)
    assert nr_checked > 50
    assert found[suffixed("CPU 0", "a")] == told(cluster / "host=a")["CPU 0"]
    assert not {"clock.before-start", "clock.after-end", "time.order"} & set(verify(cluster).broken)


def test_clocks_are_aligned(tmp_path: Path) -> None:
    """Merging aligns the clocks by what the hosts' traces say of them, and tells the method and the error."""
    cluster = small_cluster(tmp_path / "T", "ab")
    merged = merge(cluster)
    assert [(host["clock"], host["error_ns"]) for host in merged.hosts] == [("reference", 0), ("realtime", None)]
    assert (cluster / "host=b" / "lo2io" / "clock.arrow").exists()
    assert json.loads((cluster / "cluster.json").read_text(encoding="utf-8"))["hosts"] == merged.hosts


def test_a_correction_that_goes_back_is_refused(tmp_path: Path) -> None:
    """Points whose times do not rise are no correction; the host is left out with the reason."""
    cluster = small_cluster(tmp_path / "T", "ab")
    with pytest.raises(ValueError, match="do not rise"):
        write_correction(cluster / "host=b", [(5, 0), (5, 1)])
    assert "do not rise" in merge(cluster, keep_corrections=True).left_out["b"]


def test_nodes_that_cannot_be_merged_are_named(tmp_path: Path) -> None:
    """A host without a trace, with a cut one, and without its events is left out with the reason. Others are merged."""
    cluster = small_cluster(tmp_path / "T", "abcd")
    (cluster / "host=none" / "spool").mkdir(parents=True)
    definitions = cluster / "host=b" / "traces.def"
    content = definitions.read_bytes()
    definitions.unlink()  # it has a second name
    definitions.write_bytes(content[: len(content) // 2])
    next((cluster / "host=c" / "traces").glob("*.evt")).unlink()
    merged = merge(cluster)
    assert [host["host"] for host in merged.hosts] == ["a", "d"]
    assert merged.left_out["none"] == "it has no trace"
    assert "definitions" in merged.left_out["b"]
    assert "missing" in merged.left_out["c"]
    found = told(cluster)
    assert {name.partition(" @")[2] for name in found} == {"a", "d"}
    assert exit_code(verify(cluster)) == 0


def test_merging_again(tmp_path: Path) -> None:
    """After a host was added, merging replaces the merged archive and leaves the hosts' alone."""
    cluster = small_cluster(tmp_path / "T", "ab")
    merge(cluster)
    before = told(cluster / "host=a")
    replicate(cluster / "host=a", cluster / "host=c")
    assert len(merge(cluster).hosts) == 3
    assert len(told(cluster)) == 3 * len(before)
    assert told(cluster / "host=a") == before
    assert sorted(entry.name for entry in cluster.iterdir()) == [
        *("cluster.json", "host=a", "host=b", "host=c", "traces", "traces.def", "traces.marker", "traces.otf2"),
    ]


def test_a_merge_that_fails_harms_nothing(tmp_path: Path) -> None:
    """Regions and calling contexts do not go together. The hosts' events and the former archive stay as they were."""
    cluster = small_cluster(tmp_path / "T", "ab", "process")
    merge(cluster)
    before = told(cluster)
    other = small_cluster(tmp_path / "other", "z", "system")
    shutil.move(other / "host=z", cluster)
    with pytest.raises(UsageError, match="OTF2 allows one") as raised:
        merge(cluster)
    assert "host a has regions" in raised.value.answer
    assert told(cluster) == before
    for host in "ab":
        assert told(cluster / f"host={host}")
    assert ".part" not in {entry.name for entry in cluster.iterdir()}


def test_refused(tmp_path: Path) -> None:
    """A directory without hosts, without any whole trace, and one with an archive of its own are refused."""
    with pytest.raises(UsageError, match="no folders host=NAME"):
        merge(tmp_path)
    cluster = small_cluster(tmp_path / "T", "a")
    shutil.copytree(cluster / "host=a", cluster, dirs_exist_ok=True)
    with pytest.raises(UsageError, match="is not a merged archive"):
        merge(cluster)
    (tmp_path / "empty" / "host=a").mkdir(parents=True)
    with pytest.raises(TraceError, match="no host has a whole trace"):
        merge(tmp_path / "empty")


def test_archives_of_other_tools_are_left_out(tmp_path: Path) -> None:
    """An archive with definitions that merging does not know is left out, not merged without them."""
    cluster = small_cluster(tmp_path / "T", "a")
    other = correct()
    other.definitions["Parameter", 0] = (0, 0)
    other.write(cluster / "host=other")
    assert "does not know" in merge(cluster).left_out["other"]


def test_files_of_shared_file_systems_unify(tmp_path: Path) -> None:
    """A file on NFS is one file of all hosts; a local one of the same name is one of each host."""
    cluster = small_cluster(tmp_path / "T", "ab", mounts=(Mount(25, 0x801, "/data", "nfs4", "server:/export"),))
    merge(cluster)
    with otf2.reader.open(str(cluster / "traces.otf2")) as archive:
        files = sorted((file.name, file.scope.name) for file in archive.definitions.io_files)
    local = [name for name, scope in files if scope != "cluster"]
    assert ("/data/in", "cluster") in files
    assert ("/data/out", "cluster") in files
    assert len(files) == len(set(files))
    assert all(name.endswith((" @a", " @b")) for name in local)


def test_definitions_are_unified(tmp_path: Path) -> None:
    """Fifty hosts have one host's regions, attributes and metrics; handles that no event names are left out."""
    cluster = small_cluster(tmp_path / "T", [f"n{number:02}" for number in range(50)], "system", sched=True)
    merged = merge(cluster)
    assert len(merged.hosts) == 50
    library = Library()
    with library.reader(cluster / "host=n00" / "traces.otf2") as reader:
        one = read_definitions(library, reader)
    with library.reader(cluster / "traces.otf2") as reader:
        all_hosts = read_definitions(library, reader)
    for kind in ("region", "attribute", "metric-member", "group", "paradigm", "calling-context", "interrupt-generator"):
        assert len(all_hosts.table(kind)) == len(one.table(kind)), kind
    for kind in ("location", "location-group"):
        assert len(all_hosts.table(kind)) == 50 * len(one.table(kind)), kind
    used = np.fromfile(cluster / "host=n00" / "traces" / "used.ids", "<u8")
    handles = {int(row) & 0xFFFFFFFF for row in used if int(row) >> 32 & 7 == lib.LO2_USED_HANDLE}
    assert len(all_hosts.table("handle")) == 50 * len(handles)
    assert exit_code(verify(cluster)) == 0
    assert (cluster / "traces" / "7.evt").stat().st_nlink > 1


def test_properties_add_up(tmp_path: Path) -> None:
    """Counts of the archive are sums; it is proven complete only if each host's is, and none is left out."""
    cluster = small_cluster(tmp_path / "T", "ab")
    merge(cluster)
    library = Library()

    def properties(trace: Path) -> list[str | None]:
        with library.reader(trace / "traces.otf2") as reader:
            names = ("LOST", "SAMPLES", "COMPLETENESS")
            return [library.property(reader, f"LO2IO::{name}") for name in names]

    one, both = properties(cluster / "host=a"), properties(cluster)
    assert [int(text or 0) for text in both[:2]] == [2 * int(text or 0) for text in one[:2]]
    assert (one[2], both[2]) == ("proven", "proven")
    (cluster / "host=c").mkdir()
    merge(cluster)
    assert properties(cluster)[2] == "not proven"


def test_too_small_a_share_of_one_host_is_told_of_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without tables, too, the merged archive is not complete whatever its counters say."""
    monkeypatch.setattr("lo2io.convert.reconcile.shortfall_line", lambda *_: "captured only 3 % of 10 MiB")
    cluster = small_cluster(tmp_path / "T", "a")
    monkeypatch.undo()
    other = small_cluster(tmp_path / "U", "b")
    (other / "host=b").rename(cluster / "host=b")
    merge(cluster)
    assert read_reconciliation(cluster)[1] == "a: captured only 3 % of 10 MiB"


@pytest.mark.parametrize("knows_used_ids", [True, False])
def test_processes_write_the_same(tmp_path: Path, knows_used_ids: bool) -> None:
    """Each byte of the definitions is the same whoever writes them. This process writes some, others the rest."""
    cluster = small_cluster(tmp_path / "T", "abcdefghij", "system", sched=True)
    if not knows_used_ids:
        for host in "abcdefghij":
            (cluster / f"host={host}" / "traces" / "used.ids").unlink()
    merge(cluster)
    alone = written(cluster)
    assert any(name.endswith(".def") and len(content) > 100 for name, content in alone.items())
    with two_processes() as pool:
        merge(cluster, share=Share(pool, 2))
    assert written(cluster) == alone


def test_an_error_of_another_process_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is raised here with its remedy. The former archive stays, and nothing of the new one."""
    cluster = small_cluster(tmp_path / "T", "abc")
    merge(cluster)
    before = written(cluster)

    def refuse(*_: object) -> None:
        raise TraceError(f"write {os.getpid()}", "the disk is full", "make room")

    monkeypatch.setattr("lo2io.otf2.merge.placing._link", refuse)
    with two_processes() as pool, pytest.raises(TraceError, match="the disk is full") as raised:
        merge(cluster, share=Share(pool, 2))
    assert raised.value.tried != f"write {os.getpid()}"
    assert raised.value.remedy == "make room"
    assert written(cluster) == before
    assert ".part" not in {entry.name for entry in cluster.iterdir()}


def test_every_count_is_the_sum_of_all_nodes() -> None:
    """A count that one node does not tell is that of the others. One that no node tells is empty."""
    names = (
        *("LOST", "VANISHED", "LATE", "ORPHAN", "IN_FLIGHT", "SAMPLES", "INFERRED_ENDS", "UNKNOWN_ENDS", "THROTTLED"),
        *("MOVED_EVENTS", "IO_URING_REQUESTS", "IO_URING_NO_DATA", "NR_OWN_CALLS", "NR_OWN_REQUESTS"),
    )
    told = ({name: str(number) for number, name in enumerate(names)}, {"LOST": "5", "THROTTLED": "7"})
    nodes: Any = [
        SimpleNamespace(head=SimpleNamespace(properties=of_node), part=SimpleNamespace(host=host))
        for host, of_node in zip("ab", told, strict=True)
    ]
    found = _properties(nodes, Merged(hosts=[{"host": "a"}, {"host": "b"}]))
    added = {"LOST": 5, "THROTTLED": 7}
    assert {name: found[name] for name in names} == {
        name: number + added.get(name, 0) for number, name in enumerate(names)
    }
    assert _properties(nodes[1:], Merged(hosts=[{"host": "b"}]))["SAMPLES"] == ""


def test_an_archive_with_other_chunks_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Events are copied as they are, chunk by chunk: the sizes have to be those of the merged archive."""
    cluster = small_cluster(tmp_path / "T", "ab")
    monkeypatch.setattr("lo2io.cluster.merge.CHUNK_BYTES", 2 * CHUNK_BYTES)
    with pytest.raises(TraceError, match="no host has a whole trace") as caught:
        merge(cluster)
    assert "a: its archive is not lo2io's own" in caught.value.remedy
