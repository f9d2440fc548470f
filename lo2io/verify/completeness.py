"""A trace's own statement about completeness: is it proven that nothing was lost?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lo2io.model import Completeness
from lo2io.otf2.library import Library
from lo2io.otf2.read.anchor import find_anchor
from lo2io.trace.names import DIRECTORY, METADATA_FILE

if TYPE_CHECKING:
    from pathlib import Path

PROPERTIES = {
    "lost": "LO2IO::LOST",
    "vanished": "LO2IO::VANISHED",
    "late": "LO2IO::LATE",
    "orphan": "LO2IO::ORPHAN",
    "in_flight": "LO2IO::IN_FLIGHT",
    "samples": "LO2IO::SAMPLES",
    "proven": "LO2IO::COMPLETENESS",
}
"""Field of :class:`Completeness` → trace property. Used if the tables beside the trace are gone."""
RECORDED = ("LO2IO::RECORDED_PROCESSES", "LO2IO::RECORDED_COMPLETENESS")
"""The properties of ``whose`` and ``recorded_whole``. Recordings of the whole machine have neither."""
ENDS = ("LO2IO::INFERRED_ENDS", "LO2IO::UNKNOWN_ENDS")
"""The properties of ``inferred_ends`` and ``unknown_ends``; absent: 0."""


def read_completeness(trace: Path) -> Completeness | None:
    """The recording's four counters and their proof, from lo2io's tables or else from the trace's properties.

    Returns:
        None for a trace without this information, such as another tool's.

    Raises:
        TraceError: This is no trace, or lo2io's own tables cannot be read.
    """
    anchor = find_anchor(trace)
    from lo2io.trace.reader import open_trace  # noqa: PLC0415 -- pyarrow takes a while

    if (anchor.parent / DIRECTORY / METADATA_FILE).exists():
        return open_trace(anchor.parent).completeness
    return _from_properties(anchor)


def read_reconciliation(trace: Path) -> tuple[str, str]:
    """Two texts of the trace's properties: the captured part of the kernel's accounts, and the shortfall.

    Returns:
        Empty texts if the trace has no such property.

    Raises:
        TraceError: This is no trace.
    """
    library = Library()
    with library.reader(find_anchor(trace)) as reader:
        captured, shortfall = (library.property(reader, f"LO2IO::{key}") for key in ("RECONCILIATION", "SHORTFALL"))
    return captured or "", shortfall or ""


def _from_properties(anchor: Path) -> Completeness | None:
    library = Library()
    with library.reader(anchor) as reader:
        texts = {name: library.property(reader, key) for name, key in PROPERTIES.items()}
        whose, whole = (library.property(reader, key) or "" for key in RECORDED)
        inferred, unknown = (library.property(reader, key) or "" for key in ENDS)
    proven = texts.pop("proven")
    numbers: dict[str, Any] = {name: int(text) for name, text in texts.items() if text is not None and text.isdecimal()}
    if len(numbers) != len(texts) or proven is None:
        return None
    return Completeness(
        events=(),
        **numbers,
        proven=proven == "proven",
        recorded_whole=whole == "proven",
        whose=whose,
        inferred_ends=int(inferred) if inferred.isdecimal() else 0,
        unknown_ends=int(unknown) if unknown.isdecimal() else 0,
    )
