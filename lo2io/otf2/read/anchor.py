"""The files of an OTF2 archive: its anchor file, and the locations that have events."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lo2io.errors import TraceError
from lo2io.otf2.read.events import SION
from lo2io.trace.names import ANCHOR, events_file

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from lo2io.otf2.read.definitions import Definitions


def find_anchor(trace: Path) -> Path:
    """The ``.otf2`` file of a trace, given the file itself or the trace's directory.

    Raises:
        TraceError: There is no such file, or the directory holds several.
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


def readable_locations(
    anchor: Path, definitions: Definitions, undefined: Callable[[int, str], None] = lambda _location, _file: None
) -> list[int]:
    """The locations that have events to read.

    ``undefined`` takes each location that has a file but no definition, and the file's name. A location without events
    needs no file. A trace in one SION file has no files of locations: there, counts in definitions tell which have
    events.
    """
    directory = anchor.with_suffix("")
    files = {int(path.stem) for path in directory.glob("*.evt") if path.stem.isdecimal()}
    locations = definitions.table("location")
    for ref in sorted(files - locations.keys()):
        undefined(ref, f"{directory.name}/{events_file(ref)}")
    counted = {ref for ref, values in locations.items() if values[2]}
    if (directory / SION).exists():
        return sorted(counted)
    missing = sorted(counted - files)
    if missing:
        file = directory / events_file(missing[0])
        raise TraceError(
            f"reading the events of location {missing[0]}",
            f"{file} does not exist ({len(missing)} of {len(locations)} files are missing)",
            "copy the whole trace: the .otf2 and .def files and the directory beside them",
        )
    return sorted(files & locations.keys())
