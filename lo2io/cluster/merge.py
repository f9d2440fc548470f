"""One archive of the traces of many nodes: ``lo2io merge``.

In: the directories ``T/host=NAME``. Out: ``T/traces.otf2`` with all that belongs to it, and ``T/cluster.json``. The
nodes' traces stay as they are. A node without a whole trace is left out, and named with the reason.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from lo2io._version import __version__
from lo2io.cluster.alignment import KEPT, REFERENCE, UNKNOWN, Alignment
from lo2io.cluster.application import Joined, Recorded, open_application
from lo2io.cluster.clocks import align_directory, place_in_job
from lo2io.cluster.layout import CLUSTER_FILE, CORRECTION_FILE, host_folders
from lo2io.errors import TraceError, UsageError
from lo2io.folder import private_umask
from lo2io.otf2.library import UNDEFINED_U32, Library
from lo2io.otf2.merge.flatten import flatten
from lo2io.otf2.merge.merger import Merger
from lo2io.otf2.merge.part import Head, Part, read_head
from lo2io.otf2.merge.sharing import Share
from lo2io.otf2.read.hosts import APPLICATION_PROPERTY, HOSTS_PROPERTY, is_merged
from lo2io.otf2.write.archive import CHUNK_BYTES
from lo2io.trace.correction import load_correction
from lo2io.trace.directory import locked_directory, whole_trace
from lo2io.trace.names import ANCHOR, DIRECTORY, METADATA_FILE

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from lo2io.cluster.application import Request
    from lo2io.folder import Folder
    from lo2io.otf2.merge.merger import Joins, Written

MERGED: Final = "merged"
"""The folder, in the trace of one machine, of the archive that is merged with an application's."""
_NS_RESOLUTION: Final = 1_000_000_000
_SUMS: Final = (
    *("LOST", "VANISHED", "LATE", "ORPHAN", "IN_FLIGHT", "SAMPLES", "INFERRED_ENDS", "UNKNOWN_ENDS", "THROTTLED"),
    *("MOVED_EVENTS", "IO_URING_REQUESTS", "IO_URING_NO_DATA", "NR_OWN_CALLS", "NR_OWN_REQUESTS"),
)
"""Properties that are counts."""


@dataclass(slots=True)
class Merged:
    """What was merged.

    Attributes:
        hosts: One dictionary for each node in the archive, as ``cluster.json`` has it.
        left_out: Node → why its trace is not in the archive.
        notices: Further things that users should know.
        application: The application's archive, as ``cluster.json`` has it; None: there is none.
    """

    hosts: list[dict[str, Any]] = field(default_factory=list)
    left_out: dict[str, str] = field(default_factory=dict)
    notices: list[str] = field(default_factory=list)
    application: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class _Node:
    part: Part
    head: Head
    metadata: dict[str, Any]
    alignment: Alignment | None
    """None: its correction was there, or it has none."""

    @property
    def span(self) -> tuple[int, int]:
        """Begin and end by the clock of all nodes."""
        start, stop = self.head.start_ns, self.head.start_ns + self.head.length_ns
        return self.part.correction.one(start), self.part.correction.one(stop)


def merge(
    directory: Path,
    progress: Callable[[int, int], None] | None = None,
    *,
    keep_corrections: bool = False,
    request: Request | None = None,
    output: Path | None = None,
    share: Share | None = None,
    flat: bool = False,
) -> Merged:
    """Make one archive of the traces in a directory. An archive that merging made before is replaced.

    Args:
        directory: The directory with folders ``host=NAME``.
        keep_corrections: Take the corrections of clocks that lie there, and align nothing.
        progress: Called with the number of nodes that are merged, and of all nodes.
        request: An application's archive that becomes a part. With it, the directory may be a trace of one machine.
        output: The directory of the merged archive; None: :func:`output_of`.
        share: Who else writes the files of locations; None: nobody.
        flat: Rewrite the events, so that they need no local definitions.

    Raises:
        UsageError: There are no folders of nodes; the directory has an archive that is not merged; nodes record in
            different ways; another process writes there.
        TraceError: No node has a whole trace, or the archive cannot be written.
    """
    folders = _folders(directory, request)
    output = output or output_of(directory)
    merged = Merged()
    library = Library()
    with private_umask(), locked_directory(output) as folder:
        _check_replaceable(library, output)
        alignments = [] if keep_corrections else _alignments(directory, folders)
        merged.notices += [notice for alignment in alignments for notice in alignment.notices]
        nodes = _nodes(library, folders, {each.host: each for each in alignments}, merged)
        if not nodes:
            raise TraceError(f"merge {directory}", "no host has a whole trace", _reasons(merged))
        joined = None
        if request is not None:
            joined = open_application(library, request, [_recorded(node) for node in nodes])
            nodes = _behind(nodes, joined)
        with whole_trace(folder, None, force=True) as part:
            with _merger(part.place, output, nodes, joined, share) as merger:
                for done, node in enumerate(nodes):
                    _add(merger, node, merged, joined.joins(library, _recorded(node)) if joined else None)
                    if progress is not None:
                        progress(done + 1, len(nodes))
                merger.close(_properties(nodes, merged) | _application_properties(joined))
            if flat:
                flatten(part.place, share or Share(), progress)
        if joined is not None:
            merged.application = joined.description()
            merged.notices += joined.notices
        _write_description(folder, merged)
    return merged


def _alignments(directory: Path, folders: Mapping[str, Path]) -> list[Alignment]:
    """The alignments of all nodes. One machine's trace has the clock of the archive."""
    if directory in folders.values():
        return [Alignment(host, REFERENCE, [], 0) for host in folders]
    return align_directory(directory)


def output_of(directory: Path) -> Path:
    """Where the merged archive lies: beside the nodes. One machine's trace has an archive, so there it is a folder."""
    return directory if directory.is_dir() and host_folders(directory) else directory / MERGED


def _folders(directory: Path, request: Request | None) -> dict[str, Path]:
    """Host → the folder of its trace."""
    folders = host_folders(directory) if directory.is_dir() else {}
    if not folders and request is not None and (directory / ANCHOR).exists():
        return {str(_metadata(directory).get("hostname") or "localhost"): directory}
    if not folders:
        remedy = (
            "name the directory of a recording on many nodes; one machine's trace is merged --with an application's"
        )
        raise UsageError(f"merge {directory}", "it has no folders host=NAME", remedy)
    return folders


def _recorded(node: _Node) -> Recorded:
    names = frozenset({node.part.host, str(node.metadata.get("hostname") or node.part.host)})
    return Recorded(node.part, names, node.alignment.error_ns if node.alignment else None)


def _behind(nodes: list[_Node], joined: Joined) -> list[_Node]:
    """The nodes with numbers that end the id of no location of the application."""
    first = joined.application.first_number
    if first + len(nodes) >= UNDEFINED_U32:
        answer = f"the id of a location ends with {first - 1:,}"
        raise UsageError(f"merge {joined.application.anchor}", answer, "there is none: please report it")
    return [replace(node, part=replace(node.part, number=first + node.part.number)) for node in nodes]


def _merger(place: Path, output: Path, nodes: Sequence[_Node], joined: Joined | None, share: Share | None) -> Merger:
    nr_locations = sum(node.head.nr_locations for node in nodes)
    if joined is None:
        return Merger(place, _clock(nodes), nr_locations, output, share=share)
    nr_locations += len(joined.application.locations)
    application, correct = joined.application, joined.bridge.correct
    clock = _clock(nodes, joined.span)
    return Merger(place, clock, nr_locations, output, application=application, correct=correct, share=share)


def _application_properties(joined: Joined | None) -> dict[str, object]:
    if joined is None:
        return {}
    error = joined.bridge.error_ns
    return {
        APPLICATION_PROPERTY: joined.application.first_number,
        "APPLICATION_CLOCK": joined.bridge.method,
        "APPLICATION_ERROR_NS": "unknown" if error is None else error,
    }


def _check_replaceable(library: Library, directory: Path) -> None:
    """Refuse to replace an archive that is the only copy of its events."""
    if not (directory / ANCHOR).exists():
        return
    with library.reader(directory / ANCHOR) as reader:
        merged = is_merged(library, reader)
    if not merged:
        raise UsageError(f"merge {directory}", f"its {ANCHOR} is not a merged archive", "move it to another directory")


def _nodes(
    library: Library, folders: dict[str, Path], alignments: Mapping[str, Alignment], merged: Merged
) -> list[_Node]:
    """The nodes that can be merged, in the order of the job's nodes, others after them by name."""
    found = []
    for host, folder in folders.items():
        try:
            head = read_head(library, folder)
            metadata = _metadata(folder)
            correction = load_correction(folder / DIRECTORY / CORRECTION_FILE)
        except TraceError as error:
            merged.left_out[host] = _reason(folder, error)
            continue
        if head.chunk_bytes != CHUNK_BYTES or head.resolution != _NS_RESOLUTION:
            merged.left_out[host] = f"its archive is not lo2io's own, but of {head.creator or 'another tool'}"
            continue
        found.append((host, folder, head, metadata, correction))
    found.sort(key=lambda each: (place_in_job(each[3]), each[0]))
    return [
        _Node(Part(host, number, folder, correction), head, metadata, alignments.get(host))
        for number, (host, folder, head, metadata, correction) in enumerate(found)
    ]


def _reason(folder: Path, error: TraceError) -> str:
    return str(error) if (folder / ANCHOR).exists() else "it has no trace"


def _reasons(merged: Merged) -> str:
    return "; ".join(f"{host}: {reason}" for host, reason in list(merged.left_out.items())[:5])


def _metadata(folder: Path) -> dict[str, Any]:
    """What the node's tables say of its recording. An archive without tables can be merged."""
    try:
        found = json.loads((folder / DIRECTORY / METADATA_FILE).read_bytes())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _clock(nodes: Sequence[_Node], *spans: tuple[int, int]) -> tuple[int, int, int, int]:
    """Resolution, first tick, length, and realtime of the first tick, of the nodes and of these spans."""
    start = min(start for start, _ in (*(node.span for node in nodes), *spans))
    stop = max(stop for _, stop in (*(node.span for node in nodes), *spans))
    first = nodes[0]
    realtime = first.head.realtime_ns - (first.span[0] - start)
    return _NS_RESOLUTION, max(start, 0), stop - max(start, 0), realtime


def _add(merger: Merger, node: _Node, merged: Merged, joins: Joins | None = None) -> None:
    part = node.part
    try:
        read = merger.read(part)
    except TraceError as error:
        merged.left_out[part.host] = str(error)
        return
    written = merger.write(read, joins)
    merged.hosts.append(_description(node, written))
    if not written.knows_used_ids:
        merged.notices.append(f"host {part.host} was converted by an earlier lo2io: its tables of ids are whole")


def _description(node: _Node, written: Written) -> dict[str, Any]:
    start_ns, stop_ns = node.span
    return {
        "host": node.part.host,
        "number": node.part.number,
        "version": node.head.properties.get("VERSION", ""),
        "boot_id": node.metadata.get("boot_id", ""),
        "locations": written.nr_locations,
        "events": written.nr_events,
        "start_ns": start_ns,
        "stop_ns": stop_ns,
        "clock": node.alignment.method if node.alignment else KEPT if len(node.part.correction) else UNKNOWN,
        "error_ns": node.alignment.error_ns if node.alignment else None,
        "completeness": node.head.properties.get("COMPLETENESS", ""),
    }


def _properties(nodes: Sequence[_Node], merged: Merged) -> dict[str, object]:
    """The properties of the archive: counts of all nodes, and what holds only if it holds for each node."""
    there = {host["host"] for host in merged.hosts}
    heads = [node.head.properties for node in nodes if node.part.host in there]
    facts: dict[str, object] = {"VERSION": __version__, HOSTS_PROPERTY: len(merged.hosts)}
    for name in _SUMS:
        found = [int(head[name]) for head in heads if head.get(name, "").isdecimal()]
        facts[name] = sum(found) if found else ""
    proven = not merged.left_out and all(head.get("COMPLETENESS") == "proven" for head in heads)
    facts["COMPLETENESS"] = "proven" if proven else "not proven"
    for name in ("FILTER", "IO_URING_SAMPLE_RATE"):
        facts[name] = "; ".join(dict.fromkeys(head[name] for head in heads if name in head))
    short = {node.part.host: node.head.properties.get("SHORTFALL") for node in nodes if node.part.host in there}
    facts["SHORTFALL"] = "; ".join(f"{host}: {text}" for host, text in short.items() if text)
    return facts


def _write_description(folder: Folder, merged: Merged) -> None:
    """Write ``cluster.json``, which is whole or not there."""
    versions = dict.fromkeys(host["version"] for host in merged.hosts)
    if len(versions) > 1:
        merged.notices.append(f"hosts were converted by several versions of lo2io: {', '.join(versions)}")
    content = {"version": __version__, "hosts": merged.hosts, "left_out": merged.left_out, "notices": merged.notices}
    if merged.application is not None:
        content["application"] = merged.application
    part = f"{CLUSTER_FILE}.part"
    folder.remove(part)
    folder.write(part, json.dumps(content, indent=1).encode() + b"\n")
    os.rename(part, CLUSTER_FILE, src_dir_fd=folder.fd, dst_dir_fd=folder.fd)
