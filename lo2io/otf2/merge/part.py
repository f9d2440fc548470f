"""One host's archive: what must be known of it before it is merged."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from lo2io.errors import TraceError
from lo2io.otf2.library import TEXT, U8, U32, U64, Library, definition_type
from lo2io.trace.names import ANCHOR, MARKER_FILE

if TYPE_CHECKING:
    from pathlib import Path

    from lo2io.trace.correction import Correction

_STOP: Final = 1
"""A callback's return value for "read no further" (OTF2_CALLBACK_INTERRUPT)."""
PROPERTIES: Final = (
    *("VERSION", "LOST", "VANISHED", "LATE", "ORPHAN", "IN_FLIGHT", "SAMPLES", "COMPLETENESS", "INFERRED_ENDS"),
    *("UNKNOWN_ENDS", "THROTTLED", "MOVED_EVENTS", "IO_URING_REQUESTS", "IO_URING_NO_DATA", "IO_URING_SAMPLE_RATE"),
    *("FILTER", "NR_OWN_CALLS", "NR_OWN_REQUESTS", "SHORTFALL"),
)
"""The properties ``LO2IO::…`` of an archive from which those of a merged one are made."""


@dataclass(frozen=True, slots=True)
class Part:
    """The archive of one host.

    Attributes:
        host: The host's name, which no other host has.
        number: The host's place among all hosts. It ends the ids of the host's locations.
        directory: Where the archive lies.
        correction: What makes the host's clock the merged archive's.
    """

    host: str
    number: int
    directory: Path
    correction: Correction


@dataclass(frozen=True, slots=True)
class Head:
    """What the anchor file and the first definitions of an archive tell."""

    start_ns: int
    length_ns: int
    realtime_ns: int
    resolution: int
    chunk_bytes: int
    nr_locations: int
    creator: str
    properties: dict[str, str]


@dataclass(frozen=True, slots=True)
class Marker:
    """A marker, with the references of its archive."""

    time: int
    duration: int
    scope: int
    target: int
    text: str
    category: str
    severity: int
    group: str = "lo2io"


def read_head(library: Library, directory: Path) -> Head:
    """What can be known of an archive without reading its definitions.

    Raises:
        TraceError: There is no archive, or it is damaged.
    """
    anchor = directory / ANCHOR
    clocks: list[tuple[int, int, int, int]] = []

    def on_clock(_user: int, *values: int) -> int:
        clocks.append((values[0], values[1], values[2], values[3]))
        return _STOP

    with library.reader(anchor) as reader, library.callbacks("GlobalDefReader") as callbacks:
        chunk = library.two_numbers("Reader_GetChunkSize", reader, tried=f"reading {anchor}")[0]
        nr_locations = library.number("Reader_GetNumberOfLocations", reader, tried=f"reading {anchor}")
        found = ((name, library.property(reader, f"LO2IO::{name}")) for name in PROPERTIES)
        properties = {name: text for name, text in found if text}
        creator = library.creator(reader) or ""
        handle = library.Reader_GetGlobalDefReader(reader)
        if not handle:
            raise library.failure(f"reading the definitions of {directory}")
        function = definition_type(U64, U64, U64, U64)(on_clock)
        library.set_callback("GlobalDefReader", callbacks, "ClockProperties", function)
        library.check(library.Reader_RegisterGlobalDefCallbacks(reader, handle, callbacks, None), "registering")
        library.Reader_ReadAllGlobalDefinitions(reader, handle, ctypes.byref(U64()))
        library.Reader_CloseGlobalDefReader(reader, handle)
        library.forget()
    if not clocks:
        raise TraceError(f"reading the trace {directory}", "its clock is not defined", "convert its spool again")
    resolution, start, length, realtime = clocks[0]
    return Head(start, length, realtime, resolution, chunk, nr_locations, creator, properties)


def read_markers(library: Library, reader: int, directory: Path, name: str = MARKER_FILE) -> list[Marker]:
    """The markers of an open archive.

    Raises:
        TraceError: They cannot be read.
    """
    file = directory / name
    if not file.exists():
        return []
    handle = library.Reader_GetMarkerReader(reader)
    if not handle:
        raise library.failure(f"reading the markers in {file}")
    kinds: dict[int, tuple[str, int, str]] = {}
    found: list[Marker] = []

    def on_definition(_user: int, ref: int, group: bytes, category: bytes, severity: int) -> int:
        kinds[ref] = category.decode(errors="replace"), severity, group.decode(errors="replace")
        return 0

    def on_marker(_user: int, *values: Any) -> int:
        time, duration, ref, scope, target, text = values
        category, severity, group = kinds.get(ref, ("marker", 0, ""))
        found.append(Marker(time, duration, scope, target, text.decode(errors="replace"), category, severity, group))
        return 0

    with library.callbacks("MarkerReader") as callbacks:
        functions = (
            definition_type(U32, TEXT, TEXT, U8)(on_definition),
            definition_type(U64, U64, U32, U8, U64, TEXT)(on_marker),
        )
        for record, function in zip(("DefMarker", "Marker"), functions, strict=True):
            library.set_callback("MarkerReader", callbacks, record, function)
        code = library.Reader_RegisterMarkerCallbacks(reader, handle, callbacks, None)
        library.check(code, "registering for markers")
    library.number("Reader_ReadAllMarkers", reader, handle, tried=f"reading the markers in {file}")
    library.Reader_CloseMarkerReader(reader, handle)
    return found
