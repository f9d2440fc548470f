"""Whether the files of an archive are whole: looks at their ends.

In: an archive. Out: an error, if one was cut off. libotf2 does not always notice: it reads on in what its memory held
before, so there may be no error, but events and markers that nobody wrote.
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
    """Look at the end of each file that is there: definitions, markers, and those of all locations.

    The anchor file is the library's to judge, and so is what is missing. Call it behind opening the archive, which
    refuses what is written in another way (compressed). Where data happen to look like an end, the library misses the
    next chunk.

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
    """The files of locations bear their numbers. Other files of the directory are ignored."""
    yield from (path for suffix in (".def", ".marker") if (path := anchor.with_suffix(suffix)).exists())
    for pattern in ("*.def", "*.evt"):
        yield from sorted(path for path in anchor.with_suffix("").glob(pattern) if path.stem.isdecimal())
