"""The names of a trace's files and folders; a spool's are in :mod:`lo2io.spool.format`."""

from __future__ import annotations

import re
from typing import Final

ANCHOR: Final = "traces.otf2"
DEFINITIONS_FILE: Final = "traces.def"
MARKER_FILE: Final = "traces.marker"
ARCHIVE: Final = "traces"
"""libotf2's name of the archive: its files begin with it, and so is the folder of its locations called."""
DIRECTORY: Final = "lo2io"
"""Where the tables lie in the trace directory."""
METADATA_FILE: Final = "metadata.json"
"""In that directory; without it there is no trace. It is written last."""
SPOOL: Final = "spool"
"""The spool's place inside the trace's directory while recording, and after it with --keep-spool."""
PART: Final = ".part"
"""Behind the name of a file, or alone that of a folder, while it is being written."""
LOCATION_PATTERN: Final = re.compile(r"\d+\.(evt|def|snap)")
"""Files in the folder ``traces``."""
TABLE_PATTERN: Final = re.compile(rf"(\w+\.arrow|{re.escape(METADATA_FILE)})({re.escape(PART)})?")
"""Files in the folder ``lo2io``."""


def table_file(table: str) -> str:
    """The file of a table: ``operations.arrow``."""
    return f"{table}.arrow"


def events_file(location: int) -> str:
    """The file of a location's events, in the folder ``traces``."""
    return f"{location}.evt"
