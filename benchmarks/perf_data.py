"""Counts in a perf.data file: the losses that perf record reports, and the samples of one event.

`perf report --stats` would print the same after half a minute. Layout:
tools/perf/Documentation/perf.data-file-format.txt and the records of include/uapi/linux/perf_event.h.
"""

from __future__ import annotations

import mmap
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

RECORD_LOST = 2
RECORD_SAMPLE = 9
RECORD_LOST_SAMPLES = 13
SAMPLE_IDENTIFIER = 1 << 16
SAMPLE_ID = 1 << 6
BEFORE_ID = (1 << 0, 1 << 1, 1 << 2, 1 << 3)
"""IP, TID, TIME, ADDR: each takes 8 bytes of a sample before its ID."""
_SECTION = struct.Struct("<QQ")
_RECORD = struct.Struct("<IHH")
_U64 = struct.Struct("<Q")


@dataclass(frozen=True)
class PerfCounts:
    """The contents of a perf.data file, and its losses."""

    lost: int
    """The larger of two sums: of the buffers' LOST records, and of perf's closing LOST_SAMPLES records."""
    samples: int
    """Samples of the requested event."""


def count(path: Path, event_id: int) -> PerfCounts:
    """Walk through a file's records.

    Args:
        path: A perf.data file of several events, whose samples have identifiers.
        event_id: The tracepoint to count, by its id in tracefs.
    """
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        if data[:8] != b"PERFILE2":
            raise ValueError(f"{path} is no perf.data file")
        id_at, wanted = _ids(data, event_id)
        offset, size = _SECTION.unpack_from(data, 40)
        end = offset + size
        lost = lost_samples = samples = 0
        while offset < end:
            kind, _, size = _RECORD.unpack_from(data, offset)
            if kind == RECORD_SAMPLE:
                samples += data[offset + id_at : offset + id_at + 8] in wanted
            elif kind == RECORD_LOST:
                lost += _U64.unpack_from(data, offset + 16)[0]
            elif kind == RECORD_LOST_SAMPLES:
                lost_samples += _U64.unpack_from(data, offset + 8)[0]
            offset += size
    return PerfCounts(max(lost, lost_samples), samples)


def _ids(data: mmap.mmap, event_id: int) -> tuple[int, frozenset[bytes]]:
    """Where a sample's identifier stands, and the identifiers of one tracepoint's samples, one per CPU or task.

    These belong to the attr whose config is the tracepoint's id.
    """
    entry_size = _U64.unpack_from(data, 16)[0]
    offset, size = _SECTION.unpack_from(data, 24)
    for entry in range(offset, offset + size, entry_size):
        if _U64.unpack_from(data, entry + 8)[0] != event_id:
            continue
        sample_type = _U64.unpack_from(data, entry + 24)[0]
        if sample_type & SAMPLE_IDENTIFIER:
            at = 8
        elif sample_type & SAMPLE_ID:
            at = 8 + 8 * sum(bool(sample_type & flag) for flag in BEFORE_ID)
        else:
            raise ValueError("samples bear no identifier")
        ids_offset, ids_size = _SECTION.unpack_from(data, entry + entry_size - _SECTION.size)
        return at, frozenset(data[i : i + 8] for i in range(ids_offset, ids_offset + ids_size, 8))
    raise ValueError(f"no event has id {event_id}")
