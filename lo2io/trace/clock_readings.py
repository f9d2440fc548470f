"""The spool's readings of the machine's clocks as columns of the table ``clock_readings``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from lo2io.folder import read_regular
from lo2io.native.columns import allocate_rows

if TYPE_CHECKING:
    from pathlib import Path

    from lo2io.model import Columns

_MAX_BYTES = 1 << 30
"""The largest file of readings that is read: those of five months."""


def read_readings(path: Path) -> Columns:
    """The readings of a file. A last one that a killed recorder cut short is left out.

    Raises:
        OSError: The file cannot be read.
    """
    dtype = allocate_rows("lo2_clock_reading", 0).dtype
    content = read_regular(path, _MAX_BYTES)
    rows = np.frombuffer(content, dtype, len(content) // dtype.itemsize)
    return {name: rows[name] for name in dtype.names or ()}
