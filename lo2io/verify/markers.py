"""Rules of markers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lo2io.otf2.library import CONTINUE, TEXT, U8, U32, U64, Library, definition_type

if TYPE_CHECKING:
    from pathlib import Path

    from lo2io.otf2.read.definitions import Definitions
    from lo2io.verify.rules import Verification

_SCOPES = {1: "location", 2: "location-group", 3: "node", 4: "group", 5: "communicator"}
"""``OTF2_MarkerScope`` → kind of definition; 0 is the whole trace."""
_KIND = "MarkerReader"


def check_markers(library: Library, reader: int, anchor: Path, definitions: Definitions, verdict: Verification) -> None:
    """Read the trace's markers, if there are any, and report those that mark something undefined.

    Raises:
        TraceError: The ``.marker`` file cannot be read.
    """
    file = anchor.with_suffix(".marker")
    if not file.exists():
        return
    handle = library.Reader_GetMarkerReader(reader)
    if not handle:
        raise library.failure(f"reading the markers in {file}")
    defined: set[int] = set()
    markers: list[tuple[int, int, int, int, int]] = []

    def on_definition(_user: int, ref: int, _group: bytes, _category: bytes, _severity: int) -> int:
        defined.add(ref)
        return CONTINUE

    def on_marker(_user: int, time: int, duration: int, ref: int, scope: int, target: int, _text: bytes) -> int:
        markers.append((time, duration, ref, scope, target))
        return CONTINUE

    with library.callbacks(_KIND) as callbacks:
        functions = (
            definition_type(U32, TEXT, TEXT, U8)(on_definition),
            definition_type(U64, U64, U32, U8, U64, TEXT)(on_marker),
        )
        for record, function in zip(("DefMarker", "Marker"), functions, strict=True):
            library.set_callback(_KIND, callbacks, record, function)
        code = library.Reader_RegisterMarkerCallbacks(reader, handle, callbacks, None)
        library.check(code, "registering for markers")
    library.number("Reader_ReadAllMarkers", reader, handle, tried=f"reading the markers in {file}")
    library.Reader_CloseMarkerReader(reader, handle)
    verdict.counts.markers = len(markers)
    for marker in markers:
        _check(marker, defined, definitions, verdict)


def _check(
    marker: tuple[int, int, int, int, int], defined: set[int], definitions: Definitions, verdict: Verification
) -> None:
    time, duration, ref, scope, target = marker
    if ref not in defined:
        verdict.report("reference.marker", f"marker group {ref} is not defined", time=time)
    kind = _SCOPES.get(scope)
    if scope and (kind is None or target not in definitions.table(kind)):
        what = f"scope {scope}" if kind is None else f"{kind.replace('-', ' ')} {target}"
        verdict.report("marker.scope", f"{what} of a marker is not defined", time=time)
    start, end = verdict.start or 0, (verdict.start or 0) + (verdict.length or 0)
    if not start <= time <= time + duration <= end:
        text = f"ticks {time} to {time + duration} are not within {start} to {end}"
        verdict.report("marker.time", text, time=time)
