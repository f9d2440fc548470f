"""`lo2io merge --flatten`: events that need no local definitions."""

from __future__ import annotations

import inspect
import json
import subprocess
from typing import TYPE_CHECKING, Any

import _otf2
import pytest
from build.application_archive import write_application
from build.merged_traces import small_cluster, told, two_processes, write_correction
from build.otf2_builder import START, correct

from lo2io.cluster.application import Request
from lo2io.cluster.merge import merge
from lo2io.errors import TraceError
from lo2io.otf2.foreign.opening import open_any
from lo2io.otf2.library import Library
from lo2io.otf2.merge.flatten import flatten
from lo2io.otf2.merge.sharing import Share
from lo2io.otf2.read.events import read_events
from lo2io.otf2.write.archive import CHUNK_BYTES
from lo2io.reports.summary.summary import summarize, to_json
from lo2io.verify import exit_code, verify

if TYPE_CHECKING:
    from pathlib import Path

    from lo2io.otf2.read.events import Block

EMPTY_BYTES = 20
"""Of a file of local definitions that holds none: the header of a chunk, and the end."""


def printed(trace: Path) -> str:
    """What `otf2-print` makes of an archive: it maps ids and corrects times."""
    line = ["otf2-print", str(trace / "traces.otf2")]
    return subprocess.run(line, capture_output=True, text=True, check=True).stdout


class Rows:
    """Takes events, and keeps them."""

    def __init__(self) -> None:
        self.rows: list[Any] = []

    def take(self, block: Block) -> None:
        """Take the next block."""
        self.rows += block.events[["time", "location", "kind", "ref", "second", "bytes", "ident"]].tolist()


def mapped(trace: Path) -> list[Any]:
    """The events with the ids and times that local definitions give them."""
    places = sorted(int(path.stem) for path in (trace / "traces").glob("*.evt"))
    library, rows = Library(), Rows()
    with library.reader(trace / "traces.otf2") as reader:
        read_events(library, reader, trace / "traces.otf2", places, rows)
    return rows.rows


def raw(trace: Path) -> list[Any]:
    """The events as their files have them."""
    for path in (trace / "traces").glob("*.def"):
        path.unlink()
    return mapped(trace)


def report(trace: Path) -> dict[str, Any]:
    """The report of an archive without tables, but where it lies."""
    with open_any(trace) as archive:
        found: dict[str, Any] = json.loads(to_json(summarize(archive)))
    del found["trace"], found["foreign"]["trace"], found["foreign"]["anchor"]
    return found


def cluster_of(tmp_path: Path, mode: str = "system", **changes: object) -> Path:
    """Three hosts, whose clocks are far apart."""
    cluster = small_cluster(tmp_path / "T", "abc", mode, **changes)
    for number, host in enumerate("bc"):
        write_correction(cluster / f"host={host}", [(0, 10**12 * number), (9_000_000, 10**12 * number + 1_000)])
    return cluster


@pytest.mark.parametrize(("mode", "sched"), [("process", False), ("system", True)])
def test_flattened_is_linked(tmp_path: Path, mode: str, sched: bool) -> None:
    """Readers that map see the same in both archives; others see it in the flattened one alone."""
    cluster = cluster_of(tmp_path, mode, sched=sched)
    linked, flat = tmp_path / "linked", tmp_path / "flat"
    for output in (linked, flat):
        output.mkdir()
        merge(cluster, keep_corrections=True, output=output, flat=output == flat)
    assert {path.stat().st_size for path in (flat / "traces").glob("*.def")} == {EMPTY_BYTES}
    assert printed(flat) == printed(linked)
    assert told(flat) == told(linked)
    verdict = verify(flat)
    assert exit_code(verdict) == 0, verdict.findings
    assert verdict.counts == verify(linked).counts
    assert report(flat) == report(linked)
    truth = mapped(linked)
    assert len(truth) > 100
    assert raw(flat) == truth
    assert raw(linked) != truth


def test_processes_flatten_alike(tmp_path: Path) -> None:
    """Each byte of the files of locations is the same whoever writes them."""
    cluster = cluster_of(tmp_path)
    written = []
    for others in (0, 2):
        with two_processes() as pool:
            merge(cluster, keep_corrections=True, share=Share(pool, others), flat=True)
        written.append({path.name: path.read_bytes() for path in (cluster / "traces").iterdir()})
    assert written[0] == written[1]
    assert sorted(entry.name for entry in cluster.iterdir()) == [
        *("cluster.json", "host=a", "host=b", "host=c", "traces", "traces.def", "traces.marker", "traces.otf2"),
    ]


def test_with_an_application(tmp_path: Path) -> None:
    """Its events bear corrected times, too; all its ids are global already."""
    cluster = cluster_of(tmp_path, "process")
    anchor = write_application(tmp_path / "scorep", "a", [None, None])
    found = []
    for flat in (False, True):
        merge(cluster, keep_corrections=True, request=Request(anchor, offset_s=0.002), flat=flat)
        found.append(printed(cluster))
    assert found[0] == found[1]
    assert raw(cluster) != raw(tmp_path / "scorep")


def arguments_of(event: str) -> tuple[Any, ...]:
    """Arguments that differ from each other, for an event's writer."""
    if event == "Metric":
        return 1, [_otf2.TYPE_UINT64, _otf2.TYPE_DOUBLE], [_otf2.MetricValue(5), _otf2.MetricValue(7)]
    if event == "ProgramBegin":
        return 3, [4, 5]
    return tuple(range(1, len(inspect.signature(getattr(_otf2, f"EvtWriter_{event}")).parameters) - 2))


def test_every_kind_of_event(tmp_path: Path) -> None:
    """Whatever this libotf2 reads is written with all its arguments and attributes."""
    trace = correct()
    kinds = [event for event in Library().setters("EvtReader") if event != "Unknown"]
    assert len(kinds) > 80
    attributes = {0: (_otf2.TYPE_UINT64, 12), 1: (_otf2.TYPE_STRING, 3)}
    trace.events[1] = [(event, START + at, *arguments_of(event), attributes) for at, event in enumerate(kinds)]
    archive = trace.write(tmp_path / "T")
    for location in trace.events:
        (archive / "traces" / f"{location}.def").touch()
    events = (archive / "traces" / "1.evt").read_bytes()
    assert len(events) > 10 * len(kinds)
    flatten(archive, Share())
    assert (archive / "traces" / "1.evt").read_bytes() == events


def test_large_chunks(tmp_path: Path) -> None:
    """An archive's own size of chunks counts: Score-P's chunks are larger than lo2io's."""
    trace = correct()
    trace.chunk_bytes = 4 * CHUNK_BYTES
    trace.events[1] = [("Enter", START + at, 1) for at in range(40_000)]
    archive = trace.write(tmp_path / "T")
    for location in trace.events:
        (archive / "traces" / f"{location}.def").touch()
    events = (archive / "traces" / "1.evt").read_bytes()
    assert CHUNK_BYTES < len(events) < trace.chunk_bytes
    flatten(archive, Share())
    assert (archive / "traces" / "1.evt").read_bytes() == events


def test_a_cut_file_is_refused(tmp_path: Path) -> None:
    """Events that cannot be read to their end make an error; the former archive stays."""
    cluster = cluster_of(tmp_path)
    merge(cluster, keep_corrections=True)
    before = printed(cluster)
    events = max((cluster / "host=b" / "traces").glob("*.evt"), key=lambda path: path.stat().st_size)
    content = events.read_bytes()
    events.unlink()  # it has other names
    events.write_bytes(content[: len(content) // 2])
    # libotf2 may take the bytes beyond the cut for an event. Then it refuses to write this event.
    with pytest.raises(TraceError, match=r"(rewriting the events|OTF2_EvtWriter_\w+) of location"):
        merge(cluster, keep_corrections=True, flat=True)
    assert printed(cluster) == before
    assert ".part" not in {entry.name for entry in cluster.iterdir()}
