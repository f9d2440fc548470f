"""Opens any trace: lo2io's own, or another tool's archive."""

from __future__ import annotations

import contextlib
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from lo2io.trace.names import ANCHOR, DIRECTORY, METADATA_FILE
from lo2io.trace.reader import open_trace

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lo2io.trace.reader import Trace


def scratch_folders(path: Path) -> list[Path]:
    """The folders, beside its output, into which a command writes that opens this trace by :func:`open_any`."""
    return [] if _has_tables(path) else [Path(tempfile.gettempdir())]


@contextlib.contextmanager
def open_any(path: Path) -> Iterator[Trace]:
    """Open a trace of lo2io, or any other OTF2 archive: a directory, or its ``.otf2`` file.

    Raises:
        TraceError: The path is neither of them, or the trace is damaged.
    """
    if _has_tables(path):
        yield open_trace(path)
        return
    from lo2io.otf2.foreign.archive import open_archive  # noqa: PLC0415  takes 160 ms, and few need it

    with open_archive(path) as trace:
        yield trace


def _has_tables(path: Path) -> bool:
    directory = path.parent if path.name == ANCHOR else path
    return (directory / DIRECTORY / METADATA_FILE).exists()
