"""The number of files and descriptors with a name, by the source that proved the name.

In: the tables of handles and files. Out: counts by ``name_source``, for the summary.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Final

import numpy as np

from lo2io.frozen import dataclass
from lo2io.model import UNKNOWN_U32
from lo2io.trace.columns import NAME_SOURCE, ORIGIN

if TYPE_CHECKING:
    from lo2io.trace.reader import Trace

_OPENED: Final = ORIGIN.index("opened")
_SAID: Final = {"kernel": "by the kernel", "proc": "by /proc", "call": "by the call's argument"}
"""Source of a name → words. The most reliable source comes first."""


@dataclass(frozen=True, slots=True)
class Named:
    """Numbers of names by source (``files.name_source``), and the number without a name."""

    kernel: int
    proc: int
    call: int
    unknown: int

    @property
    def all(self) -> int:
        """The number with and without a name."""
        return self.kernel + self.proc + self.call + self.unknown


@dataclass(frozen=True, slots=True)
class NameCounts:
    """Numbers of known names.

    Attributes:
        files: Rows of the files table.
        handles: Descriptors that some operation names.
        opened: Descriptors among these that a call of the trace opened.
    """

    files: Named
    handles: Named
    opened: Named


def count_names(trace: Trace) -> NameCounts:
    """Read the two tables once.

    Raises:
        TraceError: A table is missing or damaged.
    """
    handles, opened = (np.zeros(len(NAME_SOURCE), np.int64) for _ in range(2))
    of_files = np.zeros(len(trace.column("files", "file")) + 1, np.uint8)
    for batch in trace.batches("handles", ["name_source", "origin", "used", "file"]):
        source = np.where(batch["file"] == UNKNOWN_U32, 0, batch["name_source"])
        handles += np.bincount(source[batch["used"]], minlength=len(NAME_SOURCE))
        opened += np.bincount(source[batch["used"] & (batch["origin"] == _OPENED)], minlength=len(NAME_SOURCE))
        np.maximum.at(of_files, np.minimum(batch["file"], len(of_files) - 1), source.astype(np.uint8))
    if "name_source" in trace.schema("files").names:
        of_files = np.concatenate([*(part["name_source"] for part in trace.batches("files", ["name_source"])), [0]])
    files = np.bincount(
        of_files[:-1], minlength=len(NAME_SOURCE)
    )  # an earlier version's trace has sources for descriptors only
    return NameCounts(*(Named(**dict(zip(NAME_SOURCE, row.tolist(), strict=True))) for row in (files, handles, opened)))


def names_line(counts: NameCounts) -> str:
    """``names known of 12 of 14 descriptors: 10 by the kernel, 2 by /proc``; empty without any descriptor."""
    handles = counts.handles
    if not handles.all:
        return ""
    sources = asdict(handles)
    said = ", ".join(f"{sources[name]:,} {words}" for name, words in _SAID.items() if sources[name])
    known = handles.all - handles.unknown
    line = f"names known of {known:,} of {handles.all:,} descriptor{'s' * (handles.all != 1)}"
    return f"{line}: {said}" if said else line
