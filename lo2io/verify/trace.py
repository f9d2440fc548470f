"""Reads a trace from end to end and checks it against the rules."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lo2io.otf2.library import Library
from lo2io.otf2.read.anchor import find_anchor, readable_locations
from lo2io.otf2.read.definitions import Definitions, read_definitions
from lo2io.otf2.read.ends import check_ends
from lo2io.otf2.read.events import read_events
from lo2io.otf2.read.hosts import application_of, by_host, is_merged
from lo2io.trace.names import DIRECTORY, METADATA_FILE
from lo2io.verify.definition_rules import check_definitions
from lo2io.verify.events import EventRules
from lo2io.verify.markers import check_markers
from lo2io.verify.rules import Verification

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from lo2io.trace.reader import Trace
    from lo2io.verify.told import ToldWriteBacks

_PARTIAL = ("LO2IO::FILTER", "LO2IO::IO_URING_SAMPLE_RATE", "LO2IO::IO_URING_NO_DATA")
"""Properties of traces from which requests were left out, though other requests may name them."""


def verify(trace: Path, progress: Callable[[int], None] | None = None) -> Verification:
    """Check an OTF2 trace of any tool against every rule of :data:`lo2io.verify.rules.RULES`.

    Args:
        trace: The trace's directory or its ``.otf2`` file.
        progress: Called now and then with the number of events read so far.

    Returns:
        The verdict. Memory grows with the number of definitions and of matching ids (about a bit for each id if ids
        are dense), not with the number of events. Of a merged archive, it grows with the ids of one host.

    Raises:
        TraceError: This is no trace, or files of it are missing, truncated or unreadable.
    """
    anchor = find_anchor(trace)
    verdict = Verification(str(trace))

    def undefined(location: int, file: str) -> None:
        verdict.report("reference.location", f"{file}: location {location} is not defined", location=location)

    library = Library()
    with library.reader(anchor) as reader:
        check_ends(anchor)
        definitions = read_definitions(library, reader)
        check_definitions(definitions, verdict)
        readable = readable_locations(anchor, definitions, undefined)
        check_markers(library, reader, anchor, definitions, verdict)
        partial = any(library.property(reader, name) for name in _PARTIAL)
        merged = is_merged(library, reader)
        verdict.application = application_of(library, reader)
        rules = EventRules(definitions, verdict, partial=partial, compared=_has_tables(anchor))
        _read(library, anchor, by_host(definitions, readable) if merged else [readable], rules, progress)
        rules.finish()
    _check_tables(anchor, verdict, rules)
    _count(definitions, verdict)
    return verdict


def _read(
    library: Library,
    anchor: Path,
    parts: Sequence[Sequence[int]],
    rules: EventRules,
    progress: Callable[[int], None] | None,
) -> None:
    """Read all parts of the locations, each by a reader of its own."""
    done = 0

    def step(number: int) -> None:
        if progress is not None:
            progress(done + number)

    for locations in parts:
        rules.start(locations)
        with library.reader(anchor) as reader:
            read_events(library, reader, anchor, locations, rules, progress=step)
        done += sum(rules.locations[ref].events for ref in locations)


def _has_tables(anchor: Path) -> bool:
    return (anchor.parent / DIRECTORY / METADATA_FILE).exists()


def _check_tables(anchor: Path, verdict: Verification, rules: EventRules) -> None:
    from lo2io.trace.reader import open_trace  # noqa: PLC0415 -- pyarrow takes a while
    from lo2io.verify.calls import check_calls  # noqa: PLC0415
    from lo2io.verify.files import FileRules, check_rows, knows_paths  # noqa: PLC0415
    from lo2io.verify.fuse import check_fuse  # noqa: PLC0415
    from lo2io.verify.futexes import check_futexes  # noqa: PLC0415
    from lo2io.verify.tables import TableRules, has_rings  # noqa: PLC0415
    from lo2io.verify.works import check_works  # noqa: PLC0415

    if _has_tables(anchor):
        trace = open_trace(anchor.parent)
        check_rows(trace, verdict)
        if has_rings(trace.metadata):
            TableRules(trace, verdict).check(rules.rings.counts)
            check_works(trace, rules.works, verdict)
        if trace.rows("fuse_requests"):
            check_fuse(trace, verdict)
        if trace.rows("futexes"):
            check_futexes(trace, verdict)
        if knows_paths(trace):
            FileRules(trace, verdict).check()
        check_calls(trace, rules.calls, verdict)
        _check_layers(trace, verdict, rules.write_backs)


def _check_layers(trace: Trace, verdict: Verification, told: ToldWriteBacks) -> None:
    from lo2io.verify.cache import check_cache, knows_cache  # noqa: PLC0415 -- pyarrow takes a while
    from lo2io.verify.faults import check_faults  # noqa: PLC0415
    from lo2io.verify.journal import check_commits  # noqa: PLC0415
    from lo2io.verify.parts import check_parts  # noqa: PLC0415
    from lo2io.verify.stacks import check_stacks  # noqa: PLC0415
    from lo2io.verify.waits import WaitRules, has_waits  # noqa: PLC0415
    from lo2io.verify.write_backs import check_told, check_write_backs  # noqa: PLC0415

    layers = trace.metadata.get("layers", ())
    if "parts" in layers:
        check_parts(trace, verdict)
    if "dirty" in layers:
        check_write_backs(trace, verdict)
        check_told(trace, told, verdict)
    if "faults" in layers:
        check_faults(trace, verdict)
    if "journal" in layers:
        check_commits(trace, verdict)
    if "stacks" in layers:
        check_stacks(trace, verdict)
    if knows_cache(trace):
        check_cache(trace, verdict)
    if has_waits(trace.metadata):
        WaitRules(trace, verdict).check()


def _count(definitions: Definitions, verdict: Verification) -> None:
    counts = verdict.counts
    counts.handles = len(definitions.table("handle"))
    counts.files = len(definitions.table("file"))
    counts.regions = len(definitions.table("region"))
    counts.calling_contexts = len(definitions.table("calling-context"))
    counts.locations = len(definitions.table("location"))
    counts.location_groups = len(definitions.table("location-group"))
    verdict.application_locations = sum(verdict.is_theirs(ref) for ref in definitions.table("location"))
    named = {finding.location for finding in verdict.findings if finding.location is not None}
    verdict.locations = {ref: definitions.name("location", ref) for ref in sorted(named)}
