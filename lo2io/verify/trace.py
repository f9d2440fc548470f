"""Reads a trace from end to end and holds it to the rules."""

from __future__ import annotations

import contextlib
import resource
from typing import TYPE_CHECKING, Any, Protocol

from lo2io.errors import TraceError
from lo2io.verify.definition_rules import check_definitions
from lo2io.verify.definitions import Definitions, read_definitions
from lo2io.verify.ends import check_ends
from lo2io.verify.events import EventRules
from lo2io.verify.library import DAMAGED, SUCCESS, Library
from lo2io.verify.markers import check_markers
from lo2io.verify.rules import Verification

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from lo2io.verify.rings import RingCounts

ANCHOR = "traces.otf2"
_EVENTS_AT_A_TIME = 100_000
_SPARE_FILES = 64
_PARTIAL = ("LO2IO::FILTER", "LO2IO::IO_URING_SAMPLE_RATE")
"""Properties of traces that lack what was recorded."""
_SION = "evt.sion"
"""One file for the events of all locations, where the trace was written so."""


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
        rules = EventRules(library, definitions, verdict, partial=partial)
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
    if (directory / _SION).exists():
        return sorted(counted)
    missing = sorted(counted - files)
    if missing:
        raise TraceError(
            f"reading the events of location {missing[0]}",
            f"{directory / f'{missing[0]}.evt'} does not exist ({len(missing)} of {len(locations)} files are missing)",
            "copy the whole trace: the .otf2 and .def files and the directory beside them",
        )
    return sorted(files & locations.keys())


@contextlib.contextmanager
def _many_files(number: int) -> Iterator[None]:
    """Allow that many more open files: OTF2 keeps one open for each location.

    Raises:
        TraceError: The hard limit is lower.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = number + _SPARE_FILES
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        yield
        return
    if hard != resource.RLIM_INFINITY and hard < number:
        answer = f"it needs {wanted} open files, the limit is {hard}"
        raise TraceError(f"reading the events of {number} locations", answer, f"`ulimit -n {wanted}`, as root")
    raised = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (raised, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


class EventReader(Protocol):
    """What takes the events of a trace."""

    def register(self, library: Library, callbacks: int) -> list[Any]:
        """Set its callbacks in a table of GlobalEvtReader; gives what must live while events are read."""


def read_events(
    library: Library,
    reader: int,
    anchor: Path,
    locations: list[int],
    rules: EventReader,
    *,
    progress: Callable[[int], None] | None = None,
) -> None:
    """Hand over all events of some locations, in the order of their times.

    Raises:
        TraceError: files are missing, truncated or unreadable.
    """
    if not locations:
        return
    with _many_files(len(locations)):
        for ref in locations:
            library.check(library.Reader_SelectLocation(reader, ref), f"selecting location {ref}")
        _read_local_definitions(library, reader, anchor, locations)
        library.check(library.Reader_OpenEvtFiles(reader), "opening the event files")
        for ref in locations:
            if not library.Reader_GetEvtReader(reader, ref):
                raise TraceError(f"reading the events of location {ref}", library.answer(), DAMAGED)
        _merge(library, reader, rules, progress)
        library.Reader_CloseEvtFiles(reader)


def _read_local_definitions(library: Library, reader: int, anchor: Path, locations: list[int]) -> None:
    """Mapping tables and clock offsets: the library applies them to the events. Not every trace has any.

    A definition reader takes as much memory as a chunk of definitions (4 MiB, say), even where there is no file for
    it: so only where there is one.
    """
    directory = anchor.with_suffix("")
    if not (directory / _SION).exists():
        locations = [ref for ref in locations if (directory / f"{ref}.def").exists()]
    if locations and library.Reader_OpenDefFiles(reader) == SUCCESS:
        for ref in locations:
            local = library.Reader_GetDefReader(reader, ref)
            if local:
                tried = f"reading definitions of location {ref}"
                library.number("Reader_ReadAllLocalDefinitions", reader, local, tried=tried)
                library.Reader_CloseDefReader(reader, local)
        library.Reader_CloseDefFiles(reader)
    library.messages.clear()


def _merge(library: Library, reader: int, rules: EventReader, progress: Callable[[int], None] | None) -> None:
    merged = library.Reader_GetGlobalEvtReader(reader)
    if not merged:
        library.check(1, "merging the event files")
    with library.callbacks("GlobalEvtReader") as callbacks:
        functions = rules.register(library, callbacks)
        code = library.Reader_RegisterGlobalEvtCallbacks(reader, merged, callbacks, None)
        library.check(code, "registering for events")
    done = 0
    while True:
        tried = f"reading events after the first {done}"
        read = library.number("Reader_ReadGlobalEvents", reader, merged, _EVENTS_AT_A_TIME, tried=tried)
        done += read
        if progress is not None and read:
            progress(done)
        if read < _EVENTS_AT_A_TIME:
            break
    del functions
    library.Reader_CloseGlobalEvtReader(reader, merged)
