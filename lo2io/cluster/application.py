"""An application's own archive beside the traces of its nodes: which clock it has, and which processes are the same.

In: the archive, and the traces. Out: what :class:`lo2io.otf2.merge.merger.Merger` needs to make it a part, and a
description for ``cluster.json``.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from lo2io.cluster.band import Band
from lo2io.cluster.bridging import BY_CALLS, NEAR, REMEDY, OtherRunError, bridge, by_calls, by_offset, onwards
from lo2io.cluster.clocks import load_clock
from lo2io.cluster.shared import LEAST, possible_threads, recorded_calls, recorded_threads, settle
from lo2io.errors import UsageError
from lo2io.otf2.library import UNDEFINED_U32, Library
from lo2io.otf2.merge.application import read_application
from lo2io.otf2.merge.merger import Joins
from lo2io.otf2.merge.told import read_told
from lo2io.otf2.read.definitions import read_definitions
from lo2io.trace.names import ANCHOR, DIRECTORY
from lo2io.trace.reader import open_trace

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from lo2io.cluster.bridging import Bridge
    from lo2io.cluster.shared import Thread
    from lo2io.otf2.merge.application import Application, Process
    from lo2io.otf2.merge.part import Part
    from lo2io.otf2.merge.told import Told

_PID, _RANK = "Process ID", "MPI rank"
"""Properties of lo2io's location groups."""
_TID, _TASK = "Thread ID", "lo2io task"
"""Properties of lo2io's locations."""
_FIRST_THREAD: Final = "Master thread"
"""Score-P's name of the thread in which a process began (scorep_thread_generic.c)."""


@dataclass(frozen=True, slots=True)
class Request:
    """An application's archive, as the user names it.

    Attributes:
        path: The archive.
        clock: Its clock, one of :data:`lo2io.cluster.bridging.CLOCKS`, or ``calls``; None: to be found.
        offset_s: What to add to its times in seconds; None: to be found.
    """

    path: Path
    clock: str | None = None
    offset_s: float | None = None


@dataclass(frozen=True, slots=True)
class Recorded:
    """A node's trace.

    Attributes:
        part: Where it lies.
        names: What the node is called.
        error_ns: Of its times in the merged archive; None: nobody knows.
    """

    part: Part
    names: frozenset[str]
    error_ns: int | None


@dataclass(slots=True)
class Joined:
    """An application's archive, ready to be merged.

    Attributes:
        application: The archive.
        told: What its events tell.
        bridge: From its ticks to the times of the merged archive.
        nodes: Name of a machine → its node of the application's system tree.
        processes: Of the application.
        settled: Its location → the thread, where shared calls have told it.
        nr_joined: How many of the processes are also lo2io's.
        nr_threads: How many of the threads are.
        notices: What users should know.
    """

    application: Application
    told: Told
    bridge: Bridge
    nodes: dict[str, int]
    processes: list[Process]
    settled: Mapping[int, Thread]
    nr_joined: int = 0
    nr_threads: int = 0
    notices: list[str] = field(default_factory=list)

    @property
    def span(self) -> tuple[int, int]:
        """First and last time in the merged archive."""
        _resolution, start, stop = self.application.clock
        first, last = self.bridge.line.at([start, stop]).tolist()
        return first, last

    def joins(self, library: Library, node: Recorded) -> Joins:
        """The machine, processes and threads of a node that the application's archive has, too.

        A process is found by its pid, else by MPI's rank, else by calls of its threads.
        """
        host = next((self.nodes[name] for name in node.names if name in self.nodes), None)
        if host is None:
            return Joins(UNDEFINED_U32, {}, {})
        own = _read_own(library, node.part)
        there = [process for process in self.processes if process.node == host]
        shared = self._by_calls(node, there)
        groups: dict[int, int] = {}
        names: dict[int, str] = {}
        for process in there:
            threads = {place: shared[place] for place in process.locations if place in shared}
            by_calls = {thread.pid for thread in threads.values()}
            found = own.pids.get(process.pid, []) or own.ranks.get(process.rank, [])
            if not found and len(by_calls) == 1:
                found = own.pids.get(by_calls.pop(), [])
            if len(found) == 1 and found[0] not in groups:
                groups[found[0]] = process.group
                names |= self._names(own, process, found[0], threads, node.part.host)
        self.nr_joined += len(groups)
        self.nr_threads += len(names)
        return Joins(host, groups, names)

    def _names(
        self, own: _Own, process: Process, group: int, shared: Mapping[int, Thread], host: str
    ) -> dict[int, str]:
        """The names of lo2io's locations of threads that the application's archive has, too."""
        names: dict[int, str] = {}
        for place in process.locations:
            name = self.application.definitions.name("location", place)
            thread, tid = shared.get(place), self.told.tid(place)
            if thread is not None:
                found, tid = own.tasks.get(thread.task, []), thread.tid
            else:
                tid = own.pid_of.get(group) if tid is None and name == _FIRST_THREAD else tid
                found = own.tids.get((group, tid), [])
            if len(found) == 1 and found[0] not in names:
                names[found[0]] = f"{name}: I/O (tid {tid}) @{host}"
        return names

    def _by_calls(self, node: Recorded, processes: Sequence[Process]) -> dict[int, Thread]:
        """The threads that calls alone tell: one thread made all calls of a location, each within its region."""
        untold = {
            place: self.told.calls[place]
            for process in processes
            for place in process.locations
            if place in self.told.calls and self.told.tid(place) is None and place not in self.settled
        }
        errors = self.bridge.error_ns, node.error_ns
        if not untold or None in errors or not (node.part.directory / DIRECTORY).exists():
            return dict(self.settled)
        error = sum(each or 0 for each in errors)
        trace = open_trace(node.part.directory)
        candidates = _candidates(processes, self.told, recorded_threads(trace))
        found = possible_threads(untold, candidates, recorded_calls(trace))
        line, correction = self.bridge.line, node.part.correction
        for place, threads in found.items():
            fitting = [thread for thread, pairs in threads.items() if pairs.fit(line, correction, error)]
            if len(fitting) == 1 and len(threads[fitting[0]]) >= LEAST:
                self.settled = {**self.settled, place: fitting[0]}
        return dict(self.settled)

    def description(self) -> dict[str, Any]:
        """For ``cluster.json``."""
        return {
            "archive": str(self.application.anchor),
            "creator": self.application.creator,
            "locations": len(self.application.locations),
            "events": self.application.nr_events,
            "processes": len(self.processes),
            "joined": self.nr_joined,
            "threads": sum(len(process.locations) for process in self.processes),
            "joined_threads": self.nr_threads,
            "clock": self.bridge.method,
            "error_ns": self.bridge.error_ns,
        }


def open_application(library: Library, request: Request, nodes: Sequence[Recorded]) -> Joined:
    """Read an application's archive, and find its clock.

    Raises:
        TraceError: It is no OTF2 archive, or damaged.
        UsageError: Its clock cannot be aligned, or it was written on another machine.
    """
    application = read_application(library, request.path)
    node = _machine(application, nodes, request)
    told = read_told(library, application)
    processes = [
        process if process.pid is not None else replace(process, pid=told.pid(process.locations))
        for process in application.processes()
    ]
    settled: Mapping[int, Thread] = {}
    if request.offset_s is not None:
        bridged = by_offset(application.clock, request.offset_s)
    else:
        found, settled = _bridge(application, told, processes, node, request.clock)
        bridged = onwards(found, node.part.correction, node.error_ns)
    found_nodes = {process.host: process.node for process in processes}
    if application.host in found_nodes:  # under another name, if the user says that it is this machine
        found_nodes.setdefault(node.part.host, found_nodes[application.host])
    notices = [*bridged.notices, *_left_behind(application)]
    return Joined(application, told, bridged, found_nodes, processes, settled, notices=notices)


def _bridge(
    application: Application, told: Told, processes: Sequence[Process], node: Recorded, named: str | None
) -> tuple[Bridge, Mapping[int, Thread]]:
    """The way to the node's time: by a clock that the node reads, else by calls that both recorded."""
    trace = open_trace(node.part.directory)
    clock = load_clock(node.part.host, trace)
    unknown: UsageError | None = None
    if named != BY_CALLS:
        try:
            return bridge(application.anchor, application.clock, clock, named=named), {}
        except OtherRunError:
            raise
        except UsageError as error:
            if named is not None:
                raise
            unknown = error
    there = [process for process in processes if process.host == application.host]
    calls = {place: told.calls[place] for process in there for place in process.locations if place in told.calls}
    possible = possible_threads(calls, _candidates(there, told, recorded_threads(trace)), recorded_calls(trace))
    band = Band.of_clock(application.clock, (clock.start_ns, clock.stop_ns), NEAR)
    try:
        settled = settle(band, calls, possible, tried=f"align {application.anchor} by calls that both recorded")
    except UsageError as error:
        if unknown is None:
            raise
        answer = f"{unknown.answer}; nor do calls that both recorded tell: {error.answer}"
        raise UsageError(unknown.tried, answer, unknown.remedy) from error
    return by_calls(application.clock, settled.band, settled.nr_pairs), settled.threads


def _candidates(processes: Sequence[Process], told: Told, threads: Sequence[Thread]) -> dict[int, list[Thread]]:
    """Location of the application → the threads that may be its own, by all ids that are told."""
    found = {}
    for process in processes:
        of_process = [thread for thread in threads if process.pid is not None and thread.pid == process.pid]
        if not of_process and process.rank is not None:
            of_process = [thread for thread in threads if thread.rank == process.rank]
        for place in process.locations:
            tid = told.tid(place)
            found[place] = [thread for thread in of_process if thread.tid == tid] or of_process or list(threads)
    return found


def _left_behind(application: Application) -> list[str]:
    """Files that a merged archive cannot have: their ids and times are those of the archive alone."""
    found = len(list(application.folder.glob("*.snap")))
    thumbnails = application.anchor.with_suffix(".thumb").exists()
    names = [f"{found:,} files of snapshots"] * bool(found) + ["thumbnails"] * thumbnails
    return [f"not in the merged archive: {' and '.join(names)} of {application.anchor}"] if names else []


def _machine(application: Application, nodes: Sequence[Recorded], request: Request) -> Recorded:
    """The node whose clock is that of the application's archive."""
    host = application.host
    found = [node for node in nodes if host in node.names]
    if found:
        return found[0]
    if len(nodes) == 1 and (request.clock is not None or request.offset_s is not None):
        return nodes[0]
    recorded = ", ".join(sorted(node.part.host for node in nodes)[:5])
    answer = f"it was written on {host or 'an unknown machine'}, and recorded was {recorded}"
    raise UsageError(
        f"merge {application.anchor}", answer, f"name the archive of a recorded run; or, if it is one, {REMEDY}"
    )


@dataclass(slots=True)
class _Own:
    """A node's own archive: by which ids its location groups and locations are found."""

    pids: dict[int | None, list[int]] = field(default_factory=dict)
    ranks: dict[int | None, list[int]] = field(default_factory=dict)
    pid_of: dict[int, int] = field(default_factory=dict)
    tids: dict[tuple[int, int | None], list[int]] = field(default_factory=dict)
    """Group and tid → locations."""
    tasks: dict[int, list[int]] = field(default_factory=dict)
    """Row of the table of threads → its location."""


def _read_own(library: Library, part: Part) -> _Own:
    own = _Own()
    with library.reader(part.directory / ANCHOR) as reader:
        found = read_definitions(library, reader)
    for group, name, _type, value in found.unnamed.get("LocationGroupProperty", ()):
        if found.text(name) == _PID:
            own.pids.setdefault(value, []).append(group)
            own.pid_of[group] = value
        elif found.text(name) == _RANK:
            own.ranks.setdefault(value, []).append(group)
    group_of = {place: values[3] for place, values in found.table("location").items()}
    for place, name, _type, value in found.unnamed.get("LocationProperty", ()):
        if found.text(name) == _TID:
            own.tids.setdefault((group_of[place], value), []).append(place)
        elif found.text(name) == _TASK:
            own.tasks[value] = [place]
    return own
