"""Reads a trace from end to end and holds it to the rules."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lo2io.errors import TraceError
from lo2io.verify.definition_rules import check_definitions
from lo2io.verify.definitions import Definitions, read_definitions
from lo2io.verify.ends import check_ends
from lo2io.verify.events import EventRules
from lo2io.verify.library import Library
from lo2io.verify.markers import check_markers
from lo2io.verify.reader import SION, read_events
from lo2io.verify.rules import Verification

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from lo2io.verify.rings import RingCounts

ANCHOR = "traces.otf2"
_PARTIAL = ("LO2IO::FILTER", "LO2IO::IO_URING_SAMPLE_RATE")
"""Properties of traces that lack what was recorded."""


def find_anchor(trace: Path) -> Path:
    """The ``.otf2`` file of a trace given as that file or as its directory.

    Raises:
        TraceError: there is none, or the directory holds several.
    """
    tried = f"opening the trace {trace}"
    remedy = "give the directory or the .otf2 file of an OTF2 trace"
    if not trace.exists():
        raise TraceError(tried, "no such file or directory", remedy)
    if trace.is_file():
        if trace.suffix != ".otf2":
            raise TraceError(tried, "its name does not end in .otf2", remedy)
        return trace
    if (trace / ANCHOR).is_file():
        return trace / ANCHOR
    anchors = sorted(trace.glob("*.otf2"))
    if len(anchors) != 1:
        raise TraceError(tried, f"the directory holds {len(anchors) or 'no'} .otf2 files", remedy)
    return anchors[0]


def verify(trace: Path, progress: Callable[[int], None] | None = None) -> Verification:
    """Hold an OTF2 trace, whoever wrote it, to every rule of :data:`lo2io.verify.rules.RULES`.

    Args:
        trace: the trace's directory or its ``.otf2`` file.
        progress: called now and then with the number of events read so far.

    Returns:
        The verdict. Memory grows with the number of definitions and with the matching ids (about a bit each where
        they are dense), not with the number of events.

    Raises:
        TraceError: not a trace, or files of it are missing, truncated or unreadable.
    """
    anchor = find_anchor(trace)
    verdict = Verification(str(trace))
    library = Library()
    with library.reader(anchor) as reader:
        check_ends(anchor)
        definitions = read_definitions(library, reader)
        check_definitions(definitions, verdict)
        readable = readable_locations(anchor, definitions, verdict)
        check_markers(library, reader, anchor, definitions, verdict)
        partial = any(library.property(reader, name) for name in _PARTIAL)
        rules = EventRules(definitions, readable, verdict, partial=partial)
        read_events(library, reader, anchor, readable, rules, progress=progress)
        rules.finish()
    _check_tables(anchor, verdict, rules.rings.counts)
    _count(definitions, verdict)
    return verdict


def _check_tables(anchor: Path, verdict: Verification, counts: RingCounts) -> None:
    from lo2io.tables import DIRECTORY, METADATA_FILE, open_trace  # noqa: PLC0415 -- pyarrow takes a while
    from lo2io.verify.files import FileRules, check_rows, knows_paths  # noqa: PLC0415
    from lo2io.verify.tables import TableRules, has_rings  # noqa: PLC0415

    if (anchor.parent / DIRECTORY / METADATA_FILE).exists():
        trace = open_trace(anchor.parent)
        check_rows(trace, verdict)
        if has_rings(trace.metadata):
            TableRules(trace, verdict).check(counts)
        if knows_paths(trace):
            FileRules(trace, verdict).check()


def _count(definitions: Definitions, verdict: Verification) -> None:
    counts = verdict.counts
    counts.handles = len(definitions.table("handle"))
    counts.files = len(definitions.table("file"))
    counts.regions = len(definitions.table("region"))
    counts.calling_contexts = len(definitions.table("calling-context"))
    counts.locations = len(definitions.table("location"))
    counts.location_groups = len(definitions.table("location-group"))
    named = {finding.location for finding in verdict.findings if finding.location is not None}
    verdict.locations = {ref: definitions.name("location", ref) for ref in sorted(named)}


def readable_locations(anchor: Path, definitions: Definitions, verdict: Verification) -> list[int]:
    """The locations that have events to read.

    A location without events needs no file. Traces in one SION file have none at all: the library knows.
    """
    directory = anchor.with_suffix("")
    files = {int(path.stem) for path in directory.glob("*.evt") if path.stem.isdecimal()}
    locations = definitions.table("location")
    for ref in sorted(files - locations.keys()):
        verdict.report("reference.location", f"{directory.name}/{ref}.evt: location {ref} is not defined", location=ref)
    counted = {ref for ref, values in locations.items() if values[2]}
    if (directory / SION).exists():
        return sorted(counted)
    missing = sorted(counted - files)
    if missing:
        raise TraceError(
            f"reading the events of location {missing[0]}",
            f"{directory / f'{missing[0]}.evt'} does not exist ({len(missing)} of {len(locations)} files are missing)",
            "copy the whole trace: the .otf2 and .def files and the directory beside them",
        )
    return sorted(files & locations.keys())
