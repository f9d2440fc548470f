"""lo2io from Python: traces as tables, and recordings of a program's own.

These names are stable: a later version keeps what they mean, or has a new major number.
"""

from lo2io.api.recording import Recording, record
from lo2io.api.table import Table
from lo2io.api.trace import Trace, open_trace
from lo2io.errors import Lo2ioError

open = open_trace  # noqa: A001 - `lo2io.open`, as `gzip.open`

__all__ = ["Lo2ioError", "Recording", "Table", "Trace", "open", "record"]
