"""What an application's events tell: ids of processes and threads, and calls."""

from __future__ import annotations

from typing import TYPE_CHECKING

import otf2
import pytest
from build.application_archive import OwnThread, write_calls
from otf2.enums import Type

from lo2io.errors import TraceError
from lo2io.otf2.library import Library
from lo2io.otf2.merge.application import read_application
from lo2io.otf2.merge.told import CALLS, UNKNOWN, Told, read_told

if TYPE_CHECKING:
    from pathlib import Path

FAILED = 2**64 - 1


def told_by(anchor: Path) -> Told:
    """What the events of an archive tell."""
    library = Library()
    return read_told(library, read_application(library, anchor))


@pytest.mark.parametrize("contexts", [False, True])
def test_calls_are_regions_of_their_names(tmp_path: Path, contexts: bool) -> None:
    """Functions for large files make the same calls. An operation is nearer to the call than its region."""
    threads = [
        OwnThread("Process", "Master thread"),
        OwnThread(
            "Process",
            "Pthread thread 1",
            [
                ("write", 100, 90, 10, 20),
                ("open", None, None, 30, 40),
                ("pread64", 8, FAILED, 50, 60),
                ("fsync", None, None, 70, 80),
                ("fwrite", 7, 7, 90, 95),
            ],
        ),
    ]
    found = told_by(write_calls(tmp_path / "own", "n1", threads, contexts=contexts)).calls
    assert list(found) == [1]
    assert found[1].begin.tolist() == [10, 50, 69]
    assert found[1].end.tolist() == [20, 60, 81]
    wanted = [
        (CALLS.index("write"), 100, 90),
        (CALLS.index("pread"), 8, UNKNOWN),
        (CALLS.index("fsync"), UNKNOWN, UNKNOWN),
    ]
    assert [tuple(row) for row in found[1].keys.tolist()] == wanted


def test_a_region_with_another_call_inside_is_no_call(tmp_path: Path) -> None:
    """A function that makes its call by another one of these: the inner one is the call."""
    with otf2.writer.open(str(tmp_path / "own"), timer_resolution=1) as writer:
        new = writer.definitions
        group = new.location_group("Process", system_tree_parent=new.system_tree_node("n1", class_name="node"))
        read, pread = (new.region(name) for name in ("read", "pread"))
        events = writer.event_writer_from_location(new.location("Master thread", group=group))
        for time, step in enumerate((events.enter, events.enter, events.leave, events.leave), 1):
            step(time, pread if time in (2, 3) else read)
    found = told_by(tmp_path / "own" / "traces.otf2").calls[0]
    assert (found.begin.tolist(), found.end.tolist(), found.keys[:, 0].tolist()) == ([2], [3], [CALLS.index("pread")])


def test_ids_are_attributes_of_events(tmp_path: Path) -> None:
    """As Score-P writes them: a process id alone is the thread's, too. What is told twice is not told."""
    threads = [
        OwnThread("Process", "Master thread", ids={"ProcessId": 700}),
        OwnThread("Process", "Pthread thread 1", ids={"ThreadId": 701}),
        OwnThread("Process", "Pthread thread 2"),
        OwnThread("Other", "Master thread", ids={"ProcessId": 800, "ThreadId": 802}),
    ]
    found = told_by(write_calls(tmp_path / "own", "n1", threads))
    assert [found.tid(location) for location in range(4)] == [700, 701, None, 802]
    assert [found.pid(locations) for locations in ([0, 1, 2], [1, 2], [3])] == [700, None, 800]
    found.tids[1].add(703)
    found.pids[2] = {701}
    assert found.tid(1) is None
    assert found.pid([0, 2]) is None


def test_events_without_a_subject_are_not_read(tmp_path: Path) -> None:
    """An archive that defines neither ids nor calls is not read: here, its events are damaged."""
    library = Library()
    for name in ("open", "write"):
        threads = [OwnThread("Process", "Master thread", [(name, None, None, 30, 40)])]
        application = read_application(library, write_calls(tmp_path / name, "n1", threads))
        (application.folder / "0.evt").write_bytes(b"no events")
        if name == "open":
            assert read_told(library, application) == Told()
        else:
            with pytest.raises(TraceError):
                read_told(library, application)


def test_values_of_metrics_are_no_ids(tmp_path: Path) -> None:
    """They lie beside attributes, and look as if they were of the first one."""
    with otf2.writer.open(str(tmp_path / "own"), timer_resolution=1) as writer:
        new = writer.definitions
        attributes = {new.attribute("ProcessId", "", Type.UINT64): 700}
        group = new.location_group("Process", system_tree_parent=new.system_tree_node("n1", class_name="node"))
        metric = new.metric_class((new.metric_member("PAPI_TOT_INS", value_type=Type.UINT64),))
        events = writer.event_writer_from_location(new.location("Master thread", group=group))
        events.metric(1, metric, (17,))
        events.program_begin(2, "app", (), attributes=attributes)
        events.metric(3, metric, (18,))
    assert told_by(tmp_path / "own" / "traces.otf2").pids == {0: {700}}
