"""The framing of a spool's files: finds the starts of records as the engine does."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from lo2io.native._lib import ffi, lib

if TYPE_CHECKING:
    from numpy.typing import NDArray

SAMPLES: int = lib.LO2_STREAM_SAMPLES
FACTS: int = lib.LO2_STREAM_FACTS
KERNEL: int = lib.LO2_STREAM_KERNEL
EVENTS: int = lib.LO2_STREAM_EVENTS
"""Kinds of a spool's files, by their contents."""
_NOT_FRAMED = 2**64 - 1


def list_records(stream: int, content: bytes) -> tuple[NDArray[np.int64], int | None]:
    """Find the whole records in a piece of a spool's file, as the engine does.

    Args:
        stream: ``SAMPLES``, ``FACTS``, ``KERNEL`` or ``EVENTS``. In the last two, discarded records are left out.
        content: Bytes that begin with a record.

    Returns:
        The number of the 8 byte word in which each record begins, int64 of shape (n,); and the end of the last record
        in bytes, None if the following bytes are no record.
    """
    places = np.empty(len(content) // 8 + 1, np.int64)
    end = ffi.new("uint64_t *")
    room = ffi.cast("int64_t *", places.ctypes.data)
    count = lib.lo2_list_records(stream, ffi.from_buffer(content), len(content), room, end)
    return places[:count], None if end[0] == _NOT_FRAMED else int(end[0])
