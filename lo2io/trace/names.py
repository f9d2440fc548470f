"""The names of a trace's files and folders; a spool's are in :mod:`lo2io.spool.format`."""

from __future__ import annotations

import re
from typing import Final

ANCHOR: Final = "traces.otf2"
DEFINITIONS_FILE: Final = "traces.def"
MARKER_FILE: Final = "traces.marker"
ARCHIVE: Final = "traces"
"""libotf2's name of the archive: its files' names begin so, and the folder of its locations has this name."""
DIRECTORY: Final = "lo2io"
"""The folder of the tables in the trace's directory."""
METADATA_FILE: Final = "metadata.json"
"""The file of metadata in that folder. It is written last; without it there is no trace."""
SPOOL: Final = "spool"
"""The folder of the spool in the trace's directory: there while recording, and with --keep-spool also afterwards."""
PART: Final = ".part"
"""The suffix of a file while the file is written. Also the name of a folder in which a trace is written."""
REWRITTEN: Final = "flat"
"""The folder, within the archive's, in which `merge --flatten` writes events anew."""
USED_IDS: Final = "used.ids"
"""The file, in the folder ``traces``, that tells which definitions the events of each location name."""
LOCATION_PATTERN: Final = re.compile(rf"\d+\.(evt({re.escape(PART)})?|def|snap)|{re.escape(USED_IDS)}")
"""Files in the folder ``traces``."""
TABLE_PATTERN: Final = re.compile(rf"(\w+\.arrow|{re.escape(METADATA_FILE)})({re.escape(PART)})?")
"""Files in the folder ``lo2io``."""


def table_file(table: str) -> str:
    """The file of a table: ``operations.arrow``."""
    return f"{table}.arrow"


def events_file(location: int) -> str:
    """The file of a location's events, in the folder ``traces``."""
    return f"{location}.evt"
