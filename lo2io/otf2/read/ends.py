"""Checks by their ends that the files of an archive are whole.

In: an archive. Out: an error if a file was cut off. libotf2 does not always notice a cut: it may read on in old
contents of its memory, and return events and markers that nobody wrote.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

from lo2io.errors import TraceError
from lo2io.otf2.library import DAMAGED

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_END: Final = b"\x02\x01"
"""The marks at the end of a file and of its last chunk (OTF2_Buffer.h; seen with OTF2 3.2)."""


def check_ends(anchor: Path) -> None:
    """Check the end of each existing file: definitions, markers, and files of all locations.

    The library itself checks the anchor file, and that no file is missing. Call this function after opening the
    archive: opening refuses compressed files. A file that is cut where data happen to look like an end is not noticed
    here; there the library misses the next chunk.

    Args:
        anchor: The ``.otf2`` file.

    Raises:
        TraceError: A file ends early, or cannot be read.
    """
    for path in _files(anchor):
        try:
            with path.open("rb") as file:
                size = file.seek(0, os.SEEK_END)
                file.seek(max(0, size - len(_END)))
                end = file.read()
        except OSError as error:
            raise TraceError(f"reading {path}", error.strerror or str(error), "make it readable") from error
        if end != _END:
            raise TraceError(f"reading the trace {anchor}", f"{path} ends early, at {size:,} bytes", DAMAGED)


def _files(anchor: Path) -> Iterator[Path]:
    """The archive's files. Names of locations' files are numbers; other files of the directory are ignored."""
    yield from (path for suffix in (".def", ".marker") if (path := anchor.with_suffix(suffix)).exists())
    for pattern in ("*.def", "*.evt"):
        yield from sorted(path for path in anchor.with_suffix("").glob(pattern) if path.stem.isdecimal())
