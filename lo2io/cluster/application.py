"""An application's own archive beside the traces of its nodes: which clock it has, and which processes are the same.

In: the archive, and the traces. Out: what :class:`lo2io.otf2.merge.merger.Merger` needs to make it a part, and a
description for ``cluster.json``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from lo2io.cluster.bridging import REMEDY, bridge, by_offset, onwards
from lo2io.cluster.clocks import load_clock
from lo2io.errors import UsageError
from lo2io.otf2.library import UNDEFINED_U32, Library
from lo2io.otf2.merge.application import read_application
from lo2io.otf2.merge.merger import Joins
from lo2io.otf2.read.definitions import read_definitions
from lo2io.trace.names import ANCHOR
from lo2io.trace.reader import open_trace

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from lo2io.cluster.bridging import Bridge
    from lo2io.otf2.merge.application import Application, Process
    from lo2io.otf2.merge.part import Part

_PID, _RANK = "Process ID", "MPI rank"
"""Properties of lo2io's location groups."""


@dataclass(frozen=True, slots=True)
class Request:
    """An application's archive, as the user names it.

    Attributes:
        path: The archive.
        clock: Its clock, one of :data:`lo2io.cluster.bridging.CLOCKS`; None: to be found.
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
        bridge: From its ticks to the times of the merged archive.
        nodes: Name of a machine → its node of the application's system tree.
        processes: Of the application.
        nr_joined: How many of them are also lo2io's.
        notices: What users should know.
    """

    application: Application
    bridge: Bridge
    nodes: dict[str, int]
    processes: list[Process]
    nr_joined: int = 0
    notices: list[str] = field(default_factory=list)

    @property
    def span(self) -> tuple[int, int]:
        """First and last time in the merged archive."""
        _resolution, start, stop = self.application.clock
        first, last = self.bridge.line.at([start, stop]).tolist()
        return first, last

    def joins(self, library: Library, node: Recorded) -> Joins:
        """The machine and processes of a node that the application's archive has, too: by pid, else by MPI's rank."""
        host = next((self.nodes[name] for name in node.names if name in self.nodes), None)
        if host is None:
            return Joins(UNDEFINED_U32, {})
        pids, ranks = _groups(library, node.part)
        groups: dict[int, int] = {}
        for process in self.processes:
            if process.node != host:
                continue
            found = pids.get(process.pid, []) or ranks.get(process.rank, [])
            if len(found) == 1 and found[0] not in groups:
                groups[found[0]] = process.group
        self.nr_joined += len(groups)
        return Joins(host, groups)

    def description(self) -> dict[str, Any]:
        """For ``cluster.json``."""
        return {
            "archive": str(self.application.anchor),
            "creator": self.application.creator,
            "locations": len(self.application.locations),
            "events": self.application.nr_events,
            "processes": len(self.processes),
            "joined": self.nr_joined,
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
    if request.offset_s is not None:
        bridged = by_offset(application.clock, request.offset_s)
    else:
        clock = load_clock(node.part.host, open_trace(node.part.directory))
        found = bridge(application.anchor, application.clock, clock, named=request.clock)
        bridged = onwards(found, node.part.correction, node.error_ns)
    processes = application.processes()
    found_nodes = {process.host: process.node for process in processes}
    if application.host in found_nodes:  # under another name, if the user says that it is this machine
        found_nodes.setdefault(node.part.host, found_nodes[application.host])
    return Joined(application, bridged, found_nodes, processes, notices=[*bridged.notices, *_left_behind(application)])


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


_Groups = dict[int | None, list[int]]


def _groups(library: Library, part: Part) -> tuple[_Groups, _Groups]:
    """Pid and rank → location groups of a node's archive."""
    pids: _Groups = {}
    ranks: _Groups = {}
    with library.reader(part.directory / ANCHOR) as reader:
        found = read_definitions(library, reader)
    for group, name, _type, value in found.unnamed.get("LocationGroupProperty", ()):
        for wanted, groups in ((_PID, pids), (_RANK, ranks)):
            if found.text(name) == wanted:
                groups.setdefault(value, []).append(group)
    return pids, ranks
